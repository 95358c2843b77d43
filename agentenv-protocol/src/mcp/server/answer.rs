//! Answers: a JSON body, or an event stream where the client takes nothing else or the call has something to say before it
//! ends.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::session::Session;
use super::super::sse;
use super::{Call, Endpoint, Incoming, Refusal, Service};
use crate::context::{LogLevel, Notification};
use crate::json::RawJson;
use crate::rpc;
use crate::task::{Panicked, RunToEnd};

/// Notifications that wait for a slow reader; more are dropped, for a call never waits for them.
const QUEUED_NOTIFICATIONS: usize = 256;

/// A JSON body.
pub(super) fn json(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = empty(status);
    *response.body_mut() = Body::from(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A body with nothing in it.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A JSON-RPC error.
pub(super) fn refuse(id: Option<&RawValue>, refusal: &Refusal) -> Response<Body> {
    json(refusal.status, rpc::error(id, refusal.code, &refusal.message, refusal.data.as_ref()))
}

/// A result, or the refusal, as the body that the client takes.
pub(super) fn respond(incoming: &Incoming<'_>, result: Result<Bytes, Refusal>) -> Response<Body> {
    match result {
        Err(refusal) => refuse(incoming.id, &refusal),
        Ok(result) => {
            let body = rpc::result(incoming.id(), std::str::from_utf8(&result).unwrap_or("null"));
            if incoming.accepts.json {
                json(StatusCode::OK, body)
            } else {
                events(Body::from(sse::event(&body)))
            }
        }
    }
}

fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// How severe a log level is; `None` for a word that is none.
pub(super) fn severity(level: &str) -> Option<u8> {
    serde_json::from_value::<LogLevel>(Value::String(level.to_owned())).ok().map(|level| level as u8)
}

/// A notification as a message, if the caller asked for its kind.
fn message(notification: &Notification, token: Option<&str>, level: Option<u8>) -> Option<Bytes> {
    let number = |n: f64| if n.fract() == 0.0 && n.abs() < 1e15 { json!(n as i64) } else { json!(n) };
    let (method, params) = match notification {
        Notification::Progress { progress, total, message } => {
            let token: Value = serde_json::from_str(token?).ok()?;
            let mut params = json!({"progressToken": token, "progress": number(*progress)});
            if let Some(total) = total {
                params["total"] = number(*total);
            }
            if let Some(message) = message {
                params["message"] = json!(message);
            }
            ("notifications/progress", params)
        }
        Notification::Log { level: of, logger, data } => {
            if (*of as u8) < level? {
                return None;
            }
            let mut params = json!({"level": of, "data": data});
            if let Some(logger) = logger {
                params["logger"] = json!(logger);
            }
            ("notifications/message", params)
        }
    };
    serde_json::to_vec(&json!({"jsonrpc": "2.0", "method": method, "params": params})).ok().map(Bytes::from)
}

/// Ends a call's entry in its session, whatever becomes of the call.
pub(super) struct Entry {
    pub(super) session: Arc<Session>,
    pub(super) id: Arc<str>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.session.end(&self.id);
    }
}

/// What the two eras do differently with a call.
pub(super) struct Plan {
    /// Makes the era's result of the tool's.
    pub(super) finish: fn(RawJson) -> Bytes,
    /// The least severe level of log messages to send.
    pub(super) log_level: Option<u8>,
    /// Whether a caller that hangs up cancels the call.
    pub(super) hang_up_cancels: bool,
    pub(super) entry: Option<Entry>,
}

impl<S: Service> Endpoint<S> {
    /// Runs a call to its end and answers with what comes of it.
    pub(super) async fn run(&self, incoming: &Incoming<'_>, mut call: Call, plan: Plan) -> Response<Body> {
        let token = incoming.meta.get("progressToken").map(|token| token.get().to_owned());
        let listens = incoming.accepts.events && (token.is_some() || plan.log_level.is_some());
        let mut said = listens.then(|| {
            let (sender, said) = mpsc::channel(QUEUED_NOTIFICATIONS);
            let level = plan.log_level;
            call.notify = Some(Arc::new(move |notification| {
                if let Some(message) = message(&notification, token.as_deref(), level) {
                    // A full queue drops the notification: nothing waits on it.
                    let _ = sender.try_send(message);
                }
            }));
            said
        });
        let cancel = call.cancel.clone();
        let guard = plan.hang_up_cancels.then(|| cancel.clone().drop_guard());
        let service = Arc::clone(&self.service);
        let (finish, entry) = (plan.finish, plan.entry);
        let call = async move {
            let _entry = entry;
            service.call(call).await.map(finish)
        };
        let mut running = RunToEnd::new(call, &self.options.tracker);

        let first = tokio::select! {
            // What was said goes before the end, also where both are there at once.
            biased;
            Some(message) = next(&mut said) => message,
            ended = &mut running => {
                disarm(guard);
                // What a cancelled call ended with is not asked for any more.
                if cancel.is_cancelled() {
                    return refuse(incoming.id, &cancelled());
                }
                let result = result_of(ended);
                // What it said on the way to its end still goes before it.
                let said = said.and_then(|mut said| Some((said.try_recv().ok()?, said)));
                let Some((first, mut said)) = said else { return respond(incoming, result) };
                let rest = std::iter::from_fn(|| said.try_recv().ok());
                let messages = std::iter::once(first).chain(rest).chain([last(incoming.id, result)]);
                return events(Body::from(messages.map(|message| sse::event(&message)).collect::<Vec<_>>().concat()));
            }
            () = cancel.cancelled() => return refuse(incoming.id, &cancelled()),
        };
        let head = futures_util::stream::iter([Ok::<_, Infallible>(sse::event(&first))]);
        let id = incoming.id.map(RawValue::to_owned);
        let rest = futures_util::stream::unfold(
            Some(Ongoing { said, running, guard, cancel, id }),
            |ongoing| async {
                let (event, ongoing) = ongoing?.next().await;
                Some((Ok(sse::event(&event)), ongoing))
            },
        );
        events(Body::from_stream(head.chain(rest)))
    }
}

type Running = RunToEnd<Result<Bytes, Refusal>>;

/// A call whose answer is an event stream.
struct Ongoing {
    said: Option<mpsc::Receiver<Bytes>>,
    running: Running,
    guard: Option<DropGuard>,
    cancel: CancellationToken,
    id: Option<Box<RawValue>>,
}

impl Ongoing {
    /// The next message, and what is to come after it.
    async fn next(mut self) -> (Bytes, Option<Self>) {
        let result = tokio::select! {
            biased;
            Some(message) = next(&mut self.said) => return (message, Some(self)),
            () = self.cancel.cancelled() => Err(cancelled()),
            ended = &mut self.running => result_of(ended),
        };
        disarm(self.guard);
        (last(self.id.as_deref(), result), None)
    }
}

/// The message that ends a call's event stream.
fn last(id: Option<&RawValue>, result: Result<Bytes, Refusal>) -> Bytes {
    match result {
        Ok(result) => {
            rpc::result(id.map_or("null", RawValue::get), std::str::from_utf8(&result).unwrap_or("null"))
        }
        Err(refusal) => rpc::error(id, refusal.code, &refusal.message, refusal.data.as_ref()),
    }
}

/// The next thing that the call says; nothing where nobody listens.
async fn next(said: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    match said {
        Some(said) => said.recv().await,
        None => None,
    }
}

fn disarm(guard: Option<DropGuard>) {
    if let Some(guard) = guard {
        guard.disarm();
    }
}

/// A panic is its call's failure alone, and its details stay in the log.
fn result_of(ended: Result<Result<Bytes, Refusal>, Panicked>) -> Result<Bytes, Refusal> {
    ended.unwrap_or_else(|Panicked| {
        tracing::error!("a call panicked");
        Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, rpc::INTERNAL_ERROR, "internal error"))
    })
}

fn cancelled() -> Refusal {
    Refusal::new(StatusCode::OK, rpc::REQUEST_CANCELLED, "the request was cancelled")
}
