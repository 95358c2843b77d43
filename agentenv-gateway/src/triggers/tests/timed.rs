//! Time triggers, arming anew, moving ahead (contract 7.4).

use serde_json::{Value, json};

use super::office::{Office, pass, settle};

const MORNING: &str = "2026-10-05T09:00:00Z";

fn timed(id: &str, when: Value) -> Value {
    acting(id, when, json!([]))
}

fn acting(id: &str, when: Value, actions: Value) -> Value {
    let mut when = when;
    when["type"] = json!("time");
    json!({"id": id, "when": when, "actions": actions})
}

fn marks(office: &Office, id: &str) -> Vec<Value> {
    office.field(id, "fired", "mark")
}

fn hours(hours: &[&str]) -> Vec<Value> {
    hours.iter().map(|hour| json!(format!("2026-10-05T{hour}:00Z"))).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_fires_until_the_clock_is_armed() {
    let office = Office::open();
    office.register(json!([timed("t", json!({"at": "2020-01-01T00:00:00Z"}))]));
    pass(10.0).await;
    assert_eq!(office.status("t"), "armed");
    office.arm(MORNING, 0.0);
    settle().await;
    assert_eq!(office.status("t"), "fired");
    assert_eq!(office.field("t", "fired", "virtual_time"), [MORNING]);
}

#[tokio::test(start_paused = true)]
async fn each_mark_fires_at_its_instant() {
    let office = Office::open();
    office.arm(MORNING, 600.0);
    office.register(json!([
        timed("rel", json!({"at": "PT10M"})),
        timed("abs", json!({"at": "2026-10-05T11:10:00+02:00"})),
        timed("later", json!({"at": "PT10H"})),
        timed("now", json!({"at": "PT0S"})),
    ]));
    settle().await;
    assert_eq!(office.status("now"), "fired");
    pass(0.999).await;
    assert_eq!(office.status("rel"), "armed");
    pass(0.001).await;
    assert_eq!((office.status("rel").as_str(), office.status("abs").as_str()), ("fired", "fired"));
    assert_eq!(office.trigger("later")["next_mark"], json!("2026-10-05T19:00:00Z"));
    let fired = office.events("rel").pop().unwrap();
    assert_eq!(
        (&fired["mark"], &fired["fire_count"], &fired["capped"]),
        (&json!("2026-10-05T09:10:00Z"), &json!(1), &json!(false))
    );
    let detected = office.events("rel")[1].clone();
    let want = json!({"provoking": {"source": "clock"}, "due": 1, "capped": false, "first_mark": "2026-10-05T09:10:00Z", "last_mark": "2026-10-05T09:10:00Z"});
    for (field, value) in want.as_object().unwrap() {
        assert_eq!(&detected[field], value, "{field}");
    }
    assert_eq!(office.trigger("rel")["next_mark"], json!(null));
}

#[tokio::test(start_paused = true)]
async fn every_gap() {
    let office = Office::open();
    office.arm(MORNING, 0.0);
    office.register(json!([
        timed("n", json!({"every": "PT1H", "count": 3})),
        timed("until", json!({"every": "PT1H", "until": "PT2H"})),
        timed("from", json!({"every": "PT1H", "at": "PT30M", "count": 2})),
        timed("ever", json!({"every": "PT6H"})),
    ]));
    office.arm(MORNING, 86_400.0);
    pass(0.25).await;
    assert_eq!(marks(&office, "n"), hours(&["10:00", "11:00", "12:00"]));
    assert_eq!(marks(&office, "until"), hours(&["10:00", "11:00"]));
    assert_eq!(marks(&office, "from"), hours(&["09:30", "10:30"]));
    assert_eq!(marks(&office, "ever"), hours(&["15:00"]));
    let statuses = office.statuses();
    assert_eq!(
        (statuses["n"].as_str(), statuses["until"].as_str(), statuses["ever"].as_str()),
        ("fired", "fired", "armed")
    );
    assert_eq!(office.recorded("trigger_fired").len(), 8);
}

#[tokio::test(start_paused = true)]
async fn random_gaps_are_those_of_python() {
    let office = Office::open();
    let exp = |mean: &str| json!({"dist": "exp", "mean": mean});
    office.register(json!([
        timed("r", json!({"every": exp("PT1H"), "seed": 42, "count": 3})),
        timed("q", json!({"every": exp("PT30M"), "seed": -7, "count": 3})),
    ]));
    office.arm(MORNING, 86_400.0);
    pass(0.5).await;
    let at = |time: &str| json!(format!("2026-10-05T{time}Z"));
    assert_eq!(marks(&office, "r"), [at("10:01:12.217034"), at("10:02:43.400855"), at("10:22:01.247486")]);
    assert_eq!(marks(&office, "q"), [at("09:11:44.366720"), at("09:16:38.699943"), at("09:48:13.192056")]);
}

#[tokio::test(start_paused = true)]
async fn after_another() {
    let office = Office::open();
    office.register(json!([
        timed("then", json!({"after": "first", "offset": "PT10M"})),
        {"id": "first", "when": {"type": "action", "tool": "send"}, "actions": [], "barrier": {"at": "provoking_call"}},
        timed("again", json!({"after": "then", "offset": "PT10M", "every": "PT1M", "count": 3})),
        timed("self", json!({"after": "self", "offset": "PT1S"})),
        timed("ghost", json!({"after": "nobody", "offset": "PT1S"})),
    ]));
    office.arm(MORNING, 600.0);
    pass(2.0).await;
    assert_eq!(
        (office.status("then"), office.trigger("then")["next_mark"].clone()),
        ("armed".to_owned(), json!(null))
    );
    office.call("send", json!({})).await;
    assert_eq!(office.field("then", "anchored", "mark"), ["2026-10-05T09:30:00Z"]);
    assert_eq!(office.field("then", "anchored", "anchor"), ["first"]);
    pass(1.0).await;
    assert_eq!(office.kinds("then"), ["added", "anchored", "detected", "fired"]);
    pass(2.0).await;
    assert_eq!(marks(&office, "again"), hours(&["09:40", "09:41", "09:42"]));
    assert_eq!((office.status("self").as_str(), office.status("ghost").as_str()), ("armed", "armed"));
    assert_eq!(
        (&office.trigger("self")["unreachable"], &office.trigger("ghost")["unreachable"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        office.triggers.explain("ghost").unwrap()["why"],
        json!("it waits for 'nobody' to fire, and there is no such trigger")
    );
}

#[tokio::test(start_paused = true)]
async fn what_fires_while_the_clock_is_off_is_an_anchor_when_it_is_armed() {
    let office = Office::open();
    let on = |repeat: bool| json!({"type": "action", "tool": "send", "repeat": repeat});
    office.register(json!([
        {"id": "once", "when": on(false), "actions": []},
        {"id": "often", "when": on(true), "actions": []},
        timed("a", json!({"after": "once", "offset": "PT1H"})),
        timed("b", json!({"after": "often", "offset": "PT1H"})),
    ]));
    office.call("send", json!({})).await;
    settle().await;
    office.arm(MORNING, 0.0);
    settle().await;
    assert_eq!(office.trigger("a")["next_mark"], json!("2026-10-05T10:00:00Z"));
    assert_eq!(office.trigger("b")["next_mark"], json!(null));
    office.call("send", json!({})).await;
    settle().await;
    assert_eq!(office.trigger("b")["next_mark"], json!("2026-10-05T10:00:00Z"));
}

#[tokio::test(start_paused = true)]
async fn arming_again_moves_the_marks() {
    let office = Office::open();
    office.arm(MORNING, 0.0);
    let slow = json!([{"type": "tool", "tool": "slow", "args": {"seconds": 5}}]);
    office.register(json!([
        timed("at", json!({"at": "PT1H"})),
        timed("abs", json!({"at": "2026-10-05T10:00:00Z"})),
        timed("every", json!({"every": "PT1H", "count": 3})),
        acting("busy", json!({"every": "PT10M"}), slow),
        timed("done", json!({"at": "PT0S"})),
        timed("after", json!({"after": "done", "offset": "PT1H"})),
    ]));
    settle().await;
    assert_eq!(office.trigger("at")["next_mark"], json!("2026-10-05T10:00:00Z"));
    office.triggers.advance(&json!({"by": "PT0S"})).await.unwrap();
    office.arm("2026-10-05T08:00:00Z", 0.0);
    settle().await;
    assert_eq!(office.trigger("at")["next_mark"], json!("2026-10-05T09:00:00Z"));
    assert_eq!(office.trigger("abs")["next_mark"], json!("2026-10-05T10:00:00Z"));
    assert_eq!(office.trigger("every")["next_mark"], json!("2026-10-05T09:00:00Z"));
    // A stamped mark is kept.
    assert_eq!(office.trigger("after")["next_mark"], json!("2026-10-05T10:00:00Z"));
    assert_eq!(office.status("done"), "fired");
    assert_eq!(office.kinds("at"), ["added", "reanchored"]);
    assert_eq!(office.field("at", "reanchored", "dropped_mark"), ["2026-10-05T10:00:00Z"]);
    assert!(office.kinds("after").iter().all(|kind| kind != "reanchored"));

    // What was due on the old timeline is dropped, what is being done is done.
    office.arm(MORNING, 0.0);
    office.arm("2026-10-05T08:00:00Z", 86_400.0);
    pass(0.05).await;
    assert_eq!(office.status("busy"), "firing");
    office.arm("2027-01-01T00:00:00Z", 0.0);
    pass(10.0).await;
    assert_eq!(office.trigger("busy")["fire_count"], json!(1));
    assert_eq!(office.trigger("busy")["next_mark"], json!("2027-01-01T00:10:00Z"));
    assert_eq!(office.status("after"), "fired");

    // A count is of firings, whatever the timeline.
    assert_eq!(office.trigger("every")["fire_count"], json!(1));
    office.triggers.advance(&json!({"by": "P1D"})).await.unwrap();
    assert_eq!(
        (office.status("every"), office.trigger("every")["fire_count"].clone()),
        ("fired".to_owned(), json!(3))
    );
}

#[tokio::test(start_paused = true)]
async fn clearing_the_clock_stops_time() {
    let office = Office::open();
    office.arm(MORNING, 3_600.0);
    office.register(json!([timed("t", json!({"at": "PT1H"}))]));
    office.clock.clear();
    pass(10.0).await;
    assert_eq!(office.status("t"), "armed");
    assert_eq!(office.triggers.explain("t").unwrap()["why"], json!("the virtual clock is off"));
    office.arm(MORNING, 3_600.0);
    pass(1.0).await;
    assert_eq!(office.status("t"), "fired");
}

#[tokio::test(start_paused = true)]
async fn a_time_trigger_that_fails_is_retired() {
    let office = Office::open();
    let fail = json!([{"type": "tool", "tool": "fail", "args": {"how": "x"}}]);
    office.register(json!([
        acting("once", json!({"at": "PT1S"}), fail.clone()),
        acting("often", json!({"every": "PT1S"}), fail)
    ]));
    office.arm(MORNING, 60.0);
    pass(1.0).await;
    for id in ["once", "often"] {
        let shown = office.trigger(id);
        assert_eq!(
            (&shown["status"], &shown["failure_count"], &shown["next_mark"]),
            (&json!("failed"), &json!(1), &json!(null)),
            "{id}"
        );
    }
    office.arm(MORNING, 60.0);
    pass(5.0).await;
    assert_eq!(office.trigger("often")["failure_count"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn a_removed_time_trigger_never_fires() {
    let office = Office::open();
    office.arm(MORNING, 0.0);
    office.register(json!([acting("t", json!({"at": "PT1H"}), json!([{"type": "tool", "tool": "send"}]))]));
    office.remove(&["t"]);
    office.arm(MORNING, 86_400.0);
    pass(10.0).await;
    assert!(office.inside(|inside| inside.sent.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_caught_up_with_in_portions() {
    let office = Office::open();
    office.register(json!([
        timed("t", json!({"every": "PT0.5S", "count": 2_500})),
        timed("other", json!({"at": "PT1H"}))
    ]));
    office.arm(MORNING, 86_400.0);
    // A long gap in one go: the machine slept, say.
    tokio::time::advance(std::time::Duration::from_secs(3)).await;
    settle().await;
    pass(0.5).await;
    let due = |office: &Office| {
        office.field("t", "detected", "due").iter().map(|due| due.as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert!(due(&office).iter().sum::<u64>() >= 1_000 && due(&office).iter().all(|due| *due <= 1_000));
    assert_eq!(office.status("other"), "fired");
    pass(3.0).await;
    assert_eq!(office.trigger("t")["fire_count"], json!(2_500));
    assert_eq!(office.status("t"), "fired");
    assert_eq!(due(&office).iter().sum::<u64>(), 2_500);
    assert_eq!(office.recorded("trigger_fired").len(), 2_501);
}

#[tokio::test(start_paused = true)]
async fn an_endless_backlog_holds_nothing_up() {
    let office = Office::open();
    let triggers: Vec<Value> =
        (0..5).map(|n| timed(&n.to_string(), json!({"every": "PT0.000001S"}))).collect();
    office.register(json!(triggers));
    office.arm(MORNING, 86_400.0);
    pass(4.5).await;
    for n in 0..5 {
        let fired = office.trigger(&n.to_string())["fire_count"].as_u64().unwrap();
        assert!((4_000..=6_000).contains(&fired), "{fired} firings in 4.5 s");
    }
    assert_eq!(office.state()["events"].as_array().unwrap().len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn moving_ahead_fires_each_mark_at_its_instant() {
    let office = Office::open();
    office.arm(MORNING, 0.0);
    office.register(json!([
        acting("mail", json!({"every": "P1D", "count": 5}), json!([{"type": "tool", "tool": "slow", "args": {"seconds": 2}}, {"type": "tool", "tool": "send", "args": {}}])),
        timed("b", json!({"at": "PT36H"})),
        timed("c", json!({"after": "b", "offset": "PT1H"})),
        timed("never", json!({"at": "P6D"})),
    ]));
    let answer = office.triggers.advance(&json!({"by": "P5D"})).await.unwrap();
    assert_eq!(
        answer,
        json!({"armed": true, "t0": MORNING, "virtual_seconds_per_real_second": 0.0, "virtual_time": "2026-10-10T09:00:00Z",
        "env_get_time_url": "", "fired": 7, "complete": true})
    );
    assert_eq!(office.inside(|inside| inside.sent.len()), 5);
    for id in ["mail", "b", "c"] {
        assert_eq!(office.field(id, "fired", "virtual_time"), marks(&office, id), "{id}");
    }
    let fired: Vec<Value> = office.state()["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["kind"] == "fired")
        .map(|event| event["trigger_id"].clone())
        .collect();
    assert_eq!(fired, ["mail", "b", "c", "mail", "mail", "mail", "mail"]);
    assert_eq!(office.status("never"), "armed");
}

#[tokio::test(start_paused = true)]
async fn a_running_clock_goes_on_from_where_it_was_moved_to() {
    let office = Office::open();
    office.arm(MORNING, 60.0);
    office.register(json!([acting(
        "t",
        json!({"at": "PT1H"}),
        json!([{"type": "tool", "tool": "slow", "args": {"seconds": 30}}])
    )]));
    let answer = office.triggers.advance(&json!({"by": "PT2H"})).await.unwrap();
    assert_eq!(answer["virtual_time"], json!("2026-10-05T11:00:00Z"));
    assert_eq!(office.field("t", "fired", "virtual_time"), ["2026-10-05T10:00:00Z"]);
    pass(1.0).await;
    assert_eq!(office.clock.now().unwrap().to_string(), "2026-10-05T11:01:00Z");
}

#[tokio::test(start_paused = true)]
async fn moving_ahead_that_is_refused() {
    let office = Office::open();
    for body in [
        json!({"by": "PT1H"}),
        json!({}),
        json!({"by": 5}),
        json!({"by": "1h"}),
        json!({"by": "-PT1H"}),
        json!([]),
        json!(null),
    ] {
        assert!(office.triggers.advance(&body).await.is_err(), "{body}");
    }
    office.arm("9998-01-01T00:00:00Z", 0.0);
    assert!(office.triggers.advance(&json!({"by": "P2000D"})).await.is_err());
    assert_eq!(office.clock.now().unwrap().to_string(), "9998-01-01T00:00:00Z");

    office.arm(MORNING, 0.0);
    office.register(json!([acting(
        "t",
        json!({"at": "PT1H"}),
        json!([{"type": "tool", "tool": "slow", "args": {"seconds": 30}}])
    )]));
    let rearm = async {
        pass(1.0).await;
        office.arm("2030-01-01T00:00:00Z", 0.0);
    };
    let by = json!({"by": "PT5H"});
    let (moved, ()) = tokio::join!(office.triggers.advance(&by), rearm);
    assert!(moved.is_err());
    assert_eq!(office.clock.now().unwrap().to_string(), "2030-01-01T00:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn moving_ahead_over_too_much_stops_early() {
    let office = Office::open();
    office.arm(MORNING, 0.0);
    office.register(json!([timed("t", json!({"every": "PT1S"}))]));
    let answer = office.triggers.advance(&json!({"by": "P5D"})).await.unwrap();
    assert_eq!((&answer["complete"], &answer["fired"]), (&json!(false), &json!(5_000)));
    assert_eq!(office.trigger("t")["fire_count"], json!(5_000));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_armed() {
    let office = Office::open();
    office.arm(MORNING, 1.0);
    let triggers: Vec<Value> =
        (0..10_000).map(|n| timed(&n.to_string(), json!({"at": format!("PT{}H", 1 + n % 7)}))).collect();
    office.register(json!(triggers));
    let answer = office.triggers.advance(&json!({"by": "PT3H"})).await.unwrap();
    assert_eq!(answer["fired"], json!(3 * 1_429));
}

#[tokio::test(start_paused = true)]
async fn what_can_never_fire_is_marked() {
    let office = Office::open();
    let after = |id: &str, anchor: &str| timed(id, json!({"after": anchor, "offset": "PT1H"}));
    office.register(json!([
        after("a", "b"), after("b", "c"), after("c", "a"), after("d", "a"), after("e", "f"), after("f", "at"), timed("at", json!({"at": "PT1H"})),
        {"id": "once", "when": {"type": "action", "tool": "send"}, "actions": [], "barrier": {"at": "provoking_call"}},
    ]));
    office.call("send", json!({})).await;
    office.register(json!([after("late", "once")]));
    for (id, unreachable) in [
        ("a", true),
        ("b", true),
        ("c", true),
        ("d", true),
        ("e", false),
        ("f", false),
        ("at", false),
        ("late", true),
    ] {
        assert_eq!(office.trigger(id).get("unreachable").is_some(), unreachable, "{id}");
    }
}
