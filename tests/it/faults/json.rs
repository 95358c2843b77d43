//! Bodies that are no JSON, no object, too large or cut short, on every route that takes one.

use anyhow::Result;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Gated, MCP, send, session};
use crate::office::{Children, Office, serve_env};

/// A route whose body must be an object, and whether it says `"ok": false`.
const ROUTES: [(&str, &str, bool); 8] = [
    ("POST", "/tools/disable", false),
    ("POST", "/tools/enable", false),
    ("POST", "/step", false),
    ("PUT", "/clock/set-time", true),
    ("POST", "/clock/advance", true),
    ("POST", "/triggers/register", true),
    ("POST", "/triggers/remove", true),
    ("POST", "/mcp", false),
];

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn nested(depth: usize) -> Vec<u8> {
    format!(r#"{{"a":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1)).into_bytes()
}

/// What is not JSON, or no JSON that we let in.
fn no_json() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = [
        &b""[..],
        b"{",
        b"{} x",
        b"{\"a\":}",
        b"{'a':1}",
        b"NaN",
        b"{\"a\":NaN}",
        b"{\"a\":Infinity}",
        b"{\"a\":1e400}",
        br#"{"a":"\ud800"}"#,
        br#"{"\udc00":1}"#,
        br#"{"role":"\ud800\u0041","tools":"*"}"#,
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"jos\xe9\"}",
        b"\x1f\x8b\x08\x00",
    ]
    .map(<[u8]>::to_vec)
    .into();
    bodies.extend([utf16("{}"), nested(257), nested(100_000), vec![b'['; 1_000_000]]);
    bodies
}

#[tokio::test]
async fn what_is_no_object_is_the_callers_fault_on_every_route() -> Result<()> {
    let office = Office::open(Children::Remote).await?;
    let session = session(&office.url, "").await?;
    let fields = format!("{MCP}Mcp-Session-Id: {session}\r\n");
    let clock = office.get("/clock/state").await?;
    for (method, path, ok) in ROUTES {
        for body in no_json() {
            let answer = send(&office.url, method, path, &fields, &body).await?;
            let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            assert_eq!(answer.status, 400, "{path} {shown}: {answer:?}");
            let said = answer.json();
            if path == "/mcp" {
                assert_eq!((&said["error"]["code"], &said["id"]), (&json!(-32700), &json!(null)), "{shown}");
            } else {
                let text = said["error"].as_str().unwrap_or_default();
                assert!(text.starts_with("Invalid JSON body"), "{path} {shown}: {answer:?}");
                assert_eq!(said.get("ok").is_some(), ok, "{path} {shown}");
            }
        }
        for body in ["[]", "1", "null", "\"x\"", "true", "[{}]"] {
            let answer = send(&office.url, method, path, &fields, body.as_bytes()).await?;
            assert_eq!(answer.status, 400, "{path} {body}: {answer:?}");
            let said = answer.json();
            if path == "/mcp" {
                assert_eq!(said["error"]["code"], -32600, "{body}");
            } else {
                assert_eq!(said["error"], "request body must be a JSON object", "{path} {body}");
                assert_eq!(said.get("ok").is_some(), ok, "{path} {body}");
            }
        }
    }
    assert_eq!(office.get("/clock/state").await?, clock);
    assert_eq!(office.get("/state").await?["roles"], json!({}));
    assert!(office.events().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn the_data_plane_always_answers_in_json_rpc() -> Result<()> {
    let stop = CancellationToken::new();
    let child = serve_env(agentenv_tests::email::EmailEnv::default(), &stop).await?;
    let office = Office::open(Children::Remote).await?;
    for (url, path) in
        [(&child, "/agentenv"), (&office.url, "/agentenv"), (&office.url, "/svc/mcp-email/agentenv")]
    {
        for body in no_json() {
            let answer = send(url, "POST", path, "", &body).await?;
            let said = answer.json();
            let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            assert_eq!((answer.status, &said["error"]["code"]), (200, &json!(-32700)), "{path} {shown}");
            assert!(said["id"].is_null(), "{path} {shown}");
        }
        for (body, code, id) in [
            ("[]", -32600, json!(null)),
            ("5", -32600, json!(null)),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"data/reset"}]"#, -32600, json!(null)),
            (r#"{"jsonrpc":"2.0","id":1,"method":["data/reset"]}"#, -32600, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":{}}"#, -32600, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32600, json!(1)),
            (r#"{"jsonrpc":"2.0","id":{},"method":"data/reset"}"#, -32600, json!(null)),
            (r#"{"jsonrpc":"2.0","id":[],"method":"data/reset"}"#, -32600, json!(null)),
            (r#"{"jsonrpc":"1.0","id":1,"method":"data/reset"}"#, -32600, json!(1)),
            (r#"{"id":1,"method":"data/reset"}"#, -32600, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, -32601, json!(1)),
        ] {
            let answer = send(url, "POST", path, "", body.as_bytes()).await?;
            let said = answer.json();
            let got = (answer.status, &said["error"]["code"], &said["id"]);
            assert_eq!(got, (200, &json!(code), &id), "{path} {body}: {answer:?}");
        }
    }
    stop.cancel();
    Ok(())
}

#[tokio::test]
async fn a_byte_order_mark_and_odd_numbers_are_fine() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let answer = send(&office.url, "POST", "/step", "", b"\xef\xbb\xbf{\"action\":\"list_tools\"}").await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let long = "7".repeat(5_000);
    for number in [&*long, "99999999999999999999999999", "-0", "1e2", "\"\\u0000\""] {
        let body = format!(
            r#"{{"action":"call_tool","tool_name":"contacts_add","arguments":{{"name":"a","email":"b","n":{number}}}}}"#
        );
        let answer = send(&office.url, "POST", "/step", "", body.as_bytes()).await?;
        assert_eq!(answer.status, 200, "{number}: {answer:?}");
        let trajectory = office.http.get(format!("{}/trajectory", office.url)).send().await?.text().await?;
        assert!(trajectory.contains(&format!(r#""n":{number}"#)), "{number} is kept as it came");
    }
    Ok(())
}

#[tokio::test]
async fn a_refused_body_disturbs_no_call_under_way() -> Result<()> {
    for remote in [false, true] {
        let gated = Gated::open(remote, |builder| builder).await?;
        let call = gated.begin();
        gated.gate.entered(1).await?;
        let body = br#"{"action":"call_tool","tool_name":"wait","arguments":{"a":"\ud800"}}"#;
        assert_eq!(send(&gated.url, "POST", "/step", "", body).await?.status, 400);
        assert_eq!(gated.events().await?.len(), 1, "only the call under way");
        gated.gate.let_through(1);
        assert_eq!(call.await??, 200);
        assert_eq!(*gated.gate.entered.borrow(), 1, "the child was asked once");
        assert_eq!(gated.events().await?.len(), 2);
    }
    Ok(())
}

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_body_has_its_limit_whether_it_says_its_length_or_not() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let id = session(&office.url, "").await?;
    let fields = format!("{MCP}Mcp-Session-Id: {id}\r\nHost: g\r\nConnection: close\r\n");
    for (method, path, limit) in [
        ("POST", "/mcp", 16 * MIB),
        ("POST", "/step", 16 * MIB),
        ("POST", "/svc/mcp-email/mcp", 16 * MIB),
        ("POST", "/tools/disable", 4 * MIB),
        ("PUT", "/clock/set-time", 4 * MIB),
        ("POST", "/triggers/register", 4 * MIB),
        ("POST", "/agentenv", 4 * MIB),
    ] {
        let head = format!("{method} {path} HTTP/1.1\r\n{fields}");
        // Told by its length alone, before any of it has come.
        let said = format!("{head}Content-Length: {}\r\n\r\n", limit + 1);
        assert_eq!(super::raw(&office.url, said.as_bytes()).await?.status, 413, "{path}");
        let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        for _ in 0..=limit / MIB {
            chunked.extend(format!("{MIB:x}\r\n").into_bytes());
            chunked.resize(chunked.len() + MIB, b' ');
            chunked.extend(b"\r\n");
        }
        chunked.extend(b"0\r\n\r\n");
        // The server may close before it has read all that is sent, and the answer be lost with it.
        if let Ok(answer) = super::raw(&office.url, &chunked).await {
            assert_eq!(answer.status, 413, "{path}");
        }
    }
    assert!(office.events().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_length_that_lies_is_one_connections_end() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let head = "POST /step HTTP/1.1\r\nHost: g\r\nContent-Length:";
    let list = r#"{"action":"list_tools"}"#;
    // Too short: what is left over is no request.
    let short = super::raw(&office.url, format!("{head} 5\r\n\r\n{list}").as_bytes()).await?;
    assert_eq!(short.status, 400, "{short:?}");
    for length in ["-1", "x", "1, 2", "99999999999999999999"] {
        let answer = super::raw(&office.url, format!("{head} {length}\r\n\r\n{list}").as_bytes()).await?;
        assert_eq!(answer.status, 400, "{length}: {answer:?}");
    }
    // Too long: the client hangs up before there is all of it.
    let mut stream = super::connect(&office.url).await?;
    tokio::io::AsyncWriteExt::write_all(&mut stream, format!("{head} 500\r\n\r\n{list}").as_bytes()).await?;
    drop(stream);
    assert_eq!(send(&office.url, "POST", "/step", "", list.as_bytes()).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn an_extension_and_a_servers_own_rules_judge_bodies_alike() -> Result<()> {
    let stop = CancellationToken::new();
    let child = serve_env(agentenv_tests::email::EmailEnv::default(), &stop).await?;
    let bodies = no_json().into_iter().filter(|body| !body.is_empty());
    for body in bodies.chain([b"[]".to_vec(), b"5".to_vec(), b"null".to_vec()]) {
        let answer = send(&child, "POST", "/agentenv/ext/set_limit", "", &body).await?;
        let said = answer.json();
        let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        assert_eq!((answer.status, &said["ok"]), (400, &json!(false)), "{shown}: {answer:?}");
        assert_eq!(said["error"]["code"], "invalid_params", "{shown}");
    }
    stop.cancel();
    Ok(())
}
