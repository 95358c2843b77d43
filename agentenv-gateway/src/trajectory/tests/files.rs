//! What stands in a file: torn lines, other people's files, and files that change while they are written.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::trajectory::recover::torn_path;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    (folder, path)
}

async fn two_calls(path: &Path) -> Vec<u8> {
    let trajectory = open(path).unwrap();
    for name in ["a", "b\u{e9}\u{2028}"] {
        let id = trajectory.append(call(name)).await.unwrap();
        trajectory.close_call(id, result(id)).await;
    }
    trajectory.close().await;
    fs::read(path).unwrap()
}

#[tokio::test]
async fn a_file_cut_anywhere_is_gone_on_with() {
    let (_folder, path) = folder();
    let whole = two_calls(&path).await;
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let _ = fs::remove_file(torn_path(&path));
        let options = Options { path: Some(path.clone()), fsync: Fsync::Never, ..Options::default() };
        let trajectory =
            Trajectory::open(options, stamps()).unwrap_or_else(|error| panic!("cut at {cut}: {error:?}"));
        // A line that only lacks its newline is whole.
        let completed = whole.get(cut) == Some(&b'\n');
        let kept = if completed {
            cut + 1
        } else {
            whole[..cut].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1)
        };
        let torn = if completed { &[] } else { &whole[kept..cut] };
        match fs::read(torn_path(&path)) {
            Ok(copy) => assert_eq!(copy, [torn, b"\n"].concat(), "cut at {cut}"),
            Err(_) => assert!(torn.is_empty(), "cut at {cut}"),
        }
        let id = trajectory.append(call("c")).await.unwrap();
        trajectory.close_call(id, result(id)).await;
        let after = text(&trajectory, None).await;
        assert!(after.as_bytes().starts_with(&whole[..kept]), "cut at {cut}");
        let read = events(&after, 1);
        let calls = read.iter().filter(|event| event["event_type"] == "tool_call").count();
        assert_eq!(calls * 2, read.len(), "cut at {cut}: a call is open");
        trajectory.close().await;
    }
}

#[tokio::test]
async fn zeros_that_a_power_cut_left_are_cut_off() {
    let (_folder, path) = folder();
    let mut bytes = two_calls(&path).await;
    bytes.extend_from_slice(&[0; 5000]);
    fs::write(&path, bytes).unwrap();
    let trajectory = open(&path).unwrap();
    assert_eq!(trajectory.append(call("c")).await.unwrap(), EventId(5));
    assert_eq!(events(&text(&trajectory, None).await, 1).len(), 5);
    trajectory.close().await;

    // Likewise, alone in the file; and blanks, with which a full disk is tried.
    for byte in [0, b' '] {
        fs::write(&path, [byte; 100]).unwrap();
        let trajectory = open(&path).unwrap();
        assert_eq!(trajectory.append(call("a")).await.unwrap(), EventId(1));
        trajectory.close().await;
    }
}

#[tokio::test]
async fn an_unreadable_line_in_the_middle_stays() {
    let (_folder, path) = folder();
    let bytes = two_calls(&path).await;
    let damaged =
        [&bytes[..], b"{\"event_type\": \"tool_ca\xff\n\n", b"{\"event_id\":\"event_9\"}\n"].concat();
    fs::write(&path, &damaged).unwrap();
    let trajectory = open(&path).unwrap();
    assert_eq!(trajectory.append(call("c")).await.unwrap(), EventId(10));
    assert!(fs::read(&path).unwrap().starts_with(&damaged));
}

#[tokio::test]
async fn a_file_of_the_reference_is_gone_on_with() {
    let (_folder, path) = folder();
    let line = |id: u32, kind: &str, more: &str| {
        format!(
            "{{\"event_type\": \"{kind}\", {more}\"role\": \"r\", \"event_id\": \"event_{id}\", \"timestamp_utc\": \"x\"}}\n"
        )
    };
    // It began to count anew when it was restarted.
    let lines = [
        line(1, "tool_call", ""),
        line(2, "tool_call_result", "\"tool_call_event_id\": \"event_1\", "),
        line(1, "tool_call", ""),
        line(2, "tool_call_result", "\"tool_call_event_id\": \"event_1\", "),
        line(3, "tool_call", ""),
    ];
    fs::write(&path, lines.concat()).unwrap();
    let trajectory = open(&path).unwrap();
    let read = events(&text(&trajectory, Some(3)).await, 4);
    assert_eq!(read.len(), 1);
    assert_eq!(read[0]["tool_call_event_id"], "event_3");
}

#[tokio::test]
async fn nothing_that_is_no_trajectory_is_touched() {
    let (folder, path) = folder();
    for content in [&b"root:x:0:0\nlast line"[..], b"notes", b"{\"a\":1}\n", b"[]\n", b"\n\n", b"\xff\xfe"] {
        fs::write(&path, content).unwrap();
        assert!(matches!(open(&path), Err(OpenError::NotATrajectory(_))), "{content:?}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    assert!(matches!(open(folder.path()), Err(OpenError::NotRegular(_))));
    assert!(matches!(open(Path::new("/dev/full")), Err(OpenError::NotRegular(_))));
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    assert!(matches!(open(&pipe), Err(OpenError::NotRegular(_))));
    let missing = open(&folder.path().join("no/such/folder.jsonl")).unwrap_err();
    assert!(matches!(missing, OpenError::Io { .. }) && missing.to_string().contains("no/such/folder.jsonl"));
    let link = folder.path().join("link");
    symlink(folder.path().join("new"), &link).unwrap();
    open(&link).unwrap().append(call("a")).await.unwrap();
    assert!(folder.path().join("new").exists());
}

#[tokio::test]
async fn a_file_without_a_name_leaves_nothing() {
    let before = Trajectory::open(Options::default(), stamps()).unwrap();
    before.append(call("a")).await.unwrap();
    assert_eq!(events(&text(&before, None).await, 1).len(), 1);
    let other = Trajectory::open(Options::default(), stamps()).unwrap();
    assert_eq!(other.append(call("a")).await.unwrap(), EventId(1));
}

#[tokio::test]
async fn a_file_that_is_cut_from_outside_goes_on_at_a_line() {
    let (_folder, path) = folder();
    let trajectory = open(&path).unwrap();
    for _ in 0..3 {
        trajectory.append(call("a")).await.unwrap();
    }
    let one = trajectory.bytes() / 3;
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2 * one - 5).unwrap();
    assert_eq!(trajectory.append(call("b")).await.unwrap(), EventId(4));
    let lines = text(&trajectory, None).await;
    assert_eq!(lines, fs::read_to_string(&path).unwrap());
    let ids: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["event_id"].clone()).collect();
    assert_eq!(ids, ["event_1", "event_4"]);
    assert!(trajectory.health().tampered);

    fs::write(&path, "").unwrap();
    assert_eq!(trajectory.append(call("c")).await.unwrap(), EventId(5));
    assert_eq!(events(&fs::read_to_string(&path).unwrap(), 5).len(), 1);
}

#[tokio::test]
async fn what_others_write_into_the_file_harms_no_line() {
    let (_folder, path) = folder();
    let trajectory = open(&path).unwrap();
    trajectory.append(call("a")).await.unwrap();
    let append = |bytes: &[u8]| {
        use std::io::Write;
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(bytes).unwrap();
    };
    append(b"{\"note\":1}");
    trajectory.append(call("b")).await.unwrap();
    append(b"{\"note\":2}\n");
    trajectory.append(call("c")).await.unwrap();
    let lines = text(&trajectory, None).await;
    assert_eq!(lines, fs::read_to_string(&path).unwrap());
    let kinds: Vec<bool> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["note"].is_number()).collect();
    assert_eq!(kinds, [false, true, false, true, false]);
    assert!(trajectory.health().is_good());
    assert_eq!(events(&text(&trajectory, Some(2)).await, 3).len(), 1);
}

#[tokio::test]
async fn a_file_that_is_removed_is_begun_anew() {
    let (folder, path) = folder();
    let trajectory = open(&path).unwrap();
    trajectory.append(call("a")).await.unwrap();
    let mut follower = Box::pin(trajectory.read(None, true).await.unwrap().lines);
    assert_eq!(events(&piece(&mut follower).await, 1).len(), 1);
    trajectory.append(call("b")).await.unwrap();

    fs::rename(&path, folder.path().join("old")).unwrap();
    trajectory.append(call("c")).await.unwrap();
    assert_eq!(events(&fs::read_to_string(&path).unwrap(), 3).len(), 1);
    assert_eq!(events(&text(&trajectory, None).await, 3).len(), 1);
    assert!(trajectory.health().tampered);
    // Who follows misses nothing.
    assert_eq!(events(&piece(&mut follower).await, 2).len(), 1);
    assert_eq!(events(&piece(&mut follower).await, 3).len(), 1);

    fs::remove_file(&path).unwrap();
    fs::write(&path, "not ours\n").unwrap();
    trajectory.append(call("d")).await.unwrap_err();
    assert_eq!(fs::read_to_string(&path).unwrap(), "not ours\n");
    fs::remove_file(&path).unwrap();
    assert_eq!(trajectory.append(call("e")).await.unwrap(), EventId(4));
    assert!(matches!(open(&path), Err(OpenError::Locked(_))));
}
