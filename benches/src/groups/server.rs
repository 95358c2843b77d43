//! A server of ours, called straight (issue 2's targets).

use super::rates;
use crate::bench::{Bench, CALLERS};
use crate::mcp::FOUND;
use crate::parts::BARE;
use crate::process::{Program, free_address};
use crate::report::{Report, Target};
use crate::rounds::compare;

pub(super) async fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let ours = bench.email().await?;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let rest = ours.resident()?;
    report.row("resident memory at rest", rest, " MB", Target::AtMost(10.0), "");
    report.row(
        "time to ready",
        ours.up_after.as_secs_f64() * 1e3,
        " ms",
        Target::None,
        "from the start of the process",
    );

    let address = free_address()?;
    let bare = bench.start(Program::part(BARE)?.listening(address), address, "/ready").await?;
    let calls = ours.searches("our server", CALLERS).await?;
    // The bare handler keeps no sessions: it is given the very bytes that our server is given.
    let same = ours.endpoint().calls(CALLERS, crate::mcp::SEARCH, &crate::mcp::search_arguments()).await?;
    let bare_calls = bare.load("a bare axum handler", same, FOUND);
    let [figures, bare_figures] = compare(bench.plan, [&calls, &bare_calls]).await?;
    rates(
        report,
        "calls/s over a bare axum handler",
        Target::AtLeast(0.8),
        ("ours", &figures),
        ("bare", &bare_figures),
    );
    report.row(
        "processor time over the bare handler's",
        figures.cpu() / bare_figures.cpu(),
        "×",
        Target::None,
        format!(
            "{:.1} µs and {:.1} µs; the load generator {:.1} µs",
            figures.cpu(),
            bare_figures.cpu(),
            figures.own_cpu()
        ),
    );
    drop(bare);

    let python = bench.python_email().await?;
    let python_calls = python.searches("the Python server", CALLERS).await?;
    let [figures, theirs] = compare(bench.plan, [&calls, &python_calls]).await?;
    rates(
        report,
        "calls/s over the Python SDK",
        Target::AtLeast(50.0),
        ("ours", &figures),
        ("Python", &theirs),
    );
    report.row(
        "resident memory after the load",
        ours.resident()?,
        " MB",
        Target::None,
        format!("Python {:.0} MB", python.resident()?),
    );
    Ok(())
}
