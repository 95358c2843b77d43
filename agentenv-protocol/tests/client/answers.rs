//! Answers that are none, one by one: each ends its call at once, and the client and its neighbours go on.

use std::time::Duration;

use agentenv_protocol::mcp::client::{ClientError, ErrorKind, McpClient, OutgoingCall, Sent};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::evil::{
    Evil, Seen, Step, chunk, chunked_stream, error, json_body, polite, response, response_with, stream,
};

/// What a call is expected to fail with.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Want {
    Broke,
    Bad(u16),
    Rpc(i64),
    TooLarge,
}

type Mode = (&'static str, Want, &'static str, fn(&Seen) -> Vec<Step>);

fn ok(seen: &Seen) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[]}}}}"#, seen.id())
}

fn write(text: &str) -> Step {
    Step::Write(text.as_bytes().to_vec())
}

/// The first `n` bytes of a good answer, then the end.
fn cut(seen: &Seen, n: usize, end: Step) -> Vec<Step> {
    let Some(Step::Write(mut bytes)) = json_body(ok(seen)).pop() else { unreachable!() };
    bytes.truncate(n);
    vec![Step::Write(bytes), end]
}

/// A JSON answer whose id is right and whose other members are these.
fn members(seen: &Seen, members: &str) -> Vec<Step> {
    json_body(format!(r#"{{"jsonrpc":"2.0","id":{},{members}}}"#, seen.id()))
}

fn event(seen: &Seen) -> String {
    format!("event: message\ndata: {}\n\n", ok(seen))
}

const LIMIT: usize = 1 << 20;

const NOTE: &str =
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":1}}\n\n";

#[rustfmt::skip]
const MODES: &[Mode] = &[
    ("a page", Want::Bad(200), "the content type text/html", |_| response("200 OK", "text/html", "<html>")),
    ("no content type", Want::Bad(200), "no content type", |s| response_with("200 OK", "", ok(s))),
    ("a stream that is empty", Want::Broke, "without answering", |_| vec![stream(""), Step::Close]),
    ("a stream with a note only", Want::Broke, "without answering", |_| vec![stream(NOTE), Step::Close]),
    ("a chunked stream with a note only", Want::Broke, "without answering", |_| vec![chunked_stream(), chunk(NOTE), write("0\r\n\r\n")]),
    ("a stream cut inside the answer", Want::Broke, "without answering", |s| vec![stream(event(s).trim_end()), Step::Close]),
    ("a chunked stream cut inside the answer", Want::Broke, "stream broke", |s| vec![chunked_stream(), chunk(&event(s)[..30]), Step::Close]),
    ("a stream that is reset", Want::Broke, "broke", |_| vec![stream(NOTE), Step::Reset]),
    ("a stream with another's answer", Want::Broke, "without answering", |_| vec![stream("data: {\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":{}}\n\n"), Step::Close]),
    ("a stream of garbage", Want::Bad(200), "not JSON", |_| vec![stream("data: garbage\n\n"), Step::Hang(Default::default())]),
    ("a stream of bytes", Want::Bad(200), "not UTF-8", |_| vec![stream(""), Step::Write(b"data: \"\xff\xfe\"\n\n".to_vec()), Step::Hang(Default::default())]),
    ("a stream with an endless event", Want::TooLarge, "larger than", |_| vec![stream("data: "), Step::Flood(vec![b'x'; 65_536])]),
    ("a stream with an endless comment", Want::TooLarge, "larger than", |_| vec![stream(": "), Step::Flood(vec![b'x'; 65_536])]),
    ("a stream with endless lines", Want::TooLarge, "larger than", |_| vec![stream(""), Step::Flood(b"data: x\n".repeat(4_096))]),
    ("JSON that ends early", Want::Bad(200), "not JSON", |_| json_body("{\"jsonrpc\":\"2.0\",")),
    ("JSON and more", Want::Bad(200), "not JSON", |s| json_body(ok(s) + " x")),
    ("JSON in latin-1", Want::Bad(200), "not UTF-8", |_| json_body(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"\xe9\"}}")),
    ("a lone surrogate", Want::Bad(200), "lone surrogate", |s| members(s, r#""result":{"a":"\ud800"}"#)),
    ("too deep", Want::Bad(200), "levels deep", |s| members(s, &format!(r#""result":{{"a":{}{}}}"#, "[".repeat(300), "]".repeat(300)))),
    ("a number out of range", Want::Bad(200), "out of range", |s| members(s, r#""result":{"a":1e999}"#)),
    ("NaN", Want::Bad(200), "not JSON", |s| members(s, r#""result":{"a":NaN}"#)),
    ("a batch", Want::Bad(200), "no JSON-RPC message", |s| json_body(format!("[{}]", ok(s)))),
    ("a string", Want::Bad(200), "no JSON-RPC message", |_| json_body("\"ok\"")),
    ("a result that is null", Want::Bad(200), "not an object", |s| members(s, r#""result":null"#)),
    ("a result that is a list", Want::Bad(200), "not an object", |s| members(s, r#""result":[]"#)),
    ("neither result nor error", Want::Bad(200), "neither", |s| members(s, r#""x":1"#)),
    ("both result and error", Want::Bad(200), "both", |s| members(s, r#""result":{},"error":{"code":1,"message":"x"}"#)),
    ("an error that is a string", Want::Bad(200), "none of JSON-RPC's", |s| members(s, r#""error":"boom""#)),
    ("an error", Want::Rpc(-32000), "boom (-32000)", |s| json_body(error(s, -32000, "boom"))),
    ("an error without an id", Want::Rpc(7), "boom", |_| json_body(r#"{"jsonrpc":"2.0","id":null,"error":{"code":7,"message":"boom"}}"#)),
    ("another's answer", Want::Bad(200), "another request", |_| json_body(r#"{"jsonrpc":"2.0","id":99999,"result":{}}"#)),
    ("an answer without an id", Want::Bad(200), "another request", |_| json_body(r#"{"jsonrpc":"2.0","result":{}}"#)),
    ("a request", Want::Bad(200), "message of its own", |s| members(s, r#""method":"ping""#)),
    ("202", Want::Bad(202), "HTTP 202 without a body", |_| response_with("202 Accepted", "", "")),
    ("204", Want::Bad(204), "HTTP 204 without a body", |_| vec![write("HTTP/1.1 204 No Content\r\n\r\n")]),
    ("an empty 200", Want::Bad(200), "HTTP 200 without a body", |_| response_with("200 OK", "", "")),
    ("an empty 200 of JSON", Want::Bad(200), "is empty", |_| json_body("")),
    ("400", Want::Rpc(-32602), "no such thing", |s| response("400 Bad Request", "application/json", error(s, -32602, "no such thing"))),
    ("401", Want::Bad(401), "HTTP 401 Unauthorized", |_| response("401 Unauthorized", "application/json", "{\"error\":\"x\"}")),
    ("403", Want::Bad(403), "HTTP 403", |_| response("403 Forbidden", "text/plain", "no")),
    ("405", Want::Bad(405), "HTTP 405", |_| response_with("405 Method Not Allowed", "", "")),
    ("429", Want::Bad(429), "HTTP 429", |_| response_with("429 Too Many Requests", "Retry-After: 1\r\n", "")),
    ("500", Want::Bad(500), "HTTP 500", |_| response("500 Internal Server Error", "text/plain", "oops")),
    ("503", Want::Bad(503), "HTTP 503", |_| response_with("503 Service Unavailable", "Retry-After: 1\r\n", "")),
    ("an error with an endless body", Want::Bad(500), "HTTP 500", |_| vec![write("HTTP/1.1 500 Oops\r\n\r\n"), Step::Flood(vec![b'x'; 65_536])]),
    ("a length of 2 GB", Want::TooLarge, "larger than", |_| vec![write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2000000000\r\n\r\n{"), Step::Hang(Default::default())]),
    ("an endless body", Want::TooLarge, "larger than", |_| vec![write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"), Step::Flood(vec![b' '; 65_536])]),
    ("no HTTP", Want::Broke, "broke before the answer", |_| vec![write("SSH-2.0-OpenSSH_9.2\r\n"), Step::Hang(Default::default())]),
    ("an endless head", Want::Broke, "broke before the answer", |_| vec![write("HTTP/1.1 200 OK\r\nX: "), Step::Flood(vec![b'x'; 65_536])]),
    ("endless header fields", Want::Broke, "broke before the answer", |_| vec![write("HTTP/1.1 200 OK\r\n"), Step::Flood(b"x: y\r\n".repeat(4_096))]),
    ("a length that is none", Want::Broke, "broke before the answer", |_| vec![write("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n")]),
    ("gone after the request", Want::Broke, "broke before the answer", |_| vec![Step::Close]),
    ("reset after the request", Want::Broke, "broke before the answer", |_| vec![Step::Reset]),
    ("gone inside the head", Want::Broke, "broke before the answer", |s| cut(s, 20, Step::Close)),
    ("gone behind the head", Want::Broke, "in the middle of the answer", |s| cut(s, 75, Step::Close)),
    ("gone inside the body", Want::Broke, "in the middle of the answer", |s| cut(s, 90, Step::Close)),
    ("reset inside the body", Want::Broke, "broke", |s| cut(s, 90, Step::Reset)),
];

fn want(error: &ClientError) -> Option<Want> {
    Some(match error.kind() {
        ErrorKind::Broke => Want::Broke,
        ErrorKind::BadAnswer { status } => Want::Bad(status.as_u16()),
        ErrorKind::Rpc(error) => Want::Rpc(error.code),
        ErrorKind::TooLarge => Want::TooLarge,
        _ => return None,
    })
}

/// A call that a client which hangs would fail the test with, rather than hang it.
pub(crate) async fn call(client: &McpClient, tool: &str) -> Result<String, ClientError> {
    let mut call = OutgoingCall::new(tool, None);
    call.deadline = Some(Instant::now() + Duration::from_secs(60));
    client.call(call).await.map(|reply| reply.result.as_str().to_owned())
}

/// A child whose tool `t` works and whose other tools are modes by number.
async fn child() -> Evil {
    Evil::start(|seen| {
        let tool = seen.body["params"]["name"].as_str().and_then(|name| name.parse::<usize>().ok());
        match tool.and_then(|mode| MODES.get(mode)) {
            Some((_, _, _, steps)) => steps(seen),
            None => polite(seen),
        }
    })
    .await
}

#[tokio::test]
async fn each_bad_answer_ends_its_call_with_a_clear_error() {
    let (evil, good) = (child().await, Evil::start(polite).await);
    let (client, other) = (evil.client_with(|options| options.answer_limit = LIMIT), good.client());
    for (number, (name, wanted, words, _)) in MODES.iter().enumerate() {
        let before = evil.times("tools/call");
        let error = call(&client, &number.to_string()).await.expect_err(name);
        assert_eq!(want(&error), Some(*wanted), "{name}: {error:?}");
        assert_eq!(error.sent(), Sent::Maybe, "{name}");
        assert!(error.to_string().contains(words), "{name}: '{error}' does not say '{words}'");
        assert!(
            !error.to_string().contains(&evil.address.port().to_string()),
            "{name}: '{error}' names the address"
        );
        assert_eq!(evil.times("tools/call"), before + 1, "{name}: it may have run, and was tried again");
        assert!(call(&client, "t").await.is_ok(), "{name}: the client is of no use any more");
        assert!(call(&other, "t").await.is_ok(), "{name}: it disturbed another server's client");
    }
    assert_eq!(evil.times("initialize"), 1, "a session is kept through all that");
}

#[tokio::test]
async fn bad_answers_side_by_side_do_not_disturb_good_ones() {
    let evil = child().await;
    let client = evil.client_with(|options| options.answer_limit = LIMIT);
    let calls = (0..MODES.len() * 2).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let bad = call(&client, &(number % MODES.len()).to_string())
                .await
                .expect_err(MODES[number % MODES.len()].0);
            (bad, call(&client, "t").await)
        })
    });
    for (number, done) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        let (bad, good) = done.unwrap();
        let (name, wanted, ..) = MODES[number % MODES.len()];
        assert_eq!((want(&bad), good.is_ok()), (Some(wanted), true), "{name}: {bad:?} {good:?}");
    }
    assert_eq!(evil.times("initialize"), 1, "they share one session");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Evil::start(polite).await;
    let to = other.address;
    let evil = Evil::start(move |seen| match seen.method() {
        "tools/call" => {
            response_with("307 Temporary Redirect", &format!("Location: http://{to}/mcp\r\n"), "")
        }
        _ => polite(seen),
    })
    .await;
    let error = call(&evil.client(), "t").await.unwrap_err();
    assert!(error.to_string().contains("redirects are not followed"), "{error}");
    assert!(other.seen().is_empty());
}

/// What a server may say that a client must not judge, and must not change by a byte.
const RESULTS: &[&str] = &[
    r#"{"content":[{"type":"hologram","x":[1.0,-0,1e2,123456789012345678901234567890]}],"isError":false}"#,
    r#"{ "x" : "no content" ,"_meta":{"a/b":"\u0000\ud83d\ude00"}}"#,
    r#"{"content":[],"content":[],"isError":true,"structuredContent":{"deep":[[[[[[[[1]]]]]]]]}}"#,
    "{}",
];

#[tokio::test]
async fn results_come_as_they_were_sent() {
    let evil = Evil::start(|seen| match (seen.method(), seen.body["params"]["name"].as_str()) {
        ("tools/call", Some(name)) => {
            let (way, number) = name.split_once('-').unwrap();
            let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
            let result = number.parse().ok().and_then(|n: usize| RESULTS.get(n).copied()).unwrap_or(&deep);
            let message = format!("\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":\"{}\", \"result\":{result}}}", seen.id());
            match way {
                "json" => json_body(message),
                "drip" => vec![
                    Step::Write(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\r\n", message.len()).into_bytes()),
                    Step::Drip(message.into_bytes()),
                ],
                _ => vec![stream(""), Step::Drip(format!(": hi\r\nid: 1\r\ndata: {message}\r\n\r\n").into_bytes()), Step::Close],
            }
        }
        _ => polite(seen),
    })
    .await;
    let client = evil.client();
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for way in ["json", "drip", "events"] {
        for (number, result) in RESULTS.iter().copied().chain([deep.as_str()]).enumerate() {
            let got = call(&client, &format!("{way}-{number}")).await;
            assert_eq!(got.as_deref().ok(), Some(result), "{way} {number}: {got:?}");
        }
    }
}

#[tokio::test]
async fn arguments_and_meta_go_as_they_are_given() {
    let evil = Evil::start(polite).await;
    let client = evil.client();
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(200), "]".repeat(200));
    for arguments in [r#"{"n":123456789012345678901234567890,"t":"[1, 2]", "a": 1.0}"#, "{}", &deep] {
        let raw: &RawValue = serde_json::from_str(arguments).unwrap();
        let mut call = OutgoingCall::new("name \"quoted\" é", Some(raw));
        call.meta = r#"{"agentenv.io/role":"bob", "progressToken":"p"}"#;
        client.call(call).await.unwrap();
        let seen = evil.seen().pop().unwrap();
        assert!(seen.raw.contains(&format!("\"arguments\":{arguments}")), "{}", seen.raw);
        assert!(
            seen.raw.contains(r#""_meta":{"agentenv.io/role":"bob", "progressToken":"p"}"#),
            "{}",
            seen.raw
        );
        assert_eq!(seen.body["params"]["name"], "name \"quoted\" é");
    }
    client.call(OutgoingCall::new("t", None)).await.unwrap();
    assert_eq!(evil.seen().pop().unwrap().body["params"], serde_json::json!({"name": "t"}));
}
