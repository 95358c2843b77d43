//! What the gateway holds in memory after long use, and while it gives out a long trajectory (issue 3).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bench::{Bench, CALLERS, Served};
use crate::http::{Connection, drain};
use crate::report::{Report, Target};

const CALLS: usize = 100_000;
const SESSIONS: usize = 10_000;

/// How long a trajectory is given out.
const TRAJECTORY_BYTES: usize = 200_000_000;

/// What counts as flat, in MB.
const FLAT: f64 = 4.0;

pub(super) async fn run(
    bench: &Bench,
    report: &mut Report,
    children: &[(&str, SocketAddr)],
) -> anyhow::Result<()> {
    use_over_time(bench, report, children).await?;
    stream(bench, report, children).await
}

async fn use_over_time(
    bench: &Bench,
    report: &mut Report,
    children: &[(&str, SocketAddr)],
) -> anyhow::Result<()> {
    let gateway = bench.gateway(children).await?;
    let before = gateway.resident()?;
    let calls = gateway.searches("our gateway", CALLERS).await?;
    calls.calls(CALLS / 100).await?;
    let warm = gateway.resident()?;
    calls.calls(CALLS).await?;
    let after_calls = gateway.resident()?;
    let mut connection = Connection::open(gateway.address).await?;
    for _ in 0..SESSIONS {
        gateway.endpoint().session(&mut connection).await?;
    }
    let after = gateway.resident()?;
    report.row(
        format!("memory after {CALLS} calls and {SESSIONS} sessions, over before"),
        after - before,
        " MB",
        Target::AtMost(4.0),
        format!("{before:.1} MB at rest, {warm:.1} after 1,000 calls, {after_calls:.1} after all, {after:.1} after the sessions"),
    );
    Ok(())
}

async fn stream(bench: &Bench, report: &mut Report, children: &[(&str, SocketAddr)]) -> anyhow::Result<()> {
    let file = bench.folder().join("long.jsonl");
    write_trajectory(&file)?;
    let program = bench.ours().await?.gateway();
    let started = Instant::now();
    let gateway: Served = bench.gateway_on(program, children, &file).await?;
    let opened = started.elapsed();
    let before = gateway.resident()?;
    let mut peak = before;
    let started = Instant::now();
    let mut streaming = std::pin::pin!(drain(gateway.address, "/trajectory"));
    let bytes = loop {
        tokio::select! {
            bytes = &mut streaming => break bytes?,
            () = tokio::time::sleep(Duration::from_millis(2)) => peak = peak.max(gateway.resident()?),
        }
    };
    let took = started.elapsed();
    anyhow::ensure!(bytes >= TRAJECTORY_BYTES as u64, "only {bytes} bytes of the trajectory came");
    report.row(
        "memory while 200 MB of trajectory stream out, over before",
        peak - before,
        " MB",
        Target::AtMost(FLAT),
        format!(
            "{before:.1} MB before, {peak:.1} at most; {:.0} MB/s; up in {:.0} ms on that file",
            bytes as f64 / 1e6 / took.as_secs_f64(),
            opened.as_secs_f64() * 1e3
        ),
    );
    std::fs::remove_file(file)?;
    Ok(())
}

/// A trajectory such as a long run leaves behind.
fn write_trajectory(path: &Path) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let body = "All work and no play makes a long trajectory. ".repeat(20);
    let (mut written, mut id) = (0, 1);
    while written < TRAJECTORY_BYTES {
        let call = format!(
            r#"{{"event_type":"tool_call","tool_call":{{"function_name":"send","arguments":{{"body":"{body}"}}}},"role":"default","event_id":"event_{id}","timestamp_utc":"2026-10-05T09:00:00.000000+00:00"}}"#
        );
        let result = format!(
            r#"{{"event_type":"tool_call_result","tool_call_event_id":"event_{id}","tool_call_result":{{"content":[{{"type":"text","text":"{{\"sent\":{id}}}"}}],"isError":false}},"changelog_id_before":null,"changelog_id":null,"event_id":"event_{}","timestamp_utc":"2026-10-05T09:00:00.000001+00:00"}}"#,
            id + 1
        );
        writeln!(file, "{call}\n{result}")?;
        written += call.len() + result.len() + 2;
        id += 2;
    }
    file.flush()?;
    Ok(())
}
