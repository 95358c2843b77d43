//! An instance with one environment in this process, called one call after the other, and by several callers.

use std::time::{Duration, Instant};

use agentenv_gateway::Instance;
use agentenv_gateway::call::ToolCall;
use anyhow::ensure;
use email::{Email, EmailEnv, Mailbox};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::{FOUND, SEARCH, search_arguments};
use crate::process::Watched;
use crate::rounds::{median, micros};

const WARM: usize = 5_000;
const CALLS: usize = 50_000;

/// What was found, in microseconds.
#[derive(Serialize, Deserialize)]
pub(crate) struct InProcess {
    pub(crate) median: f64,
    pub(crate) p99: f64,
    /// Processor time of all threads for a call.
    pub(crate) cpu: f64,
}

pub(super) async fn run() -> anyhow::Result<InProcess> {
    let mail = |subject: &str, body: &str| Email {
        from: "dana@example.com".to_owned(),
        to: String::new(),
        subject: subject.to_owned(),
        body: body.to_owned(),
    };
    let inbox = vec![
        mail("Q3 numbers", "Can you send Sam the numbers today?"),
        mail("Offsite", "Do the 14th and 15th work?"),
        mail("Lunch", "The usual place at noon."),
    ];
    let office =
        Instance::builder("office").env(EmailEnv::new(Mailbox { inbox, sent: Vec::new() })).build().await?;
    // In a task, as a program's own calls are.
    tokio::spawn(async move {
        calls(&office, WARM).await?;
        let before = Watched::this().cpu()?;
        let mut latencies = calls(&office, CALLS).await?;
        let cpu = micros(Watched::this().cpu()?.saturating_sub(before)) / CALLS as f64;
        latencies.sort_unstable();
        let p99 = latencies.get(CALLS * 99 / 100).copied().unwrap_or_default();
        Ok(InProcess { median: median(latencies.into_iter().map(micros)), p99: micros(p99), cpu })
    })
    .await?
}

async fn calls(office: &Instance, count: usize) -> anyhow::Result<Vec<Duration>> {
    let arguments = RawValue::from_string(search_arguments().to_string())?;
    let mut latencies = Vec::with_capacity(count);
    for _ in 0..count {
        let call = ToolCall::new(SEARCH, arguments.clone());
        let before = Instant::now();
        let answered = office.call(call).await?;
        latencies.push(before.elapsed());
        ensure!(answered.result.as_str().contains(FOUND), "answered {}", answered.result.as_str());
    }
    Ok(latencies)
}
