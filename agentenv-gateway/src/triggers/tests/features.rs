//! What came after the first release (contract 7.9): named executors, roles, delays, hours, `unless`, websites.

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::SeenRequest;
use super::office::{Office, pass, settle};

const MORNING: &str = "2026-10-05T09:00:00Z";

fn on_add(more: Value) -> Value {
    let mut when = json!({"type": "action", "tool": "contacts_add"});
    when.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    when
}

fn allow(delay: Value) -> Value {
    json!({"type": "permission", "action": "enable", "role": "x", "tools": "*", "delay": delay})
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_in_virtual_time() {
    let office = Office::open();
    office.arm(MORNING, 3_600.0);
    office.register(json!([{"id": "d", "when": on_add(json!({})), "actions": [allow(json!("PT1H")), allow(json!("PT30M"))]}]));
    office.call("contacts_add", json!({})).await;
    settle().await;
    let shown = office.trigger("d");
    assert_eq!((&shown["status"], &shown["waiting"]), (&json!("firing"), &json!(true)));
    assert_eq!(office.field("d", "delayed", "virtual_seconds"), [3600.0]);
    pass(0.999).await;
    assert_eq!(office.kinds("d"), ["added", "detected", "delayed"]);
    pass(0.001).await;
    assert_eq!(office.kinds("d"), ["added", "detected", "delayed", "action_ok", "delayed"]);
    pass(0.5).await;
    assert_eq!(
        (office.status("d"), office.trigger("d")["waiting"].clone()),
        ("fired".to_owned(), json!(false))
    );
}

#[tokio::test(start_paused = true)]
async fn random_delays_go_on_from_firing_to_firing() {
    let office = Office::open();
    office.arm(MORNING, 0.0);
    let exp = json!({"dist": "exp", "mean": "PT1H", "seed": 42});
    office.register(
        json!([{"id": "d", "when": on_add(json!({"repeat": true})), "actions": [allow(exp.clone())]},
        {"id": "e", "when": on_add(json!({})), "actions": [allow(exp.clone()), allow(exp)]}]),
    );
    for _ in 0..3 {
        office.call("contacts_add", json!({})).await;
    }
    office.triggers.advance(&json!({"by": "P1D"})).await.unwrap();
    // The draws of `random.Random(42)`; each action has its own.
    assert_eq!(office.field("d", "delayed", "virtual_seconds"), [3672.217, 91.184, 1157.847]);
    assert_eq!(office.field("e", "delayed", "virtual_seconds"), [3672.217, 3672.217]);
    assert_eq!(office.trigger("d")["fire_count"], json!(3));
}

#[tokio::test(start_paused = true)]
async fn delays_follow_the_clock() {
    let office = Office::open();
    office.register(json!([{"id": "d", "when": on_add(json!({})), "actions": [allow(json!("PT1H"))]}]));
    office.call("contacts_add", json!({})).await;
    pass(100.0).await;
    assert!(office.status("d") == "firing", "it waits while the clock is off");
    let left = |office: &Office, at: &str| {
        office.arm(at, 0.0);
        office.status("d")
    };
    // An hour from the start; half of it passes.
    office.arm(MORNING, 60.0);
    pass(30.0).await;
    // A jump back adds nothing, and takes nothing away.
    office.arm("2026-10-04T09:00:00Z", 60.0);
    pass(29.0).await;
    assert_eq!(office.status("d"), "firing");
    // Nor does a time without a clock.
    office.clock.clear();
    pass(1_000.0).await;
    office.arm("2030-01-01T00:00:00Z", 60.0);
    pass(0.9).await;
    assert_eq!(office.status("d"), "firing");
    // A jump forward is time that has passed.
    left(&office, "2030-01-01T00:02:00Z");
    settle().await;
    assert_eq!(office.status("d"), "fired");
}

#[tokio::test(start_paused = true)]
async fn a_removed_trigger_s_delayed_action_is_not_done() {
    let office = Office::open();
    office.arm(MORNING, 0.0);
    office.register(json!([{"id": "d", "when": on_add(json!({})), "actions": [{"type": "tool", "tool": "send", "delay": "PT1H"}]}]));
    office.call("contacts_add", json!({})).await;
    settle().await;
    office.remove(&["d"]);
    office.triggers.advance(&json!({"by": "P1D"})).await.unwrap();
    assert!(office.inside(|inside| inside.sent.is_empty()));
}

fn executors() -> Value {
    json!({
        "office": {"a2a_url": "http://127.0.0.1:9/o", "role": "w2", "hours": {"start": "12:00", "end": "17:00", "time_zone": "Europe/Paris", "days": ["mon", "wed"]}},
        "other": {"a2a_url": "http://127.0.0.1:9/x", "role": "w3"},
    })
}

fn instruct(id: &str, executor: &str) -> Value {
    json!({"id": id, "when": on_add(json!({})), "actions": [{"type": "nl", "instruction": id, "executor": executor}]})
}

#[tokio::test(start_paused = true)]
async fn an_executor_has_hours() {
    let office = Office::open();
    office.arm(MORNING, 0.0);
    office.try_register(json!({"executors": executors(), "triggers": [instruct("late", "office"), instruct("now", "other")]})).unwrap();
    office.call("contacts_add", json!({})).await;
    settle().await;
    assert_eq!(office.field("late", "deferred", "until"), ["2026-10-05T10:00:00Z"]);
    assert_eq!(office.field("late", "deferred", "executor"), ["office"]);
    assert_eq!(office.trigger("late")["waiting"], json!(true));
    assert_eq!(office.inside(|inside| inside.told[0].0.clone()), "w3");
    pass(10.0).await;
    assert_eq!(office.status("now"), "fired");
    office.arm("2026-10-08T10:00:00Z", 0.0);
    settle().await;
    assert_eq!(office.field("late", "deferred", "until"), ["2026-10-05T10:00:00Z", "2026-10-12T10:00:00Z"]);
    office.triggers.advance(&json!({"by": "P5D"})).await.unwrap();
    assert_eq!(office.field("late", "fired", "virtual_time"), ["2026-10-12T10:00:00Z"]);
    assert_eq!(office.field("late", "action_ok", "detail"), [json!({"nl": "late", "executor": "office"})]);
}

#[tokio::test(start_paused = true)]
async fn without_a_clock_there_are_no_hours() {
    let office = Office::open();
    office.try_register(json!({"executors": executors(), "triggers": [instruct("late", "office")]})).unwrap();
    office.call("contacts_add", json!({})).await;
    pass(10.0).await;
    assert_eq!(office.status("late"), "fired");
}

#[tokio::test(start_paused = true)]
async fn an_executor_s_calls_have_a_cause() {
    let office = Office::open();
    office.inside(|inside| inside.executor = vec![(1_000.0, Ok(()))]);
    office
        .try_register(
            json!({"executors": executors(), "triggers": [instruct("a", "other"), instruct("b", "other")]}),
        )
        .unwrap();
    assert!(office.triggers.firing_for_role("w3").is_empty());
    office.call("contacts_add", json!({})).await;
    settle().await;
    let causes = serde_json::to_value(office.triggers.firing_for_role("w3")).unwrap();
    assert_eq!(
        causes,
        json!([{"trigger_id": "a", "action_index": 0, "fire": 1}, {"trigger_id": "b", "action_index": 0, "fire": 1}])
    );
    assert!(office.triggers.firing_for_role("w2").is_empty());
    pass(121.0).await;
    assert!(office.triggers.firing_for_role("w3").is_empty());
    assert_eq!(office.trigger("a")["failure_count"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn unless_it_is_done_before() {
    let office = Office::open();
    office.arm(MORNING, 0.0);
    let unless = json!({"tool": "contacts_add", "where": {"name": {"equals": "Sam"}}});
    office.register(json!([
        {"id": "remind", "when": {"type": "time", "at": "PT5H", "unless": unless}, "actions": []},
        {"id": "chain", "when": {"type": "time", "after": "remind", "offset": "PT1H"}, "actions": []},
        {"id": "chain-2", "when": {"type": "time", "after": "chain", "offset": "PT1H", "every": "PT1H"}, "actions": []},
        {"id": "due", "when": {"type": "time", "at": "PT0S", "unless": unless}, "actions": []},
        {"id": "boss", "when": {"type": "time", "at": "PT5H", "unless": {"tool": "contacts_add", "roles": ["boss"]}}, "actions": []},
        {"id": "later", "when": {"type": "time", "after": "due", "offset": "PT1H", "unless": unless}, "actions": []},
    ]));
    settle().await;
    office.call("contacts_add", json!({"name": "Ann"})).await;
    assert_eq!(office.status("remind"), "armed");
    office.call("contacts_add", json!({"name": "Sam"})).await;
    let statuses = office.statuses();
    for (id, status) in [
        ("remind", "cancelled"),
        ("chain", "cancelled"),
        ("chain-2", "cancelled"),
        ("due", "fired"),
        ("boss", "armed"),
        ("later", "cancelled"),
    ] {
        assert_eq!(statuses[id], status, "{id}");
    }
    assert_eq!(
        office.field("remind", "cancelled", "provoking"),
        [json!({"tool": "contacts_add", "role": "default"})]
    );
    assert_eq!(office.field("chain-2", "cancelled", "anchor"), ["chain"]);
    assert_eq!(
        office.triggers.explain("remind").unwrap()["why"],
        json!("it was cancelled before it was due")
    );
    office.triggers.advance(&json!({"by": "P1D"})).await.unwrap();
    assert_eq!((office.status("remind").as_str(), office.status("boss").as_str()), ("cancelled", "fired"));
}

#[tokio::test(start_paused = true)]
async fn a_long_chain_is_cancelled_whole() {
    let office = Office::open();
    let unless = json!({"tool": "contacts_add"});
    let mut chain =
        vec![json!({"id": "0", "when": {"type": "time", "at": "PT5H", "unless": unless}, "actions": []})];
    chain.extend((1..5_000).map(|n| json!({"id": n.to_string(), "when": {"type": "time", "after": (n - 1).to_string(), "offset": "PT1H"}, "actions": []})));
    chain.push(
        json!({"id": "act", "when": on_add(json!({})), "actions": [], "barrier": {"at": "provoking_call"}}),
    );
    office.register(json!(chain));
    office.call("contacts_add", json!({})).await;
    let statuses = office.statuses();
    assert_eq!(statuses.values().filter(|status| *status == "cancelled").count(), 5_000);
    assert_eq!(statuses["act"], "fired");
}

fn request(method: &str, path: &str, body: Value, status: u16) -> SeenRequest {
    SeenRequest {
        app: "shop".to_owned(),
        role: "default".to_owned(),
        method: method.to_owned(),
        path: path.to_owned(),
        query: "x=1&x=2&y=3".to_owned(),
        content_type: Some("application/json".to_owned()),
        body: Bytes::from(body.to_string()),
        status,
    }
}

#[tokio::test(start_paused = true)]
async fn website_requests() {
    let office = Office::open();
    let site = |id: &str, more: Value, actions: Value| {
        let mut when = json!({"type": "website", "app": "shop"});
        when.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"id": id, "when": when, "actions": actions, "barrier": {"at": "provoking_call"}})
    };
    let send = json!([{"type": "tool", "tool": "send", "args": {"to": "${args.sku}", "subject": "${args.x} ${args.y}"}}]);
    office.register(json!([
        site("any", json!({"repeat": true}), json!([])),
        site("order", json!({"method": "post", "path": {"regex": "^/cart"}, "status": {"equals": 201}, "where": {"sku": {"equals": 5}, "args.y": {"equals": "3"}}}), send),
        site("broken", json!({"status": {"regex": "^4"}}), json!([])),
        site("other", json!({"path": {"equals": "/other"}}), json!([])),
        site("boss", json!({"roles": ["boss"]}), json!([])),
    ]));
    assert!(
        office.triggers.watches_website("default", "shop")
            && !office.triggers.watches_website("intern", "shop")
    );
    assert!(!office.triggers.watches_website("default", "shed"));
    for seen in [
        request("GET", "/a", json!({}), 200),
        request("POST", "/cart/add", json!({"sku": 5}), 201),
        request("POST", "/cart", json!({"sku": 5}), 404),
    ] {
        if let Some(barrier) = office.triggers.seen_website(&seen) {
            barrier.wait().await;
        }
    }
    let statuses = office.statuses();
    for (id, status) in
        [("any", "armed"), ("order", "fired"), ("broken", "fired"), ("other", "armed"), ("boss", "armed")]
    {
        assert_eq!(statuses[id], status, "{id}");
    }
    assert_eq!(office.trigger("any")["fire_count"], json!(2));
    assert_eq!(
        office.inside(|inside| inside.sent.clone()),
        [json!({"to": 5, "subject": "[\"1\", \"2\"] 3"})]
    );
    let provoking = json!({"source": "website", "app": "shop", "method": "POST", "path": "/cart/add", "status": 201, "role": "default"});
    assert_eq!(office.field("order", "detected", "provoking"), [provoking]);
    let fired = json!({"event_type": "trigger_fired", "source": "trigger_engine", "trigger_id": "broken", "provoking_tool": null,
        "provoking_request": {"app": "shop", "method": "POST", "path": "/cart", "status": 404}});
    assert_eq!(office.recorded("trigger_fired").pop().unwrap(), fired);
    assert_eq!(office.triggers.explain("other").unwrap()["last_call"]["failed_test"], json!("status"));
}
