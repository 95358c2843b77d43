//! One Postgres for all the tests of this binary, and a database of its own for each.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentenv_gateway::launch::postgres::PrivatePostgres;
use agentenv_gateway::store::{Store, StoreTimes, StoreUrl};
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The shared server. It lives in a runtime of its own, since each test's ends with the test; the server ends with the
/// process.
fn shared() -> &'static PrivatePostgres {
    static SHARED: OnceLock<(tokio::runtime::Runtime, PrivatePostgres)> = OnceLock::new();
    &SHARED
        .get_or_init(|| {
            std::thread::spawn(|| {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                let postgres = runtime.block_on(PrivatePostgres::start(None)).unwrap();
                (runtime, postgres)
            })
            .join()
            .unwrap()
        })
        .1
}

/// An empty database.
pub(crate) struct Database {
    pub(crate) url: StoreUrl,
}

impl Database {
    pub(crate) async fn new() -> Self {
        let server = tokio::task::spawn_blocking(|| shared().url().clone()).await.unwrap();
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        open(server.expose()).await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let (base, _) = server.expose().rsplit_once('/').unwrap();
        Self { url: format!("{base}/{name}").parse().unwrap() }
    }

    /// A connection as the instance's owner.
    pub(crate) async fn client(&self) -> Client {
        open(self.url.expose()).await
    }

    /// A store that is up.
    pub(crate) async fn store(&self) -> Store {
        let store = connect(&self.url);
        store.up().await;
        store
    }
}

/// A store that pauses so briefly between attempts that tests need not wait for it.
pub(crate) fn connect(url: &StoreUrl) -> Store {
    let mut times = StoreTimes::default();
    times.pause = Duration::from_millis(100);
    Store::connect(url.clone(), times, &TaskTracker::new(), &CancellationToken::new())
}

/// A connection with a server's `DATABASE_URL`.
pub(crate) async fn open(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
