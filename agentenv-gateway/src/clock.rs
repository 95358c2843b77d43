//! The instance's virtual clock (contract 6): armed at a moment, it runs at its speed until it is armed again, moved
//! ahead or cleared. Reading it needs no lock. HTTP, and what falls due on it, are left to others.

pub(crate) mod get_time;
mod instant;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use self::get_time::GET_TIME;
pub(crate) use self::instant::local_text;
pub use self::instant::{InstantError, VirtualTime};
use crate::time::Time;

/// The fastest the clock runs, in virtual seconds for each real one: a virtual day a second.
pub const MAX_SPEED: f64 = 86_400.0;

/// A start is refused if the clock would pass year 9999 within this much real time.
pub const MIN_HORIZON: Duration = Duration::from_secs(86_400);

/// Why a request to the clock was refused. Each message is a whole sentence for `error` in `{"ok":false,"error"}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClockRefusal {
    /// The request is wrong (400).
    #[error("{0}")]
    Invalid(String),
    /// The request is well-formed, but the instance is not in a state to do it (409).
    #[error("{0}")]
    Conflict(String),
}

/// The virtual clock: a cheap handle, every clone the same clock.
#[derive(Clone)]
pub struct Clock {
    inner: Arc<Inner>,
}

struct Inner {
    time: Time,
    env_get_time_url: String,
    armed: ArcSwapOption<Armed>,
    /// Counts every arm, clear, hold and step, so that whoever waits for a virtual moment can reckon again. Also the
    /// lock under which changes are made: reads never take it.
    changes: watch::Sender<u64>,
    /// What the clock showed when it was last cleared.
    last_shown: AtomicI64,
}

/// What the clock shows and how it goes on; replaced whole at every change.
#[derive(Debug, Clone)]
struct Armed {
    t0: VirtualTime,
    speed: f64,
    /// What it showed at `since`.
    shown: VirtualTime,
    since: Duration,
    /// Stands still at `shown` while time is being moved ahead.
    held: bool,
    generation: u64,
    /// What the clock showed just before it was armed; none if it was off.
    before: Option<VirtualTime>,
}

impl Armed {
    fn read(&self, elapsed: Duration) -> VirtualTime {
        if self.held {
            return self.shown;
        }
        // `as` saturates, so that a gateway that outlives year 9999 goes on showing its end.
        let micros = (elapsed.saturating_sub(self.since).as_nanos() as f64 * self.speed / 1_000.0) as i64;
        self.shown.saturating_add(micros)
    }
}

/// The clock as it stood at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// What it showed.
    pub now: VirtualTime,
    /// The moment it was armed at; durations in triggers count from here.
    pub t0: VirtualTime,
    /// Which arming this is; later ones have higher numbers, also over a clearing.
    pub generation: u64,
    /// What the clock showed just before this arming; none if it was off.
    pub before: Option<VirtualTime>,
}

impl Clock {
    /// A clock that is off. `env_get_time_url` is where children read it (`http://gateway:<port>/clock/time`).
    pub fn new(time: Time, env_get_time_url: String) -> Self {
        let changes = watch::Sender::new(0);
        Self {
            inner: Arc::new(Inner {
                time,
                env_get_time_url,
                armed: ArcSwapOption::empty(),
                changes,
                last_shown: AtomicI64::new(0),
            }),
        }
    }

    /// The virtual time; `None` while the clock is off.
    pub fn now(&self) -> Option<VirtualTime> {
        self.reading().map(|reading| reading.now)
    }

    /// What the clock shows and which arming it is; `None` while it is off.
    pub fn reading(&self) -> Option<ClockReading> {
        let armed = self.inner.armed.load();
        let armed = armed.as_ref()?;
        let now = armed.read(self.inner.time.elapsed());
        Some(ClockReading { now, t0: armed.t0, generation: armed.generation, before: armed.before })
    }

    /// Arms or re-arms the clock: `{"virtual_time", "virtual_seconds_per_real_second"?}` (contract 6). The answer is
    /// `{"armed":true,"t0","virtual_seconds_per_real_second","virtual_time"}`.
    ///
    /// # Errors
    /// A malformed body, or a child that serves `get_time` itself; the clock stays as it was.
    pub fn arm(&self, body: &Value, get_time_is_taken: bool) -> Result<Value, ClockRefusal> {
        let (t0, speed) = parse_arm(body).map_err(ClockRefusal::Invalid)?;
        if get_time_is_taken {
            let message =
                format!("an environment serves a tool named '{GET_TIME}', which the clock needs for itself");
            return Err(ClockRefusal::Conflict(message));
        }
        let since = self.inner.time.elapsed();
        self.change(|before, generation| {
            let before = before.map(|armed| armed.read(since));
            Some(Armed { t0, speed, shown: t0, since, held: false, generation: generation + 1, before })
        });
        tracing::info!(%t0, speed, "clock armed");
        Ok(self.state_with(false))
    }

    /// `GET /clock/state`: the arm answer and `env_get_time_url`, or `{"armed":false}`.
    pub fn state(&self) -> Value {
        self.state_with(true)
    }

    /// `GET /clock/time`: `{"virtual_time"}`; `None` while the clock is off.
    pub fn time_body(&self) -> Option<Value> {
        self.now().map(|now| json!({"virtual_time": now}))
    }

    /// Turns the clock off; harmless when it is off already.
    pub fn clear(&self) {
        let elapsed = self.inner.time.elapsed();
        self.change(|armed, _| {
            if let Some(armed) = armed {
                self.inner.last_shown.store(armed.read(elapsed).as_micros(), Ordering::Relaxed);
            }
            None
        });
        tracing::info!("clock cleared");
    }

    /// Tells of every change that moves or stops virtual time. What is seen is a count; only that it changed matters.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// What the clock showed when it was last cleared.
    pub(crate) fn last_shown(&self) -> VirtualTime {
        VirtualTime::from_micros(self.inner.last_shown.load(Ordering::Relaxed))
    }

    /// How long in real time until the clock shows `at`: zero when it already does, `None` when it never will as it
    /// stands (off, frozen, or held).
    pub(crate) fn real_time_until(&self, at: VirtualTime) -> Option<Duration> {
        let armed = self.inner.armed.load();
        let armed = armed.as_ref()?;
        let elapsed = self.inner.time.elapsed();
        let missing = at.micros_since(armed.read(elapsed));
        if missing <= 0 {
            return Some(Duration::ZERO);
        }
        if armed.held || armed.speed <= 0.0 {
            return None;
        }
        let nanos = (missing as f64 * 1_000.0 / armed.speed).ceil();
        Some(Duration::from_nanos(nanos as u64).max(Duration::from_nanos(1)))
    }

    /// Stops the clock where it is, so that it can be moved ahead step by step; it goes on when the hold is dropped.
    /// `None` while it is off.
    pub(crate) fn hold(&self) -> Option<Hold> {
        let mut generation = None;
        let elapsed = self.inner.time.elapsed();
        self.change(|armed, last| {
            let armed = armed?;
            generation = Some(last);
            Some(Armed { shown: armed.read(elapsed), since: elapsed, held: true, ..armed.clone() })
        });
        Some(Hold { clock: self.clone(), generation: generation? })
    }

    fn state_with(&self, url: bool) -> Value {
        let armed = self.inner.armed.load();
        let Some(armed) = armed.as_ref() else { return json!({"armed": false}) };
        let mut state = json!({
            "armed": true,
            "t0": armed.t0,
            "virtual_seconds_per_real_second": armed.speed,
            "virtual_time": armed.read(self.inner.time.elapsed()),
        });
        if url {
            state["env_get_time_url"] = json!(self.inner.env_get_time_url);
        }
        state
    }

    /// Replaces what is armed by what `change` makes of it and of the generation of the last arming, and tells everyone.
    fn change(&self, change: impl FnOnce(Option<&Armed>, u64) -> Option<Armed>) {
        self.inner.changes.send_modify(|count| {
            let before = self.inner.armed.load();
            let generation = before.as_ref().map_or(*count, |armed| armed.generation);
            let after = change(before.as_deref(), generation);
            // While the clock is off the count stands in for the generation, so that no arming repeats an earlier one.
            *count = count.wrapping_add(1).max(after.as_ref().map_or(0, |armed| armed.generation));
            self.inner.armed.store(after.map(Arc::new));
        });
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").field("armed", &self.inner.armed.load()).finish_non_exhaustive()
    }
}

/// A clock that stands still while it is held. Dropping it lets the clock go on from where it was moved to.
pub(crate) struct Hold {
    clock: Clock,
    generation: u64,
}

impl Hold {
    /// Moves the clock to `at`, never back. `false` when it was armed anew or cleared meanwhile: then nothing is done.
    pub(crate) fn move_to(&self, at: VirtualTime) -> bool {
        let mut moved = false;
        self.change(|armed| {
            moved = true;
            Armed { shown: at.max(armed.shown), ..armed }
        });
        moved
    }

    fn change(&self, change: impl FnOnce(Armed) -> Armed) {
        self.clock.change(|armed, _| {
            let armed = armed?;
            let ours = armed.held && armed.generation == self.generation;
            Some(if ours { change(armed.clone()) } else { armed.clone() })
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let since = self.clock.inner.time.elapsed();
        self.change(|armed| Armed { held: false, since, ..armed });
    }
}

fn parse_arm(body: &Value) -> Result<(VirtualTime, f64), String> {
    let Value::Object(body) = body else { return Err("request body must be a JSON object".to_owned()) };
    let t0 = match body.get("virtual_time") {
        Some(Value::String(text)) => {
            VirtualTime::parse(text).map_err(|error| format!("virtual_time {text:?} {error}"))?
        }
        _ => return Err("virtual_time must be an RFC 3339 string such as 2026-10-05T09:00:00Z".to_owned()),
    };
    let speed = match body.get("virtual_seconds_per_real_second") {
        None | Some(Value::Null) => 1.0,
        // An absolute value so that -0.0, which is in range, is not shown with its sign.
        Some(value) => {
            value.as_f64().filter(|speed| (0.0..=MAX_SPEED).contains(speed)).map(f64::abs).ok_or_else(
                || format!("virtual_seconds_per_real_second must be a number from 0 (frozen) to {MAX_SPEED}"),
            )?
        }
    };
    let horizon = (MIN_HORIZON.as_micros() as f64 * speed) as i64;
    if t0.checked_add(horizon).is_none() {
        return Err(format!("virtual_time {t0} at speed {speed} would pass year 9999 within a real day"));
    }
    Ok((t0, speed))
}

#[cfg(test)]
mod tests;
