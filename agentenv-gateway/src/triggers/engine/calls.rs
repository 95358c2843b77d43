//! What calls, website requests and checks lead to (contract 7.2, 7.3, 7.9).

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;

use super::super::json::Json;
use super::super::spec::{Verdict, When};
use super::super::world::{SeenCall, SeenRequest};
use super::{
    Cause, Engine, JobOf, Look, LookedAt, MatchId, Now, Outcome, Pending, Provoking, Standing, Task, Uid,
};

/// Most matches that wait for one trigger's firing.
pub(crate) const MAX_QUEUED: usize = 1_000;

/// Most bytes of calls that wait with them.
pub(crate) const MAX_QUEUED_BYTES: usize = 16 << 20;

/// A call held by a barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) released: MatchId,
    pub(crate) trigger_id: Arc<str>,
    pub(crate) timeout: Duration,
}

impl Engine {
    /// Takes in a successful call by a watched role: how it looked to each trigger on its tool, and the state triggers
    /// that it prompts. What holds it comes back.
    pub(crate) fn called(
        &mut self,
        call: &SeenCall,
        looks: Vec<(Uid, Verdict)>,
        states: &[Uid],
        now: &Now,
    ) -> Vec<Held> {
        self.sync_clock(now);
        let cause = Cause::Call { tool: call.tool.clone(), role: call.role.clone() };
        let held = self.looked_at(
            &cause,
            &call.tool,
            &call.role,
            looks,
            call.arguments.as_ref(),
            Some(&call.result),
            now,
        );
        if !states.is_empty() {
            let provoking = Arc::new(Provoking { cause, args: None, result: None });
            for uid in states {
                self.prompt_check(*uid, &provoking);
            }
        }
        held
    }

    /// Takes in a website request, like a call.
    pub(crate) fn requested(
        &mut self,
        request: &SeenRequest,
        args: &Json,
        looks: Vec<(Uid, Verdict)>,
        now: &Now,
    ) -> Vec<Held> {
        self.sync_clock(now);
        let cause = Cause::Website {
            app: request.app.clone(),
            method: request.method.clone(),
            path: request.path.clone(),
            status: request.status,
            role: request.role.clone(),
        };
        let args: Arc<RawValue> = args.to_raw().into();
        self.looked_at(&cause, &request.path, &request.role, looks, Some(&args), None, now)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a call and a request have these parts in common and no more"
    )]
    fn looked_at(
        &mut self,
        cause: &Cause,
        what: &str,
        role: &str,
        looks: Vec<(Uid, Verdict)>,
        args: Option<&Arc<RawValue>>,
        result: Option<&Arc<RawValue>>,
        now: &Now,
    ) -> Vec<Held> {
        let looked_at = Arc::new(LookedAt { at: now.wall, what: what.to_owned(), role: role.to_owned() });
        let mut held = Vec::new();
        for (uid, verdict) in looks {
            let Some(trigger) = self.triggers.get_mut(&uid) else { continue };
            trigger.last_look = Some(Look { call: Arc::clone(&looked_at), verdict: verdict.clone() });
            if matches!(verdict, Verdict::Differs(_)) {
                continue;
            }
            let (id, spec) = (Arc::clone(&trigger.id), Arc::clone(&trigger.spec));
            match (verdict, &spec.when) {
                (Verdict::Differs(_), _) => {}
                (Verdict::Fault(at, error), _) => {
                    self.event(
                        now,
                        "eval_error",
                        &id,
                        json!({"provoking": cause.json(), "detail": format!("{at}: {error}")}),
                    );
                }
                (Verdict::Matches, When::Time { .. }) => self.cancel(uid, cause, now),
                (Verdict::Matches, _) => {
                    let part = |wanted: bool, raw: Option<&Arc<RawValue>>| raw.filter(|_| wanted).cloned();
                    let provoking = Provoking {
                        cause: cause.clone(),
                        args: part(spec.reads.0, args),
                        result: part(spec.reads.1, result),
                    };
                    let released = self.matched(uid, Arc::new(provoking), now);
                    held.extend(released.zip(spec.barrier.as_ref()).map(|(released, barrier)| Held {
                        released,
                        trigger_id: Arc::clone(&id),
                        timeout: barrier.timeout,
                    }));
                }
            }
        }
        held
    }

    /// A match of an action or website trigger: fires it, or waits for its firing to end. What the match's barrier waits
    /// for comes back.
    fn matched(&mut self, uid: Uid, provoking: Arc<Provoking>, now: &Now) -> Option<MatchId> {
        let match_id = MatchId(self.next());
        let trigger = self.triggers.get_mut(&uid)?;
        if trigger.standing != Standing::Armed || (trigger.firing.is_some() && !trigger.spec.when.repeats()) {
            return None;
        }
        let id = Arc::clone(&trigger.id);
        let held = trigger.spec.barrier.is_some().then_some(match_id);
        let cause = provoking.cause.json();
        trigger.detected_at = Some(now.wall);
        if trigger.firing.is_none() {
            self.event(now, "detected", &id, json!({"provoking": cause}));
            self.fire(uid, Pending { provoking, mark: None, held }, false);
            return held;
        }
        let bytes = trigger.queue_bytes.saturating_add(provoking.size());
        if trigger.queue.len() >= MAX_QUEUED || bytes > MAX_QUEUED_BYTES {
            let queued = trigger.queue.len();
            self.event(now, "detected_dropped", &id, json!({"provoking": cause, "queued": queued}));
            return None;
        }
        trigger.queue_bytes = bytes;
        trigger.queue.push_back(Pending { provoking, mark: None, held });
        let queued = trigger.queue.len();
        self.event(now, "detected", &id, json!({"provoking": cause, "queued": queued}));
        held
    }

    /// A call that an armed state trigger's check is made after: now, or when the check under way has ended.
    fn prompt_check(&mut self, uid: Uid, provoking: &Arc<Provoking>) {
        let Some(trigger) = self.triggers.get_mut(&uid) else { return };
        if trigger.standing != Standing::Armed || trigger.firing.is_some() {
            return;
        }
        if trigger.check.is_some() {
            trigger.check_again = Some(Arc::clone(provoking));
            return;
        }
        let When::State { check, .. } = &trigger.spec.when else { return };
        let task = Task::Check { check: Arc::clone(check), provoking: Arc::clone(provoking) };
        let job = self.run(JobOf::Check(uid), task, false);
        if let Some(trigger) = self.triggers.get_mut(&uid) {
            trigger.check = Some((job, Arc::clone(provoking)));
        }
    }

    /// A state trigger's check has ended.
    pub(super) fn checked(&mut self, uid: Uid, outcome: Outcome, awaited: bool, now: &Now) {
        let Some(trigger) = self.triggers.get_mut(&uid) else { return };
        let Some((_, provoking)) = trigger.check.take() else { return };
        let again = trigger.check_again.take();
        let id = Arc::clone(&trigger.id);
        let (what, role) = match &provoking.cause {
            Cause::Call { tool, role } => (tool.clone(), role.clone()),
            _ => (String::new(), String::new()),
        };
        let verdict = match &outcome {
            Outcome::Checked(Err(reason)) | Outcome::Failed(reason) => {
                Verdict::Differs(reason.as_str().into())
            }
            _ => Verdict::Matches,
        };
        trigger.last_look = Some(Look { call: Arc::new(LookedAt { at: now.wall, what, role }), verdict });
        match outcome {
            Outcome::Checked(Ok(())) if trigger.standing == Standing::Armed && trigger.firing.is_none() => {
                trigger.detected_at = Some(now.wall);
                self.event(now, "detected", &id, json!({"provoking": provoking.cause.json()}));
                self.fire(uid, Pending { provoking, mark: None, held: None }, awaited);
                return;
            }
            Outcome::Failed(reason) => {
                let reason = super::super::log::clip(&reason);
                self.event(
                    now,
                    "eval_error",
                    &id,
                    json!({"provoking": provoking.cause.json(), "detail": reason}),
                );
            }
            _ => {}
        }
        if let Some(again) = again {
            self.prompt_check(uid, &again);
        }
    }
}
