//! Following the gateway's virtual clock (`urn:agentenv:clock/v1`, contract 6): an environment asks its [`Clock`] what time it is,
//! and gets the gateway's time once it was told where to read it, and the machine's until then.

mod remote;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::Serialize;

use self::remote::Remote;
use agentenv_macros::environment;

use crate::environment::Component;
use crate::error::ToolError;
use crate::time::DateTime;

/// How long a reading of the gateway's clock is relied on, unless told otherwise.
pub const MAX_AGE: Duration = Duration::from_secs(1);

/// A clock that may be off: an instance's, read without HTTP in between.
pub trait TimeSource: Send + Sync {
    /// The time it shows; none while it is off.
    fn now(&self) -> Option<DateTime>;
}

/// The time in an environment. In a field marked `#[component]` it offers the extension `urn:agentenv:clock/v1` with the method
/// `sync_time(env_get_time_url)`, by which the harness tells where the gateway's clock is read.
///
/// A reading is good for [`MAX_AGE`] (or [`with_max_age`](Self::with_max_age)): between two readings the time goes on at the speed
/// that the gateway reports, so that asking costs nothing, and an arming, a clearing or a change of speed is seen that much later
/// at most. While the gateway cannot be reached the time goes on from the last reading.
#[derive(Default)]
pub struct Clock {
    source: RwLock<Source>,
    max_age: Option<Duration>,
}

/// Where the time comes from.
#[derive(Clone, Default)]
enum Source {
    /// Nobody has said otherwise.
    #[default]
    Machine,
    /// A gateway somewhere.
    Remote(Arc<Remote>),
    /// The instance that the environment runs in.
    Instance(Arc<dyn TimeSource>),
}

impl Clock {
    /// A clock that shows the machine's time until it is synced.
    pub fn new() -> Self {
        Self::default()
    }

    /// Relies on a reading of the gateway's clock for this long; `Duration::ZERO` reads it every time.
    #[must_use]
    pub fn with_max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// What time it is: the gateway's virtual time if it is armed and this clock synced, otherwise the machine's.
    ///
    /// Waits for the gateway when the last reading is too old. Dropping the future is harmless.
    pub async fn now(&self) -> DateTime {
        let source = self.source.read().unwrap_or_else(PoisonError::into_inner).clone();
        let shown = match source {
            Source::Machine => None,
            Source::Remote(remote) => remote.now(self.max_age.unwrap_or(MAX_AGE)).await,
            Source::Instance(clock) => clock.now(),
        };
        shown.unwrap_or_else(DateTime::machine)
    }

    /// Follows the clock of which a gateway has said where it is read (its `/clock/time`).
    ///
    /// # Errors
    /// An address that is none, or at which no clock answers; the clock goes on as before.
    pub async fn sync(&self, env_get_time_url: &str) -> Result<(), ToolError> {
        let remote = Remote::connect(env_get_time_url).await?;
        let mut source = self.source.write().unwrap_or_else(PoisonError::into_inner);
        // An environment inside the gateway's process has the clock at hand already.
        if !matches!(*source, Source::Instance(_)) {
            *source = Source::Remote(Arc::new(remote));
        }
        Ok(())
    }
}

impl Component for Clock {
    fn follow(&self, clock: &Arc<dyn TimeSource>) {
        *self.source.write().unwrap_or_else(PoisonError::into_inner) = Source::Instance(clock.clone());
    }
}

/// The answer of `sync_time`.
#[derive(Serialize)]
struct Synced {
    now: DateTime,
}

#[environment]
impl Clock {
    /// Sync this server to the gateway's virtual clock.
    #[extension(uri = "urn:agentenv:clock/v1")]
    async fn sync_time(
        &self,
        /// Where the gateway's clock is read.
        env_get_time_url: String,
    ) -> Result<Synced, ToolError> {
        self.sync(&env_get_time_url).await?;
        Ok(Synced { now: self.now().await })
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let source = match &*self.source.read().unwrap_or_else(PoisonError::into_inner) {
            Source::Machine => "the machine",
            Source::Remote(remote) => remote.url(),
            Source::Instance(_) => "the instance",
        }
        .to_owned();
        f.debug_struct("Clock").field("source", &source).field("max_age", &self.max_age).finish()
    }
}
