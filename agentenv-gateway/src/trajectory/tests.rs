pub(super) mod disk;
mod faults;
mod files;

use std::fs;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentenv_protocol::json::ObjectWriter;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::Value;

use super::*;

pub(super) fn stamps() -> Arc<dyn Fn() -> Stamp + Send + Sync> {
    let count = AtomicUsize::new(0);
    Arc::new(move || Stamp {
        timestamp_utc: format!("2026-01-01T00:00:00.{:06}+00:00", count.fetch_add(1, Ordering::Relaxed)),
        virtual_time: None,
    })
}

fn open(path: &Path) -> Result<Trajectory, OpenError> {
    Trajectory::open(Options { path: Some(path.to_owned()), ..Options::default() }, stamps())
}

fn call(name: &str) -> Event {
    let call = ObjectWriter::with_capacity(32).field("function_name", name).raw("arguments", "{}").finish();
    let call = String::from_utf8(call.to_vec()).unwrap();
    Event::new(
        Kind::ToolCall,
        ObjectWriter::with_capacity(64).raw("tool_call", &call).field("role", "default"),
    )
}

fn result(call: EventId) -> Event {
    let members = ObjectWriter::with_capacity(64)
        .field("tool_call_event_id", &call.to_string())
        .raw("tool_call_result", r#"{"content":[],"isError":false}"#)
        .raw("changelog_id_before", "null")
        .raw("changelog_id", "null");
    Event::new(Kind::ToolCallResult, members)
}

async fn text(trajectory: &Trajectory, after: Option<u64>) -> String {
    let reading = trajectory.read(after.map(EventId), false).await.unwrap();
    let pieces: Vec<Bytes> = reading.lines.try_collect().await.unwrap();
    let text = String::from_utf8(pieces.concat()).unwrap();
    assert_eq!(reading.body_bytes, Some(text.len() as u64));
    text
}

/// Every line parses, and the ids have no gap.
fn events(text: &str, first: u64) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (event, number) in events.iter().zip(first..) {
        assert_eq!(event["event_id"], format!("event_{number}"));
    }
    events
}

/// The next piece of a stream.
async fn piece(lines: &mut Pin<Box<impl Stream<Item = io::Result<Bytes>>>>) -> String {
    let piece = lines.next().await.expect("the stream goes on").unwrap();
    String::from_utf8(piece.to_vec()).unwrap()
}

#[tokio::test]
async fn events_are_written_in_order_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let trajectory = open(&path).unwrap();
    assert_eq!(trajectory.last(), None);
    let first = trajectory.append(call("a")).await.unwrap();
    let Recorded::Written(second) = trajectory.close_call(first, result(first)).await else {
        panic!("not written")
    };
    assert_eq!((first.to_string(), second.to_string()), ("event_1".into(), "event_2".into()));
    assert_eq!(trajectory.last(), Some(second));

    let all = text(&trajectory, None).await;
    assert_eq!(all, fs::read_to_string(&path).unwrap());
    assert_eq!(all.len() as u64, trajectory.bytes());
    let read = events(&all, 1);
    assert_eq!(read[0]["tool_call"]["function_name"], "a");
    assert_eq!(read[1]["tool_call_event_id"], "event_1");
    assert!(read[0]["timestamp_utc"].as_str() < read[1]["timestamp_utc"].as_str());

    assert_eq!(events(&text(&trajectory, Some(1)).await, 2).len(), 1);
    assert_eq!(text(&trajectory, Some(2)).await, "");
    assert_eq!(text(&trajectory, Some(99)).await, "");
    assert!(trajectory.health().is_good());
}

#[tokio::test]
async fn a_restart_goes_on_counting_and_closes_what_was_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let trajectory = open(&path).unwrap();
    let a = trajectory.append(call("a")).await.unwrap();
    let b = trajectory.append(call("b")).await.unwrap();
    let c = trajectory.append(call("c")).await.unwrap();
    trajectory.close_call(b, result(b)).await;
    assert!(matches!(open(&path), Err(OpenError::Locked(_))));
    trajectory.close().await;
    assert!(matches!(trajectory.append(call("d")).await, Err(Unavailable::Closed)));

    let trajectory = open(&path).unwrap();
    let read = events(&text(&trajectory, Some(4)).await, 5);
    for (event, open) in read.iter().zip([a, c]) {
        assert_eq!(event["event_type"], "tool_call_failed");
        assert_eq!(event["tool_call_event_id"], open.to_string());
        assert_eq!(event["error"], "gateway restarted");
        assert!(event["changelog_id"].is_null() && event["changelog_id_before"].is_null());
        assert_eq!(event.as_object().unwrap().len(), 7);
    }
    assert_eq!(read.len(), 2);
    assert_eq!(trajectory.append(call("d")).await.unwrap().number(), 7);
}

#[tokio::test]
async fn following_shows_each_event_as_it_is_written_and_ends_when_closed() {
    let trajectory = Trajectory::open(Options::default(), stamps()).unwrap();
    trajectory.append(call("a")).await.unwrap();
    let reading = trajectory.read(None, true).await.unwrap();
    assert_eq!((reading.total_bytes, reading.body_bytes), (trajectory.bytes(), None));
    let mut all = Box::pin(reading.lines);
    let mut later = Box::pin(trajectory.read(Some(EventId(3)), true).await.unwrap().lines);
    assert_eq!(events(&piece(&mut all).await, 1).len(), 1);
    for number in 2..=4 {
        assert!(futures_util::FutureExt::now_or_never(all.next()).is_none());
        trajectory.append(call("b")).await.unwrap();
        assert_eq!(events(&piece(&mut all).await, number).len(), 1);
    }
    assert_eq!(events(&piece(&mut later).await, 4).len(), 1);
    trajectory.append(call("c")).await.unwrap();
    trajectory.close().await;
    assert_eq!(events(&piece(&mut all).await, 5).len(), 1);
    assert!(all.next().await.is_none());
    assert_eq!(events(&piece(&mut later).await, 5).len(), 1);
    assert!(later.next().await.is_none());
    let mut closed = Box::pin(trajectory.read(Some(EventId(4)), true).await.unwrap().lines);
    assert_eq!(events(&piece(&mut closed).await, 5).len(), 1);
    assert!(closed.next().await.is_none());
}

#[tokio::test]
async fn who_comes_first_goes_on_first() {
    let trajectory = Trajectory::open(Options::default(), stamps()).unwrap();
    let gone_on = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tasks = (0..8).map(|at| {
        let (trajectory, gone_on) = (trajectory.clone(), Arc::clone(&gone_on));
        tokio::spawn(async move {
            let id = trajectory.append(call("together")).await.unwrap();
            gone_on.lock().unwrap().push((at, id.number()));
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(*gone_on.lock().unwrap(), (0..8).map(|at| (at, at + 1)).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_get_each_their_own_line() {
    for callers_write in [true, false] {
        let trajectory = Trajectory::open(Options { callers_write, ..Options::default() }, stamps()).unwrap();
        let tasks: Vec<_> = (0..32)
            .map(|task| {
                let trajectory = trajectory.clone();
                tokio::spawn(async move {
                    let mut told = Vec::new();
                    for at in 0..50 {
                        let name = format!("{task}/{at}");
                        told.push((trajectory.append(call(&name)).await.unwrap(), name));
                        // A snapshot is whole at any time.
                        if at % 25 == 0 {
                            events(&text(&trajectory, None).await, 1);
                        }
                    }
                    told
                })
            })
            .collect();
        let mut told = Vec::new();
        for task in tasks {
            let of_one = task.await.unwrap();
            assert!(of_one.is_sorted());
            told.extend(of_one);
        }
        let read = events(&text(&trajectory, None).await, 1);
        assert_eq!(read.len(), told.len());
        for (id, name) in told {
            assert_eq!(read[id.number() as usize - 1]["tool_call"]["function_name"], name);
        }
        assert!(read.is_sorted_by_key(|event| event["timestamp_utc"].as_str().unwrap()));
    }
}

#[tokio::test]
async fn any_event_is_found_among_many() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let big = "x".repeat(100_000);
    let trajectory = open(&path).unwrap();
    for _ in 0..40 {
        trajectory.append(call(&big)).await.unwrap();
    }
    for _ in 0..2 {
        for after in [0, 1, 9, 10, 11, 20, 38, 39] {
            let read = events(&text(&trajectory, Some(after)).await, after + 1);
            assert_eq!(read.len() as u64, 40 - after);
        }
    }
    trajectory.close().await;
    // Now from what was found when it was opened; closing each open call adds as many again.
    let trajectory = open(&path).unwrap();
    for after in [0, 1, 9, 10, 11, 20, 38, 39, 40, 79] {
        let read = events(&text(&trajectory, Some(after)).await, after + 1);
        assert_eq!(read.len() as u64, 80 - after);
    }
}

#[test]
fn when_to_sync_has_a_name() {
    for (name, fsync) in [("never", Fsync::Never), ("always", Fsync::Always)] {
        assert_eq!(name.parse(), Ok(fsync));
    }
    assert_eq!("interval".parse(), Ok(Fsync::Interval(Duration::from_secs(1))));
    assert_eq!("Always".parse::<Fsync>(), Err(NotAnFsync));
}
