//! Looking at this machine's processes.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Tells a copy of this program that it is to own a process until it is killed.
const OWNS: &str = "AGENTENV_TEST_OWNS_A_PROCESS";

/// Whether this is such a copy.
pub(crate) fn is_owner() -> bool {
    std::env::var_os(OWNS).is_some()
}

/// Tells the test that started this copy what it owns, and waits to be killed.
pub(crate) async fn own(process: u32) {
    eprintln!("owns {process}");
    std::future::pending().await
}

/// A copy of this program in which the test of this name [`own`]s a process, and that process.
pub(crate) async fn owner(test: &str) -> (Child, u32) {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(OWNS, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("the owner ended");
        if let Some(process) = line.strip_prefix("owns ") {
            return (owner, process.parse().unwrap());
        }
    }
}

pub(crate) fn lives(process: u32) -> bool {
    Path::new(&format!("/proc/{process}/exe")).read_link().is_ok()
}

/// The processes of a group.
pub(crate) fn members(group: u32) -> Vec<u32> {
    let ids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // pid (name) state parent group …
        let group_of =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(2)?.parse().ok());
        group_of == Some(group) && lives(*id)
    })
    .collect()
}

/// Other processes end when they do; there is nothing to await.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never so: {what}");
}

pub(crate) async fn kill(process: u32, signal: &str) {
    assert!(
        Command::new("kill")
            .args([format!("-{signal}"), process.to_string()])
            .status()
            .await
            .unwrap()
            .success()
    );
}

pub(crate) fn command(process: u32) -> String {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}
