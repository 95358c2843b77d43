//! The project's benchmarks: `cargo run --profile dist -p agentenv-benches -- [--quick] [group…]`. Every figure is a ratio taken
//! in one run on this machine, or a number held to a limit, with what is behind it beside it. Nothing here fails because
//! something is slow.

mod bench;
mod cores;
mod groups;
mod http;
mod load;
mod mcp;
mod parts;
mod peers;
mod process;
mod report;
mod rounds;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::bench::Bench;
use crate::report::Report;
use crate::rounds::Plan;

const USAGE: &str = "usage: agentenv-benches [--quick] [--rounds N] [--seconds S] [group…]";

const HELP: &str = "
Measures the project's programs, building and installing first what is missing. Without a group all run, in this order:
  server      the email server, called straight, beside a bare handler and the Python SDK
  gateway     calls through the gateway, beside going straight, a bare relay, the Python gateway and mcp-proxy
  triggers    what armed triggers cost a call, and the gateway at rest
  store       what the state store costs a call; reading its changes; resetting the wiki
  company     sixteen servers in one process: how soon they are ready, what they hold

  --quick       one round of a tenth of a second each: whether all of it runs; the figures mean nothing
  --rounds N    how often each load is measured (5)
  --seconds S   how long each time (1)
  --help        this text";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let outcome = match arguments.peek().and_then(|first| first.to_str()) {
        Some(process::LEASH) => process::leash(arguments.skip(1)),
        Some("part") => arguments.nth(1).context(USAGE).and_then(|part| {
            let part = part.to_string_lossy();
            parts::runtime(&part)?.block_on(parts::run(&part))
        }),
        Some("--help" | "-h") => {
            println!("{USAGE}\n{HELP}");
            Ok(())
        }
        _ => measure(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What was asked for.
struct Wanted {
    plan: Plan,
    groups: Vec<String>,
}

fn wanted(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Wanted> {
    let mut plan = Plan { rounds: 5, time: Duration::from_secs(1) };
    let mut groups = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // Enough to see that all of it runs.
            "--quick" => plan = Plan { rounds: 1, time: Duration::from_millis(100) },
            "--rounds" => {
                plan.rounds = arguments.next().and_then(|number| number.parse().ok()).context(USAGE)?
            }
            "--seconds" => {
                let seconds: f64 = arguments.next().and_then(|number| number.parse().ok()).context(USAGE)?;
                plan.time = Duration::try_from_secs_f64(seconds).context(USAGE)?;
            }
            group if groups::NAMES.contains(&group) => groups.push(argument),
            other => bail!("there is no group '{other}'; there are {}\n{USAGE}", groups::NAMES.join(", ")),
        }
    }
    if groups.is_empty() {
        groups = groups::NAMES.map(str::to_owned).to_vec();
    }
    Ok(Wanted { plan, groups })
}

/// The generator runs on one thread, which costs it the least.
fn measure() -> anyhow::Result<()> {
    let wanted = wanted(std::env::args().skip(1))?;
    process::this_program()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            outcome = all(wanted) => outcome,
            // What runs ends with what is dropped here.
            _ = terminate.recv() => bail!("terminated"),
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

async fn all(wanted: Wanted) -> anyhow::Result<()> {
    let mut packages: Vec<&str> =
        wanted.groups.iter().flat_map(|group| groups::packages(group)).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    let bench = Bench::new(wanted.plan, packages)?;
    let (mut misses, mut failed) = (0, Vec::new());
    for group in &wanted.groups {
        eprintln!("{group}");
        let mut report = Report::default();
        let outcome = groups::run(group, &bench, &mut report).await;
        println!("\n{}", report.table(group));
        misses += report.misses();
        if let Err(error) = outcome {
            println!("{group} could not be measured to its end: {error:#}\n");
            failed.push(group.as_str());
        }
    }
    println!("{misses} figures do not hold");
    if !failed.is_empty() {
        bail!("not measured to their ends: {}", failed.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> anyhow::Result<Wanted> {
        wanted(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn arguments() {
        assert_eq!(parse(&[]).unwrap().groups, groups::NAMES);
        let some = parse(&["--rounds", "3", "--seconds", "0.5", "server"]).unwrap();
        assert_eq!((some.plan.rounds, some.plan.time, some.groups.len()), (3, Duration::from_millis(500), 1));
        for bad in [&["nothing"][..], &["--rounds"], &["--rounds", "x"], &["--seconds", "-1"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
