//! Answers that come as event streams: what is said before the answer is heard, and nothing behind it is waited for.

use std::sync::{Arc, Mutex};

use agentenv_protocol::context::{LogLevel, Notification};
use agentenv_protocol::mcp::client::OutgoingCall;
use serde_json::json;

use crate::answers::call;
use crate::evil::{Evil, Seen, Step, chunk, chunked_stream, polite, response_with, stateless, stream};

fn answer(seen: &Seen) -> String {
    format!(
        "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"content\":[]}}}}\n\n",
        seen.id()
    )
}

fn note(method: &str, params: &str) -> String {
    format!(
        "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{method}\",\"params\":{params}}}\n\n"
    )
}

#[tokio::test]
async fn progress_and_logs_are_heard_in_order_before_the_answer() {
    for polite in [polite, stateless] {
        let evil = Evil::start(move |seen| match seen.method() {
            "tools/call" => vec![
                chunked_stream(),
                chunk("id: 1\nretry: 10\ndata:\n\n"),
                chunk(&note("progress", r#"{"progressToken":"p","progress":0,"total":100}"#)),
                chunk(": still here\n\n"),
                chunk(&note("message", r#"{"level":"warning","logger":"l","data":{"a":1}}"#)),
                chunk(&note("message", r#"{"level":"nonsense","data":1}"#)),
                chunk(&note("tools/list_changed", "{}")),
                chunk(&note("progress", r#"{"progressToken":"p","progress":50.5,"message":"half"}"#)),
                chunk(&answer(seen)),
                Step::Write(b"0\r\n\r\n".to_vec()),
            ],
            _ => polite(seen),
        })
        .await;
        let client = evil.client();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&heard);
        let mut call = OutgoingCall::new("t", None);
        call.notify = Some(Arc::new(move |notification| sink.lock().unwrap().push(notification)));
        call.meta = r#"{"progressToken":"p"}"#;
        client.call(call).await.unwrap();
        let progress = |progress, total, message: Option<&str>| Notification::Progress {
            progress,
            total,
            message: message.map(str::to_owned),
        };
        let log =
            Notification::Log { level: LogLevel::Warning, logger: Some("l".into()), data: json!({"a": 1}) };
        let want = [progress(0.0, Some(100.0), None), log, progress(50.5, None, Some("half"))];
        assert_eq!(*heard.lock().unwrap(), want);
        let mut deaf = OutgoingCall::new("t", None);
        deaf.meta = r#"{"progressToken":"p"}"#;
        client.call(deaf).await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_that_stays_open_behind_the_answer_is_not_waited_for() {
    let evil = Evil::start(|seen| match seen.method() {
        "tools/call" => vec![chunked_stream(), chunk(&answer(seen)), Step::Hang(Arc::default())],
        _ => polite(seen),
    })
    .await;
    let client = evil.client();
    for _ in 0..3 {
        call(&client, "t").await.unwrap();
    }
}

#[tokio::test]
async fn what_comes_behind_the_answer_does_not_matter() {
    for behind in ["data: garbage\n\n", "data: half", &note("progress", "{}")] {
        let behind = behind.to_owned();
        let evil = Evil::start(move |seen| match seen.method() {
            "tools/call" => vec![stream(&(answer(seen) + &behind)), Step::Reset],
            _ => polite(seen),
        })
        .await;
        call(&evil.client(), "t").await.unwrap();
    }
}

#[tokio::test]
async fn the_servers_own_requests_are_answered() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let both = Arc::new(tokio::sync::Notify::new());
    let (record, notify) = (Arc::clone(&heard), Arc::clone(&both));
    let evil = Evil::start(move |seen| match seen.method() {
        "tools/call" => {
            let request = |id: &str, method: &str| {
                format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"}}\n\n")
            };
            vec![
                chunked_stream(),
                chunk(&(request("\"a\"", "ping") + &request("7", "sampling/createMessage"))),
                Step::Wait(Arc::clone(&notify)),
                chunk(&answer(seen)),
                Step::Write(b"0\r\n\r\n".to_vec()),
            ]
        }
        "" if seen.verb == "POST" => {
            let mut heard = record.lock().unwrap();
            heard.push(seen.body.clone());
            if heard.len() == 2 {
                notify.notify_one();
            }
            response_with("202 Accepted", "", "")
        }
        _ => polite(seen),
    })
    .await;
    call(&evil.client(), "t").await.unwrap();
    let mut heard = heard.lock().unwrap().clone();
    heard.sort_by_key(|message| message["id"].to_string());
    assert_eq!(heard[0], json!({"jsonrpc": "2.0", "id": "a", "result": {}}));
    assert_eq!((&heard[1]["id"], &heard[1]["error"]["code"]), (&json!(7), &json!(-32601)));
}

#[tokio::test]
async fn connections_are_used_again() {
    let evil = Evil::start(|seen| match seen.body["params"]["name"].as_str() {
        Some("stream") => {
            let Step::Write(mut bytes) = chunked_stream() else { unreachable!() };
            for step in [chunk(&answer(seen)), Step::Write(b"0\r\n\r\n".to_vec())] {
                let Step::Write(more) = step else { unreachable!() };
                bytes.extend(more);
            }
            vec![Step::Write(bytes)]
        }
        _ => polite(seen),
    })
    .await;
    let client = evil.client();
    for _ in 0..20 {
        call(&client, "json").await.unwrap();
        call(&client, "stream").await.unwrap();
    }
    let last = evil.seen().pop().unwrap().connection;
    assert!(last <= 2, "{} connections for one call at a time", last + 1);
}
