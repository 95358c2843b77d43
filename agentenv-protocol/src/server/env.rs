//! The routes of an environment (contract 2): which request is which call of the runtime, and which answer has which HTTP
//! status.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::{MethodFilter, any, get, on, post};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde_json::json;

use super::body::read_body;
use crate::access::Access;
use crate::context::Caller;
use crate::environment::{CallRequest, EnvRuntime, ExtensionInput};
use crate::error::ToolError;
use crate::json::{Members, RawJson};
use crate::mcp;
use crate::mcp::server::{Call, Endpoint, EndpointOptions, Refusal, Service};
use crate::rpc::MISSING_CLIENT_CAPABILITY;

/// Largest body of a data-plane message.
pub const DATA_LIMIT: usize = 64 * 1024 * 1024;

/// Largest body of an extension's call (contract 10).
pub const EXTENSION_LIMIT: usize = 4 * 1024 * 1024;

/// An environment as an MCP server.
#[derive(Clone)]
pub struct EnvService(EnvRuntime);

impl Service for EnvService {
    fn info(&self) -> (&str, &str) {
        (self.0.name(), env!("CARGO_PKG_VERSION"))
    }

    async fn list(&self, role: Option<&str>) -> Result<RawJson, Refusal> {
        let mut text = String::from("[");
        for tool in self.0.tools_for(role) {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(tool.raw.get());
        }
        text.push(']');
        Ok(RawJson::object(text.into()))
    }

    fn list_depends_on_role(&self) -> bool {
        self.0.has_tool_access()
    }

    async fn call(self: Arc<Self>, call: Call) -> Result<RawJson, Refusal> {
        require_capability(&self.0, &call)?;
        let forwarded = call.meta.as_deref().and_then(Caller::from_meta);
        let caller = forwarded.unwrap_or_else(|| Caller::new(call.role.as_deref(), call.session.as_deref()));
        let request = CallRequest {
            tool: &call.tool,
            arguments: call.arguments.as_deref(),
            caller,
            notify: call.notify,
            cancel: call.cancel,
            meta: call.meta.as_deref(),
        };
        Ok(self.0.call_tool(request).await.into_raw())
    }
}

/// Refuses a call of a tool that needs what the client cannot do, in the era in which clients say what they can.
fn require_capability(runtime: &EnvRuntime, call: &Call) -> Result<(), Refusal> {
    let Some(declared) = &call.client_capabilities else { return Ok(()) };
    let tool = runtime.tools().iter().find(|tool| *tool.name == *call.tool);
    let Some(needed) = tool.and_then(|tool| tool.requires_client_capability) else { return Ok(()) };
    if Members::of(declared.get()).is_ok_and(|declared| declared.get(needed).is_some()) {
        return Ok(());
    }
    let message = format!("the tool '{}' needs a client with the capability '{needed}'", call.tool);
    let refusal = Refusal::new(StatusCode::BAD_REQUEST, MISSING_CLIENT_CAPABILITY, message);
    Err(refusal.with_data(json!({"requiredCapabilities": {needed: {}}})))
}

/// The routes of an environment, for a server of one's own. Calls run in the options' tracker, whose end a graceful stop
/// awaits.
pub fn router(runtime: EnvRuntime, options: EndpointOptions) -> Router {
    endpoint_and_routes(runtime, options).1
}

/// [`router`], and the endpoint that its `/mcp` leads to.
pub(super) fn endpoint_and_routes(
    runtime: EnvRuntime,
    options: EndpointOptions,
) -> (Arc<Endpoint<EnvService>>, Router) {
    let endpoint = Endpoint::new(Arc::new(EnvService(runtime.clone())), options);
    let mcp = Arc::clone(&endpoint);
    let serve_mcp = move |request: Request<Body>| Arc::clone(&mcp).handle(request);
    let mut routes = Router::new()
        .route("/.well-known/agent-env.json", get(card))
        .route("/agentenv", post(data_plane))
        .route("/ready", get(ready));
    if runtime.has_tool_access() {
        routes = routes
            .route("/tools/disable", post(|state, body| rule(state, Access::Disable, body)))
            .route("/tools/enable", post(|state, body| rule(state, Access::Enable, body)));
    }
    for (index, extension) in runtime.extension_routes().iter().enumerate() {
        let by_query = extension.verb == http::Method::GET;
        let Ok(filter) = MethodFilter::try_from(extension.verb.clone()) else { continue };
        let serve = move |State(runtime): State<EnvRuntime>, request: Request<Body>| async move {
            invoke(&runtime, index, by_query, request).await
        };
        routes = routes.route(&extension.path, on(filter, serve));
    }
    let routes =
        routes.with_state(runtime).route("/mcp", any(serve_mcp.clone())).route("/mcp/", any(serve_mcp));
    (endpoint, routes)
}

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn card(State(runtime): State<EnvRuntime>) -> Response<Body> {
    answer(StatusCode::OK, runtime.card_json().clone())
}

async fn data_plane(State(runtime): State<EnvRuntime>, body: Body) -> Response<Body> {
    match read_body(body, DATA_LIMIT).await {
        Ok(body) => answer(StatusCode::OK, runtime.data_plane(&body).await),
        Err(fault) => answer(fault.status(), json!({"error": fault.to_string()}).to_string()),
    }
}

/// An environment is started before it is listened for.
async fn ready() -> Response<Body> {
    answer(StatusCode::OK, r#"{"ready":true}"#)
}

/// Contract 2.4.
async fn invoke(
    runtime: &EnvRuntime,
    index: usize,
    by_query: bool,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let role = match mcp::role(&parts.headers) {
        Ok(role) => role,
        Err(fault) => return failed(&ToolError::new("invalid_params", fault.to_string())),
    };
    let session = parts.headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
    let caller = Caller::new(role, session);
    let outcome = if by_query {
        let query = parts.uri.query().unwrap_or_default();
        runtime.invoke_extension(index, ExtensionInput::Query(query), caller).await
    } else {
        match read_body(body, EXTENSION_LIMIT).await {
            Ok(body) => runtime.invoke_extension(index, ExtensionInput::Json(&body), caller).await,
            Err(fault) => {
                Err(ToolError::new("invalid_params", fault.to_string()).with_status(fault.status().as_u16()))
            }
        }
    };
    match outcome {
        Ok(result) => answer(StatusCode::OK, RawJson::from(result).bytes().clone()),
        Err(error) => failed(&error),
    }
}

fn failed(error: &ToolError) -> Response<Body> {
    let status =
        error.status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::BAD_REQUEST);
    answer(status, json!({"ok": false, "error": error}).to_string())
}

/// Contract 2.6 with 4.1.
async fn rule(State(runtime): State<EnvRuntime>, access: Access, body: Body) -> Response<Body> {
    let bad = |message: &str| answer(StatusCode::BAD_REQUEST, json!({"error": message}).to_string());
    let body = match read_body(body, EXTENSION_LIMIT).await {
        Ok(body) => body,
        Err(fault) => return answer(fault.status(), json!({"error": fault.to_string()}).to_string()),
    };
    match crate::access::rule_of(&body) {
        Ok((role, tools)) => match runtime.apply_access(access, &role, &tools) {
            Ok(view) => {
                let view = json!({"role": role, "disabled": view.disabled, "allowed": view.allowed});
                answer(StatusCode::OK, view.to_string())
            }
            Err(fault) => bad(&fault.to_string()),
        },
        Err(fault) => bad(&fault.to_string()),
    }
}
