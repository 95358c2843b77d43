//! What reading the changelog's latest id takes, one read after the other, on a runtime such as the gateway's.

use std::time::{Duration, Instant};

use agentenv_gateway::store::{LatestId, Store, StoreTimes, StoreUrl};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{STORE_URL, variable};
use crate::rounds::{median, micros};

const READS: usize = 5_000;

/// How long the store may take to be connected to.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// What was found, in microseconds.
#[derive(Serialize, Deserialize)]
pub(crate) struct IdRead {
    pub(crate) median: f64,
}

pub(super) async fn run() -> anyhow::Result<IdRead> {
    let url = variable(STORE_URL)?.parse::<StoreUrl>()?;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let store = Store::connect(url, StoreTimes::default(), &tasks, &stop);
    tokio::time::timeout(CONNECT_LIMIT, store.up()).await.context("connecting to the store")?;
    // In a task, as calls are.
    tokio::spawn(async move {
        let mut times = Vec::with_capacity(READS);
        for _ in 0..READS {
            let before = Instant::now();
            let id = store.latest_id().await;
            times.push(micros(before.elapsed()));
            ensure!(matches!(id, LatestId::Known(_)), "the store went away");
        }
        Ok(IdRead { median: median(times.into_iter()) })
    })
    .await?
}
