//! Instructions to executors, as the engine sees them (contract 7.5, 7.6).

use serde_json::{Value, json};

use super::office::{Office, pass, settle};

fn office(actions: Value, timeout: f64) -> Office {
    let office = Office::open();
    let executor = json!({"a2a_url": "http://127.0.0.1:9", "role": "world", "timeout_seconds": timeout});
    let dana =
        json!({"id": "dana", "when": {"type": "action", "tool": "contacts_lookup"}, "actions": actions});
    office.try_register(json!({"triggers": [dana], "executor": executor})).unwrap();
    office
}

fn nl(text: &str) -> Value {
    json!([{"type": "nl", "instruction": text}])
}

fn told(office: &Office) -> Vec<String> {
    office.inside(|inside| inside.told.iter().map(|(_, _, text)| text.clone()).collect())
}

async fn look_up(office: &Office) {
    office.call("contacts_lookup", json!({"name": "x"})).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn an_instruction_is_handed_over_as_it_is() {
    let office = office(nl("Ask whether ${HOME} is done."), 120.0);
    look_up(&office).await;
    assert_eq!(office.status("dana"), "firing");
    pass(1.0).await;
    assert_eq!(office.status("dana"), "fired");
    let handed = ("world".to_owned(), "dana".to_owned(), "Ask whether ${HOME} is done.".to_owned());
    assert_eq!(office.inside(|inside| inside.told.clone()), [handed]);
    assert_eq!(office.field("dana", "action_ok", "detail"), [json!({"nl": "Ask whether ${HOME} is done."})]);
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_fails_fails_the_action() {
    let office = office(nl("x"), 120.0);
    office.inside(|inside| inside.executor = vec![(0.5, Err("no such room".to_owned())), (0.5, Ok(()))]);
    look_up(&office).await;
    pass(1.0).await;
    assert_eq!(office.kinds("dana"), ["added", "detected", "action_failed", "failed"]);
    assert_eq!(office.field("dana", "action_failed", "detail"), ["no such room"]);
    // The next call has it tried again.
    look_up(&office).await;
    pass(1.0).await;
    assert_eq!(office.status("dana"), "fired");
}

#[tokio::test(start_paused = true)]
async fn an_executor_has_its_time() {
    let office = office(nl("x"), 7.0);
    office.inside(|inside| inside.executor = vec![(1_000.0, Ok(()))]);
    look_up(&office).await;
    pass(6.9).await;
    assert_eq!(office.status("dana"), "firing");
    pass(0.1).await;
    assert_eq!(office.status("dana"), "armed");
}

#[tokio::test(start_paused = true)]
async fn an_instruction_whose_check_fails_is_sent_once_more() {
    let verify = json!({"tool": "email_search", "args": {"query": "done"}, "extract": "emails", "predicate": {"exists": true}});
    let office = office(json!([{"type": "nl", "instruction": "do it", "verify": verify}]), 120.0);
    look_up(&office).await;
    pass(3.0).await;
    assert_eq!(
        office.kinds("dana"),
        ["added", "detected", "verify_failed", "verify_failed", "action_failed", "failed"]
    );
    let texts = told(&office);
    assert_eq!((texts.len(), texts[0].as_str()), (2, "do it"));
    assert!(texts[1].starts_with("do it\n\n") && texts[1].contains("not observed"));
    office.inside(|inside| inside.inbox.push(json!({"subject": "done"})));
    look_up(&office).await;
    pass(3.0).await;
    assert_eq!(office.kinds("dana")[6..], ["detected", "verify_ok", "action_ok", "fired"]);
}
