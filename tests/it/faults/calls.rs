//! Calls at once: whose turn it is when callers leave, tools hang, and triggers act.

use std::sync::Arc;

use agentenv_gateway::Instance;
use agentenv_gateway::call::{CallError, ToolCall};
use agentenv_gateway::instance::Mode;
use agentenv_protocol::access::{Access, ToolSet};
use anyhow::{Context, Result};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use super::{GateEnv, Gated, MCP, connect, session};
use crate::office::{Children, Office, client};

fn serial(builder: agentenv_gateway::builder::InstanceBuilder) -> agentenv_gateway::builder::InstanceBuilder {
    builder.mode(Mode::Consistent)
}

fn kinds(events: &[Value]) -> Vec<(&str, &str)> {
    events
        .iter()
        .map(|event| {
            let tool = event["tool_call"]["function_name"].as_str().unwrap_or_default();
            (event["event_type"].as_str().unwrap_or_default(), tool)
        })
        .collect()
}

#[tokio::test]
async fn a_caller_that_hangs_up_does_not_give_its_turn_back_early() -> Result<()> {
    for remote in [false, true] {
        let gated = Gated::open(remote, serial).await?;
        let id = session(&gated.url, "").await?;
        let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait"}}"#;
        let mut call = connect(&gated.url).await?;
        let head = format!("POST /mcp HTTP/1.1\r\nHost: g\r\n{MCP}Mcp-Session-Id: {id}\r\n");
        call.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
        gated.gate.entered(1).await?;
        drop(call);
        let next = {
            let request = client().post(format!("{}/step", gated.url));
            let request = request.body(r#"{"action":"call_tool","tool_name":"quick"}"#);
            tokio::spawn(async move { anyhow::Ok(request.send().await?.status().as_u16()) })
        };
        let events = gated.events_once(2).await?;
        assert_eq!(kinds(&events), [("tool_call", "wait"), ("tool_call", "quick")]);
        assert!(!next.is_finished(), "it waits for the child, not for the caller");
        gated.gate.let_through(1);
        assert_eq!(next.await??, 200);
        let events = gated.events_once(4).await?;
        assert_eq!(events[2]["tool_call_event_id"], events[0]["event_id"], "in the order of their turns");
        assert_eq!(events[3]["tool_call_event_id"], events[1]["event_id"]);
    }
    Ok(())
}

#[tokio::test]
async fn turns_are_first_come_first_served() -> Result<()> {
    let gated = Gated::open(false, serial).await?;
    let mut calls = Vec::new();
    for call in 1..=20 {
        calls.push(gated.begin());
        gated.events_once(call).await?;
    }
    assert_eq!(*gated.gate.entered.borrow(), 1, "one at a time");
    gated.gate.let_through(20);
    for call in calls {
        assert_eq!(call.await??, 200);
    }
    let events = gated.events_once(40).await?;
    for call in 0..20 {
        assert_eq!(events[20 + call]["tool_call_event_id"], events[call]["event_id"]);
    }
    Ok(())
}

fn call(tool: &str) -> Result<ToolCall> {
    Ok(ToolCall::new(tool, RawValue::from_string("{}".to_owned())?))
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_gives_its_turn_back_at_its_deadline() -> Result<()> {
    let instance = serial(Instance::builder("hung").env(GateEnv::default())).build().await?;
    let hung = tokio::spawn({
        let (instance, call) = (instance.clone(), call("wait")?);
        async move { instance.call(call).await }
    });
    while instance.trajectory().last().is_none() {
        tokio::task::yield_now().await;
    }
    let begun = tokio::time::Instant::now();
    instance.call(call("quick")?).await?;
    assert_eq!(begun.elapsed().as_secs(), 600);
    assert!(matches!(hung.await?, Err(CallError::TimedOut { .. })));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_that_would_wait_no_longer_leaves_the_queue() -> Result<()> {
    let env = GateEnv::default();
    let gate = Arc::clone(&env.gate);
    let instance = serial(Instance::builder("queue").env(env)).build().await?;
    let spawn = |call: ToolCall| {
        let instance = instance.clone();
        tokio::spawn(async move { instance.call(call).await })
    };
    let first = spawn(call("wait")?);
    gate.entered(1).await?;
    let cancel = CancellationToken::new();
    let second = spawn(ToolCall { cancel: cancel.clone(), ..call("wait")? });
    while instance.trajectory().last().is_none_or(|last| last.to_string() != "event_2") {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    assert_eq!(second.await?.err(), Some(CallError::Cancelled));
    gate.let_through(1);
    first.await??;
    instance.call(call("quick")?).await?;
    assert_eq!(*gate.entered.borrow(), 1, "the child never heard of it");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_ends_waits_for_no_tool() -> Result<()> {
    let env = GateEnv::default();
    let gate = Arc::clone(&env.gate);
    let instance = serial(Instance::builder("ends").env(env)).build().await?;
    let spawn = |call: ToolCall| {
        let instance = instance.clone();
        tokio::spawn(async move { instance.call(call).await })
    };
    let (inside, waiting) = (spawn(call("wait")?), spawn(call("quick")?));
    gate.entered(1).await?;
    let begun = tokio::time::Instant::now();
    instance.shut_down().await;
    assert!(begun.elapsed().as_secs() < 10);
    assert!(matches!(inside.await?, Err(CallError::Failed { .. })));
    assert_eq!(waiting.await?.err(), Some(CallError::Cancelled));
    let last = instance.trajectory().last().context("nothing")?;
    assert_eq!(last.to_string(), "event_4", "both are closed");
    Ok(())
}

#[tokio::test]
async fn a_triggers_action_takes_its_turn_and_a_barrier_holds_none() -> Result<()> {
    let office = Office::open_with(Children::InProcess, serial).await?;
    let trigger = json!({
        "id": "t", "barrier": {"at": "provoking_call"},
        "when": {"type": "action", "tool": "contacts_add", "where": {"name": {"regex": "."}}, "repeat": true},
        "actions": [{"type": "tool", "tool": "deliver", "args": {"sender": "${args.name}", "subject": "s", "body": "b"}}],
    });
    let (status, said) = office.post("/triggers/register", json!({"triggers": [trigger]})).await?;
    assert_eq!(status, 200, "{said}");
    for name in ["a", "b"] {
        let arguments = json!({"name": name, "email": "e"});
        assert_eq!(office.step(None, "contacts_add", arguments).await?.0, 200);
    }
    let events = office.events().await?;
    let kinds: Vec<_> = events.iter().filter_map(|event| event["event_type"].as_str()).collect();
    let one = ["tool_call", "tool_call_result", "internal_tool_call", "trigger_fired"];
    assert_eq!(kinds.len(), 8, "{kinds:?}");
    for half in kinds.chunks(4) {
        let (mut half, mut one) = (half.to_vec(), one);
        half.sort_unstable();
        one.sort_unstable();
        assert_eq!(half, one, "all of a call's consequences come before its answer");
    }
    assert!(!kinds.contains(&"trigger_barrier_timeout"));
    Ok(())
}

#[tokio::test]
async fn a_rule_binds_from_the_next_call_on() -> Result<()> {
    let gated = Gated::open(true, |builder| builder).await?;
    let admitted = gated.begin();
    gated.gate.entered(1).await?;
    gated.instance.set_access(Access::Disable, "*", &ToolSet::All)?;
    assert_eq!(gated.begin().await??, 403, "none is let in once the rule is written");
    gated.gate.let_through(1);
    assert_eq!(admitted.await??, 200, "one that was let in ends as it would have");
    assert_eq!(kinds(&gated.events().await?), [("tool_call", "wait"), ("tool_call_result", "")]);
    Ok(())
}

#[tokio::test]
async fn a_child_that_dies_takes_only_its_own_calls_along() -> Result<()> {
    let (doomed, stop) = (GateEnv::default(), CancellationToken::new());
    let gate = Arc::clone(&doomed.gate);
    let url = doomed_server(doomed, &stop).await?;
    let instance =
        Instance::builder("two").remote("gate", &url.0).env(agentenv_tests::email::EmailEnv::default());
    let instance = instance.build().await?;
    let call_of = |tool: &str| -> Result<_> {
        let (instance, call) = (instance.clone(), call(tool)?);
        Ok(tokio::spawn(async move { instance.call(call).await }))
    };
    let dying = call_of("wait")?;
    gate.entered(1).await?;
    url.1.abort();
    let _ = url.1.await;
    let error = dying.await?.err().context("it was answered")?;
    assert!(matches!(error, CallError::Failed { .. }), "{error:?}");
    assert!(instance.call(call("whoami")?).await.is_ok(), "the other child does not notice");
    let error = instance.call(call("quick")?).await.err().context("it was answered")?;
    assert!(!error.to_string().contains("127.0.0.1"), "an agent learns no address: {error}");
    Ok(())
}

/// A server that dies, connections and all, when its task does.
async fn doomed_server(
    env: GateEnv,
    stop: &CancellationToken,
) -> Result<(String, tokio::task::JoinHandle<()>)> {
    let inner = crate::office::serve_env(env, stop).await?;
    let listener = agentenv_protocol::server::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            let Ok(mut far) = connect(&inner).await else { return };
            connections.spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    Ok((url, task))
}
