//! Secrets and places that nobody should read: planted everywhere, looked for everywhere.

use anyhow::Result;
use serde_json::json;

use super::{MCP, process::Gateway, send, session};
use crate::office::serve_env;
use agentenv_tests::echo::EchoEnv;
use agentenv_tests::email::EmailEnv;
use tokio_util::sync::CancellationToken;

/// Whatever holds this is a secret.
const CANARY: &str = "c4n4ry";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_logged_or_told() -> Result<()> {
    let stop = CancellationToken::new();
    let email = serve_env(EmailEnv::default(), &stop).await?;
    let echo = serve_env(EchoEnv, &stop).await?;
    let servers = format!("email={email}/mcp,echo={echo}/mcp");
    let services = format!("mcp-email={email},dead=http://127.0.0.1:1/{CANARY}-path");
    let tokens = format!(r#"{{"bob":"{CANARY}-bob"}}"#);
    let control = format!("{CANARY}-control");
    let store = format!("postgres://user:{CANARY}-db@127.0.0.1:1/db?connect_timeout=1");
    let mut gateway = Gateway::start(&[
        ("INTERNAL_MCP_SERVERS", &servers),
        ("REST_PROXY_URLS", &services),
        ("GATEWAY_ROLE_TOKENS", &tokens),
        ("GATEWAY_CONTROL_TOKEN", &control),
        ("SERVICE_DB_URL", &store),
        ("RUST_LOG", "debug"),
    ])
    .await?;
    let url = gateway.url.clone();
    let harness = format!("Authorization: Bearer {CANARY}-control\r\nCookie: c={CANARY}-cookie\r\n");
    let bob = format!("Authorization: Bearer {CANARY}-bob\r\nCookie: c={CANARY}-cookie\r\n");
    let wrong = format!("Authorization: Bearer {CANARY}-wrong\r\nProxy-Authorization: {CANARY}\r\n");
    let mut told = Vec::new();
    for fields in [&harness, &bob, &wrong] {
        for (method, path) in [
            ("GET", "/state"),
            ("GET", "/ready"),
            ("GET", "/metrics"),
            ("GET", "/changes"),
            ("GET", "/triggers/state"),
            ("GET", "/.well-known/agent-env.json"),
            ("POST", "/tools/disable"),
            ("PUT", "/clock/set-time"),
            ("POST", "/triggers/register"),
            ("GET", "/svc/dead/x"),
            ("GET", "/svc/unknown/x"),
            ("POST", "/svc/mcp-email/mcp"),
            ("GET", "/website/none/x"),
        ] {
            told.push(send(&url, method, path, fields, b"{\"role\":5}").await?.body);
        }
    }
    let id = session(&url, &bob).await?;
    let fields = format!("{MCP}{bob}Mcp-Session-Id: {id}\r\n");
    for (tool, arguments) in [
        ("email_search", json!({"query": 5, "password": format!("{CANARY}-argument")})),
        ("fail", json!({"how": "coded"})),
        ("fail", json!({"how": "x"})),
        ("explode", json!({})),
        ("nope", json!({"password": format!("{CANARY}-argument")})),
    ] {
        let params = json!({"name": tool, "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        told.push(send(&url, "POST", "/mcp", &fields, call.as_bytes()).await?.body);
        let step = json!({"action": "call_tool", "tool_name": tool, "arguments": arguments}).to_string();
        told.push(send(&url, "POST", "/step", &bob, step.as_bytes()).await?.body);
    }
    let executor = json!({"a2a_url": format!("http://user:{CANARY}@127.0.0.1:1"), "role": "x"});
    let register = json!({"triggers": [], "executor": executor}).to_string();
    told.push(send(&url, "POST", "/triggers/register", &harness, register.as_bytes()).await?.body);
    let log = gateway.end().await?;
    assert!(log.contains("serving"), "the log was not read: {log}");
    let logged: Vec<_> = log.lines().filter(|line| line.contains(CANARY)).collect();
    assert!(logged.is_empty(), "{logged:#?}");
    for body in &told {
        assert!(!body.contains(CANARY), "{body}");
        for place in ["/secret/path", "src/", ".rs:", "127.0.0.1:1/", "agentenv_"] {
            let known = body.contains("\"bob\"") && place == "agentenv_";
            assert!(known || !body.contains(place) || body.contains("# HELP"), "'{place}' is told: {body}");
        }
    }
    assert!(told.iter().any(|body| body.contains("unauthorized")));
    stop.cancel();
    Ok(())
}
