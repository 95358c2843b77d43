//! What recording costs: microseconds an append, of the clock and of the processor, at 1, 8 and 32 appenders.
//!
//! `cargo bench -p agentenv-gateway --bench trajectory`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use agentenv_gateway::trajectory::{Event, Fsync, Kind, Options, Stamp, Trajectory};
use agentenv_protocol::json::ObjectWriter;

const APPENDS: usize = 200_000;

fn stamp() -> Stamp {
    let now = jiff::Timestamp::now();
    Stamp { timestamp_utc: now.strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00").to_string(), virtual_time: None }
}

fn event() -> Event {
    let call = r#"{"function_name":"contacts_lookup","arguments":{"name":"Priya Shah"}}"#;
    Event::new(
        Kind::ToolCall,
        ObjectWriter::with_capacity(128).raw("tool_call", call).field("role", "assistant"),
    )
}

/// Processor time of this process, in microseconds (in steps of 10 ms), where the system tells.
fn processor() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: f64 = fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
    Some(ticks * 10_000.0)
}

async fn run(options: Options, appenders: usize, appends: usize) -> (f64, Option<f64>) {
    let trajectory = Trajectory::open(options, Arc::new(stamp)).expect("the trajectory opens");
    let (start, before) = (Instant::now(), processor());
    let tasks: Vec<_> = (0..appenders)
        .map(|_| {
            let trajectory = trajectory.clone();
            tokio::spawn(async move {
                for _ in 0..appends / appenders {
                    trajectory.append(event()).await.expect("it is recorded");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let clock = start.elapsed().as_secs_f64() * 1e6;
    let processor = processor().zip(before).map(|(after, before)| (after - before) / appends as f64);
    trajectory.close().await;
    (clock / appends as f64, processor)
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| -> Option<PathBuf> { Some(folder.path().join(name)) };
    let shapes = [
        ("callers write", Options { path: path("a"), ..Options::default() }, APPENDS),
        ("callers write, no name", Options::default(), APPENDS),
        (
            "the thread writes",
            Options { path: path("b"), callers_write: false, ..Options::default() },
            APPENDS,
        ),
        ("synced each time", Options { path: path("c"), fsync: Fsync::Always, ..Options::default() }, 2_000),
    ];
    println!("{:<24} {:>9} {:>12} {:>14}", "", "appenders", "µs/append", "processor µs");
    for (name, options, appends) in shapes {
        for appenders in [1, 8, 32] {
            let (clock, processor) = run(options.clone(), appenders, appends).await;
            let processor = processor.map_or_else(|| "?".into(), |used| format!("{used:.2}"));
            println!("{name:<24} {appenders:>9} {clock:>12.2} {processor:>14}");
        }
    }
}
