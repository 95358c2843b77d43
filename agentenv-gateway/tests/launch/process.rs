//! A server is waited for, what is wrong with it is said in one line, and nothing of it is left, whatever dies first.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentenv_gateway::launch::process::{Output, Process, ProcessError, ProcessSpec};

use crate::processes::{command, eventually, is_owner, kill, members, own, owner};

/// Longer than any of these servers needs.
const LONG: Duration = Duration::from_secs(60);

fn spec(command: &[&str]) -> ProcessSpec {
    ProcessSpec {
        name: "email".to_owned(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        folder: PathBuf::from("/"),
        port: None,
        database_url: None,
        environment: BTreeMap::new(),
    }
}

fn shell(script: &str) -> ProcessSpec {
    spec(&["sh", "-c", script])
}

/// A server that does what it should: a gateway without children.
fn server() -> ProcessSpec {
    spec(&[env!("CARGO_BIN_EXE_agentenv-gateway")])
}

fn quiet() -> Output {
    Arc::new(|_, _| {})
}

/// Output that is kept, and what was kept.
fn kept() -> (Output, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let keeper = Arc::clone(&lines);
    (Arc::new(move |name, line| keeper.lock().unwrap().push(format!("{name}: {line}"))), lines)
}

#[tokio::test]
async fn a_server_is_told_what_it_is_and_becomes_ready() {
    let process = Process::start(&server(), quiet()).unwrap();
    process.ready(LONG).await.unwrap();
    let group = process.group();
    assert!(!members(group).is_empty());
    process.stop().await;
    eventually("its group is empty", || members(group).is_empty()).await;
}

#[tokio::test]
async fn its_variables_are_those_of_the_contract_and_its_own() {
    let (output, lines) = kept();
    let mut spec =
        shell("echo $MCP_HOST $MCP_PORT $ENVIRONMENT_NAME $DATABASE_URL $OWN; pwd; echo warned >&2; exit 3");
    spec.database_url = Some("postgresql://db".to_owned());
    spec.environment.insert("OWN".to_owned(), "two words".to_owned());
    spec.folder = std::env::temp_dir();
    let process = Process::start(&spec, output).unwrap();
    let port = process.url().port().unwrap();
    assert_eq!(process.ended().await.to_string(), "email: exited with status 3: warned");
    let mut said = lines.lock().unwrap().clone();
    said.sort();
    let folder = std::env::temp_dir().canonicalize().unwrap();
    let mut expected = [
        format!("email: 127.0.0.1 {port} email postgresql://db two words"),
        format!("email: {}", folder.display()),
        "email: warned".to_owned(),
    ];
    expected.sort();
    assert_eq!(said, expected);
}

#[tokio::test]
async fn what_is_wrong_with_a_server_is_said_in_one_line() {
    for (spec, said) in [
        (shell("exit 7"), "email: exited with status 7"),
        (
            shell("echo 'Traceback:' >&2; echo 'KeyError: x' >&2; exit 1"),
            "email: exited with status 1: KeyError: x",
        ),
        (shell("kill -9 $$"), "email: killed by signal 9"),
        (spec(&["no-such-program", "x"]), "email: there is no program 'no-such-program'"),
        (spec(&["/etc/passwd"]), "email: '/etc/passwd' cannot be run"),
    ] {
        let process = Process::start(&spec, quiet()).unwrap();
        assert_eq!(process.ready(LONG).await.unwrap_err().to_string(), said);
        process.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let process = Process::start(&shell("exec sleep 1000"), quiet()).unwrap();
    let error = process.ready(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.to_string(), "email: not ready within 0.3 s: it cannot be connected to");
    process.stop().await;
}

#[tokio::test]
async fn a_taken_port_and_a_missing_folder_are_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut wanted = server();
    wanted.port = Some(port);
    let error = Process::start(&wanted, quiet()).unwrap_err();
    assert!(matches!(error, ProcessError::PortTaken { port: named, .. } if named == port), "{error}");
    assert_eq!(error.to_string(), format!("email: port {port} is taken"));

    let mut lost = server();
    lost.folder = PathBuf::from("/no/such/folder");
    let error = Process::start(&lost, quiet()).unwrap_err();
    assert!(error.to_string().starts_with("email: cannot be started: "), "{error}");
}

#[tokio::test]
async fn what_a_server_started_goes_with_it() {
    // One that ends when asked, with a helper that does not, and one that leaves a helper behind.
    for script in ["(trap '' TERM; exec sleep 1000) & sleep 1000", "sleep 1000 & exit 1"] {
        let process = Process::start(&shell(script), quiet()).unwrap();
        let group = process.group();
        if script.ends_with("exit 1") {
            process.ended().await;
        }
        eventually("its helper runs", || members(group).iter().any(|id| command(*id).starts_with("sleep")))
            .await;
        process.stop().await;
        eventually("its group is empty", || members(group).is_empty()).await;
    }
}

#[tokio::test]
async fn a_dropped_server_and_one_whose_guard_was_killed_end_by_themselves() {
    let dropped = Process::start(&server(), quiet()).unwrap();
    dropped.ready(LONG).await.unwrap();
    let group = dropped.group();
    drop(dropped);
    eventually("its group is empty", || members(group).is_empty()).await;

    let unguarded = Process::start(&server(), quiet()).unwrap();
    unguarded.ready(LONG).await.unwrap();
    let group = unguarded.group();
    kill(group, "KILL").await;
    assert!(unguarded.ended().await.to_string().starts_with("email: killed"));
    unguarded.stop().await;
    eventually("its group is empty", || members(group).is_empty()).await;
}

/// Not a test of its own: the program that the next one kills.
#[tokio::test]
async fn an_owner() {
    if is_owner() {
        let process = Process::start(&server(), quiet()).unwrap();
        process.ready(LONG).await.unwrap();
        own(process.group()).await;
    }
}

#[tokio::test]
async fn a_server_dies_with_whoever_started_it() {
    let (mut owner, group) = owner("process::an_owner").await;
    assert!(!members(group).is_empty());
    kill(owner.id().unwrap(), "KILL").await;
    owner.wait().await.unwrap();
    eventually("its group is empty", || members(group).is_empty()).await;
}
