//! Load by itself, for looking at a server that is running already: `BENCH_TARGET` says where (`127.0.0.1:18765`),
//! `BENCH_DOOR` by which door (`mcp` or `step`), `BENCH_CALLERS` and `BENCH_SECONDS` how much. The server has our email tool.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::variable;
use crate::load::Load;
use crate::mcp::{Endpoint, FOUND, SEARCH, search_arguments, seed, steps};
use crate::process::Watched;
use crate::rounds::micros;

/// What the callers saw, in microseconds.
#[derive(Serialize)]
pub(super) struct Driven {
    per_second: f64,
    median: f64,
    p99: f64,
}

pub(super) async fn run() -> anyhow::Result<Driven> {
    let target: SocketAddr = variable("BENCH_TARGET")?.parse()?;
    let callers: usize = variable("BENCH_CALLERS")?.parse()?;
    let seconds: f64 = variable("BENCH_SECONDS")?.parse()?;
    seed(target).await?;
    let requests = match variable("BENCH_DOOR")?.as_str() {
        "step" => steps(callers, SEARCH, &search_arguments()),
        _ => Endpoint::new(target, "/mcp").calls(callers, SEARCH, &search_arguments()).await?,
    };
    let load = Load::new("what is driven", target, requests, FOUND, Watched::this());
    let round = load.round(Duration::try_from_secs_f64(seconds)?).await?;
    Ok(Driven { per_second: round.per_second, median: micros(round.median), p99: micros(round.p99) })
}
