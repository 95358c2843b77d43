//! `/mcp`: the instance as one MCP server (contract 3.3), and each child as one of its own for the endpoint under `/svc`.

use std::sync::Arc;

use agentenv_protocol::json::{ObjectWriter, RawJson};
use agentenv_protocol::mcp::server::{Call, Refusal, Service};
use agentenv_protocol::rpc::MISSING_CLIENT_CAPABILITY;
use axum::body::Body;
use axum::extract::State;
use http::{HeaderMap, Request, Response, StatusCode};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::Http;
use super::access::Access;
use crate::call::{CallError, DEFAULT_ROLE, Source, ToolCall};
use crate::instance::Instance;

pub(super) async fn serve(State(http): State<Arc<Http>>, request: Request<Body>) -> Response<Body> {
    Arc::clone(&http.mcp).handle(request).await
}

/// The instance as an MCP server.
pub(crate) struct GatewayService {
    pub(crate) instance: Instance,
    pub(crate) access: Access,
}

impl Service for GatewayService {
    fn info(&self) -> (&str, &str) {
        (self.instance.name(), env!("CARGO_PKG_VERSION"))
    }

    fn role(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        role(&self.access, headers)
    }

    fn session_owner(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        if self.access.asks_roles() { role(&self.access, headers) } else { Ok(None) }
    }

    fn session_key(&self, given: &str) -> Arc<str> {
        session_key(given)
    }

    async fn list(&self, role: Option<&str>) -> Result<RawJson, Refusal> {
        Ok(self.instance.0.listing(role.unwrap_or(DEFAULT_ROLE), |tool| &tool.listing))
    }

    fn list_depends_on_role(&self) -> bool {
        true
    }

    async fn call(self: Arc<Self>, call: Call) -> Result<RawJson, Refusal> {
        run(&self.instance, call, None).await
    }
}

/// One child as an MCP server: its tools alone, under the same rules.
pub(crate) struct ChildService {
    pub(crate) instance: Instance,
    pub(crate) index: usize,
    pub(crate) access: Access,
}

impl Service for ChildService {
    fn info(&self) -> (&str, &str) {
        let name = self.instance.0.children.get(self.index).map_or("", |child| child.name.as_str());
        (name, env!("CARGO_PKG_VERSION"))
    }

    fn role(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        role(&self.access, headers)
    }

    fn session_key(&self, given: &str) -> Arc<str> {
        session_key(given)
    }

    async fn list(&self, role: Option<&str>) -> Result<RawJson, Refusal> {
        let inner = &self.instance.0;
        let rules = inner.roles.read();
        let catalog = inner.catalog.load();
        let role = role.unwrap_or(DEFAULT_ROLE);
        let listed =
            catalog.of_child(self.index).filter(|t| rules.allows(role, &t.name, t.hidden_by_default));
        let listed: Vec<&str> = listed.map(|tool| tool.listing.as_str()).collect();
        Ok(RawJson::object(format!("[{}]", listed.join(",")).into()))
    }

    fn list_depends_on_role(&self) -> bool {
        true
    }

    async fn call(self: Arc<Self>, call: Call) -> Result<RawJson, Refusal> {
        run(&self.instance, call, Some(self.index)).await
    }
}

fn role(access: &Access, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    access.role(headers).map(Some).map_err(|error| {
        let status = error.status();
        Refusal::new(status, agentenv_protocol::rpc::INVALID_REQUEST, error.to_string())
    })
}

async fn run(instance: &Instance, call: Call, only_child: Option<usize>) -> Result<RawJson, Refusal> {
    let call = ToolCall {
        tool: call.tool,
        arguments: call.arguments.unwrap_or_else(empty_object),
        meta: call.meta,
        role: call.role.unwrap_or_else(|| DEFAULT_ROLE.to_owned()),
        session: call.session,
        source: Source::Mcp,
        only_child,
        notify: call.notify,
        cancel: call.cancel,
        traceparent: call.traceparent,
    };
    match Arc::clone(&instance.0).run(call).await {
        Ok(answered) => Ok(answered.result),
        Err(CallError::Rpc { code, message, data }) => {
            let data = data.and_then(|data| serde_json::from_str(data.as_str()).ok());
            let status =
                if code == MISSING_CLIENT_CAPABILITY { StatusCode::BAD_REQUEST } else { StatusCode::OK };
            let refusal = Refusal::new(status, code, message);
            Err(match data {
                Some(data) => refusal.with_data(data),
                None => refusal,
            })
        }
        Err(error) => Ok(tool_error(&error)),
    }
}

/// An error that an agent gets as a tool's (contract 4.2).
pub(crate) fn tool_error(error: &CallError) -> RawJson {
    let mut result = ObjectWriter::with_capacity(320)
        .field("content", &[json!({"type": "text", "text": error.to_string()})]);
    if let Some(coded) = error.coded() {
        result = result.field("structuredContent", &coded);
    }
    RawJson::object(result.field("isError", &true).finish())
}

/// No arguments.
pub(crate) fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// What children know a session by: stable, and no use for entering it.
pub(crate) fn session_key(id: &str) -> Arc<str> {
    let digest: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    let half = digest.first_chunk().copied().unwrap_or_default();
    format!("{:032x}", u128::from_be_bytes(half)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_by_the_first_half_of_a_digest() {
        // As `printf abc | sha256sum` has it.
        assert_eq!(&*session_key("abc"), "ba7816bf8f01cfea414140de5dae2223");
    }
}
