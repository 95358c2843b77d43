//! Does what the engine says: runs its commands as tasks, keeps one timer for what falls due next, and publishes the table
//! of what can match. What is to be done is left to `engine`.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent::{self, Agents};
use super::barrier::Barrier;
use super::engine::{Command, Engine, Held, Job, MatchId, Now, Outcome, Task};
use super::index::Index;
use super::repeats::Repeats;
use super::result::ResultText;
use super::world::{InternalCall, InternalResult, SeenCall, SeenRequest, World};
use crate::clock::{Clock, VirtualTime};
use crate::time::Time;

/// The engine, and what keeps it going.
pub(crate) struct Driver {
    world: Weak<dyn World>,
    pub(crate) clock: Clock,
    time: Time,
    agents: Arc<dyn Agents>,
    kept: Mutex<Kept>,
    index: ArcSwap<Index>,
    /// Registrations, removals and clearings come one at a time, so that a registration is taken in against the very
    /// state that it was read against, while calls go on.
    registering: Mutex<Repeats>,
    /// The timer must look again.
    wake: Notify,
    tracker: TaskTracker,
    stop: CancellationToken,
    /// How many instructions are with executors: none, and no call has a cause to be looked up.
    instructing: AtomicUsize,
    /// How many jobs are under way that must be done before the clock is moved on.
    pub(crate) awaited: watch::Sender<usize>,
    /// Held by whoever moves the clock ahead.
    pub(crate) advancing: tokio::sync::Mutex<()>,
}

/// What goes under one lock.
#[derive(Default)]
struct Kept {
    engine: Engine,
    jobs: HashMap<Job, AbortHandle>,
    /// Who waits for a match to be dealt with.
    held: HashMap<MatchId, oneshot::Sender<()>>,
    /// What the timer waits for.
    timer: (Option<VirtualTime>, Option<Timestamp>),
    stopped: bool,
}

impl Driver {
    /// Starts an engine and its timer.
    pub(crate) fn start(
        world: Weak<dyn World>,
        clock: Clock,
        time: Time,
        agents: Arc<dyn Agents>,
    ) -> Arc<Self> {
        let driver = Arc::new(Self {
            world,
            clock,
            time,
            agents,
            kept: Mutex::default(),
            index: ArcSwap::default(),
            registering: Mutex::default(),
            wake: Notify::new(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
            instructing: AtomicUsize::new(0),
            awaited: watch::Sender::new(0),
            advancing: tokio::sync::Mutex::default(),
        });
        driver.tracker.spawn(Arc::clone(&driver).keep_time());
        driver
    }

    /// Has the caller be the only one to change which triggers there are, until what comes back is dropped.
    pub(crate) fn turn(&self) -> MutexGuard<'_, Repeats> {
        self.registering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the engine.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Engine, &Now) -> R) -> R {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        look(&kept.engine, &self.now())
    }

    /// Has something happen to the engine, and does what comes of it. Commands are run under the lock, so that a job is
    /// never given up before it has been started.
    pub(crate) fn with<R>(self: &Arc<Self>, change: impl FnOnce(&mut Engine, &Now) -> R) -> R {
        self.locked(|kept, now| (change(&mut kept.engine, now), ())).0
    }

    fn locked<R, S>(self: &Arc<Self>, change: impl FnOnce(&mut Kept, &Now) -> (R, S)) -> (R, S) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that events are in the order of their times.
        let now = self.now();
        let changed = change(&mut kept, &now);
        for command in kept.engine.take_commands() {
            self.execute(&mut kept, command);
        }
        if let Some(index) = kept.engine.take_index() {
            self.index.store(Arc::new(index));
        }
        self.instructing.store(kept.engine.instructing(), Ordering::Relaxed);
        let awaited = kept.engine.awaited();
        self.awaited.send_if_modified(|before| std::mem::replace(before, awaited) != awaited);
        let timer = kept.engine.next_due();
        if std::mem::replace(&mut kept.timer, timer) != timer {
            self.wake.notify_one();
        }
        changed
    }

    fn now(&self) -> Now {
        Now { wall: self.time.wall(), clock: self.clock.reading(), last_shown: self.clock.last_shown() }
    }

    fn execute(self: &Arc<Self>, kept: &mut Kept, command: Command) {
        match command {
            Command::Run { job, trigger_id, task } if !kept.stopped => {
                let driver = Arc::clone(self);
                let handle = self.tracker.spawn(async move {
                    let doing = AssertUnwindSafe(driver.perform(&trigger_id, task)).catch_unwind();
                    let outcome = doing.await.unwrap_or_else(|_| {
                        tracing::error!(trigger = &*trigger_id, "a trigger's job panicked");
                        Outcome::Failed("an internal error".to_owned())
                    });
                    driver.locked(|kept, now| {
                        kept.jobs.remove(&job);
                        (kept.engine.report(job, outcome, now), ())
                    });
                });
                kept.jobs.insert(job, handle.abort_handle());
            }
            Command::Run { .. } => {}
            Command::Abort(job) => {
                if let Some(handle) = kept.jobs.remove(&job) {
                    handle.abort();
                }
            }
            // Dropping the sender wakes whoever waits.
            Command::Release(released) => drop(kept.held.remove(&released)),
        }
    }

    /// Does one job.
    async fn perform(&self, trigger_id: &Arc<str>, task: Task) -> Outcome {
        let Some(world) = self.world.upgrade() else {
            return Outcome::Failed("the instance is being shut down".to_owned());
        };
        let done = Outcome::Done { before: None, after: None };
        match task {
            Task::Record(event) => {
                world.record(event, None).await;
                done
            }
            Task::SetAccess { access, role, tools } => match world.set_access(access, &role, &tools) {
                Ok(()) => done,
                Err(reason) => Outcome::Failed(reason),
            },
            Task::Instruct { executor, instruction, retry } => {
                match self.agents.instruct(&executor, trigger_id, agent::text(&instruction, retry)).await {
                    Ok(()) => done,
                    Err(reason) => Outcome::Failed(reason),
                }
            }
            Task::Check { check, provoking } => {
                super::check::run(&*world, &check, &provoking, trigger_id).await
            }
            Task::Call { tool, arguments, role, action, shape } => {
                let call = InternalCall {
                    tool: tool.clone(),
                    arguments,
                    role: role.clone(),
                    trigger_id: trigger_id.as_ref().to_owned(),
                };
                let InternalResult { result, window } = world.call_tool(call).await;
                let ResultText { text, is_error } = match result {
                    Ok(result) => ResultText::of(&result),
                    Err(reason) => ResultText { text: reason, is_error: true },
                };
                let (before, after) = (window.0.value(), window.1.value());
                let event = json!({
                    "event_type": "internal_tool_call", "source": super::engine::SOURCE, "trigger_id": &**trigger_id,
                    "action_index": action, "tool": tool, "arguments": shape, "as": role, "ok": !is_error,
                    "result_len": text.chars().count(), "result_sha256": digest(&text),
                    "changelog_id_before": before, "changelog_id_after": after,
                });
                world.record(object(event), Some(window)).await;
                if is_error { Outcome::Failed(text) } else { Outcome::Done { before, after } }
            }
        }
    }

    /// Fires what falls due, each at its instant.
    async fn keep_time(self: Arc<Self>) {
        let mut changes = self.clock.changes();
        loop {
            let (more, due) = self.with(|engine, now| (engine.tick(now, false), engine.next_due()));
            if more {
                tokio::task::yield_now().await;
                continue;
            }
            let (at, later) = due;
            let until = at.and_then(|at| self.clock.real_time_until(at));
            let later = later
                .map(|later| Duration::try_from(later.duration_since(self.time.wall())).unwrap_or_default());
            let sleep = until.into_iter().chain(later).min();
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = changes.changed() => {}
                () = self.wake.notified() => {}
                () = tokio::time::sleep(sleep.unwrap_or(Duration::MAX)), if sleep.is_some() => {}
            }
        }
    }

    /// The table of what can match.
    pub(crate) fn index(&self) -> arc_swap::Guard<Arc<Index>> {
        self.index.load()
    }

    /// Whether any executor acts for a firing.
    pub(crate) fn is_instructing(&self) -> bool {
        self.instructing.load(Ordering::Relaxed) > 0
    }

    /// A finished call.
    pub(crate) async fn called(self: &Arc<Self>, call: SeenCall) -> Option<Barrier> {
        let index = self.index.load_full();
        if call.is_error || !index.watches(&call.role, &call.tool) {
            return None;
        }
        // Outside the lock, and off this thread: a long text and a slow pattern must not keep other calls waiting.
        let (call, (looks, states)) = if index.is_slow(&call.tool) {
            let looking = spawn_blocking(move || {
                let looks = index.look(&call);
                (call, looks)
            });
            match looking.await {
                Ok(looked) => looked,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime ends, and the call with it.
                Err(_) => return None,
            }
        } else {
            let looks = index.look(&call);
            (call, looks)
        };
        self.hold(|engine, now| {
            engine.tick(now, false);
            engine.called(&call, looks, &states, now)
        })
    }

    /// A finished website request.
    pub(crate) fn requested(self: &Arc<Self>, request: &SeenRequest) -> Option<Barrier> {
        let index = self.index.load();
        if !index.watches_website(&request.role, &request.app) {
            return None;
        }
        let (looks, args) = index.look_at_website(request);
        self.hold(|engine, now| {
            engine.tick(now, false);
            engine.requested(request, &args, looks, now)
        })
    }

    fn hold(self: &Arc<Self>, change: impl FnOnce(&mut Engine, &Now) -> Vec<Held>) -> Option<Barrier> {
        let (held, ()) = self.locked(|kept, now| {
            if kept.stopped {
                // Nothing would let the call go.
                return (Vec::new(), ());
            }
            let held = change(&mut kept.engine, now);
            let held = held.into_iter().map(|held| {
                let (sender, receiver) = oneshot::channel();
                kept.held.insert(held.released, sender);
                (held, receiver)
            });
            (held.collect::<Vec<_>>(), ())
        });
        (!held.is_empty()).then(|| Barrier::new(held, Weak::clone(&self.world)))
    }

    /// Returns when the engine is being ended.
    pub(crate) async fn ending(&self) {
        self.stop.cancelled().await;
    }

    /// Gives up everything that is under way, and waits for it to have ended.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.stopped = true;
            kept.held.clear();
            kept.jobs.drain().for_each(|(_, handle)| handle.abort());
        }
        self.tracker.close();
        self.tracker.wait().await;
    }
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(object) = value { object } else { Map::new() }
}

/// The first sixteen hexadecimal digits of a text's SHA-256.
fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
