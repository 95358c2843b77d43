//! The reverse proxy before children and websites: `/svc/{key}/…` and `/website/{name}/…` (contract 3.4). It passes requests
//! on byte for byte and streams both ways. Who the caller is, what a message to a child's MCP endpoint may do, and what is
//! logged of a request is left to the routes.
//!
//! A request takes three steps: [`Proxy::route`] says where it goes or refuses it; the caller does what its kind asks for (a
//! POST for which [`Target::is_mcp`] holds is read, judged and stamped with [`stamp_meta`]); [`Proxy::forward`] sends it. A
//! target's path and method and the [`Reply`] are what there is to log.

mod body;
mod dial;
mod headers;
mod route;
mod stamp;
mod target;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agentenv_protocol::mcp::ROLE_HEADER;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use body::{Activity, Download, Upload};
use route::{Destination, Entry, Routes};
pub use route::{Route, RouteFault, RouteFaults};
pub use stamp::StampError;
pub use target::{Prefix, Refusal};

/// How long opening a connection to a server may take (contract 10).
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long nothing may move in an exchange: neither a piece of the request's body nor anything of the answer. It is what a
/// tool call may take (contract 10).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// [`IDLE_TIMEOUT`] for a child's data plane and extensions, where loading a world may take this long (contract 10).
pub const LOAD_TIMEOUT: Duration = Duration::from_secs(3600);

/// How long a connection that nobody uses is kept. Less than the 5 s after which common Python servers close one themselves,
/// so that requests are seldom written to a connection that is about to close.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// The methods that are passed on.
const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];

/// [`METHODS`] as a header has them.
const ALLOWED: &str = "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS";

/// Where a request goes: the answer of [`Proxy::route`], and the proof that the request may be passed on.
#[derive(Debug, Clone)]
pub struct Target {
    prefix: Prefix,
    entry: Arc<Entry>,
    uri: Uri,
    /// How many bytes of the URI's path are the base's.
    base: usize,
    is_mcp: bool,
}

impl Target {
    /// The family of the route.
    pub fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// The route's key, decoded.
    pub fn key(&self) -> &str {
        &self.entry.key
    }

    /// What follows the key, without the query, as it came; `/` where nothing does.
    pub fn path(&self) -> &str {
        self.uri.path().get(self.base..).filter(|path| !path.is_empty()).unwrap_or("/")
    }

    /// The query, as it came.
    pub fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    /// Whether the server may take a message sent here for one to its MCP endpoint, in whatever way the path is written.
    pub fn is_mcp(&self) -> bool {
        self.is_mcp
    }

    /// How long nothing may move.
    fn patience(&self) -> Duration {
        let data_plane =
            self.path().strip_prefix("/agentenv").is_some_and(|p| p.is_empty() || p.starts_with('/'));
        if data_plane { LOAD_TIMEOUT } else { IDLE_TIMEOUT }
    }
}

/// Whether a request reached its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// It answered.
    Yes,
    /// It did not answer, and may have acted.
    Maybe,
    /// No byte of the request was sent.
    No,
}

/// What came of a request.
#[derive(Debug)]
pub struct Reply {
    /// The server's answer, or the gateway's where there is none: 400, 405, 501, 502 or 504 with `{"error"}`.
    pub response: Response<Body>,
    /// Whose it is.
    pub reached: Reached,
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response<Body> {
        self.response
    }
}

/// The proxy. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Proxy {
    routes: Arc<Routes>,
    client: Client<dial::Dial, Upload>,
}

impl Proxy {
    /// A proxy with these routes.
    ///
    /// # Errors
    /// Every [`RouteFault`].
    pub fn new(routes: impl IntoIterator<Item = Route>) -> Result<Self, RouteFaults> {
        let routes = Arc::new(route::checked(routes)?);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_timer(TokioTimer::new())
            .build(dial::Dial::new());
        Ok(Self { routes, client })
    }

    /// Where a request goes. Its body is not looked at.
    ///
    /// # Errors
    /// [`Refusal`], which is its own answer.
    pub fn route<B>(&self, request: &Request<B>) -> Result<Target, Refusal> {
        admit(request)?;
        let parts = target::split(request.uri())?;
        let entry = self.routes.get(&parts.prefix).and_then(|keys| keys.get(parts.key.as_ref()));
        let entry = entry.ok_or_else(|| Refusal::Unknown(parts.key.into_owned()))?;
        if target::escapes(parts.rest) {
            return Err(Refusal::Escapes);
        }
        let is_mcp = target::may_reach(parts.rest, &entry.endpoints);
        let base = match &entry.to {
            Destination::Remote(_, base) => base.as_str(),
            Destination::Local(_) => "",
        };
        let rest = if parts.rest.is_empty() { "/" } else { parts.rest };
        let mut path =
            String::with_capacity(base.len() + rest.len() + parts.query.map_or(0, |q| q.len() + 1));
        path.push_str(base);
        path.push_str(rest);
        if let Some(query) = parts.query {
            path.push('?');
            path.push_str(query);
        }
        let path = PathAndQuery::from_maybe_shared(Bytes::from(path)).map_err(|_| Refusal::TooLong)?;
        let mut uri = http::uri::Parts::default();
        uri.path_and_query = Some(path);
        if let Destination::Remote(authority, _) = &entry.to {
            uri.scheme = Some(Scheme::HTTP);
            uri.authority = Some(authority.clone());
        }
        let uri = Uri::from_parts(uri).map_err(|_| Refusal::TooLong)?;
        Ok(Target { prefix: parts.prefix, entry: Arc::clone(entry), base: base.len(), uri, is_mcp })
    }

    /// Sends a request to its server as this role, with `body` in place of its own where that was read already (and stamped:
    /// a message to an MCP endpoint that still has its own is refused). Returns once the head of the answer is there; the
    /// bodies stream on. Dropping the future, or the answer's body, drops the connection to the server: it may have acted.
    pub async fn forward(
        &self,
        target: &Target,
        request: Request<Body>,
        role: &str,
        body: Option<Bytes>,
    ) -> Reply {
        let (mut head, own) = request.into_parts();
        if target.is_mcp && head.method == Method::POST && body.is_none() {
            tracing::error!(
                service = target.key(),
                "a message to an MCP endpoint was about to pass without its stamp"
            );
            return Reply::failed(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the message could not be checked",
                Reached::No,
            );
        }
        headers::of_request(&mut head.headers);
        let Ok(role) = HeaderValue::from_bytes(role.as_bytes()) else {
            return Reply { response: Refusal::Role.into_response(), reached: Reached::No };
        };
        head.headers.insert(ROLE_HEADER, role);
        let body = body.map_or(own, Body::from);
        match &target.entry.to {
            Destination::Local(router) => {
                head.headers.insert(header::HOST, HeaderValue::from_static("localhost"));
                let request = rebuilt(head.method, target.uri.clone(), head.headers, body);
                let Ok(response) = router.clone().oneshot(request).await;
                Reply::answered(response.map(Body::new))
            }
            Destination::Remote(authority, _) => {
                // Authorities are ASCII; one that is no header value could not have been parsed from a URL.
                if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
                    head.headers.insert(header::HOST, host);
                }
                self.send(target, head.method, head.headers, body).await
            }
        }
    }

    async fn send(&self, target: &Target, method: Method, mut headers: HeaderMap, body: Body) -> Reply {
        // A client that sends a body of unknown length with a GET would have it left out.
        if !http_body::Body::is_end_stream(&body) && http_body::Body::size_hint(&body).exact().is_none() {
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let (activity, patience, key) = (Activity::now(), target.patience(), target.key());
        let body = Upload::new(body, Arc::clone(&activity));
        let request = rebuilt(method, target.uri.clone(), headers, body);
        let mut answer = pin!(self.client.request(request));
        let mut timer = pin!(sleep(patience));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                () = &mut timer => {
                    let until = activity.last() + patience;
                    if until <= Instant::now() {
                        tracing::warn!(service = key, seconds = patience.as_secs(), "a server did not answer in time");
                        let text = format!("service '{key}' did not answer in time");
                        return Reply::failed(StatusCode::GATEWAY_TIMEOUT, &text, Reached::Maybe);
                    }
                    timer.as_mut().reset(until);
                }
            }
        };
        match answer {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                tracing::warn!(service = key, "a server changed protocols unasked");
                Reply::failed(
                    StatusCode::BAD_GATEWAY,
                    &format!("service '{key}' gave an answer that is no HTTP"),
                    Reached::Yes,
                )
            }
            Ok(response) => Reply::answered(stream(response, target)),
            Err(error) if activity.is_broken() => {
                tracing::debug!(service = key, error = %chain(&error), "a client broke off its request");
                Reply::failed(StatusCode::BAD_REQUEST, "the request's body broke off", Reached::Maybe)
            }
            Err(error) => {
                tracing::warn!(service = key, error = %chain(&error), "a server could not be reached, or did not answer");
                let reached = if error.is_connect() { Reached::No } else { Reached::Maybe };
                let (status, what) = match (reached, dial::timed_out(&error)) {
                    (_, true) => (StatusCode::GATEWAY_TIMEOUT, "could not be reached in time"),
                    (Reached::No, _) => (StatusCode::BAD_GATEWAY, "cannot be reached"),
                    _ => (StatusCode::BAD_GATEWAY, "broke off before it answered"),
                };
                Reply::failed(status, &format!("service '{key}' {what}"), reached)
            }
        }
    }
}

/// A message to a child's MCP endpoint with the caller's role, and its session where it has one, in `params._meta`, and what
/// the caller wrote there under those two keys dropped; the rest is as it came (contract 3.4). `headers` are the request's.
///
/// # Errors
/// [`StampError`]: the message is not one that every reader reads alike, so it must not be passed on.
pub fn stamp_meta(
    headers: &HeaderMap,
    body: &[u8],
    role: &str,
    session: Option<&str>,
) -> Result<Bytes, StampError> {
    stamp::readable(headers)?;
    stamp::stamp(body, role, session)
}

impl Reply {
    fn answered(mut response: Response<Body>) -> Self {
        headers::of_response(response.headers_mut());
        Self { response, reached: Reached::Yes }
    }

    fn failed(status: StatusCode, message: &str, reached: Reached) -> Self {
        Self { response: error_body(status, message), reached }
    }
}

/// The refusals that need no look at the routes.
fn admit<B>(request: &Request<B>) -> Result<(), Refusal> {
    let headers = request.headers();
    if !METHODS.contains(request.method()) {
        return Err(Refusal::Method);
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    if another.is_some() || (host.is_none() && request.version() >= Version::HTTP_11) {
        return Err(Refusal::Host);
    }
    if headers.contains_key(header::UPGRADE) {
        return Err(Refusal::Upgrade);
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(|coding| !chunked(coding) || headers.contains_key(header::CONTENT_LENGTH))
        || codings.next().is_some()
    {
        return Err(Refusal::Framing);
    }
    Ok(())
}

fn rebuilt<B>(method: Method, uri: Uri, headers: HeaderMap, body: B) -> Request<B> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

/// A server's answer, to be streamed on. Of its head only status and fields pass: not its version, nor its reason.
fn stream(response: Response<Incoming>, target: &Target) -> Response<Body> {
    let (head, body) = response.into_parts();
    // A stream of events may rightly be silent for as long as it likes.
    let events = head.headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        kind.as_bytes().get(..17).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
    });
    let idle = (!events).then(|| target.patience());
    let mut response = Response::new(Body::new(Download::new(body, idle, Arc::clone(&target.entry.key))));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// An answer of the gateway's own: `{"error": message}`.
fn error_body(status: StatusCode, message: &str) -> Response<Body> {
    let body = agentenv_protocol::json::ObjectWriter::with_capacity(message.len() + 16)
        .field("error", message)
        .finish();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error and its causes in one line, for the log.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(line, ": {error}");
        cause = error.source();
    }
    line
}
