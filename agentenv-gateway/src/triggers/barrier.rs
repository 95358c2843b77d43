//! Holds the answer to a call until what it provoked is done (contract 7.6).

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::engine::{Held, SOURCE};
use super::world::World;

/// Holds the answer to the call that fired a trigger.
#[must_use = "the call's answer must wait for it"]
pub struct Barrier {
    holding: Vec<(Arc<str>, oneshot::Receiver<()>)>,
    timeout: Duration,
    /// Counted from the match.
    deadline: Instant,
    world: Weak<dyn World>,
}

impl std::fmt::Debug for Barrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<&str> = self.holding.iter().map(|(id, _)| &**id).collect();
        f.debug_struct("Barrier")
            .field("holding", &ids)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Barrier {
    pub(crate) fn new(held: Vec<(Held, oneshot::Receiver<()>)>, world: Weak<dyn World>) -> Self {
        let timeout = held.iter().map(|(held, _)| held.timeout).max().unwrap_or_default();
        let holding = held.into_iter().map(|(held, receiver)| (held.trigger_id, receiver)).collect();
        Self { holding, timeout, deadline: Instant::now() + timeout, world }
    }

    /// Returns when the triggers that hold the call are done, or at the longest of their timeouts, after having recorded
    /// `trigger_barrier_timeout`. Dropping it lets the call go at once; the firings go on.
    pub async fn wait(self) {
        let mut late: Vec<Value> = Vec::new();
        for (id, done) in self.holding {
            // The sender is dropped, not used: either way the match has been dealt with.
            if timeout_at(self.deadline, done).await.is_err() {
                late.push((*id).into());
            }
        }
        let Some(world) = self.world.upgrade().filter(|_| !late.is_empty()) else { return };
        let mut event = Map::new();
        event.insert("event_type".to_owned(), "trigger_barrier_timeout".into());
        event.insert("source".to_owned(), SOURCE.into());
        event.insert("at".to_owned(), "provoking_call".into());
        event.insert("trigger_ids".to_owned(), late.into());
        event.insert("timeout_s".to_owned(), self.timeout.as_secs_f64().into());
        world.record(event, None).await;
    }
}
