//! The role that may only read, and the transactions in which it does. What is asked is left to `database`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{ANSWER_BYTES, DatabaseError, Rows, statement};
use crate::store::pool::{Pool, Worker};
use crate::store::session::{Session, failure};
use crate::store::{StoreError, StoreTimes, StoreUrl};

/// The role's name.
const ROLE: &str = "agentenv_reader";

/// How often the role is made where others make it at the same time.
const ROLE_TRIES: u32 = 20;

/// How many rows are fetched at once: enough to be quick, few enough to stop in time when they are large.
const FETCHED: i32 = 50;

/// Connections as the role that may only read.
#[derive(Clone)]
pub(super) struct Reader {
    shared: Arc<Shared>,
}

struct Shared {
    owner: StoreUrl,
    password: String,
    pool: Result<Pool, String>,
    has_role: AtomicBool,
    times: StoreTimes,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("store", &self.shared.owner).finish_non_exhaustive()
    }
}

impl Reader {
    pub(super) fn new(
        owner: StoreUrl,
        times: StoreTimes,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        // Whoever looks at one store gives its role one password, without having to agree on it.
        let secret = Sha256::new().chain_update(ROLE).chain_update(owner.password()).finalize();
        let password: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let reader = owner.as_user(ROLE, &password).map_err(|error| error.to_string());
        let pool = reader.map(|reader| Pool::new(reader, times.clone(), tasks, stop));
        let (tasks, stop) = (tasks.clone(), stop.clone());
        let has_role = AtomicBool::new(false);
        Self { shared: Arc::new(Shared { owner, password, pool, has_role, times, tasks, stop }) }
    }

    /// A connection as the role, which is made before the first.
    async fn worker(&self) -> Result<Worker<'_>, DatabaseError> {
        let Shared { pool, has_role, .. } = &*self.shared;
        let pool = pool
            .as_ref()
            .map_err(|message| DatabaseError::Refused { message: message.clone(), hint: None })?;
        if has_role.load(Ordering::Acquire)
            && let Ok(worker) = pool.worker().await
        {
            return Ok(worker);
        }
        // Also when it is gone: a database may be put in another's place.
        self.make_role().await?;
        has_role.store(true, Ordering::Release);
        Ok(pool.worker().await?)
    }

    async fn make_role(&self) -> Result<(), StoreError> {
        let Shared { owner, password, times, tasks, stop, .. } = &*self.shared;
        let session = Session::open(owner, times, times.statement, tasks, stop).await?;
        let sql = format!(
            "BEGIN;
             SELECT pg_advisory_xact_lock(hashtext('agent_env_internal'));
             DO $$ BEGIN
                 IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{ROLE}') THEN
                     CREATE ROLE {ROLE};
                 END IF;
             END $$;
             ALTER ROLE {ROLE} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS CONNECTION LIMIT 20
                 PASSWORD '{password}';
             ALTER ROLE {ROLE} SET default_transaction_read_only = on;
             GRANT pg_read_all_data TO {ROLE};
             COMMIT"
        );
        // The lock is one database's, the role the whole server's, so those of two databases may still meet.
        let making = async {
            let client = session.client();
            for _ in 1..ROLE_TRIES {
                match client.batch_execute(&sql).await {
                    Err(error) if has_lost_a_race(&error) => client.batch_execute("ROLLBACK").await?,
                    made => return made,
                }
            }
            client.batch_execute(&sql).await
        };
        match tokio::time::timeout(times.statement, making).await {
            Ok(made) => made.map_err(|error| failure("make the role that reads", error)),
            Err(_) => Err(StoreError::TimedOut(times.statement)),
        }
    }

    /// Runs `ask` in a read-only transaction that is rolled back, whatever it did to its session's settings too.
    async fn read<T>(
        &self,
        ask: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let time = self.shared.times.statement;
        let mut worker = self.worker().await?;
        let asking = async {
            let client = worker.session.client_mut();
            let transaction =
                client.build_transaction().read_only(true).start().await.map_err(|e| refusal(e, time))?;
            // Nothing that is asked can make the transaction a writing one after its first statement.
            transaction.batch_execute("SELECT 1").await.map_err(|error| refusal(error, time))?;
            let answer = ask(&transaction).await;
            transaction.rollback().await.map_err(|error| refusal(error, time))?;
            // All that outlives a rollback. Writers would wait for one of them.
            client
                .batch_execute("SELECT pg_advisory_unlock_all()")
                .await
                .map_err(|error| refusal(error, time))?;
            answer
        };
        // Postgres's own limit is the first to act; this one is for a network that swallows everything.
        let answer = match tokio::time::timeout(time + Duration::from_secs(1), asking).await {
            Ok(answer) => answer,
            Err(_) => return Err(DatabaseError::TooSlow(time)),
        };
        if !matches!(answer, Err(DatabaseError::Store(_) | DatabaseError::TooSlow(_))) {
            worker.done();
        }
        answer
    }

    /// The one value of a statement of ours that gives JSON text, if it has a row.
    pub(super) async fn value(
        &self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Box<RawValue>>, DatabaseError> {
        let time = self.shared.times.statement;
        self.read(async |transaction| {
            let row = transaction.query_opt(sql, parameters).await.map_err(|error| refusal(error, time))?;
            let Some(row) = row else { return Ok(None) };
            let text: String = row.try_get(0).map_err(|error| refusal(error, time))?;
            Ok(RawValue::from_string(text).ok())
        })
        .await
    }

    /// The lines of a statement that gives one column of text.
    pub(super) async fn text(&self, sql: &str) -> Result<String, DatabaseError> {
        let time = self.shared.times.statement;
        self.read(async |transaction| {
            let rows = transaction.query(sql, &[]).await.map_err(|error| refusal(error, time))?;
            let lines: Result<Vec<String>, _> = rows.iter().map(|row| row.try_get(0)).collect();
            Ok(lines.map_err(|error| refusal(error, time))?.join("\n"))
        })
        .await
    }

    /// The rows of somebody's statement.
    pub(super) async fn rows(&self, sql: &str, limit: usize) -> Result<Rows, DatabaseError> {
        let time = self.shared.times.statement;
        // Each row as the JSON that Postgres makes of it, for we do not know its types. A comment may end the statement,
        // so what follows is on a line of its own.
        let sql = format!(
            "SELECT CASE WHEN octet_length(line) <= {ANSWER_BYTES} THEN line END
             FROM (SELECT row_to_json(asked)::text AS line FROM (\n{}\n) AS asked) AS lines",
            statement(sql)
        );
        self.read(async |transaction| {
            let portal = transaction.bind(&sql, &[]).await.map_err(|error| refusal(error, time))?;
            let (mut rows, mut bytes) = (Vec::new(), 0);
            loop {
                let fetched =
                    transaction.query_portal(&portal, FETCHED).await.map_err(|error| refusal(error, time))?;
                if fetched.is_empty() {
                    return Ok(Rows { rows, truncated: false });
                }
                for row in &fetched {
                    let line: Option<String> = row.try_get(0).map_err(|error| refusal(error, time))?;
                    let line = line.ok_or(DatabaseError::TooLarge)?;
                    bytes += line.len();
                    if rows.len() == limit || bytes > ANSWER_BYTES {
                        return Ok(Rows { rows, truncated: true });
                    }
                    // It is a JSON text of Postgres's own making.
                    rows.extend(RawValue::from_string(line).ok());
                }
            }
        })
        .await
    }
}

/// Whether somebody else made or changed the same role at the same time. Postgres has no code for that of a change.
fn has_lost_a_race(error: &tokio_postgres::Error) -> bool {
    let races = [SqlState::INTERNAL_ERROR, SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_OBJECT];
    error.code().is_some_and(|code| races.contains(code))
}

/// What Postgres's error means to whoever asked.
fn refusal(error: tokio_postgres::Error, time: Duration) -> DatabaseError {
    match error.as_db_error() {
        Some(reason) if *reason.code() == SqlState::QUERY_CANCELED => DatabaseError::TooSlow(time),
        Some(reason) if *reason.code() != SqlState::ADMIN_SHUTDOWN => DatabaseError::Refused {
            message: reason.message().to_owned(),
            hint: reason.hint().map(str::to_owned),
        },
        _ => DatabaseError::Store(failure("answer", error)),
    }
}
