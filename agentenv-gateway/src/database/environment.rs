//! The database's MCP server: tools by which a person or a program at the harness's side looks at the state. What they
//! ask is left to `database`.

use agentenv_protocol::prelude::*;
use serde_json::value::RawValue;

use super::{Database, DatabaseError, ROWS, Rows};

/// The instance's database, to be read and not to be changed.
#[environment_card(name = "database")]
pub struct DatabaseEnv {
    database: Database,
}

impl DatabaseEnv {
    /// An environment that looks at a database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

/// How a statement would be run.
#[derive(Debug, Serialize)]
struct Plan {
    /// Postgres's lines.
    plan: String,
}

#[environment]
impl DatabaseEnv {
    /// List the schemas, one for each server, and their tables with an estimate of their rows.
    #[tool(read_only)]
    async fn list_schemas(&self) -> Result<Box<RawValue>, ToolError> {
        Ok(self.database.schemas().await?)
    }

    /// Describe a table: its columns, keys, constraints and indexes.
    #[tool(read_only)]
    async fn describe_table(
        &self,
        /// The schema, named like its server.
        schema: String,
        table: String,
    ) -> Result<Box<RawValue>, ToolError> {
        Ok(self.database.table(&schema, &table).await?)
    }

    /// Run one SELECT (or WITH, VALUES, TABLE) and get its rows. Name tables with their schemas. Nothing can be changed.
    #[tool(read_only)]
    async fn query(
        &self,
        /// The statement, in Postgres's SQL.
        sql: String,
        /// How many rows to get at most: 100 unless given, up to 1000.
        limit: Option<u32>,
    ) -> Result<Rows, ToolError> {
        Ok(self.database.query(&sql, rows(limit)).await?)
    }

    /// Show how Postgres would run a statement, without running it.
    #[tool(read_only)]
    async fn explain(
        &self,
        /// The statement, in Postgres's SQL.
        sql: String,
    ) -> Result<Plan, ToolError> {
        Ok(Plan { plan: self.database.explain(&sql).await? })
    }

    /// Read the changelog: which rows of the servers' tables were inserted, updated and deleted, in the order of commits.
    #[tool(read_only)]
    async fn read_changelog(
        &self,
        /// Only changes after this id: 0, the beginning, unless given.
        after_id: Option<i64>,
        /// How many changes to get at most: 100 unless given, up to 1000.
        limit: Option<u32>,
    ) -> Result<Rows, ToolError> {
        Ok(self.database.changelog(after_id.unwrap_or_default(), rows(limit)).await?)
    }
}

fn rows(limit: Option<u32>) -> usize {
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(ROWS)
}

impl From<DatabaseError> for ToolError {
    fn from(error: DatabaseError) -> Self {
        let message = error.to_string();
        match error {
            DatabaseError::Refused { hint, .. } => {
                let refused = Self::new("query_failed", message);
                match hint {
                    Some(hint) => refused.with_hint(hint),
                    None => refused,
                }
            }
            DatabaseError::TooSlow(_) => {
                Self::new("too_slow", message).with_hint("ask for less, or use explain")
            }
            DatabaseError::TooLarge => {
                Self::new("too_large", message).with_hint("name fewer columns, or cut them with left()")
            }
            DatabaseError::NoTable { .. } => {
                Self::new("no_such_table", message).with_hint("list_schemas names them all")
            }
            DatabaseError::Store(_) => Self::new("store_unavailable", message).retryable(),
        }
    }
}
