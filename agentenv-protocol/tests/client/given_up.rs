//! Calls that are given up: cancelled, late, or dropped.

use std::sync::Arc;
use std::time::Duration;

use agentenv_protocol::mcp::client::{CANCEL_GRACE, ClientError, ErrorKind, McpClient, OutgoingCall, Sent};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answers::call;
use crate::evil::{Evil, Seen, Step, polite, stateless};

/// A child whose tool `hang` never answers; `gone` says that the client hung up on it.
async fn child(polite: fn(&Seen) -> Vec<Step>) -> (Evil, Arc<Notify>) {
    let gone = Arc::new(Notify::new());
    let notify = Arc::clone(&gone);
    let evil = Evil::start(move |seen| match seen.body["params"]["name"].as_str() {
        Some("hang") => vec![Step::Hang(Arc::clone(&notify))],
        _ => polite(seen),
    })
    .await;
    (evil, gone)
}

fn begin(client: &McpClient, cancel: &CancellationToken) -> JoinHandle<Result<String, ClientError>> {
    let (client, cancel) = (client.clone(), cancel.clone());
    tokio::spawn(async move {
        let mut call = OutgoingCall::new("hang", None);
        call.cancel = cancel;
        client.call(call).await.map(|reply| reply.result.as_str().to_owned())
    })
}

/// That the child was told which call is wanted no more.
async fn was_told(evil: &Evil) {
    evil.asked("notifications/cancelled", 1).await;
    let seen = evil.seen();
    let id = seen.iter().find(|seen| seen.body["params"]["name"] == "hang").unwrap().body["id"].clone();
    assert_eq!(seen.last().unwrap().body["params"]["requestId"], id);
    assert_eq!(seen.last().unwrap().header("mcp-session-id"), Some("s1"));
}

#[tokio::test]
async fn cancelling_in_a_session_tells_the_server_and_waits_for_the_end() {
    let (evil, gone) = child(polite).await;
    let (client, cancel) = (evil.client(), CancellationToken::new());
    let cancelled = begin(&client, &cancel);
    evil.asked("tools/call", 1).await;
    cancel.cancel();
    was_told(&evil).await;
    assert!(!cancelled.is_finished(), "it is given some time to end");
    tokio::time::pause();
    let before = Instant::now();
    let error = cancelled.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.sent()), (&ErrorKind::Cancelled, Sent::Maybe));
    assert!(before.elapsed() <= CANCEL_GRACE + Duration::from_millis(10));
    gone.notified().await;
}

#[tokio::test]
async fn a_result_that_wins_over_the_cancellation_counts() {
    let told = Arc::new(Notify::new());
    let notify = Arc::clone(&told);
    let evil = Evil::start(move |seen| match (seen.method(), seen.body["params"]["name"].as_str()) {
        (_, Some("hang")) => {
            let mut steps = vec![Step::Wait(Arc::clone(&notify))];
            steps.extend(polite(seen));
            steps
        }
        ("notifications/cancelled", _) => {
            notify.notify_one();
            polite(seen)
        }
        _ => polite(seen),
    })
    .await;
    let (client, cancel) = (evil.client(), CancellationToken::new());
    let cancelled = begin(&client, &cancel);
    evil.asked("tools/call", 1).await;
    cancel.cancel();
    assert!(cancelled.await.unwrap().unwrap().contains("ok"));
}

#[tokio::test]
async fn cancelling_without_a_session_hangs_up() {
    let (evil, gone) = child(stateless).await;
    let (client, cancel) = (evil.client(), CancellationToken::new());
    let cancelled = begin(&client, &cancel);
    evil.asked("tools/call", 1).await;
    cancel.cancel();
    let error = cancelled.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.sent()), (&ErrorKind::Cancelled, Sent::Maybe));
    gone.notified().await;
    assert_eq!(evil.times("notifications/cancelled"), 0);
}

#[tokio::test]
async fn a_call_that_was_cancelled_before_is_not_made() {
    let (evil, _) = child(polite).await;
    let (client, cancel) = (evil.client(), CancellationToken::new());
    cancel.cancel();
    for _ in 0..2 {
        let error = begin(&client, &cancel).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.sent()), (&ErrorKind::Cancelled, Sent::No));
        call(&client, "t").await.unwrap();
    }
    assert_eq!(evil.times("tools/call"), 2);
}

#[tokio::test]
async fn a_late_call_ends_at_its_deadline_and_the_server_hears_of_it() {
    for (polite, session) in [(polite as fn(&Seen) -> Vec<Step>, true), (stateless, false)] {
        let (evil, gone) = child(polite).await;
        let client = evil.client();
        call(&client, "t").await.unwrap();
        let late = begin(&client, &CancellationToken::new());
        evil.asked("tools/call", 2).await;
        tokio::time::pause();
        let before = Instant::now();
        let error = late.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.sent()), (&ErrorKind::Timeout, Sent::Maybe));
        assert!((500..=600).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
        tokio::time::resume();
        gone.notified().await;
        if session {
            was_told(&evil).await;
        }
        call(&client, "t").await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_is_given_up() {
    for (polite, session) in [(polite as fn(&Seen) -> Vec<Step>, true), (stateless, false)] {
        let (evil, gone) = child(polite).await;
        let client = evil.client();
        let dropped = begin(&client, &CancellationToken::new());
        evil.asked("tools/call", 1).await;
        dropped.abort();
        gone.notified().await;
        if session {
            was_told(&evil).await;
        }
        call(&client, "t").await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_trickles_ends_at_the_deadline_too() {
    let evil = Evil::start(|seen| match seen.body["params"]["name"].as_str() {
        Some("hang") => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n{\"jsonrpc\"";
            vec![Step::Write(head.as_bytes().to_vec()), Step::Hang(Arc::default())]
        }
        _ => polite(seen),
    })
    .await;
    let client = evil.client();
    let late = begin(&client, &CancellationToken::new());
    evil.asked("tools/call", 1).await;
    tokio::time::pause();
    assert_eq!(*late.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn others_go_on_while_one_hangs() {
    let (evil, _) = child(polite).await;
    let client = evil.client();
    let hung = begin(&client, &CancellationToken::new());
    evil.asked("tools/call", 1).await;
    for _ in 0..10 {
        call(&client, "t").await.unwrap();
    }
    assert!(!hung.is_finished());
    hung.abort();
}
