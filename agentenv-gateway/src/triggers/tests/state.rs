//! State triggers (contract 7.3), the state that is shown (7.7), and explanations.

use serde_json::{Value, json};

use super::office::{Office, pass, settle};

fn state(id: &str, check: Value) -> Value {
    json!({"id": id, "when": {"type": "state", "check": check}, "actions": []})
}

fn lookup(extract: Value, predicate: Value) -> Value {
    json!({"tool": "contacts_lookup", "args": {"name": "an"}, "extract": extract, "predicate": predicate})
}

async fn write(office: &Office) {
    office.call("send", json!({})).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_check_in_two_steps() {
    let office = Office::open();
    office.inside(|inside| inside.inbox.push(json!({"subject": "from p@example.com"})));
    office.register(json!([state("s", json!({"steps": [
        {"tool": "contacts_lookup", "args": {"name": "Priya"}, "extract": "contacts[0].email", "bind": "address"},
        {"tool": "email_search", "args": {"query": "${address}"}, "extract": "emails", "predicate": {"exists": true}},
    ]}))]));
    office.call("contacts_add", json!({"name": "Sam", "email": "s@example.com"})).await;
    settle().await;
    assert_eq!(office.status("s"), "armed");
    assert_eq!(
        office.triggers.explain("s").unwrap()["why"],
        json!(
            "its check did not pass after the last call: steps[0].bind: there is nothing to bind to address"
        )
    );
    office.call("contacts_add", json!({"name": "Priya", "email": "p@example.com"})).await;
    settle().await;
    assert_eq!(office.kinds("s"), ["added", "detected", "fired"]);
    assert_eq!(
        office.field("s", "detected", "provoking"),
        [json!({"tool": "contacts_add", "role": "default"})]
    );
    let fired = json!({"event_type": "trigger_fired", "source": "trigger_engine", "trigger_id": "s", "provoking_tool": null});
    assert_eq!(office.recorded("trigger_fired"), [fired]);
    write(&office).await;
    assert_eq!(office.trigger("s")["fire_count"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn what_prompts_a_check() {
    let office = Office::open();
    office.register(json!([
        state("s", json!({"tool": "email_search", "predicate": {"exists": false}})),
        {"id": "boss", "when": {"type": "state", "roles": ["boss"], "check": {"tool": "email_search", "predicate": {"exists": false}}}, "actions": []},
    ]));
    let checks = || office.inside(|inside| inside.internal.len());
    office.call("contacts_lookup", json!({"name": ""})).await;
    office.call("email_search", json!({"query": ""})).await;
    office.call("fail", json!({})).await;
    office.call_as("intern", "send", json!({})).await;
    settle().await;
    assert_eq!(checks(), 0);
    write(&office).await;
    assert_eq!(checks(), 1);
    office.call_as("boss", "send", json!({})).await;
    settle().await;
    assert_eq!(checks(), 2);
    assert!(!office.triggers.watches("intern", "send"));
}

#[tokio::test(start_paused = true)]
async fn what_checks_find() {
    let office = Office::open();
    office.inside(|inside| {
        inside.contacts = vec![
            json!({"name": "Ann", "email": "a@x", "n": {"m": [1, 2]}}),
            json!({"name": "Anan", "email": "b@x", "z": 0}),
        ]
    });
    let pick = |take: &str| json!({"path": "contacts", "match": {"name": {"equals": "Anan"}}, "take": take});
    let checks = [
        (
            "raw",
            json!({"tool": "contacts_lookup", "args": {"name": "zz"}, "predicate": {"equals": "{\"contacts\":[]}"}}),
            true,
        ),
        (
            "parsed",
            json!({"tool": "contacts_lookup", "args": {"name": "zz"}, "predicate": {"equals": {"contacts": []}}}),
            false,
        ),
        ("path", lookup(json!("contacts[0].email"), json!({"equals": "b@x"})), true),
        ("nothing", lookup(json!("contacts[9]"), json!({"exists": false})), true),
        ("pick", lookup(pick("email"), json!({"equals": "b@x"})), true),
        (
            "pick-path",
            lookup(
                json!({"path": "contacts", "match": {"n.m[1]": {"equals": 2}}, "take": "n.m[0]"}),
                json!({"equals": 1}),
            ),
            false,
        ),
        (
            "pick-none",
            lookup(
                json!({"path": "contacts", "match": {"name": {"equals": "Zoe"}}}),
                json!({"exists": false}),
            ),
            true,
        ),
        ("pick-item", lookup(json!({"path": "contacts"}), json!({"regex": "^\\{\"name\""})), true),
        (
            "pick-no-list",
            lookup(
                json!({"path": "contacts[0]", "match": {"name": {"exists": true}}}),
                json!({"exists": true}),
            ),
            false,
        ),
        ("error", json!({"tool": "fail", "predicate": {"exists": false}}), false),
        (
            "middle",
            json!({"steps": [lookup(json!("contacts"), json!({"exists": false})), lookup(json!("contacts"), json!({"exists": true}))]}),
            false,
        ),
        (
            "falsy",
            json!({"steps": [{"tool": "contacts_lookup", "args": {"name": "an"}, "extract": "contacts[0].z", "bind": "z"},
            lookup(json!("contacts"), json!({"exists": true}))]}),
            true,
        ),
        (
            "unbound",
            json!({"tool": "email_search", "args": {"query": "${zz}"}, "predicate": {"exists": true}}),
            true,
        ),
    ];
    // "an" is in Anan only, for the office's search heeds case.
    office.register(json!(checks.iter().map(|(id, check, _)| state(id, check.clone())).collect::<Vec<_>>()));
    write(&office).await;
    for (id, _, passes) in checks {
        assert_eq!(
            office.status(id),
            if passes { "fired" } else { "armed" },
            "{id}: {:?}",
            office.triggers.explain(id)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_cannot_be_made_disturbs_no_other() {
    let office = Office::open();
    office.register(json!([
        state("broken", json!({"tool": "broken", "predicate": {"exists": true}})),
        state("panics", json!({"tool": "panic", "predicate": {"exists": true}})),
        state("hangs", json!({"tool": "slow", "args": {"seconds": 100_000}, "predicate": {"exists": true}})),
        state("fine", json!({"tool": "email_search", "args": {}, "predicate": {"exists": true}})),
    ]));
    write(&office).await;
    assert_eq!(office.status("fine"), "fired");
    assert_eq!(
        office.field("broken", "eval_error", "detail"),
        ["steps[0]: broken was not answered: the child has died"]
    );
    assert_eq!(office.kinds("panics"), ["added", "eval_error"]);
    write(&office).await;
    assert_eq!(office.kinds("broken"), ["added", "eval_error", "eval_error"]);
}

#[tokio::test(start_paused = true)]
async fn one_check_at_a_time_and_one_after_the_last_call() {
    let office = Office::open();
    office.register(json!([state(
        "s",
        json!({"tool": "slow", "args": {"seconds": 1}, "predicate": {"equals": "no"}})
    )]));
    for _ in 0..5 {
        write(&office).await;
    }
    pass(10.0).await;
    let checks = office.inside(|inside| inside.internal.len());
    assert_eq!(checks, 2);
}

#[tokio::test(start_paused = true)]
async fn removed_while_it_is_checked() {
    let office = Office::open();
    office.register(json!([{"id": "s", "when": {"type": "state", "check": {"tool": "slow", "args": {"seconds": 1}, "predicate": {"exists": true}}},
        "actions": [{"type": "tool", "tool": "send"}]}]));
    write(&office).await;
    office.remove(&["s"]);
    pass(5.0).await;
    assert_eq!(office.kinds("s"), ["added", "removed"]);
    assert_eq!(office.inside(|inside| inside.sent.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_state_trigger_is_armed_again() {
    let office = Office::open();
    office.register(json!([{"id": "s", "when": {"type": "state", "check": {"tool": "email_search", "predicate": {"exists": true}}},
        "actions": [{"type": "tool", "tool": "fail"}]}]));
    write(&office).await;
    write(&office).await;
    assert_eq!(
        (office.status("s"), office.trigger("s")["failure_count"].clone()),
        ("armed".to_owned(), json!(2))
    );
}

#[tokio::test(start_paused = true)]
async fn every_field_is_shown() {
    let office = Office::open();
    office.arm("2026-10-05T09:00:00Z", 0.0);
    let executor = json!({"a2a_url": "http://127.0.0.1:9", "role": "world"});
    office
        .try_register(json!({"executors": {"dana": executor}, "triggers": [
            {"id": "t", "when": {"type": "time", "at": "PT1H", "unless": {"tool": "send"}}, "actions": []},
            {"id": "w", "when": {"type": "website", "app": "shop", "status": {"equals": 201}, "where": {"a": {"exists": true}}}, "actions": []},
        ]}))
        .unwrap();
    let state = office.state();
    assert_eq!(
        state["config"],
        json!({"watch_roles": ["default"], "executor_configured": false, "executors": ["dana"]})
    );
    let time = json!({"id": "t", "type": "time", "when": {"type": "time", "at": "PT1H"}, "status": "armed", "detected_at": null, "fired_at": null,
        "fire_count": 0, "failure_count": 0, "last_failure_at": null, "barrier": null, "pending": 0, "waiting": false, "next_mark": "2026-10-05T10:00:00Z"});
    assert_eq!(state["triggers"][0].to_string(), time.to_string());
    assert_eq!(
        state["triggers"][1]["when"],
        json!({"type": "website", "app": "shop", "status": {"equals": 201}})
    );
    let added = json!({"seq": 1, "ts": "2026-11-30T12:00:00.000000+00:00", "virtual_time": "2026-10-05T09:00:00Z", "kind": "added", "trigger_id": "t"});
    assert_eq!(state["events"][0].to_string(), added.to_string());
}

#[tokio::test(start_paused = true)]
async fn explanations() {
    let office = Office::open();
    office.register(json!([
        {"id": "a", "when": {"type": "action", "tool": "send", "where": {"args.to": {"regex": "^x"}, "result.sent": {"equals": 1}}}, "actions": []},
        {"id": "t", "when": {"type": "time", "at": "PT1H"}, "actions": []},
        state("s", json!({"tool": "email_search", "predicate": {"exists": false}})),
    ]));
    let why = |id: &str| office.triggers.explain(id).unwrap()["why"].as_str().unwrap().to_owned();
    assert_eq!(office.triggers.explain("nobody"), None);
    assert_eq!(why("a"), "no watched role has called send without an error");
    assert_eq!(why("s"), "no watched role has called a tool that may write");
    office.call("send", json!({"to": "y"})).await;
    settle().await;
    assert_eq!(why("a"), "where.args.to did not pass on the last call");
    let last = office.triggers.explain("a").unwrap()["last_call"].clone();
    assert_eq!(
        (&last["what"], &last["role"], &last["matched"], &last["failed_test"]),
        (&json!("send"), &json!("default"), &json!(false), &json!("where.args.to"))
    );
    office.call("send", json!({"to": "x"})).await;
    settle().await;
    assert_eq!(why("a"), "where.result.sent did not pass on the last call");
    assert_eq!(why("s"), "its check did not pass after the last call: steps[0].predicate did not pass");
    office.arm("2026-10-05T09:30:00Z", 0.0);
    settle().await;
    let time = office.triggers.explain("t").unwrap();
    assert_eq!(
        (&time["why"], &time["virtual_seconds_left"], &time["next_mark"]),
        (&json!("its time has not come"), &json!(3600.0), &json!("2026-10-05T10:30:00Z"))
    );
    office.triggers.advance(&json!({"by": "PT1H"})).await.unwrap();
    assert_eq!(why("t"), "it has fired, and fires no more");
}
