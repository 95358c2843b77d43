//! A tool call on its way through the gateway, and what becomes of it. How it gets from one to the other is the pipeline's.

use std::sync::Arc;

use agentenv_protocol::context::Notify;
use agentenv_protocol::error::{Applied, ToolError};
use agentenv_protocol::json::RawJson;
use http::HeaderValue;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// The role of a caller that names none (contract 1).
pub const DEFAULT_ROLE: &str = "default";

/// By which door a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Over MCP, at `/mcp` or a child's own endpoint under `/svc`, or in process.
    Mcp,
    /// Over `POST /step`.
    Step,
}

/// A call as its caller made it.
#[derive(Clone)]
pub struct ToolCall {
    /// The tool's name.
    pub tool: String,
    /// The arguments, an object's text, as sent.
    pub arguments: Box<RawValue>,
    /// The caller's `_meta`, an object's text, as sent.
    pub meta: Option<Box<RawValue>>,
    /// The caller's role; [`DEFAULT_ROLE`] where it named none.
    pub role: String,
    /// The key that tells the caller's session from others, if it has one.
    pub session: Option<Arc<str>>,
    /// By which door it came.
    pub source: Source,
    /// Only a tool of the child of this index will do.
    pub only_child: Option<usize>,
    /// Where the child's progress and log messages go.
    pub notify: Option<Notify>,
    /// Cancelled when the caller wants the call no more.
    pub cancel: CancellationToken,
    /// The caller's W3C trace context.
    pub traceparent: Option<HeaderValue>,
}

impl ToolCall {
    /// A call with nothing but what it needs, by the default role.
    pub fn new(tool: impl Into<String>, arguments: Box<RawValue>) -> Self {
        Self {
            tool: tool.into(),
            arguments,
            meta: None,
            role: DEFAULT_ROLE.to_owned(),
            session: None,
            source: Source::Mcp,
            only_child: None,
            notify: None,
            cancel: CancellationToken::new(),
            traceparent: None,
        }
    }
}

/// A call that was answered.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The result, exactly as the child gave it.
    pub result: RawJson,
    /// The changelog's latest id once the call had ended; `None` without a store, or where it could not be read.
    pub changelog_id: Option<i64>,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nobody serves the tool. Nothing was logged.
    #[error("Unknown tool: {0}")]
    UnknownTool(String),
    /// A rule turns the tool off for the role. Nothing was logged, the child not asked.
    #[error("Tool '{tool}' is disabled for role '{role}'")]
    Disabled {
        /// The tool.
        tool: String,
        /// The role.
        role: String,
    },
    /// The children's tools are not known, or cannot be served together. Nothing was logged.
    #[error("{0}")]
    NotReady(String),
    /// The trajectory cannot be written, so the call was not made (contract 9.13).
    #[error("the trajectory cannot be written, so no call is made: {0}")]
    Unrecorded(String),
    /// The child gave no answer in time.
    #[error("Tool '{tool}' did not answer within {seconds} s; whether it had an effect is unknown")]
    TimedOut {
        /// The tool.
        tool: String,
        /// The deadline.
        seconds: u64,
    },
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// The child answered with a protocol error, which is passed on as it is.
    #[error("{message}")]
    Rpc {
        /// The JSON-RPC code.
        code: i64,
        /// The child's message.
        message: String,
        /// The child's data, a JSON text.
        data: Option<RawJson>,
    },
    /// The child could not be called, or did not answer as MCP asks.
    #[error("Tool execution failed: {message}")]
    Failed {
        /// What went wrong.
        message: String,
        /// Whether the call can have had an effect.
        applied: Applied,
    },
}

impl CallError {
    /// The error with a code, for a call that was made and came to nothing: whether it had an effect is what its caller must
    /// know. `None` for the others.
    pub fn coded(&self) -> Option<ToolError> {
        let (code, applied) = match self {
            Self::TimedOut { .. } => ("timed_out", Applied::Unknown),
            Self::Failed { applied, .. } => ("call_failed", *applied),
            _ => return None,
        };
        let error = ToolError::new(code, self.to_string()).with_applied(applied);
        Some(if applied == Applied::No { error.retryable() } else { error })
    }
}
