//! A moment of virtual time, and how it is read and written (contract 6).

use std::fmt;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

const MICROS_PER_SECOND: i64 = 1_000_000;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// A moment of virtual time, to the microsecond, from year 1 to the end of year 9999. Written in UTC with `Z`,
/// microseconds when they are not zero: `2026-10-05T09:00:00Z`, `2026-10-05T09:00:00.144000Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualTime(i64);

impl VirtualTime {
    /// The first moment that can be told: `0001-01-01T00:00:00Z`.
    pub const MIN: Self = Self(-62_135_596_800 * MICROS_PER_SECOND);
    /// The last one: `9999-12-31T23:59:59.999999Z`.
    pub const MAX: Self = Self(253_402_300_800 * MICROS_PER_SECOND - 1);

    /// From microseconds since 1970, kept within [`MIN`](Self::MIN) and [`MAX`](Self::MAX).
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Microseconds since 1970.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// This moment and `micros` more, or `None` past either end.
    pub fn checked_add(self, micros: i64) -> Option<Self> {
        let sum = self.0.checked_add(micros)?;
        (Self::MIN.0..=Self::MAX.0).contains(&sum).then_some(Self(sum))
    }

    /// This moment and `micros` more, staying at either end.
    pub fn saturating_add(self, micros: i64) -> Self {
        Self::from_micros(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to this moment; negative when it is later.
    pub fn micros_since(self, earlier: Self) -> i64 {
        self.0 - earlier.0
    }

    /// Without the part of a second.
    pub fn whole_second(self) -> Self {
        Self(self.0.div_euclid(MICROS_PER_SECOND) * MICROS_PER_SECOND)
    }

    /// The date and time in UTC.
    pub fn civil(self) -> DateTime {
        EPOCH.saturating_add(SignedDuration::from_micros(self.0))
    }

    /// The wall-clock time in a zone, and the zone's offset then.
    pub fn in_zone(self, zone: &TimeZone) -> (DateTime, Offset) {
        // A timestamp ends a day before year 9999 does; no zone changes its offset in that day.
        let at = Timestamp::from_microsecond(self.0).unwrap_or(Timestamp::MAX);
        let offset = zone.to_offset(at);
        (self.civil().saturating_add(SignedDuration::from_secs(i64::from(offset.seconds()))), offset)
    }

    /// Reads RFC 3339 as contract 6 has it: `YYYY-MM-DD`, `T`, `t` or a space, `hh:mm:ss`, an optional fraction (cut to
    /// microseconds), `Z`, `z` or `±hh:mm`, and nothing around it.
    ///
    /// # Errors
    /// What is wrong with the text, as the end of a sentence about it.
    pub fn parse(text: &str) -> Result<Self, InstantError> {
        let (civil, rest) = parse_civil(text.as_bytes()).ok_or(InstantError::Form)?;
        let (fraction, rest) = parse_fraction(rest).ok_or(InstantError::Form)?;
        let offset = parse_offset(rest).ok_or(InstantError::Form)?;
        let [year, month, day, hour, minute, second] = civil;
        let field = |n: u16| i8::try_from(n).map_err(|_| InstantError::NoSuchTime);
        let date = Date::new(year.cast_signed(), field(month)?, field(day)?);
        let time = Time::new(field(hour)?, field(minute)?, field(second)?, 0);
        let (Ok(date), Ok(time)) = (date, time) else { return Err(InstantError::NoSuchTime) };
        let seconds = date.to_datetime(time).duration_since(EPOCH).as_secs();
        let offset = offset.ok_or(InstantError::NoSuchTime)?;
        let micros = (seconds - offset) * MICROS_PER_SECOND + fraction;
        (year > 0 && (Self::MIN.0..=Self::MAX.0).contains(&micros))
            .then_some(Self(micros))
            .ok_or(InstantError::OutOfRange)
    }
}

/// Why a text is not a moment of virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InstantError {
    /// It does not look like one.
    #[error(
        "is not RFC 3339: expected YYYY-MM-DDThh:mm:ss, an optional fraction, then Z or an offset like +02:00"
    )]
    Form,
    /// It looks like one, but there is no such day, hour, minute, second or offset.
    #[error("names a day, time or offset that does not exist")]
    NoSuchTime,
    /// It is before year 1 or after year 9999 in UTC.
    #[error("is outside years 1 to 9999")]
    OutOfRange,
}

impl fmt::Display for VirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = self.civil();
        write!(f, "{:04}-{:02}-{:02}T", civil.year(), civil.month(), civil.day())?;
        write!(f, "{:02}:{:02}:{:02}", civil.hour(), civil.minute(), civil.second())?;
        match self.0.rem_euclid(MICROS_PER_SECOND) {
            0 => f.write_str("Z"),
            micros => write!(f, ".{micros:06}Z"),
        }
    }
}

impl fmt::Debug for VirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for VirtualTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A wall-clock time with its offset, to the second: `2026-10-05T05:00:00-04:00`. Offsets with seconds, as zones had
/// before they were standardized, are written in full.
pub(crate) fn local_text(civil: DateTime, offset: Offset) -> String {
    let seconds = SignedDuration::from_secs(i64::from(offset.seconds())).unsigned_abs().as_secs();
    let sign = if offset.is_negative() { '-' } else { '+' };
    let mut text =
        format!("{}{sign}{:02}:{:02}", crate::time::to_the_second(civil), seconds / 3_600, seconds / 60 % 60);
    if !seconds.is_multiple_of(60) {
        text.push_str(&format!(":{:02}", seconds % 60));
    }
    text
}

/// Takes a number of exactly `digits` digits off the front.
fn digits(text: &[u8], digits: usize) -> Option<(u16, &[u8])> {
    let (head, rest) = text.split_at_checked(digits)?;
    let mut number = 0;
    for byte in head {
        number = number * 10 + u16::from(byte.is_ascii_digit().then(|| byte - b'0')?);
    }
    Some((number, rest))
}

/// Takes one of `allowed` off the front.
fn one_of<'a>(text: &'a [u8], allowed: &[u8]) -> Option<&'a [u8]> {
    let (first, rest) = text.split_first()?;
    allowed.contains(first).then_some(rest)
}

fn parse_civil(text: &[u8]) -> Option<([u16; 6], &[u8])> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(one_of(rest, b"-")?, 2)?;
    let (day, rest) = digits(one_of(rest, b"-")?, 2)?;
    let (hour, rest) = digits(one_of(rest, b"Tt ")?, 2)?;
    let (minute, rest) = digits(one_of(rest, b":")?, 2)?;
    let (second, rest) = digits(one_of(rest, b":")?, 2)?;
    Some(([year, month, day, hour, minute, second], rest))
}

/// Takes `.ddd…` off the front, as microseconds; nothing there is none.
fn parse_fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(rest) = one_of(text, b".") else { return Some((0, text)) };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (fraction, rest) = rest.split_at(length);
    let micros =
        (0..6).fold(0, |sum, at| sum * 10 + fraction.get(at).map_or(0, |digit| i64::from(digit - b'0')));
    (length > 0).then_some((micros, rest))
}

/// The offset in seconds that the whole text is; the inner `None` for one that no place on earth has.
fn parse_offset(text: &[u8]) -> Option<Option<i64>> {
    if matches!(text, b"Z" | b"z") {
        return Some(Some(0));
    }
    let sign = if text.first() == Some(&b'-') { -1 } else { 1 };
    let (hours, rest) = digits(one_of(text, b"+-")?, 2)?;
    let (minutes, rest) = digits(one_of(rest, b":")?, 2)?;
    let seconds = i64::from(hours) * 3_600 + i64::from(minutes) * 60;
    rest.is_empty().then_some((hours < 24 && minutes < 60).then_some(sign * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(text: &str) -> Result<String, InstantError> {
        VirtualTime::parse(text).map(|at| at.to_string())
    }

    #[test]
    fn forms_that_are_read() {
        for (text, written) in [
            ("2026-10-05T09:00:00Z", "2026-10-05T09:00:00Z"),
            ("2026-10-05T11:00:00+02:00", "2026-10-05T09:00:00Z"),
            ("2026-10-05t09:00:00z", "2026-10-05T09:00:00Z"),
            ("2026-10-05 09:00:00Z", "2026-10-05T09:00:00Z"),
            ("2026-10-05T09:00:00.25Z", "2026-10-05T09:00:00.250000Z"),
            ("2026-10-05T09:00:00.000001Z", "2026-10-05T09:00:00.000001Z"),
            ("2026-10-05T09:00:00.123456789Z", "2026-10-05T09:00:00.123456Z"),
            ("2026-10-05T09:00:00.99999999Z", "2026-10-05T09:00:00.999999Z"),
            ("2026-10-05T09:00:00.0000009Z", "2026-10-05T09:00:00Z"),
            ("2024-02-29T23:59:59-05:30", "2024-03-01T05:29:59Z"),
            ("2026-10-05T09:00:00-00:00", "2026-10-05T09:00:00Z"),
            ("2026-10-05T09:00:00+23:59", "2026-10-04T09:01:00Z"),
            ("0001-01-01T00:00:00-23:59", "0001-01-01T23:59:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.500000Z"),
        ] {
            assert_eq!(reads(text).as_deref(), Ok(written), "{text}");
        }
    }

    #[test]
    fn forms_that_are_refused() {
        use InstantError::{Form, NoSuchTime, OutOfRange};
        for (text, error) in [
            ("", Form),
            ("2026-10-05", Form),
            ("2026-10-05T09:00Z", Form),
            ("2026-10-05T09:00:00", Form),
            (" 2026-10-05T09:00:00Z", Form),
            ("2026-10-05T09:00:00Z ", Form),
            ("2026-10-05T09:00:00Z\n", Form),
            ("20261005T090000Z", Form),
            ("2026-10-05T09:00:00+2:00", Form),
            ("2026-10-05T09:00:00+0200", Form),
            ("2026-10-05T09:00:00.Z", Form),
            ("2026-10-05T09:00:00,5Z", Form),
            ("+026-10-05T09:00:00Z", Form),
            ("２026-10-05T09:00:00Z", Form),
            ("2026-10-05T09:00:00−02:00", Form),
            ("2026-13-05T09:00:00Z", NoSuchTime),
            ("2026-02-30T09:00:00Z", NoSuchTime),
            ("2026-10-00T09:00:00Z", NoSuchTime),
            ("2026-10-05T25:00:00Z", NoSuchTime),
            ("2026-10-05T24:00:00Z", NoSuchTime),
            ("2026-10-05T23:60:00Z", NoSuchTime),
            ("2026-12-31T23:59:60Z", NoSuchTime),
            ("2026-10-05T09:00:00+24:00", NoSuchTime),
            ("2026-10-05T09:00:00+23:60", NoSuchTime),
            ("0000-01-01T00:00:00Z", OutOfRange),
            ("0001-01-01T00:00:00+23:59", OutOfRange),
            ("9999-12-31T23:59:59-00:01", OutOfRange),
        ] {
            assert_eq!(reads(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn the_ends_hold() {
        assert_eq!(VirtualTime::MAX.checked_add(1), None);
        assert_eq!(VirtualTime::MIN.checked_add(-1), None);
        assert_eq!(VirtualTime::MAX.saturating_add(i64::MAX), VirtualTime::MAX);
        assert_eq!(VirtualTime::MIN.to_string(), "0001-01-01T00:00:00Z");
        assert_eq!(VirtualTime::MAX.to_string(), "9999-12-31T23:59:59.999999Z");
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_back(micros in VirtualTime::MIN.0..=VirtualTime::MAX.0) {
            let at = VirtualTime(micros);
            proptest::prop_assert_eq!(VirtualTime::parse(&at.to_string()), Ok(at));
        }

        #[test]
        fn reading_never_panics(text in "[-0-9T:. zZ+é]{0,40}") {
            let _ = VirtualTime::parse(&text);
        }
    }
}
