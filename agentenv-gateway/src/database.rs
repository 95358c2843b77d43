//! Looking at an instance's state without being able to change it: an MCP server ([`DatabaseEnv`]) and a web page
//! ([`router`]) over the state store. Keeping the state is left to the servers, and noting its changes to
//! [`store`](crate::store).
//!
//! That nothing can be changed is Postgres's doing, not ours: what is asked runs as a role that may only read, in a
//! read-only transaction that is always rolled back, within a time limit, a row limit and a size limit.

mod environment;
mod page;
mod reader;

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::environment::DatabaseEnv;
pub use self::page::router;
use self::reader::Reader;
use crate::store::{StoreError, StoreTimes, StoreUrl, quoted};

/// How long what is asked may take, unless said otherwise.
pub const QUERY_TIME: Duration = Duration::from_secs(10);

/// How many rows an answer has unless the caller says.
pub const ROWS: usize = 100;

/// How many rows an answer has at most.
pub const ROWS_MAX: usize = 1_000;

/// Past this many bytes of rows an answer ends.
pub const ANSWER_BYTES: usize = 1024 * 1024;

/// A state store, to be looked at. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Database {
    reader: Reader,
}

/// Rows, each a JSON object of column to value.
#[derive(Debug, Serialize)]
pub struct Rows {
    /// The rows.
    pub rows: Vec<Box<RawValue>>,
    /// Whether there are more than were asked for, or than fit.
    pub truncated: bool,
}

/// Why a question has no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// Postgres does not do that.
    #[error("{message}")]
    Refused {
        /// Postgres's own words.
        message: String,
        /// What it advises.
        hint: Option<String>,
    },
    /// It took too long.
    #[error("it takes more than {} s", .0.as_secs())]
    TooSlow(Duration),
    /// A row does not fit into an answer.
    #[error("a row is larger than {ANSWER_BYTES} bytes")]
    TooLarge,
    /// There is no such thing.
    #[error("there is no table \"{schema}\".\"{table}\"")]
    NoTable {
        /// The schema.
        schema: String,
        /// The table.
        table: String,
    },
    /// The store cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Schemas and their tables, without what is Postgres's own.
const SCHEMAS: &str = "
    SELECT json_build_object('schemas', coalesce(json_agg(json_build_object(
        'name', nspname,
        'tables', (
            SELECT coalesce(json_agg(json_build_object(
                'name', relname,
                'kind', CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' ELSE 'table' END,
                'rows', CASE WHEN reltuples >= 0 THEN reltuples::bigint END
            ) ORDER BY relname), '[]')
            FROM pg_class WHERE relnamespace = pg_namespace.oid AND relkind IN ('r', 'p', 'v', 'm', 'f')
        )
    ) ORDER BY nspname), '[]'))::text
    FROM pg_namespace
    WHERE nspname NOT LIKE 'pg\\_%' AND nspname NOT IN ('information_schema', 'agent_env_internal')";

/// A table's columns and keys.
const TABLE: &str = "
    SELECT json_build_object(
        'schema', $1::text,
        'table', $2::text,
        'columns', (
            SELECT coalesce(json_agg(json_build_object(
                'name', attname,
                'type', format_type(atttypid, atttypmod),
                'nullable', NOT attnotnull,
                'default', pg_get_expr(adbin, adrelid),
                'description', col_description(attrelid, attnum)
            ) ORDER BY attnum), '[]')
            FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
            WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped
        ),
        'primary_key', (
            SELECT coalesce(json_agg(attname ORDER BY place), '[]')
            FROM pg_index
            CROSS JOIN LATERAL unnest(indkey) WITH ORDINALITY AS part(attnum, place)
            JOIN pg_attribute AS attribute ON attrelid = indrelid AND attribute.attnum = part.attnum
            WHERE indrelid = class.oid AND indisprimary
        ),
        'constraints', (
            SELECT coalesce(json_agg(json_build_object('name', conname, 'definition', pg_get_constraintdef(oid))
                                     ORDER BY conname), '[]')
            FROM pg_constraint WHERE conrelid = class.oid
        ),
        'indexes', (
            SELECT coalesce(json_agg(pg_get_indexdef(indexrelid) ORDER BY indexrelid), '[]')
            FROM pg_index WHERE indrelid = class.oid
        ),
        'description', obj_description(class.oid, 'pg_class')
    )::text
    FROM pg_class AS class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relname = $2 AND relkind IN ('r', 'p', 'v', 'm', 'f')";

impl Database {
    /// The state store at an address, as its owner: the role that reads is made as soon as somebody asks. `time` is how
    /// long what is asked may take, [`QUERY_TIME`] for most.
    pub fn new(owner: StoreUrl, time: Duration, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let times = StoreTimes { statement: time, ..StoreTimes::default() };
        Self { reader: Reader::new(owner, times, tasks, stop) }
    }

    /// `{"schemas": [{"name", "tables": [{"name", "kind", "rows"}]}]}`; `rows` is Postgres's estimate, `null` when it has
    /// none.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn schemas(&self) -> Result<Box<RawValue>, DatabaseError> {
        self.reader.value(SCHEMAS, &[]).await?.ok_or(DatabaseError::TooLarge)
    }

    /// `{"schema", "table", "columns": [{"name", "type", "nullable", "default", "description"}], "primary_key",
    /// "constraints", "indexes", "description"}`.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn table(&self, schema: &str, table: &str) -> Result<Box<RawValue>, DatabaseError> {
        let found = self.reader.value(TABLE, &[&schema, &table]).await?;
        found.ok_or_else(|| DatabaseError::NoTable { schema: schema.to_owned(), table: table.to_owned() })
    }

    /// The rows of one SELECT (or WITH, VALUES, TABLE), at most `limit` and [`ROWS_MAX`] of them.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn query(&self, sql: &str, limit: usize) -> Result<Rows, DatabaseError> {
        self.reader.rows(sql, limit.min(ROWS_MAX)).await
    }

    /// How Postgres would run a statement, which it does not.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn explain(&self, sql: &str) -> Result<String, DatabaseError> {
        self.reader.text(&format!("EXPLAIN (VERBOSE, SETTINGS) {}", statement(sql))).await
    }

    /// A table's rows in the order of its primary key, past the first `skip`.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn table_rows(
        &self,
        schema: &str,
        table: &str,
        skip: usize,
        limit: usize,
    ) -> Result<Rows, DatabaseError> {
        #[derive(serde::Deserialize)]
        struct Keys {
            primary_key: Vec<String>,
        }
        let about = self.table(schema, table).await?;
        let keys = serde_json::from_str::<Keys>(about.get()).map(|keys| keys.primary_key).unwrap_or_default();
        let mut sql = format!("SELECT * FROM {}.{}", quoted(schema), quoted(table));
        if !keys.is_empty() {
            sql.push_str(" ORDER BY ");
            sql.push_str(&keys.iter().map(|key| quoted(key)).collect::<Vec<_>>().join(", "));
        }
        self.query(&format!("{sql} OFFSET {skip}"), limit).await
    }

    /// The changelog's rows after an id (contract 8), without their actors. None while nothing has prepared it.
    ///
    /// # Errors
    /// [`DatabaseError`]
    pub async fn changelog(&self, after_id: i64, limit: usize) -> Result<Rows, DatabaseError> {
        match self.table("public", "_changelog").await {
            Err(DatabaseError::NoTable { .. }) => Ok(Rows { rows: Vec::new(), truncated: false }),
            Err(error) => Err(error),
            Ok(_) => {
                let sql = format!("SELECT * FROM public._changelog WHERE id > {after_id} ORDER BY id");
                self.query(&sql, limit).await
            }
        }
    }
}

/// A statement without the semicolons that end it, for it stands within another.
fn statement(sql: &str) -> &str {
    sql.trim_end_matches(|c: char| c.is_whitespace() || c == ';')
}
