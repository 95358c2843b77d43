//! One connection to the store, and the task that drives it. Which statements run on it is left to the other modules.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::{StoreError, StoreTimes, StoreUrl};

/// An open connection; dropping it closes the socket, whatever runs on it.
pub(crate) struct Session {
    client: Client,
    closed: CancellationToken,
    _driver: DropGuard,
}

impl Session {
    /// Connects, with `statement` as the server's own limit for each statement, so that what we gave up on ends there too.
    pub(crate) async fn open(
        url: &StoreUrl,
        times: &StoreTimes,
        statement: Duration,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self, StoreError> {
        let mut config = url.config().clone();
        config.connect_timeout(times.connect).tcp_user_timeout(times.connect.max(times.statement));
        if config.get_application_name().is_none() {
            config.application_name("agentenv-gateway");
        }
        let opening = async {
            let (client, connection) =
                config.connect(NoTls).await.map_err(|error| failure("connect", error))?;
            let driver = stop.child_token();
            let closed = CancellationToken::new();
            let session = Self { client, closed: closed.clone(), _driver: driver.clone().drop_guard() };
            tasks.spawn(async move {
                let _ends = closed.drop_guard();
                if let Some(Err(error)) = driver.run_until_cancelled(connection).await {
                    tracing::debug!(%error, "a connection to the state store broke");
                }
            });
            let limit =
                format!("SET statement_timeout = {}; SET lock_timeout = 0", statement.as_millis().max(1));
            session.client.batch_execute(&limit).await.map_err(|error| failure("set a time limit", error))?;
            Ok(session)
        };
        match tokio::time::timeout(times.connect, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(StoreError::TimedOut(times.connect)),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// What a failed statement means. `what` completes "refused to …".
pub(crate) fn failure(what: &str, error: tokio_postgres::Error) -> StoreError {
    match error.as_db_error() {
        // The server is going down or coming up: the same as not reaching it.
        Some(reason)
            if [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW]
                .contains(reason.code()) =>
        {
            StoreError::Unreachable(Some(error))
        }
        Some(reason) => {
            StoreError::Refused { what: what.to_owned(), message: reason.message().to_owned(), source: error }
        }
        None => StoreError::Unreachable(Some(error)),
    }
}
