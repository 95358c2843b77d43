//! The connection over which the latest id is read: connecting, reconnecting, and one read for all who ask at once.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_postgres::Statement;
use tokio_postgres::error::SqlState;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::session::{Session, failure};
use super::{LatestId, StoreError, StoreTimes, StoreUrl};

/// How many callers may wait to be heard; the next ones wait for room, within their own deadline.
pub(super) const ASKS_WAITING: usize = 1024;

/// What is known of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    /// The first attempt is under way: whoever asks waits for it.
    Connecting,
    /// It answered the last question.
    Up,
    /// It did not.
    Down,
}

/// Why a connection is no longer used.
enum Ended {
    /// Nobody can ask any more.
    Stopped,
    /// It failed.
    Lost(StoreError),
}

type Ask = oneshot::Sender<LatestId>;

/// What the task needs.
pub(super) struct Link {
    pub(super) url: StoreUrl,
    pub(super) times: StoreTimes,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Link {
    /// Serves `asks` until `stop`, or until nobody can ask any more.
    pub(super) async fn run(self, mut asks: mpsc::Receiver<Ask>, state: watch::Sender<LinkState>) {
        let shortest = self.times.pause / 20;
        let mut pause = shortest;
        loop {
            let ended = match self.open().await {
                None => Ended::Stopped,
                Some(Err(error)) => Ended::Lost(error),
                Some(Ok((session, latest))) => {
                    pause = shortest;
                    state.send_replace(LinkState::Up);
                    tracing::info!(store = %self.url, "the state store answers");
                    self.serve(&session, &latest, &mut asks).await
                }
            };
            let Ended::Lost(error) = ended else { return };
            if state.send_replace(LinkState::Down) != LinkState::Down {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(store = %self.url, error, "the state store is down; ids are unknown until it is back");
            }
            if !self.rest(pause, &mut asks).await {
                return;
            }
            pause = (pause * 2).min(self.times.pause);
        }
    }

    /// Opens a connection and reads the id once over it: a store whose changelog is locked is as good as down, and
    /// whoever asks must not find that out by waiting. `None` when stopped.
    async fn open(&self) -> Option<Result<(Session, Latest), StoreError>> {
        let opening = async {
            let session =
                Session::open(&self.url, &self.times, self.times.latest_id, &self.tasks, &self.stop).await?;
            let mut latest = Latest::default();
            self.read(&session, &mut latest).await?;
            Ok((session, latest))
        };
        self.stop.run_until_cancelled(opening).await
    }

    async fn serve(&self, session: &Session, latest: &Latest, asks: &mut mpsc::Receiver<Ask>) -> Ended {
        let mut latest = latest.clone();
        let mut waiting = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ended::Stopped,
                () = session.closed() => return Ended::Lost(StoreError::Unreachable(None)),
                heard = asks.recv_many(&mut waiting, ASKS_WAITING) => if heard == 0 { return Ended::Stopped },
            }
            // Whoever asks from here on waits for the next read.
            match self.read(session, &mut latest).await {
                Ok(id) => {
                    for ask in waiting.drain(..) {
                        // A caller that gave up is no longer there to hear it.
                        let _ = ask.send(LatestId::Known(id));
                    }
                }
                Err(error) => return Ended::Lost(error),
            }
        }
    }

    async fn read(&self, session: &Session, latest: &mut Latest) -> Result<i64, StoreError> {
        match tokio::time::timeout(self.times.latest_id, latest.read(session)).await {
            Ok(read) => read,
            Err(_) => Err(StoreError::TimedOut(self.times.latest_id)),
        }
    }

    /// Waits before the next attempt, answering whoever asked too late to know that the store is down. `false` when there
    /// is to be none.
    async fn rest(&self, pause: Duration, asks: &mut mpsc::Receiver<Ask>) -> bool {
        let over = tokio::time::sleep(pause);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return false,
                () = &mut over => return true,
                ask = asks.recv() => match ask {
                    Some(ask) => drop(ask),
                    None => return false,
                },
            }
        }
    }
}

/// The question, prepared once a connection.
#[derive(Clone, Default)]
struct Latest {
    statement: Option<Statement>,
}

impl Latest {
    async fn read(&mut self, session: &Session) -> Result<i64, StoreError> {
        let read = async {
            let statement = match &self.statement {
                Some(statement) => statement.clone(),
                None => session.client().prepare("SELECT max(id) FROM public._changelog").await?,
            };
            let row = session.client().query_one(&statement, &[]).await?;
            self.statement = Some(statement);
            row.try_get::<_, Option<i64>>(0)
        };
        match read.await {
            Ok(id) => Ok(id.unwrap_or(0)),
            // Nobody has prepared the store yet, so nobody has written to it.
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(0),
            Err(error) => Err(failure("read the latest id of the changelog", error)),
        }
    }
}
