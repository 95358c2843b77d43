//! The trajectory of a process that is killed, and of one that may not write any more. Each test runs this same program
//! again as the process in question.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use agentenv_gateway::trajectory::{
    self, Event, EventId, Fsync, Kind, Options, Recorded, Stamp, Trajectory, Unavailable,
};
use agentenv_protocol::json::ObjectWriter;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

/// Names the file to the program that is run again.
const FILE: &str = "TRAJECTORY_TEST_FILE";

type TestResult = Result<(), Box<dyn Error>>;

/// Runs one of the tests below in a process of its own, with the file's path.
fn again(test: &str, path: &Path) -> Result<Child, Box<dyn Error>> {
    let child = Command::new(env::current_exe()?)
        .args(["--exact", test, "--nocapture"])
        .env(FILE, path)
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

fn file() -> Option<PathBuf> {
    env::var_os(FILE).map(PathBuf::from)
}

fn open(path: &Path) -> Result<Trajectory, Box<dyn Error>> {
    let options = Options { path: Some(path.to_owned()), fsync: Fsync::Never, ..Options::default() };
    let stamp = || Stamp { timestamp_utc: "2026-01-01T00:00:00.000000+00:00".into(), virtual_time: None };
    Ok(Trajectory::open(options, Arc::new(stamp))?)
}

fn call() -> Event {
    Event::new(
        Kind::ToolCall,
        ObjectWriter::with_capacity(64).raw("tool_call", r#"{"function_name":"a","arguments":{}}"#),
    )
}

fn result(call: EventId) -> Event {
    let members = ObjectWriter::with_capacity(64).field("tool_call_event_id", &call.to_string());
    Event::new(Kind::ToolCallResult, members.raw("tool_call_result", "{}"))
}

/// Every event of a file: each line parses, and the ids have no gap.
fn events(path: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    assert!(text.ends_with('\n'));
    let events = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    for (event, number) in events.iter().zip(1..) {
        assert_eq!(event["event_id"], format!("event_{number}"));
    }
    Ok(events)
}

/// Records calls until it is killed, and says which are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_until_it_is_killed() -> TestResult {
    let Some(path) = file() else { return Ok(()) };
    let trajectory = open(&path)?;
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let trajectory = trajectory.clone();
            tokio::spawn(async move {
                while let Ok(id) = trajectory.append(call()).await {
                    let Recorded::Written(_) = trajectory.close_call(id, result(id)).await else { break };
                    println!("answered {id}");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_was_answered_outlives_a_kill() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("t.jsonl");
    let mut answered: Vec<String> = Vec::new();
    for life in 1..=5 {
        let mut child = again("records_until_it_is_killed", &path)?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut answer = |line: String| {
            // The test program's own words may stand before it.
            answered.extend(line.split_once("answered ").map(|(_, id)| id.to_owned()));
        };
        for _ in 0..100 * life {
            answer(lines.next().ok_or("it ended")??);
        }
        child.kill()?;
        child.wait()?;
        // What it managed to say before it died counts too.
        for line in lines {
            answer(line?);
        }
    }
    open(&path)?.close().await;
    let events = events(&path)?;
    assert!(answered.len() > 1000);
    let with_result: std::collections::HashSet<&str> = events
        .iter()
        .filter(|event| event["event_type"] == "tool_call_result")
        .filter_map(|event| event["tool_call_event_id"].as_str())
        .collect();
    for id in &answered {
        assert!(with_result.contains(id.as_str()), "{id} was answered and is not in the file");
    }
    let calls = events.iter().filter(|event| event["event_type"] == "tool_call").count();
    assert_eq!(calls * 2, events.len(), "a call is open, or closed twice");
    Ok(())
}

/// Lives through a limit on the size of its files, which the kernel answers with a signal that kills.
#[tokio::test]
async fn lives_with_small_files() -> TestResult {
    let Some(path) = file() else { return Ok(()) };
    trajectory::outlive_file_size_limit()?;
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(10_000), maximum: before.maximum })?;
    let trajectory = open(&path)?;
    let mut last = None;
    let refused = loop {
        match trajectory.append(call()).await {
            Ok(id) => last = Some(id),
            Err(refused) => break refused,
        }
    };
    let last = last.ok_or("nothing was recorded")?;
    let Unavailable::Disk(error) = &refused else { return Err(refused.into()) };
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    assert!(fs::read(&path)?.ends_with(b"}\n"));
    assert!(matches!(trajectory.close_call(last, result(last)).await, Recorded::Retained));
    assert_eq!(trajectory.health().retained, 1);

    setrlimit(Resource::Fsize, before)?;
    let id = trajectory.append(call()).await?;
    assert_eq!(id.number(), last.number() + 2);
    assert!(trajectory.health().is_good());
    trajectory.close().await;
    assert_eq!(events(&path)?.len() as u64, id.number());
    println!("it lives");
    Ok(())
}

#[test]
fn a_limit_on_files_refuses_calls_and_kills_nobody() -> TestResult {
    let folder = tempfile::tempdir()?;
    let done = again("lives_with_small_files", &folder.path().join("t.jsonl"))?.wait_with_output()?;
    let said = String::from_utf8(done.stdout)?;
    assert!(done.status.success() && said.contains("it lives"), "{}: {said}", done.status);
    Ok(())
}
