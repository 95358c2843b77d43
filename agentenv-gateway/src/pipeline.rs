//! The order in which a call goes through the gateway: the one place where it stands. What each stage does is the stage's.
//!
//! 1. who, from the request (the doors do this) · 2. where · 3. may it · 4. `tool_call` is written · 5. its turn · 6. the
//!    changelog before · 7. the child · 8. the changelog after · 9. the result or the failure is written · 10. the turn is
//!    given back · 11. triggers see it · 12. barriers hold the answer · 13. the answer

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use agentenv_protocol::error::Applied;
use agentenv_protocol::json::{Members, ObjectWriter, RawJson};
use memchr::memmem::Finder;
use serde_json::value::RawValue;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::{Answered, CallError, Source, ToolCall};
use crate::catalog::GATEWAY;
use crate::instance::Inner;
use crate::metrics::CallOutcome;
use crate::own::OwnTool;
use crate::store::{Actor, LatestId};
use crate::telemetry::CallSpan;
use crate::trajectory::{Event, EventId, Kind};
use crate::triggers::{CausedBy, InternalCall, InternalResult, SeenCall};
use crate::upstream::{UpstreamCall, UpstreamReply};

/// How long a call may take (contract 10).
pub const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Where a call goes.
#[derive(Debug, Clone, Copy)]
enum Place {
    Child { index: usize, hidden_by_default: bool, read_only: bool },
    Own(OwnTool),
}

/// A call that the rules let through. Only [`Inner::admit`] makes one.
struct Admitted<'a> {
    call: &'a ToolCall,
    place: Place,
}

/// What a call did, with the changelog's ids around it.
struct Performed {
    result: Result<RawJson, CallError>,
    before: LatestId,
    after: LatestId,
}

impl Performed {
    fn not_at_all(error: CallError) -> Self {
        Self { result: Err(error), before: LatestId::Unknown, after: LatestId::Unknown }
    }
}

/// A call's place in the order of calls.
pub(crate) enum Turn<'a> {
    /// It is its turn, until this is dropped.
    Given(#[expect(dead_code, reason = "held, not read")] Option<SemaphorePermit<'a>>),
    /// Its caller would wait no longer, or the instance ends.
    LeftTheQueue,
}

impl Inner {
    /// Runs a call to its end. It must run in a task of its own: cut short, it would leave a call without an end in the
    /// trajectory.
    pub(crate) async fn run(self: Arc<Self>, mut call: ToolCall) -> Result<Answered, CallError> {
        let started = Instant::now();
        let mut span = CallSpan::begin(self.traces.as_ref(), &mut call);
        let answer = self.staged(&call, &mut span).await;
        let outcome = outcome(answer.as_ref().map(|answered| &answered.result));
        self.metrics.call(&call.tool, &call.role, outcome, started.elapsed());
        span.end(outcome);
        answer
    }

    async fn staged(self: &Arc<Self>, call: &ToolCall, span: &mut CallSpan) -> Result<Answered, CallError> {
        let place = self.place(call)?;
        let Admitted { call, place } = self.admit(call, place)?;
        span.goes_to(&call.tool, self.name_of(place));
        let caused_by = self.triggers.firing_for_role(&call.role);
        let event = self.trajectory.append(call_event(call, &caused_by)).await;
        let event = event.map_err(|fault| CallError::Unrecorded(fault.to_string()))?;

        let turn = self.turn(&call.cancel).await;
        let performed = match &turn {
            Turn::Given(_) => self.perform(call, place).await,
            Turn::LeftTheQueue => Performed::not_at_all(CallError::Cancelled),
        };
        self.attribute(call, event, caused_by, &performed);
        self.trajectory.close_call(event, result_event(call, event, &performed)).await;
        drop(turn);
        let result = performed.result?;
        self.provoke(call, place, &result).await;
        Ok(Answered { result, changelog_id: performed.after.value() })
    }

    /// Where a call goes, or why nowhere.
    fn place(&self, call: &ToolCall) -> Result<Place, CallError> {
        let catalog = self.catalog.load();
        if call.only_child.is_none()
            && let Some(own) = self.own_tool(&call.tool)
        {
            return Ok(Place::Own(own));
        }
        let found = match call.only_child {
            None => catalog.find(&call.tool),
            Some(child) => catalog.of_child(child).find(|tool| tool.name == call.tool),
        };
        match found {
            Some(tool) => Ok(Place::Child {
                index: tool.child,
                hidden_by_default: tool.hidden_by_default,
                read_only: tool.read_only,
            }),
            None => match catalog.fault() {
                Some(fault) => Err(CallError::NotReady(fault)),
                None => Err(CallError::UnknownTool(call.tool.clone())),
            },
        }
    }

    /// Whom a call goes to.
    fn name_of(&self, place: Place) -> &str {
        match place {
            Place::Child { index, .. } => self.children.get(index).map_or("", |child| child.name.as_str()),
            Place::Own(_) => GATEWAY,
        }
    }

    /// Lets a call through that the rules allow.
    fn admit<'a>(&self, call: &'a ToolCall, place: Place) -> Result<Admitted<'a>, CallError> {
        let hidden = matches!(place, Place::Child { hidden_by_default: true, .. });
        if self.roles.allows(&call.role, &call.tool, hidden) {
            Ok(Admitted { call, place })
        } else {
            Err(CallError::Disabled { tool: call.tool.clone(), role: call.role.clone() })
        }
    }

    /// In consistent mode the one permit, first come first served.
    pub(crate) async fn turn(&self, cancel: &CancellationToken) -> Turn<'_> {
        let Some(turn) = &self.turn else { return Turn::Given(None) };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Turn::LeftTheQueue,
            () = self.stop.cancelled() => Turn::LeftTheQueue,
            permit = turn.acquire() => Turn::Given(permit.ok()),
        }
    }

    async fn perform(self: &Arc<Self>, call: &ToolCall, place: Place) -> Performed {
        let before = self.changelog_id().await;
        let result = match place {
            Place::Own(own) => self.call_own(own, &call.arguments),
            Place::Child { index, .. } => {
                let request = UpstreamCall {
                    tool: &call.tool,
                    arguments: &call.arguments,
                    meta: call.meta.as_deref(),
                    role: &call.role,
                    session: call.session.as_deref(),
                    notify: call.notify.clone(),
                    cancel: call.cancel.clone(),
                    traceparent: call.traceparent.clone(),
                    deadline: CALL_TIMEOUT,
                };
                self.ask(index, request).await
            }
        };
        let after = self.changelog_id().await;
        Performed { result, before, after }
    }

    /// Calls a child, and logs it if the child is not the one it was.
    async fn ask(self: &Arc<Self>, index: usize, request: UpstreamCall<'_>) -> Result<RawJson, CallError> {
        let Some(child) = self.children.get(index) else {
            return Err(CallError::UnknownTool(request.tool.to_owned()));
        };
        let UpstreamReply { result, reconnected } = tokio::select! {
            biased;
            reply = child.upstream.call(request) => reply,
            // A graceful stop has waited for it before.
            () = self.stop.cancelled() => {
                let message = "the gateway stopped before the child answered".to_owned();
                return Err(CallError::Failed { message, applied: Applied::Unknown });
            }
        };
        if let Some(reason) = reconnected {
            self.child_changed(index, &reason).await;
        }
        result
    }

    /// Notes that the rows between the ids around a call may be its.
    fn attribute(&self, call: &ToolCall, event: EventId, caused_by: Vec<CausedBy>, performed: &Performed) {
        if self.store.is_none() {
            return;
        }
        let actor = Actor::ToolCall {
            event_id: event.to_string(),
            tool: call.tool.clone(),
            role: call.role.clone(),
            caused_by: (!caused_by.is_empty()).then(|| serde_json::json!(caused_by)),
            failed: performed.result.is_err(),
        };
        self.windows.record(actor, performed.before, performed.after);
    }

    /// Shows a call to the triggers, and waits where a barrier holds the answer.
    async fn provoke(&self, call: &ToolCall, place: Place, result: &RawJson) {
        if !self.triggers.watches(&call.role, &call.tool) {
            return;
        }
        let Ok(seen) = serde_json::from_str::<Box<RawValue>>(result.as_str()) else { return };
        let seen = SeenCall {
            role: call.role.clone(),
            tool: call.tool.clone(),
            arguments: Some(Arc::from(call.arguments.clone())),
            is_error: is_error(result),
            result: Arc::from(seen),
            read_only: !matches!(place, Place::Child { read_only: false, .. }),
        };
        if let Some(barrier) = self.triggers.seen(seen).await {
            tokio::select! {
                () = barrier.wait() => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// A trigger's own call: it takes its turn, and neither rules nor triggers see it (contract 7.5).
    pub(crate) async fn run_internal(self: Arc<Self>, call: InternalCall) -> InternalResult {
        let mut by_role = ToolCall {
            role: call.role.clone().unwrap_or_else(|| crate::call::DEFAULT_ROLE.to_owned()),
            ..ToolCall::new(call.tool.clone(), call.arguments)
        };
        let mut span = CallSpan::of_trigger(self.traces.as_ref(), &mut by_role, &call.trigger_id);
        let Performed { result, before, after } = self.unruled(&by_role, &mut span).await;
        span.end(outcome(result.as_ref()));
        let result = result.map_err(|error| error.to_string()).and_then(|result| {
            let result = RawValue::from_string(result.as_str().to_owned());
            result.map(Arc::from).map_err(|error| error.to_string())
        });
        InternalResult { result, window: (before, after) }
    }

    async fn unruled(self: &Arc<Self>, call: &ToolCall, span: &mut CallSpan) -> Performed {
        let place = match self.place(call) {
            Ok(place) => place,
            Err(error) => return Performed::not_at_all(error),
        };
        span.goes_to(&call.tool, self.name_of(place));
        let _turn = self.turn(&call.cancel).await;
        self.perform(call, place).await
    }
}

/// How a call ended.
fn outcome(answer: Result<&RawJson, &CallError>) -> CallOutcome {
    match answer {
        Ok(result) if is_error(result) => CallOutcome::ToolError,
        Ok(_) => CallOutcome::Ok,
        Err(CallError::UnknownTool(_)) => CallOutcome::UnknownTool,
        Err(CallError::Disabled { .. }) => CallOutcome::Disabled,
        Err(CallError::NotReady(_)) => CallOutcome::NotReady,
        Err(CallError::Unrecorded(_)) => CallOutcome::Unrecorded,
        Err(CallError::TimedOut { .. }) => CallOutcome::TimedOut,
        Err(CallError::Cancelled) => CallOutcome::Cancelled,
        Err(_) => CallOutcome::Failed,
    }
}

/// Whether a result says of itself that it is an error.
pub(crate) fn is_error(result: &RawJson) -> bool {
    const MEMBER: &str = "\"isError\"";
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(MEMBER));
    let text = result.as_str();
    // Most results say no such thing of anything in them, which takes less to see than whose member it is.
    let may_be = FINDER.find_iter(text.as_bytes()).any(|at| {
        let value = text[at + MEMBER.len()..].trim_start().strip_prefix(':');
        value.is_some_and(|value| value.trim_start().starts_with("true"))
    });
    may_be && Members::of(text).is_ok_and(|m| m.get("isError").is_some_and(|v| v.get() == "true"))
}

fn call_event(call: &ToolCall, caused_by: &[CausedBy]) -> Event {
    let room = call.arguments.get().len() + call.tool.len() + call.role.len() + 160;
    let mut members = ObjectWriter::with_capacity(room)
        .object("tool_call", |of| {
            of.field("function_name", &call.tool).raw("arguments", call.arguments.get())
        })
        .field("role", &call.role);
    if call.source == Source::Step {
        members = members.field("source", "step_api");
    }
    if !caused_by.is_empty() {
        members = members.field("caused_by", caused_by);
    }
    Event::new(Kind::ToolCall, members)
}

fn result_event(call: &ToolCall, event: EventId, performed: &Performed) -> Event {
    let (kind, mut members) = match &performed.result {
        Ok(result) => {
            let members =
                ObjectWriter::with_capacity(result.as_str().len() + 200).field("tool_call_event_id", &event);
            (Kind::ToolCallResult, members.raw("tool_call_result", result.as_str()))
        }
        Err(error) => {
            let members = ObjectWriter::with_capacity(256).field("tool_call_event_id", &event);
            (Kind::ToolCallFailed, members.field("error", &error.to_string()))
        }
    };
    members = members.field("changelog_id_before", &performed.before).field("changelog_id", &performed.after);
    if call.source == Source::Step {
        members = members.field("source", "step_api");
    }
    Event::new(kind, members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_what_says_so_itself() {
        let of = |text: &str| is_error(&RawJson::object(text.to_owned().into()));
        for text in [r#"{"content":[],"isError":true}"#, "{ \"isError\" :\n true , \"isError2\":false}"] {
            assert!(of(text), "{text}");
        }
        for text in [
            r#"{"content":[],"isError":false}"#,
            r#"{"isError":null}"#,
            r#"{"structuredContent":{"isError":true}}"#,
            r#"{"structuredContent":{"isError":true},"isError":false}"#,
            r#"{"content":[{"type":"text","text":"\"isError\":true"}]}"#,
            "{}",
        ] {
            assert!(!of(text), "{text}");
        }
    }
}
