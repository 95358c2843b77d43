//! The trigger engine (contract 7): when a tool call, a state, a website request or a virtual time matches, it calls a
//! tool, changes a role's tools or gives an agent an instruction. What the calls mean, the HTTP routes and the
//! trajectory's file are left to the instance, which it knows as a [`World`].

mod advance;
mod agent;
mod barrier;
mod card;
mod check;
mod driver;
mod engine;
mod executor;
mod hours;
mod index;
mod json;
mod log;
mod parse;
mod path;
mod predicate;
mod random;
mod regex;
mod repeats;
mod result;
mod schedule;
mod shape;
mod spec;
mod template;
mod website;
mod world;

use std::sync::{Arc, Weak};

use serde_json::Value;
use serde_json::value::RawValue;

use self::agent::{A2a, Agents};
pub use self::barrier::Barrier;
pub use self::card::card_extensions;
use self::driver::Driver;
use self::json::Json;
pub use self::world::{
    CausedBy, FiringCounts, InternalCall, InternalResult, Refused, SeenCall, SeenRequest, ToolFacts, World,
};
use crate::clock::{Clock, ClockRefusal, GET_TIME};
use crate::time::Time;

/// Tools of the gateway itself, which come and go, and which a permission may name whether they are there or not.
const OWN_TOOLS: [&str; 2] = [GET_TIME, "list_website_urls"];

/// The trigger engine: a cheap handle, every clone the same engine. Its tasks run until [`stop`](Self::stop).
#[derive(Clone)]
pub struct Triggers {
    driver: Arc<Driver>,
    world: Weak<dyn World>,
}

impl std::fmt::Debug for Triggers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Triggers")
            .field("triggers", &self.driver.look(|engine, _| engine.len()))
            .finish_non_exhaustive()
    }
}

impl Triggers {
    /// An engine with no triggers. Starts the task that fires time triggers, so it must be called on a tokio runtime.
    pub fn new(world: Weak<dyn World>, clock: Clock, time: Time) -> Self {
        Self::with_agents(world, clock, time, Arc::new(A2a::new()))
    }

    fn with_agents(world: Weak<dyn World>, clock: Clock, time: Time, agents: Arc<dyn Agents>) -> Self {
        Self { driver: Driver::start(Weak::clone(&world), clock, time, agents), world }
    }

    /// `POST /triggers/register` (contract 7.1). The answer is `{"ok":true,"added","all"}`, and `warnings` when something
    /// in it has no effect, such as an unknown key. The body is raw because seeds and compared numbers may have more
    /// digits than a [`Value`] keeps. A request that is sent again with the same `Idempotency-Key` is answered as before
    /// and changes nothing.
    ///
    /// # Errors
    /// Every fault of every trigger, by field; nothing has changed.
    pub fn register(&self, body: &RawValue, idempotency_key: Option<&str>) -> Result<Value, Refused> {
        let mut repeats = self.driver.turn();
        if let Some(key) = idempotency_key
            && let Some(answer) = repeats.find(key, body.get()).map_err(Refused)?
        {
            return Ok(answer);
        }
        let answer = self.register_now(body)?;
        if let Some(key) = idempotency_key {
            repeats.keep(key, body.get(), &answer);
        }
        Ok(answer)
    }

    fn register_now(&self, body: &RawValue) -> Result<Value, Refused> {
        let body = parse_body(body)?;
        let Some(world) = self.world.upgrade() else {
            return Err(Refused("the instance is being shut down".to_owned()));
        };
        let ids: Vec<&str> = body
            .get("triggers")
            .and_then(Json::as_array)
            .unwrap_or_default()
            .iter()
            .filter_map(|trigger| trigger.get("id").and_then(Json::as_str))
            .collect();
        let (settings, known, count) = self.driver.look(|engine, _| {
            let known = ids.iter().filter_map(|id| engine.registered(id)).cloned().collect::<Vec<_>>();
            (engine.settings().clone(), known, engine.len())
        });
        let known: std::collections::HashMap<&str, &Json> =
            known.iter().map(|spec| (spec.id.as_str(), &spec.source)).collect();
        let tool = |name: &str| world.tool(name).is_some();
        let names = parse::Names {
            tool: world.tools_known().then_some(&tool),
            website: &|name| world.website(name),
            registered: &|id| known.get(id).copied(),
            own_tools: &OWN_TOOLS,
        };
        let make_id = || {
            format!("trg_{}", uuid::Uuid::new_v4().simple().to_string().chars().take(12).collect::<String>())
        };
        let registration = parse::register(&body, &settings, &names, make_id).map_err(Refused)?;
        if count.saturating_add(registration.entries.len()) > parse::MAX_TRIGGERS {
            return Err(Refused(format!("there would be more than {} triggers", parse::MAX_TRIGGERS)));
        }
        tracing::info!(triggers = registration.entries.len(), "triggers registered");
        Ok(self.driver.with(|engine, now| engine.register(registration, now)))
    }

    /// `POST /triggers/remove {"ids"}`: `{"ok":true,"removed"}`. What those triggers were doing is cancelled.
    ///
    /// # Errors
    /// A body that is not of that shape.
    pub fn remove(&self, body: &RawValue) -> Result<Value, Refused> {
        let ids = parse::remove(&parse_body(body)?).map_err(Refused)?;
        let _turn = self.driver.turn();
        Ok(self.driver.with(|engine, now| engine.remove(&ids, now)))
    }

    /// `POST /triggers/clear`: `{"ok":true}`. Triggers, settings and log are gone, and what was firing is cancelled.
    pub fn clear(&self) -> Value {
        let mut repeats = self.driver.turn();
        repeats.clear();
        self.driver.with(|engine, _| engine.clear());
        serde_json::json!({"ok": true})
    }

    /// `GET /triggers/state` (contract 7.7).
    pub fn state(&self) -> Box<RawValue> {
        self.driver.look(|engine, _| engine.state())
    }

    /// `GET /triggers/explain?id=`: why a trigger has not fired; none for an unknown id. The answer is `{"id","type",
    /// "status","why"}`, with `last_call` (`at`, `what`, `role`, `matched`, `failed_test`) where a watched call has been
    /// looked at, and `next_mark` and `virtual_seconds_left` where a time is to come.
    pub fn explain(&self, id: &str) -> Option<Value> {
        self.driver.look(|engine, now| engine.explain(id, now))
    }

    /// Whether a call of `tool` by `role` can matter to any trigger: one look at an immutable table. The pipeline asks
    /// before it does anything for triggers.
    pub fn watches(&self, role: &str, tool: &str) -> bool {
        self.driver.index().watches(role, tool)
    }

    /// Tells the engine of a finished call; what it provokes starts at once. The answer to the call is held until the
    /// barrier, if there is one, has been waited for.
    pub async fn seen(&self, call: SeenCall) -> Option<Barrier> {
        self.driver.called(call).await
    }

    /// Whether a request to the website `app` by `role` can matter to any trigger; its body need not be kept otherwise.
    pub fn watches_website(&self, role: &str, app: &str) -> bool {
        self.driver.index().watches_website(role, app)
    }

    /// Tells the engine of a finished website request (contract 7.9), like [`seen`](Self::seen).
    pub fn seen_website(&self, request: &SeenRequest) -> Option<Barrier> {
        self.driver.requested(request)
    }

    /// The firings that an executor of this role is acting for at the moment, for `caused_by` on its calls.
    pub fn firing_for_role(&self, role: &str) -> Vec<CausedBy> {
        if !self.driver.is_instructing() {
            return Vec::new();
        }
        self.driver.look(|engine, _| engine.causes(role))
    }

    /// `POST /clock/advance {"by": duration}`: moves virtual time forward, and fires each mark that falls due at its own
    /// instant, in order, before it answers. The answer is the clock's state, `fired` (how many marks) and `complete`,
    /// false when so much fell due that it stopped early. If the future is dropped, time stays where it had come to.
    ///
    /// # Errors
    /// A malformed duration, a clock that is off, or one that was armed or cleared meanwhile.
    pub async fn advance(&self, body: &Value) -> Result<Value, ClockRefusal> {
        advance::advance(&self.driver, body).await
    }

    /// How often triggers have fired and failed.
    pub fn firing_counts(&self) -> FiringCounts {
        self.driver.look(|engine, _| engine.counts())
    }

    /// Ends every task of the engine: what is firing is cancelled and nothing fires any more.
    pub async fn stop(&self) {
        self.driver.end().await;
    }
}

fn parse_body(body: &RawValue) -> Result<Json, Refused> {
    Json::parse(body.get()).ok_or_else(|| Refused("request body is nested too deep".to_owned()))
}

#[cfg(test)]
mod tests;
