//! The harness's routes: rules, clock, triggers, state, trajectory, changes, the data plane, and what operators ask.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use agentenv_protocol::access::{Access, rule_of};
use agentenv_protocol::rpc;
use agentenv_protocol::server::read_body;
use axum::body::Body;
use axum::extract::{Query, State};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Http;
use super::errors::{CONTROL_LIMIT, error, json_answer, json_text, not_ok, read_object, read_value};
use super::svc::{DataPlane, data_plane_of};
use crate::clock::ClockRefusal;
use crate::metrics::{self, TrajectoryState};
use crate::own::GET_TIME;
use crate::store::{CHANGES_PAGE, CHANGES_PAGE_MAX};
use crate::trajectory::EventId;
use crate::triggers::Refused;

type Answer = Result<Response<Body>, Response<Body>>;

fn either(answer: Answer) -> Response<Body> {
    match answer {
        Ok(response) | Err(response) => response,
    }
}

pub(super) async fn disable(State(http): State<Arc<Http>>, body: Body) -> Response<Body> {
    either(rule(&http, Access::Disable, body).await)
}

pub(super) async fn enable(State(http): State<Arc<Http>>, body: Body) -> Response<Body> {
    either(rule(&http, Access::Enable, body).await)
}

/// Contract 4.1.
async fn rule(http: &Http, access: Access, body: Body) -> Answer {
    let body =
        read_body(body, CONTROL_LIMIT).await.map_err(|fault| error(fault.status(), fault.to_string()))?;
    let bad = |message: String| error(StatusCode::BAD_REQUEST, message);
    let (role, tools) = rule_of(&body).map_err(|fault| bad(fault.to_string()))?;
    let view = http.instance.set_access(access, &role, &tools).map_err(|fault| bad(fault.to_string()))?;
    Ok(json_answer(
        StatusCode::OK,
        &json!({"role": role, "disabled": view.disabled, "allowed": view.allowed}),
    ))
}

pub(super) async fn state(State(http): State<Arc<Http>>) -> Response<Body> {
    json_answer(StatusCode::OK, &http.instance.state().await)
}

#[derive(Deserialize)]
pub(super) struct TrajectoryQuery {
    after: Option<String>,
    follow: Option<String>,
}

/// Contract 5. Beyond it, `after=event_N` leaves out what came up to that event, and `follow=true` goes on as events come.
pub(super) async fn trajectory(
    State(http): State<Arc<Http>>,
    Query(query): Query<TrajectoryQuery>,
) -> Response<Body> {
    let after = match query.after.as_deref().map(str::parse::<EventId>).transpose() {
        Ok(after) => after,
        Err(fault) => return error(StatusCode::BAD_REQUEST, format!("'after': {fault}")),
    };
    let follow = match query.follow.as_deref() {
        None | Some("false" | "0") => false,
        Some("true" | "1" | "") => true,
        Some(_) => return error(StatusCode::BAD_REQUEST, "'follow' must be true or false"),
    };
    match http.instance.trajectory().read(after, follow).await {
        Ok(reading) => {
            let lines: BoxStream<'_, _> = if follow {
                reading.lines.take_until(http.stop.clone().cancelled_owned()).boxed()
            } else {
                reading.lines.boxed()
            };
            let mut response = Response::new(Body::from_stream(lines));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
            headers.insert("x-trajectory-total-bytes", HeaderValue::from(reading.total_bytes));
            response
        }
        Err(fault) => {
            tracing::error!(%fault, "the trajectory cannot be read");
            error(StatusCode::SERVICE_UNAVAILABLE, "the trajectory cannot be read")
        }
    }
}

pub(super) async fn clock_arm(State(http): State<Arc<Http>>, body: Body) -> Response<Body> {
    let body = match read_value(body, not_ok_text).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let taken = http.instance.0.catalog.load().serves(GET_TIME);
    clock_answer(http.instance.clock().arm(&body, taken))
}

fn not_ok_text(status: StatusCode, message: String) -> Response<Body> {
    not_ok(status, message)
}

fn clock_answer(answer: Result<Value, ClockRefusal>) -> Response<Body> {
    match answer {
        Ok(state) => json_answer(StatusCode::OK, &state),
        Err(refusal @ ClockRefusal::Conflict(_)) => not_ok(StatusCode::CONFLICT, refusal.to_string()),
        Err(refusal) => not_ok(StatusCode::BAD_REQUEST, refusal.to_string()),
    }
}

pub(super) async fn clock_time(State(http): State<Arc<Http>>) -> Response<Body> {
    match http.instance.clock().time_body() {
        Some(body) => json_answer(StatusCode::OK, &body),
        None => not_ok(StatusCode::NOT_FOUND, "clock not armed"),
    }
}

pub(super) async fn clock_state(State(http): State<Arc<Http>>) -> Response<Body> {
    json_answer(StatusCode::OK, &http.instance.clock().state())
}

pub(super) async fn clock_clear(State(http): State<Arc<Http>>) -> Response<Body> {
    http.instance.clock().clear();
    json_answer(StatusCode::OK, &json!({"ok": true, "armed": false}))
}

pub(super) async fn clock_advance(State(http): State<Arc<Http>>, body: Body) -> Response<Body> {
    match read_value(body, not_ok_text).await {
        Ok(body) => clock_answer(http.instance.triggers().advance(&body).await),
        Err(response) => response,
    }
}

async fn triggers_write(
    body: Body,
    write: impl FnOnce(&RawValue) -> Result<Value, Refused>,
) -> Response<Body> {
    match read_object(body, CONTROL_LIMIT, not_ok_text).await {
        Ok((_, raw)) => match write(&raw) {
            Ok(answer) => json_answer(StatusCode::OK, &answer),
            Err(refused) => not_ok(StatusCode::BAD_REQUEST, refused.to_string()),
        },
        Err(response) => response,
    }
}

/// With an `Idempotency-Key` header, sending the same body again registers nothing anew.
pub(super) async fn triggers_register(
    State(http): State<Arc<Http>>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    triggers_write(body, |raw| http.instance.triggers().register(raw, key)).await
}

pub(super) async fn triggers_remove(State(http): State<Arc<Http>>, body: Body) -> Response<Body> {
    triggers_write(body, |raw| http.instance.triggers().remove(raw)).await
}

pub(super) async fn triggers_clear(State(http): State<Arc<Http>>) -> Response<Body> {
    json_answer(StatusCode::OK, &http.instance.triggers().clear())
}

pub(super) async fn triggers_state(State(http): State<Arc<Http>>) -> Response<Body> {
    let state: Box<str> = http.instance.triggers().state().into();
    json_text(StatusCode::OK, state.into_string().into())
}

#[derive(Deserialize)]
pub(super) struct ExplainQuery {
    id: Option<String>,
}

pub(super) async fn triggers_explain(
    State(http): State<Arc<Http>>,
    Query(query): Query<ExplainQuery>,
) -> Response<Body> {
    let Some(id) = query.id else { return not_ok(StatusCode::BAD_REQUEST, "'id' must name a trigger") };
    match http.instance.triggers().explain(&id) {
        Some(answer) => json_answer(StatusCode::OK, &answer),
        None => not_ok(StatusCode::NOT_FOUND, format!("no trigger '{id}'")),
    }
}

#[derive(Deserialize)]
pub(super) struct ChangesQuery {
    after_id: Option<String>,
    limit: Option<String>,
}

/// A whole number of the query, within its bounds.
fn number<T>(
    name: &str,
    text: Option<&str>,
    default: T,
    bounds: RangeInclusive<T>,
) -> Result<T, Response<Body>>
where
    T: FromStr + PartialOrd + Display,
{
    let Some(text) = text else { return Ok(default) };
    text.parse().ok().filter(|n| bounds.contains(n)).ok_or_else(|| {
        let (min, max) = bounds.into_inner();
        error(StatusCode::BAD_REQUEST, format!("'{name}' must be a whole number from {min} to {max}"))
    })
}

/// Contract 8.
pub(super) async fn changes(
    State(http): State<Arc<Http>>,
    Query(query): Query<ChangesQuery>,
) -> Response<Body> {
    let Some(store) = &http.instance.0.store else {
        return error(StatusCode::NOT_FOUND, "this environment keeps no changelog");
    };
    let after = number("after_id", query.after_id.as_deref(), 0, 0..=i64::MAX);
    let limit = number("limit", query.limit.as_deref(), CHANGES_PAGE, 1..=CHANGES_PAGE_MAX);
    let (after, limit) = match (after, limit) {
        (Ok(after), Ok(limit)) => (after, limit),
        (Err(response), _) | (_, Err(response)) => return response,
    };
    match store.changes(after, limit, &http.instance.0.windows).await {
        Ok(page) => json_answer(StatusCode::OK, &page),
        Err(fault) => {
            tracing::warn!(%fault, "the changelog cannot be read");
            error(StatusCode::SERVICE_UNAVAILABLE, fault.to_string())
        }
    }
}

pub(super) async fn health() -> Response<Body> {
    json_answer(StatusCode::OK, &json!({"ok": true}))
}

/// 200 once every child's tools are known and the trajectory can be written; else 503 with what is amiss.
pub(super) async fn ready(State(http): State<Arc<Http>>) -> Response<Body> {
    let inner = &http.instance.0;
    let mut faults: Vec<String> = inner.catalog.load().fault().into_iter().collect();
    faults.extend(
        inner.trajectory.health().failing.map(|fault| format!("the trajectory cannot be written: {fault}")),
    );
    let status = if faults.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_answer(status, &json!({"ready": faults.is_empty(), "faults": faults}))
}

pub(super) async fn metrics(State(http): State<Arc<Http>>) -> Response<Body> {
    let inner = &http.instance.0;
    inner.metrics.set_sessions(http.mcp.sessions());
    let health = inner.trajectory.health();
    inner.metrics.set_trajectory(TrajectoryState {
        bytes: inner.trajectory.bytes(),
        events: inner.trajectory.last().map_or(0, EventId::number),
        retained: health.retained as u64,
        lost: health.lost,
        writable: health.failing.is_none(),
    });
    let counts = inner.triggers.firing_counts();
    inner.metrics.set_firings(counts.fired, counts.failed);
    let catalog = inner.catalog.load();
    for child in &inner.children {
        inner.metrics.set_child(&child.name, !catalog.missing().contains_key(&child.name));
    }
    let mut response = Response::new(Body::from(inner.metrics.render()));
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The gateway's own data plane (contract 3.5). Beyond it, `params.environment` picks one of several children, and `"*"`
/// resets all of them.
pub(super) async fn data_plane(State(http): State<Arc<Http>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = match read_body(body, CONTROL_LIMIT).await {
        Ok(body) => body,
        Err(fault) => return error(fault.status(), fault.to_string()),
    };
    match data_plane_of(&http, &body) {
        DataPlane::Answer(answer) => json_text(StatusCode::OK, answer),
        DataPlane::Forward { service, body } => http.forward_data(service, &parts.headers, body).await,
        DataPlane::ResetAll { id } => reset_all(&http, &parts.headers, id.as_deref()).await,
    }
}

/// Resets one child and says how that went.
async fn reset_one(http: &Arc<Http>, headers: &HeaderMap, service: usize) -> Value {
    let reset = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"data/reset","params":{}}"#);
    let response = http.forward_data(service, headers, reset).await;
    let body = read_body(response.into_body(), CONTROL_LIMIT).await.unwrap_or_default();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    match (answer.get("result"), answer.get("error")) {
        (Some(_), None) => json!({"ok": true}),
        (_, Some(error)) => json!({"ok": false, "error": error}),
        _ => json!({"ok": false, "error": "no answer"}),
    }
}

/// Resets every child, side by side, and reports each.
async fn reset_all(http: &Arc<Http>, headers: &HeaderMap, id: Option<&RawValue>) -> Response<Body> {
    let services = &http.instance.0.services;
    let resets = (0..services.len()).map(|service| reset_one(http, headers, service));
    let outcomes = futures_util::future::join_all(resets).await;
    let outcomes: serde_json::Map<String, Value> =
        services.iter().map(|entry| entry.key.clone()).zip(outcomes).collect();
    let failed = outcomes.values().any(|outcome| outcome.get("ok") != Some(&Value::Bool(true)));
    let answer = if failed {
        let data = json!({"code": "reset_failed", "environments": outcomes});
        rpc::error(id, rpc::SERVER_ERROR, "not every environment was reset", Some(&data))
    } else {
        let result = json!({"environments": outcomes}).to_string();
        rpc::result(id.map_or("null", RawValue::get), &result)
    };
    json_text(StatusCode::OK, answer)
}
