use proptest::prelude::*;

use super::*;

fn clock() -> Clock {
    Clock::new(Time::system(), "http://gateway:18765/clock/time".to_owned())
}

fn armed(speed: f64) -> Clock {
    let clock = clock();
    clock
        .arm(
            &json!({"virtual_time": "2026-10-05T09:00:00Z", "virtual_seconds_per_real_second": speed}),
            false,
        )
        .unwrap();
    clock
}

async fn pass(seconds: f64) {
    tokio::time::advance(Duration::from_secs_f64(seconds)).await;
}

fn shows(clock: &Clock) -> String {
    clock.now().unwrap().to_string()
}

#[tokio::test(start_paused = true)]
async fn off_until_armed() {
    let clock = clock();
    assert_eq!((clock.now(), clock.time_body()), (None, None));
    assert_eq!(clock.state(), json!({"armed": false}));
    assert!(clock.get_time(None).is_none());
    clock.clear();
    assert_eq!(clock.state(), json!({"armed": false}));
}

#[tokio::test(start_paused = true)]
async fn it_runs_at_its_speed() {
    let clock = armed(3_600.0);
    pass(0.00004).await;
    assert_eq!(shows(&clock), "2026-10-05T09:00:00.144000Z");
    pass(1.0).await;
    assert_eq!(shows(&clock), "2026-10-05T10:00:00.144000Z");
    assert_eq!(
        clock.state(),
        json!({"armed": true, "t0": "2026-10-05T09:00:00Z", "virtual_seconds_per_real_second": 3600.0,
               "virtual_time": "2026-10-05T10:00:00.144000Z", "env_get_time_url": "http://gateway:18765/clock/time"})
    );
    assert_eq!(clock.time_body(), Some(json!({"virtual_time": "2026-10-05T10:00:00.144000Z"})));
}

#[tokio::test(start_paused = true)]
async fn arming_again_starts_over() {
    let clock = armed(60.0);
    pass(5.0).await;
    let body = json!({"virtual_time": "2026-10-05T09:00:00Z", "virtual_seconds_per_real_second": 0});
    let answer = clock.arm(&body, false).unwrap();
    assert_eq!(
        answer,
        json!({"armed": true, "t0": "2026-10-05T09:00:00Z", "virtual_seconds_per_real_second": 0.0,
               "virtual_time": "2026-10-05T09:00:00Z"})
    );
    pass(5.0).await;
    assert_eq!(shows(&clock), "2026-10-05T09:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn every_arming_has_a_generation_of_its_own() {
    let clock = armed(1.0);
    let mut seen = vec![clock.reading().unwrap().generation];
    for round in 0..4 {
        if round % 2 == 0 {
            clock.clear();
        }
        clock.arm(&json!({"virtual_time": "2026-10-05T09:00:00Z"}), false).unwrap();
        seen.push(clock.reading().unwrap().generation);
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_refused_leave_it_alone() {
    let clock = armed(0.0);
    let at = "2026-10-05T10:00:00Z";
    let mut bad: Vec<Value> = [
        "2026-10-05",
        "2026-10-05T09:00Z",
        " 2026-10-05T09:00:00Z",
        "2026-13-05T09:00:00Z",
        "2026-10-05T25:00:00Z",
        "",
    ]
    .into_iter()
    .map(|text| json!({"virtual_time": text}))
    .collect();
    bad.extend([json!([]), json!(5), json!(null), json!("x"), json!({})]);
    bad.extend([json!(5), json!(null), json!(true)].map(|time| json!({"virtual_time": time})));
    for speed in [json!(-1), json!(86_400.5), json!(1e45), json!("1"), json!(true), json!([1]), json!(1e308)]
    {
        bad.push(json!({"virtual_time": at, "virtual_seconds_per_real_second": speed}));
    }
    for (start, speed) in [
        ("9999-12-31T23:59:59Z", 1.0),
        ("9999-12-31T23:59:59Z", 86_400.0),
        ("9990-01-01T00:00:00Z", 86_400.0),
    ] {
        bad.push(json!({"virtual_time": start, "virtual_seconds_per_real_second": speed}));
    }
    for body in bad {
        assert!(matches!(clock.arm(&body, false), Err(ClockRefusal::Invalid(_))), "{body}");
    }
    assert!(matches!(clock.arm(&json!({"virtual_time": at}), true), Err(ClockRefusal::Conflict(_))));
    assert_eq!(shows(&clock), "2026-10-05T09:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn speeds_that_are_taken() {
    let clock = clock();
    for (given, shown) in [
        (json!(0), 0.0),
        (json!(-0.0), 0.0),
        (json!(86_400), 86_400.0),
        (json!(0.5), 0.5),
        (json!(null), 1.0),
    ] {
        let body = json!({"virtual_time": "2026-10-05T09:00:00Z", "virtual_seconds_per_real_second": given});
        let answer = clock.arm(&body, false).unwrap();
        assert_eq!(
            answer["virtual_seconds_per_real_second"].to_string(),
            json!(shown).to_string(),
            "{given}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn past_the_end_it_stays_at_the_end() {
    let clock = clock();
    let body = json!({"virtual_time": "9999-12-31T23:59:59Z", "virtual_seconds_per_real_second": 0});
    clock.arm(&body, false).unwrap();
    let body = json!({"virtual_time": "9700-01-01T00:00:00Z", "virtual_seconds_per_real_second": 86_400});
    clock.arm(&body, false).unwrap();
    // Ten years of real time, in steps that tokio's timer takes.
    for _ in 0..10 {
        pass(366.0 * 86_400.0).await;
    }
    assert_eq!(shows(&clock), "9999-12-31T23:59:59.999999Z");
    assert_eq!(clock.real_time_until(VirtualTime::MAX), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn get_time_to_the_second_and_in_zones() {
    let clock = armed(1.0);
    pass(0.9).await;
    let call = |arguments: Value| -> Value {
        let arguments = serde_json::value::to_raw_value(&arguments).unwrap();
        serde_json::from_str(clock.get_time(Some(&arguments)).unwrap().get()).unwrap()
    };
    let plain = call(json!({}));
    assert_eq!(
        plain["content"],
        json!([{"type": "text", "text": "{\"current_time\":\"2026-10-05T09:00:00Z\"}"}])
    );
    assert_eq!(
        (&plain["isError"], &plain["structuredContent"]["current_time"]),
        (&json!(false), &json!("2026-10-05T09:00:00Z"))
    );
    assert_eq!(call(json!({"time_zone": null}))["structuredContent"], plain["structuredContent"]);
    for (zone, local) in [
        ("America/New_York", "2026-10-05T05:00:00-04:00"),
        ("Asia/Kathmandu", "2026-10-05T14:45:00+05:45"),
        ("UTC", "2026-10-05T09:00:00+00:00"),
        ("Etc/GMT+5", "2026-10-05T04:00:00-05:00"),
        ("US/Eastern", "2026-10-05T05:00:00-04:00"),
    ] {
        let want = json!({"current_time": "2026-10-05T09:00:00Z", "time_zone": zone, "local_time": local});
        assert_eq!(call(json!({"time_zone": zone}))["structuredContent"], want);
    }
    let long = "x".repeat(300);
    for zone in [
        "Mars/Olympus",
        "",
        "America",
        "../x",
        "localtime",
        "Factory",
        "utc",
        "america/new_york",
        " UTC",
        "a\0b",
        &long,
    ] {
        let answer = call(json!({"time_zone": zone}));
        assert_eq!(answer["isError"], json!(true), "{zone}");
        assert!(answer["content"][0]["text"].as_str().unwrap().starts_with("unknown time zone"));
    }
    assert_eq!(call(json!({"time_zone": 5}))["isError"], json!(true));
}

#[test]
fn offsets_with_seconds_are_written_in_full() {
    let zone = get_time::find_zone("Europe/Amsterdam").unwrap();
    let (civil, offset) = VirtualTime::parse("1800-01-01T00:00:00Z").unwrap().in_zone(&zone);
    assert!(
        local_text(civil, offset).len() > "1800-01-01T00:00:00+00:00".len(),
        "{}",
        local_text(civil, offset)
    );
}

#[test]
fn the_listing_says_what_agents_must_know() {
    let listing: Value = serde_json::from_str(Clock::get_time_listing().get()).unwrap();
    let description = listing["description"].as_str().unwrap();
    assert!(description.contains("clock of the machine you run on is not this environment's"));
    assert!(!description.to_lowercase().contains("simulat"));
    assert_eq!(listing["annotations"], json!({"readOnlyHint": true}));
}

#[tokio::test(start_paused = true)]
async fn a_held_clock_moves_in_steps_and_goes_on_from_there() {
    let clock = armed(60.0);
    let hold = clock.hold().unwrap();
    pass(10.0).await;
    assert_eq!(shows(&clock), "2026-10-05T09:00:00Z");
    assert!(hold.move_to(VirtualTime::parse("2026-10-05T12:00:00Z").unwrap()));
    assert!(hold.move_to(VirtualTime::parse("2026-10-05T11:00:00Z").unwrap()));
    assert_eq!(shows(&clock), "2026-10-05T12:00:00Z");
    drop(hold);
    pass(1.0).await;
    assert_eq!(shows(&clock), "2026-10-05T12:01:00Z");
    assert_eq!(clock.state()["t0"], json!("2026-10-05T09:00:00Z"));
}

#[tokio::test(start_paused = true)]
async fn a_hold_does_not_outlive_its_arming() {
    let clock = armed(60.0);
    let hold = clock.hold().unwrap();
    clock.arm(&json!({"virtual_time": "2030-01-01T00:00:00Z"}), false).unwrap();
    assert!(!hold.move_to(VirtualTime::MAX));
    drop(hold);
    pass(1.0).await;
    assert_eq!(shows(&clock), "2030-01-01T00:00:01Z");
    let hold = clock.hold().unwrap();
    clock.clear();
    assert!(!hold.move_to(VirtualTime::MAX));
    drop(hold);
    assert_eq!(clock.now(), None);
}

proptest! {
    #[test]
    fn a_moment_is_reached_when_it_was_said_to_be(speed in 0.001_f64..=MAX_SPEED, micros in 1_i64..1_000_000_000_000) {
        let armed = Armed { t0: VirtualTime::from_micros(0), speed, shown: VirtualTime::from_micros(0),
                            since: Duration::ZERO, held: false, generation: 1, before: None };
        let nanos = (micros as f64 * 1_000.0 / speed).ceil() as u64;
        let shown = armed.read(Duration::from_nanos(nanos)).as_micros();
        // At most the width of one reading off; the driver then waits once more.
        let step = (speed / 1_000.0).ceil() as i64 + 1;
        prop_assert!((shown - micros).abs() <= step, "{shown} for {micros}");
    }
}
