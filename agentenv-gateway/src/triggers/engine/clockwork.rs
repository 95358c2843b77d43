//! What depends on virtual time: marks that fall due, waits that end, and what becomes of both when the clock is armed
//! anew or cleared (contract 7.4, 7.9).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::super::schedule::{Marks, Start};
use super::super::spec::When;
use super::{
    Cause, Engine, FiringId, Now, Pending, Phase, Provoking, Standing, Times, Trigger, Uid, Wait, Wake,
};
use crate::clock::{ClockReading, VirtualTime};

/// Most marks of one trigger that fire for one look at the clock; the rest fire later.
pub(crate) const MAX_CATCH_UP: usize = 1_000;

/// Most marks of all triggers that are taken in before others get a turn.
const MAX_IN_ONE_GO: usize = 10_000;

/// How long a trigger with more due than [`MAX_CATCH_UP`] is left alone.
const NEXT_LOOK: Duration = Duration::from_secs(1);

impl Times {
    /// Whether there will be no more marks.
    pub(super) fn is_over(&self) -> bool {
        self.generation.is_some() && self.marks.peek().is_none()
    }

    pub(super) fn end(&mut self) {
        self.marks = Marks::none();
    }
}

impl Engine {
    /// When to look next: in virtual time, and for what was put off, in real time.
    pub(crate) fn next_due(&self) -> (Option<VirtualTime>, Option<Timestamp>) {
        let due = self.due.first().map(|(at, _)| *at).filter(|_| self.clock.is_some());
        (due, self.later.first().map(|(at, _)| *at).filter(|_| self.clock.is_some()))
    }

    /// Looks at the clock: fires what is due. With `all`, what was put off too. Whether more is due at once comes back.
    pub(crate) fn tick(&mut self, now: &Now, all: bool) -> bool {
        self.sync_clock(now);
        let Some(shown) = now.virtual_time() else { return false };
        while let Some((at, uid)) = self.later.first().copied().filter(|(at, _)| all || *at <= now.wall) {
            self.later.remove(&(at, uid));
            if let Some(trigger) = self.triggers.get_mut(&uid) {
                trigger.times.put_off = None;
            }
            self.schedule(uid, now);
        }
        let before = self.marks;
        while let Some((at, wake)) = self.due.first().copied().filter(|(at, _)| *at <= shown) {
            if self.marks - before >= MAX_IN_ONE_GO {
                return true;
            }
            self.due.remove(&(at, wake));
            match wake {
                Wake::Firing(firing) => {
                    // As a mark that falls due is.
                    if let Some(firing) = self.firings.get_mut(&firing) {
                        firing.awaited = true;
                    }
                    self.act_in_hours(firing, now);
                }
                Wake::Mark(uid) => self.marks_due(uid, shown, now),
            }
        }
        false
    }

    /// Fires a trigger's marks that are due.
    fn marks_due(&mut self, uid: Uid, shown: VirtualTime, now: &Now) {
        let Some(trigger) = self.triggers.get_mut(&uid) else { return };
        trigger.times.due = None;
        if trigger.firing.is_some() || trigger.standing != Standing::Armed {
            // Its end schedules the mark anew.
            return;
        }
        let mut marks = Vec::new();
        while marks.len() < MAX_CATCH_UP {
            let Some(mark) = trigger.times.marks.take_due(shown) else { break };
            marks.push(mark);
        }
        let capped = trigger.times.marks.peek().is_some_and(|next| next <= shown);
        let (Some(first), Some(last)) = (marks.first(), marks.last()) else { return };
        let more = json!({
            "provoking": Cause::Clock.json(), "due": marks.len(), "capped": capped, "first_mark": first, "last_mark": last,
        });
        trigger.detected_at = Some(now.wall);
        let id = Arc::clone(&trigger.id);
        self.event(now, "detected", &id, more);
        let provoking = Arc::new(Provoking { cause: Cause::Clock, args: None, result: None });
        self.marks += marks.len();
        let mut pending = marks.into_iter().map(|mark| Pending {
            provoking: Arc::clone(&provoking),
            mark: Some((mark, capped)),
            held: None,
        });
        let first = pending.next();
        if let Some(trigger) = self.triggers.get_mut(&uid) {
            trigger.queue.extend(pending);
        }
        if let Some(first) = first {
            self.fire(uid, first, true);
        }
        if capped {
            // Until then the end of its firings does not schedule it.
            let again = now.wall.checked_add(NEXT_LOOK).unwrap_or(Timestamp::MAX);
            self.later.insert((again, uid));
            if let Some(trigger) = self.triggers.get_mut(&uid) {
                trigger.times.put_off = Some(again);
            }
        }
    }

    /// Puts an idle trigger's next mark into the queue of what is due.
    pub(super) fn schedule(&mut self, uid: Uid, now: &Now) {
        self.unschedule_mark(uid);
        let Some(trigger) = self.triggers.get_mut(&uid) else { return };
        let idle = trigger.standing == Standing::Armed && trigger.firing.is_none();
        if now.clock.is_none() || !idle || trigger.times.put_off.is_some() {
            return;
        }
        if let Some(next) = trigger.times.marks.peek() {
            trigger.times.due = Some(next);
            self.due.insert((next, Wake::Mark(uid)));
        }
    }

    fn unschedule_mark(&mut self, uid: Uid) {
        let due = self.triggers.get_mut(&uid).and_then(|trigger| trigger.times.due.take());
        if let Some(due) = due {
            self.due.remove(&(due, Wake::Mark(uid)));
        }
    }

    /// Takes a trigger out of everything that time keeps.
    pub(super) fn unschedule(&mut self, uid: Uid) {
        self.unschedule_mark(uid);
        let put_off = self.triggers.get_mut(&uid).and_then(|trigger| trigger.times.put_off.take());
        if let Some(put_off) = put_off {
            self.later.remove(&(put_off, uid));
        }
    }

    /// A new time trigger: puts it on the clock, and has it wait for the trigger that it comes after.
    pub(super) fn start_times(&mut self, uid: Uid, now: &Now) {
        let Some(trigger) = self.triggers.get(&uid) else { return };
        let When::Time { times, .. } = &trigger.spec.when else { return };
        if let Start::After { anchor, .. } = &times.start {
            self.waiting_for.entry(anchor.clone()).or_default().insert(uid);
        }
        if let Some(clock) = now.clock {
            self.put_on_clock(uid, &clock, now);
        }
    }

    /// Reckons a trigger's marks on an arming of the clock.
    fn put_on_clock(&mut self, uid: Uid, clock: &ClockReading, now: &Now) {
        self.unschedule(uid);
        let Some(trigger) = self.triggers.get_mut(&uid) else { return };
        let When::Time { times, .. } = &trigger.spec.when else { return };
        if trigger.standing != Standing::Armed {
            return;
        }
        let before = trigger.times.generation.replace(clock.generation);
        let waits = matches!(times.start, Start::After { .. });
        if waits && before.is_some() {
            // A mark that is stamped is kept, with what was due of it.
            self.schedule(uid, now);
            return self.anchor_if_owed(uid, clock, now);
        }
        let dropped = trigger.queue.front().and_then(|pending| pending.mark).map(|(mark, _)| mark);
        let dropped = dropped.or_else(|| trigger.times.marks.peek());
        trigger.queue.clear();
        let used = trigger.fire_count + u64::from(trigger.firing.is_some());
        trigger.times.marks = times.marks(clock.t0, trigger.times.anchored, used);
        let id = Arc::clone(&trigger.id);
        if trigger.times.marks.peek().is_none() && trigger.firing.is_none() && trigger.fire_count > 0 {
            // Everything that it still had to do was due on the old timeline only.
            trigger.standing = Standing::Fired;
            self.index_is_stale |= trigger.spec.when.is_indexed();
        }
        if before.is_some() {
            let more = json!({"generation": clock.generation, "dropped_mark": dropped});
            self.event(now, "reanchored", &id, more);
        }
        self.schedule(uid, now);
        self.anchor_if_owed(uid, clock, now);
    }

    fn anchor_if_owed(&mut self, uid: Uid, clock: &ClockReading, now: &Now) {
        if self
            .triggers
            .get_mut(&uid)
            .is_some_and(|trigger| std::mem::take(&mut trigger.times.anchor_when_armed))
        {
            self.anchor(uid, clock.t0, now);
        }
    }

    /// A trigger has fired: stamps the marks of those that wait for it. `over`: it will not fire again.
    pub(super) fn anchor_those_after(&mut self, id: &str, over: bool, now: &Now) {
        let Some(waiting) = self.waiting_for.get(id) else { return };
        let waiting: Vec<Uid> = waiting.iter().copied().collect();
        for uid in waiting {
            match now.clock {
                Some(clock) => self.anchor(uid, clock.now, now),
                // Nothing else will stamp it.
                None if over => {
                    if let Some(trigger) = self.triggers.get_mut(&uid) {
                        trigger.times.anchor_when_armed = true;
                    }
                }
                None => {}
            }
        }
    }

    fn anchor(&mut self, uid: Uid, fired: VirtualTime, now: &Now) {
        self.end_waiting_for(uid);
        let Some(clock) = now.clock else { return };
        let Some(trigger) = self.triggers.get_mut(&uid) else { return };
        let When::Time { times, .. } = &trigger.spec.when else { return };
        let Start::After { anchor, offset } = &times.start else { return };
        if trigger.standing != Standing::Armed || trigger.times.anchored.is_some() {
            return;
        }
        let mark = fired.saturating_add(*offset);
        let more = json!({"anchor": anchor, "mark": mark});
        trigger.times.anchored = Some(mark);
        trigger.times.generation = Some(clock.generation);
        trigger.times.marks = times.marks(clock.t0, Some(mark), 0);
        let id = Arc::clone(&trigger.id);
        self.event(now, "anchored", &id, more);
        self.schedule(uid, now);
    }

    /// The trigger waits for none any more.
    pub(super) fn end_waiting_for(&mut self, uid: Uid) {
        let Some(trigger) = self.triggers.get(&uid) else { return };
        let When::Time { times, .. } = &trigger.spec.when else { return };
        let Start::After { anchor, .. } = &times.start else { return };
        if let Some(waiting) = self.waiting_for.get_mut(anchor) {
            waiting.remove(&uid);
            if waiting.is_empty() {
                self.waiting_for.remove(anchor);
            }
        }
    }

    /// A call came that a time trigger was waiting to see none of: it will not fire, nor will those that would have fired
    /// after it.
    pub(super) fn cancel(&mut self, uid: Uid, cause: &Cause, now: &Now) {
        let mut cancelled = vec![(uid, json!({"provoking": cause.json()}))];
        // By a list and not by recursion, however long the chain.
        while let Some((uid, more)) = cancelled.pop() {
            let Some(trigger) = self.triggers.get_mut(&uid) else { continue };
            if trigger.standing != Standing::Armed || trigger.firing.is_some() || !trigger.queue.is_empty() {
                continue;
            }
            trigger.standing = Standing::Cancelled;
            trigger.times.end();
            self.index_is_stale |= trigger.spec.when.is_indexed();
            let id = Arc::clone(&trigger.id);
            self.event(now, "cancelled", &id, more);
            self.end_waiting_for(uid);
            self.unschedule(uid);
            let after = self.waiting_for.get(&*id).into_iter().flatten().rev();
            cancelled.extend(after.map(|uid| (*uid, json!({"anchor": &*id}))));
        }
    }

    /// Has a firing wait out a delay.
    pub(super) fn wait(&mut self, id: FiringId, delay: i64, now: &Now) {
        let wait = match now.clock {
            Some(clock) => Wait::Until(clock.now.saturating_add(delay)),
            None => Wait::Left(delay),
        };
        self.set_wait(id, Phase::Delayed(wait));
    }

    /// Has a firing wait until its executor works; without `until`, it never will.
    pub(super) fn wait_for_hours(&mut self, id: FiringId, until: Option<VirtualTime>, now: &Now) {
        let Some(firing) = self.firings.get(&id) else { return };
        let known = firing.phase == Phase::OutOfHours(until);
        let trigger = self.triggers.get(&firing.uid);
        let name = trigger.and_then(|trigger| match &trigger.spec.actions.get(firing.action)?.does {
            super::super::spec::Does::Nl { executor, .. } => executor.clone(),
            _ => None,
        });
        self.set_wait(id, Phase::OutOfHours(until));
        if !known {
            let mut more = json!({"until": until});
            if let Some(name) = name {
                more["executor"] = json!(name);
            }
            self.action_event(id, "deferred", more, now);
        }
    }

    fn set_wait(&mut self, id: FiringId, phase: Phase) {
        let until = match phase {
            Phase::Delayed(Wait::Until(until)) => Some(until),
            Phase::OutOfHours(until) => until,
            _ => None,
        };
        if let Some(firing) = self.firings.get_mut(&id) {
            firing.phase = phase;
            if let Some(until) = until {
                self.due.insert((until, Wake::Firing(id)));
            }
        }
    }

    /// Follows the clock when it has been armed anew or cleared since the last event.
    pub(crate) fn sync_clock(&mut self, now: &Now) {
        let before = std::mem::replace(&mut self.clock, now.clock);
        if before.map(|clock| clock.generation) == now.clock.map(|clock| clock.generation) {
            return;
        }
        self.waits_follow(before, now);
        let timed: Vec<Uid> =
            self.triggers.iter().filter(|(_, trigger)| is_timed(trigger)).map(|(uid, _)| *uid).collect();
        for uid in timed {
            match &now.clock {
                Some(clock) => self.put_on_clock(uid, clock, now),
                None => self.unschedule(uid),
            }
        }
    }

    /// A wait keeps what is left of it over a jump of the clock backwards and while the clock is off; a jump forwards
    /// shortens it.
    fn waits_follow(&mut self, before: Option<ClockReading>, now: &Now) {
        let waiting: Vec<FiringId> = self.firings.keys().copied().collect();
        for id in waiting {
            let Some(firing) = self.firings.get(&id) else { continue };
            let phase = firing.phase.clone();
            if let Phase::Delayed(Wait::Until(until)) | Phase::OutOfHours(Some(until)) = phase {
                self.due.remove(&(until, Wake::Firing(id)));
            }
            match (phase, now.clock) {
                (Phase::Delayed(Wait::Until(until)), None) => {
                    let left = until.micros_since(now.last_shown).max(0);
                    self.set_wait(id, Phase::Delayed(Wait::Left(left)));
                }
                (Phase::Delayed(Wait::Until(until)), Some(clock)) => {
                    let shown = clock.before.or(before.map(|before| before.now)).unwrap_or(clock.t0);
                    let back = shown.micros_since(clock.t0).max(0);
                    self.set_wait(id, Phase::Delayed(Wait::Until(until.saturating_add(-back))));
                }
                (Phase::Delayed(Wait::Left(left)), Some(clock)) => {
                    self.set_wait(id, Phase::Delayed(Wait::Until(clock.t0.saturating_add(left))));
                }
                (Phase::OutOfHours(_), Some(_)) => self.act_in_hours(id, now),
                _ => {}
            }
        }
    }
}

fn is_timed(trigger: &Trigger) -> bool {
    matches!(trigger.spec.when, When::Time { .. }) && trigger.standing == Standing::Armed
}
