//! The whole company in one process, without a store: how soon it is there, and what it holds (issue 5).

use std::time::Duration;

use crate::bench::Bench;
use crate::process::free_address;
use crate::report::{Report, Target};
use crate::rounds::median;

/// How long it is left alone before its memory is read.
const REST: Duration = Duration::from_millis(200);

pub(super) async fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let (mut starts, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..bench.plan.rounds {
        let address = free_address()?;
        let company = bench.start(bench.ours().await?.company(address), address, "/ready").await?;
        starts.push(company.up_after.as_secs_f64() * 1e3);
        tokio::time::sleep(REST).await;
        resident.push(company.resident()?);
    }
    let fastest = starts.iter().copied().fold(f64::INFINITY, f64::min);
    let slowest = starts.iter().copied().fold(0.0, f64::max);
    report.row(
        "sixteen servers in a process: time to ready",
        median(starts.into_iter()),
        " ms",
        Target::AtMost(30.0),
        format!("{fastest:.1} to {slowest:.1} ms, from the start of the process"),
    );
    report.row("resident memory", median(resident.into_iter()), " MB", Target::AtMost(15.0), "");
    Ok(())
}
