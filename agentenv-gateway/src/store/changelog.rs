//! The changelog's SQL and its installation (contract 8). What a row holds stands in `changelog.sql`.

use tokio_postgres::error::SqlState;

use super::session::{Session, failure};
use super::url::quoted;
use super::{StoreError, StoreTimes};

/// The table, its functions and its trigger; see the file.
const CHANGELOG: &str = include_str!("changelog.sql");

/// Only one at a time may define functions: Postgres fails the second of two that do.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(hashtext('agent_env_internal'))";

/// Makes the changelog and the schema `name`, each unless it is there.
pub(super) async fn prepare(session: &Session, times: &StoreTimes, name: &str) -> Result<(), StoreError> {
    let sql =
        format!("BEGIN; {ONE_AT_A_TIME}; {CHANGELOG}; CREATE SCHEMA IF NOT EXISTS {}; COMMIT", quoted(name));
    run(session, times, "prepare a schema", &sql).await
}

/// Watches every table of the schema `name`, beginning anew.
pub(super) async fn install(session: &Session, times: &StoreTimes, name: &str) -> Result<(), StoreError> {
    let schema = format!("'{}'", name.replace('\'', "''"));
    // A name with a backslash must mean itself whatever the server's settings.
    let sql = format!(
        "BEGIN; SET LOCAL standard_conforming_strings = on; SET LOCAL client_min_messages = warning; \
         {ONE_AT_A_TIME}; {CHANGELOG}; SELECT public._install_changelog_triggers({schema}); COMMIT"
    );
    run(session, times, "install the changelog", &sql).await
}

async fn run(session: &Session, times: &StoreTimes, what: &str, sql: &str) -> Result<(), StoreError> {
    match tokio::time::timeout(times.statement, session.client().batch_execute(sql)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
            Err(StoreError::TimedOut(times.statement))
        }
        Ok(Err(error)) => Err(failure(what, error)),
        Err(_) => Err(StoreError::TimedOut(times.statement)),
    }
}
