//! A made-up office: an instance of a few tools, whose calls go to the triggers as the gateway's pipeline sends them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use agentenv_protocol::access::{Access, AccessRules, ToolSet};
use futures_util::future::BoxFuture;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use super::super::agent::Agents;
use super::super::spec::ExecutorSpec;
use super::super::{InternalCall, InternalResult, SeenCall, ToolFacts, Triggers, World};
use crate::clock::Clock;
use crate::store::LatestId;
use crate::time::Time;

/// What the office holds.
#[derive(Default)]
pub(super) struct Inside {
    pub(super) sent: Vec<Value>,
    pub(super) inbox: Vec<Value>,
    pub(super) contacts: Vec<Value>,
    pub(super) trajectory: Vec<Value>,
    pub(super) rules: AccessRules,
    /// What calls of triggers went to which tool, and as whom.
    pub(super) internal: Vec<(String, Option<String>)>,
    /// How the executors do, and what they were told: role, trigger, text.
    pub(super) executor: Vec<(f64, Result<(), String>)>,
    pub(super) told: Vec<(String, String, String)>,
}

pub(super) struct Office {
    pub(super) triggers: Triggers,
    pub(super) clock: Clock,
    world: Arc<OfficeWorld>,
    /// The triggers know their world weakly.
    _handle: Arc<dyn World>,
}

pub(super) struct OfficeWorld {
    pub(super) inside: Mutex<Inside>,
}

const TOOLS: [(&str, bool); 9] = [
    ("send", false),
    ("email_search", true),
    ("deliver", false),
    ("contacts_lookup", true),
    ("contacts_add", false),
    ("fail", false),
    ("slow", false),
    ("broken", false),
    ("panic", false),
];

impl OfficeWorld {
    /// Runs a tool; an error is a call that got no result.
    async fn tool(&self, name: &str, args: &Value) -> Result<Value, String> {
        let text = |value: &Value| json!({"content": [{"type": "text", "text": value.to_string()}], "isError": false});
        match name {
            "slow" => {
                tokio::time::sleep(Duration::from_secs_f64(args["seconds"].as_f64().unwrap_or(1.0))).await
            }
            "fail" => return Ok(json!({"content": [{"type": "text", "text": "boom"}], "isError": true})),
            "broken" => return Err("the child has died".to_owned()),
            "panic" => panic!("a tool that panics"),
            _ => {}
        }
        let mut inside = self.inside.lock().unwrap();
        let holds = |item: &Value, field: &str, wanted: &Value| {
            item[field].as_str().unwrap_or_default().contains(wanted.as_str().unwrap_or_default())
        };
        Ok(text(&match name {
            "send" => {
                inside.sent.push(args.clone());
                json!({"sent": inside.sent.len()})
            }
            "deliver" => {
                inside.inbox.push(args.clone());
                json!({"inbox": inside.inbox.len()})
            }
            "email_search" => {
                json!({"emails": inside.inbox.iter().filter(|mail| holds(mail, "subject", &args["query"])).collect::<Vec<_>>()})
            }
            "contacts_add" => {
                inside.contacts.push(args.clone());
                json!({"contacts": inside.contacts.len()})
            }
            "contacts_lookup" => {
                json!({"contacts": inside.contacts.iter().filter(|contact| holds(contact, "name", &args["name"])).collect::<Vec<_>>()})
            }
            _ => json!({"done": name}),
        }))
    }
}

struct OfficeHandle(Arc<OfficeWorld>);

impl World for OfficeHandle {
    fn tool(&self, name: &str) -> Option<ToolFacts> {
        TOOLS.iter().find(|(tool, _)| *tool == name).map(|(_, read_only)| ToolFacts { read_only: *read_only })
    }

    fn tools_known(&self) -> bool {
        true
    }

    fn website(&self, name: &str) -> bool {
        name == "shop"
    }

    fn call_tool(&self, call: InternalCall) -> BoxFuture<'static, InternalResult> {
        let office = Arc::clone(&self.0);
        office.inside.lock().unwrap().internal.push((call.tool.clone(), call.role.clone()));
        Box::pin(async move {
            let args: Value = serde_json::from_str(call.arguments.get()).unwrap();
            let result = office.tool(&call.tool, &args).await;
            let result = result.map(|result| Arc::from(to_raw_value(&result).unwrap()));
            InternalResult { result, window: (LatestId::Known(1), LatestId::Known(2)) }
        })
    }

    fn set_access(&self, access: Access, role: &str, tools: &ToolSet) -> Result<(), String> {
        let mut inside = self.0.inside.lock().unwrap();
        inside.rules.apply(access, role, tools).map(drop).map_err(|error| error.to_string())
    }

    fn record(&self, event: Map<String, Value>, _: Option<(LatestId, LatestId)>) -> BoxFuture<'static, ()> {
        self.0.inside.lock().unwrap().trajectory.push(Value::Object(event));
        Box::pin(std::future::ready(()))
    }
}

/// Plays the executors: how long each instruction takes and how it ends, in turn, the last for ever.
struct Players(Arc<OfficeWorld>);

impl Agents for Players {
    fn instruct(
        &self,
        executor: &Arc<ExecutorSpec>,
        trigger_id: &Arc<str>,
        text: String,
    ) -> BoxFuture<'static, Result<(), String>> {
        let mut inside = self.0.inside.lock().unwrap();
        inside.told.push((executor.agent.role.clone(), trigger_id.to_string(), text));
        let (seconds, end) =
            if inside.executor.len() > 1 { inside.executor.remove(0) } else { inside.executor[0].clone() };
        let timeout = executor.agent.timeout;
        Box::pin(async move {
            match tokio::time::timeout(timeout, tokio::time::sleep(Duration::from_secs_f64(seconds))).await {
                Ok(()) => end,
                Err(_) => Err("too late".to_owned()),
            }
        })
    }
}

impl Office {
    pub(super) fn open() -> Self {
        let time = Time::at("2026-11-30T12:00:00Z".parse().unwrap());
        let clock = Clock::new(time.clone(), String::new());
        let world = Arc::new(OfficeWorld { inside: Mutex::default() });
        world.inside.lock().unwrap().executor = vec![(1.0, Ok(()))];
        let handle: Arc<dyn World> = Arc::new(OfficeHandle(Arc::clone(&world)));
        let weak: Weak<dyn World> = Arc::downgrade(&handle);
        let triggers =
            Triggers::with_agents(weak, clock.clone(), time, Arc::new(Players(Arc::clone(&world))));
        Self { triggers, clock, world, _handle: handle }
    }

    pub(super) fn inside<R>(&self, look: impl FnOnce(&mut Inside) -> R) -> R {
        look(&mut self.world.inside.lock().unwrap())
    }

    pub(super) fn arm(&self, at: &str, speed: f64) {
        self.clock
            .arm(&json!({"virtual_time": at, "virtual_seconds_per_real_second": speed}), false)
            .unwrap();
    }

    pub(super) fn try_register(&self, body: Value) -> Result<Value, String> {
        self.triggers.register(&to_raw_value(&body).unwrap(), None).map_err(|refused| refused.to_string())
    }

    pub(super) fn register(&self, triggers: Value) -> Value {
        self.try_register(json!({"triggers": triggers})).unwrap()
    }

    pub(super) fn remove(&self, ids: &[&str]) -> Value {
        self.triggers.remove(&to_raw_value(&json!({"ids": ids})).unwrap()).unwrap()
    }

    /// A call through the gateway, answered when its barriers let it.
    pub(super) async fn call_as(&self, role: &str, tool: &str, args: Value) -> Value {
        let result = self.world.tool(tool, &args).await.unwrap();
        let is_error = result["isError"] == json!(true);
        let call = SeenCall {
            role: role.to_owned(),
            tool: tool.to_owned(),
            arguments: Some(to_raw_value(&args).unwrap().into()),
            result: to_raw_value(&result).unwrap().into(),
            is_error,
            read_only: TOOLS.iter().any(|(name, read_only)| *name == tool && *read_only),
        };
        if self.triggers.watches(role, tool)
            && let Some(barrier) = self.triggers.seen(call).await
        {
            barrier.wait().await;
        }
        let text = result["content"][0]["text"].as_str().unwrap();
        serde_json::from_str(text).unwrap_or_else(|_| text.into())
    }

    pub(super) async fn call(&self, tool: &str, args: Value) -> Value {
        self.call_as("default", tool, args).await
    }

    pub(super) fn state(&self) -> Value {
        serde_json::from_str(self.triggers.state().get()).unwrap()
    }

    pub(super) fn trigger(&self, id: &str) -> Value {
        self.state()["triggers"]
            .as_array()
            .unwrap()
            .iter()
            .find(|trigger| trigger["id"] == id)
            .unwrap()
            .clone()
    }

    pub(super) fn status(&self, id: &str) -> String {
        self.trigger(id)["status"].as_str().unwrap().to_owned()
    }

    /// The events of a trigger.
    pub(super) fn events(&self, id: &str) -> Vec<Value> {
        self.state()["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["trigger_id"] == id)
            .cloned()
            .collect()
    }

    pub(super) fn kinds(&self, id: &str) -> Vec<String> {
        self.events(id).iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
    }

    /// A field of a trigger's events of a kind.
    pub(super) fn field(&self, id: &str, kind: &str, field: &str) -> Vec<Value> {
        self.events(id)
            .iter()
            .filter(|event| event["kind"] == kind)
            .map(|event| event[field].clone())
            .collect()
    }

    /// The trajectory's events of a kind.
    pub(super) fn recorded(&self, kind: &str) -> Vec<Value> {
        self.inside(|inside| {
            inside.trajectory.iter().filter(|event| event["event_type"] == kind).cloned().collect()
        })
    }

    /// Statuses by id.
    pub(super) fn statuses(&self) -> HashMap<String, String> {
        let state = self.state();
        let triggers = state["triggers"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        triggers.map(|trigger| (text(&trigger["id"]), text(&trigger["status"]))).collect()
    }
}

/// Lets everything go on that needs no time.
pub(super) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass, on the paused clock.
pub(super) async fn pass(seconds: f64) {
    settle().await;
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    settle().await;
}
