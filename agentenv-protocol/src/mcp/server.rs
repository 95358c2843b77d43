//! The serving side of MCP: one endpoint that reads a message, decides which era it is in, and answers it. Tools are a
//! [`Service`]'s; HTTP connections are the server's.

mod answer;
mod session_era;
mod stateless_era;

use std::future::Future;
use std::sync::Arc;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::headers::{self, Accepts, MCP_VERSION};
use super::session::Sessions;
use super::{META_CAPABILITIES, META_LOG_LEVEL, META_VERSION, SESSION_VERSIONS};
use crate::context::Notify;
use crate::json::{Members, RawJson};
use crate::rpc::{self, Message};

/// Largest body of a message (contract 10).
pub const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// The response header that names one life of a server, so that a gateway sees a restart that no session tells of.
pub const INSTANCE_HEADER: http::HeaderName = http::HeaderName::from_static("agentenv-instance");

/// What an endpoint serves.
pub trait Service: Send + Sync + 'static {
    /// The server's name and version.
    fn info(&self) -> (&str, &str);

    /// The role of a request, by default what its header says.
    ///
    /// # Errors
    /// The answer that refuses the request.
    fn role(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        match headers::role(headers) {
            Ok(role) => Ok(role.map(str::to_owned)),
            Err(fault) => Err(Refusal::new(StatusCode::BAD_REQUEST, rpc::INVALID_REQUEST, fault.to_string())),
        }
    }

    /// Who opens a session or uses one, where callers show who they are: a session is then nobody else's. By default whoever
    /// knows a session's id may use it.
    ///
    /// # Errors
    /// The answer that refuses the request.
    fn session_owner(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        let _ = headers;
        Ok(None)
    }

    /// What a tool is told of a caller's session, given the session's id or, in the stateless era, the key that the caller
    /// gave. By default that itself. Asked once for a session that the endpoint keeps.
    fn session_key(&self, given: &str) -> Arc<str> {
        given.into()
    }

    /// The tools that a role sees, as the text of a JSON array.
    ///
    /// # Errors
    /// [`Refusal`] where the tools are not known.
    fn list(&self, role: Option<&str>) -> impl Future<Output = Result<RawJson, Refusal>> + Send;

    /// Whether what [`list`](Self::list) gives depends on the role.
    fn list_depends_on_role(&self) -> bool;

    /// Runs a call to its end. A caller that hangs up does not cut it short: it then goes on in a task of its own.
    fn call(self: Arc<Self>, call: Call) -> impl Future<Output = Result<RawJson, Refusal>> + Send + 'static;
}

/// A call of a tool, as it came over the wire.
#[derive(Clone)]
#[non_exhaustive]
pub struct Call {
    /// The tool's name.
    pub tool: String,
    /// The arguments, an object's text; `None` where the caller sent none.
    pub arguments: Option<Box<RawValue>>,
    /// The `_meta` of the params, an object's text.
    pub meta: Option<Box<RawValue>>,
    /// The role by [`Service::role`].
    pub role: Option<String>,
    /// The caller's session by [`Service::session_key`], if it has one.
    pub session: Option<Arc<str>>,
    /// Where progress and log messages go, if anybody listens.
    pub notify: Option<Notify>,
    /// Cancelled when the caller wants the call no more.
    pub cancel: CancellationToken,
    /// What the caller can do for a tool, in the stateless era: an object's text.
    pub client_capabilities: Option<Box<RawValue>>,
    /// The caller's W3C trace context.
    pub traceparent: Option<HeaderValue>,
}

/// A request that is answered with a JSON-RPC error.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// The JSON-RPC code.
    pub code: i64,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub data: Option<Value>,
}

impl Refusal {
    /// A refusal without data.
    pub fn new(status: StatusCode, code: i64, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    /// Adds data.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, rpc::INVALID_REQUEST, message)
    }

    fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, rpc::INVALID_PARAMS, message)
    }
}

/// How an endpoint behaves where that is for its owner to say.
#[derive(Debug, Clone, Default)]
pub struct EndpointOptions {
    /// Origins that may call besides this machine's own (contract 2.3).
    pub allowed_origins: Vec<String>,
    /// Sessions are somebody else's: any `Mcp-Session-Id` is taken for what it is.
    pub foreign_sessions: bool,
    /// Where the calls' tasks are tracked.
    pub tracker: TaskTracker,
}

/// One MCP endpoint.
#[derive(Debug)]
pub struct Endpoint<S> {
    service: Arc<S>,
    options: EndpointOptions,
    sessions: Sessions,
    instance: HeaderValue,
}

impl<S: Service> Endpoint<S> {
    /// An endpoint for a service.
    pub fn new(service: Arc<S>, options: EndpointOptions) -> Arc<Self> {
        let instance = uuid::Uuid::new_v4().simple().to_string();
        let instance = HeaderValue::from_str(&instance).unwrap_or(HeaderValue::from_static("unknown"));
        Arc::new(Self { service, options, sessions: Sessions::default(), instance })
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Answers one HTTP request (contract 2.3). Never fails: whatever is wrong is in the answer.
    pub async fn handle<B>(self: Arc<Self>, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let (parts, body) = request.into_parts();
        let mut response = match self.read(&parts, body).await {
            Ok((body, accepts)) => self.answer(&parts, accepts, body).await,
            Err(response) => response,
        };
        response.headers_mut().insert(INSTANCE_HEADER, self.instance.clone());
        response
    }

    /// What can be told without looking at a message: the verb, where it comes from, its type and size. Gives the body, and
    /// what the client takes as an answer.
    async fn read<B>(&self, parts: &Parts, body: B) -> Result<(Bytes, Accepts), Response<Body>>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
    {
        if !headers::origin_is_allowed(&parts.headers, &self.options.allowed_origins) {
            let refusal =
                Refusal::new(StatusCode::FORBIDDEN, rpc::INVALID_REQUEST, "the Origin is not allowed");
            return Err(answer::refuse(None, &refusal));
        }
        match parts.method {
            Method::POST => {}
            Method::DELETE if !self.options.foreign_sessions => return Err(self.delete(&parts.headers)),
            _ => return Err(not_allowed("POST, DELETE")),
        }
        let refuse = |status, message: &str| {
            Err(answer::refuse(None, &Refusal::new(status, rpc::INVALID_REQUEST, message)))
        };
        if !headers::is_json(&parts.headers) {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the Content-Type must be application/json");
        }
        let accepts = headers::accepts(&parts.headers);
        if !accepts.json && !accepts.events {
            return refuse(
                StatusCode::NOT_ACCEPTABLE,
                "Accept must take application/json or text/event-stream",
            );
        }
        match crate::server::read_body(body, BODY_LIMIT).await {
            Ok(body) => Ok((body, accepts)),
            Err(fault) => refuse(fault.status(), &fault.to_string()),
        }
    }

    async fn answer(&self, parts: &Parts, accepts: Accepts, body: Bytes) -> Response<Body> {
        let message = match Message::parse(&body) {
            Ok(message) => message,
            Err(bad) => {
                return answer::refuse(bad.id, &Refusal::new(StatusCode::BAD_REQUEST, bad.code, bad.message));
            }
        };
        let incoming = match Incoming::new(parts, accepts, &message) {
            Ok(incoming) => incoming,
            Err(refusal) => return answer::refuse(message.id, &refusal),
        };
        if incoming.is_stateless() { self.stateless(&incoming).await } else { self.session(&incoming).await }
    }

    /// The params of `tools/call`, and what else a call is made of.
    fn call_of(&self, incoming: &Incoming<'_>, session: Option<Arc<str>>) -> Result<Call, Refusal> {
        let Some(tool) = incoming.params.text("name") else {
            return Err(Refusal::invalid_params("'name' must be a string: the name of a tool"));
        };
        let arguments = match incoming.params.get("arguments") {
            None => None,
            Some(raw) if raw.get().starts_with('{') => Some(raw.to_owned()),
            Some(_) => return Err(Refusal::invalid_params("'arguments' must be a JSON object")),
        };
        Ok(Call {
            tool: tool.into_owned(),
            arguments,
            meta: incoming.params.get("_meta").map(RawValue::to_owned),
            role: self.service.role(incoming.headers)?,
            session,
            notify: None,
            cancel: CancellationToken::new(),
            client_capabilities: incoming.meta.get(META_CAPABILITIES).map(RawValue::to_owned),
            traceparent: incoming.headers.get("traceparent").cloned(),
        })
    }

    /// `tools/list`, which is one page: there is no cursor that fits.
    async fn tools(&self, incoming: &Incoming<'_>) -> Result<RawJson, Refusal> {
        if incoming.params.get("cursor").is_some_and(|cursor| cursor.get() != "null") {
            return Err(Refusal::invalid_params("'cursor' is not one that this server gave"));
        }
        let role = self.service.role(incoming.headers)?;
        self.service.list(role.as_deref()).await
    }
}

/// A message with what its headers and `_meta` say.
struct Incoming<'a> {
    headers: &'a HeaderMap,
    accepts: Accepts,
    /// `None` for a notification or a response.
    id: Option<&'a RawValue>,
    /// Empty for a response.
    method: &'a str,
    params: Members<'a>,
    meta: Members<'a>,
    /// The header's protocol version.
    version: Option<&'a str>,
}

impl<'a> Incoming<'a> {
    fn new(parts: &'a Parts, accepts: Accepts, message: &'a Message<'a>) -> Result<Self, Refusal> {
        let params = match message.params {
            None => Members::default(),
            Some(raw) => Members::of(raw.get())
                .map_err(|_| Refusal::invalid_params("invalid params: 'params' must be a JSON object"))?,
        };
        let meta = match params.get("_meta") {
            None => Members::default(),
            Some(raw) => Members::of(raw.get())
                .map_err(|_| Refusal::invalid_params("invalid params: '_meta' must be a JSON object"))?,
        };
        let version = headers::single(&parts.headers, &MCP_VERSION).map_err(|()| {
            Refusal::bad_request("the MCP-Protocol-Version header must be there once, in ASCII")
        })?;
        let method = message.method.as_deref().unwrap_or_default();
        Ok(Self { headers: &parts.headers, accepts, id: message.id, method, params, meta, version })
    }

    /// A message is in the stateless era if it says so itself, or names a version that no session has.
    fn is_stateless(&self) -> bool {
        self.meta.get(META_VERSION).is_some() || self.version.is_some_and(|v| !SESSION_VERSIONS.contains(&v))
    }

    fn id(&self) -> &str {
        self.id.map_or("null", RawValue::get)
    }

    /// The least severe level of log messages that the request asks for, in the stateless era.
    fn log_level(&self) -> Option<u8> {
        answer::severity(&self.meta.text(META_LOG_LEVEL)?)
    }
}

/// What every server of ours can do. Prompts and resources are empty lists, for clients that list everything on connecting.
const CAPABILITIES: &str = r#"{"tools":{},"logging":{},"prompts":{},"resources":{}}"#;

/// The answer to a verb that the endpoint does not serve.
fn not_allowed(allow: &'static str) -> Response<Body> {
    let mut response = answer::empty(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// The answer to reading a resource: there is none.
fn no_resource(incoming: &Incoming<'_>, code: i64) -> Refusal {
    let uri = incoming
        .params
        .get("uri")
        .map_or(Value::Null, |uri| serde_json::from_str(uri.get()).unwrap_or_default());
    Refusal::new(StatusCode::OK, code, "resource not found").with_data(serde_json::json!({"uri": uri}))
}

#[cfg(test)]
mod tests;
