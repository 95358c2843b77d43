//! The database to be looked at: what is asked is answered, and nothing can be changed.

use std::time::Duration;

use agentenv_gateway::database::{ANSWER_BYTES, Database, DatabaseEnv, DatabaseError, QUERY_TIME, router};
use agentenv_gateway::store::StoreUrl;
use agentenv_protocol::EnvRuntime;
use agentenv_protocol::environment::CallRequest;
use agentenv_protocol::mcp::server::EndpointOptions;
use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::server::{self, open};

fn look(url: &StoreUrl, time: Duration) -> Database {
    Database::new(url.clone(), time, &TaskTracker::new(), &CancellationToken::new())
}

/// A database with a schema `wiki` of two pages, and one to look at it.
async fn wiki() -> (server::Database, Database) {
    let database = server::Database::new().await;
    let store = database.store().await;
    let client = open(&store.prepare("wiki").await.unwrap()).await;
    client
        .batch_execute(
            "CREATE TABLE page (id int PRIMARY KEY, title text NOT NULL DEFAULT 'none', tags text[], at timestamptz);
             COMMENT ON COLUMN page.title IS 'what it is about';
             CREATE VIEW titles AS SELECT title FROM page",
        )
        .await
        .unwrap();
    store.install("wiki").await.unwrap();
    client
        .batch_execute("INSERT INTO page VALUES (2, '<b>two</b>', ARRAY['x'], NULL), (1, 'one', NULL, NULL)")
        .await
        .unwrap();
    let database_to_look_at = look(&database.url, QUERY_TIME);
    (database, database_to_look_at)
}

fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

async fn rows(database: &Database, sql: &str) -> Result<Vec<Value>, DatabaseError> {
    Ok(database.query(sql, 100).await?.rows.iter().map(|row| value(row)).collect())
}

#[tokio::test]
async fn schemas_and_tables_are_described() {
    let (_kept, database) = wiki().await;
    let schemas = value(&database.schemas().await.unwrap());
    let names: Vec<&str> =
        schemas["schemas"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["public", "wiki"]);
    let tables = &schemas["schemas"][1]["tables"];
    assert_eq!((&tables[0]["name"], &tables[0]["kind"]), (&json!("page"), &json!("table")));
    assert_eq!((&tables[1]["name"], &tables[1]["kind"]), (&json!("titles"), &json!("view")));

    let page = value(&database.table("wiki", "page").await.unwrap());
    assert_eq!(page["primary_key"], json!(["id"]));
    assert_eq!(
        page["columns"][1],
        json!({"name": "title", "type": "text", "nullable": false, "default": "'none'::text",
               "description": "what it is about"})
    );
    let missing = database.table("wiki", "nothing").await.unwrap_err();
    assert_eq!(missing.to_string(), "there is no table \"wiki\".\"nothing\"");
}

#[tokio::test]
async fn rows_come_as_postgres_has_them_and_end_in_time() {
    let (_kept, database) = wiki().await;
    let all = rows(&database, "SELECT * FROM wiki.page ORDER BY id -- all of them\n ; ").await.unwrap();
    assert_eq!(
        all,
        [
            json!({"id": 1, "title": "one", "tags": null, "at": null}),
            json!({"id": 2, "title": "<b>two</b>", "tags": ["x"], "at": null})
        ]
    );
    let exact = database.query("SELECT 12345678901234567890.0123456789 AS n", 1).await.unwrap();
    assert_eq!(exact.rows[0].get(), r#"{"n":12345678901234567890.0123456789}"#);
    for (sql, count) in
        [("VALUES (1), (2)", 2), ("TABLE wiki.page", 2), ("WITH x AS (SELECT 1) SELECT * FROM x", 1)]
    {
        assert_eq!(rows(&database, sql).await.unwrap().len(), count, "{sql}");
    }
    let some = database.query("SELECT generate_series(1, 1000000000) AS n", 120).await.unwrap();
    assert_eq!((some.rows.len(), some.truncated), (120, true));
    let exactly = database.query("SELECT generate_series(1, 100)", 100).await.unwrap();
    assert_eq!((exactly.rows.len(), exactly.truncated), (100, false));
    let large = database.query("SELECT repeat('x', 300000) FROM generate_series(1, 10)", 10).await.unwrap();
    assert!(large.truncated && large.rows.len() == ANSWER_BYTES / 300_020, "{}", large.rows.len());
    let too_large = database.query("SELECT repeat('x', 2000000)", 10).await.unwrap_err();
    assert!(matches!(too_large, DatabaseError::TooLarge), "{too_large}");
}

#[tokio::test]
async fn nothing_can_be_changed() {
    let (kept, database) = wiki().await;
    for sql in [
        "DELETE FROM wiki.page",
        "DELETE FROM wiki.page RETURNING id",
        "WITH gone AS (DELETE FROM wiki.page RETURNING id) SELECT * FROM gone",
        "SELECT 1); DELETE FROM wiki.page; SELECT (1",
        "SELECT 1) AS a) AS b; DELETE FROM wiki.page; --",
        "SELECT 1; DELETE FROM wiki.page",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "SELECT setval('agent_env_internal._changelog_id_seq', 1000)",
        "SELECT nextval('agent_env_internal._changelog_id_seq')",
        "SELECT * FROM wiki.page FOR UPDATE",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'agentenv'",
        "SELECT public._install_changelog_triggers('wiki')",
        "COPY wiki.page TO PROGRAM 'true'",
        "COMMIT",
        "RESET ROLE",
        "CREATE TABLE wiki.mine (id int)",
    ] {
        let refused = database.query(sql, 10).await;
        assert!(matches!(refused, Err(DatabaseError::Refused { .. })), "{sql}: {refused:?}");
    }
    for sql in ["ANALYZE DELETE FROM wiki.page", "SELECT 1; DELETE FROM wiki.page"] {
        let refused = database.explain(sql).await;
        assert!(matches!(refused, Err(DatabaseError::Refused { .. })), "{sql}: {refused:?}");
    }
    // What a statement sets is gone with it, and so are its locks, on whichever connection the next one runs.
    for _ in 0..5 {
        rows(&database, "SELECT set_config('statement_timeout', '0', false), pg_advisory_lock(7)")
            .await
            .unwrap();
        rows(&database, "SELECT set_config('default_transaction_read_only', 'off', false)").await.unwrap();
    }
    let settings = "SELECT current_setting('statement_timeout') AS time, current_user AS role,
                    current_setting('transaction_read_only') AS read_only,
                    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') AS locks";
    assert_eq!(
        rows(&database, settings).await.unwrap(),
        [json!({"time": "10s", "role": "agentenv_reader", "read_only": "on", "locks": 0})]
    );
    let owner = kept.client().await;
    assert_eq!(owner.query_one("SELECT count(*) FROM wiki.page", &[]).await.unwrap().get::<_, i64>(0), 2);
    assert_eq!(owner.query_one("SELECT max(id) FROM _changelog", &[]).await.unwrap().get::<_, i64>(0), 2);
}

#[tokio::test]
async fn what_takes_too_long_is_ended_and_the_next_is_answered() {
    let (kept, _) = wiki().await;
    let database = look(&kept.url, Duration::from_millis(200));
    for sql in ["SELECT pg_sleep(100)", "SELECT count(*) FROM generate_series(1, 100000000000)"] {
        let error = database.query(sql, 1).await.unwrap_err();
        assert!(matches!(error, DatabaseError::TooSlow(_)), "{error}");
    }
    assert_eq!(rows(&database, "SELECT 1 AS one").await.unwrap(), [json!({"one": 1})]);
}

#[tokio::test]
async fn two_that_look_at_one_store_share_its_role() {
    let (kept, database) = wiki().await;
    rows(&database, "SELECT 1").await.unwrap();
    rows(&look(&kept.url, QUERY_TIME), "SELECT 1").await.unwrap();
    rows(&database, "SELECT 1").await.unwrap();
}

#[tokio::test]
async fn all_databases_of_one_server_share_its_role() {
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(wiki().await.0);
    }
    for _ in 0..10 {
        let looks: Vec<_> = stores.iter().map(|kept| look(&kept.url, QUERY_TIME)).collect();
        for answer in join_all(looks.iter().map(|database| rows(database, "SELECT 1"))).await {
            answer.unwrap();
        }
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_said_to_be() {
    let database = look(&"postgresql://agentenv:s3cret@127.0.0.1:1/agentenv".parse().unwrap(), QUERY_TIME);
    let error = database.schemas().await.unwrap_err();
    assert!(matches!(error, DatabaseError::Store(_)), "{error}");
    assert!(!format!("{error} {error:?} {database:?}").contains("s3cret"));
}

#[tokio::test]
async fn the_tools_answer_as_tools_do() {
    let (_kept, database) = wiki().await;
    let runtime = EnvRuntime::new(DatabaseEnv::new(database)).unwrap();
    assert!(runtime.tools().iter().all(|tool| tool.read_only));
    let call = async |tool: &str, arguments: Value| {
        let arguments = serde_json::value::to_raw_value(&arguments).unwrap();
        let result = runtime.call_tool(CallRequest::new(tool, Some(&arguments))).await;
        serde_json::from_str::<Value>(result.raw().as_str()).unwrap()
    };
    let names: Vec<&str> = runtime.tools().iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["list_schemas", "describe_table", "query", "explain", "read_changelog"]);
    assert_eq!(call("list_schemas", json!({})).await["structuredContent"]["schemas"][1]["name"], "wiki");
    let described = call("describe_table", json!({"schema": "wiki", "table": "page"})).await;
    assert_eq!(described["structuredContent"]["primary_key"], json!(["id"]));
    let asked = call("query", json!({"sql": "SELECT id FROM wiki.page ORDER BY id", "limit": 1})).await;
    assert_eq!(asked["structuredContent"], json!({"rows": [{"id": 1}], "truncated": true}));
    let plan = call("explain", json!({"sql": "SELECT * FROM wiki.page;"})).await;
    assert!(plan["structuredContent"]["plan"].as_str().unwrap().contains("Seq Scan on wiki.page"), "{plan}");
    let changes = call("read_changelog", json!({"after_id": 1})).await;
    assert_eq!(changes["structuredContent"]["rows"][0]["row_id"], "1");
    let wrong = call("query", json!({"sql": "SELECT nothing"})).await;
    assert_eq!(wrong["isError"], true);
    assert_eq!(wrong["structuredContent"]["code"], "query_failed");
    assert_eq!(wrong["structuredContent"]["message"], "column \"nothing\" does not exist");
}

#[tokio::test]
async fn the_page_shows_what_there_is_and_runs_none_of_it() {
    let (kept, database) = wiki().await;
    kept.client()
        .await
        .batch_execute(
            r#"CREATE SCHEMA "<x>"; CREATE TABLE "<x>"."a/b" (n int); INSERT INTO "<x>"."a/b" SELECT generate_series(1, 60)"#,
        )
        .await
        .unwrap();
    let pages = router(database, EndpointOptions::default()).unwrap();
    let page = async |path: &str| {
        let response = pages.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        (head, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
    };
    let (head, index) = page("/db").await;
    assert_eq!(head.status, StatusCode::OK);
    assert!(
        head.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'none'")
    );
    assert!(index.contains("<h2>wiki</h2>") && index.contains("<h2>&lt;x&gt;</h2>"), "{index}");
    assert!(index.contains("href=\"/db/table/%3Cx%3E/a%2Fb\""), "{index}");

    let (_, pages_table) = page("/db/table/wiki/page").await;
    assert!(pages_table.contains("<td>&lt;b&gt;two&lt;/b&gt;</td>"), "{pages_table}");
    assert!(pages_table.contains("<td class=\"null\">null</td>") && !pages_table.contains("more rows"));
    let (_, first) = page("/db/table/%3Cx%3E/a%2Fb").await;
    assert!(
        first.contains("href=\"/db/table/%3Cx%3E/a%2Fb?skip=50\"") && !first.contains("<td>51</td>"),
        "{first}"
    );
    let (_, second) = page("/db/table/%3Cx%3E/a%2Fb?skip=50").await;
    assert!(
        second.contains("<td>51</td>") && !second.contains("<td>50</td>") && !second.contains("more rows")
    );
    let (_, changes) = page("/db/changelog?after_id=1").await;
    assert!(changes.contains("<th>operation</th>") && changes.contains("<td>INSERT</td>"), "{changes}");
    let (head, missing) = page("/db/table/wiki/none").await;
    assert_eq!(head.status, StatusCode::NOT_FOUND);
    assert!(missing.contains("there is no table"));
    let (head, card) = page("/db/.well-known/agent-env.json").await;
    assert_eq!(head.status, StatusCode::OK);
    assert!(card.contains("\"read_changelog\""));
}
