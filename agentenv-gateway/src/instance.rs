//! The instance: a gateway, its children and their state, behind one cheap handle. Nothing of it is global, so a program may
//! hold a thousand. How it is put together is `builder`'s, how a call runs the pipeline's, and HTTP is `http`'s.

use std::sync::{Arc, Weak};

use agentenv_protocol::access::{Access, RoleView, ToolSet};
use agentenv_protocol::error::Applied;
use agentenv_protocol::json::{ObjectWriter, RawJson};
use agentenv_protocol::task::{Panicked, RunToEnd};
use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::builder::InstanceBuilder;
use crate::call::{Answered, CallError, ToolCall};
use crate::catalog::{Catalog, ChildTools, GATEWAY};
use crate::clock::Clock;
use crate::config::Named;
use crate::http::proxy::Proxy;
use crate::metrics::Metrics;
use crate::own::LIST_WEBSITE_URLS;
use crate::roles::Roles;
use crate::store::{Actor, LatestId, Store, Windows};
use crate::telemetry::Traces;
use crate::trajectory::{Event, EventId, Kind, Trajectory};
use crate::triggers::{InternalCall, InternalResult, ToolFacts, Triggers, World};
use crate::upstream::Upstream;

/// How calls of several callers run (contract 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Side by side.
    #[default]
    Performance,
    /// One at a time, first come first served.
    Consistent,
}

/// A child: its name, its tools, and the way to it.
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) upstream: Upstream,
    pub(crate) tools: ArcSwap<ChildTools>,
}

/// What `/svc/{key}/` leads to.
#[derive(Clone)]
pub(crate) enum ServiceTarget {
    /// A server behind a URL, whose MCP endpoint is at this path below it.
    Remote { base: Url, mcp: String },
    /// The routes of an environment in this process.
    InProcess(agentenv_protocol::environment::EnvRuntime),
}

/// One entry under `/svc`.
#[derive(Clone)]
pub(crate) struct ServiceEntry {
    pub(crate) key: String,
    pub(crate) target: ServiceTarget,
    /// The child whose server this is.
    pub(crate) child: Option<usize>,
}

/// Everything an instance is made of.
pub(crate) struct Inner {
    pub(crate) name: String,
    pub(crate) children: Vec<Child>,
    pub(crate) services: Vec<ServiceEntry>,
    pub(crate) websites: Vec<Named>,
    pub(crate) proxy: Proxy,
    pub(crate) catalog: ArcSwap<Catalog>,
    pub(crate) roles: Roles,
    pub(crate) clock: Clock,
    pub(crate) trajectory: Trajectory,
    /// The one permit of consistent mode.
    pub(crate) turn: Option<Semaphore>,
    pub(crate) triggers: Triggers,
    #[expect(dead_code, reason = "what the triggers see of the instance, which they hold weakly")]
    pub(crate) world: Arc<dyn World>,
    pub(crate) store: Option<Store>,
    /// The store is the instance's own: a server's changelog is installed once data is loaded into it.
    pub(crate) installs_changelog: bool,
    pub(crate) windows: Windows,
    pub(crate) metrics: Metrics,
    /// Where the spans of calls go, if anywhere.
    pub(crate) traces: Option<Traces>,
    /// The calls under way, whose end a graceful stop awaits.
    pub(crate) tracker: TaskTracker,
    /// What goes on until `stop`.
    pub(crate) background: TaskTracker,
    /// The instance ends: calls still under way fail.
    pub(crate) stop: CancellationToken,
}

/// A running instance. Clones are handles on the same one.
#[derive(Clone)]
pub struct Instance(pub(crate) Arc<Inner>);

impl Instance {
    /// Begins to put an instance together. The name is that of its MCP server and of its card.
    pub fn builder(name: impl Into<String>) -> InstanceBuilder {
        InstanceBuilder::new(name.into())
    }

    /// The instance's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Calls a tool as an agent would: role rules, trajectory, triggers and all. A caller that drops the future leaves the
    /// call running to its end.
    ///
    /// # Errors
    /// [`CallError`]; a tool's own error is a result with `isError`.
    pub async fn call(&self, call: ToolCall) -> Result<Answered, CallError> {
        let run = RunToEnd::new(Arc::clone(&self.0).run(call), &self.0.tracker);
        run.await.unwrap_or_else(|Panicked| {
            tracing::error!("a call panicked");
            Err(CallError::Failed { message: "internal error".to_owned(), applied: Applied::Unknown })
        })
    }

    /// Writes a role rule (contract 4.1) and gives the role's own rules after it.
    ///
    /// # Errors
    /// Too many roles have rules.
    pub fn set_access(
        &self,
        access: Access,
        role: &str,
        tools: &ToolSet,
    ) -> Result<RoleView, agentenv_protocol::access::TooManyRoles> {
        self.0.roles.apply(access, role, tools)
    }

    /// The names of the tools that a role sees, in their order.
    pub fn tool_names(&self, role: &str) -> Vec<String> {
        let mut names = Vec::new();
        self.0.visible(role, |tool| names.push(tool.name.clone()));
        names
    }

    /// The virtual clock.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The trigger engine.
    pub fn triggers(&self) -> &Triggers {
        &self.0.triggers
    }

    /// The log of calls.
    pub fn trajectory(&self) -> &Trajectory {
        &self.0.trajectory
    }

    /// What `GET /state` answers (contract 4.4).
    pub async fn state(&self) -> Value {
        let inner = &self.0;
        let catalog = inner.catalog.load();
        let flat = |tool: &crate::catalog::CatalogTool| -> Value {
            serde_json::from_str(tool.flat.as_str()).unwrap_or_default()
        };
        let mut servers: Vec<Value> = inner
            .children
            .iter()
            .enumerate()
            .map(|(index, child)| {
                let tools: Vec<Value> = catalog.of_child(index).map(flat).collect();
                let mut server = json!({"name": child.name, "tools": tools});
                if let Some(why) = catalog.missing().get(&child.name) {
                    server["error"] = json!(why);
                }
                server
            })
            .collect();
        let own: Vec<Value> = inner.own_tools().iter().map(flat).collect();
        if !own.is_empty() {
            servers.push(json!({"name": GATEWAY, "tools": own}));
        }
        json!({
            "mcp_servers": servers,
            "changelog_id": inner.changelog_id().await,
            "roles": inner.roles.views(),
            "tool_name_clashes": catalog.clashes(),
        })
    }

    /// Ends the instance: triggers stop, calls under way fail, the trajectory is on disk. In-process children go with their
    /// last handle.
    pub async fn shut_down(&self) {
        self.0.stop.cancel();
        for tasks in [&self.0.tracker, &self.0.background] {
            tasks.close();
            tasks.wait().await;
        }
        for child in &self.0.children {
            child.upstream.close().await;
        }
        self.0.triggers.stop().await;
        self.0.trajectory.close().await;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Inner {
    /// Goes through the tools that a role sees: the children's, then the gateway's own.
    pub(crate) fn visible(&self, role: &str, mut each: impl FnMut(&crate::catalog::CatalogTool)) {
        let catalog = self.catalog.load();
        let rules = self.roles.read();
        let own = self.own_tools();
        for tool in catalog.served().chain(&own) {
            if rules.allows(role, &tool.name, tool.hidden_by_default) {
                each(tool);
            }
        }
    }

    /// A JSON array of what `pick` takes of each tool that a role sees.
    pub(crate) fn listing(
        &self,
        role: &str,
        pick: impl Fn(&crate::catalog::CatalogTool) -> &RawJson,
    ) -> RawJson {
        let mut text = String::from("[");
        self.visible(role, |tool| {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(pick(tool).as_str());
        });
        text.push(']');
        RawJson::object(text.into())
    }

    /// The changelog's latest id; unknown without a store.
    pub(crate) async fn changelog_id(&self) -> LatestId {
        match &self.store {
            Some(store) => {
                let asked = self.windows.asking();
                self.windows.heard(asked, store.latest_id().await)
            }
            None => LatestId::Unknown,
        }
    }

    /// Takes in a child's list of tools and puts the catalog together anew.
    pub(crate) fn learn(&self, index: usize, tools: ChildTools) {
        if let Some(child) = self.children.get(index) {
            child.tools.store(Arc::new(tools));
        }
        self.rebuild_catalog();
    }

    pub(crate) fn rebuild_catalog(&self) {
        let own: &[&str] = if self.websites.is_empty() { &[] } else { &[LIST_WEBSITE_URLS] };
        let tools: Vec<_> =
            self.children.iter().map(|child| (child.name.as_str(), child.tools.load_full())).collect();
        let catalog = Catalog::new(tools.iter().map(|(name, tools)| (*name, &**tools)), own);
        if !catalog.clashes().is_empty() {
            tracing::error!(clashes = ?catalog.clashes(), "several sources serve one tool name, so none is served");
        }
        self.catalog.store(Arc::new(catalog));
    }

    /// A child is not the one it was: the trajectory says so, and its tools are listed anew.
    pub(crate) async fn child_changed(self: &Arc<Self>, index: usize, reason: &str) {
        let Some(child) = self.children.get(index) else { return };
        tracing::warn!(child = child.name, reason, "reconnected to a child, whose state may be gone");
        let members = ObjectWriter::with_capacity(96).field("service", &child.name).field("reason", reason);
        if let Err(fault) = self.trajectory.append(Event::new(Kind::ChildReconnected, members)).await {
            tracing::warn!(%fault, "cannot record that a child was reconnected to");
        }
        let inner = Arc::clone(self);
        self.background.spawn(async move {
            let Some(child) = inner.children.get(index) else { return };
            match inner.stop.run_until_cancelled(child.upstream.list()).await {
                Some(Ok(tools)) => inner.learn(index, ChildTools::Known(tools)),
                Some(Err(error)) => {
                    tracing::warn!(child = child.name, error, "cannot list a child's tools anew");
                }
                None => {}
            }
        });
    }
}

/// What the triggers need of an instance, without keeping it alive.
pub(crate) struct InstanceWorld(pub(crate) Weak<Inner>);

impl World for InstanceWorld {
    fn tool(&self, name: &str) -> Option<ToolFacts> {
        let inner = self.0.upgrade()?;
        if inner.own_tool(name).is_some() || name == crate::own::GET_TIME {
            return Some(ToolFacts { read_only: true });
        }
        inner.catalog.load().find(name).map(|tool| ToolFacts { read_only: tool.read_only })
    }

    fn tools_known(&self) -> bool {
        self.0.upgrade().is_some_and(|inner| inner.catalog.load().fault().is_none())
    }

    fn call_tool(&self, call: InternalCall) -> BoxFuture<'static, InternalResult> {
        let inner = self.0.upgrade();
        Box::pin(async move {
            let Some(inner) = inner else { return InternalResult::not_made("the instance has ended") };
            // An action that is cancelled must not cut a call of its child.
            let tracker = inner.tracker.clone();
            let ended = RunToEnd::new(inner.run_internal(call), &tracker).await;
            ended.unwrap_or_else(|Panicked| InternalResult::not_made("internal error"))
        })
    }

    fn set_access(&self, access: Access, role: &str, tools: &ToolSet) -> Result<(), String> {
        let inner = self.0.upgrade().ok_or("the instance has ended")?;
        inner.roles.apply(access, role, tools).map(drop).map_err(|error| error.to_string())
    }

    fn website(&self, name: &str) -> bool {
        self.0.upgrade().is_some_and(|inner| inner.websites.iter().any(|site| site.name == name))
    }

    fn record(
        &self,
        event: Map<String, Value>,
        window: Option<(LatestId, LatestId)>,
    ) -> BoxFuture<'static, ()> {
        let inner = self.0.upgrade();
        Box::pin(async move {
            let Some(inner) = inner else { return };
            let action = window.and_then(|window| Some((InternalAction::deserialize(&event).ok()?, window)));
            let Some(event) = Event::from_object(event) else { return };
            match (inner.trajectory.append(event).await, action) {
                (Ok(id), Some((action, (before, after)))) => {
                    inner.windows.record(action.actor(id), before, after)
                }
                (Ok(_), None) => {}
                (Err(fault), action) => {
                    tracing::warn!(%fault, "cannot record what a trigger did");
                    if let Some((_, (before, after))) = action {
                        inner.windows.lose(before, after);
                    }
                }
            }
        })
    }
}

/// What `/changes` must know of a trigger's own call, as its event tells it.
#[derive(Deserialize)]
struct InternalAction {
    trigger_id: String,
    action_index: usize,
    tool: String,
    r#as: Option<String>,
}

impl InternalAction {
    fn actor(self, event: EventId) -> Actor {
        Actor::TriggerAction {
            event_id: event.to_string(),
            trigger_id: self.trigger_id,
            action_index: self.action_index,
            tool: self.tool,
            role: self.r#as,
        }
    }
}
