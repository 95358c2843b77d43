//! When a time trigger fires: moments and durations as they are written, and the run of marks that they make
//! (contract 7.4).

use super::random::{Random, Seed, micros_from_seconds};
use crate::clock::VirtualTime;

/// Longest duration: more than the calendar has, so that anything longer never comes.
const MAX_DURATION: i64 = 400_000_000_000_000_000;

/// A moment of virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    At(VirtualTime),
    /// That many microseconds after the clock's start.
    FromStart(i64),
}

impl Moment {
    /// RFC 3339, or a duration from the start.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('P') {
            return parse_duration(text).map(Self::FromStart);
        }
        VirtualTime::parse(text)
            .map(Self::At)
            .map_err(|error| format!("{text:?} {error}, or a duration like PT15M"))
    }

    /// None past the end of the calendar.
    fn on(self, t0: VirtualTime) -> Option<VirtualTime> {
        match self {
            Self::At(at) => Some(at),
            Self::FromStart(micros) => t0.checked_add(micros),
        }
    }
}

/// Reads an ISO 8601 duration of weeks, days, hours, minutes and (fractional) seconds, as microseconds.
pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    read_duration(text).ok_or_else(|| {
        format!("{text:?} is not an ISO 8601 duration of weeks, days, hours, minutes or seconds, such as P1DT6H or PT15M")
    })
}

fn read_duration(text: &str) -> Option<i64> {
    let rest = text.strip_prefix('P')?;
    let (date, time) = rest.split_once('T').map_or((rest, None), |(date, time)| (date, Some(time)));
    let mut seconds = 0.0;
    let mut parts = 0;
    for (mut text, units) in [
        (date, [('W', 604_800.0), ('D', 86_400.0)].as_slice()),
        (time.unwrap_or_default(), [('H', 3_600.0), ('M', 60.0), ('S', 1.0)].as_slice()),
    ] {
        for (unit, size) in units {
            let Some((number, after)) = text.split_once(*unit) else { continue };
            let (whole, fraction) =
                number.split_once('.').map_or((number, None), |(whole, part)| (whole, Some(part)));
            let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if !digits(whole) || !fraction.is_none_or(|part| *unit == 'S' && digits(part)) {
                return None;
            }
            seconds += number.parse::<f64>().ok()? * size;
            parts += 1;
            text = after;
        }
        if !text.is_empty() {
            return None;
        }
    }
    (parts > 0).then(|| micros_from_seconds(seconds).unwrap_or(MAX_DURATION).min(MAX_DURATION))
}

/// A gap between marks, or a delay: fixed, or drawn anew each time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Gap {
    /// Microseconds.
    Fixed(i64),
    /// Exponentially distributed.
    Random { mean_seconds: f64, seed: Seed },
}

impl Gap {
    /// Where the draws start.
    pub(crate) fn draws(&self) -> Draws {
        match self {
            Self::Fixed(micros) => Draws::Fixed(*micros),
            Self::Random { mean_seconds, seed } => {
                Draws::Random { mean_seconds: *mean_seconds, random: Box::new(Random::new(seed)) }
            }
        }
    }
}

/// The gaps that are still to come.
#[derive(Debug, Clone)]
pub(crate) enum Draws {
    Fixed(i64),
    Random { mean_seconds: f64, random: Box<Random> },
}

impl Draws {
    /// The next gap in microseconds.
    pub(crate) fn next(&mut self) -> i64 {
        match self {
            Self::Fixed(micros) => *micros,
            Self::Random { mean_seconds, random } => micros_from_seconds(random.exponential(*mean_seconds))
                .unwrap_or(MAX_DURATION)
                .min(MAX_DURATION),
        }
    }
}

/// The times of a time trigger.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) start: Start,
    pub(crate) every: Option<Gap>,
    pub(crate) count: Option<u64>,
    pub(crate) until: Option<Moment>,
}

/// Where the times begin.
#[derive(Debug, Clone)]
pub(crate) enum Start {
    At(Moment),
    /// That many microseconds after the trigger of this id has fired.
    After {
        anchor: String,
        offset: i64,
    },
    /// One gap after the clock's start.
    FirstGap,
}

impl Times {
    /// The marks on a clock started at `t0`, of which `fired` have been used up already. `anchored` is the first mark of
    /// a trigger that waits for another; without it there are none yet.
    pub(crate) fn marks(&self, t0: VirtualTime, anchored: Option<VirtualTime>, fired: u64) -> Marks {
        let mut draws = self.every.as_ref().map(Gap::draws);
        let first = match &self.start {
            Start::At(moment) => moment.on(t0),
            Start::After { .. } => anchored,
            Start::FirstGap => draws.as_mut().and_then(|draws| t0.checked_add(draws.next())),
        };
        let all = if self.every.is_some() { self.count.unwrap_or(u64::MAX) } else { 1 };
        let until =
            self.until.map(|until| until.on(t0).unwrap_or(VirtualTime::MAX)).unwrap_or(VirtualTime::MAX);
        Marks { next: first, left: all.saturating_sub(fired), until, draws }
    }
}

/// The marks still to come, in order.
#[derive(Debug, Clone)]
pub(crate) struct Marks {
    next: Option<VirtualTime>,
    left: u64,
    until: VirtualTime,
    draws: Option<Draws>,
}

impl Marks {
    /// No marks.
    pub(crate) fn none() -> Self {
        Self { next: None, left: 0, until: VirtualTime::MAX, draws: None }
    }

    /// The next mark.
    pub(crate) fn peek(&self) -> Option<VirtualTime> {
        self.next.filter(|next| self.left > 0 && *next <= self.until)
    }

    /// Takes the next mark, if it is not after `now`.
    pub(crate) fn take_due(&mut self, now: VirtualTime) -> Option<VirtualTime> {
        let mark = self.peek().filter(|mark| *mark <= now)?;
        self.left -= 1;
        self.next = self.draws.as_mut().and_then(|draws| mark.checked_add(draws.next()));
        Some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> VirtualTime {
        VirtualTime::parse(text).unwrap()
    }

    fn t0() -> VirtualTime {
        at("2026-10-05T09:00:00Z")
    }

    fn written(times: &Times, fired: u64, most: usize) -> Vec<String> {
        let mut marks = times.marks(t0(), Some(at("2026-10-05T12:00:00Z")), fired);
        std::iter::from_fn(|| marks.take_due(VirtualTime::MAX))
            .take(most)
            .map(|mark| mark.to_string())
            .collect()
    }

    fn times(start: Start, every: Option<&str>, count: Option<u64>, until: Option<&str>) -> Times {
        let every = every.map(|text| Gap::Fixed(parse_duration(text).unwrap()));
        Times { start, every, count, until: until.map(|text| Moment::parse(text).unwrap()) }
    }

    #[test]
    fn durations() {
        let second = 1_000_000;
        for (text, micros) in [
            ("PT0S", 0),
            ("PT15M", 900 * second),
            ("PT24H", 86_400 * second),
            ("P1DT6H", 108_000 * second),
            ("P1W", 604_800 * second),
            ("P1W2D", 777_600 * second),
            ("PT1.5S", 1_500_000),
            ("PT0.000001S", 1),
            ("PT0.0000001S", 0),
            ("PT1.123456789S", 1_123_457),
            ("PT01S", second),
            ("P0D", 0),
            ("P1DT", 86_400 * second),
            ("P1DT1H1M1.25S", 90_061 * second + 250_000),
            ("PT99999999999999S", MAX_DURATION),
            ("P99999999W", MAX_DURATION),
        ] {
            assert_eq!(read_duration(text), Some(micros), "{text}");
        }
        for text in [
            "", "P", "PT", "P1", "P1Y", "P1M", "PT1.5H", "PT1,5S", "-PT1S", "+PT1S", "PT-1S", "PT+1S",
            "pt1s", " PT1S", "PT1S ", "PT1S1M", "PT1.S", "PT.5S", "P1H", "PT1D", "1H", "PT1H1H", "PT1e3S",
            "PTS", "P1D1W", "P1.5D", "PT٣S",
        ] {
            assert_eq!(read_duration(text), None, "{text}");
        }
    }

    #[test]
    fn marks() {
        let hour = |n: u32| format!("2026-10-05T{n:02}:00:00Z");
        let at_two = || Start::At(Moment::parse("PT2H").unwrap());
        let after = || Start::After { anchor: "x".to_owned(), offset: 0 };
        for (times, want) in [
            (times(at_two(), None, None, None), vec![hour(11)]),
            (times(Start::FirstGap, Some("PT1H"), Some(3), None), vec![hour(10), hour(11), hour(12)]),
            (times(Start::FirstGap, Some("PT1H"), None, Some("PT2H")), vec![hour(10), hour(11)]),
            (times(Start::FirstGap, Some("PT1H"), None, Some("2026-10-05T10:59:59Z")), vec![hour(10)]),
            (times(Start::FirstGap, Some("PT1H"), None, Some("PT0S")), vec![]),
            (times(at_two(), Some("PT1H"), Some(2), None), vec![hour(11), hour(12)]),
            (times(at_two(), Some("PT1H"), None, Some("PT1H")), vec![]),
            (times(after(), None, None, None), vec![hour(12)]),
            (times(after(), Some("PT1H"), Some(2), None), vec![hour(12), hour(13)]),
        ] {
            assert_eq!(written(&times, 0, 10), want, "{times:?}");
        }
        assert_eq!(written(&times(Start::FirstGap, Some("PT1H"), Some(3), None), 2, 10).len(), 1);
        assert_eq!(written(&times(at_two(), None, None, None), 1, 10).len(), 0);
        assert!(times(after(), None, None, None).marks(t0(), None, 0).peek().is_none());
    }

    #[test]
    fn marks_end_with_the_calendar() {
        let times = times(Start::FirstGap, Some("P99999999W"), None, None);
        assert!(written(&times, 0, 10).is_empty());
        let late = Times { start: Start::At(Moment::At(VirtualTime::MAX)), ..times };
        assert_eq!(written(&late, 0, 10), [VirtualTime::MAX.to_string()]);
    }

    #[test]
    fn only_what_is_due_is_taken() {
        let mut marks = times(Start::FirstGap, Some("PT1H"), None, None).marks(t0(), None, 0);
        assert_eq!(marks.take_due(at("2026-10-05T09:59:59Z")), None);
        assert_eq!(marks.take_due(at("2026-10-05T10:00:00Z")), Some(at("2026-10-05T10:00:00Z")));
        assert_eq!(marks.peek(), Some(at("2026-10-05T11:00:00Z")));
    }

    #[test]
    fn random_gaps_start_over_with_each_run_of_marks() {
        let seed = Seed::from_decimal("42").unwrap();
        let every = Some(Gap::Random { mean_seconds: 3_600.0, seed });
        let times = Times { start: Start::FirstGap, every, count: Some(4), until: None };
        let want =
            ["2026-10-05T10:01:12.217034Z", "2026-10-05T10:02:43.400855Z", "2026-10-05T10:22:01.247486Z"];
        for _ in 0..2 {
            assert_eq!(written(&times, 0, 3), want);
        }
    }
}
