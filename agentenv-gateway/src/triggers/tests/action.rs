//! Action triggers, actions, barriers (contract 7.1, 7.2, 7.5, 7.6), and the stories of the requirement.

use serde_json::{Value, json};

use super::office::{Office, pass, settle};

fn on(tool: &str) -> Value {
    json!({"type": "action", "tool": tool})
}

fn with(base: Value, more: Value) -> Value {
    let mut base = base;
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

fn barrier() -> Value {
    json!({"at": "provoking_call"})
}

fn unlock_send() -> Value {
    json!({"id": "unlock-send", "when": {"type": "action", "tool": "contacts_lookup", "where": {"args.name": {"regex": "Sam"}}},
           "actions": [{"type": "permission", "action": "enable", "role": "default", "tools": ["send"]}], "barrier": barrier()})
}

fn welcome(more: Value) -> Value {
    with(
        json!({"id": "welcome", "when": on("contacts_add"), "barrier": barrier(), "actions": [{"type": "tool", "tool": "send", "args": {
            "to": "${args.email}", "subject": "Welcome, ${args.name}", "body": "You are contact ${result.contacts}."}}]}),
        more,
    )
}

#[tokio::test(start_paused = true)]
async fn the_office_story() {
    let office = Office::open();
    office.inside(|inside| {
        let send = agentenv_protocol::access::ToolSet::Named(vec!["send".to_owned()]);
        inside.rules.apply(agentenv_protocol::access::Access::Disable, "default", &send).unwrap();
    });
    let may_send = || office.inside(|inside| inside.rules.allows("default", "send", false));
    office.inside(|inside| inside.executor = vec![(5.0, Ok(()))]);
    let chase = "You are Dana Park. Ask whether the Q3 numbers went out.";
    let registered = office.try_register(json!({
        "triggers": [unlock_send(), {"id": "dana-chases", "when": {"type": "time", "at": "PT2H"}, "actions": [{"type": "nl", "instruction": chase}]}],
        "executor": {"a2a_url": "http://127.0.0.1:61907", "role": "world"},
    }));
    assert_eq!(
        registered,
        Ok(
            json!({"ok": true, "added": ["unlock-send", "dana-chases"], "all": ["unlock-send", "dana-chases"]})
        )
    );
    office.arm("2026-10-05T09:00:00Z", 60.0);
    office.call("contacts_lookup", json!({"name": "Priya"})).await;
    assert_eq!((office.status("unlock-send").as_str(), may_send()), ("armed", false));
    office.call("contacts_lookup", json!({"name": "Sam"})).await;
    assert!(may_send());
    assert_eq!(office.kinds("unlock-send"), ["added", "detected", "action_ok", "fired"]);
    let shown = office.trigger("unlock-send");
    assert_eq!(shown["when"], json!({"type": "action", "tool": "contacts_lookup"}));
    assert_eq!(shown["barrier"], json!({"at": "provoking_call"}));
    assert_eq!(
        (&shown["status"], &shown["fire_count"], &shown["pending"]),
        (&json!("fired"), &json!(1), &json!(0))
    );
    pass(60.0).await;
    assert_eq!(office.status("dana-chases"), "armed");
    assert_eq!(office.trigger("dana-chases")["next_mark"], json!("2026-10-05T11:00:00Z"));
    pass(61.0).await;
    assert_eq!(office.status("dana-chases"), "firing");
    pass(10.0).await;
    assert_eq!(office.status("dana-chases"), "fired");
    assert_eq!(office.kinds("dana-chases"), ["added", "detected", "action_ok", "fired"]);
    assert_eq!(office.field("dana-chases", "detected", "virtual_time"), ["2026-10-05T11:00:00Z"]);
    let told = ("world".to_owned(), "dana-chases".to_owned(), chase.to_owned());
    assert_eq!(office.inside(|inside| inside.told.clone()), [told]);
    assert_eq!(
        office.recorded("trigger_fired"),
        [
            json!({"event_type": "trigger_fired", "source": "trigger_engine", "trigger_id": "unlock-send", "provoking_tool": "contacts_lookup"}),
            json!({"event_type": "trigger_fired", "source": "trigger_engine", "trigger_id": "dana-chases"}),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_welcome_mail() {
    let office = Office::open();
    office.register(json!([welcome(json!({}))]));
    office.call("contacts_add", json!({"name": "Priya", "email": "p@example.com"})).await;
    let mail = json!({"to": "p@example.com", "subject": "Welcome, Priya", "body": "You are contact 1."});
    assert_eq!(office.inside(|inside| inside.sent.clone()), [mail]);
    let shape = json!({"to": {"redacted": {"type": "str", "len": 13}}, "subject": {"redacted": {"type": "str", "len": 14}},
                       "body": {"redacted": {"type": "str", "len": 18}}});
    let recorded = office.recorded("internal_tool_call");
    assert_eq!(recorded.len(), 1);
    let mut call = recorded[0].clone();
    assert_eq!(call["result_sha256"].as_str().unwrap().len(), 16);
    call["result_sha256"] = json!("");
    let want = json!({"event_type": "internal_tool_call", "source": "trigger_engine", "trigger_id": "welcome", "action_index": 0, "tool": "send",
        "arguments": shape, "as": null, "ok": true, "result_len": 10, "result_sha256": "", "changelog_id_before": 1, "changelog_id_after": 2});
    // In this order, too.
    assert_eq!(call.to_string(), want.to_string());
    let ok = office.events("welcome").into_iter().find(|event| event["kind"] == "action_ok").unwrap();
    assert_eq!(ok["detail"], json!({"tool": "send", "args": shape}));
    assert_eq!(
        (&ok["action_index"], &ok["changelog_id_before"], &ok["changelog_id_after"]),
        (&json!(0), &json!(1), &json!(2))
    );
}

#[tokio::test(start_paused = true)]
async fn once_or_on_every_match() {
    let office = Office::open();
    let again = with(
        welcome(json!({"id": "again"})),
        json!({"when": with(on("contacts_add"), json!({"repeat": true}))}),
    );
    office.register(json!([welcome(json!({})), again]));
    for n in 0..3 {
        office.call("contacts_add", json!({"name": n.to_string(), "email": "x"})).await;
    }
    let counts = |id: &str| (office.trigger(id)["fire_count"].clone(), office.status(id));
    assert_eq!(counts("welcome"), (json!(1), "fired".to_owned()));
    assert_eq!(counts("again"), (json!(3), "armed".to_owned()));
    assert_eq!(office.inside(|inside| inside.sent.len()), 4);
    assert!(office.triggers.watches("default", "contacts_add"));
    office.remove(&["again"]);
    assert!(!office.triggers.watches("default", "contacts_add"));
}

#[tokio::test(start_paused = true)]
async fn who_and_what_is_watched() {
    let office = Office::open();
    office
        .try_register(json!({"watch_roles": ["assistant"], "triggers": [
            unlock_send(),
            {"id": "boss", "when": with(on("contacts_lookup"), json!({"roles": ["boss"]})), "actions": []},
            {"id": "fails", "when": on("fail"), "actions": []},
        ]}))
        .unwrap();
    assert!(
        office.triggers.watches("assistant", "contacts_lookup")
            && office.triggers.watches("boss", "contacts_lookup")
    );
    assert!(
        !office.triggers.watches("intern", "contacts_lookup")
            && !office.triggers.watches("assistant", "send")
    );
    office.call_as("intern", "contacts_lookup", json!({"name": "Sam"})).await;
    office.call_as("boss", "contacts_lookup", json!({"name": "Sam"})).await;
    office.call_as("assistant", "fail", json!({})).await;
    settle().await;
    assert_eq!(
        (
            office.status("unlock-send").as_str(),
            office.status("boss").as_str(),
            office.status("fails").as_str()
        ),
        ("armed", "fired", "armed")
    );
    office.call_as("assistant", "contacts_lookup", json!({"name": "Sam"})).await;
    assert_eq!(office.status("unlock-send"), "fired");
    assert_eq!(
        office.field("unlock-send", "detected", "provoking"),
        [json!({"tool": "contacts_lookup", "role": "assistant"})]
    );
}

#[tokio::test(start_paused = true)]
async fn conditions() {
    let office = Office::open();
    office.inside(|inside| inside.contacts.push(json!({"name": "Sam Lee", "email": "s@example.com"})));
    let tests = [
        ("bare", json!({"name": {"equals": "Sam"}}), true),
        ("args", json!({"args.name": {"regex": "^S"}}), true),
        ("result", json!({"result.contacts[0].email": {"regex": r"@example\.com$"}}), true),
        ("list", json!({"result.contacts": {"exists": true}}), true),
        ("json", json!({"result.contacts": {"regex": r#""name": "Sam Lee""#}}), true),
        ("star", json!({"result.contacts[*]": {"exists": true}}), true),
        ("both", json!({"name": {"equals": "Sam"}, "result.contacts[0].name": {"regex": "Lee"}}), true),
        ("absent", json!({"result.contacts[7]": {"exists": false}}), true),
        ("none", json!({}), true),
        ("no-equals", json!({"name": {"equals": "sam"}}), false),
        ("no-path", json!({"result.nothing.here": {"exists": true}}), false),
        ("no-both", json!({"name": {"equals": "Sam"}, "args.x": {"exists": true}}), false),
    ];
    let triggers: Vec<Value> = tests
        .iter()
        .map(|(id, tests, _)| json!({"id": id, "when": with(on("contacts_lookup"), json!({"where": tests})), "actions": [], "barrier": barrier()}))
        .collect();
    office.register(json!(triggers));
    office.call("contacts_lookup", json!({"name": "Sam"})).await;
    for (id, _, fires) in tests {
        assert_eq!(office.status(id), if fires { "fired" } else { "armed" }, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_deep_hides_nothing() {
    let office = Office::open();
    office.register(json!([
        {"id": "args", "when": with(on("send"), json!({"where": {"to": {"equals": "x"}}})), "actions": [], "barrier": barrier()},
        {"id": "result", "when": with(on("send"), json!({"where": {"result.sent": {"exists": false}}})), "actions": [], "barrier": barrier()},
    ]));
    let echo = json!({"content": [{"type": "text", "text": "[".repeat(3_000)}]});
    let call = super::super::SeenCall {
        role: "default".to_owned(),
        tool: "send".to_owned(),
        arguments: Some(serde_json::value::to_raw_value(&json!({"to": "x"})).unwrap().into()),
        result: serde_json::value::to_raw_value(&echo).unwrap().into(),
        is_error: false,
        read_only: false,
    };
    office.triggers.seen(call).await.unwrap().wait().await;
    assert_eq!((office.status("args").as_str(), office.status("result").as_str()), ("fired", "fired"));
}

#[tokio::test(start_paused = true)]
async fn a_failing_pattern_is_its_own_trigger_s_trouble() {
    let office = Office::open();
    office.register(json!([
        {"id": "slow", "when": with(on("send"), json!({"where": {"body": {"regex": r"^(a|aa)+(?!a)!\1"}}})), "actions": []},
        {"id": "fine", "when": with(on("send"), json!({"where": {"body": {"regex": "^a+!$"}}})), "actions": [], "barrier": barrier()},
    ]));
    office.call("send", json!({"body": format!("{}!", "a".repeat(40))})).await;
    assert_eq!((office.status("slow").as_str(), office.status("fine").as_str()), ("armed", "fired"));
    let detail = office.field("slow", "eval_error", "detail");
    assert_eq!(detail, ["where.body: the pattern took too many steps on this text"]);
}

/// There is one thread here, and the pattern waits for another that is taken.
#[test]
fn a_slow_pattern_keeps_nobody_else_waiting() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let (free, taken) = std::sync::mpsc::channel::<()>();
        let holder = tokio::task::spawn_blocking(move || taken.recv());
        let office = Office::open();
        office.register(json!([{"id": "slow", "actions": [], "barrier": barrier(),
            "when": with(on("send"), json!({"where": {"body": {"regex": r"^(a+)!\1$"}}}))}]));
        let mut slow = std::pin::pin!(office.call("send", json!({"body": "aa!aa"})));
        assert!(futures_util::poll!(&mut slow).is_pending());
        office.call("contacts_lookup", json!({"name": "x"})).await;
        assert_eq!(office.status("slow"), "armed");
        free.send(()).unwrap();
        slow.await;
        assert_eq!(office.status("slow"), "fired");
        holder.await.unwrap().unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_failed_action_stops_the_rest() {
    let office = Office::open();
    office.register(json!([{"id": "t", "when": on("contacts_lookup"), "barrier": barrier(), "actions": [
        {"type": "tool", "tool": "fail", "args": {"how": "x"}}, {"type": "tool", "tool": "send"}]}]));
    office.call("contacts_lookup", json!({"name": "x"})).await;
    let shown = office.trigger("t");
    assert_eq!(
        (&shown["status"], &shown["fire_count"], &shown["failure_count"]),
        (&json!("armed"), &json!(0), &json!(1))
    );
    assert_eq!(shown["last_failure_at"], json!("2026-11-30T12:00:00.000000+00:00"));
    assert_eq!(office.kinds("t"), ["added", "detected", "action_failed", "failed"]);
    let failed = office.events("t")[2].clone();
    assert_eq!(
        (&failed["detail"], &failed["tool"], &failed["args"]),
        (&json!("boom"), &json!("fail"), &json!({"how": {"redacted": {"type": "str", "len": 1}}}))
    );
    assert!(office.inside(|inside| inside.sent.is_empty()));
    assert_eq!(office.recorded("internal_tool_call")[0]["ok"], json!(false));
    office.call("contacts_lookup", json!({"name": "x"})).await;
    assert_eq!(office.trigger("t")["failure_count"], json!(2));
}

#[tokio::test(start_paused = true)]
async fn calls_that_get_no_result_and_jobs_that_panic_fail() {
    let office = Office::open();
    office.register(json!([
        {"id": "broken", "when": on("contacts_lookup"), "barrier": barrier(), "actions": [{"type": "tool", "tool": "broken"}]},
        {"id": "panics", "when": on("contacts_lookup"), "barrier": barrier(), "actions": [{"type": "tool", "tool": "panic"}]},
    ]));
    office.call("contacts_lookup", json!({"name": "x"})).await;
    assert_eq!(office.field("broken", "action_failed", "detail"), ["the child has died"]);
    assert_eq!(office.field("panics", "action_failed", "detail"), ["an internal error"]);
    assert_eq!((office.status("broken").as_str(), office.status("panics").as_str()), ("armed", "armed"));
    // What got no result may have written all the same.
    let recorded = &office.recorded("internal_tool_call")[0];
    assert_eq!(
        (&recorded["ok"], &recorded["changelog_id_before"], &recorded["changelog_id_after"]),
        (&json!(false), &json!(1), &json!(2))
    );
}

#[tokio::test(start_paused = true)]
async fn placeholders_with_nothing_to_read() {
    let office = Office::open();
    let send = |args: Value| json!([{"type": "tool", "tool": "send", "args": args}]);
    office.register(json!([
        {"id": "req", "when": on("contacts_lookup"), "barrier": barrier(), "actions": send(json!({"to": "${args.cc}"}))},
        {"id": "opt", "when": on("contacts_lookup"), "barrier": barrier(), "actions": send(json!({"to": "x", "subject": "s${args.cc?}", "cc": "${args.cc?}"}))},
    ]));
    office.call("contacts_lookup", json!({"name": "x"})).await;
    assert_eq!(
        (office.trigger("req")["failure_count"].clone(), office.status("opt")),
        (json!(1), "fired".to_owned())
    );
    assert_eq!(office.inside(|inside| inside.sent.clone()), [json!({"to": "x", "subject": "s"})]);
    let failed = office.events("req")[2].clone();
    assert_eq!(
        (&failed["detail"], &failed["tool"], failed.get("args")),
        (&json!("nothing to put in for ${args.cc}"), &json!("send"), None)
    );
}

#[tokio::test(start_paused = true)]
async fn internal_calls_provoke_nothing_and_obey_no_rules() {
    let office = Office::open();
    office.register(json!([welcome(json!({})), {"id": "on-send", "when": on("send"), "actions": []},
        {"id": "as", "when": on("contacts_add"), "barrier": barrier(), "actions": [{"type": "tool", "tool": "deliver", "as": "clerk"}]}]));
    office.call("contacts_add", json!({"name": "a", "email": "b"})).await;
    assert_eq!((office.status("welcome").as_str(), office.status("on-send").as_str()), ("fired", "armed"));
    let internal = office.inside(|inside| inside.internal.clone());
    assert_eq!(internal, [("send".to_owned(), None), ("deliver".to_owned(), Some("clerk".to_owned()))]);
    assert!(office.recorded("internal_tool_call").iter().any(|call| call["as"] == "clerk"));
}

#[tokio::test(start_paused = true)]
async fn verifying() {
    let office = Office::open();
    office.inside(|inside| inside.inbox.push(json!({"subject": "hello Sam"})));
    let check = |query: &str| json!({"steps": [{"tool": "email_search", "args": {"query": query}, "extract": "emails", "predicate": {"exists": true}}]});
    let act = |query: &str| json!([{"type": "permission", "action": "enable", "role": "x", "tools": ["send"], "verify": check(query)}]);
    office.register(json!([
        {"id": "yes", "when": on("contacts_lookup"), "barrier": barrier(), "actions": act("hello")},
        {"id": "no", "when": on("contacts_lookup"), "barrier": barrier(), "actions": act("nothing")},
        {"id": "call", "when": on("contacts_lookup"), "barrier": barrier(), "actions": act("hello ${args.name}")},
        {"id": "broken", "when": on("contacts_lookup"), "barrier": barrier(), "actions": [
            {"type": "tool", "tool": "send", "verify": {"tool": "broken", "predicate": {"exists": true}}}]},
    ]));
    office.call("contacts_lookup", json!({"name": "Sam"})).await;
    assert_eq!(office.kinds("yes"), ["added", "detected", "verify_ok", "action_ok", "fired"]);
    assert_eq!(office.kinds("no"), ["added", "detected", "verify_failed", "failed"]);
    assert_eq!(office.status("call"), "fired");
    assert_eq!(office.kinds("broken"), ["added", "detected", "verify_failed", "failed"]);
    assert_eq!(
        office.field("broken", "verify_failed", "detail"),
        ["steps[0]: broken was not answered: the child has died"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_barrier_lets_go_at_its_timeout() {
    let office = Office::open();
    let slow = |id: &str, seconds: f64, timeout: f64| {
        json!({"id": id, "when": on("contacts_lookup"), "barrier": {"at": "provoking_call", "timeout_seconds": timeout},
               "actions": [{"type": "tool", "tool": "slow", "args": {"seconds": seconds}}]})
    };
    office.register(json!([slow("a", 3.0, 0.5), slow("b", 0.1, 0.4), slow("c", 3.0, 0.25)]));
    let started = tokio::time::Instant::now();
    office.call("contacts_lookup", json!({"name": "x"})).await;
    assert_eq!(started.elapsed().as_millis(), 500);
    let want = json!({"event_type": "trigger_barrier_timeout", "source": "trigger_engine", "at": "provoking_call", "trigger_ids": ["a", "c"], "timeout_s": 0.5});
    assert_eq!(office.recorded("trigger_barrier_timeout"), [want]);
    assert_eq!(office.status("a"), "firing");
    pass(5.0).await;
    assert_eq!((office.status("a").as_str(), office.status("c").as_str()), ("fired", "fired"));
}

#[tokio::test(start_paused = true)]
async fn a_barrier_holds_five_minutes_at_most() {
    let office = Office::open();
    office.register(json!([{"id": "t", "when": on("contacts_lookup"), "barrier": {"at": "provoking_call", "timeout_seconds": 1e300},
        "actions": [{"type": "tool", "tool": "slow", "args": {"seconds": 500}}]}]));
    let started = tokio::time::Instant::now();
    office.call("contacts_lookup", json!({"name": "x"})).await;
    assert_eq!(started.elapsed().as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn matches_wait_their_turn() {
    let office = Office::open();
    let when = with(on("contacts_lookup"), json!({"repeat": true}));
    office.register(json!([{"id": "t", "when": when, "barrier": barrier(),
        "actions": [{"type": "tool", "tool": "slow", "args": {"seconds": 1}}, {"type": "tool", "tool": "send", "args": {"to": "${args.name}"}}]}]));
    let calls = (0..4).map(|n| office.call("contacts_lookup", json!({"name": n.to_string()})));
    let watch = async {
        pass(0.5).await;
        let shown = office.trigger("t");
        assert_eq!((&shown["status"], &shown["pending"]), (&json!("queued"), &json!(3)));
        assert_eq!(office.field("t", "detected", "queued"), [json!(null), json!(1), json!(2), json!(3)]);
    };
    let started = tokio::time::Instant::now();
    tokio::join!(futures_util::future::join_all(calls), watch);
    // Each call is held for its own match.
    assert_eq!(started.elapsed().as_secs(), 4);
    assert_eq!(
        (office.trigger("t")["fire_count"].clone(), office.status("t")),
        (json!(4), "armed".to_owned())
    );
    let sent = office.inside(|inside| inside.sent.iter().map(|mail| mail["to"].clone()).collect::<Vec<_>>());
    assert_eq!(sent, ["0", "1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_bounded() {
    let office = Office::open();
    let trigger = |id: &str, send: Value| {
        json!({"id": id, "when": with(on("contacts_lookup"), json!({"repeat": true})), "actions": [
            {"type": "tool", "tool": "slow", "args": {"seconds": 1_000_000}}, {"type": "tool", "tool": "send", "args": send}]})
    };
    office.register(json!([trigger("small", json!({})), trigger("big", json!({"to": "${args.name}"}))]));
    let name = "x".repeat(1 << 20);
    for _ in 0..40 {
        office.call("contacts_lookup", json!({"name": name})).await;
    }
    assert_eq!(office.trigger("small")["pending"], json!(39));
    assert_eq!(office.trigger("big")["pending"], json!(15));
    assert_eq!(office.field("big", "detected_dropped", "queued").len(), 24);
    office.remove(&["big"]);
    for _ in 0..1_100 {
        office.call("contacts_lookup", json!({"name": ""})).await;
    }
    assert_eq!(office.trigger("small")["pending"], json!(1_000));
}

#[tokio::test(start_paused = true)]
async fn registering_again() {
    let office = Office::open();
    office.register(json!([unlock_send()]));
    office.call("contacts_lookup", json!({"name": "Sam"})).await;
    // Another order of keys, and numbers written otherwise, are the same trigger.
    let again = json!({"barrier": barrier(), "actions": unlock_send()["actions"], "when": unlock_send()["when"], "id": "unlock-send"});
    assert_eq!(
        office.register(json!([again])),
        json!({"ok": true, "added": ["unlock-send"], "all": ["unlock-send"]})
    );
    assert_eq!(office.status("unlock-send"), "fired");
    let other = with(unlock_send(), json!({"actions": []}));
    let refused = office
        .try_register(json!({"triggers": [{"id": "good", "when": on("send"), "actions": []}, other]}))
        .unwrap_err();
    assert!(
        refused.starts_with("triggers[1] 'unlock-send': id: is used by a different trigger"),
        "{refused}"
    );
    assert_eq!(office.state()["triggers"].as_array().unwrap().len(), 1);
    assert_eq!(
        office.remove(&["unlock-send", "ghost", "unlock-send"]),
        json!({"ok": true, "removed": ["unlock-send"]})
    );
    office.register(json!([other]));
    assert_eq!(office.status("unlock-send"), "armed");
    let made = office.register(json!([{"when": on("send"), "actions": []}]))["added"][0]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        made.len() == 16 && made.starts_with("trg_") && made[4..].chars().all(|c| c.is_ascii_hexdigit()),
        "{made}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_removed_trigger_does_nothing_more() {
    let office = Office::open();
    let slow_then_send =
        json!([{"type": "tool", "tool": "slow", "args": {"seconds": 1}}, {"type": "tool", "tool": "send"}]);
    office.register(json!([{"id": "t", "when": with(on("contacts_lookup"), json!({"repeat": true})), "actions": slow_then_send, "barrier": barrier()}]));
    let calls =
        futures_util::future::join_all((0..3).map(|_| office.call("contacts_lookup", json!({"name": ""}))));
    let remove = async {
        pass(0.5).await;
        office.remove(&["t"]);
    };
    let started = tokio::time::Instant::now();
    tokio::join!(calls, remove);
    // Removing lets go of every call that it held.
    assert_eq!(started.elapsed().as_millis(), 500);
    pass(10.0).await;
    assert!(office.inside(|inside| inside.sent.is_empty()));
    assert_eq!(office.kinds("t").last().unwrap(), "removed");
    assert!(office.recorded("trigger_barrier_timeout").is_empty());
}

#[tokio::test(start_paused = true)]
async fn clearing() {
    let office = Office::open();
    office
        .try_register(json!({"watch_roles": ["a"], "triggers": [{"id": "t", "when": on("contacts_lookup"), "barrier": barrier(),
            "actions": [{"type": "tool", "tool": "slow", "args": {"seconds": 1}}, {"type": "tool", "tool": "send"}]}]}))
        .unwrap();
    let clear = async {
        pass(0.5).await;
        assert_eq!(office.triggers.clear(), json!({"ok": true}));
    };
    tokio::join!(office.call_as("a", "contacts_lookup", json!({"name": ""})), clear);
    pass(10.0).await;
    let empty = json!({"config": {"watch_roles": [], "executor_configured": false, "executors": []}, "triggers": [], "events": [], "events_dropped": 0});
    assert_eq!(office.state(), empty);
    assert!(office.inside(|inside| inside.sent.is_empty()));
    office
        .try_register(
            json!({"watch_roles": ["b"], "triggers": [{"id": "t", "when": on("send"), "actions": []}]}),
        )
        .unwrap();
    assert_eq!(office.events("t")[0]["seq"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn stopping_lets_everything_go() {
    let office = Office::open();
    office.inside(|inside| inside.executor = vec![(1_000.0, Ok(()))]);
    office
        .try_register(json!({"executor": {"a2a_url": "http://127.0.0.1:9", "role": "world"}, "triggers": [
            {"id": "t", "when": on("contacts_lookup"), "barrier": barrier(), "actions": [{"type": "nl", "instruction": "x"}]}]}))
        .unwrap();
    let stop = async {
        pass(0.5).await;
        office.triggers.stop().await;
    };
    let started = tokio::time::Instant::now();
    tokio::join!(office.call("contacts_lookup", json!({"name": ""})), stop);
    assert_eq!(started.elapsed().as_millis(), 500);
    assert_eq!(office.status("t"), "firing");
}

#[tokio::test(start_paused = true)]
async fn a_registration_sent_again() {
    let office = Office::open();
    let body = |tool: &str| {
        serde_json::value::to_raw_value(&json!({"triggers": [{"when": on(tool), "actions": []}]})).unwrap()
    };
    let first = office.triggers.register(&body("send"), Some("k")).unwrap();
    assert_eq!(office.triggers.register(&body("send"), Some("k")), Ok(first));
    assert_eq!(office.statuses().len(), 1);
    assert!(office.triggers.register(&body("deliver"), Some("k")).is_err());
    office.triggers.register(&body("send"), Some("other")).unwrap();
    office.triggers.register(&body("send"), None).unwrap();
    assert_eq!(office.statuses().len(), 3);
    office.triggers.clear();
    office.triggers.register(&body("deliver"), Some("k")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_held_after_the_end() {
    let office = Office::open();
    office.register(json!([unlock_send()]));
    office.triggers.stop().await;
    let started = tokio::time::Instant::now();
    office.call("contacts_lookup", json!({"name": "Sam"})).await;
    assert!(started.elapsed().is_zero());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_between_threads() {
    let office = std::sync::Arc::new(Office::open());
    let trigger = |id: &str| {
        json!({"id": id, "when": with(on("contacts_add"), json!({"repeat": true, "where": {"name": {"regex": r"^(n)(?=\d)"}}})), "barrier": barrier(),
               "actions": [{"type": "tool", "tool": "send", "args": {"to": "${args.name}"}}]})
    };
    office.register(json!([trigger("a"), trigger("b")]));
    let callers = (0..8).map(|caller| {
        let office = std::sync::Arc::clone(&office);
        tokio::spawn(async move {
            for n in 0..50 {
                office.call("contacts_add", json!({"name": format!("n{caller}-{n}")})).await;
            }
        })
    });
    let meddler = {
        let office = std::sync::Arc::clone(&office);
        tokio::spawn(async move {
            for n in 0..50 {
                let id = format!("x{n}");
                office.register(json!([trigger(&id)]));
                office.arm("2026-10-05T09:00:00Z", 86_400.0);
                tokio::task::yield_now().await;
                office.remove(&[&id]);
                office.clock.clear();
            }
        })
    };
    for task in callers.chain([meddler]).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    for id in ["a", "b"] {
        let shown = office.trigger(id);
        assert_eq!(
            (&shown["fire_count"], &shown["failure_count"], &shown["status"]),
            (&json!(400), &json!(0), &json!("armed"))
        );
    }
    assert!(office.inside(|inside| inside.sent.len()) >= 800);
    assert!(office.recorded("trigger_barrier_timeout").is_empty());
    office.triggers.stop().await;
}

/// Something good or not.
type Judged = (bool, Value);

/// Triggers of which some are good and some are not, and settings likewise.
fn any_registration() -> impl proptest::strategy::Strategy<Value = (Vec<Judged>, Option<Judged>)> {
    use proptest::prelude::*;
    let trigger = (0..4_u32, prop_oneof![3 => Just(true), 1 => Just(false)]).prop_map(|(n, good)| {
        let mut trigger = json!({"id": format!("t{n}"), "when": on("send"), "actions": []});
        if !good {
            trigger["actions"] = json!([{"type": "zip"}]);
        }
        (good, trigger)
    });
    let role = prop_oneof![Just((true, json!(["default"]))), Just((false, json!("x")))];
    (prop::collection::vec(trigger, 0..5), prop::option::of(role))
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn a_registration_is_taken_whole_or_not_at_all((triggers, roles) in any_registration(), before in 0..4_u32) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let office = Office::open();
            let standing = json!({"id": format!("t{before}"), "when": on("send"), "actions": []});
            office.register(json!([standing]));
            let state = office.state();
            let mut body = json!({"triggers": triggers.iter().map(|(_, trigger)| trigger).collect::<Vec<_>>()});
            if let Some((_, roles)) = &roles {
                body["watch_roles"] = roles.clone();
            }
            let ids: std::collections::HashSet<String> = triggers.iter().map(|(_, trigger)| trigger["id"].to_string()).collect();
            let good = triggers.iter().all(|(good, _)| *good) && ids.len() == triggers.len() && roles.is_none_or(|(good, _)| good);
            let answer = office.try_register(body);
            assert_eq!(answer.is_ok(), good, "{answer:?}");
            if good {
                assert_eq!(office.statuses().len(), ids.len() + usize::from(!ids.contains(&standing["id"].to_string())));
            } else {
                assert_eq!(office.state(), state);
            }
        });
    }
}
