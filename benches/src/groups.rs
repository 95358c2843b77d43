//! The groups of figures, each with the targets that the project set itself.

mod company;
mod gateway;
mod memory;
mod server;
mod store;
mod triggers;

use crate::bench::Bench;
use crate::report::{Report, Target};
use crate::rounds::Figures;

/// The groups, in the order in which they run.
pub(crate) const NAMES: [&str; 5] = ["server", "gateway", "triggers", "store", "company"];

/// The packages whose programs a group measures. An example is always among them: it asks for the features that all of the
/// workspace is built with, without which the gateway would be compiled once more (see `tests/workspace-hack`).
pub(crate) fn packages(name: &str) -> &'static [&'static str] {
    match name {
        "server" => &["email"],
        "store" => &["agentenv-gateway", "company", "email"],
        "company" => &["company"],
        _ => &["agentenv-gateway", "email"],
    }
}

/// Measures a group. What was measured before a failure is in the report.
pub(crate) async fn run(name: &str, bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    match name {
        "server" => server::run(bench, report).await,
        "gateway" => gateway::run(bench, report).await,
        "triggers" => triggers::run(bench, report).await,
        "store" => store::run(bench, report).await,
        "company" => company::run(bench, report).await,
        _ => Err(anyhow::anyhow!("there is no group '{name}'; there are {}", NAMES.join(", "))),
    }
}

/// A row: the calls a second of one load over those of another.
fn rates(
    report: &mut Report,
    what: impl Into<String>,
    target: Target,
    ours: (&str, &Figures),
    theirs: (&str, &Figures),
) {
    report.row(what, ours.1.rate_over(theirs.1), "×", target, behind(ours, theirs));
}

/// The absolute numbers behind a ratio of two loads.
fn behind(ours: (&str, &Figures), theirs: (&str, &Figures)) -> String {
    let one = |(name, figures): (&str, &Figures)| {
        format!(
            "{name} {:.0}/s, median {:.0} µs, p99 {:.0} µs, cpu {:.1} µs",
            figures.rate(),
            figures.median(),
            figures.p99(),
            figures.cpu()
        )
    };
    format!("{}; {}", one(ours), one(theirs))
}
