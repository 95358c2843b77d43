//! Disks that fill up, fail, forget or stall.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;
use proptest::prelude::*;

use super::disk::Disk;
use super::*;

fn on(disk: &Arc<Disk>, options: Options) -> Trajectory {
    Trajectory::start(disk.clone(), Found::default(), &options, stamps()).unwrap()
}

/// Waits for something to be done.
fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn a_full_disk_refuses_calls_and_leaves_no_part_of_a_line() {
    let disk = Disk::new();
    let trajectory = on(&disk, Options::default());
    now(trajectory.append(call("a"))).unwrap();
    let line = disk.text().len();
    for room in line..2 * line {
        disk.set(|state| state.room = Some(room));
        let refused = now(trajectory.append(call("b"))).unwrap_err();
        assert!(matches!(&refused, Unavailable::Disk(error) if error.kind() == io::ErrorKind::StorageFull));
        assert!(refused.to_string().starts_with("trajectory unavailable: "), "{refused}");
        assert_eq!(disk.text().len(), line);
        assert!(trajectory.health().failing.is_some());
    }
    disk.set(|state| state.room = None);
    assert_eq!(now(trajectory.append(call("b"))).unwrap(), EventId(2));
    assert!(trajectory.health().is_good());
    assert_eq!(events(&disk.text(), 1).len(), 2);
}

#[test]
fn what_cannot_be_cut_off_at_once_is_cut_off_before_the_next_line() {
    let disk = Disk::new();
    let trajectory = on(&disk, Options::default());
    now(trajectory.append(call("a"))).unwrap();
    let line = disk.text().len();
    disk.set(|state| (state.room, state.cannot_truncate) = (Some(line + 10), true));
    now(trajectory.append(call("b"))).unwrap_err();
    assert_eq!(disk.text().len(), line + 10);
    disk.set(|state| state.room = None);
    now(trajectory.append(call("c"))).unwrap_err();
    assert_eq!(disk.text().len(), line + 10);
    disk.set(|state| state.cannot_truncate = false);
    now(trajectory.append(call("d"))).unwrap();
    let read = events(&disk.text(), 1);
    assert_eq!(read.len(), 2);
    assert_eq!(read[1]["tool_call"]["function_name"], "d");
}

#[test]
fn a_result_waits_for_the_disk_and_nothing_overtakes_it() {
    let disk = Disk::new();
    let trajectory = on(&disk, Options::default());
    let a = now(trajectory.append(call("a"))).unwrap();
    let b = now(trajectory.append(call("b"))).unwrap();
    let full = disk.text().len();
    disk.set(|state| state.room = Some(full));
    assert!(matches!(now(trajectory.close_call(a, result(a))), Recorded::Retained));
    trajectory.append_soon(Event::new(Kind::TriggerFired, ObjectWriter::with_capacity(0))).unwrap();
    assert!(matches!(now(trajectory.close_call(b, result(b))), Recorded::Retained));
    now(trajectory.append(call("c"))).unwrap_err();
    assert_eq!(trajectory.health().retained, 3);
    assert_eq!(trajectory.health().lost, 0);
    assert_eq!(disk.text().len(), full);

    disk.set(|state| state.room = None);
    assert_eq!(now(trajectory.append(call("d"))).unwrap(), EventId(6));
    assert!(trajectory.health().is_good());
    let read = events(&disk.text(), 1);
    let kinds: Vec<_> = read.iter().map(|event| event["event_type"].as_str().unwrap()).collect();
    let expected =
        ["tool_call", "tool_call", "tool_call_result", "trigger_fired", "tool_call_result", "tool_call"];
    assert_eq!(kinds, expected);
    assert_eq!(read[2]["tool_call_event_id"], a.to_string());
}

#[test]
fn a_result_too_big_to_keep_closes_its_call_without_it() {
    let disk = Disk::new();
    let trajectory = on(&disk, Options { retained_bytes: 100, ..Options::default() });
    let a = now(trajectory.append(call("a"))).unwrap();
    let full = disk.text().len();
    disk.set(|state| state.room = Some(full));
    assert!(matches!(now(trajectory.close_call(a, result(a))), Recorded::Retained));
    trajectory.append_soon(call("nothing to put in its place")).unwrap();
    assert_eq!((trajectory.health().retained, trajectory.health().lost), (1, 1));
    disk.set(|state| state.room = None);
    now(trajectory.append(call("b"))).unwrap();
    let closed = &events(&disk.text(), 1)[1];
    assert_eq!(closed["event_type"], "tool_call_failed");
    assert_eq!(closed["tool_call_event_id"], a.to_string());
}

#[tokio::test]
async fn closing_tries_a_last_time() {
    let disk = Disk::new();
    let trajectory = on(&disk, Options::default());
    let a = trajectory.append(call("a")).await.unwrap();
    let full = disk.text().len();
    disk.set(|state| state.room = Some(full));
    trajectory.close_call(a, result(a)).await;
    disk.set(|state| state.room = None);
    trajectory.close().await;
    assert_eq!(events(&disk.text(), 1).len(), 2);
    assert_eq!(disk.synced(), disk.text().len());
    assert!(matches!(trajectory.close_call(a, result(a)).await, Recorded::Lost(Unavailable::Closed)));
    assert!(matches!(trajectory.append_soon(call("b")), Err(Unavailable::Closed)));
    trajectory.close().await;
}

#[tokio::test]
async fn what_is_synced_always_is_synced_before_anyone_is_told() {
    let disk = Disk::new();
    let trajectory = on(&disk, Options { fsync: Fsync::Always, ..Options::default() });
    for _ in 0..20 {
        trajectory.append(call("a")).await.unwrap();
        assert_eq!(disk.synced(), disk.text().len());
    }
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_believed() {
    let disk = Disk::new();
    let trajectory = on(&disk, Options { fsync: Fsync::Always, ..Options::default() });
    trajectory.append(call("a")).await.unwrap();
    disk.set(|state| state.cannot_sync = true);
    trajectory.append(call("b")).await.unwrap_err();
    disk.set(|state| state.cannot_sync = false);
    trajectory.append(call("c")).await.unwrap_err();
    assert!(trajectory.health().unsynced);
    assert_eq!(events(&disk.text(), 1).len(), 1);
    assert_eq!(text(&trajectory, None).await, disk.text());
}

#[tokio::test]
async fn a_stalled_disk_holds_up_only_those_who_need_it() {
    let disk = Disk::new();
    let options = Options { callers_write: false, queue_bytes: 2_000, ..Options::default() };
    let trajectory = on(&disk, options);
    disk.set(|state| state.writes_allowed = Some(0));
    let first = tokio::spawn({
        let trajectory = trajectory.clone();
        async move { trajectory.append(call("a")).await }
    });
    while disk.state().writes == 0 {
        tokio::task::yield_now().await;
    }
    // Reading, asking and adding without waiting go on.
    assert_eq!(text(&trajectory, None).await, "");
    assert!(trajectory.health().is_good());
    let mut queued = 0;
    while trajectory.append_soon(call("b")).is_ok() {
        queued += 1;
        assert!(queued < 100, "the queue has no bound");
    }
    assert!(queued > 2);
    assert!(matches!(trajectory.append_soon(call("b")), Err(Unavailable::Full)));
    let mut waits = Box::pin(trajectory.append(call("c")));
    assert!(waits.as_mut().now_or_never().is_none());

    disk.set(|state| state.writes_allowed = None);
    assert_eq!(first.await.unwrap().unwrap(), EventId(1));
    assert_eq!(waits.await.unwrap(), EventId(queued + 2));
    assert_eq!(events(&disk.text(), 1).len() as u64, queued + 2);
}

/// Looks at a trajectory's health at the very moment at which somebody is told something.
struct Looker {
    trajectory: Trajectory,
    found: mpsc::Sender<Health>,
}

impl Wake for Looker {
    fn wake(self: Arc<Self>) {
        self.found.send(self.trajectory.health()).unwrap();
    }
}

#[test]
fn whoever_is_told_of_a_success_finds_all_well() {
    let disk = Disk::new();
    let trajectory = on(&disk, Options { callers_write: false, ..Options::default() });
    disk.set(|state| state.room = Some(0));
    now(trajectory.append(call("a"))).unwrap_err();
    assert!(!trajectory.health().is_good());
    // The thread has tried the disk again by itself, and will not for a second.
    while disk.state().writes < 2 {
        std::thread::yield_now();
    }
    disk.set(|state| (state.room, state.writes_allowed) = (None, Some(0)));
    let (sender, found) = mpsc::channel();
    let looker = Waker::from(Arc::new(Looker { trajectory: trajectory.clone(), found: sender }));
    let mut append = Box::pin(trajectory.append(call("b")));
    assert!(append.as_mut().poll(&mut Context::from_waker(&looker)).is_pending());
    disk.set(|state| state.writes_allowed = None);
    assert!(found.recv().unwrap().is_good());
    now(append).unwrap();
}

#[test]
fn a_dropped_append_is_whole_or_not_at_all() {
    let disk = Disk::new();
    let trajectory = on(&disk, Options::default());
    drop(trajectory.append(call("never polled")));
    now(trajectory.append(call("a"))).unwrap();
    assert_eq!(events(&disk.text(), 1).len(), 1);
}

#[derive(Debug, Clone)]
enum Step {
    Call,
    Close,
    Soon,
    Room(usize),
    Unbounded,
    Piece(usize),
    CannotTruncate(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Call),
        4 => Just(Step::Close),
        1 => Just(Step::Soon),
        2 => (0..500_usize).prop_map(Step::Room),
        2 => Just(Step::Unbounded),
        1 => (1..300_usize).prop_map(Step::Piece),
        1 => any::<bool>().prop_map(Step::CannotTruncate),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    /// Whatever the disk does: what was told of is there, in order; what is there is whole; calls are closed once.
    #[test]
    fn what_was_told_of_is_there(steps in steps()) {
        let disk = Disk::new();
        let trajectory = on(&disk, Options { fsync: Fsync::Never, ..Options::default() });
        let mut told = BTreeMap::new();
        let mut open = Vec::new();
        let (mut calls, mut soon) = (0, 0);
        for step in steps {
            match step {
                Step::Call => {
                    calls += 1;
                    if let Ok(id) = now(trajectory.append(call(&calls.to_string()))) {
                        told.insert(id.number(), calls.to_string());
                        open.push(id);
                    }
                }
                Step::Close => {
                    if let Some(id) = open.pop() {
                        let recorded = now(trajectory.close_call(id, result(id)));
                        prop_assert!(!matches!(recorded, Recorded::Lost(_)));
                    }
                }
                Step::Soon => {
                    soon += 1;
                    trajectory.append_soon(Event::new(Kind::HttpRequest, ObjectWriter::with_capacity(0))).unwrap();
                }
                Step::Room(free) => disk.set(|state| state.room = Some(state.bytes.len() + free)),
                Step::Unbounded => disk.set(|state| state.room = None),
                Step::Piece(most) => disk.set(|state| state.piece = Some(most)),
                Step::CannotTruncate(cannot) => disk.set(|state| state.cannot_truncate = cannot),
            }
            // Readers never see part of a line, even where it could not be cut off.
            let whole = disk.state().bytes[..trajectory.bytes() as usize].to_vec();
            events(std::str::from_utf8(&whole).unwrap(), 1);
        }
        disk.set(|state| (state.room, state.cannot_truncate) = (None, false));
        for id in open {
            prop_assert!(matches!(now(trajectory.close_call(id, result(id))), Recorded::Written(_)));
        }
        now(trajectory.append(call("last"))).unwrap();
        prop_assert!(trajectory.health().is_good());
        let read = events(&disk.text(), 1);
        let kind = |kind: &str| read.iter().filter(|event| event["event_type"] == kind).count();
        prop_assert_eq!(kind("tool_call"), told.len() + 1);
        prop_assert_eq!(kind("tool_call_result"), told.len());
        prop_assert_eq!(kind("http_request"), soon);
        for (id, name) in told {
            prop_assert_eq!(&read[id as usize - 1]["tool_call"]["function_name"], &name);
            let id = format!("event_{id}");
            prop_assert_eq!(read.iter().filter(|event| event["tool_call_event_id"] == id).count(), 1);
        }
    }
}
