//! What the changelog holds: a row for every changed row, in the order of commits.

use agentenv_gateway::store::{Change, LatestId, Store, Windows};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::server::{Database, open};

/// A server's schema with the tables that `tables` makes, watched.
async fn schema(store: &Store, name: &str, tables: &str) -> Client {
    let client = open(&store.prepare(name).await.unwrap()).await;
    client.batch_execute(tables).await.unwrap();
    store.install(name).await.unwrap();
    client
}

async fn changes(store: &Store) -> Vec<Change> {
    store.changes(0, 10_000, &Windows::default()).await.unwrap().changes
}

/// What happened to which row, in order.
async fn told(store: &Store) -> Vec<(String, String, String, Option<String>)> {
    let row = |change: Change| (change.schema_name, change.table_name, change.operation, change.row_id);
    changes(store).await.into_iter().map(row).collect()
}

fn fields(change: &Change) -> Value {
    change.changed_fields.as_ref().map_or(Value::Null, |fields| serde_json::from_str(fields.get()).unwrap())
}

#[tokio::test]
async fn a_changed_row_is_told_as_the_contract_has_it() {
    let store = Database::new().await.store().await;
    let client =
        schema(&store, "email", "CREATE TABLE mail (id serial PRIMARY KEY, subject text, read bool)").await;
    client
        .batch_execute(
            "INSERT INTO mail (subject, read) VALUES ('Hello', false);
             UPDATE mail SET read = true;
             UPDATE mail SET subject = NULL, id = 7;
             DELETE FROM mail",
        )
        .await
        .unwrap();
    let changes = changes(&store).await;
    assert_eq!(changes.iter().map(|change| change.id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(changes.iter().all(|change| change.schema_name == "email" && change.table_name == "mail"));
    assert_eq!(
        changes.iter().map(|change| change.operation.as_str()).collect::<Vec<_>>(),
        ["INSERT", "UPDATE", "UPDATE", "DELETE"]
    );
    assert_eq!(
        changes.iter().map(|change| change.row_id.as_deref()).collect::<Vec<_>>(),
        [Some("1"), Some("1"), Some("7"), Some("7")]
    );
    assert_eq!(
        changes.iter().map(fields).collect::<Vec<_>>(),
        [
            json!({"id": 1, "subject": "Hello", "read": false}),
            json!({"read": {"old": false, "new": true}}),
            json!({"id": {"old": 1, "new": 7}, "subject": {"old": "Hello", "new": null}}),
            json!({"id": 7, "subject": null, "read": true}),
        ]
    );
    let written = serde_json::to_value(&changes[1]).unwrap();
    let timestamp = written["timestamp"].as_str().unwrap();
    assert_eq!(timestamp.len(), "2026-10-05T09:00:00.144000+00:00".len());
    assert!(timestamp.ends_with("+00:00"), "{timestamp}");
    assert_eq!(
        written.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>(),
        [
            "id",
            "timestamp",
            "schema_name",
            "table_name",
            "operation",
            "row_id",
            "summary",
            "changed_fields",
            "actors"
        ]
    );
    assert_eq!(written["summary"], "read: false -> true");
}

#[tokio::test]
async fn rows_are_named_whatever_their_key_and_their_tables_names() {
    let store = Database::new().await.store().await;
    let name = "it's \"odd\" \\ schema";
    let client = schema(
        &store,
        name,
        r#"CREATE TABLE "Two ""keys""" ("B" text, a int, x int, PRIMARY KEY ("B", a));
           CREATE TABLE none (x int);
           CREATE TABLE bare (id uuid);
           CREATE TABLE "a'b" ("it's" text PRIMARY KEY);"#,
    )
    .await;
    client
        .batch_execute(
            r#"INSERT INTO "Two ""keys""" VALUES ('x,1', 1, 5);
               UPDATE "Two ""keys""" SET a = 2;
               INSERT INTO none VALUES (1);
               INSERT INTO bare VALUES ('00000000-0000-0000-0000-000000000001');
               INSERT INTO "a'b" VALUES ('key'); 
               TRUNCATE "Two ""keys""", none, bare, "a'b""#,
        )
        .await
        .unwrap();
    let told = told(&store).await;
    assert!(told.iter().all(|row| row.0 == name));
    let named: Vec<(&str, &str, Option<Value>)> = told
        .iter()
        .map(|(_, table, operation, row)| {
            let row = row.as_ref().map(|row| serde_json::from_str(row).unwrap_or_else(|_| json!(row)));
            (table.as_str(), operation.as_str(), row)
        })
        .collect();
    let uuid = json!("00000000-0000-0000-0000-000000000001");
    assert_eq!(
        named,
        [
            ("Two \"keys\"", "INSERT", Some(json!({"B": "x,1", "a": 1}))),
            ("Two \"keys\"", "UPDATE", Some(json!({"B": "x,1", "a": 2}))),
            ("none", "INSERT", None),
            ("bare", "INSERT", Some(uuid.clone())),
            ("a'b", "INSERT", Some(json!("key"))),
            ("Two \"keys\"", "DELETE", Some(json!({"B": "x,1", "a": 2}))),
            ("none", "DELETE", None),
            ("bare", "DELETE", Some(uuid)),
            ("a'b", "DELETE", Some(json!("key"))),
        ]
    );
}

#[tokio::test]
async fn values_of_every_kind_are_kept_and_none_fails_the_write() {
    let store = Database::new().await.store().await;
    let client = schema(
        &store,
        "wiki",
        "CREATE TABLE page (id int PRIMARY KEY, tags text[], doc jsonb, raw json, big text, exact numeric, bytes bytea)",
    )
    .await;
    let big = "é".repeat(500_000);
    client
        .execute(
            "INSERT INTO page VALUES (1, ARRAY['a', NULL, 'b\"c'], '{\"k\": [1, null]}', NULL, $1,
             12345678901234567890.0123456789, '\\x00ff')",
            &[&big],
        )
        .await
        .unwrap();
    // Text that JSON may hold and jsonb may not.
    client.batch_execute(r#"INSERT INTO page (id, raw) VALUES (2, '{"nul": "\u0000"}')"#).await.unwrap();
    client.batch_execute("DELETE FROM page WHERE id = 2; UPDATE page SET big = big || 'x'").await.unwrap();
    client
        .batch_execute(r#"INSERT INTO page (id, raw) VALUES (3, '"\u0000"'); TRUNCATE page"#)
        .await
        .unwrap();
    let changes = changes(&store).await;
    let first = changes[0].changed_fields.as_ref().unwrap().get();
    assert!(first.contains("12345678901234567890.0123456789"), "digits are kept");
    let first = fields(&changes[0]);
    assert_eq!(first["tags"], json!(["a", null, "b\"c"]));
    assert_eq!(first["doc"], json!({"k": [1, null]}));
    assert_eq!(first["big"].as_str().unwrap(), big);
    assert_eq!(first["bytes"], "\\x00ff");
    assert_eq!(fields(&changes[1]), Value::Null);
    assert!(changes[1].summary.starts_with("insert of a row that cannot be shown"), "{}", changes[1].summary);
    assert_eq!(fields(&changes[3])["big"]["new"].as_str().unwrap().len(), big.len() + 1);
    let operations: Vec<&str> = changes.iter().map(|change| change.operation.as_str()).collect();
    assert_eq!(operations, ["INSERT", "INSERT", "DELETE", "UPDATE", "INSERT", "DELETE", "DELETE"]);
}

#[tokio::test]
async fn only_what_was_committed_is_told_and_two_schemas_share_a_transaction() {
    let store = Database::new().await.store().await;
    let table = "CREATE TABLE item (id int PRIMARY KEY)";
    let client = schema(&store, "email", table).await;
    schema(&store, "wiki", table).await;
    client.batch_execute("BEGIN; INSERT INTO item VALUES (1); ROLLBACK").await.unwrap();
    assert_eq!(store.latest_id().await, LatestId::Known(0));
    client
        .batch_execute(
            "BEGIN;
             SAVEPOINT early; INSERT INTO email.item VALUES (1); ROLLBACK TO early;
             INSERT INTO email.item VALUES (2);
             SAVEPOINT late; INSERT INTO wiki.item VALUES (3), (4); RELEASE late;
             SAVEPOINT lost; INSERT INTO wiki.item VALUES (5); ROLLBACK TO lost;
             INSERT INTO email.item VALUES (6);
             COMMIT",
        )
        .await
        .unwrap();
    // A statement that fails takes its rows with it, and the session goes on.
    client.batch_execute("INSERT INTO email.item VALUES (7), (2)").await.unwrap_err();
    client.batch_execute("INSERT INTO email.item VALUES (8)").await.unwrap();
    let told: Vec<String> =
        told(&store).await.into_iter().map(|row| format!("{} {}", row.0, row.3.unwrap())).collect();
    assert_eq!(told, ["email 2", "wiki 3", "wiki 4", "email 6", "email 8"]);
    assert_eq!(store.latest_id().await, LatestId::Known(5), "a rolled-back transaction takes no ids");
}

#[tokio::test]
async fn a_transaction_that_commits_later_has_the_higher_ids() {
    let database = Database::new().await;
    let store = database.store().await;
    let early = schema(&store, "email", "CREATE TABLE item (id int PRIMARY KEY)").await;
    let late = open(&store.prepare("email").await.unwrap()).await;
    early.batch_execute("BEGIN; INSERT INTO item VALUES (1)").await.unwrap();
    // An open transaction keeps nobody from writing.
    late.batch_execute("INSERT INTO item VALUES (2)").await.unwrap();
    assert_eq!(store.latest_id().await, LatestId::Known(1));
    early.batch_execute("INSERT INTO item VALUES (3); COMMIT").await.unwrap();
    let rows: Vec<String> = told(&store).await.into_iter().filter_map(|row| row.3).collect();
    assert_eq!(rows, ["2", "1", "3"]);
}

#[tokio::test]
async fn checking_constraints_early_keeps_the_order_too() {
    let store = Database::new().await.store().await;
    let client = schema(&store, "email", "CREATE TABLE item (id int PRIMARY KEY)").await;
    client
        .batch_execute(
            "BEGIN; INSERT INTO item VALUES (1); SET CONSTRAINTS ALL IMMEDIATE;
             INSERT INTO item VALUES (2); INSERT INTO item VALUES (3), (4); COMMIT",
        )
        .await
        .unwrap();
    let changes = changes(&store).await;
    assert_eq!(changes.iter().map(|change| change.id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(
        changes.iter().filter_map(|change| change.row_id.clone()).collect::<Vec<_>>(),
        ["1", "2", "3", "4"]
    );
}

/// Ten writers commit transactions of several rows while a reader pages through them: it must see every row once, and
/// never one below what it has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_goes_on_from_the_last_id_misses_nothing_of_concurrent_writers() {
    const WRITERS: i32 = 10;
    const TRANSACTIONS: i32 = 20;
    let store = Database::new().await.store().await;
    schema(&store, "email", "CREATE TABLE item (id int PRIMARY KEY, part int)").await;
    let url = store.prepare("email").await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let client = open(&url).await;
        writers.spawn(async move {
            for number in 0..TRANSACTIONS {
                let id = (writer * TRANSACTIONS + number) * 3;
                client
                    .batch_execute(&format!(
                        "BEGIN; INSERT INTO item VALUES ({id}, 0); INSERT INTO item VALUES ({id} + 1, 1), ({id} + 2, 2);
                         {}",
                        if number % 5 == 4 { "ROLLBACK" } else { "COMMIT" }
                    ))
                    .await
                    .unwrap();
            }
        });
    }
    let windows = Windows::default();
    let mut read: Vec<(i64, i32)> = Vec::new();
    loop {
        let written = writers.is_empty();
        let after = read.last().map_or(0, |row| row.0);
        let page = store.changes(after, 7, &windows).await.unwrap();
        read.extend(
            page.changes.iter().map(|row| (row.id, row.row_id.as_ref().unwrap().parse::<i32>().unwrap())),
        );
        if written && !page.has_more {
            break;
        }
        while writers.try_join_next().is_some() {}
    }
    let committed = WRITERS * TRANSACTIONS * 4 / 5 * 3;
    assert_eq!(read.len(), usize::try_from(committed).unwrap());
    assert!(read.windows(2).all(|pair| pair[0].0 < pair[1].0), "ids only rise");
    // A transaction's rows follow each other, in the order in which it wrote them.
    for rows in read.chunks(3) {
        assert!(rows[0].1 % 3 == 0 && rows[1].1 == rows[0].1 + 1 && rows[2].1 == rows[0].1 + 2, "{rows:?}");
    }
}

/// Two transactions that take the same rows in turn wait for each other; the changelog must not make that a deadlock.
#[tokio::test]
async fn the_changelog_adds_no_deadlock() {
    let store = Database::new().await.store().await;
    let first = schema(&store, "email", "CREATE TABLE item (id int PRIMARY KEY, x int)").await;
    first.batch_execute("INSERT INTO item VALUES (1, 0), (2, 0)").await.unwrap();
    let second = open(&store.prepare("email").await.unwrap()).await;
    first.batch_execute("BEGIN; UPDATE item SET x = 1 WHERE id = 1").await.unwrap();
    second.batch_execute("UPDATE item SET x = 2 WHERE id = 2").await.unwrap();
    first.batch_execute("UPDATE item SET x = 1 WHERE id = 2; COMMIT").await.unwrap();
    let rows: Vec<String> = told(&store).await.into_iter().filter_map(|row| row.3).collect();
    assert_eq!(rows, ["1", "2", "2", "1", "2"]);
}

#[tokio::test]
async fn installing_again_begins_that_schema_anew_and_no_other() {
    let store = Database::new().await.store().await;
    let table = "CREATE TABLE item (id int PRIMARY KEY)";
    let email = schema(&store, "email", table).await;
    let wiki = schema(&store, "wiki", table).await;
    email.batch_execute("INSERT INTO item VALUES (1)").await.unwrap();
    wiki.batch_execute(
        "INSERT INTO item VALUES (1); CREATE TABLE later (id int); INSERT INTO later VALUES (1)",
    )
    .await
    .unwrap();
    assert_eq!(told(&store).await.len(), 2, "a table is watched from the next installation on");
    store.install("wiki").await.unwrap();
    wiki.batch_execute("INSERT INTO later VALUES (2); INSERT INTO item VALUES (2)").await.unwrap();
    let told: Vec<String> =
        told(&store).await.into_iter().map(|row| format!("{}.{} {}", row.0, row.1, row.3.unwrap())).collect();
    assert_eq!(told, ["email.item 1", "wiki.later 2", "wiki.item 2"]);
}

#[tokio::test]
async fn partitions_and_truncated_tables_are_told_row_by_row() {
    let store = Database::new().await.store().await;
    let client = schema(
        &store,
        "email",
        "CREATE TABLE mail (id int, day int) PARTITION BY LIST (day);
         CREATE TABLE monday PARTITION OF mail FOR VALUES IN (1);
         CREATE TABLE tuesday PARTITION OF mail FOR VALUES IN (2);
         CREATE TABLE empty (id int)",
    )
    .await;
    store.install("email").await.unwrap();
    client
        .batch_execute(
            "INSERT INTO mail VALUES (1, 1), (2, 2); TRUNCATE empty;
             BEGIN; TRUNCATE empty; TRUNCATE mail; INSERT INTO mail VALUES (3, 1); COMMIT;
             BEGIN; TRUNCATE mail; ROLLBACK",
        )
        .await
        .unwrap();
    let told: Vec<String> =
        told(&store).await.into_iter().map(|row| format!("{} {} {}", row.2, row.1, row.3.unwrap())).collect();
    assert_eq!(
        told,
        ["INSERT monday 1", "INSERT tuesday 2", "DELETE monday 1", "DELETE tuesday 2", "INSERT monday 3"]
    );
}

/// A changelog as another implementation of the contract prepares it: its own function under the triggers' name, which
/// takes the table's default id at once.
const ANOTHER: &str = r#"
    CREATE SCHEMA IF NOT EXISTS agent_env_internal;
    CREATE SEQUENCE IF NOT EXISTS agent_env_internal._changelog_id_seq;
    CREATE TABLE IF NOT EXISTS public._changelog (
        id bigint PRIMARY KEY DEFAULT nextval('agent_env_internal._changelog_id_seq'),
        "timestamp" timestamptz NOT NULL DEFAULT now(), schema_name text NOT NULL, table_name text NOT NULL,
        operation text NOT NULL, row_id text, summary text NOT NULL, changed_fields jsonb
    );
    CREATE OR REPLACE FUNCTION public._changelog_trigger_fn() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtext('public._changelog'));
        INSERT INTO public._changelog (schema_name, table_name, operation, row_id, summary)
        VALUES (TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP, NEW.id::text, 'theirs');
        RETURN NEW;
    END $$;
    CREATE OR REPLACE FUNCTION public._install_changelog_triggers(_schema_name text) RETURNS void
    LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('DROP TRIGGER IF EXISTS _changelog_trigger ON %I.item', _schema_name);
        EXECUTE format('CREATE TRIGGER _changelog_trigger AFTER INSERT OR UPDATE OR DELETE ON %I.item
                        FOR EACH ROW EXECUTE FUNCTION public._changelog_trigger_fn()', _schema_name);
    END $$;
"#;

#[tokio::test]
async fn a_database_that_another_implementation_prepared_is_gone_on_with_and_the_other_way_round() {
    let database = Database::new().await;
    let owner = database.client().await;
    owner
        .batch_execute(&format!(
            "{ANOTHER}; CREATE SCHEMA email; CREATE TABLE email.item (id int PRIMARY KEY);
             SELECT _install_changelog_triggers('email'); INSERT INTO email.item VALUES (1)"
        ))
        .await
        .unwrap();
    let store = database.store().await;
    assert_eq!(store.latest_id().await, LatestId::Known(1));

    // Ours replaces the function; the triggers that the other made use it.
    store.prepare("email").await.unwrap();
    owner.batch_execute("INSERT INTO email.item VALUES (2)").await.unwrap();
    store.install("email").await.unwrap();
    owner.batch_execute("INSERT INTO email.item VALUES (3)").await.unwrap();
    assert_eq!(told(&store).await.len(), 1, "once a row, and anew since the installation");

    // The other replaces it again, and its installer is called.
    owner
        .batch_execute(&format!(
            "{ANOTHER}; INSERT INTO email.item VALUES (4); SELECT _install_changelog_triggers('email');
             INSERT INTO email.item VALUES (5)"
        ))
        .await
        .unwrap();
    let changes = changes(&store).await;
    assert_eq!(changes.iter().map(|change| change.id).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(
        changes.iter().map(|change| change.summary.as_str()).collect::<Vec<_>>(),
        [r#"insert {"id": 3}"#, "theirs", "theirs"]
    );
}

#[tokio::test]
async fn preparing_and_installing_at_once_is_no_trouble() {
    let store = Database::new().await.store().await;
    let prepared = ["a", "b", "c", "a", "b"].map(|name| store.prepare(name));
    for url in futures_util::future::join_all(prepared).await {
        open(&url.unwrap()).await;
    }
    let installed = ["a", "b", "c", "a", "nowhere"].map(|name| store.install(name));
    for done in futures_util::future::join_all(installed).await {
        done.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_may_not_write_to_the_changelog_is_watched_all_the_same() {
    let database = Database::new().await;
    let store = database.store().await;
    let owner = schema(&store, "email", "CREATE TABLE item (id int PRIMARY KEY)").await;
    owner
        .batch_execute(
            "CREATE ROLE limited; GRANT USAGE ON SCHEMA email TO limited; GRANT ALL ON email.item TO limited;
             SET ROLE limited; INSERT INTO email.item VALUES (1); RESET ROLE; DROP OWNED BY limited; DROP ROLE limited",
        )
        .await
        .unwrap();
    assert_eq!(told(&store).await.len(), 1);
}
