//! A firing, from its beginning through its actions to its end (contract 7.5).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::index::Parsed;
use super::super::json::Json;
use super::super::log::clip;
use super::super::shape::shape;
use super::super::spec::{Action, Does, ExecutorSpec, When};
use super::super::template::Values;
use super::{
    Cause, Engine, Firing, FiringId, JobOf, Now, Outcome, Pending, Phase, Standing, Task, Trigger, Uid, Wait,
};

/// How often an instruction is sent in all when the check after it does not pass.
const TRIES: u8 = 2;

/// The `source` of trajectory events that triggers make.
pub(crate) const SOURCE: &str = "trigger_engine";

impl Engine {
    /// Begins a firing of a trigger that has none.
    pub(super) fn fire(&mut self, uid: Uid, pending: Pending, awaited: bool) {
        let id = FiringId(self.next());
        let Some(trigger) = self.triggers.get_mut(&uid) else { return };
        trigger.firing = Some(id);
        let event = announcement(trigger, &pending.provoking.cause);
        let firing = Firing {
            uid,
            provoking: pending.provoking,
            mark: pending.mark,
            held: pending.held,
            action: 0,
            phase: Phase::Announcing,
            job: None,
            awaited,
        };
        self.firings.insert(id, firing);
        self.set_job(id, Task::Record(event));
    }

    fn set_job(&mut self, id: FiringId, task: Task) {
        let awaited = self.firings.get(&id).is_some_and(|firing| firing.awaited);
        let job = self.run(JobOf::Firing(id), task, awaited);
        if let Some(firing) = self.firings.get_mut(&id) {
            firing.job = Some(job);
        }
    }

    /// Takes a firing off the books.
    pub(super) fn end_firing(&mut self, id: FiringId) -> Option<Firing> {
        let firing = self.firings.remove(&id)?;
        let until = match firing.phase {
            Phase::Delayed(Wait::Until(until)) => Some(until),
            Phase::OutOfHours(until) => until,
            _ => None,
        };
        if let Some(until) = until {
            self.due.remove(&(until, super::Wake::Firing(id)));
        }
        Some(firing)
    }

    /// The executor that an action is for, if it is for one.
    pub(super) fn executor_of(&self, trigger: &Trigger, action: usize) -> Option<&Arc<ExecutorSpec>> {
        match &trigger.spec.actions.get(action)?.does {
            Does::Nl { executor, .. } => self.settings.find_executor(executor.as_deref()),
            _ => None,
        }
    }

    /// A job of a firing has ended.
    pub(super) fn firing_goes_on(&mut self, id: FiringId, outcome: Outcome, now: &Now) {
        let Some(firing) = self.firings.get_mut(&id) else { return };
        firing.job = None;
        match (firing.phase.clone(), outcome) {
            (Phase::Announcing, _) => self.start_action(id, now),
            (Phase::Acting(tried), Outcome::Done { before, after }) => {
                self.acted(id, tried, before, after, now)
            }
            (Phase::Acting(_), Outcome::Failed(reason)) => self.action_failed(id, &reason, now),
            (Phase::Verifying { before, after, .. }, Outcome::Checked(Ok(()))) => {
                self.action_event(id, "verify_ok", json!({}), now);
                self.action_done(id, before, after, now);
            }
            (Phase::Verifying { tried, .. }, Outcome::Checked(Err(_))) => {
                self.not_verified(id, tried, json!({}), now)
            }
            (Phase::Verifying { tried, .. }, Outcome::Failed(reason)) => {
                self.not_verified(id, tried, json!({"detail": clip(&reason)}), now);
            }
            // Nothing that a job can report, but a firing must never be left with nothing under way.
            (_, outcome) => self.action_failed(id, &format!("unexpected outcome {outcome:?}"), now),
        }
    }

    /// Comes to the firing's next action: waits out its delay first.
    fn start_action(&mut self, id: FiringId, now: &Now) {
        let Some(firing) = self.firings.get(&id) else { return };
        let (uid, index) = (firing.uid, firing.action);
        let Some(trigger) = self.triggers.get_mut(&uid) else { return };
        if index >= trigger.spec.actions.len() {
            return self.fired(id, now);
        }
        let Some(delay) = trigger.delays.get_mut(index).and_then(Option::as_mut).map(super::Draws::next)
        else {
            return self.act_in_hours(id, now);
        };
        self.wait(id, delay, now);
        // As a person would read it: to the millisecond.
        let seconds = (delay as f64 / 1e3).round() / 1e3;
        self.action_event(id, "delayed", json!({"virtual_seconds": seconds}), now);
    }

    /// Does the action, once its executor works.
    pub(super) fn act_in_hours(&mut self, id: FiringId, now: &Now) {
        let Some(firing) = self.firings.get(&id) else { return };
        let Some(trigger) = self.triggers.get(&firing.uid) else { return };
        let hours = self.executor_of(trigger, firing.action).and_then(|executor| executor.hours.as_ref());
        let opens = hours.zip(now.clock).map(|(hours, clock)| (hours.next_open(clock.now), clock.now));
        match opens {
            Some((until, now_shown)) if until != Some(now_shown) => self.wait_for_hours(id, until, now),
            _ => self.act(id, 1, now),
        }
    }

    /// Does the action, for the first time or again.
    fn act(&mut self, id: FiringId, tried: u8, now: &Now) {
        let Some(firing) = self.firings.get_mut(&id) else { return };
        firing.phase = Phase::Acting(tried);
        let Some(trigger) = self.triggers.get(&firing.uid) else { return };
        let spec = Arc::clone(&trigger.spec);
        let Some(action) = spec.actions.get(firing.action) else { return };
        let task = match &action.does {
            Does::Permission { access, role, tools, .. } => {
                Task::SetAccess { access: *access, role: role.clone(), tools: tools.clone() }
            }
            Does::Nl { instruction, executor } => {
                let Some(executor) = self.settings.find_executor(executor.as_deref()) else {
                    return self.action_failed(id, "its executor is not registered any more", now);
                };
                let executor = Arc::clone(executor);
                Task::Instruct { executor, instruction: instruction.clone(), retry: tried > 1 }
            }
            Does::Tool { tool, role, .. } => match fill(action, firing) {
                Ok(arguments) => Task::Call {
                    tool: tool.clone(),
                    arguments: arguments.to_raw(),
                    role: role.clone(),
                    action: firing.action,
                    shape: shape(&arguments),
                },
                Err(reason) => return self.action_failed(id, &reason, now),
            },
        };
        self.set_job(id, task);
    }

    /// The action is done: makes its check, if it has one.
    fn acted(&mut self, id: FiringId, tried: u8, before: Option<i64>, after: Option<i64>, now: &Now) {
        let Some(firing) = self.firings.get_mut(&id) else { return };
        let action =
            self.triggers.get(&firing.uid).and_then(|trigger| trigger.spec.actions.get(firing.action));
        let Some(check) = action.and_then(|action| action.verify.clone()) else {
            return self.action_done(id, before, after, now);
        };
        firing.phase = Phase::Verifying { tried, before, after };
        let provoking = Arc::clone(&firing.provoking);
        self.set_job(id, Task::Check { check, provoking });
    }

    fn not_verified(&mut self, id: FiringId, tried: u8, detail: Value, now: &Now) {
        self.action_event(id, "verify_failed", detail, now);
        let Some(firing) = self.firings.get(&id) else { return };
        let action =
            self.triggers.get(&firing.uid).and_then(|trigger| trigger.spec.actions.get(firing.action));
        match action.map(|action| &action.does) {
            Some(Does::Nl { .. }) if tried < TRIES => self.act(id, tried + 1, now),
            Some(Does::Nl { .. }) => {
                self.action_failed(id, "the expected change was not observed after a second try", now)
            }
            // The failed check says it all.
            _ => self.failed(id, now),
        }
    }

    fn action_done(&mut self, id: FiringId, before: Option<i64>, after: Option<i64>, now: &Now) {
        let Some(firing) = self.firings.get(&id) else { return };
        let Some(trigger) = self.triggers.get(&firing.uid) else { return };
        let detail =
            trigger.spec.actions.get(firing.action).map_or(Value::Null, |action| done_detail(action, firing));
        let more = json!({"detail": detail, "changelog_id_before": before, "changelog_id_after": after});
        self.action_event(id, "action_ok", more, now);
        if let Some(firing) = self.firings.get_mut(&id) {
            firing.action += 1;
        }
        self.start_action(id, now);
    }

    fn action_failed(&mut self, id: FiringId, reason: &str, now: &Now) {
        let Some(firing) = self.firings.get(&id) else { return };
        let action =
            self.triggers.get(&firing.uid).and_then(|trigger| trigger.spec.actions.get(firing.action));
        let mut more = json!({"detail": clip(reason)});
        match action {
            Some(Action { does: Does::Tool { tool, .. }, .. }) => {
                more["tool"] = json!(tool);
                if let Some(arguments) = action.and_then(|action| fill(action, firing).ok()) {
                    more["args"] = shape(&arguments);
                }
            }
            Some(Action { does: Does::Nl { executor: Some(executor), .. }, .. }) => {
                more["executor"] = json!(executor)
            }
            _ => {}
        }
        self.action_event(id, "action_failed", more, now);
        self.failed(id, now);
    }

    /// An event about the firing's action.
    pub(super) fn action_event(&mut self, id: FiringId, kind: &str, more: Value, now: &Now) {
        let Some(firing) = self.firings.get(&id) else { return };
        let Some(trigger) = self.triggers.get(&firing.uid) else { return };
        let trigger_id = Arc::clone(&trigger.id);
        let mut event = json!({"action_index": firing.action});
        if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
            event.extend(more);
        }
        self.event(now, kind, &trigger_id, event);
    }

    /// Every action is done.
    fn fired(&mut self, id: FiringId, now: &Now) {
        let Some(firing) = self.end_firing(id) else { return };
        let Some(trigger) = self.triggers.get_mut(&firing.uid) else { return };
        trigger.firing = None;
        trigger.fire_count += 1;
        trigger.fired_at = Some(now.wall);
        let over = match trigger.spec.when {
            When::Time { .. } => trigger.queue.is_empty() && trigger.times.is_over(),
            _ => !trigger.spec.when.repeats(),
        };
        if over {
            trigger.standing = Standing::Fired;
            self.index_is_stale |= trigger.spec.when.is_indexed();
        }
        let (trigger_id, fire_count) = (Arc::clone(&trigger.id), trigger.fire_count);
        self.counts.fired += 1;
        let mut more = json!({"fire_count": fire_count});
        if let Some((mark, capped)) = firing.mark {
            more["mark"] = json!(mark);
            more["capped"] = json!(capped);
        }
        self.event(now, "fired", &trigger_id, more);
        self.anchor_those_after(&trigger_id, over, now);
        self.ended(&firing, now);
    }

    /// An action failed: the rest is not done.
    fn failed(&mut self, id: FiringId, now: &Now) {
        let Some(firing) = self.end_firing(id) else { return };
        let Some(trigger) = self.triggers.get_mut(&firing.uid) else { return };
        trigger.firing = None;
        trigger.failure_count += 1;
        trigger.last_failure_at = Some(now.wall);
        let trigger_id = Arc::clone(&trigger.id);
        if matches!(trigger.spec.when, When::Time { .. }) {
            trigger.standing = Standing::Failed;
            trigger.queue.clear();
            trigger.times.end();
            self.index_is_stale |= trigger.spec.when.is_indexed();
        }
        self.counts.failed += 1;
        self.event(now, "failed", &trigger_id, json!({"action_index": firing.action}));
        self.ended(&firing, now);
    }

    /// Lets go of what the firing held, and goes on with what waits for its end.
    fn ended(&mut self, firing: &Firing, now: &Now) {
        self.commands.extend(firing.held.map(super::Command::Release));
        let Some(trigger) = self.triggers.get_mut(&firing.uid) else { return };
        let Some(next) = trigger.queue.pop_front() else { return self.schedule(firing.uid, now) };
        trigger.queue_bytes = trigger.queue_bytes.saturating_sub(next.provoking.size());
        self.fire(firing.uid, next, firing.awaited);
    }
}

impl When {
    /// Whether it is looked up when something is called.
    pub(super) fn is_indexed(&self) -> bool {
        !matches!(self, Self::Time { unless: None, .. })
    }
}

/// The trajectory event of a firing.
fn announcement(trigger: &Trigger, cause: &Cause) -> Map<String, Value> {
    let mut event = Map::new();
    event.insert("event_type".to_owned(), "trigger_fired".into());
    event.insert("source".to_owned(), SOURCE.into());
    event.insert("trigger_id".to_owned(), trigger.spec.id.as_str().into());
    match (cause, &trigger.spec.when) {
        (Cause::Call { tool, .. }, When::Action(_)) => {
            event.insert("provoking_tool".to_owned(), tool.as_str().into());
        }
        (Cause::Call { .. }, _) => {
            event.insert("provoking_tool".to_owned(), Value::Null);
        }
        (Cause::Website { app, method, path, status, .. }, _) => {
            event.insert("provoking_tool".to_owned(), Value::Null);
            let request = json!({"app": app, "method": method, "path": path, "status": status});
            event.insert("provoking_request".to_owned(), request);
        }
        (Cause::Clock, _) => {}
    }
    event
}

/// A tool action's arguments with everything put in.
fn fill(action: &Action, firing: &Firing) -> Result<Json, String> {
    let Does::Tool { args, .. } = &action.does else { return Err("not a tool action".to_owned()) };
    let parsed = Parsed::new(firing.provoking.args.as_deref(), firing.provoking.result.as_deref());
    let values = Values { args: Some(parsed.args()), result: Some(parsed.result()), ..Values::default() };
    args.fill(&values).map_err(|error| error.to_string())
}

/// What an action that was done is logged with.
fn done_detail(action: &Action, firing: &Firing) -> Value {
    match &action.does {
        Does::Permission { access, role, listed, .. } => {
            json!({"role": role, "action": access, "tools": serde_json::from_str::<Value>(listed.get()).unwrap_or_default()})
        }
        Does::Tool { tool, .. } => {
            json!({"tool": tool, "args": fill(action, firing).as_ref().map(shape).unwrap_or_default()})
        }
        Does::Nl { instruction, executor: None } => json!({"nl": clip(instruction)}),
        Does::Nl { instruction, executor: Some(executor) } => {
            json!({"nl": clip(instruction), "executor": executor})
        }
    }
}
