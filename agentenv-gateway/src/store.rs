//! The state store: one Postgres for an instance (contract 8). Each server has a schema in it, and every row that a
//! server changes lands in a changelog whose ids tie calls to rows.
//!
//! This module owns the connection, the changelog and who wrote what; when ids are read and windows recorded is left to
//! the pipeline, and who serves `GET /changes` to the HTTP layer. Starting a Postgres is left to
//! [`launch::postgres`](crate::launch::postgres).
//!
//! A store never stops anything: [`Store::connect`] returns at once, a task connects and reconnects for as long as the
//! instance lives, and an id that cannot be read within a second is [`LatestId::Unknown`].

mod changelog;
mod changes;
mod link;
pub(crate) mod pool;
pub(crate) mod session;
mod url;
mod windows;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::changes::{CHANGES_PAGE, CHANGES_PAGE_MAX, Change, ChangesPage};
use self::link::{Link, LinkState};
use self::pool::Pool;
pub(crate) use self::url::quoted;
pub use self::url::{StoreUrl, StoreUrlError};
pub use self::windows::{Actor, WINDOWS_KEPT, Windows, WrittenRequest};

/// How long things may take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreTimes {
    /// A read of the latest id, from asking to answer (1 s, contract 8).
    pub latest_id: Duration,
    /// Opening a connection (5 s).
    pub connect: Duration,
    /// A statement of a page of changes, of preparing or of installing (30 s).
    pub statement: Duration,
    /// The longest pause between two attempts to connect (2 s); the first is a twentieth of it.
    pub pause: Duration,
}

impl Default for StoreTimes {
    fn default() -> Self {
        Self {
            latest_id: Duration::from_secs(1),
            connect: Duration::from_secs(5),
            statement: Duration::from_secs(30),
            pause: Duration::from_secs(2),
        }
    }
}

/// The latest id of the changelog, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LatestId {
    /// Nobody asked, the store could not be asked, or it did not answer in time.
    Unknown,
    /// The same, by whoever knows which id was the highest before ([`Windows::heard`]).
    Since(i64),
    /// The highest id; 0 while the changelog is empty.
    Known(i64),
}

impl LatestId {
    /// The id as the wire has it (`changelog_id`, contract 4.3): `MAX(id)`, so `None` while it is unknown or the
    /// changelog is empty.
    pub fn value(self) -> Option<i64> {
        match self {
            Self::Known(id) if id > 0 => Some(id),
            _ => None,
        }
    }
}

impl Serialize for LatestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

/// Why the store could not do something. Names neither its address nor its password.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be reached, or went away.
    #[error("the state store is not reachable")]
    Unreachable(#[source] Option<tokio_postgres::Error>),
    /// It did not answer in time.
    #[error("the state store did not answer within {0:?}")]
    TimedOut(Duration),
    /// It refused.
    #[error("the state store refused to {what}: {message}")]
    Refused {
        /// What was asked of it.
        what: String,
        /// Its own words.
        message: String,
        /// The whole error.
        #[source]
        source: tokio_postgres::Error,
    },
}

/// A handle on the state store; clones share the connection. See the [module](self).
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool,
    asks: mpsc::Sender<oneshot::Sender<LatestId>>,
    state: watch::Receiver<LinkState>,
}

impl Store {
    /// Begins to connect and returns at once. The connection is kept up by a task on `tasks` until `stop` is cancelled
    /// or the last handle is dropped.
    ///
    /// Must be called within a tokio runtime.
    pub fn connect(url: StoreUrl, times: StoreTimes, tasks: &TaskTracker, stop: &CancellationToken) -> Self {
        let (asks, asked) = mpsc::channel(link::ASKS_WAITING);
        let (told, state) = watch::channel(LinkState::Connecting);
        let stop = stop.child_token();
        let link = Link { url: url.clone(), times: times.clone(), tasks: tasks.clone(), stop: stop.clone() };
        tasks.spawn(link.run(asked, told));
        let shared = Shared { pool: Pool::new(url, times, tasks, &stop), asks, state };
        Self { shared: Arc::new(shared) }
    }

    /// The store's address.
    pub fn url(&self) -> &StoreUrl {
        self.shared.pool.url()
    }

    /// Whether the last that was heard of the store is that it answers.
    pub fn is_up(&self) -> bool {
        *self.shared.state.borrow() == LinkState::Up
    }

    /// Waits until the store answers; for ever if it never does.
    pub async fn up(&self) {
        self.reached(LinkState::Up).await;
    }

    /// Waits until the store is known not to answer.
    pub async fn down(&self) {
        self.reached(LinkState::Down).await;
    }

    async fn reached(&self, wanted: LinkState) {
        let mut state = self.shared.state.clone();
        if state.wait_for(|state| *state == wanted).await.is_err() {
            // The store was stopped: what is waited for never comes.
            std::future::pending::<()>().await;
        }
    }

    /// The highest id of the changelog, read after this was called.
    ///
    /// Answers within [`StoreTimes::latest_id`], and at once while the store is down. Callers that ask while a read is
    /// under way share the next one: a read that began before a call ended says nothing of what that call wrote.
    pub async fn latest_id(&self) -> LatestId {
        if *self.shared.state.borrow() == LinkState::Down {
            return LatestId::Unknown;
        }
        let ask = async {
            let (answer, answered) = oneshot::channel();
            self.shared.asks.send(answer).await.ok()?;
            answered.await.ok()
        };
        let read = tokio::time::timeout(self.shared.pool.times().latest_id, ask).await;
        read.ok().flatten().unwrap_or(LatestId::Unknown)
    }

    /// Makes the store ready for the server `name` and answers its `DATABASE_URL` (contract 8): the changelog exists, and
    /// a schema named like the server. Changes nothing that is there already.
    ///
    /// # Errors
    /// When the store is down, too slow, or refuses.
    pub async fn prepare(&self, name: &str) -> Result<String, StoreError> {
        let pool = &self.shared.pool;
        let worker = pool.worker().await?;
        changelog::prepare(&worker.session, pool.times(), name).await?;
        worker.done();
        Ok(pool.url().for_schema(name))
    }

    /// Begins the changelog of a server's schema anew, once data is loaded into it (contract 8): its earlier rows are
    /// forgotten, and every table that it has now is watched. Waits for transactions that hold those tables.
    ///
    /// # Errors
    /// When the store is down, too slow, or refuses. Nothing has changed then.
    pub async fn install(&self, name: &str) -> Result<(), StoreError> {
        let pool = &self.shared.pool;
        let worker = pool.worker().await?;
        changelog::install(&worker.session, pool.times(), name).await?;
        worker.done();
        Ok(())
    }

    /// The rows of the changelog after `after_id`, at most `limit` of them, in ascending order of id, each with the
    /// actors whose windows hold it (contract 8).
    ///
    /// A page also ends, with `has_more`, once it is about 64 MiB. Because ids are given in the order of commits, going on
    /// from a page's last id leaves nothing out.
    ///
    /// # Errors
    /// When the store is down, too slow, or refuses.
    pub async fn changes(
        &self,
        after_id: i64,
        limit: usize,
        windows: &Windows,
    ) -> Result<ChangesPage, StoreError> {
        let pool = &self.shared.pool;
        let worker = pool.worker().await?;
        let (page, reusable) = changes::page(&worker.session, pool.times(), after_id, limit, windows).await?;
        if reusable {
            worker.done();
        }
        Ok(page)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("url", self.url()).field("up", &self.is_up()).finish_non_exhaustive()
    }
}
