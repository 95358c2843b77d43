//! Looking at this machine's processes.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

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
