//! The latest id: known while the store answers, unknown and never late while it does not.

use std::time::Duration;

use agentenv_gateway::launch::postgres::PrivatePostgres;
use agentenv_gateway::store::{LatestId, Store, StoreError, StoreTimes, Windows};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::server::{Database, connect, open};

async fn wiki(database: &Database) -> Store {
    let store = database.store().await;
    let url = store.prepare("wiki").await.unwrap();
    open(&url).await.batch_execute("CREATE TABLE page (id int PRIMARY KEY, text text)").await.unwrap();
    store.install("wiki").await.unwrap();
    store
}

#[tokio::test]
async fn an_empty_changelog_and_none_at_all_are_known_to_be_empty() {
    let database = Database::new().await;
    let store = database.store().await;
    assert_eq!(store.latest_id().await, LatestId::Known(0));
    store.prepare("wiki").await.unwrap();
    assert_eq!(store.latest_id().await, LatestId::Known(0));
    assert_eq!(store.latest_id().await.value(), None);
}

#[tokio::test]
async fn an_id_read_after_a_write_holds_it_however_many_ask() {
    let database = Database::new().await;
    let store = wiki(&database).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (store, client) = (store.clone(), database.client().await);
        writers.spawn(async move {
            for number in 0..20 {
                let id = writer * 100 + number;
                client.execute("INSERT INTO wiki.page VALUES ($1, 'x')", &[&id]).await.unwrap();
                let read = store.latest_id().await;
                let own = client
                    .query_one("SELECT id FROM _changelog WHERE row_id = $1::int::text", &[&id])
                    .await
                    .unwrap();
                assert!(read >= LatestId::Known(own.get(0)), "{read:?}");
            }
        });
    }
    writers.join_all().await;
    assert_eq!(store.latest_id().await, LatestId::Known(160));
}

#[tokio::test]
async fn a_store_that_is_down_at_boot_is_found_when_it_comes() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = format!("postgresql://agentenv:x@127.0.0.1:{port}/agentenv");
    let store = connect(&nobody.parse().unwrap());
    store.down().await;
    assert_eq!(store.latest_id().await, LatestId::Unknown);
    let error = store.changes(0, 10, &Windows::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");

    // Whoever listens there now has another password, so the store stays down, and says nothing of its own.
    let postgres = PrivatePostgres::start(Some(port)).await.unwrap();
    let error = store.changes(0, 10, &Windows::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    let right = connect(postgres.url());
    right.up().await;
    postgres.stop().await;
    right.down().await;
}

#[tokio::test]
async fn a_store_that_dies_and_comes_back_is_asked_again() {
    let postgres = PrivatePostgres::start(None).await.unwrap();
    let store = connect(postgres.url());
    let url = store.prepare("wiki").await.unwrap();
    let client = open(&url).await;
    client.batch_execute("CREATE TABLE page (id int PRIMARY KEY)").await.unwrap();
    store.install("wiki").await.unwrap();
    client.batch_execute("INSERT INTO page VALUES (1)").await.unwrap();
    assert_eq!(store.latest_id().await, LatestId::Known(1));

    for _ in 0..2 {
        let server = postgres.process_id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-9", &server]).status().unwrap().success());
        store.down().await;
        assert_eq!(store.latest_id().await, LatestId::Unknown);
        store.up().await;
        assert_eq!(store.latest_id().await, LatestId::Known(1));
        // Connections that were kept for other work died too.
        assert_eq!(store.changes(0, 10, &Windows::default()).await.unwrap().changes.len(), 1);
    }
    postgres.stop().await;
}

#[tokio::test]
async fn a_locked_changelog_delays_one_read_and_then_nobody() {
    let database = Database::new().await;
    let store = {
        let mut times = StoreTimes::default();
        times.latest_id = Duration::from_millis(200);
        times.pause = Duration::from_millis(200);
        Store::connect(database.url.clone(), times, &TaskTracker::new(), &CancellationToken::new())
    };
    store.prepare("wiki").await.unwrap();
    store.up().await;
    let client = database.client().await;
    client.batch_execute("BEGIN; LOCK TABLE _changelog").await.unwrap();
    let asked = (0..50).map(|_| store.latest_id());
    assert!(futures_util::future::join_all(asked).await.iter().all(|id| *id == LatestId::Unknown));
    store.down().await;
    // From here on nobody waits, which a runtime that must not be idle shows.
    for _ in 0..50 {
        let answer = store.latest_id();
        assert_eq!(futures_util::FutureExt::now_or_never(answer), Some(LatestId::Unknown));
    }
    client.batch_execute("COMMIT").await.unwrap();
    store.up().await;
    assert_eq!(store.latest_id().await, LatestId::Known(0));
}

#[tokio::test]
async fn a_stopped_store_ends_its_tasks_and_a_forgotten_one_too() {
    let database = Database::new().await;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let stopped = Store::connect(database.url.clone(), StoreTimes::default(), &tasks, &stop);
    stopped.up().await;
    stopped.prepare("wiki").await.unwrap();
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    assert_eq!(stopped.latest_id().await, LatestId::Unknown);

    let tasks = TaskTracker::new();
    let forgotten =
        Store::connect(database.url.clone(), StoreTimes::default(), &tasks, &CancellationToken::new());
    forgotten.up().await;
    drop(forgotten);
    tasks.close();
    tasks.wait().await;
}

#[tokio::test]
async fn no_error_repeats_the_password() {
    let database = Database::new().await;
    let address = database.url.expose();
    let (_, place) = address.rsplit_once('@').unwrap();
    for url in [
        format!("postgresql://agentenv:s3cretpw@{place}"),
        format!("postgresql://agentenv:s3cretpw@{}", place.replace("test_", "none_")),
        "postgresql://agentenv:s3cretpw@127.0.0.1:1/d".to_owned(),
    ] {
        let store = connect(&url.parse().unwrap());
        store.down().await;
        for error in [
            store.prepare("wiki").await.map(drop).unwrap_err(),
            store.changes(0, 1, &Windows::default()).await.map(drop).unwrap_err(),
        ] {
            let mut told = format!("{error} {error:?} {store:?}");
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                told.push_str(&format!("{error} {error:?}"));
                cause = error.source();
            }
            assert!(!told.contains("s3cretpw"), "{told}");
        }
    }
}
