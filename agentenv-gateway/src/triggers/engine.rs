//! The trigger engine itself: a state that events change, and the commands that come of it. Pure: it reads no clock,
//! waits for nothing and does nothing but say what is to be done, so that the same events make the same log. Doing it is
//! left to `driver`.
//!
//! A trigger has at most one *firing* at a time; matches and due marks that come meanwhile wait in its queue. A firing
//! has at most one *job* under way: writing that it fires, an action, a check. A job that is reported when it is no
//! longer the one under way is ignored, which is all that it takes for a removed trigger never to do anything again.

mod calls;
mod clockwork;
mod firing;
mod model;
mod view;
#[cfg(test)]
mod walk;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use self::calls::Held;
pub(crate) use self::firing::SOURCE;
use self::model::{
    Booked, Firing, FiringId, JobOf, Look, LookedAt, Pending, Phase, Standing, Times, Trigger, Wait, Wake,
};
pub(crate) use self::model::{Cause, Command, Job, MatchId, Now, Outcome, Provoking, Task, Uid};
use super::index::Index;
use super::log::Log;
use super::parse::{Entry, Registration, Settings};
use super::schedule::{Draws, Marks};
use super::spec::Spec;
use super::world::{CausedBy, FiringCounts};
use crate::clock::{ClockReading, VirtualTime};

/// The engine.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    settings: Settings,
    triggers: BTreeMap<Uid, Trigger>,
    ids: HashMap<String, Uid>,
    firings: BTreeMap<FiringId, Firing>,
    jobs: HashMap<Job, Booked>,
    due: BTreeSet<(VirtualTime, Wake)>,
    /// Triggers of which more was due than is taken at once, and when they are looked at again.
    later: BTreeSet<(Timestamp, Uid)>,
    /// Triggers that wait for one of this id to fire.
    waiting_for: HashMap<String, BTreeSet<Uid>>,
    clock: Option<ClockReading>,
    log: Log,
    counts: FiringCounts,
    commands: Vec<Command>,
    index_is_stale: bool,
    next: u64,
    /// How many jobs are under way that must be done before the clock is moved on.
    awaited: usize,
    /// How many marks have fallen due so far.
    marks: usize,
    /// How many instructions are with executors.
    instructing: usize,
}

impl Engine {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn event(&mut self, now: &Now, kind: &str, trigger_id: &str, more: Value) {
        self.log.add(now.wall, now.virtual_time(), kind, trigger_id, more);
    }

    /// What is to be done since this was last asked.
    pub(crate) fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// A new table, if which triggers can match has changed since this was last asked.
    pub(crate) fn take_index(&mut self) -> Option<Index> {
        if !std::mem::take(&mut self.index_is_stale) {
            return None;
        }
        let open = self.triggers.iter().filter(|(_, trigger)| trigger.standing == Standing::Armed);
        Some(Index::new(open.map(|(uid, trigger)| (*uid, &trigger.spec)), self.settings.watched()))
    }

    /// The settings that stand.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The trigger of an id, as it was sent.
    pub(crate) fn registered(&self, id: &str) -> Option<&Arc<Spec>> {
        self.triggers.get(self.ids.get(id)?).map(|trigger| &trigger.spec)
    }

    /// How many triggers there are.
    pub(crate) fn len(&self) -> usize {
        self.triggers.len()
    }

    /// How often triggers have fired and failed.
    pub(crate) fn counts(&self) -> FiringCounts {
        self.counts
    }

    /// How many jobs are under way that must be done before the clock is moved on.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited
    }

    /// How many marks have fallen due so far.
    pub(crate) fn marks(&self) -> usize {
        self.marks
    }

    /// Has everything that is under way be done before the clock is moved on.
    pub(crate) fn await_all(&mut self) {
        for booked in self.jobs.values_mut() {
            booked.awaited = true;
            if let JobOf::Firing(firing) = booked.of
                && let Some(firing) = self.firings.get_mut(&firing)
            {
                firing.awaited = true;
            }
        }
        self.awaited = self.jobs.len();
    }

    /// How many instructions are with executors.
    pub(crate) fn instructing(&self) -> usize {
        self.instructing
    }

    /// Takes in a registration that was read against this very state, and answers it.
    pub(crate) fn register(&mut self, registration: Registration, now: &Now) -> Value {
        self.sync_clock(now);
        self.settings = registration.settings;
        self.index_is_stale = true;
        let added: Vec<String> = registration.entries.iter().map(|entry| entry.id().to_owned()).collect();
        for entry in registration.entries {
            if let Entry::New(spec) = entry {
                self.add(*spec, now);
            }
        }
        let all: Vec<&str> = self.triggers.values().map(|trigger| &*trigger.id).collect();
        let mut answer = json!({"ok": true, "added": added, "all": all});
        if !registration.warnings.is_empty() {
            answer["warnings"] = json!(registration.warnings);
        }
        answer
    }

    fn add(&mut self, spec: Spec, now: &Now) {
        let uid = Uid(self.next());
        let spec = Arc::new(spec);
        let id: Arc<str> = spec.id.as_str().into();
        self.ids.insert(spec.id.clone(), uid);
        let delays = spec.actions.iter().map(|action| action.delay.as_ref().map(super::schedule::Gap::draws));
        let trigger = Trigger {
            delays: delays.collect(),
            id: Arc::clone(&id),
            standing: Standing::Armed,
            detected_at: None,
            fired_at: None,
            last_failure_at: None,
            fire_count: 0,
            failure_count: 0,
            firing: None,
            queue: VecDeque::new(),
            queue_bytes: 0,
            times: Times {
                marks: Marks::none(),
                generation: None,
                anchored: None,
                anchor_when_armed: false,
                due: None,
                put_off: None,
            },
            check: None,
            check_again: None,
            last_look: None,
            spec,
        };
        self.triggers.insert(uid, trigger);
        self.event(now, "added", &id, json!({}));
        self.start_times(uid, now);
    }

    /// Removes triggers; the answer to `POST /triggers/remove`.
    pub(crate) fn remove(&mut self, ids: &[String], now: &Now) -> Value {
        self.sync_clock(now);
        let mut removed = Vec::new();
        for id in ids {
            if let Some(uid) = self.ids.get(id).copied() {
                self.drop_trigger(uid);
                self.event(now, "removed", id, json!({}));
                removed.push(id);
            }
        }
        json!({"ok": true, "removed": removed})
    }

    /// Removes every trigger, the settings and the log.
    pub(crate) fn clear(&mut self) {
        let uids: Vec<Uid> = self.triggers.keys().copied().collect();
        for uid in uids {
            self.drop_trigger(uid);
        }
        self.settings = Settings::default();
        self.log = Log::default();
        self.waiting_for.clear();
    }

    fn drop_trigger(&mut self, uid: Uid) {
        self.end_waiting_for(uid);
        self.unschedule(uid);
        let Some(trigger) = self.triggers.remove(&uid) else { return };
        self.ids.remove(&trigger.spec.id);
        self.index_is_stale = true;
        if let Some((job, _)) = trigger.check {
            self.abort(job);
        }
        let firing = trigger.firing.and_then(|firing| self.end_firing(firing));
        if let Some(job) = firing.as_ref().and_then(|firing| firing.job) {
            self.abort(job);
        }
        let held = firing.and_then(|firing| firing.held);
        let queued = trigger.queue.into_iter().filter_map(|pending| pending.held);
        self.commands.extend(held.into_iter().chain(queued).map(Command::Release));
    }

    /// Starts a job.
    fn run(&mut self, of: JobOf, task: Task, awaited: bool) -> Job {
        let job = Job(self.next());
        let uid = match of {
            JobOf::Firing(firing) => self.firings.get(&firing).map(|firing| firing.uid),
            JobOf::Check(uid) => Some(uid),
        };
        let trigger = uid.and_then(|uid| self.triggers.get(&uid));
        let trigger_id = trigger.map_or_else(|| Arc::from(""), |trigger| Arc::clone(&trigger.id));
        let instructs = matches!(task, Task::Instruct { .. });
        self.awaited += usize::from(awaited);
        self.instructing += usize::from(instructs);
        self.jobs.insert(job, Booked { of, awaited, instructs });
        self.commands.push(Command::Run { job, trigger_id, task });
        job
    }

    fn abort(&mut self, job: Job) {
        self.end_job(job);
        self.commands.push(Command::Abort(job));
    }

    /// Takes a job off the books; none if it is not under way.
    fn end_job(&mut self, job: Job) -> Option<Booked> {
        let booked = self.jobs.remove(&job)?;
        self.awaited -= usize::from(booked.awaited);
        self.instructing -= usize::from(booked.instructs);
        Some(booked)
    }

    /// Takes in how a job came out. One that is not under way any more is ignored.
    pub(crate) fn report(&mut self, job: Job, outcome: Outcome, now: &Now) {
        self.sync_clock(now);
        match self.end_job(job) {
            Some(Booked { of: JobOf::Firing(firing), .. }) => self.firing_goes_on(firing, outcome, now),
            Some(Booked { of: JobOf::Check(uid), awaited, .. }) => self.checked(uid, outcome, awaited, now),
            None => {}
        }
    }

    /// The firings that executors of a role are acting for.
    pub(crate) fn causes(&self, role: &str) -> Vec<CausedBy> {
        let acting = self.firings.values().filter(|firing| matches!(firing.phase, Phase::Acting(_)));
        acting
            .filter_map(|firing| {
                let trigger = self.triggers.get(&firing.uid)?;
                let executor = self.executor_of(trigger, firing.action)?;
                (executor.agent.role == role).then(|| CausedBy {
                    trigger_id: trigger.spec.id.clone(),
                    action_index: firing.action,
                    fire: trigger.fire_count + 1,
                })
            })
            .collect()
    }
}
