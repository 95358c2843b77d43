//! Accepting connections: bounded in number, the longest-lived making room for new ones, and ended gracefully. What happens on
//! one is `connection`'s.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt;
use futures_util::future::Either;
use http::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, Handler};
use crate::mcp::server::{Endpoint, Service};

/// How long calls under way may take to end once the server is told to stop (contract 10).
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Most connections at a time. Where there is one more, the oldest is closed as soon as it is idle.
pub const CONNECTION_LIMIT: usize = 8_192;

/// How long to wait before accepting again where the machine has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection that was told to make room has for it before the next is told.
const ROOM_PAUSE: Duration = Duration::from_millis(10);

/// Serves a router until `stop` is cancelled, then lets what is under way end, for at most [`SHUTDOWN_GRACE`]: requests, and
/// the tasks of `tracker`, which outlive the connections that began them.
///
/// # Errors
/// The listener's address cannot be read: it is no listener.
pub async fn serve_router(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    tracker: TaskTracker,
) -> io::Result<()> {
    serve_all(listener, by_route(router), stop, tracker).await
}

/// [`serve_router`] with an MCP endpoint before the router: `/mcp`, where nearly all requests go, is not looked up among the
/// routes.
///
/// # Errors
/// As [`serve_router`].
pub async fn serve_endpoint<S: Service>(
    listener: TcpListener,
    endpoint: Arc<Endpoint<S>>,
    router: Router,
    stop: CancellationToken,
    tracker: TaskTracker,
) -> io::Result<()> {
    let others = by_route(router);
    let handler = service_fn(move |request: Request<Incoming>| match request.uri().path() {
        "/mcp" => Either::Left(Arc::clone(&endpoint).handle(request).map(Ok)),
        _ => Either::Right(others.call(request)),
    });
    serve_all(listener, handler, stop, tracker).await
}

/// Answers each request by its route. The routes are made into services here, once, and not for each request.
fn by_route(router: Router) -> TowerToHyperService<Router> {
    TowerToHyperService::new(router.with_state(()))
}

async fn serve_all(
    listener: TcpListener,
    handler: impl Handler,
    stop: CancellationToken,
    tracker: TaskTracker,
) -> io::Result<()> {
    listener.local_addr()?;
    let mut open = Connections::new(connection_limit());
    // Dropped where `stop` is cancelled: a connection that has no place yet is not served.
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (permit, told) = open.place().await;
                    spawn(stream, handler.clone(), told, permit, &open.tasks);
                }
                // A client that is gone already says nothing of the listener; anything else may pass.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    open.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = accept => {}
    }
    drop(listener);
    open.oldest.clear();
    tracker.close();
    open.tasks.close();
    let all = async {
        open.tasks.wait().await;
        tracker.wait().await;
    };
    if tokio::time::timeout(SHUTDOWN_GRACE, all).await.is_err() {
        tracing::warn!(seconds = SHUTDOWN_GRACE.as_secs(), "stopped with calls still under way");
    }
    Ok(())
}

fn spawn(
    stream: TcpStream,
    handler: impl Handler,
    told: oneshot::Receiver<()>,
    permit: OwnedSemaphorePermit,
    tasks: &TaskTracker,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    tasks.spawn(async move {
        let _permit = permit;
        // Word that comes when its sender is dropped: the server stops.
        let end = async {
            let _ = told.await;
        };
        connection::serve(stream, handler, end).await;
    });
}

/// The connections that there are.
struct Connections {
    limit: usize,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Tells a connection to end, the oldest first. Some may have ended.
    oldest: VecDeque<oneshot::Sender<()>>,
}

impl Connections {
    fn new(limit: usize) -> Self {
        let permits = Arc::new(Semaphore::new(limit));
        Self { limit, permits, tasks: TaskTracker::new(), oldest: VecDeque::new() }
    }

    /// Waits for a place for one more, and has others make room for it.
    async fn place(&mut self) -> (OwnedSemaphorePermit, oneshot::Receiver<()>) {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                break permit;
            }
            self.make_room();
            let waiting = Arc::clone(&self.permits).acquire_owned();
            if let Ok(Ok(permit)) = tokio::time::timeout(ROOM_PAUSE, waiting).await {
                break permit;
            }
        };
        if self.oldest.len() >= 2 * self.limit {
            self.oldest.retain(|connection| !connection.is_closed());
        }
        let (tell, told) = oneshot::channel();
        self.oldest.push_back(tell);
        (permit, told)
    }

    /// Tells the oldest connection that has not been told yet to end.
    fn make_room(&mut self) {
        while self.oldest.pop_front().is_some_and(|connection| connection.send(()).is_err()) {}
    }
}

/// As many connections as the machine lets us have files, less some for children, files and the database.
fn connection_limit() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files
        .and_then(|n| usize::try_from(n).ok())
        .map_or(CONNECTION_LIMIT, |n| (n * 3 / 4).clamp(16, CONNECTION_LIMIT))
}

/// Resolves when the process is told to stop: by SIGTERM, or by Ctrl-C. A second signal ends the process at once.
///
/// # Errors
/// The handlers cannot be installed.
pub fn stop_on_signal() -> io::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        for second in [false, true] {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            if second {
                std::process::exit(1);
            }
            told.cancel();
        }
    });
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_makes_room() {
        let mut open = Connections::new(2);
        let (first, told) = open.place().await;
        let (_second, mut second_told) = open.place().await;
        let oldest = tokio::spawn(async move {
            told.await.unwrap();
            drop(first);
        });
        let (third, mut third_told) = open.place().await;
        oldest.await.unwrap();
        assert!(second_told.try_recv().is_err() && third_told.try_recv().is_err(), "one is enough");
        // The next oldest is busy, so the one behind it is told, too.
        tokio::spawn(async move {
            third_told.await.unwrap();
            drop(third);
        });
        drop(open.place().await);
        assert!(second_told.try_recv().is_ok());
    }

    #[tokio::test]
    async fn those_that_have_ended_are_forgotten() {
        let mut open = Connections::new(2);
        for _ in 0..100 {
            drop(open.place().await);
        }
        assert!(open.oldest.len() <= 4);
    }
}
