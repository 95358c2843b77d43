//! Connections for work that may take long: few, opened when needed, kept when idle. What runs on them is left to others.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::session::Session;
use super::{StoreError, StoreTimes, StoreUrl};

/// How many connections a pool may hold at once.
const AT_ONCE: usize = 4;

/// How many it keeps when they are idle.
const IDLE_KEPT: usize = 2;

/// A pool of connections to one address.
pub(crate) struct Pool {
    url: StoreUrl,
    times: StoreTimes,
    tasks: TaskTracker,
    stop: CancellationToken,
    workers: Semaphore,
    idle: Mutex<Vec<Session>>,
}

impl Pool {
    pub(crate) fn new(
        url: StoreUrl,
        times: StoreTimes,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            url,
            times,
            tasks: tasks.clone(),
            stop: stop.clone(),
            workers: Semaphore::new(AT_ONCE),
            idle: Mutex::default(),
        }
    }

    pub(crate) fn url(&self) -> &StoreUrl {
        &self.url
    }

    pub(crate) fn times(&self) -> &StoreTimes {
        &self.times
    }

    /// Borrows a connection, opening one if none is idle.
    pub(crate) async fn worker(&self) -> Result<Worker<'_>, StoreError> {
        let permit = tokio::time::timeout(self.times.statement, self.workers.acquire()).await;
        let Ok(Ok(permit)) = permit else { return Err(StoreError::TimedOut(self.times.statement)) };
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(session) if session.is_closed() => {}
                Some(session) => return Ok(Worker { session, pool: self, _permit: permit }),
                None => break,
            }
        }
        let session =
            Session::open(&self.url, &self.times, self.times.statement, &self.tasks, &self.stop).await?;
        Ok(Worker { session, pool: self, _permit: permit })
    }
}

/// A borrowed connection. It is closed unless its work is [`done`](Self::done): whatever failed or was dropped half-way
/// may have left a statement running on it.
pub(crate) struct Worker<'a> {
    pub(crate) session: Session,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Worker<'_> {
    pub(crate) fn done(self) {
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_KEPT {
            idle.push(self.session);
        }
    }
}
