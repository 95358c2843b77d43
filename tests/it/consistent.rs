//! Consistent mode: several thousand concurrent reads and writes are a serial history, and the trajectory has its order.

use std::collections::BTreeMap;

use agentenv_gateway::Instance;
use agentenv_gateway::http::ServeOptions;
use agentenv_gateway::instance::Mode;
use agentenv_protocol::environment::EnvRuntime;
use agentenv_tests::ledger::LedgerEnv;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::office::{Session, client, serve, serve_runtime};

const CALLERS: usize = 16;
const CALLS: usize = 200;

/// Runs reads and writes on two children, in this process and behind a URL, over MCP and `/step`; gives the trajectory.
async fn history(mode: Mode) -> Result<Vec<Value>> {
    let stop = CancellationToken::new();
    let near = EnvRuntime::named(LedgerEnv::default(), "near")?;
    let far = serve_runtime(EnvRuntime::named(LedgerEnv::default(), "far")?, &stop).await?;
    let instance = Instance::builder("ledgers").runtime(near).remote("far", &far).mode(mode).build().await?;
    let (url, _) = serve(&instance, ServeOptions::default(), &stop).await?;
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (url, http) = (url.clone(), client());
            tokio::spawn(async move {
                let session = Session::open(&url, "/mcp", None).await?;
                for call in 0..CALLS {
                    let tool = ["near_add", "far_add", "near_read", "far_read"][(caller + call) % 4];
                    if caller % 2 == 0 {
                        session.call(tool, json!({})).await?;
                    } else {
                        let body = json!({"action": "call_tool", "tool_name": tool}).to_string();
                        http.post(format!("{url}/step")).body(body).send().await?.error_for_status()?;
                    }
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    let text = client().get(format!("{url}/trajectory")).send().await?.text().await?;
    stop.cancel();
    text.lines().map(|line| serde_json::from_str(line).context("a line that is not JSON")).collect()
}

/// Each result in the trajectory's order: the tool's name and what it said.
fn results(events: &[Value]) -> Result<Vec<(String, Value)>> {
    let mut tools = BTreeMap::new();
    let mut results = Vec::new();
    for event in events {
        match event["event_type"].as_str() {
            Some("tool_call") => {
                tools.insert(
                    event["event_id"].to_string(),
                    event["tool_call"]["function_name"].as_str().context("no name")?,
                );
            }
            Some("tool_call_result") => {
                let tool =
                    tools.get(&event["tool_call_event_id"].to_string()).context("a result without a call")?;
                results.push(((*tool).to_owned(), event["tool_call_result"]["structuredContent"].clone()));
            }
            other => anyhow::bail!("{other:?}"),
        }
    }
    Ok(results)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistent_is_serial_and_performance_is_not() -> Result<()> {
    let serial = results(&history(Mode::Consistent).await?)?;
    assert_eq!(serial.len(), CALLERS * CALLS);
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for (tool, said) in &serial {
        let (child, what) = tool.split_once('_').context("an odd name")?;
        let total = totals.entry(child).or_default();
        if what == "add" {
            *total += 1;
            assert_eq!(said["running"], 1, "two calls ran at once");
        }
        assert_eq!(said["total"], *total, "{tool}: not what the calls before left");
    }
    assert_eq!(totals, BTreeMap::from([("far", 800), ("near", 800)]));

    let beside = results(&history(Mode::Performance).await?)?;
    assert!(
        beside.iter().any(|(_, said)| said["running"].as_u64() > Some(1)),
        "no two calls ever ran at once"
    );
    Ok(())
}
