//! The session protocol: `initialize` opens a session, which every other message names.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::super::SESSION_VERSIONS;
use super::super::headers::{self, MCP_SESSION};
use super::super::session::Session;
use super::answer::{self, Entry, Plan, severity};
use super::{Endpoint, Incoming, Refusal, Service};
use crate::json::{ObjectWriter, RawJson};
use crate::rpc;

impl<S: Service> Endpoint<S> {
    pub(super) async fn session(&self, incoming: &Incoming<'_>) -> Response<Body> {
        if incoming.method == "initialize" && incoming.id.is_some() {
            return self.initialize(incoming);
        }
        let (key, session) = match self.session_of(incoming.headers) {
            Ok(found) => found,
            Err(refusal) => return answer::refuse(incoming.id, &refusal),
        };
        if incoming.id.is_none() || incoming.method.is_empty() {
            if let (Some(session), "notifications/cancelled") = (&session, incoming.method)
                && let Some(id) = incoming.params.get("requestId")
            {
                session.cancel(id.get());
            }
            return answer::empty(StatusCode::ACCEPTED);
        }
        let result = match incoming.method {
            "ping" => Ok(ObjectWriter::with_capacity(0).finish()),
            "tools/list" => self.tools(incoming).await.map(|tools| list("tools", tools.as_str())),
            "tools/call" => return self.session_call(incoming, key, session).await,
            "logging/setLevel" => set_level(incoming, session.as_deref()),
            "prompts/list" => Ok(list("prompts", "[]")),
            "resources/list" => Ok(list("resources", "[]")),
            "resources/templates/list" => Ok(list("resourceTemplates", "[]")),
            "resources/read" => Err(super::no_resource(incoming, -32002)),
            method => {
                let message = format!("method not found: {method}");
                Err(Refusal::new(StatusCode::OK, rpc::METHOD_NOT_FOUND, message))
            }
        };
        answer::respond(incoming, result)
    }

    async fn session_call(
        &self,
        incoming: &Incoming<'_>,
        key: Arc<str>,
        session: Option<Arc<Session>>,
    ) -> Response<Body> {
        let call = match self.call_of(incoming, Some(key)) {
            Ok(call) => call,
            Err(refusal) => return answer::refuse(incoming.id, &refusal),
        };
        // Nothing is logged to a client that never asked for it: most never do, and every call would pay for it.
        let log_level = session.as_ref().and_then(|s| s.log_level());
        let entry = session.map(|session| {
            let id: Arc<str> = incoming.id().into();
            session.begin(Arc::clone(&id), &call.cancel);
            Entry { session, id }
        });
        self.run(
            incoming,
            call,
            Plan { finish: RawJson::into_bytes, log_level, hang_up_cancels: false, entry },
        )
        .await
    }

    fn initialize(&self, incoming: &Incoming<'_>) -> Response<Body> {
        if incoming.headers.contains_key(MCP_SESSION) {
            let refusal =
                Refusal::bad_request("initialize opens a session of its own: send no Mcp-Session-Id");
            return answer::refuse(incoming.id, &refusal);
        }
        let Some(asked) = incoming.params.text("protocolVersion") else {
            return answer::refuse(
                incoming.id,
                &Refusal::invalid_params("'protocolVersion' must be a string"),
            );
        };
        let version = SESSION_VERSIONS.iter().find(|v| **v == asked).unwrap_or(&SESSION_VERSIONS[0]);
        let owner = match self.service.session_owner(incoming.headers) {
            Ok(owner) => owner,
            Err(refusal) => return answer::refuse(incoming.id, &refusal),
        };
        let Some(id) = self.sessions.open(owner.as_deref(), |id| self.service.session_key(id)) else {
            let refusal =
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, rpc::SERVER_ERROR, "too many sessions");
            let mut response = answer::refuse(incoming.id, &refusal);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
            return response;
        };
        let (name, server_version) = self.service.info();
        let result = ObjectWriter::with_capacity(256)
            .field("protocolVersion", version)
            .raw("capabilities", super::CAPABILITIES)
            .field("serverInfo", &json!({"name": name, "version": server_version}))
            .finish();
        let mut response = answer::respond(incoming, Ok(result));
        if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
            response.headers_mut().insert(MCP_SESSION, id);
        }
        response
    }

    /// The session that a message names: its key, and its entry unless sessions are somebody else's.
    fn session_of(&self, headers: &HeaderMap) -> Result<(Arc<str>, Option<Arc<Session>>), Refusal> {
        let not_found = || {
            Refusal::new(StatusCode::NOT_FOUND, rpc::INVALID_REQUEST, "session not found: initialize anew")
        };
        let id = match headers::single(headers, &MCP_SESSION) {
            Ok(Some(id)) => id,
            Ok(None) => {
                return Err(Refusal::bad_request("the Mcp-Session-Id header is missing: initialize first"));
            }
            Err(()) => return Err(not_found()),
        };
        if self.options.foreign_sessions {
            return Ok((self.service.session_key(id), None));
        }
        let owner = self.service.session_owner(headers)?;
        self.sessions
            .find(id, owner.as_deref())
            .map(|session| (Arc::clone(&session.key), Some(session)))
            .ok_or_else(not_found)
    }

    /// Ends the session that a DELETE names.
    pub(super) fn delete(&self, headers: &HeaderMap) -> Response<Body> {
        let owner = match self.service.session_owner(headers) {
            Ok(owner) => owner,
            Err(refusal) => return answer::refuse(None, &refusal),
        };
        match headers::single(headers, &MCP_SESSION) {
            Ok(Some(id)) if self.sessions.close(id, owner.as_deref()) => answer::empty(StatusCode::OK),
            Ok(None) => super::not_allowed("POST"),
            _ => {
                let refusal = Refusal::new(StatusCode::NOT_FOUND, rpc::INVALID_REQUEST, "session not found");
                answer::refuse(None, &refusal)
            }
        }
    }
}

fn list(name: &str, items: &str) -> Bytes {
    ObjectWriter::with_capacity(items.len() + 24).raw(name, items).finish()
}

fn set_level(incoming: &Incoming<'_>, session: Option<&Session>) -> Result<Bytes, Refusal> {
    let Some(level) = incoming.params.text("level").as_deref().and_then(severity) else {
        return Err(Refusal::invalid_params("'level' must be a syslog level, from 'debug' to 'emergency'"));
    };
    if let Some(session) = session {
        session.set_log_level(level);
    }
    Ok(ObjectWriter::with_capacity(0).finish())
}
