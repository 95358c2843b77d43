//! What the engine shows of itself: `GET /triggers/state` (contract 7.7) and `GET /triggers/explain`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::schedule::Start;
use super::super::spec::{Verdict, When};
use super::{Engine, Now, Phase, Standing, Trigger, Uid};
use crate::clock::VirtualTime;
use crate::time::wall_text;

#[derive(Serialize)]
struct State<'a> {
    config: Config<'a>,
    triggers: Vec<TriggerState<'a>>,
    events: Vec<&'a RawValue>,
    events_dropped: u64,
}

#[derive(Serialize)]
struct Config<'a> {
    watch_roles: &'a [String],
    executor_configured: bool,
    executors: Vec<&'a String>,
}

#[derive(Serialize)]
struct TriggerState<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    when: &'a RawValue,
    status: &'a str,
    detected_at: Option<String>,
    fired_at: Option<String>,
    fire_count: u64,
    failure_count: u64,
    last_failure_at: Option<String>,
    barrier: Option<&'a RawValue>,
    pending: usize,
    waiting: bool,
    next_mark: Option<VirtualTime>,
    /// It waits for a trigger that will never fire. Left out when it does not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unreachable: bool,
}

impl Engine {
    /// The engine's state.
    pub(crate) fn state(&self) -> Box<RawValue> {
        let unreachable = self.unreachable();
        let state = State {
            config: Config {
                watch_roles: self.settings.watched(),
                executor_configured: self.settings.executor.is_some(),
                executors: self.settings.executors.keys().collect(),
            },
            triggers: self
                .triggers
                .iter()
                .map(|(uid, trigger)| self.trigger_state(trigger, unreachable.contains(uid)))
                .collect(),
            events: self.log.events().collect(),
            events_dropped: self.log.dropped(),
        };
        serde_json::value::to_raw_value(&state).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }

    fn trigger_state<'a>(&self, trigger: &'a Trigger, unreachable: bool) -> TriggerState<'a> {
        let wall = |at: Option<Timestamp>| at.map(wall_text);
        TriggerState {
            id: &trigger.spec.id,
            kind: trigger.spec.when.kind(),
            when: &trigger.spec.summary,
            status: status(trigger),
            detected_at: wall(trigger.detected_at),
            fired_at: wall(trigger.fired_at),
            fire_count: trigger.fire_count,
            failure_count: trigger.failure_count,
            last_failure_at: wall(trigger.last_failure_at),
            barrier: trigger.spec.barrier.as_ref().map(|barrier| barrier.shown.as_ref()),
            pending: pending(trigger),
            waiting: self.waits(trigger),
            next_mark: trigger.times.marks.peek().filter(|_| trigger.standing == Standing::Armed),
            unreachable,
        }
    }

    /// The time triggers that wait, directly or not, for one that there is not, that fires no more, or for themselves.
    fn unreachable(&self) -> BTreeSet<Uid> {
        // All that wait, less those that what they wait for may still release, and those that wait for the clock only.
        let mut left: BTreeSet<Uid> = self.waiting_for.values().flatten().copied().collect();
        let fires =
            |uid: &Uid| self.triggers.get(uid).is_some_and(|trigger| trigger.standing == Standing::Armed);
        let owed = |uid: &Uid| self.triggers.get(uid).is_some_and(|trigger| trigger.times.anchor_when_armed);
        let mut released: Vec<Uid> = left.iter().copied().filter(owed).collect();
        for (anchor, waiting) in &self.waiting_for {
            if self.ids.get(anchor).is_some_and(|anchor| fires(anchor) && !left.contains(anchor)) {
                released.extend(waiting);
            }
        }
        while let Some(uid) = released.pop() {
            if left.remove(&uid)
                && let Some(waiting) =
                    self.triggers.get(&uid).and_then(|trigger| self.waiting_for.get(&*trigger.id))
            {
                released.extend(waiting);
            }
        }
        left
    }

    fn waits(&self, trigger: &Trigger) -> bool {
        let firing = trigger.firing.and_then(|id| self.firings.get(&id));
        firing.is_some_and(|firing| matches!(firing.phase, Phase::Delayed(_) | Phase::OutOfHours(_)))
    }

    /// Why a trigger has not fired: `{"id","status","why"}`, and what is known of it beyond that.
    pub(crate) fn explain(&self, id: &str, now: &Now) -> Option<Value> {
        let trigger = self.triggers.get(self.ids.get(id)?)?;
        let mut explanation = json!({"id": id, "type": trigger.spec.when.kind(), "status": status(trigger)});
        explanation["why"] = json!(self.why(trigger, now));
        if let Some(look) = &trigger.last_look {
            let (matched, failed) = match &look.verdict {
                Verdict::Matches => (true, None),
                Verdict::Differs(test) => (false, Some(test.to_string())),
                Verdict::Fault(test, error) => (false, Some(format!("{test}: {error}"))),
            };
            explanation["last_call"] = json!({
                "at": wall_text(look.call.at), "what": look.call.what, "role": look.call.role, "matched": matched, "failed_test": failed,
            });
        }
        if let (Some(mark), Some(clock)) = (trigger.times.marks.peek(), now.clock) {
            explanation["next_mark"] = json!(mark);
            explanation["virtual_seconds_left"] = json!(mark.micros_since(clock.now).max(0) as f64 / 1e6);
        }
        Some(explanation)
    }

    fn why(&self, trigger: &Trigger, now: &Now) -> String {
        match trigger.standing {
            Standing::Fired => return "it has fired, and fires no more".to_owned(),
            Standing::Failed => return "an action failed, and a time trigger is retired then".to_owned(),
            Standing::Cancelled => return "it was cancelled before it was due".to_owned(),
            Standing::Armed => {}
        }
        if let Some(firing) = trigger.firing.and_then(|id| self.firings.get(&id)) {
            let action = firing.action;
            return match firing.phase {
                Phase::Announcing => "it is about to fire".to_owned(),
                Phase::Delayed(_) => format!("its action {action} waits out its delay on the virtual clock"),
                Phase::OutOfHours(_) => format!("its action {action} waits for the executor's hours"),
                Phase::Acting(_) => format!("its action {action} is under way"),
                Phase::Verifying { .. } => format!("its action {action} is being verified"),
            };
        }
        match (&trigger.spec.when, &trigger.last_look) {
            (When::Time { times, .. }, _) => match (&times.start, now.clock) {
                (_, None) => "the virtual clock is off".to_owned(),
                (Start::After { anchor, .. }, _) if trigger.times.anchored.is_none() => {
                    self.why_not_anchored(anchor)
                }
                _ if trigger.times.marks.peek().is_none() => "it has no time left to fire at".to_owned(),
                _ => "its time has not come".to_owned(),
            },
            (When::State { .. }, _) if trigger.check.is_some() => "its check is being made".to_owned(),
            (When::State { .. }, Some(look)) => match &look.verdict {
                Verdict::Differs(reason) => format!("its check did not pass after the last call: {reason}"),
                _ => "its check has passed, and its actions failed".to_owned(),
            },
            (When::State { .. }, None) => "no watched role has called a tool that may write".to_owned(),
            (When::Action(when), None) => {
                format!("no watched role has called {} without an error", when.tool)
            }
            (When::Website(when), None) => format!("no watched role has sent a request to {}", when.app),
            (_, Some(look)) => match &look.verdict {
                Verdict::Differs(test) => format!("{test} did not pass on the last call"),
                Verdict::Fault(test, error) => {
                    format!("{test} could not be tested on the last call: {error}")
                }
                Verdict::Matches if trigger.failure_count > 0 => {
                    "it matched the last call, and an action failed".to_owned()
                }
                Verdict::Matches => "it waits for the next match".to_owned(),
            },
        }
    }

    fn why_not_anchored(&self, anchor: &str) -> String {
        match self.ids.get(anchor).and_then(|uid| self.triggers.get(uid)) {
            None => format!("it waits for '{anchor}' to fire, and there is no such trigger"),
            Some(anchor) if anchor.standing != Standing::Armed => {
                format!("it waits for '{}' to fire, which does so no more", anchor.spec.id)
            }
            Some(_) => format!("it waits for '{anchor}' to fire"),
        }
    }
}

fn pending(trigger: &Trigger) -> usize {
    if matches!(trigger.spec.when, When::Time { .. }) { 0 } else { trigger.queue.len() }
}

fn status(trigger: &Trigger) -> &'static str {
    match trigger.standing {
        _ if trigger.firing.is_some() && pending(trigger) > 0 => "queued",
        _ if trigger.firing.is_some() => "firing",
        Standing::Armed => "armed",
        Standing::Fired => "fired",
        Standing::Failed => "failed",
        Standing::Cancelled => "cancelled",
    }
}
