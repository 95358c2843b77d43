//! What the trigger engine needs of the instance around it, and what it is told of calls and requests.

use std::sync::Arc;

use agentenv_protocol::access::{Access, ToolSet};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::store::LatestId;

/// What the engine must know of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolFacts {
    /// Marked `readOnlyHint`: a call of it prompts no state trigger's check.
    pub read_only: bool,
}

/// A call that a trigger makes: an action's, or a check's step (contract 7.3, 7.5).
#[derive(Debug)]
pub struct InternalCall {
    /// The tool.
    pub tool: String,
    /// Its arguments, a JSON object.
    pub arguments: Box<RawValue>,
    /// The role that the server is told, from an action's `as`; none says no role.
    pub role: Option<String>,
    /// The trigger on whose account the call is made.
    pub trigger_id: String,
}

/// What came of an [`InternalCall`].
#[derive(Debug, Clone)]
pub struct InternalResult {
    /// The `CallToolResult`, an error result included; or the reason for which the call got none.
    pub result: Result<Arc<RawValue>, String>,
    /// The changelog's latest ids before and after the call, which may have written whatever came of it.
    pub window: (LatestId, LatestId),
}

impl InternalResult {
    /// A call that was not made.
    pub fn not_made(reason: impl Into<String>) -> Self {
        Self { result: Err(reason.into()), window: (LatestId::Unknown, LatestId::Unknown) }
    }
}

/// The instance, as the trigger engine sees it.
pub trait World: Send + Sync + 'static {
    /// What is known of a tool that the children or the gateway serve; none when nobody serves it.
    fn tool(&self, name: &str) -> Option<ToolFacts>;

    /// Whether the children's tools are known yet; until then tool names in a registration are not checked.
    fn tools_known(&self) -> bool;

    /// Whether the instance proxies a website of this name.
    fn website(&self, name: &str) -> bool;

    /// Calls a tool straight on its server: no role rules, provokes nothing, takes its turn in `consistent` mode. Dropping
    /// the future gives the call up.
    fn call_tool(&self, call: InternalCall) -> BoxFuture<'static, InternalResult>;

    /// Writes a role rule (contract 4.1).
    ///
    /// # Errors
    /// Why it was refused.
    fn set_access(&self, access: Access, role: &str, tools: &ToolSet) -> Result<(), String>;

    /// Writes an event into the trajectory, which adds `event_id`, `timestamp_utc` and `virtual_time`. Done when the
    /// event is safe.
    ///
    /// `window` is that of the call which the event tells of: rows between its ids may be the call's.
    fn record(
        &self,
        event: Map<String, Value>,
        window: Option<(LatestId, LatestId)>,
    ) -> BoxFuture<'static, ()>;
}

/// A finished tool call, as [`Triggers::seen`](super::Triggers::seen) is told of it.
#[derive(Debug, Clone)]
pub struct SeenCall {
    /// The caller's role.
    pub role: String,
    /// The tool.
    pub tool: String,
    /// Its arguments as sent; none counts as `{}`.
    pub arguments: Option<Arc<RawValue>>,
    /// The `CallToolResult`.
    pub result: Arc<RawValue>,
    /// Whether the result is an error; then it matches nothing.
    pub is_error: bool,
    /// Whether the tool is marked `readOnlyHint`.
    pub read_only: bool,
}

/// A finished website request, as [`Triggers::seen_website`](super::Triggers::seen_website) is told of it.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// The website's name.
    pub app: String,
    /// The caller's role.
    pub role: String,
    /// The HTTP method.
    pub method: String,
    /// The path below `/website/<app>`, percent-decoded, with its leading slash.
    pub path: String,
    /// The query string as sent, without `?`.
    pub query: String,
    /// The request's `content-type`.
    pub content_type: Option<String>,
    /// The request's body; empty when it was not kept.
    pub body: Bytes,
    /// The status that the website answered.
    pub status: u16,
}

/// Which firing an executor is acting for (contract 5, `caused_by`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CausedBy {
    /// The trigger.
    pub trigger_id: String,
    /// Which of its actions, from 0.
    pub action_index: usize,
    /// Which firing of the trigger it is, from 1.
    pub fire: u64,
}

/// Why a request was refused (400): one line for a person, which names every fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub(crate) String);

/// How many firings there have been since the gateway started, for its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FiringCounts {
    /// Those whose actions all succeeded.
    pub fired: u64,
    /// Those of which an action failed.
    pub failed: u64,
}
