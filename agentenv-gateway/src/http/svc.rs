//! `/svc` and `/website` (contract 3.4): which requests pass straight through, which are calls in disguise, and what is
//! logged of the rest. How a request is passed on is `proxy`'s.

use std::sync::Arc;

use agentenv_protocol::environment::EnvRuntime;
use agentenv_protocol::json::{Members, ObjectWriter};
use agentenv_protocol::mcp::server::{BODY_LIMIT, EndpointOptions};
use agentenv_protocol::rpc::{self, Message};
use agentenv_protocol::server::{DATA_LIMIT, read_body, router};
use agentenv_protocol::task::{Panicked, RunToEnd};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Http;
use super::card::CARD_LIMIT;
use super::errors::{CONTROL_LIMIT, error};
use super::mcp::session_key;
use super::proxy::{Prefix, Proxy, Reached, Route, RouteFaults, Target, stamp_meta};
use crate::config::Named;
use crate::instance::{ServiceEntry, ServiceTarget};
use crate::store::{Actor, LatestId, WrittenRequest};
use crate::trajectory::{Event, Kind};
use crate::triggers::SeenRequest;

/// Largest website request whose body a trigger's condition can look into.
const WATCHED_BODY: usize = 1024 * 1024;

/// The proxy to every service and website.
///
/// # Errors
/// Names and URLs that no route can have.
pub(crate) fn proxy_of(
    services: &[ServiceEntry],
    websites: &[Named],
    tracker: &TaskTracker,
) -> Result<Proxy, RouteFaults> {
    let services = services.iter().map(|entry| {
        let key = entry.key.clone();
        match &entry.target {
            ServiceTarget::InProcess(runtime) => {
                Route::local(Prefix::Svc, key, local_router(runtime, tracker))
            }
            ServiceTarget::Remote { base, mcp } => Route::remote(Prefix::Svc, key, base.clone()).mcp_at(mcp),
        }
    });
    let websites =
        websites.iter().map(|site| Route::remote(Prefix::Website, site.name.clone(), site.url.clone()));
    Proxy::new(services.chain(websites))
}

/// An environment of this process, as a server has it.
fn local_router(runtime: &EnvRuntime, tracker: &TaskTracker) -> Router {
    router(runtime.clone(), EndpointOptions { tracker: tracker.clone(), ..EndpointOptions::default() })
}

pub(super) async fn serve(State(http): State<Arc<Http>>, request: Request<Body>) -> Response<Body> {
    match Arc::clone(&http).pass(request).await {
        Ok(response) | Err(response) => response,
    }
}

impl Http {
    async fn pass(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Response<Body>> {
        let target = self.instance.0.proxy.route(&request).map_err(IntoResponse::into_response)?;
        let is_agent = match target.prefix() {
            Prefix::Website => true,
            Prefix::Svc => target.is_mcp() && !self.access.asks_control(),
        };
        let role = if is_agent {
            self.access.role(request.headers())
        } else {
            self.access.harness_role(request.headers())
        };
        let role = role.map_err(|fault| error(fault.status(), fault.to_string()))?;
        if target.prefix() == Prefix::Website {
            return self.website(target, request, role).await;
        }
        if target.is_mcp() && request.method() == Method::POST {
            return self.mcp_post(&target, request, &role).await;
        }
        if self.instance.0.installs_changelog
            && target.path() == "/agentenv"
            && request.method() == Method::POST
        {
            return self.data_message(target, request, role).await;
        }
        Ok(self.written(target, request, role).await)
    }

    /// A message for a child's data plane, in an instance that owns its store: once data is loaded into a server, its changelog
    /// is installed (contract 8).
    async fn data_message(
        self: Arc<Self>,
        target: Target,
        request: Request<Body>,
        role: String,
    ) -> Result<Response<Body>, Response<Body>> {
        let (parts, body) = request.into_parts();
        let body =
            read_body(body, DATA_LIMIT).await.map_err(|fault| error(fault.status(), fault.to_string()))?;
        let loads = Message::parse(&body).is_ok_and(|message| message.method.as_deref() == Some("data/add"));
        let child =
            self.service(target.key()).and_then(|service| self.instance.0.services.get(service)?.child);
        let request = Request::from_parts(parts, Body::from(body));
        let response = Arc::clone(&self).written(target, request, role).await;
        let inner = &self.instance.0;
        let name = child.and_then(|child| inner.children.get(child)).map(|child| child.name.as_str());
        let (Some(name), Some(store), true, StatusCode::OK) = (name, &inner.store, loads, response.status())
        else {
            return Ok(response);
        };
        let (head, body) = response.into_parts();
        let body = read_body(body, CONTROL_LIMIT).await;
        let body = body.map_err(|_| error(StatusCode::BAD_GATEWAY, "the environment's answer broke off"))?;
        let loaded =
            std::str::from_utf8(&body).is_ok_and(|b| Members::of(b).is_ok_and(|m| m.get("result").is_some()));
        if loaded && let Err(fault) = store.install(name).await {
            tracing::error!(child = name, %fault, "data is loaded, but its changelog cannot be installed");
        }
        Ok(Response::from_parts(head, Body::from(body)))
    }

    /// A message for a child's own MCP endpoint: a call is one like any other; everything else goes on, stamped.
    async fn mcp_post(
        &self,
        target: &Target,
        request: Request<Body>,
        role: &str,
    ) -> Result<Response<Body>, Response<Body>> {
        let (parts, body) = request.into_parts();
        let body =
            read_body(body, BODY_LIMIT).await.map_err(|fault| error(fault.status(), fault.to_string()))?;
        let session = parts.headers.get("mcp-session-id").and_then(|id| id.to_str().ok()).map(session_key);
        let stamped = stamp_meta(&parts.headers, &body, role, session.as_deref());
        let stamped = stamped.map_err(IntoResponse::into_response)?;
        let is_call = Message::parse(&body).is_ok_and(|m| m.method.as_deref() == Some("tools/call"));
        let child =
            self.service(target.key()).and_then(|service| self.instance.0.services.get(service)?.child);
        if let (true, Some(endpoint)) = (is_call, child.and_then(|child| self.children.get(child))) {
            return Ok(Arc::clone(endpoint).handle(Request::from_parts(parts, Body::from(body))).await);
        }
        let request = Request::from_parts(parts, Body::empty());
        Ok(self.instance.0.proxy.forward(target, request, role, Some(stamped)).await.response)
    }

    /// The index of the service of a key.
    fn service(&self, key: &str) -> Option<usize> {
        self.instance.0.services.iter().position(|entry| entry.key == key)
    }

    /// A request that may write: in consistent mode it takes its turn, and what it changed is logged. That is done to its
    /// end: a caller that hangs up gives back no turn early, and no write goes unlogged.
    async fn written(
        self: Arc<Self>,
        target: Target,
        request: Request<Body>,
        role: String,
    ) -> Response<Body> {
        let inner = &self.instance.0;
        let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if safe || (inner.turn.is_none() && inner.store.is_none()) {
            return inner.proxy.forward(&target, request, &role, None).await.response;
        }
        let tracker = inner.tracker.clone();
        let work = async move {
            let inner = &self.instance.0;
            let mut written = WrittenRequest {
                route: target.prefix().as_str().to_owned(),
                service: target.key().to_owned(),
                method: request.method().to_string(),
                path: target.path().to_owned(),
                status: None,
            };
            let _turn = inner.turn(&CancellationToken::new()).await;
            let before = inner.changelog_id().await;
            let reply = tokio::select! {
                biased;
                () = inner.stop.cancelled() => None,
                reply = inner.proxy.forward(&target, request, &role, None) => Some(reply),
            };
            let after = inner.changelog_id().await;
            let reached = reply.as_ref().filter(|reply| reply.reached == Reached::Yes);
            written.status = reached.map(|reply| reply.response.status().as_u16());
            self.log_write(written, &role, before, after).await;
            match reply {
                Some(reply) => reply.response,
                None => {
                    error(StatusCode::SERVICE_UNAVAILABLE, "the gateway stopped before the service answered")
                }
            }
        };
        RunToEnd::new(work, &tracker).await.unwrap_or_else(|Panicked| {
            tracing::error!("a proxied request panicked");
            error(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
        })
    }

    /// `http_request`, for a request that moved the changelog (contract 5).
    async fn log_write(&self, request: WrittenRequest, role: &str, before: LatestId, after: LatestId) {
        let inner = &self.instance.0;
        let moved = matches!((before, after), (LatestId::Known(b), LatestId::Known(a)) if a > b);
        if !moved {
            inner.windows.lose(before, after);
            return;
        }
        let caused_by = inner.triggers.firing_for_role(role);
        let mut members = ObjectWriter::with_capacity(320)
            .field("route", &request.route)
            .field("service", &request.service)
            .field("method", &request.method)
            .field("path", &request.path)
            .field("status", &request.status)
            .field("role", role)
            .field("changelog_id_before", &before)
            .field("changelog_id_after", &after);
        let caused_by = (!caused_by.is_empty()).then(|| json!(caused_by));
        if let Some(caused_by) = &caused_by {
            members = members.field("caused_by", caused_by);
        }
        match inner.trajectory.append(Event::new(Kind::HttpRequest, members)).await {
            Ok(id) => {
                let actor =
                    Actor::Request { event_id: id.to_string(), request, role: role.to_owned(), caused_by };
                inner.windows.record(actor, before, after);
            }
            Err(fault) => {
                tracing::warn!(%fault, "cannot record a write through the proxy");
                inner.windows.lose(before, after);
            }
        }
    }

    /// A website's request: as any other, and triggers may watch it (contract 7.9).
    async fn website(
        self: Arc<Self>,
        target: Target,
        request: Request<Body>,
        role: String,
    ) -> Result<Response<Body>, Response<Body>> {
        let triggers = self.instance.triggers().clone();
        if !triggers.watches_website(&role, target.key()) {
            return Ok(self.written(target, request, role).await);
        }
        let (parts, body) = request.into_parts();
        let small = http_body::Body::size_hint(&body).upper().is_some_and(|size| size <= WATCHED_BODY as u64);
        let (body, kept) = if small {
            let bytes = read_body(body, WATCHED_BODY).await;
            let bytes = bytes.map_err(|fault| error(fault.status(), fault.to_string()))?;
            (Body::from(bytes.clone()), bytes)
        } else {
            (body, Bytes::new())
        };
        let path = percent_encoding::percent_decode_str(target.path()).decode_utf8_lossy().into_owned();
        let content_type =
            parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let mut seen = SeenRequest {
            app: target.key().to_owned(),
            role: role.clone(),
            method: parts.method.to_string(),
            path,
            query: target.query().unwrap_or_default().to_owned(),
            content_type,
            body: kept,
            status: 0,
        };
        let response = self.written(target, Request::from_parts(parts, body), role).await;
        seen.status = response.status().as_u16();
        if let Some(barrier) = triggers.seen_website(&seen) {
            barrier.wait().await;
        }
        Ok(response)
    }

    /// A request of ours to a service, treated as any other.
    async fn ask(self: &Arc<Self>, service: usize, mut request: Request<Body>, path: &str) -> Response<Body> {
        let key = self.instance.0.services.get(service).map_or("", |entry| entry.key.as_str());
        let Ok(uri) = format!("/svc/{key}{path}").parse() else {
            return error(StatusCode::BAD_GATEWAY, "the environment cannot be reached");
        };
        *request.uri_mut() = uri;
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("gateway"));
        match Arc::clone(self).pass(request).await {
            Ok(response) | Err(response) => response,
        }
    }

    /// A child's card, if it gives one.
    pub(super) async fn child_card(self: &Arc<Self>, service: usize) -> Option<Value> {
        let response = self.ask(service, Request::new(Body::empty()), "/.well-known/agent-env.json").await;
        if response.status() != StatusCode::OK {
            return None;
        }
        let body = read_body(response.into_body(), CARD_LIMIT).await.ok()?;
        serde_json::from_slice(&body).ok()
    }

    /// A child's answer to a message of the data plane.
    pub(super) async fn forward_data(
        self: &Arc<Self>,
        service: usize,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Response<Body> {
        let mut headers = headers.clone();
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRANSFER_ENCODING);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        self.ask(service, request, "/agentenv").await
    }
}

/// What becomes of a message to the gateway's own data plane.
pub(super) enum DataPlane {
    /// It is answered here.
    Answer(Bytes),
    /// It goes to this service.
    Forward { service: usize, body: Bytes },
    /// Every service is reset.
    ResetAll { id: Option<Box<RawValue>> },
}

/// Reads a message to the gateway's own data plane (contract 3.5).
pub(super) fn data_plane_of(http: &Http, body: &Bytes) -> DataPlane {
    let inner = &http.instance.0;
    let message = match Message::parse(body) {
        Ok(message) => message,
        Err(bad) => return DataPlane::Answer(rpc::error(bad.id, bad.code, &bad.message, None)),
    };
    let refuse = |code, text: String| DataPlane::Answer(rpc::error(message.id, code, &text, None));
    let Some(method) = message.method.as_deref() else {
        return refuse(rpc::INVALID_REQUEST, "invalid request: 'method' is missing".to_owned());
    };
    if !matches!(method, "data/reset" | "data/add" | "data/get") {
        return refuse(rpc::METHOD_NOT_FOUND, format!("method not found: {method}"));
    }
    let params = message.params.and_then(|params| Members::of(params.get()).ok()).unwrap_or_default();
    match params.text("environment").as_deref() {
        Some("*") if method == "data/reset" => DataPlane::ResetAll { id: message.id.map(RawValue::to_owned) },
        Some(name) => {
            let child =
                |entry: &crate::instance::ServiceEntry| entry.child.and_then(|c| inner.children.get(c));
            let found = inner
                .services
                .iter()
                .position(|entry| entry.key == name || child(entry).is_some_and(|child| child.name == name));
            match found {
                Some(service) => DataPlane::Forward { service, body: body.clone() },
                None => refuse(rpc::INVALID_PARAMS, format!("there is no environment '{name}'")),
            }
        }
        None if inner.services.len() == 1 => DataPlane::Forward { service: 0, body: body.clone() },
        None => {
            let count = inner.services.len();
            let text = format!(
                "this instance has {count} environments, not one: use /svc/<name>/agentenv, or name one in params.environment"
            );
            refuse(rpc::SERVER_ERROR, text)
        }
    }
}
