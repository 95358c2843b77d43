//! The private Postgres starts, and nothing of it is left, whatever dies first.

use std::path::PathBuf;
use std::time::Duration;

use agentenv_gateway::launch::postgres::{PostgresError, PrivatePostgres};
use tokio_postgres::{Client, NoTls};

use crate::processes::{eventually, is_owner, kill, lives, own, owner};

/// The folder of the process `server`, from its own command line.
fn folder_of(server: u32) -> PathBuf {
    let line = std::fs::read(format!("/proc/{server}/cmdline")).unwrap();
    let mut words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    words.find(|word| word == "-D").unwrap();
    PathBuf::from(words.next().unwrap()).parent().unwrap().to_owned()
}

/// A connection to it.
async fn open(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn a_server_starts_as_an_ordinary_user_and_stops_without_a_trace() {
    let postgres = PrivatePostgres::start(None).await.unwrap();
    let client = open(postgres.url().expose()).await;
    let row = client.query_one("SELECT current_user::text, current_database()::text", &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("agentenv", "agentenv"));

    let server = postgres.process_id().unwrap();
    let folder = folder_of(server);
    let status = std::fs::read_to_string(format!("/proc/{server}/status")).unwrap();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    assert!(!user.split_whitespace().any(|id| id == "0"), "{user}");

    postgres.stop().await;
    assert!(!folder.exists());
    assert!(!lives(server));
}

#[tokio::test]
async fn its_password_is_needed() {
    let postgres = PrivatePostgres::start(None).await.unwrap();
    let (before, place) = postgres.url().expose().rsplit_once('@').unwrap();
    assert!(before.starts_with("postgresql://agentenv:"));
    let guessed = format!("postgresql://agentenv:agentenv@{place}");
    assert!(tokio_postgres::connect(&guessed, NoTls).await.is_err());
    postgres.stop().await;
}

#[tokio::test]
async fn a_server_that_dies_is_started_again_on_its_data() {
    let postgres = PrivatePostgres::start(None).await.unwrap();
    let client = open(postgres.url().expose()).await;
    client.batch_execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (7)").await.unwrap();
    let server = postgres.process_id().unwrap();
    kill(server, "KILL").await;
    let again = loop {
        match tokio_postgres::connect(postgres.url().expose(), NoTls).await {
            Ok((client, connection)) if postgres.process_id() != Some(server) => {
                tokio::spawn(connection);
                break client;
            }
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert_eq!(again.query_one("SELECT id FROM kept", &[]).await.unwrap().get::<_, i32>(0), 7);
    postgres.stop().await;
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = PrivatePostgres::start(Some(port)).await.unwrap_err();
    assert!(matches!(error, PostgresError::PortTaken(named) if named == port), "{error}");
}

#[tokio::test]
async fn a_dropped_server_stops_by_itself() {
    let postgres = PrivatePostgres::start(None).await.unwrap();
    let server = postgres.process_id().unwrap();
    let folder = folder_of(server);
    drop(postgres);
    eventually("the server is gone", || !lives(server)).await;
    eventually("its folder is gone", || !folder.exists()).await;
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing() {
    // Given up at moments all through its start, and with a port by which to know it.
    for moment in [1, 200, 450, 500, 550] {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let start = PrivatePostgres::start(Some(port));
        let _ = tokio::time::timeout(Duration::from_millis(moment), start).await;
        eventually("nothing of it runs", || !mentioned(port)).await;
    }
}

/// Whether a process of this machine has `port` among its arguments, as a server and its guard do.
fn mentioned(port: u16) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let lines = processes.filter_map(|process| std::fs::read(process.join("cmdline")).ok());
    let port = port.to_string();
    lines.into_iter().any(|line| line.split(|byte| *byte == 0).any(|word| word == port.as_bytes()))
}

/// Not a test of its own: the program that the next one kills.
#[tokio::test]
async fn an_owner() {
    if is_owner() {
        let postgres = PrivatePostgres::start(None).await.unwrap();
        own(postgres.process_id().unwrap()).await;
    }
}

#[tokio::test]
async fn a_server_dies_with_whoever_started_it() {
    let (mut owner, server) = owner("private::an_owner").await;
    let folder = folder_of(server);
    kill(owner.id().unwrap(), "KILL").await;
    owner.wait().await.unwrap();
    eventually("the server is gone", || !lives(server)).await;
    eventually("its folder is gone", || !folder.exists()).await;
}

#[tokio::test]
async fn a_server_whose_guard_was_killed_is_stopped_all_the_same() {
    let postgres = PrivatePostgres::start(None).await.unwrap();
    let server = postgres.process_id().unwrap();
    let folder = folder_of(server);
    let status = std::fs::read_to_string(format!("/proc/{server}/status")).unwrap();
    let guard: u32 =
        status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap();
    kill(guard, "KILL").await;
    postgres.ended().await;
    postgres.stop().await;
    eventually("the server is gone", || !lives(server)).await;
    assert!(!folder.exists());
}
