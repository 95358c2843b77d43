//! `/mcp` over raw sockets: verbs and paths, clients that hang up, cancel and end their sessions, other people's sessions.

use std::collections::BTreeMap;

use agentenv_gateway::http::{Access, ServeOptions};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::{Gated, MCP, connect, send, session};
use crate::office::{Children, Office, serve, serve_env};

const PING: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn verbs_and_paths() -> Result<()> {
    let stop = CancellationToken::new();
    let child = serve_env(agentenv_tests::email::EmailEnv::default(), &stop).await?;
    let office = Office::open(Children::InProcess).await?;
    for url in [&child, &office.url] {
        for path in ["/mcp", "/mcp/"] {
            for method in ["GET", "HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "BREW"] {
                let answer = send(url, method, path, "Origin: http://localhost\r\n", b"").await?;
                assert_eq!(answer.status, 405, "{method} {path}");
                assert_eq!(answer.header("allow"), Some("POST, DELETE"), "{method} {path}");
                assert_eq!(answer.header("access-control-allow-origin"), None);
            }
            let id = session(url, "").await?;
            let fields = format!("{MCP}Mcp-Session-Id: {id}\r\n");
            assert_eq!(send(url, "POST", path, &fields, PING).await?.status, 200, "{path}");
        }
        for path in ["/MCP", "/mcp//", "/mcp/x", "/nowhere", "/", "/tools/disable/", "//mcp", "/agentenv/"] {
            let answer = send(url, "POST", path, "Host: evil.example\r\n", b"{}").await?;
            assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
            let answer = send(url, "POST", path, "", b"{}").await?;
            assert_eq!(answer.status, 404, "{path}");
            assert_eq!(answer.header("location"), None, "{path}: nobody is sent anywhere");
        }
    }
    stop.cancel();
    Ok(())
}

#[tokio::test]
async fn verbs_of_the_harness() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    for (path, allow) in [
        ("/step", "POST"),
        ("/agentenv", "POST"),
        ("/tools/disable", "POST"),
        ("/tools/enable", "POST"),
        ("/clock/set-time", "PUT"),
        ("/clock/clear", "POST"),
        ("/clock/state", "GET,HEAD"),
        ("/triggers/register", "POST"),
        ("/state", "GET,HEAD"),
        ("/trajectory", "GET,HEAD"),
        ("/.well-known/agent-env.json", "GET,HEAD"),
    ] {
        let answer = send(&office.url, "DELETE", path, "", b"").await?;
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn heads_that_are_too_large() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let many = "x: y\r\n".repeat(300);
    let long = format!("x: {}\r\n", "y".repeat(1 << 20));
    for fields in [many, long] {
        assert_eq!(send(&office.url, "GET", "/state", &fields, b"").await?.status, 431);
    }
    let target = format!("/state?{}", "y".repeat(70_000));
    assert_eq!(send(&office.url, "GET", &target, "", b"").await?.status, 414);
    let kept = format!("x: {}\r\n", "y".repeat(64 << 10));
    assert_eq!(send(&office.url, "GET", "/state", &kept, b"").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn pages_of_elsewhere_are_turned_away() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let id = session(&office.url, "").await?;
    for (origin, host, status) in [
        ("http://evil.example", "evil.example", 403),
        ("http://evil.example", "127.0.0.1", 403),
        ("null", "localhost", 403),
        ("file://", "localhost", 403),
        ("http://localhost.evil.example", "localhost", 403),
        ("http://127.0.0.1:3000", "localhost", 200),
    ] {
        let requests: [(&str, &str, &[u8]); 6] = [
            ("POST", "/mcp", PING),
            ("POST", "/step", br#"{"action":"list_tools"}"#),
            ("POST", "/tools/enable", br#"{"role":"r","tools":"*"}"#),
            ("POST", "/clock/clear", b""),
            ("POST", "/svc/mcp-email/agentenv", br#"{"jsonrpc":"2.0","id":1,"method":"data/reset"}"#),
            ("GET", "/state", b""),
        ];
        for (method, path, body) in requests {
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n{MCP}Mcp-Session-Id: {id}\r\n\
                 Connection: close\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let answer = super::raw(&office.url, &[head.as_bytes(), body].concat()).await?;
            assert_eq!(answer.status, status, "{path} {origin} {host}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
    Ok(())
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait"}}"#;

/// A stateless call's head lines and body.
fn stateless() -> (String, String) {
    let fields =
        format!("{MCP}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: wait\r\n");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "wait", "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    (fields, body.to_string())
}

/// Sends a message without waiting for its answer.
async fn post(url: &str, fields: &str, body: &str) -> Result<TcpStream> {
    let mut stream = connect(url).await?;
    let length = body.len();
    let head = format!("POST /mcp HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}{fields}\r\n{body}").as_bytes()).await?;
    Ok(stream)
}

/// What the trajectory says of the one call, and how it ended.
fn ending(events: &[Value]) -> Result<&str> {
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[0]["event_type"], "tool_call");
    assert_eq!(events[1]["tool_call_event_id"], events[0]["event_id"]);
    events[1]["event_type"].as_str().context("no type")
}

#[tokio::test]
async fn a_session_that_hangs_up_leaves_its_call_to_its_end() -> Result<()> {
    for remote in [false, true] {
        let gated = Gated::open(remote, |builder| builder).await?;
        let id = session(&gated.url, "").await?;
        let call = post(&gated.url, &format!("{MCP}Mcp-Session-Id: {id}\r\n"), CALL).await?;
        gated.gate.entered(1).await?;
        drop(call);
        let mut step = connect(&gated.url).await?;
        let body = r#"{"action":"call_tool","tool_name":"wait"}"#;
        let head = format!("POST /step HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n", body.len());
        step.write_all(format!("{head}{body}").as_bytes()).await?;
        gated.gate.entered(2).await?;
        drop(step);
        gated.gate.let_through(2);
        gated.gate.passed(2).await?;
        let events = gated.events_once(4).await?;
        let ended = events.iter().filter(|event| event["event_type"] == "tool_call_result").count();
        assert_eq!(ended, 2, "{events:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_stateless_caller_that_hangs_up_cancels() -> Result<()> {
    for remote in [false, true] {
        let gated = Gated::open(remote, |builder| builder).await?;
        let (fields, body) = stateless();
        let call = post(&gated.url, &fields, &body).await?;
        gated.gate.entered(1).await?;
        drop(call);
        assert_eq!(ending(&gated.events_once(2).await?)?, "tool_call_failed");
        assert_eq!(*gated.gate.passed.borrow(), 0, "the child heard of it");
    }
    Ok(())
}

#[tokio::test]
async fn only_a_calls_own_session_cancels_it() -> Result<()> {
    for remote in [false, true] {
        let gated = Gated::open(remote, |builder| builder).await?;
        let (mine, other) = (session(&gated.url, "").await?, session(&gated.url, "").await?);
        let fields = |id: &str| format!("{MCP}Mcp-Session-Id: {id}\r\n");
        let mut call = post(&gated.url, &fields(&mine), CALL).await?;
        gated.gate.entered(1).await?;
        let cancel = |id: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
        };
        for (session, id) in [(&other, "7"), (&mine, "8"), (&mine, "\"7\""), (&mine, "null"), (&mine, "{}")] {
            let answer = send(&gated.url, "POST", "/mcp", &fields(session), cancel(id).as_bytes()).await?;
            assert_eq!(answer.status, 202, "{id}");
            assert_eq!(gated.events().await?.len(), 1, "{id}: the call goes on");
        }
        send(&gated.url, "POST", "/mcp", &fields(&mine), cancel("7").as_bytes()).await?;
        let mut answer = String::new();
        call.read_to_string(&mut answer).await?;
        assert!(answer.contains("error"), "{answer}");
        assert_eq!(ending(&gated.events_once(2).await?)?, "tool_call_failed");
        assert_eq!(*gated.gate.passed.borrow(), 0, "the child heard of it");
    }
    Ok(())
}

#[tokio::test]
async fn a_session_that_is_deleted_ends_its_calls() -> Result<()> {
    for remote in [false, true] {
        let gated = Gated::open(remote, |builder| builder).await?;
        let id = session(&gated.url, "").await?;
        let fields = format!("{MCP}Mcp-Session-Id: {id}\r\n");
        let mut call = post(&gated.url, &fields, CALL).await?;
        gated.gate.entered(1).await?;
        assert_eq!(send(&gated.url, "DELETE", "/mcp", &fields, b"").await?.status, 200);
        let mut answer = String::new();
        call.read_to_string(&mut answer).await?;
        assert!(answer.contains("error"), "{answer}");
        assert_eq!(ending(&gated.events_once(2).await?)?, "tool_call_failed");
        for method in ["DELETE", "POST"] {
            assert_eq!(send(&gated.url, method, "/mcp", &fields, PING).await?.status, 404, "{method}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_session_is_of_whoever_showed_the_token() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let stop = CancellationToken::new();
    let tokens = BTreeMap::from([("a".to_owned(), "ta".to_owned()), ("b".to_owned(), "tb".to_owned())]);
    let access = Access::default().with_role_tokens(&tokens);
    let (url, _) = serve(&office.instance, ServeOptions { access, ..ServeOptions::default() }, &stop).await?;
    let bearer = |token: &str| format!("{MCP}Authorization: Bearer {token}\r\n");
    let id = session(&url, "Authorization: Bearer ta\r\n").await?;
    for (fields, status) in
        [(MCP.to_owned(), 401), (bearer("tx"), 401), (bearer("tb"), 404), (bearer("ta"), 200)]
    {
        let fields = format!("{fields}Mcp-Session-Id: {id}\r\n");
        assert_eq!(send(&url, "POST", "/mcp", &fields, PING).await?.status, status, "{fields}");
    }
    for (token, status) in [("tb", 404), ("ta", 200)] {
        let fields = format!("{}Mcp-Session-Id: {id}\r\n", bearer(token));
        assert_eq!(send(&url, "DELETE", "/mcp", &fields, b"").await?.status, status, "{token}");
    }
    let initialize =
        br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    assert_eq!(send(&url, "POST", "/mcp", MCP, initialize).await?.status, 401);
    stop.cancel();
    Ok(())
}
