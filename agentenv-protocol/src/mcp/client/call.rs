//! Calling a tool: one request with a deadline, a way to give it up, and ears for what the server says meanwhile.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::Said;
use super::error::{ClientError, Sent};
use super::link::Link;
use super::request::{self, Outgoing};
use super::retry::Retries;
use super::{ASIDE_TIMEOUT, CANCEL_GRACE, Inner, McpClient, deadline_in};
use crate::context::{LogLevel, Notification, Notify};
use crate::json::RawJson;
use crate::rpc;

/// The W3C trace context of a request.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Most requests that a server may make while it answers one of ours.
const REQUESTS_OF_SERVER: usize = 64;

/// A call to be made. Begin with [`OutgoingCall::new`].
#[derive(Clone)]
pub struct OutgoingCall<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The arguments, an object's text, which is sent as it is; `None` leaves them out.
    pub arguments: Option<&'a RawValue>,
    /// The params' `_meta`, an object's text with what the caller has to say (contract 2.5); empty for none. What the
    /// stateless protocol wants there is added.
    pub meta: &'a str,
    /// Who hears the progress and log messages of the call. It must not block.
    pub notify: Option<Notify>,
    /// Cancelled when the caller wants the call no more.
    pub cancel: CancellationToken,
    /// The caller's W3C trace context.
    pub traceparent: Option<HeaderValue>,
    /// When the call is given up; by default the client's time-out from now on.
    pub deadline: Option<Instant>,
}

impl<'a> OutgoingCall<'a> {
    /// A call with nothing but a tool and its arguments.
    pub fn new(tool: &'a str, arguments: Option<&'a RawValue>) -> Self {
        let cancel = CancellationToken::new();
        Self { tool, arguments, meta: "", notify: None, cancel, traceparent: None, deadline: None }
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallReply {
    /// The result, an object's text exactly as the server sent it. It may be a tool's error (`isError`).
    pub result: RawJson,
    /// Set on the first reply after a reconnection.
    pub reconnected: Option<Reconnected>,
}

/// The server was connected to anew, and what it knew may be gone (contract 3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconnected {
    /// Why.
    pub reason: &'static str,
}

impl McpClient {
    /// Calls a tool. A call that provably never reached the server is tried again once; nothing else is (contract 3.3).
    ///
    /// Dropping this gives the call up: in the stateless era the server sees the connection end, in the session era it is sent
    /// `notifications/cancelled`. The call's own `cancel` does the same, but waits up to [`CANCEL_GRACE`] for a session's
    /// server to end the call, whose result then still counts.
    ///
    /// # Errors
    /// [`ClientError`], which says whether the call can have run.
    pub async fn call(&self, call: OutgoingCall<'_>) -> Result<CallReply, ClientError> {
        let inner = &self.inner;
        let deadline = call.deadline.unwrap_or_else(|| deadline_in(inner.options.timeout));
        let tool = serde_json::to_string(call.tool).unwrap_or_default();
        let mut params = [("name", tool.as_str()), ("arguments", "")];
        let params = match call.arguments {
            Some(arguments) => {
                params[1].1 = arguments.get();
                &params[..]
            }
            None => &params[..1],
        };
        let outgoing = Outgoing {
            method: "tools/call",
            name: Some(call.tool),
            params,
            meta: call.meta,
            logs: call.notify.is_some(),
        };
        let mut retries = Retries::default();
        loop {
            if call.cancel.is_cancelled() {
                return Err(ClientError::cancelled(Sent::No));
            }
            let link = match inner.links.current() {
                Some(link) => link,
                None => tokio::select! {
                    biased;
                    () = call.cancel.cancelled() => return Err(ClientError::cancelled(Sent::No)),
                    link = inner.link() => link?,
                    () = sleep_until(deadline) => {
                        return Err(ClientError::timeout(Sent::No, "the server could not be connected to in time"));
                    }
                },
            };
            retries.check(&link)?;
            match inner.attempt(&link, &outgoing, &call, deadline).await {
                Ok(result) => return Ok(CallReply { result, reconnected: inner.links.news() }),
                Err(error) => inner.after(&link, error, &mut retries)?,
            }
        }
    }
}

impl Inner {
    async fn attempt(
        self: &Arc<Self>,
        link: &Arc<Link>,
        outgoing: &Outgoing<'_>,
        call: &OutgoingCall<'_>,
        deadline: Instant,
    ) -> Result<RawJson, ClientError> {
        let id = self.next_id();
        let mut headers = outgoing.headers(&link.headers, &link.era);
        if let Some(traceparent) = &call.traceparent {
            headers.insert(TRACEPARENT, traceparent.clone());
        }
        let mut requests = 0;
        let mut said = |said: Said<'_>| match said.id {
            Some(id) if link.is_session_era() && requests < REQUESTS_OF_SERVER => {
                requests += 1;
                self.reply(link, id, &said.method);
            }
            Some(_) => {}
            None => {
                if let Some(notify) = &call.notify
                    && let Some(notification) = notification(&said)
                {
                    notify(notification);
                }
            }
        };
        let mut ongoing = link.is_session_era().then(|| Ongoing { inner: self, link, id });
        let mut exchange = pin!(self.exchange(headers, outgoing.body(id, &link.era), id, &mut said));
        let answer = tokio::select! {
            biased;
            answer = &mut exchange => Some(answer),
            () = call.cancel.cancelled() => None,
            () = sleep_until(deadline) => {
                return Err(ClientError::timeout(Sent::Maybe, "the server did not answer in time"));
            }
        };
        let answer = match answer {
            Some(answer) => {
                if let Some(ongoing) = ongoing.take() {
                    ongoing.ended();
                }
                answer
            }
            // The server is told, and given some time to end the call: only then it is known to have ended.
            None if ongoing.take().is_some() => match timeout(CANCEL_GRACE, exchange).await {
                Ok(answer) if answer.result.is_ok() => answer,
                _ => return Err(ClientError::cancelled(Sent::Maybe)),
            },
            None => return Err(ClientError::cancelled(Sent::Maybe)),
        };
        self.links.saw(link, answer.instance.as_ref().filter(|_| answer.result.is_ok()));
        answer.result
    }

    /// Answers a request of the server's, so that it does not wait for it: a ping is answered, all else is not offered.
    fn reply(self: &Arc<Self>, link: &Arc<Link>, id: &RawValue, method: &str) {
        let body = match method {
            "ping" => rpc::result(id.get(), "{}"),
            _ => rpc::error(Some(id), rpc::METHOD_NOT_FOUND, "this client offers nothing to servers", None),
        };
        self.aside(link, body);
    }

    /// Sends what nobody waits for, in a task that ends by itself.
    fn aside(self: &Arc<Self>, link: &Arc<Link>, body: Bytes) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (inner, link) = (Arc::clone(self), Arc::clone(link));
        runtime.spawn(async move {
            match timeout(ASIDE_TIMEOUT, inner.tell(&link.headers, body)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a message aside was not taken"),
                Err(_) => tracing::debug!("a message aside was not taken in time"),
            }
        });
    }
}

/// A call that runs in a session. Dropped before it has ended, it tells the server that it is wanted no more.
struct Ongoing<'a> {
    inner: &'a Arc<Inner>,
    link: &'a Arc<Link>,
    id: u64,
}

impl Ongoing<'_> {
    fn ended(self) {
        std::mem::forget(self);
    }
}

impl Drop for Ongoing<'_> {
    fn drop(&mut self) {
        let params = format!(r#"{{"requestId":{},"reason":"the caller gave the call up"}}"#, self.id);
        self.inner.aside(self.link, request::notification("notifications/cancelled", Some(&params)));
    }
}

/// A server's notification as its caller hears it; `None` for a kind that callers do not.
fn notification(said: &Said<'_>) -> Option<Notification> {
    #[derive(Deserialize)]
    struct Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    }
    #[derive(Deserialize)]
    struct Log {
        level: LogLevel,
        logger: Option<String>,
        data: serde_json::Value,
    }
    let params = said.params?.get();
    match said.method.as_str() {
        "notifications/progress" => {
            let Progress { progress, total, message } = serde_json::from_str(params).ok()?;
            Some(Notification::Progress { progress, total, message })
        }
        "notifications/message" => {
            let Log { level, logger, data } = serde_json::from_str(params).ok()?;
            Some(Notification::Log { level, logger, data })
        }
        _ => None,
    }
}
