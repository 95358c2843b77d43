//! A child of the instance: in this process or behind a URL, called the same way. Which call goes to which child is the
//! catalog's; when, the pipeline's.

mod in_process;
mod remote;

use std::time::Duration;

use agentenv_protocol::context::Notify;
use agentenv_protocol::environment::EnvRuntime;
use agentenv_protocol::json::{Members, ObjectWriter, RawJson};
use agentenv_protocol::mcp::{META_PROTOCOL_PREFIX, META_ROLE, META_SESSION};
use http::HeaderValue;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

pub use self::remote::Remote;
use crate::call::CallError;

/// A call for a child.
pub struct UpstreamCall<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The arguments as sent.
    pub arguments: &'a RawValue,
    /// The caller's `_meta`.
    pub meta: Option<&'a RawValue>,
    /// Who calls.
    pub role: &'a str,
    /// The caller's session key.
    pub session: Option<&'a str>,
    /// Where progress and log messages go.
    pub notify: Option<Notify>,
    /// Cancelled when the caller wants the call no more.
    pub cancel: CancellationToken,
    /// The caller's W3C trace context.
    pub traceparent: Option<HeaderValue>,
    /// How long the child may take.
    pub deadline: Duration,
}

/// A child's answer.
pub struct UpstreamReply {
    /// What became of the call.
    pub result: Result<RawJson, CallError>,
    /// The child was another one than before, and why we think so: its state may be gone.
    pub reconnected: Option<String>,
}

/// A child.
#[derive(Clone)]
pub enum Upstream {
    /// In this process.
    InProcess(EnvRuntime),
    /// Behind a URL.
    Remote(Remote),
}

impl Upstream {
    /// The child's tools: names and entries of `tools/list`.
    ///
    /// # Errors
    /// Why they are not to be had, in words.
    pub async fn list(&self) -> Result<Vec<(String, RawJson)>, String> {
        match self {
            Self::InProcess(runtime) => Ok(in_process::list(runtime)),
            Self::Remote(remote) => remote.list().await,
        }
    }

    /// Lets go of the child.
    pub(crate) async fn close(&self) {
        match self {
            Self::InProcess(runtime) => {
                if let Err(error) = runtime.stop().await {
                    tracing::warn!(env = runtime.name(), %error, "an environment did not stop as it should");
                }
            }
            Self::Remote(remote) => remote.close().await,
        }
    }

    /// Calls a tool.
    pub async fn call(&self, call: UpstreamCall<'_>) -> UpstreamReply {
        match self {
            Self::InProcess(runtime) => in_process::call(runtime, call).await,
            Self::Remote(remote) => remote.call(call).await,
        }
    }
}

/// The `_meta` that a child gets (contract 3.3): the caller's own, less what speaks of another hop and of identity, and the
/// identity that the gateway saw.
pub fn stamped_meta(meta: Option<&RawValue>, role: &str, session: Option<&str>) -> String {
    let mut out = ObjectWriter::with_capacity(96 + meta.map_or(0, |m| m.get().len())).field(META_ROLE, role);
    if let Some(session) = session {
        out = out.field(META_SESSION, session);
    }
    let own = meta.and_then(|meta| Members::of(meta.get()).ok()).unwrap_or_default();
    let kept = own.iter().filter(|(key, _)| {
        *key != META_ROLE && *key != META_SESSION && !key.starts_with(META_PROTOCOL_PREFIX)
    });
    kept.fold(out, |out, (key, value)| out.raw(key, value.get())).finish_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_the_gateways() {
        let meta = r#"{"progressToken":1,"agentenv.io/role":"manager","agentenv.io\/session":"x","a":1.0,
            "io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let meta = RawValue::from_string(meta.to_owned()).unwrap();
        assert_eq!(
            stamped_meta(Some(&meta), "a\"b", Some("s")),
            r#"{"agentenv.io/role":"a\"b","agentenv.io/session":"s","progressToken":1,"a":1.0}"#
        );
        assert_eq!(stamped_meta(None, "default", None), r#"{"agentenv.io/role":"default"}"#);
    }
}
