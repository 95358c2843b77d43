//! Pages of the changelog, and who wrote the rows.

use std::sync::Arc;

use agentenv_gateway::store::{Actor, CHANGES_PAGE_MAX, LatestId, Store, Windows};
use serde_json::json;

use crate::server::{Database, open};

fn call(tool: &str) -> Actor {
    Actor::ToolCall {
        event_id: format!("event_{tool}"),
        tool: tool.to_owned(),
        role: "default".to_owned(),
        caused_by: None,
        failed: false,
    }
}

/// The tools of the calls that each row is attributed to, by the row's schema.
async fn attributed(store: &Store, windows: &Windows) -> Vec<(String, Vec<String>)> {
    let page = store.changes(0, CHANGES_PAGE_MAX, windows).await.unwrap();
    let tool = |actor: &Arc<Actor>| match &**actor {
        Actor::ToolCall { tool, .. } => tool.clone(),
        other => panic!("unexpected {other:?}"),
    };
    page.changes.iter().map(|row| (row.schema_name.clone(), row.actors.iter().map(tool).collect())).collect()
}

async fn five_servers(store: &Store) -> Vec<(String, tokio_postgres::Client)> {
    let mut servers = Vec::new();
    for name in ["email", "contacts", "calendar", "wiki", "files"] {
        let client = open(&store.prepare(name).await.unwrap()).await;
        client.batch_execute("CREATE TABLE item (id serial PRIMARY KEY)").await.unwrap();
        store.install(name).await.unwrap();
        servers.push((name.to_owned(), client));
    }
    servers
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_overlap() {
    let store = Database::new().await.store().await;
    let client = open(&store.prepare("email").await.unwrap()).await;
    client.batch_execute("CREATE TABLE item (id int PRIMARY KEY)").await.unwrap();
    store.install("email").await.unwrap();
    client.batch_execute("INSERT INTO item SELECT generate_series(1, 10)").await.unwrap();
    let windows = Windows::default();
    let mut seen = Vec::new();
    let mut pages = Vec::new();
    loop {
        let page = store.changes(seen.last().copied().unwrap_or(0), 5, &windows).await.unwrap();
        seen.extend(page.changes.iter().map(|row| row.id));
        pages.push((page.changes.len(), page.has_more));
        if !page.has_more {
            break;
        }
    }
    assert_eq!(pages, [(5, true), (5, false)]);
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    let past = store.changes(i64::MAX, 5, &windows).await.unwrap();
    assert_eq!(serde_json::to_value(&past).unwrap(), json!({"changes": [], "has_more": false}));
}

#[tokio::test]
async fn a_page_ends_before_it_is_too_big_and_the_next_goes_on() {
    let store = Database::new().await.store().await;
    let client = open(&store.prepare("wiki").await.unwrap()).await;
    client.batch_execute("CREATE TABLE page (id int PRIMARY KEY, text text)").await.unwrap();
    store.install("wiki").await.unwrap();
    client
        .batch_execute("INSERT INTO page SELECT n, repeat('x', 8000000) FROM generate_series(1, 20) AS n")
        .await
        .unwrap();
    let windows = Windows::default();
    let first = store.changes(0, 1000, &windows).await.unwrap();
    assert!(first.has_more && (2..20).contains(&first.changes.len()), "{}", first.changes.len());
    let mut count = first.changes.len();
    let mut page = first;
    while page.has_more {
        page = store.changes(page.changes.last().unwrap().id, 1000, &windows).await.unwrap();
        count += page.changes.len();
    }
    assert_eq!(count, 20);
}

/// The seed's scene, one call at a time: each row names its one call.
#[tokio::test]
async fn calls_in_turn_are_each_the_one_actor_of_their_rows() {
    let store = Database::new().await.store().await;
    let servers = five_servers(&store).await;
    let windows = Arc::new(Windows::default());
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    let mut calls = tokio::task::JoinSet::new();
    for (name, client) in servers {
        let (store, windows, turn) = (store.clone(), windows.clone(), turn.clone());
        calls.spawn(async move {
            for _ in 0..4 {
                let _turn = turn.lock().await;
                let before = store.latest_id().await;
                client.batch_execute("INSERT INTO item DEFAULT VALUES; DELETE FROM item").await.unwrap();
                let after = store.latest_id().await;
                assert!(after > before);
                windows.record(call(&name), before, after);
            }
        });
    }
    calls.join_all().await;
    let rows = attributed(&store, &windows).await;
    assert_eq!(rows.len(), 40);
    for (schema, actors) in rows {
        assert_eq!(actors, [schema]);
    }
}

/// The same side by side: a row may name several calls, the one that wrote it always among them.
#[tokio::test]
async fn calls_side_by_side_are_among_the_actors_of_their_rows() {
    let store = Database::new().await.store().await;
    let servers = five_servers(&store).await;
    let windows = Arc::new(Windows::default());
    let started = Arc::new(tokio::sync::Barrier::new(servers.len()));
    let ended = Arc::new(tokio::sync::Barrier::new(servers.len()));
    let mut calls = tokio::task::JoinSet::new();
    for (name, client) in servers {
        let (store, windows, started, ended) =
            (store.clone(), windows.clone(), started.clone(), ended.clone());
        calls.spawn(async move {
            let before = store.latest_id().await;
            started.wait().await;
            client.batch_execute("INSERT INTO item DEFAULT VALUES").await.unwrap();
            ended.wait().await;
            let after = store.latest_id().await;
            assert_eq!(
                (before, after),
                (LatestId::Known(0), LatestId::Known(5)),
                "none has an id of its own"
            );
            windows.record(call(&name), before, after);
        });
    }
    calls.join_all().await;
    let rows = attributed(&store, &windows).await;
    assert_eq!(rows.len(), 5);
    for (schema, actors) in rows {
        assert_eq!(actors.len(), 5);
        assert!(actors.contains(&schema));
    }
}

#[tokio::test]
async fn a_row_outside_every_window_names_nobody() {
    let store = Database::new().await.store().await;
    let servers = five_servers(&store).await;
    let windows = Windows::default();
    let (_, client) = servers.first().unwrap();
    client.batch_execute("INSERT INTO item DEFAULT VALUES").await.unwrap();
    let before = store.latest_id().await;
    client.batch_execute("INSERT INTO item DEFAULT VALUES").await.unwrap();
    windows.record(call("known"), before, store.latest_id().await);
    windows.record(call("unknown"), LatestId::Unknown, store.latest_id().await);
    let rows = attributed(&store, &windows).await;
    assert_eq!(rows, [("email".to_owned(), vec![]), ("email".to_owned(), vec!["known".to_owned()])]);
}
