//! The one source of time: the gateway's wall clock, which never goes back, and the monotonic time under it. Virtual
//! time is left to [`clock`](crate::clock).

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::Offset;
use tokio::time::Instant;

/// Wall-clock and monotonic time. The wall clock is the system's at creation plus the monotonic time since, so that a
/// stepped system clock neither reorders events nor moves anything that waits; on tokio's paused time it stands still
/// until the test moves it.
#[derive(Debug, Clone)]
pub struct Time {
    base: Timestamp,
    start: Instant,
}

impl Time {
    /// Starts at the system's time.
    pub fn system() -> Self {
        Self::at(Timestamp::now())
    }

    /// Starts at a given time.
    pub fn at(base: Timestamp) -> Self {
        Self { base, start: Instant::now() }
    }

    /// The current wall-clock time. Past what a timestamp can hold it stays at the maximum.
    pub fn wall(&self) -> Timestamp {
        self.base.checked_add(self.elapsed()).unwrap_or(Timestamp::MAX)
    }

    /// Monotonic time since creation.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A wall-clock time as events carry it: RFC 3339 in UTC, always six digits of a second, `+00:00` (contract 5).
pub fn wall_text(at: Timestamp) -> String {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));
    // The printer asks for more room than it takes.
    let mut text = String::with_capacity(64);
    // Writing to a String does not fail.
    let _ = PRINTER.print_timestamp_with_offset(&at, Offset::UTC, &mut text);
    text
}

/// A date and a time of day, to the second: what every text of a time begins with.
pub(crate) fn to_the_second(civil: DateTime) -> String {
    let mut text = String::with_capacity(32);
    let _ = write!(
        text,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        civil.year(),
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_follows_the_monotonic_one() {
        let time = Time::at("2026-10-05T09:00:00Z".parse().unwrap());
        tokio::time::advance(Duration::from_millis(1_500)).await;
        assert_eq!(wall_text(time.wall()), "2026-10-05T09:00:01.500000+00:00");
        assert_eq!(time.elapsed(), Duration::from_millis(1_500));
    }

    #[test]
    fn a_text_has_six_digits_of_a_second_whatever_there_are() {
        for (at, text) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000+00:00"),
            ("2026-01-02T03:04:05.000001999Z", "2026-01-02T03:04:05.000001+00:00"),
            ("2026-12-31T23:59:59.999999999Z", "2026-12-31T23:59:59.999999+00:00"),
            ("0001-01-01T00:00:00.1+01:00", "0000-12-31T23:00:00.100000+00:00"),
        ] {
            assert_eq!(wall_text(at.parse().unwrap()), text);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wall_clock_stays_at_its_end() {
        let time = Time::at(Timestamp::MAX);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(time.wall(), Timestamp::MAX);
    }
}
