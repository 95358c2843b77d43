//! What a call's record and its role check cost by themselves. They cannot be turned off in a gateway, so their share of a
//! call is told from here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentenv_gateway::roles::Roles;
use agentenv_gateway::time::{Time, wall_text};
use agentenv_gateway::trajectory::{Event, Kind, Options, Stamp, Trajectory};
use agentenv_protocol::access::{Access, ToolSet};
use agentenv_protocol::json::ObjectWriter;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::bench::CALLERS;
use crate::mcp::{SEARCH, search_arguments};
use crate::process::Watched;
use crate::rounds::micros;

const TIME: Duration = Duration::from_secs(2);
const CHECKS: u32 = 1_000_000;
const ROLES: usize = 20;

/// What was found, in microseconds of processor time.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stages {
    /// The two events of a call, written and waited for, by several callers at a time.
    pub(crate) record: f64,
    /// One role check among the rules of twenty roles.
    pub(crate) check: f64,
}

pub(super) async fn run() -> anyhow::Result<Stages> {
    Ok(Stages { record: record().await?, check: check()? })
}

async fn record() -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let options = Options { path: Some(folder.path().join("trajectory.jsonl")), ..Options::default() };
    let time = Time::system();
    let stamp = move || Stamp { timestamp_utc: wall_text(time.wall()), virtual_time: None };
    let trajectory = Trajectory::open(options, Arc::new(stamp))?;
    let arguments = search_arguments().to_string();
    let before = Watched::this().cpu()?;
    let deadline = Instant::now() + TIME;
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (trajectory, arguments) = (trajectory.clone(), arguments.clone());
        callers.spawn(async move {
            let mut calls = 0_u32;
            while Instant::now() < deadline {
                let of = format!(r#"{{"function_name":"{SEARCH}","arguments":{arguments}}}"#);
                let members = ObjectWriter::with_capacity(160).raw("tool_call", &of).field("role", "default");
                let event = trajectory.append(Event::new(Kind::ToolCall, members)).await?;
                let id = event.to_string();
                let members = ObjectWriter::with_capacity(600)
                    .field("tool_call_event_id", &id)
                    .raw("tool_call_result", RESULT);
                let members = members.raw("changelog_id_before", "null").raw("changelog_id", "null");
                trajectory.close_call(event, Event::new(Kind::ToolCallResult, members)).await;
                calls += 1;
            }
            anyhow::Ok(calls)
        });
    }
    let mut calls = 0;
    while let Some(ended) = callers.join_next().await {
        calls += ended??;
    }
    let spent = Watched::this().cpu()?.saturating_sub(before);
    trajectory.close().await;
    Ok(micros(spent) / f64::from(calls))
}

/// What our email server answers to a search.
const RESULT: &str = concat!(
    r#"{"content":[{"type":"text","text":"{\"emails\":[{\"from\":\"dana@example.com\",\"to\":\"\",\"subject\":\"Q3 numbers\","#,
    r#"\"body\":\"Can you send Sam the numbers today?\"}]}"}],"structuredContent":{"emails":[{"from":"dana@example.com","#,
    r#""to":"","subject":"Q3 numbers","body":"Can you send Sam the numbers today?"}]},"isError":false}"#
);

fn check() -> anyhow::Result<f64> {
    let roles = Roles::default();
    for role in 0..ROLES {
        let tools = (0..10).map(|tool| format!("tool_{tool}")).collect();
        roles.apply(Access::Disable, &format!("role_{role}"), &ToolSet::Named(tools))?;
    }
    let before = Instant::now();
    let mut allowed = 0_u32;
    for _ in 0..CHECKS {
        allowed +=
            u32::from(roles.allows(std::hint::black_box("role_7"), std::hint::black_box(SEARCH), false));
    }
    anyhow::ensure!(allowed == CHECKS, "the rules say no");
    Ok(micros(before.elapsed()) / f64::from(CHECKS))
}
