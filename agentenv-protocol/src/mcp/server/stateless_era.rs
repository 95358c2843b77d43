//! The stateless protocol: each message says all there is to know, in its headers and its `_meta`, which must agree.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, Response, StatusCode};
use serde_json::json;

use super::super::headers::{MCP_METHOD, MCP_NAME, single, stateless_session, unwrap_base64};
use super::super::{META_CAPABILITIES, META_SERVER_INFO, META_VERSION, STATELESS, VERSIONS};
use super::answer::{self, Plan};
use super::{Endpoint, Incoming, Refusal, Service};
use crate::json::{Members, ObjectWriter, RawJson};
use crate::rpc;

/// How long a client may keep a list: not at all, for rules and the clock change it at any time.
const TTL_MS: u64 = 0;

impl<S: Service> Endpoint<S> {
    pub(super) async fn stateless(&self, incoming: &Incoming<'_>) -> Response<Body> {
        if incoming.id.is_none() || incoming.method.is_empty() {
            return answer::empty(StatusCode::ACCEPTED);
        }
        if let Err(refusal) = check(incoming) {
            return answer::refuse(incoming.id, &refusal);
        }
        let cached = |scope: &str| self.whole(512).field("ttlMs", &TTL_MS).field("cacheScope", scope);
        let result = match incoming.method {
            "server/discover" => {
                let discover = cached("public").field("supportedVersions", &VERSIONS);
                Ok(discover.raw("capabilities", super::CAPABILITIES).finish())
            }
            "tools/list" => self.tools(incoming).await.map(|tools| {
                let scope = if self.service.list_depends_on_role() { "private" } else { "public" };
                cached(scope).raw("tools", tools.as_str()).finish()
            }),
            "tools/call" => return self.stateless_call(incoming).await,
            "prompts/list" => Ok(cached("public").raw("prompts", "[]").finish()),
            "resources/list" => Ok(cached("public").raw("resources", "[]").finish()),
            "resources/templates/list" => Ok(cached("public").raw("resourceTemplates", "[]").finish()),
            "resources/read" => Err(super::no_resource(incoming, rpc::INVALID_PARAMS)),
            method => {
                let message = format!("method not found: {method}");
                Err(Refusal::new(StatusCode::NOT_FOUND, rpc::METHOD_NOT_FOUND, message))
            }
        };
        answer::respond(incoming, result)
    }

    async fn stateless_call(&self, incoming: &Incoming<'_>) -> Response<Body> {
        let call = stateless_session(incoming.headers)
            .map_err(Refusal::bad_request)
            .and_then(|session| self.call_of(incoming, session.map(|given| self.service.session_key(given))));
        match call {
            Ok(call) => {
                let log_level = incoming.log_level();
                let plan = Plan { finish, log_level, hang_up_cancels: true, entry: None };
                self.run(incoming, call, plan).await
            }
            Err(refusal) => answer::refuse(incoming.id, &refusal),
        }
    }

    /// The beginning of a result that is whole, and who says so.
    fn whole(&self, capacity: usize) -> ObjectWriter {
        let (name, version) = self.service.info();
        let meta = json!({META_SERVER_INFO: {"name": name, "version": version}});
        ObjectWriter::with_capacity(capacity).field("resultType", "complete").field("_meta", &meta)
    }
}

/// A tool's result as this era wants it: marked as whole, unless it says itself what it is.
fn finish(result: RawJson) -> Bytes {
    let text = result.as_str();
    let says = text.contains("\"resultType\"")
        && Members::of(text).is_ok_and(|members| members.get("resultType").is_some());
    match text.strip_prefix('{') {
        Some(rest) if !says => {
            let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
            [r#"{"resultType":"complete""#, comma, rest].concat().into()
        }
        _ => result.into_bytes(),
    }
}

/// That headers and body are there and agree, in the order in which the protocol has them refused.
fn check(incoming: &Incoming<'_>) -> Result<(), Refusal> {
    let bad = |code, message: String| Refusal::new(StatusCode::BAD_REQUEST, code, message);
    let mismatch = |message: String| bad(rpc::HEADER_MISMATCH, format!("header mismatch: {message}"));
    let text = |name: &HeaderName| {
        single(incoming.headers, name).map_err(|()| mismatch(format!("{name} must be there once, in ASCII")))
    };
    let Some(version) = incoming.version else {
        return Err(mismatch("MCP-Protocol-Version is missing".into()));
    };
    let body_version = incoming.meta.text(META_VERSION);
    if let Some(body) = body_version.as_deref().filter(|body| *body != version) {
        return Err(mismatch(format!("MCP-Protocol-Version is '{version}', the body says '{body}'")));
    }
    let method = text(&MCP_METHOD)?;
    if method != Some(incoming.method) {
        let method = method.map_or("missing".into(), |m| format!("'{m}'"));
        return Err(mismatch(format!("Mcp-Method is {method}, the body's method is '{}'", incoming.method)));
    }
    if let Some(key) = names(incoming.method) {
        let body: Option<String> = incoming.params.get(key).and_then(|v| serde_json::from_str(v.get()).ok());
        let header = text(&MCP_NAME)?.and_then(unwrap_base64);
        if header.is_none() || header != body {
            let header = header.map_or("missing or unreadable".into(), |h| format!("'{h}'"));
            let body = body.map_or("no text".into(), |b| format!("'{b}'"));
            return Err(mismatch(format!("Mcp-Name is {header}, the body's '{key}' is {body}")));
        }
    }
    let capabilities = incoming.meta.get(META_CAPABILITIES);
    if body_version.is_none() || !capabilities.is_some_and(|c| c.get().starts_with('{')) {
        let message =
            format!("'_meta' needs '{META_VERSION}', a string, and '{META_CAPABILITIES}', an object");
        return Err(bad(rpc::INVALID_PARAMS, format!("invalid params: {message}")));
    }
    if version != STATELESS {
        let refusal =
            bad(rpc::UNSUPPORTED_PROTOCOL_VERSION, format!("unsupported protocol version: {version}"));
        return Err(refusal.with_data(json!({"supported": VERSIONS, "requested": version})));
    }
    Ok(())
}

/// The param that `Mcp-Name` copies, for the methods that have one.
fn names(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}
