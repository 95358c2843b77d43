//! A moment, as the protocol writes it (contract 6): UTC with `Z`, microseconds where there are any.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment. It is read from RFC 3339 with any offset, kept to the microsecond, and written in UTC.
///
/// As a parameter its schema is a string of the format `date-time`.
///
/// ```
/// use agentenv_protocol::time::DateTime;
///
/// let at: DateTime = "2026-10-05T11:00:00.25+02:00".parse().unwrap();
/// assert_eq!(at.to_string(), "2026-10-05T09:00:00.250000Z");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime(Timestamp);

/// A text that is no moment.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not an RFC 3339 date and time with an offset")]
pub struct NotADateTime;

impl DateTime {
    /// The machine's time.
    pub fn machine() -> Self {
        Timestamp::now().into()
    }

    /// The moment as `jiff` has it.
    pub fn timestamp(self) -> Timestamp {
        self.0
    }

    /// The moment this many seconds later, or the last (or first) there is.
    pub(crate) fn after_seconds(self, seconds: f64) -> Self {
        // `as` saturates.
        let micros = self.0.as_microsecond().saturating_add((seconds * 1e6) as i64);
        let end = if seconds < 0.0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::from_microsecond(micros).unwrap_or(end).into()
    }
}

impl From<Timestamp> for DateTime {
    fn from(at: Timestamp) -> Self {
        Self(Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at))
    }
}

impl From<DateTime> for Timestamp {
    fn from(at: DateTime) -> Self {
        at.0
    }
}

impl FromStr for DateTime {
    type Err = NotADateTime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Timestamp>().map(Self::from).map_err(|_| NotADateTime)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = TimeZone::UTC.to_datetime(self.0);
        write!(f, "{:04}-{:02}-{:02}", at.year(), at.month(), at.day())?;
        write!(f, "T{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())?;
        match at.subsec_nanosecond() / 1_000 {
            0 => f.write_str("Z"),
            micros => write!(f, ".{micros:06}Z"),
        }
    }
}

impl Serialize for DateTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DateTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse()
            .map_err(|_| de::Error::invalid_value(de::Unexpected::Str(&text), &"an RFC 3339 date and time"))
    }
}

impl JsonSchema for DateTime {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "DateTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_the_protocol_has_it() {
        for (text, written) in [
            ("2026-10-05T09:00:00Z", "2026-10-05T09:00:00Z"),
            ("2026-10-05 11:00:00+02:00", "2026-10-05T09:00:00Z"),
            ("2026-10-05T09:00:00.144Z", "2026-10-05T09:00:00.144000Z"),
            ("2026-10-05T09:00:00.0000001Z", "2026-10-05T09:00:00Z"),
            ("0900-01-01T00:00:00Z", "0900-01-01T00:00:00Z"),
        ] {
            assert_eq!(text.parse::<DateTime>().unwrap().to_string(), written);
        }
        for text in ["", "2026-10-05", "2026-10-05T09:00:00", "noon", "2026-13-05T09:00:00Z"] {
            assert!(text.parse::<DateTime>().is_err(), "{text}");
        }
    }

    #[test]
    fn adding_saturates() {
        let at: DateTime = "9999-12-30T00:00:00Z".parse().unwrap();
        assert_eq!(at.after_seconds(1.5).to_string(), "9999-12-30T00:00:01.500000Z");
        assert_eq!(at.after_seconds(f64::INFINITY), DateTime::from(Timestamp::MAX));
    }
}
