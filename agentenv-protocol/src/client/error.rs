//! What a harness's request can fail with.

use std::fmt;

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::error::Applied;
use crate::mcp::client::{AddressFault, ClientError};

/// A harness's request that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// An address that nothing can be asked at.
    #[error("{address}: {reason}")]
    Address {
        /// The address, or the card's path.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A value that cannot stand in a header.
    #[error("the value for the {name} header has a control character")]
    Header {
        /// The header.
        name: String,
    },
    /// The server cannot be reached, did not answer in time, or broke off.
    #[error("{}", failed(.0))]
    Http(#[source] reqwest::Error),
    /// The answer's status says no.
    #[error(transparent)]
    Refused(ExtensionFailure),
    /// The data plane answered with an error.
    #[error("{method} failed: {failure}")]
    Rpc {
        /// The operation.
        method: &'static str,
        /// What it answered.
        failure: RpcFailure,
    },
    /// The answer is not what was asked for.
    #[error("{what} cannot be read: {reason}")]
    Answer {
        /// What was expected.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The params cannot be written as JSON.
    #[error("the params of {what} cannot be written as JSON: {source}")]
    Params {
        /// What they are for.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The params are not an object, whose members are the method's parameters.
    #[error("the params of {what} must be an object")]
    ParamsNotAnObject {
        /// What they are for.
        what: String,
    },
    /// The card does not list the extension.
    #[error("the card of {name} lists no extension {uri}")]
    NoExtension {
        /// The card's name.
        name: String,
        /// The extension.
        uri: String,
    },
    /// The extension has no such method, or none that can be called.
    #[error(
        "extension {uri} on the card of {name} has no method '{method}' with an endpoint; it has {offered}"
    )]
    NoMethod {
        /// The card's name.
        name: String,
        /// The extension.
        uri: String,
        /// The method.
        method: String,
        /// Those that it has, in words.
        offered: String,
    },
    /// The tools' endpoint cannot be spoken to.
    #[error("no tool session at {address}: {source}")]
    ToolAddress {
        /// The address.
        address: String,
        /// Why.
        source: AddressFault,
    },
    /// A tool session failed. A tool's own error is none: that is in its reply.
    #[error(transparent)]
    Tools(#[from] ClientError),
}

/// What went wrong on the way, without the cause, which is in `source`.
fn failed(error: &reqwest::Error) -> String {
    let at = error.url().map(|url| format!("{} at {}", url.path(), url.authority())).unwrap_or_default();
    let what = match error {
        error if error.is_timeout() => "did not answer in time",
        error if error.is_connect() => "cannot be connected to",
        error if error.is_builder() => "cannot be asked for",
        _ => "broke off",
    };
    format!("{at} {what}")
}

/// An answer that is no success, with the fields that an extension's error has (contract 2.4). A body without them leaves
/// `code` empty and `applied` unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtensionFailure {
    /// The HTTP status.
    pub status: u16,
    /// What failed, for a program.
    pub code: Option<String>,
    /// What failed, for a person.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Whether anything was changed.
    pub applied: Applied,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ExtensionFailure {
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = body.get("error").unwrap_or(&Value::Null);
        let text = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
        // Routes that are no extension's put their message right there.
        let message = text("message").or_else(|| error.as_str().map(str::to_owned));
        let reason = status.canonical_reason().unwrap_or("no reason given");
        let applied = error.get("applied").and_then(|applied| Applied::deserialize(applied).ok());
        Self {
            status: status.as_u16(),
            code: text("code"),
            message: message.unwrap_or_else(|| reason.to_owned()),
            retryable: error.get("retryable").and_then(Value::as_bool).unwrap_or(false),
            applied: applied.unwrap_or(Applied::Unknown),
            hint: text("hint"),
        }
    }
}

impl fmt::Display for ExtensionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status, self.code.as_deref().unwrap_or("error"), self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ExtensionFailure {}

/// A JSON-RPC error of the data plane (contract 2.2).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct RpcFailure {
    /// The JSON-RPC code.
    pub code: i64,
    /// What failed.
    #[serde(default)]
    pub message: String,
    /// More about it: `code` names a handler's failure, `detail` says what is wrong with the params.
    #[serde(default)]
    pub data: Option<Value>,
}

impl fmt::Display for RpcFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)?;
        let detail = self.data.as_ref().and_then(|data| data.get("detail").or_else(|| data.get("code")));
        match detail.and_then(Value::as_str) {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}
