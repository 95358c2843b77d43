//! What an environment does before it takes calls and before it goes.

use std::sync::{Mutex, PoisonError};

use super::EnvRuntime;
use crate::error::Failure;

/// Whether an environment can take calls.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    NotStarted,
    Started,
    Failed(String),
}

impl Readiness {
    /// Of an environment that has nothing to do first.
    pub(super) fn at_once() -> Self {
        Self(Mutex::new(State::Started))
    }

    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl EnvRuntime {
    /// Whether the environment can take calls, or why not: it has `#[on_start]` methods, and [`start`](Self::start) has not run
    /// them all. Calls are not held up by it.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<(), String> {
        match &*self.0.readiness.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Started => Ok(()),
            State::NotStarted => Err(format!("{} has not started yet", self.name())),
            State::Failed(why) => Err(format!("{} did not start: {why}", self.name())),
        }
    }

    /// Runs what the environment does before it can take calls (`#[on_start]`), in order.
    ///
    /// # Errors
    /// The first that failed; the rest were not run.
    pub async fn start(&self) -> Result<(), LifecycleError> {
        for member in &self.0.members {
            for start in member.start() {
                start.await.0.map_err(|failure| {
                    self.0.readiness.set(State::Failed(failure.message().to_owned()));
                    LifecycleError(failure)
                })?;
            }
        }
        self.0.readiness.set(State::Started);
        Ok(())
    }

    /// Runs what the environment does before it goes (`#[on_stop]`), in reverse order, all of it.
    ///
    /// # Errors
    /// The first failure.
    pub async fn stop(&self) -> Result<(), LifecycleError> {
        let mut failure = None;
        for member in self.0.members.iter().rev() {
            for stop in member.stop() {
                failure = failure.or(stop.await.0.err());
            }
        }
        failure.map_or(Ok(()), |failure| Err(LifecycleError(failure)))
    }
}

/// An environment that could not start or stop.
#[derive(Debug)]
pub struct LifecycleError(Failure);

impl std::fmt::Display for LifecycleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.message())
    }
}

impl std::error::Error for LifecycleError {}
