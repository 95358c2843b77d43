//! Work that must not be cut short. What it does is its owner's.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Work under way. It runs where it is awaited, which saves a hand-over between tasks; whoever awaits it may go without
/// cutting it: dropped before its end, it goes on in a task of its own. Either way the tracker counts it, until its end.
pub struct RunToEnd<T: Send + 'static> {
    work: Option<BoxFuture<'static, Result<T, Panicked>>>,
    counted: TaskTrackerToken,
}

/// The work panicked. What it said is in the log, where the panic hook put it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it panicked")]
pub struct Panicked;

impl<T: Send + 'static> RunToEnd<T> {
    /// Work that begins when it is first awaited, or when this is dropped.
    pub fn new(work: impl Future<Output = T> + Send + 'static, tracker: &TaskTracker) -> Self {
        let work = AssertUnwindSafe(work).catch_unwind().map(|ended| ended.map_err(|_panic| Panicked));
        Self { work: Some(work.boxed()), counted: tracker.token() }
    }
}

impl<T: Send + 'static> Future for RunToEnd<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let ended = std::task::ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(ended)
    }
}

impl<T: Send + 'static> Drop for RunToEnd<T> {
    fn drop(&mut self) {
        // Without a runtime the program is at its end, and so is its work.
        if let Some(work) = self.work.take()
            && let Ok(runtime) = Handle::try_current()
        {
            self.counted.task_tracker().spawn_on(work, &runtime);
        }
    }
}

impl<T: Send + 'static> std::fmt::Debug for RunToEnd<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunToEnd").field("ended", &self.work.is_none()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn work_goes_on_when_nobody_awaits_it() {
        let (tracker, go, done) = (TaskTracker::new(), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let work = {
            let (go, done) = (Arc::clone(&go), Arc::clone(&done));
            async move {
                go.notified().await;
                done.notify_one();
            }
        };
        let mut running = RunToEnd::new(work, &tracker);
        assert!((&mut running).now_or_never().is_none());
        drop(running);
        assert_eq!(tracker.len(), 1);
        go.notify_one();
        done.notified().await;
        tracker.close();
        tracker.wait().await;
    }

    #[tokio::test]
    async fn a_panic_is_an_end() {
        let tracker = TaskTracker::new();
        assert_eq!(RunToEnd::new(async { 5 }, &tracker).await, Ok(5));
        assert_eq!(RunToEnd::new(async { panic!("secret") as () }, &tracker).await, Err(Panicked));
        assert_eq!(tracker.len(), 0);
    }
}
