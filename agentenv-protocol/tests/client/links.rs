//! Eras and sessions: found out, lost, found again; and what a call is told of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentenv_protocol::mcp::client::{CallReply, ClientError, ErrorKind, McpClient, OutgoingCall, Sent};
use http::{HeaderName, HeaderValue};
use serde_json::json;
use tokio::time::Instant;

use crate::answers::call;
use crate::evil::{
    Evil, Seen, Step, error, polite, polite_as, response, response_with, result, stateless, stateless_as,
};

pub(crate) async fn reply(client: &McpClient) -> Result<CallReply, ClientError> {
    let mut call = OutgoingCall::new("t", None);
    call.deadline = Some(Instant::now() + Duration::from_secs(60));
    client.call(call).await
}

/// Why the call was told of a reconnection, if it was.
pub(crate) async fn news(client: &McpClient) -> Option<&'static str> {
    reply(client).await.unwrap().reconnected.map(|reconnected| reconnected.reason)
}

/// A polite server whose session can be exchanged while it runs: the old one is then unknown.
async fn forgetful(session: Arc<AtomicUsize>) -> Evil {
    Evil::start(move |seen| polite_as(seen, &format!("s{}", session.load(Ordering::Relaxed)), "")).await
}

#[tokio::test]
async fn the_session_era_begins_with_a_handshake() {
    let evil = Evil::start(polite).await;
    let client = evil.client_with(|options| {
        options.headers.insert(HeaderName::from_static("agentenv-role"), HeaderValue::from_static("bob"));
    });
    assert_eq!(client.version(), None);
    call(&client, "t").await.unwrap();
    assert_eq!(client.version(), Some("2025-11-25"));
    assert_eq!(evil.methods(), ["server/discover", "initialize", "notifications/initialized", "tools/call"]);
    let seen = evil.seen();
    assert_eq!(seen[1].body["params"]["clientInfo"]["name"], "test");
    for (seen, session) in seen.iter().zip([None, None, Some("s1"), Some("s1")]) {
        assert_eq!(seen.header("mcp-session-id"), session);
        assert_eq!(seen.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(seen.header("content-type"), Some("application/json"));
        assert_eq!(seen.header("host"), Some(evil.address.to_string().as_str()));
        assert_eq!(seen.header("agentenv-role"), Some("bob"));
        assert!(seen.head.starts_with("POST /mcp HTTP/1.1\r\n"));
    }
    client.ping().await.unwrap();
    assert_eq!(evil.methods().pop().as_deref(), Some("ping"));
    client.close().await;
    let last = evil.seen().pop().unwrap();
    assert_eq!((last.verb.as_str(), last.header("mcp-session-id")), ("DELETE", Some("s1")));
    call(&client, "t").await.unwrap();
    assert_eq!(evil.times("initialize"), 2, "a closed client can be used again");
}

#[tokio::test]
async fn the_stateless_era_says_everything_each_time() {
    let evil = Evil::start(stateless).await;
    let client = evil.client();
    let mut outgoing = OutgoingCall::new("té", None);
    outgoing.meta = r#"{"agentenv.io/role":"bob"}"#;
    outgoing.traceparent =
        Some(HeaderValue::from_static("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    client.call(outgoing).await.unwrap();
    client.ping().await.unwrap();
    client.close().await;
    assert_eq!(client.version(), None);
    assert_eq!(evil.methods(), ["server/discover", "tools/call", "server/discover"]);
    for seen in evil.seen() {
        assert_eq!(seen.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(seen.header("mcp-method"), Some(seen.method()));
        let meta = &seen.body["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "test");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
    }
    let call = &evil.seen()[1];
    assert_eq!(call.header("mcp-name"), Some("=?base64?dMOp?="));
    assert!(call.header("traceparent").is_some());
    assert_eq!(call.body["params"]["_meta"]["agentenv.io/role"], "bob");
}

#[tokio::test]
async fn a_forgotten_session_is_opened_anew_and_told_of_once() {
    let session = Arc::new(AtomicUsize::new(1));
    let evil = forgetful(Arc::clone(&session)).await;
    let client = evil.client();
    assert_eq!(news(&client).await, None);
    session.store(2, Ordering::Relaxed);
    assert_eq!(news(&client).await, Some("the server forgot the session"));
    assert_eq!(news(&client).await, None);
    assert_eq!((evil.times("initialize"), evil.times("tools/call")), (2, 4));
}

#[tokio::test]
async fn some_servers_forget_sessions_with_another_status() {
    let known = Arc::new(AtomicUsize::new(1));
    let session = Arc::clone(&known);
    let evil = Evil::start(move |seen| {
        let now = format!("s{}", session.load(Ordering::Relaxed));
        match (seen.method(), seen.header("mcp-session-id")) {
            ("tools/call", Some(given)) if given != now => {
                let body = error(seen, -32000, "Bad Request: No valid session ID provided");
                response("400 Bad Request", "application/json", body)
            }
            _ => polite_as(seen, &now, ""),
        }
    })
    .await;
    let client = evil.client();
    news(&client).await;
    known.store(2, Ordering::Relaxed);
    assert!(news(&client).await.is_some());
}

#[tokio::test]
async fn a_session_that_is_forgotten_again_at_once_is_an_error() {
    let evil = Evil::start(|seen| match seen.method() {
        "tools/call" => polite_as(seen, "another", ""),
        _ => polite(seen),
    })
    .await;
    let error = reply(&evil.client()).await.unwrap_err();
    assert_eq!(error.sent(), Sent::No);
    assert!(error.to_string().contains("Session not found"), "{error}");
    assert_eq!((evil.times("initialize"), evil.times("tools/call")), (2, 2));
}

#[tokio::test]
async fn many_calls_open_one_new_session() {
    let session = Arc::new(AtomicUsize::new(1));
    let evil = forgetful(Arc::clone(&session)).await;
    let client = evil.client();
    news(&client).await;
    session.store(2, Ordering::Relaxed);
    let calls = futures_util::future::join_all((0..50).map(|_| reply(&client))).await;
    let told = calls.into_iter().filter(|reply| reply.as_ref().unwrap().reconnected.is_some()).count();
    assert_eq!((told, evil.times("initialize")), (1, 2));
}

#[tokio::test]
async fn calls_under_way_in_the_old_session_fail_once_and_are_not_made_again() {
    let evil = Evil::start(|seen| match seen.body["params"]["name"].as_str() {
        Some("hang") => vec![Step::Hang(Arc::default())],
        _ => polite(seen),
    })
    .await;
    let (client, address) = (evil.client(), evil.address);
    news(&client).await;
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { call(&client, "hang").await })
        })
        .collect();
    evil.asked("tools/call", 11).await;
    drop(evil);
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.sent()), (&ErrorKind::Broke, Sent::Maybe));
    }
    let evil = Evil::again(address, |seen| polite_as(seen, "s2", "")).await;
    assert_eq!(news(&client).await, Some("the server forgot the session"));
    assert_eq!(evil.times("tools/call"), 2, "one in the old session, one in the new");
}

#[tokio::test]
async fn a_server_that_was_away_is_reconnected_to() {
    let evil = Evil::start(polite).await;
    let (client, address) = (evil.client(), evil.address);
    news(&client).await;
    drop(evil);
    tokio::task::yield_now().await;
    for _ in 0..3 {
        let error = reply(&client).await.unwrap_err();
        assert_eq!((error.kind(), error.sent()), (&ErrorKind::Unreachable, Sent::No));
        assert_eq!(error.to_string(), "the server cannot be reached: connection refused");
    }
    let _evil = Evil::again(address, polite).await;
    assert_eq!(news(&client).await, Some("the server could not be reached"));
    assert_eq!(news(&client).await, None);
}

#[tokio::test]
async fn connections_that_the_server_closed_are_passed_over() {
    let evil = Evil::start(|seen| {
        let mut steps = polite(seen);
        steps.push(Step::Close);
        steps
    })
    .await;
    let client = evil.client();
    for number in 0..200 {
        let reply = reply(&client).await.unwrap_or_else(|error| panic!("call {number}: {error:?}"));
        assert_eq!(reply.reconnected, None, "call {number}");
    }
    assert_eq!(evil.times("tools/call"), 200);
}

#[tokio::test]
async fn a_server_that_names_its_lives_is_believed() {
    let life = |life: usize| format!("AgentEnv-Instance: life-{life}\r\n");
    let now = Arc::new(AtomicUsize::new(1));
    // Without a session, nothing but the name tells of a restart.
    let lives = Arc::clone(&now);
    let evil = Evil::start(move |seen| stateless_as(seen, &life(lives.load(Ordering::Relaxed)))).await;
    let client = evil.client();
    assert_eq!(news(&client).await, None);
    now.store(2, Ordering::Relaxed);
    assert_eq!(news(&client).await, Some("the server restarted"));
    assert_eq!(news(&client).await, None);
    // With one, the name tells that the session merely ran out.
    let session = Arc::new(AtomicUsize::new(1));
    let sessions = Arc::clone(&session);
    let evil =
        Evil::start(move |seen| polite_as(seen, &sessions.load(Ordering::Relaxed).to_string(), &life(1)))
            .await;
    let client = evil.client();
    assert_eq!(news(&client).await, None);
    session.store(2, Ordering::Relaxed);
    assert_eq!(news(&client).await, None);
    assert_eq!(evil.times("initialize"), 2);
}

#[tokio::test]
async fn a_server_that_comes_back_in_another_era_is_found_out_again() {
    type Polite = fn(&Seen) -> Vec<Step>;
    let now: Arc<Mutex<Polite>> = Arc::new(Mutex::new(stateless));
    let script = Arc::clone(&now);
    let evil = Evil::start(move |seen| {
        let polite = *script.lock().unwrap();
        match (seen.method(), seen.header("mcp-protocol-version")) {
            // A server that knows sessions only answers what has none as one does.
            ("tools/call", Some("2026-07-28")) if std::ptr::fn_addr_eq(polite, self::polite as Polite) => {
                response("400 Bad Request", "application/json", error(seen, -32600, "Missing session ID"))
            }
            ("tools/call", Some("2025-11-25")) if std::ptr::fn_addr_eq(polite, self::stateless as Polite) => {
                response("404 Not Found", "application/json", error(seen, -32600, "what session?"))
            }
            _ => polite(seen),
        }
    })
    .await;
    let client = evil.client();
    assert_eq!((news(&client).await, client.version()), (None, Some("2026-07-28")));
    *now.lock().unwrap() = polite;
    let reason = Some("the server speaks another protocol version");
    assert_eq!((news(&client).await, client.version()), (reason, Some("2025-11-25")));
    *now.lock().unwrap() = stateless;
    let reason = Some("the server forgot the session");
    assert_eq!((news(&client).await, client.version()), (reason, Some("2026-07-28")));
    assert_eq!(evil.times("tools/call"), 5);
}

#[tokio::test]
async fn a_refusal_that_the_era_does_not_explain_is_the_calls_own() {
    let evil = Evil::start(|seen| match seen.method() {
        "tools/call" => response("404 Not Found", "application/json", error(seen, -32601, "no tools here")),
        _ => stateless(seen),
    })
    .await;
    let client = evil.client();
    let error = reply(&client).await.unwrap_err();
    assert_eq!(error.rpc().map(|error| error.code), Some(-32601));
    assert_eq!(evil.times("tools/call"), 1, "the era was looked up again, the call was not made again");
    let refused = Evil::start(|seen| match seen.method() {
        "tools/call" => response("400 Bad Request", "application/json", error_with_data(seen)),
        _ => stateless(seen),
    })
    .await;
    let failed = reply(&refused.client()).await.unwrap_err();
    let failed = failed.rpc().unwrap().clone();
    assert_eq!(
        (failed.code, failed.data.unwrap().as_str()),
        (-32021, r#"{"requiredCapabilities":{"sampling":{}}}"#)
    );
    assert_eq!(refused.times("server/discover"), 1);
}

fn error_with_data(seen: &Seen) -> String {
    let data = r#"{"requiredCapabilities":{"sampling":{}}}"#;
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32021,"message":"x","data":{data}}}}}"#, seen.id())
}

#[tokio::test]
async fn without_a_session_a_broken_connection_may_mean_another_server() {
    let evil = Evil::start(|seen| match seen.body["params"]["name"].as_str() {
        Some("break") => vec![Step::Close],
        _ => stateless(seen),
    })
    .await;
    let client = evil.client();
    news(&client).await;
    assert_eq!(call(&client, "break").await.unwrap_err().sent(), Sent::Maybe);
    assert_eq!(news(&client).await, Some("the connection broke"));
}

#[tokio::test]
async fn sessions_without_a_key_are_fine() {
    let evil = Evil::start(|seen| match seen.method() {
        "initialize" => result(seen, r#"{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{}}"#),
        "tools/call" => result(seen, "{}"),
        _ => polite(seen),
    })
    .await;
    let client = evil.client();
    // The notification behind `initialize` is refused by this one; the next is not.
    assert!(reply(&client).await.is_err());
    let evil = Evil::start(|seen| match seen.method() {
        "initialize" => result(seen, r#"{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{}}"#),
        "tools/call" => result(seen, "{}"),
        "server/discover" => response_with("404 Not Found", "", ""),
        _ => response_with("202 Accepted", "", ""),
    })
    .await;
    let client = evil.client();
    reply(&client).await.unwrap();
    let last = evil.seen().pop().unwrap();
    assert_eq!(last.header("mcp-protocol-version"), Some("2024-11-05"));
    assert_eq!(last.header("mcp-session-id"), None);
}
