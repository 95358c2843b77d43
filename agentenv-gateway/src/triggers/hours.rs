//! The hours in which an executor works, in virtual time (contract 7.9).

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;

use crate::clock::VirtualTime;

/// A daily window, on some days of the week. One that ends before it begins runs into the next day, and belongs to the
/// day on which it begins.
#[derive(Debug, Clone)]
pub(crate) struct Hours {
    pub(crate) start: Time,
    pub(crate) end: Time,
    pub(crate) zone: TimeZone,
    /// Empty is every day.
    pub(crate) days: Vec<Weekday>,
}

impl Hours {
    /// When the executor works next: `now` if it does now, and none if the calendar ends before.
    pub(crate) fn next_open(&self, now: VirtualTime) -> Option<VirtualTime> {
        let (local, _) = now.in_zone(&self.zone);
        let yesterday = local.date().yesterday().unwrap_or(local.date());
        // A window of each day of a week, the one that may have begun yesterday, and one more for a week with a day on
        // which the clocks jump over it.
        for date in yesterday.series(jiff::Span::new().days(1)).take(10) {
            if !self.days.is_empty() && !self.days.contains(&date.weekday()) {
                continue;
            }
            let Some((from, to)) = self.window(date) else { continue };
            if now < to {
                return Some(from.max(now));
            }
        }
        None
    }

    fn window(&self, date: Date) -> Option<(VirtualTime, VirtualTime)> {
        let last = if self.end > self.start { date } else { date.tomorrow().ok()? };
        let instant = |date: Date, time: Time| -> Option<VirtualTime> {
            let zoned = self.zone.to_ambiguous_zoned_datetime(date.to_datetime(time)).compatible().ok()?;
            Some(VirtualTime::from_micros(zoned.timestamp().as_microsecond()))
        };
        Some((instant(date, self.start)?, instant(last, self.end)?))
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::time;

    use super::*;

    fn hours(start: Time, end: Time, zone: &str, days: &[Weekday]) -> Hours {
        Hours { start, end, zone: TimeZone::get(zone).unwrap(), days: days.to_vec() }
    }

    #[test]
    fn when_they_open() {
        use Weekday::{Friday, Monday, Wednesday};
        let office = hours(time(9, 0, 0, 0), time(17, 0, 0, 0), "UTC", &[]);
        let paris = hours(time(12, 0, 0, 0), time(17, 0, 0, 0), "Europe/Paris", &[Monday, Wednesday]);
        let night = hours(time(22, 0, 0, 0), time(6, 0, 0, 0), "UTC", &[Friday]);
        let gap = hours(time(2, 30, 0, 0), time(3, 30, 0, 0), "America/New_York", &[]);
        // 2026-10-05 is a Monday.
        for (hours, now, open) in [
            (&office, "2026-10-05T08:59:59Z", "2026-10-05T09:00:00Z"),
            (&office, "2026-10-05T09:00:00Z", "2026-10-05T09:00:00Z"),
            (&office, "2026-10-05T16:59:59.999999Z", "2026-10-05T16:59:59.999999Z"),
            (&office, "2026-10-05T17:00:00Z", "2026-10-06T09:00:00Z"),
            (&paris, "2026-10-05T09:00:00Z", "2026-10-05T10:00:00Z"),
            (&paris, "2026-10-05T15:00:00Z", "2026-10-07T10:00:00Z"),
            (&paris, "2026-10-08T10:00:00Z", "2026-10-12T10:00:00Z"),
            (&night, "2026-10-10T05:00:00Z", "2026-10-10T05:00:00Z"),
            (&night, "2026-10-10T06:00:00Z", "2026-10-16T22:00:00Z"),
            (&night, "2026-10-09T21:00:00Z", "2026-10-09T22:00:00Z"),
            // The hour that New York leaves out.
            (&gap, "2026-03-08T06:00:00Z", "2026-03-08T07:30:00Z"),
        ] {
            let now = VirtualTime::parse(now).unwrap();
            assert_eq!(hours.next_open(now).map(|at| at.to_string()).as_deref(), Some(open), "{now}");
        }
        assert_eq!(night.next_open(VirtualTime::MAX), None);
    }
}
