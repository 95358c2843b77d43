//! What the calendar does, by a clock that the test holds.

use std::sync::Arc;

use agentenv_protocol::prelude::*;
use agentenv_protocol::standard::clock::TimeSource;
use agentenv_protocol::testing::TestEnv;
use calendar::CalendarEnv;

/// A clock that stands.
struct At(&'static str);

impl TimeSource for At {
    fn now(&self) -> Option<DateTime> {
        self.0.parse().ok()
    }
}

fn event(title: &str, start: &str, end: &str) -> Value {
    let at = |time: &str| format!("2026-10-05T{time}:00Z");
    json!({"title": title, "start": at(start), "end": at(end)})
}

fn at_nine() -> TestEnv {
    let env = TestEnv::new(CalendarEnv::default());
    let clock: Arc<dyn TimeSource> = Arc::new(At("2026-10-05T09:00:00Z"));
    env.runtime().follow(&clock);
    env
}

#[tokio::test]
async fn what_is_over_by_the_clock_is_not_listed() {
    let env = at_nine();
    let (over, on, next) = (
        event("Breakfast", "08:00", "09:00"),
        event("Standup", "08:45", "09:15"),
        event("Review", "14:00", "15:00"),
    );
    env.add(json!({"events": [next, over, on]})).await;
    assert_eq!(env.call("calendar_list", json!({})).await.value(), json!({"events": [on, next]}));
    let until = env.call("calendar_list", json!({"until": "2026-10-05T15:00:00+02:00"})).await;
    assert_eq!(until.value(), json!({"events": [on]}));
}

#[tokio::test]
async fn a_time_is_booked_once_and_never_in_the_past() {
    let env = at_nine();
    let lunch = event("Lunch", "12:00", "13:00");
    assert_eq!(env.call("calendar_book", &lunch).await.value(), lunch);
    for (again, code) in [
        (event("Interview", "12:59", "13:30"), "taken: 'Lunch' is from 2026-10-05T12:00:00Z to"),
        (event("Breakfast", "08:00", "09:30"), "bad_time: it is 2026-10-05T09:00:00Z"),
        (event("Nothing", "10:00", "10:00"), "bad_time"),
    ] {
        let refused = env.call("calendar_book", again).await;
        assert!(refused.error().starts_with(code), "{}", refused.text());
    }
    assert!(!env.call("calendar_book", event("Walk", "13:00", "13:30")).await.is_error());
    assert_eq!(env.state().await["events"].as_array().map(Vec::len), Some(2));
}
