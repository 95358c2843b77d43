//! Who is calling, and what a tool may tell the caller while it works (contract 2.5). Reading the identity off a request
//! is here; which header or message it came in is left to `mcp` and `server`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::json::Members;
use crate::mcp::{META_ROLE, META_SESSION};

/// The role of a caller that names none.
pub const DEFAULT_ROLE: &str = "default";

/// Who makes a call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub struct Caller {
    /// The caller's role; none for [`DEFAULT_ROLE`].
    pub role: Option<String>,
    /// The session that the caller's calls share; none where the caller has no session.
    pub session: Option<String>,
}

impl Caller {
    /// A caller from what a request says of it: both trimmed, a blank one and the role `default` count as none.
    pub fn new(role: Option<&str>, session: Option<&str>) -> Self {
        let said =
            |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        Self { role: said(role).filter(|role| role != DEFAULT_ROLE), session: said(session) }
    }

    /// The caller that a gateway forwarded in a request's `_meta`; none when the request was not forwarded. The role's key
    /// alone, whatever its value, marks a forwarded call, and then nothing else may be read about the caller.
    pub fn from_meta(meta: &RawValue) -> Option<Self> {
        // Most requests hold neither the key nor any escape that could hide it.
        if !meta.get().contains(META_ROLE) && !meta.get().contains('\\') {
            return None;
        }
        let meta = Members::of(meta.get()).ok()?;
        meta.get(META_ROLE)
            .map(|_| Self::new(meta.text(META_ROLE).as_deref(), meta.text(META_SESSION).as_deref()))
    }

    /// The role by name: [`DEFAULT_ROLE`] where there is none.
    pub fn role_or_default(&self) -> &str {
        self.role.as_deref().unwrap_or(DEFAULT_ROLE)
    }
}

/// How weighty a log message is, as MCP names the levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "MCP's own names say all there is")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// What a tool tells the caller before it answers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Notification {
    /// How far the call has come.
    Progress {
        /// Rises with every notification.
        progress: f64,
        /// What `progress` will be at the end, where that is known.
        total: Option<f64>,
        /// What is being done.
        message: Option<String>,
    },
    /// A log message.
    Log {
        /// Its weight.
        level: LogLevel,
        /// What logs it.
        logger: Option<String>,
        /// The message: a string, or anything that is JSON.
        data: serde_json::Value,
    },
}

/// Where notifications go: given by the transport, and never blocking.
pub type Notify = Arc<dyn Fn(Notification) + Send + Sync>;

/// What a tool or an extension knows about the call that it answers. Take `&ToolContext` as a parameter, anywhere in the
/// list; it is not part of the schema.
///
/// It is owned and cheap to clone, so that a task which outlives the call may keep it.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// Who calls.
    pub caller: Caller,
    /// The tool's name as listed; for an extension the method's name.
    pub tool: Arc<str>,
    /// The arguments object as it was sent.
    pub arguments: Arc<RawValue>,
    /// Unique to this call.
    pub call_id: Arc<str>,
    /// The request's `_meta` as it was sent.
    pub meta: Option<Arc<RawValue>>,
    notify: Option<Notify>,
    cancel: CancellationToken,
}

impl ToolContext {
    pub(crate) fn new(
        caller: Caller,
        tool: Arc<str>,
        arguments: Arc<RawValue>,
        meta: Option<Arc<RawValue>>,
        notify: Option<Notify>,
        cancel: CancellationToken,
    ) -> Self {
        Self { caller, tool, arguments, call_id: call_id(), meta, notify, cancel }
    }

    /// Tells the caller how far the call has come, if it asked to be told.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: impl Into<Option<String>>) {
        if let Some(notify) = &self.notify {
            notify(Notification::Progress { progress, total, message: message.into() });
        }
    }

    /// Sends the caller a log message, if its transport carries them.
    pub fn log(&self, level: LogLevel, data: impl Into<serde_json::Value>) {
        if let Some(notify) = &self.notify {
            notify(Notification::Log { level, logger: Some(self.tool.to_string()), data: data.into() });
        }
    }

    /// Whether the caller gave the call up.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the caller gives the call up. A tool's own future is dropped when that happens, so this is for the tasks
    /// that it started.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

/// An id that no other call has, here or in another process: a random number counted up, since asking for randomness each time
/// would cost a call to the system.
fn call_id() -> Arc<str> {
    static FIRST: LazyLock<u128> = LazyLock::new(|| uuid::Uuid::new_v4().as_u128());
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let id = FIRST.wrapping_add(u128::from(CALLS.fetch_add(1, Ordering::Relaxed)));
    format!("{id:032x}").into()
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("caller", &self.caller)
            .field("tool", &self.tool)
            .field("call_id", &self.call_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(text: &str) -> Option<Caller> {
        Caller::from_meta(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn blank_and_default_roles_are_none() {
        for role in [None, Some(""), Some("  "), Some("default"), Some(" default ")] {
            assert_eq!(Caller::new(role, Some(" ")), Caller::default());
        }
        assert_eq!(Caller::new(Some(" alice "), None).role.as_deref(), Some("alice"));
    }

    #[test]
    fn the_role_key_marks_a_forwarded_call_whatever_its_value() {
        assert_eq!(meta(r#"{"agentenv.io/session":"s"}"#), None);
        assert_eq!(meta(r#"{"progressToken":1}"#), None);
        assert_eq!(meta(r#"{"agentenv.io/role":5,"agentenv.io/session":{}}"#), Some(Caller::default()));
        assert_eq!(
            meta(r#"{"agentenv.io/role":null,"agentenv.io/session":"s"}"#),
            Some(Caller::new(None, Some("s")))
        );
        assert_eq!(meta(r#"{"agentenv.io\/role":"bob"}"#), Some(Caller::new(Some("bob"), None)));
    }
}
