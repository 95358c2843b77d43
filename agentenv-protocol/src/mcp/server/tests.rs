//! The endpoint as a client meets it, in both eras, without a network.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify as Signal;

use super::*;
use crate::context::Notification;
use crate::mcp::STATELESS;

/// Echoes what it gets; some tools do more.
#[derive(Default)]
struct Echo {
    /// Lets a waiting call end.
    go: Signal,
    ended: Mutex<Vec<String>>,
}

impl Service for Echo {
    fn info(&self) -> (&str, &str) {
        ("echo", "1")
    }

    async fn list(&self, role: Option<&str>) -> Result<RawJson, Refusal> {
        Ok(RawJson::of(&json!([{"name": "echo", "role": role}])).unwrap())
    }

    fn list_depends_on_role(&self) -> bool {
        true
    }

    async fn call(self: Arc<Self>, call: Call) -> Result<RawJson, Refusal> {
        let end = |how: &str| self.ended.lock().unwrap().push(how.to_owned());
        match call.tool.as_str() {
            "panic" => panic!("boom"),
            "wait" => {
                tokio::select! {
                    () = self.go.notified() => end("done"),
                    () = call.cancel.cancelled() => end("cancelled"),
                }
            }
            "chatter" => {
                for progress in [1.0, 2.0] {
                    if let Some(notify) = &call.notify {
                        notify(Notification::Progress { progress, total: None, message: None });
                    }
                }
            }
            "progress" => {
                for progress in [0.0, 50.0] {
                    if let Some(notify) = &call.notify {
                        notify(Notification::Progress { progress, total: Some(100.0), message: None });
                    }
                    self.go.notified().await;
                }
            }
            _ => {}
        }
        let arguments = call.arguments.as_deref().map_or("null", RawValue::get);
        let result = crate::json::ObjectWriter::with_capacity(64)
            .raw("arguments", arguments)
            .field("role", &call.role)
            .field("session", &call.session);
        Ok(RawJson::object(result.finish()))
    }
}

fn endpoint() -> Arc<Endpoint<Echo>> {
    Endpoint::new(Arc::new(Echo::default()), EndpointOptions::default())
}

fn post(headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::post("/mcp");
    for (name, value) in
        [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
    {
        if !headers.iter().any(|(given, _)| *given == name) {
            request = request.header(name, value);
        }
    }
    headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value))
        .body(body.into())
        .unwrap()
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap()
    }
}

async fn ask(endpoint: &Arc<Endpoint<Echo>>, request: Request<Body>) -> Answer {
    let (parts, body) = Arc::clone(endpoint).handle(request).await.into_parts();
    let body = crate::server::read_body(body, 1 << 24).await.unwrap();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        text: String::from_utf8(body.into()).unwrap(),
    }
}

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;

async fn open(endpoint: &Arc<Endpoint<Echo>>) -> String {
    let answer = ask(endpoint, post(&[], INITIALIZE)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.headers["mcp-session-id"].to_str().unwrap().to_owned()
}

async fn in_session(endpoint: &Arc<Endpoint<Echo>>, session: &str, body: &str) -> Answer {
    ask(endpoint, post(&[("mcp-session-id", session)], body.to_owned())).await
}

fn call(id: &str, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

#[tokio::test]
async fn a_session() {
    let endpoint = endpoint();
    for (asked, got) in
        [("2025-06-18", "2025-06-18"), ("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")]
    {
        let answer = ask(&endpoint, post(&[], INITIALIZE.replace("2025-06-18", asked))).await;
        assert_eq!(answer.json()["result"]["protocolVersion"], got);
    }
    let id = open(&endpoint).await;
    let ping = in_session(&endpoint, &id, r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await;
    assert_eq!(ping.text, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
    let listed = in_session(&endpoint, &id, r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    assert_eq!(listed.json()["result"]["tools"][0]["name"], "echo");
    let unknown = in_session(&endpoint, &id, r#"{"jsonrpc":"2.0","id":2,"method":"no/such"}"#).await;
    assert_eq!((unknown.status, unknown.code()), (200, rpc::METHOD_NOT_FOUND));
    let again = in_session(&endpoint, &id, INITIALIZE).await;
    assert_eq!(again.status, 400);
    let delete = |id: &str| Request::delete("/mcp").header("mcp-session-id", id).body(Body::empty()).unwrap();
    assert_eq!(ask(&endpoint, delete(&id)).await.status, 200);
    assert_eq!(ask(&endpoint, delete(&id)).await.status, 404);
    assert_eq!(in_session(&endpoint, &id, &call("1", "echo", "{}")).await.status, 404);
}

#[tokio::test]
async fn sessions_must_be_named() {
    let endpoint = endpoint();
    let before = endpoint.sessions();
    assert_eq!(ask(&endpoint, post(&[], call("1", "echo", "{}"))).await.status, 400);
    for id in ["nope", "\u{7f}x", &"x".repeat(8000)] {
        let request = Request::post("/mcp").header("content-type", "application/json");
        let id = HeaderValue::from_bytes(id.as_bytes()).unwrap_or(HeaderValue::from_static("y"));
        let request = request.header("mcp-session-id", id).body(Body::from(call("1", "echo", "{}"))).unwrap();
        assert_eq!(ask(&endpoint, request).await.status, 404);
    }
    assert_eq!(endpoint.sessions(), before);
}

#[tokio::test]
async fn each_post_has_its_own_answer() {
    let endpoint = endpoint();
    let session = open(&endpoint).await;
    let calls = (0..12).map(|n| {
        let (endpoint, session) = (Arc::clone(&endpoint), session.clone());
        let id = if n % 2 == 0 { "1" } else { "\"1\"" };
        async move { in_session(&endpoint, &session, &call(id, "echo", &format!("{{\"n\":{n}}}"))).await }
    });
    for (n, answer) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        let answer = answer.json();
        assert_eq!(answer["result"]["arguments"]["n"], n);
        assert_eq!(answer["id"].is_string(), n % 2 == 1);
    }
}

#[tokio::test]
async fn arguments_pass_as_they_came() {
    let endpoint = endpoint();
    let session = open(&endpoint).await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let arguments = format!(
        r#"{{"big":123456789012345678901234567890,"one":1.0,"minus":-0,"e":1e2,"deep":{deep},"text":"[1, 2]"}}"#
    );
    let answer = in_session(&endpoint, &session, &call("1", "echo", &arguments)).await;
    assert!(answer.text.contains(&arguments), "{}", answer.text);
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    let endpoint = endpoint();
    let session = open(&endpoint).await;
    let refused = |body: String| {
        let (endpoint, session) = (Arc::clone(&endpoint), session.clone());
        async move { in_session(&endpoint, &session, &body).await }
    };
    for body in ["{", "", "{} x", r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#] {
        let answer = refused(body.to_owned()).await;
        assert_eq!((answer.status, answer.code()), (400, rpc::PARSE_ERROR), "{body}");
    }
    for body in [
        "[]",
        "5",
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
    ] {
        let answer = refused(body.to_owned()).await;
        assert_eq!((answer.status, answer.code()), (400, rpc::INVALID_REQUEST), "{body}");
    }
    for params in [
        r#""params":[]"#,
        r#""params":"x""#,
        r#""params":{"name":5}"#,
        r#""params":{}"#,
        r#""params":{"name":"x","arguments":[1]}"#,
        r#""params":{"name":"x","arguments":null}"#,
        r#""params":{"name":"x","_meta":[]}"#,
    ] {
        let answer = refused(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call",{params}}}"#)).await;
        assert_eq!((answer.status, answer.code()), (200, rpc::INVALID_PARAMS), "{params}");
    }
    let cursor =
        refused(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}"#.to_owned()).await;
    assert_eq!(cursor.code(), rpc::INVALID_PARAMS);
    let large = ask(&endpoint, post(&[("mcp-session-id", &session)], vec![b' '; BODY_LIMIT + 1])).await;
    assert_eq!(large.status, 413);
    assert_eq!(refused(call("1", "panic", "{}")).await.status, 500);
    assert_eq!(refused(call("1", "echo", "{}")).await.status, 200);
}

#[tokio::test]
async fn notifications_are_taken_and_nothing_is_called() {
    let endpoint = endpoint();
    let session = open(&endpoint).await;
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"wait"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
    ] {
        let answer = in_session(&endpoint, &session, body).await;
        assert_eq!((answer.status, answer.text.as_str()), (202, ""), "{body}");
    }
    assert!(endpoint.options.tracker.is_empty());
}

#[tokio::test]
async fn headers_are_judged() {
    let endpoint = endpoint();
    let session = open(&endpoint).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (headers, status) in [
        (vec![("content-type", "text/plain")], 415),
        (vec![("content-type", "application/jsonx")], 415),
        (vec![("accept", "text/html")], 406),
        (vec![("accept", "*/*")], 200),
        (vec![("origin", "http://evil.example"), ("host", "evil.example")], 403),
        (vec![("origin", "http://localhost:9"), ("host", "localhost:9")], 200),
        (vec![("agentenv-role", "*")], 200),
    ] {
        let headers = [vec![("mcp-session-id", session.as_str())], headers].concat();
        assert_eq!(ask(&endpoint, post(&headers, ping)).await.status, status, "{headers:?}");
    }
    for method in [Method::GET, Method::PUT, Method::PATCH, Method::OPTIONS, Method::HEAD] {
        let request = Request::builder().method(&method).uri("/mcp").body(Body::empty()).unwrap();
        let answer = ask(&endpoint, request).await;
        assert_eq!(
            (answer.status, &answer.headers["allow"]),
            (405, &HeaderValue::from_static("POST, DELETE")),
            "{method}"
        );
    }
    let star = [("mcp-session-id", session.as_str()), ("agentenv-role", "*")];
    assert_eq!(ask(&endpoint, post(&star, call("1", "echo", "{}"))).await.status, 400);
}

#[tokio::test]
async fn a_hang_up_does_not_cut_a_session_call() {
    let endpoint = endpoint();
    let session = open(&endpoint).await;
    let waiting = {
        let (endpoint, session) = (Arc::clone(&endpoint), session.clone());
        tokio::spawn(async move { in_session(&endpoint, &session, &call("1", "wait", "{}")).await })
    };
    while endpoint.options.tracker.is_empty() {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    let _ = waiting.await;
    endpoint.service.go.notify_one();
    endpoint.options.tracker.close();
    endpoint.options.tracker.wait().await;
    assert_eq!(*endpoint.service.ended.lock().unwrap(), ["done"]);
}

#[tokio::test]
async fn a_call_is_cancelled_by_its_own_session_alone() {
    let endpoint = endpoint();
    let (a, b) = (open(&endpoint).await, open(&endpoint).await);
    let waiting = {
        let (endpoint, a) = (Arc::clone(&endpoint), a.clone());
        tokio::spawn(async move { in_session(&endpoint, &a, &call("7", "wait", "{}")).await })
    };
    while endpoint.options.tracker.is_empty() {
        tokio::task::yield_now().await;
    }
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    in_session(&endpoint, &b, cancel).await;
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    in_session(&endpoint, &a, cancel).await;
    assert_eq!(waiting.await.unwrap().code(), rpc::REQUEST_CANCELLED);
}

#[tokio::test]
async fn progress_comes_on_the_calls_own_stream() {
    let endpoint = endpoint();
    let session = open(&endpoint).await;
    let body = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":"t"}}}"#;
    endpoint.service.go.notify_one();
    let go = Arc::clone(&endpoint);
    let second = tokio::spawn(async move {
        tokio::task::yield_now().await;
        go.service.go.notify_waiters();
        for _ in 0..1000 {
            go.service.go.notify_one();
            tokio::task::yield_now().await;
        }
    });
    let answer = in_session(&endpoint, &session, body).await;
    second.abort();
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let messages: Vec<Value> = answer
        .text
        .lines()
        .filter_map(|l| l.strip_prefix("data: "))
        .map(|m| serde_json::from_str(m).unwrap())
        .collect();
    assert_eq!(messages.len(), 3, "{}", answer.text);
    assert_eq!(messages[1]["params"], json!({"progressToken": "t", "progress": 50, "total": 100}));
    assert_eq!(messages[2]["id"], 3);
}

#[tokio::test]
async fn what_a_call_says_without_a_pause_goes_before_its_end() {
    let endpoint = endpoint();
    let session = open(&endpoint).await;
    let body = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"chatter","_meta":{"progressToken":7}}}"#;
    let answer = in_session(&endpoint, &session, body).await;
    let messages: Vec<Value> = answer
        .text
        .lines()
        .filter_map(|l| l.strip_prefix("data: "))
        .map(|m| serde_json::from_str(m).unwrap())
        .collect();
    let progress: Vec<_> = messages.iter().map(|message| &message["params"]["progress"]).collect();
    assert_eq!(progress, [&json!(1), &json!(2), &Value::Null], "{}", answer.text);
    assert_eq!(messages[2]["id"], 3);
}

#[tokio::test]
async fn a_client_that_takes_only_events_gets_them() {
    let endpoint = endpoint();
    let session = open(&endpoint).await;
    let headers = [("mcp-session-id", session.as_str()), ("accept", "text/event-stream")];
    let answer = ask(&endpoint, post(&headers, call("1", "echo", "{}"))).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    assert!(answer.text.starts_with("event: message\ndata: {\"jsonrpc\""), "{}", answer.text);
}

/// A message of the stateless era, with headers that agree; `change` may make them disagree.
fn stateless(method: &str, params: Value, change: impl Fn(&str) -> Option<String>) -> Request<Body> {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params.get("name").and_then(Value::as_str).map(str::to_owned);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let mut headers = vec![("mcp-protocol-version", STATELESS.to_owned()), ("mcp-method", method.to_owned())];
    headers.extend(name.map(|name| ("mcp-name", name)));
    let headers: Vec<_> = headers
        .into_iter()
        .filter_map(|(header, value)| match change(header) {
            Some(new) if new.is_empty() => None,
            Some(new) => Some((header, new)),
            None => Some((header, value)),
        })
        .collect();
    let headers: Vec<_> = headers.iter().map(|(header, value)| (*header, value.as_str())).collect();
    post(&headers, body)
}

#[tokio::test]
async fn the_stateless_era() {
    let endpoint = endpoint();
    let as_is = |_: &str| None;
    let discover = ask(&endpoint, stateless("server/discover", json!({}), as_is)).await.json();
    assert_eq!(discover["result"]["resultType"], "complete");
    assert_eq!(discover["result"]["supportedVersions"][0], STATELESS);
    let listed = ask(&endpoint, stateless("tools/list", json!({}), as_is)).await.json();
    assert_eq!(listed["result"]["cacheScope"], "private");
    let called =
        ask(&endpoint, stateless("tools/call", json!({"name": "echo", "arguments": {"a": 1}}), as_is)).await;
    assert_eq!(called.json()["result"]["resultType"], "complete");
    assert_eq!(called.json()["result"]["arguments"], json!({"a": 1}));
    assert_eq!(called.json()["result"]["session"], Value::Null);
    assert!(!called.headers.contains_key("mcp-session-id"));
    for gone in ["initialize", "ping", "logging/setLevel", "no/such"] {
        let answer = ask(&endpoint, stateless(gone, json!({}), as_is)).await;
        assert_eq!((answer.status, answer.code()), (404, rpc::METHOD_NOT_FOUND), "{gone}");
    }
    assert_eq!(endpoint.sessions(), 0);
}

#[tokio::test]
async fn stateless_headers_must_agree_with_the_body() {
    let endpoint = endpoint();
    let cases: [(&str, &str, i64); 7] = [
        ("mcp-protocol-version", "", rpc::HEADER_MISMATCH),
        ("mcp-protocol-version", "2025-11-25", rpc::HEADER_MISMATCH),
        ("mcp-method", "", rpc::HEADER_MISMATCH),
        ("mcp-method", "TOOLS/CALL", rpc::HEADER_MISMATCH),
        ("mcp-name", "", rpc::HEADER_MISMATCH),
        ("mcp-name", "other", rpc::HEADER_MISMATCH),
        ("mcp-name", "=?base64?%%?=", rpc::HEADER_MISMATCH),
    ];
    for (header, value, code) in cases {
        let change = |name: &str| (name == header).then(|| value.to_owned());
        let answer = ask(&endpoint, stateless("tools/call", json!({"name": "echo"}), change)).await;
        assert_eq!((answer.status, answer.code()), (400, code), "{header}: {value:?}");
    }
    let wrapped = |name: &str| (name == "mcp-name").then(|| "=?base64?ZWNobw==?=".to_owned());
    assert_eq!(ask(&endpoint, stateless("tools/call", json!({"name": "echo"}), wrapped)).await.status, 200);
    let headers = [("mcp-protocol-version", STATELESS), ("mcp-method", "tools/list")];
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let answer = ask(&endpoint, post(&headers, bare)).await;
    assert_eq!((answer.status, answer.code()), (400, rpc::INVALID_PARAMS));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01", "io.modelcontextprotocol/clientCapabilities": {}}}});
    let headers = [("mcp-protocol-version", "2099-01-01"), ("mcp-method", "tools/list")];
    let answer = ask(&endpoint, post(&headers, body.to_string())).await;
    assert_eq!((answer.status, answer.code()), (400, rpc::UNSUPPORTED_PROTOCOL_VERSION));
    assert_eq!(answer.json()["error"]["data"]["requested"], "2099-01-01");
}

#[tokio::test]
async fn a_hang_up_cancels_a_stateless_call() {
    let endpoint = endpoint();
    let waiting = {
        let endpoint = Arc::clone(&endpoint);
        tokio::spawn(async move {
            ask(&endpoint, stateless("tools/call", json!({"name": "wait"}), |_| None)).await
        })
    };
    while endpoint.options.tracker.is_empty() {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    let _ = waiting.await;
    endpoint.options.tracker.close();
    let ended = tokio::time::timeout(Duration::from_secs(10), endpoint.options.tracker.wait()).await;
    assert!(ended.is_ok());
    assert_eq!(*endpoint.service.ended.lock().unwrap(), ["cancelled"]);
}
