//! Waiting for the children (contract 3.1): all at once, each up to its time, with a line now and then on who is still
//! awaited; and trying those again that an instance may begin without.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::catalog::ChildTools;
use crate::instance::Inner;
use crate::upstream::{Remote, Upstream};

/// How long a child may take to list its tools (contract 10).
pub const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a child is asked whether it is ready.
const POLL: Duration = Duration::from_millis(100);

/// How often the log says who is awaited.
const PROGRESS: Duration = Duration::from_secs(5);

/// The longest pause before a missing child is tried again.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Waits for every child and lists its tools.
///
/// # Errors
/// A line for each child that did not come up, unless `allow_missing`: then they are tried again in the background.
pub(crate) async fn bring_up(
    inner: &Arc<Inner>,
    timeout: Duration,
    allow_missing: bool,
) -> Result<(), Vec<String>> {
    let mut waiting: JoinSet<(usize, ChildTools)> = JoinSet::new();
    for index in 0..inner.children.len() {
        let inner = Arc::clone(inner);
        waiting.spawn(async move { (index, first_list(&inner, index, timeout).await) });
    }
    let mut awaited: Vec<_> = inner.children.iter().map(|child| child.name.clone()).collect();
    let mut progress = tokio::time::interval_at(Instant::now() + PROGRESS, PROGRESS);
    progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut faults = Vec::new();
    while !waiting.is_empty() {
        let done = tokio::select! {
            done = waiting.join_next() => done,
            _ = progress.tick() => {
                tracing::info!(children = awaited.join(", "), "waiting for children");
                continue;
            }
        };
        let Some(Ok((index, tools))) = done else { continue };
        let Some(child) = inner.children.get(index) else { continue };
        awaited.retain(|name| *name != child.name);
        if let ChildTools::Unknown(why) = &tools {
            faults.push(format!("{}: {why}", child.name));
            if allow_missing {
                tracing::error!(child = child.name, why, "serving without a child");
                inner.background.spawn(retry(Arc::downgrade(inner), inner.stop.clone(), index));
            }
        }
        inner.learn(index, tools);
    }
    if faults.is_empty() || allow_missing { Ok(()) } else { Err(faults) }
}

async fn first_list(inner: &Inner, index: usize, timeout: Duration) -> ChildTools {
    let Some(child) = inner.children.get(index) else {
        return ChildTools::Unknown("no such child".to_owned());
    };
    let ready = match &child.upstream {
        Upstream::Remote(remote) => ready(remote, timeout).await,
        Upstream::InProcess(runtime) => {
            runtime.start().await.map_err(|error| format!("it did not start: {error}"))
        }
    };
    if let Err(why) = ready {
        return ChildTools::Unknown(why);
    }
    list(&child.upstream).await
}

async fn list(upstream: &Upstream) -> ChildTools {
    match tokio::time::timeout(DISCOVERY_TIMEOUT, upstream.list()).await {
        Ok(Ok(tools)) => ChildTools::Known(tools),
        Ok(Err(why)) => ChildTools::Unknown(format!("cannot list its tools: {why}")),
        Err(_) => {
            ChildTools::Unknown(format!("cannot list its tools within {} s", DISCOVERY_TIMEOUT.as_secs()))
        }
    }
}

/// Until a child is ready, or its time is up.
async fn ready(remote: &Remote, timeout: Duration) -> Result<(), String> {
    let deadline = Instant::now() + timeout;
    loop {
        let Err(last) = remote.is_ready().await else { return Ok(()) };
        if Instant::now() + POLL >= deadline {
            return Err(format!("not ready after {} s: {last}", timeout.as_secs_f64()));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Tries a missing child again and again until it answers or the instance ends.
async fn retry(instance: Weak<Inner>, stop: CancellationToken, index: usize) {
    let mut pause = POLL;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(RETRY_MAX);
        let Some(inner) = instance.upgrade() else { return };
        let Some(child) = inner.children.get(index) else { return };
        if let tools @ ChildTools::Known(_) = list(&child.upstream).await {
            tracing::info!(child = child.name, "a missing child has come up");
            inner.learn(index, tools);
            return;
        }
    }
}
