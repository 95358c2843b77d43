//! The wiki on a Postgres of its own, and in memory: both must do the same.

use std::sync::Arc;

use agentenv_gateway::launch::postgres::PrivatePostgres;
use agentenv_protocol::prelude::*;
use agentenv_protocol::standard::clock::TimeSource;
use agentenv_protocol::testing::TestEnv;
use anyhow::Result;
use sqlx::postgres::PgPool;
use wiki::WikiEnv;

/// A clock that stands.
struct Nine;

const NINE: &str = "2026-10-05T09:00:00.250000Z";

impl TimeSource for Nine {
    fn now(&self) -> Option<DateTime> {
        NINE.parse().ok()
    }
}

async fn started(wiki: WikiEnv) -> Result<TestEnv> {
    let env = TestEnv::new(wiki);
    let clock: Arc<dyn TimeSource> = Arc::new(Nine);
    env.runtime().follow(&clock);
    env.runtime().start().await?;
    Ok(env)
}

/// A Postgres with a schema for the wiki, and the address that leads there.
async fn database() -> Result<(PrivatePostgres, String)> {
    let postgres = PrivatePostgres::start(None).await?;
    let admin = PgPool::connect(postgres.url().expose()).await?;
    sqlx::query("CREATE SCHEMA wiki").execute(&admin).await?;
    let url = postgres.url().for_schema("wiki");
    Ok((postgres, url))
}

/// What a wiki does, wherever its pages are.
async fn scene(env: &TestEnv) -> Result<()> {
    let seed = json!({"pages": {
        "Ärzte": {"text": "Dr. Okafor is in on Mondays."},
        "Onboarding": {"text": "Ask Dana for a badge's '%' sign.", "edited_at": "2026-09-01T08:00:00Z"},
        "Travel": {"text": "Book a week ahead.", "edited_at": "2026-09-02T10:30:00.500000Z"},
    }});
    env.add(&seed).await;
    assert_eq!(env.state().await, seed);

    let found = |query| async move {
        let found = env.call("wiki_search", json!({"query": query})).await.value();
        found["pages"].as_object().into_iter().flat_map(|pages| pages.keys().cloned()).collect::<Vec<_>>()
    };
    assert_eq!(found("BADGE'S '%' S").await, ["Onboarding"]);
    assert_eq!(found("ärzte").await, ["Ärzte"]);
    assert_eq!(found("").await, ["Onboarding", "Travel", "Ärzte"]);
    assert!(found("b%e").await.is_empty());

    let edited = env.call("wiki_edit", json!({"title": "Travel", "text": "Book at once."})).await.value();
    assert_eq!(edited, json!({"text": "Book at once.", "edited_at": NINE}));
    env.call("wiki_edit", json!({"title": "Parking", "text": "Level 2."})).await.value();
    assert!(env.call("wiki_edit", json!({"title": " ", "text": ""})).await.error().starts_with("bad_title"));

    // A bad part leaves none of the others behind, and a page that is loaded again is replaced.
    let level = |level: &str| Part::data(&json!({"pages": {"Parking": {"text": level}}}));
    let bad = env.runtime().add(vec![level("?")?, Part::data(&json!({"sites": []}))?]).await;
    assert!(bad.is_err_and(|error| error.to_string().contains("sites")));
    env.runtime().add(vec![level("Level 3.")?, level("Level 4.")?]).await?;
    let state = env.state().await;
    assert_eq!(state["pages"]["Travel"], edited);
    assert_eq!(state["pages"]["Parking"], json!({"text": "Level 4."}));
    assert_eq!(state["pages"].as_object().map(|pages| pages.len()), Some(4));

    env.reset().await;
    assert_eq!(env.state().await, json!({"pages": {}}));
    env.add(&state).await;
    assert_eq!(env.state().await, state);

    env.reset().await;
    let many: serde_json::Map<_, _> =
        (0..10_000).map(|page| (format!("Page {page}"), json!({"text": "x".repeat(100)}))).collect();
    env.add(json!({"pages": many})).await;
    assert_eq!(found("PAGE").await.len(), 20);
    env.reset().await;
    assert!(found("").await.is_empty());
    Ok(())
}

#[tokio::test]
async fn pages_in_memory() -> Result<()> {
    scene(&started(WikiEnv::in_memory()).await?).await
}

#[tokio::test]
async fn pages_in_postgres() -> Result<()> {
    let (postgres, url) = database().await?;
    let env = started(WikiEnv::in_database(&url)).await?;
    scene(&env).await?;
    env.runtime().stop().await?;
    assert!(env.call("wiki_search", json!({"query": ""})).await.is_error());

    // Everything is in the schema of its own, and is found there by the next server.
    let admin = PgPool::connect(postgres.url().expose()).await?;
    sqlx::query("INSERT INTO wiki.pages VALUES ('Kept', 'yes')").execute(&admin).await?;
    let next = started(WikiEnv::in_database(&url)).await?;
    assert_eq!(next.state().await, json!({"pages": {"Kept": {"text": "yes"}}}));
    postgres.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_database_that_cannot_be_is_named_without_its_password() {
    for (url, said) in [
        ("postgresql://wiki:s3cret@127.0.0.1:1/wiki", "DATABASE_URL: no connection to 127.0.0.1:1"),
        ("not an address s3cret", "DATABASE_URL is not a Postgres address"),
    ] {
        let env = TestEnv::new(WikiEnv::in_database(url));
        let error = env.runtime().start().await.unwrap_err().to_string();
        assert!(error.starts_with(said) && !error.contains("s3cret"), "{error}");
        assert!(env.call("wiki_search", json!({"query": ""})).await.error().starts_with("not_open"));
    }
}

#[test]
fn alone_it_asks_for_its_database() {
    let wiki = std::process::Command::new(env!("CARGO_BIN_EXE_wiki")).env_remove("DATABASE_URL").output();
    let wiki = wiki.unwrap();
    assert!(!wiki.status.success());
    assert!(String::from_utf8_lossy(&wiki.stderr).contains("DATABASE_URL is not set"));
}
