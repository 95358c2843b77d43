//! The load: callers that each send one request after the other on a connection of their own, for a given time, and what
//! that cost. Every answer is checked: a figure counts right answers only.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use memchr::memmem::Finder;
use tokio::task::JoinSet;

use crate::cores::Reserved;
use crate::http::Connection;
use crate::process::Watched;

/// How long past its time a round may take for the calls that are under way, before it is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most calls a caller makes in a round, whatever the time.
const MOST_CALLS: usize = 1_000_000;

/// Who is asked, with what, and which process that keeps busy.
pub(crate) struct Load {
    pub(crate) name: String,
    address: SocketAddr,
    requests: Vec<Bytes>,
    expect: &'static str,
    watched: Watched,
}

/// What one round of a load showed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) calls: u64,
    pub(crate) per_second: f64,
    /// Processor time that the watched process spent for a call.
    pub(crate) cpu: Duration,
    /// Processor time that this process, the generator, spent for a call.
    pub(crate) own_cpu: Duration,
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
}

impl Load {
    /// One caller for each request; every answer must hold `expect`.
    pub(crate) fn new(
        name: impl Into<String>,
        address: SocketAddr,
        requests: Vec<Bytes>,
        expect: &'static str,
        watched: Watched,
    ) -> Self {
        Self { name: name.into(), address, requests, expect, watched }
    }

    /// Opens the connections, warms them up, and measures for a time.
    pub(crate) async fn round(&self, time: Duration) -> anyhow::Result<Round> {
        let _reserved = Reserved::for_process(self.watched.id())?;
        let round = async {
            let mut callers = Vec::with_capacity(self.requests.len());
            for request in &self.requests {
                let connection = Connection::open(self.address).await?;
                callers.push(Caller { connection, request: request.clone(), expect: self.expect });
            }
            let (callers, _) = run(callers, time / 5, MOST_CALLS).await?;
            let (cpu, own) = (self.watched.cpu()?, Watched::this().cpu()?);
            let started = Instant::now();
            let (_, mut latencies) = run(callers, time, MOST_CALLS).await?;
            let elapsed = started.elapsed();
            let (cpu, own) =
                (self.watched.cpu()?.saturating_sub(cpu), Watched::this().cpu()?.saturating_sub(own));
            let calls = latencies.len();
            let by_call = |total: Duration| total.div_f64(calls.max(1) as f64);
            Ok(Round {
                calls: calls as u64,
                per_second: calls as f64 / elapsed.as_secs_f64(),
                cpu: by_call(cpu),
                own_cpu: by_call(own),
                median: percentile(&mut latencies, 0.5),
                p99: percentile(&mut latencies, 0.99),
            })
        };
        let round = tokio::time::timeout(time + PATIENCE, round).await;
        round.context("the round did not end").flatten().with_context(|| self.name.clone())
    }

    /// Makes a fixed number of calls, shared among the callers.
    pub(crate) async fn calls(&self, count: usize) -> anyhow::Result<()> {
        let mut callers = Vec::with_capacity(self.requests.len());
        for request in &self.requests {
            let connection = Connection::open(self.address).await?;
            callers.push(Caller { connection, request: request.clone(), expect: self.expect });
        }
        let each = count.div_ceil(callers.len().max(1));
        run(callers, PATIENCE, each).await.with_context(|| self.name.clone())?;
        Ok(())
    }
}

struct Caller {
    connection: Connection,
    request: Bytes,
    expect: &'static str,
}

async fn run(callers: Vec<Caller>, time: Duration, most: usize) -> anyhow::Result<(Vec<Caller>, Vec<u32>)> {
    let deadline = Instant::now() + time;
    let mut running = JoinSet::new();
    for caller in callers {
        running.spawn(caller.run(deadline, most));
    }
    let (mut callers, mut latencies) = (Vec::new(), Vec::new());
    while let Some(ended) = running.join_next().await {
        let (caller, own) = ended??;
        callers.push(caller);
        latencies.extend(own);
    }
    Ok((callers, latencies))
}

impl Caller {
    /// Calls until the deadline, at least once; gives the latencies in nanoseconds.
    async fn run(mut self, deadline: Instant, most: usize) -> anyhow::Result<(Self, Vec<u32>)> {
        let finder = Finder::new(self.expect);
        let mut latencies = Vec::new();
        let mut before = Instant::now();
        loop {
            let answer = self.connection.call(&self.request).await?;
            let good = answer.status == 200 && finder.find(answer.raw_body()).is_some();
            ensure!(
                good,
                "answered {}: {}",
                answer.status,
                String::from_utf8_lossy(first(answer.raw_body()))
            );
            let now = Instant::now();
            latencies.push(u32::try_from((now - before).as_nanos()).unwrap_or(u32::MAX));
            before = now;
            if now >= deadline || latencies.len() >= most {
                return Ok((self, latencies));
            }
        }
    }
}

fn first(bytes: &[u8]) -> &[u8] {
    bytes.get(..400).unwrap_or(bytes)
}

fn percentile(nanoseconds: &mut [u32], share: f64) -> Duration {
    if nanoseconds.is_empty() {
        return Duration::ZERO;
    }
    let at = ((nanoseconds.len() - 1) as f64 * share) as usize;
    Duration::from_nanos(u64::from(*nanoseconds.select_nth_unstable(at).1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let mut values = [5, 1, 4, 2, 3];
        assert_eq!(percentile(&mut values, 0.5), Duration::from_nanos(3));
        assert_eq!(percentile(&mut values, 0.99), Duration::from_nanos(4));
        assert_eq!(percentile(&mut [], 0.5), Duration::ZERO);
    }
}
