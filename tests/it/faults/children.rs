//! Children that are late, odd or in each other's way, and what lies below `/svc`.

use agentenv_gateway::Instance;
use agentenv_gateway::http::ServeOptions;
use agentenv_protocol::prelude::*;
use agentenv_protocol::server::bind;
use agentenv_tests::echo::EchoEnv;
use agentenv_tests::email::EmailEnv;
use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, connect, send};
use crate::office::{Children, Office, serve, serve_env};

/// Stands before a server and answers some requests itself: those whose first line begins so get these bytes, and then no end.
async fn before(server: String, own: &'static [(&'static str, &'static str)]) -> Result<String> {
    let listener = bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            let server = server.clone();
            connections.spawn(async move {
                let mut first = vec![0; 1 << 16];
                let read = near.read(&mut first).await?;
                let first = &first[..read];
                if let Some((_, answer)) = own.iter().find(|(line, _)| first.starts_with(line.as_bytes())) {
                    near.write_all(answer.as_bytes()).await?;
                    return std::future::pending().await;
                }
                let mut far = connect(&server).await?;
                far.write_all(first).await?;
                tokio::io::copy_bidirectional(&mut near, &mut far).await?;
                anyhow::Ok(())
            });
        }
    });
    Ok(url)
}

const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n";

#[tokio::test]
async fn a_child_that_answers_with_an_endless_stream_is_ready() -> Result<()> {
    let stop = CancellationToken::new();
    let echo = serve_env(EchoEnv, &stop).await?;
    let child = before(echo, &[("GET /ready", NOT_FOUND), ("GET /mcp", STREAM)]).await?;
    let instance = Instance::builder("streams").remote("echo", &child).build().await?;
    assert_eq!(instance.tool_names("default"), ["echo", "explode"]);
    stop.cancel();
    Ok(())
}

#[tokio::test]
async fn a_missing_child_is_named_and_served_once_it_comes() -> Result<()> {
    let stop = CancellationToken::new();
    let reserved = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = reserved.local_addr()?.to_string();
    drop(reserved);
    let builder =
        || Instance::builder("late").remote("echo", &format!("http://{address}")).env(EmailEnv::default());
    let strict = builder().start_timeout(std::time::Duration::ZERO).build().await;
    let fault = strict.err().map(|fault| fault.to_string()).unwrap_or_default();
    assert!(fault.contains("echo: not ready"), "{fault}");
    let instance = builder().start_timeout(std::time::Duration::ZERO).allow_missing().build().await?;
    let (url, _) = serve(&instance, ServeOptions::default(), &stop).await?;
    let ready = send(&url, "GET", "/ready", "", b"").await?;
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("echo"), "{ready:?}");
    let state = send(&url, "GET", "/state", "", b"").await?.json();
    assert!(state["mcp_servers"][0]["error"].is_string(), "{state}");
    let step = |tool: &str| json!({"action": "call_tool", "tool_name": tool}).to_string();
    assert_eq!(send(&url, "POST", "/step", "", step("whoami").as_bytes()).await?.status, 200);
    assert_eq!(send(&url, "POST", "/step", "", step("echo").as_bytes()).await?.status, 503);

    let listener = bind(&address).await?;
    let runtime = agentenv_protocol::environment::EnvRuntime::new(EchoEnv)?;
    let routes = agentenv_protocol::server::router(runtime, Default::default());
    tokio::spawn(agentenv_protocol::server::serve_router(listener, routes, stop.clone(), Default::default()));
    let come = async {
        while send(&url, "GET", "/ready", "", b"").await?.status != 200 {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, come).await??;
    assert_eq!(send(&url, "POST", "/step", "", step("echo").as_bytes()).await?.status, 200);
    stop.cancel();
    Ok(())
}

/// A server with a clock of its own.
#[environment_card(name = "timekeeper")]
#[derive(Default)]
struct TimeEnv;

#[environment]
impl TimeEnv {
    /// What time it is here.
    #[tool(name = "get_time")]
    fn get_time(&self) -> &'static str {
        "tea time"
    }
}

#[tokio::test]
async fn a_childs_own_get_time_is_the_one_and_no_clock_is_armed() -> Result<()> {
    let stop = CancellationToken::new();
    let instance = Instance::builder("tea").env(TimeEnv).build().await?;
    let (url, _) = serve(&instance, ServeOptions::default(), &stop).await?;
    let arm = br#"{"virtual_time":"2026-10-05T09:00:00Z"}"#;
    let answer = send(&url, "PUT", "/clock/set-time", "", arm).await?;
    assert_eq!((answer.status, &answer.json()["ok"]), (409, &json!(false)), "{answer:?}");
    let step = br#"{"action":"call_tool","tool_name":"get_time"}"#;
    assert!(send(&url, "POST", "/step", "", step).await?.body.contains("tea time"));
    stop.cancel();
    Ok(())
}

#[tokio::test]
async fn cards_that_are_none_are_left_out() -> Result<()> {
    let stop = CancellationToken::new();
    const ODD: [&[(&str, &str)]; 5] = [
        &[("GET /.well", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")],
        &[("GET /.well", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")],
        &[("GET /.well", "HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}")],
        &[("GET /.well", "HTTP/1.1 302 Found\r\nLocation: /agentenv\r\nContent-Length: 0\r\n\r\n")],
        &[("GET /.well", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{")],
    ];
    for odd in ODD {
        let child = before(serve_env(EchoEnv, &stop).await?, odd).await?;
        let builder = Instance::builder("odd").remote("echo", &child).env(EmailEnv::default());
        let (url, _) = serve(&builder.build().await?, ServeOptions::default(), &stop).await?;
        let card = send(&url, "GET", "/.well-known/agent-env.json", "", b"").await?.json();
        let children = card["children_environments"].as_array().cloned().unwrap_or_default();
        let names: Vec<_> = children.iter().map(|child| &child["name"]).collect();
        assert_eq!(names, ["email"], "{odd:?}");
    }
    stop.cancel();
    Ok(())
}

#[tokio::test]
async fn what_lies_below_svc_is_a_service_or_nothing() -> Result<()> {
    let office = Office::open(Children::Remote).await?;
    for (path, status) in [
        ("/svc/nope/x", 404),
        ("/svc/nope", 404),
        ("/svc/mcp-email%2Fx/y", 400),
        ("/svc/../state", 404),
        ("/svc/mcp-email/../../state", 400),
        ("/svc/", 404),
        ("/svc/mcp-email", 404),
        ("/svc/mcp-email/", 404),
        ("/svc/mcp-email/ready", 200),
        ("/website/nope/x", 404),
    ] {
        let answer = send(&office.url, "GET", path, "", b"").await?;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert_eq!(answer.header("location"), None, "{path}");
    }
    let unknown = send(&office.url, "GET", "/svc/nope/x", "", b"").await?;
    assert_eq!(unknown.json()["error"], "Unknown service: nope");
    Ok(())
}
