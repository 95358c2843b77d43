//! A page of the changelog with each row's actors (contract 8).

use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::TryStreamExt;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::session::{Session, failure};
use super::windows::{Actor, Windows};
use super::{StoreError, StoreTimes};
use crate::time::wall_text;

/// How many rows a page has unless the caller says (contract 10).
pub const CHANGES_PAGE: usize = 1_000;

/// How many rows a page has at most (contract 10).
pub const CHANGES_PAGE_MAX: usize = 10_000;

/// Past this many bytes a page ends: ten thousand rows of a megabyte each must not be one answer.
const PAGE_BYTES: usize = 64 * 1024 * 1024;

const ROWS: &str = r#"SELECT id, "timestamp", schema_name, table_name, operation, row_id, summary, changed_fields::text
    FROM public._changelog WHERE id > $1 ORDER BY id LIMIT $2"#;

/// A changed row of a server's table.
#[derive(Debug, Serialize)]
pub struct Change {
    /// Its id, in the order of commits.
    pub id: i64,
    /// When the transaction that changed it began: RFC 3339 with microseconds and `+00:00`.
    pub timestamp: Timestamp,
    /// The schema, named like the server.
    pub schema_name: String,
    /// The table.
    pub table_name: String,
    /// `INSERT`, `UPDATE` or `DELETE`.
    pub operation: String,
    /// The primary key's value, or JSON of a composite one.
    pub row_id: Option<String>,
    /// What happened, for a person.
    pub summary: String,
    /// The row for an insert or a delete, `{column: {"old", "new"}}` for an update; `null` for a row that JSON cannot hold.
    pub changed_fields: Option<Box<RawValue>>,
    /// Whose windows hold it, in the order in which they ended.
    pub actors: Vec<Arc<Actor>>,
}

/// A page of the changelog, as `GET /changes` answers it.
#[derive(Debug, Serialize)]
pub struct ChangesPage {
    /// The rows, in ascending order of id.
    pub changes: Vec<Change>,
    /// Whether there are more after the last.
    pub has_more: bool,
}

/// A moment, written as RFC 3339 with microseconds and `+00:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp(pub SystemTime);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Only a row written by hand can be out of range; it must not take the page with it.
        let moment = jiff::Timestamp::try_from(self.0).unwrap_or(jiff::Timestamp::MAX);
        serializer.serialize_str(&wall_text(moment))
    }
}

/// Reads a page, and says whether the connection can be used again.
pub(super) async fn page(
    session: &Session,
    times: &StoreTimes,
    after_id: i64,
    limit: usize,
    windows: &Windows,
) -> Result<(ChangesPage, bool), StoreError> {
    match tokio::time::timeout(times.statement, read(session, after_id, limit, windows)).await {
        Ok(Ok(read)) => Ok(read),
        // Nobody has prepared the store yet, so nobody has written to it.
        Ok(Err(error)) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
            Ok((ChangesPage { changes: Vec::new(), has_more: false }, true))
        }
        Ok(Err(error)) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
            Err(StoreError::TimedOut(times.statement))
        }
        Ok(Err(error)) => Err(failure("read the changelog", error)),
        Err(_) => Err(StoreError::TimedOut(times.statement)),
    }
}

async fn read(
    session: &Session,
    after_id: i64,
    limit: usize,
    windows: &Windows,
) -> Result<(ChangesPage, bool), tokio_postgres::Error> {
    let limit = limit.min(CHANGES_PAGE_MAX);
    let one_more = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let parameters: [&(dyn ToSql + Sync); 2] = [&after_id, &one_more];
    let mut rows = pin!(session.client().query_raw(ROWS, parameters).await?);
    let mut sweep = windows.sweep(after_id);
    let mut changes: Vec<Change> = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.try_next().await? {
        if changes.len() == limit {
            return Ok((ChangesPage { changes, has_more: true }, true));
        }
        let id: i64 = row.try_get(0)?;
        let actors: Vec<Arc<Actor>> = sweep.actors(id).cloned().collect();
        let fields: Option<String> = row.try_get(7)?;
        // An actor takes about 150 bytes in the answer.
        bytes += 200 + fields.as_ref().map_or(0, String::len) + 150 * actors.len();
        if bytes > PAGE_BYTES && !changes.is_empty() {
            // The rest of the rows is still on its way: the connection goes, rather than reading it for nobody.
            return Ok((ChangesPage { changes, has_more: true }, false));
        }
        changes.push(Change {
            id,
            timestamp: Timestamp(row.try_get(1)?),
            schema_name: row.try_get(2)?,
            table_name: row.try_get(3)?,
            operation: row.try_get(4)?,
            row_id: row.try_get(5)?,
            summary: row.try_get(6)?,
            // It is the text of a jsonb, so it is JSON.
            changed_fields: fields.and_then(|fields| RawValue::from_string(fields).ok()),
            actors,
        });
    }
    Ok((ChangesPage { changes, has_more: false }, true))
}
