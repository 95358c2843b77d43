//! What can become of a request that gets no result: whether it can have reached the server, and why it failed.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use http::StatusCode;

use crate::json::RawJson;

/// Whether a request that failed can have been acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// Provably not: no byte of it left, or the server said that it did not take it.
    No,
    /// It may have: it was written, at least in part.
    Maybe,
}

/// A JSON-RPC error that a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The server's own words.
    pub message: String,
    /// The `data`, as it came.
    pub data: Option<RawJson>,
    /// The HTTP status it came with.
    pub status: StatusCode,
}

/// Why a request got no result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No connection could be made.
    Unreachable,
    /// The deadline passed first.
    Timeout,
    /// The caller gave it up.
    Cancelled,
    /// The connection, or the event stream, ended before the answer.
    Broke,
    /// The answer is none: an HTTP status, a content type or a body that MCP does not have here.
    BadAnswer {
        /// The HTTP status.
        status: StatusCode,
    },
    /// The server answered with a JSON-RPC error.
    Rpc(RpcError),
    /// The answer is larger than the client takes.
    TooLarge,
}

/// A request to a server that got no result. Its text is for a person, names no address or path, and may be shown to an
/// agent; what is behind it is in [`source`](StdError::source).
#[derive(Debug, Clone)]
pub struct ClientError {
    kind: ErrorKind,
    sent: Sent,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl ClientError {
    pub(super) fn new(kind: ErrorKind, sent: Sent, message: impl Into<String>) -> Self {
        Self { kind, sent, message: message.into(), source: None }
    }

    pub(super) fn with_source(mut self, source: impl Into<Arc<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(super) fn with_sent(mut self, sent: Sent) -> Self {
        self.sent = sent;
        self
    }

    pub(super) fn broke(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Broke, Sent::Maybe, message)
    }

    pub(super) fn bad_answer(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadAnswer { status }, Sent::Maybe, message)
    }

    pub(super) fn too_large(limit: usize) -> Self {
        Self::new(ErrorKind::TooLarge, Sent::Maybe, format!("the answer is larger than {limit} bytes"))
    }

    pub(super) fn timeout(sent: Sent, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Timeout, sent, message)
    }

    pub(super) fn cancelled(sent: Sent) -> Self {
        Self::new(ErrorKind::Cancelled, sent, "the call was cancelled")
    }

    /// Whether the server said nothing at all, which takes time to find out.
    pub(super) fn is_silence(&self) -> bool {
        let source = self.source.as_deref().and_then(|source| source.downcast_ref::<std::io::Error>());
        self.kind == ErrorKind::Timeout || source.is_some_and(|e| e.kind() == std::io::ErrorKind::TimedOut)
    }

    /// The HTTP status, where there was an answer.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match &self.kind {
            ErrorKind::BadAnswer { status } => Some(*status),
            ErrorKind::Rpc(error) => Some(error.status),
            _ => None,
        }
    }

    /// Why it failed.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Whether the request can have been acted on.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// The JSON-RPC error, if that is what the server answered.
    pub fn rpc(&self) -> Option<&RpcError> {
        match &self.kind {
            ErrorKind::Rpc(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for ClientError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
