//! What the engine's state is made of, and what it is told and says.

use std::collections::VecDeque;
use std::sync::Arc;

use agentenv_protocol::access::{Access, ToolSet};
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::schedule::{Draws, Marks};
use super::super::spec::{Check, ExecutorSpec, Spec, Verdict};
use crate::clock::{ClockReading, VirtualTime};

/// One registration of a trigger. Never used again, so that a trigger removed and registered anew is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Uid(pub(super) u64);

/// One firing of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FiringId(pub(super) u64);

/// Something under way outside the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Job(pub(super) u64);

/// A match that a barrier waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MatchId(pub(super) u64);

/// The time of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) wall: Timestamp,
    /// None while the virtual clock is off.
    pub(crate) clock: Option<ClockReading>,
    /// What the clock showed when it was last cleared.
    pub(crate) last_shown: VirtualTime,
}

impl Now {
    pub(super) fn virtual_time(&self) -> Option<VirtualTime> {
        self.clock.map(|clock| clock.now)
    }
}

/// Something to be done.
#[derive(Debug)]
pub(crate) enum Command {
    /// Do this, and report how it came out.
    Run { job: Job, trigger_id: Arc<str>, task: Task },
    /// Give this up; nothing need be reported.
    Abort(Job),
    /// The match has been dealt with: let go of the call that it holds.
    Release(MatchId),
}

/// What a job is.
#[derive(Debug)]
pub(crate) enum Task {
    /// Write a trajectory event.
    Record(Map<String, Value>),
    SetAccess {
        access: Access,
        role: String,
        tools: ToolSet,
    },
    Call {
        tool: String,
        arguments: Box<RawValue>,
        role: Option<String>,
        action: usize,
        shape: Value,
    },
    Instruct {
        executor: Arc<ExecutorSpec>,
        instruction: String,
        retry: bool,
    },
    Check {
        check: Arc<Check>,
        provoking: Arc<Provoking>,
    },
}

/// How a job came out.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// Done, with the changelog's ids around it.
    Done { before: Option<i64>, after: Option<i64> },
    /// Not done, and why.
    Failed(String),
    /// A check that could be made: whether it passed, and if not, where it stopped.
    Checked(Result<(), String>),
}

/// What made a trigger fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    Call { tool: String, role: String },
    Website { app: String, method: String, path: String, status: u16, role: String },
    Clock,
}

impl Cause {
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Call { tool, role } => json!({"tool": tool, "role": role}),
            Self::Website { app, method, path, status, role } => json!({
                "source": "website", "app": app, "method": method, "path": path, "status": status, "role": role,
            }),
            Self::Clock => json!({"source": "clock"}),
        }
    }
}

/// What made a trigger fire, with what its actions read of it.
#[derive(Debug)]
pub(crate) struct Provoking {
    pub(crate) cause: Cause,
    pub(crate) args: Option<Arc<RawValue>>,
    pub(crate) result: Option<Arc<RawValue>>,
}

impl Provoking {
    pub(super) fn size(&self) -> usize {
        [&self.args, &self.result].into_iter().flatten().map(|raw| raw.get().len()).sum()
    }
}

/// A firing that has not begun.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) provoking: Arc<Provoking>,
    /// The mark of a time trigger, and whether more were due with it than are taken at once.
    pub(super) mark: Option<(VirtualTime, bool)>,
    pub(super) held: Option<MatchId>,
}

/// Where a trigger stands when it is not firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Armed,
    Fired,
    Failed,
    Cancelled,
}

/// How a call or request last looked to a trigger, for `explain`.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) call: Arc<LookedAt>,
    pub(super) verdict: Verdict,
}

/// A call or request that was looked at, and when.
#[derive(Debug)]
pub(super) struct LookedAt {
    pub(super) at: Timestamp,
    pub(super) what: String,
    pub(super) role: String,
}

#[derive(Debug)]
pub(super) struct Trigger {
    pub(super) spec: Arc<Spec>,
    /// The id once more, cheap to hand around.
    pub(super) id: Arc<str>,
    pub(super) standing: Standing,
    pub(super) detected_at: Option<Timestamp>,
    pub(super) fired_at: Option<Timestamp>,
    pub(super) last_failure_at: Option<Timestamp>,
    pub(super) fire_count: u64,
    pub(super) failure_count: u64,
    pub(super) firing: Option<FiringId>,
    pub(super) queue: VecDeque<Pending>,
    pub(super) queue_bytes: usize,
    /// Where each action's random delays stand.
    pub(super) delays: Vec<Option<Draws>>,
    pub(super) times: Times,
    /// The check of a state trigger under way, what prompted it, and what has prompted another since.
    pub(super) check: Option<(Job, Arc<Provoking>)>,
    pub(super) check_again: Option<Arc<Provoking>>,
    pub(super) last_look: Option<Look>,
}

/// What of a trigger depends on the clock.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) marks: Marks,
    /// The arming that the marks are on.
    pub(super) generation: Option<u64>,
    /// The first mark of a trigger that waited for another.
    pub(super) anchored: Option<VirtualTime>,
    /// The trigger waited for has fired for good while the clock was off.
    pub(super) anchor_when_armed: bool,
    /// Where it stands in the queue of what is due.
    pub(super) due: Option<VirtualTime>,
    /// More was due than is taken at once: not looked at before then.
    pub(super) put_off: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct Firing {
    pub(super) uid: Uid,
    pub(super) provoking: Arc<Provoking>,
    pub(super) mark: Option<(VirtualTime, bool)>,
    pub(super) held: Option<MatchId>,
    /// The action that it is at.
    pub(super) action: usize,
    pub(super) phase: Phase,
    pub(super) job: Option<Job>,
    /// Whether the clock is not to be moved on before it has ended, or waits for the clock itself.
    pub(super) awaited: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// The trajectory is being told.
    Announcing,
    /// Until an action's delay is over.
    Delayed(Wait),
    /// Until the executor works.
    OutOfHours(Option<VirtualTime>),
    /// The action is under way; the number of times that it has been tried.
    Acting(u8),
    /// Its check is, and what it changed.
    Verifying { tried: u8, before: Option<i64>, after: Option<i64> },
}

/// A wait in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Until(VirtualTime),
    /// While the clock is off: microseconds to wait once it is on.
    Left(i64),
}

/// What may fall due: a trigger's next mark, or the end of a firing's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    Firing(FiringId),
    Mark(Uid),
}

/// What a job is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum JobOf {
    Firing(FiringId),
    /// A state trigger's check.
    Check(Uid),
}

/// A job under way.
#[derive(Debug)]
pub(super) struct Booked {
    pub(super) of: JobOf,
    pub(super) awaited: bool,
    pub(super) instructs: bool,
}
