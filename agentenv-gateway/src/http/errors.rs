//! Errors as HTTP answers, and JSON bodies in and out.

use agentenv_protocol::json;
use agentenv_protocol::server::read_body;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::CallError;

/// Largest body of a control route (contract 10).
pub(crate) const CONTROL_LIMIT: usize = 4 * 1024 * 1024;

/// An answer that is JSON.
pub(crate) fn json_answer<T: Serialize + ?Sized>(status: StatusCode, body: &T) -> Response<Body> {
    match serde_json::to_vec(body) {
        Ok(text) => json_text(status, text.into()),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            json_text(StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(br#"{"error":"internal error"}"#))
        }
    }
}

/// An answer whose JSON is written already.
pub(crate) fn json_text(status: StatusCode, text: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// `{"error"}`, the shape of the tool, step and proxy routes.
pub(crate) fn error(status: StatusCode, message: impl Into<String>) -> Response<Body> {
    json_answer(status, &json!({"error": message.into()}))
}

/// `{"ok":false,"error"}`, the shape of the clock and trigger routes.
pub(crate) fn not_ok(status: StatusCode, message: impl Into<String>) -> Response<Body> {
    json_answer(status, &json!({"ok": false, "error": message.into()}))
}

/// The answer to a path that leads nowhere.
pub(crate) async fn not_found() -> Response<Body> {
    error(StatusCode::NOT_FOUND, "not found")
}

/// How an error of a route is written.
pub(crate) type Shape = fn(StatusCode, String) -> Response<Body>;

/// Reads a body that must be a JSON object, whatever its content type says.
///
/// # Errors
/// The answer: 413, or 400 in the route's shape.
pub(crate) async fn read_object(
    body: Body,
    limit: usize,
    shape: Shape,
) -> Result<(Bytes, Box<RawValue>), Response<Body>> {
    let bytes = read_body(body, limit).await.map_err(|fault| shape(fault.status(), fault.to_string()))?;
    let text = json::check(&bytes).map_err(|fault| {
        tracing::debug!(%fault, "a body is not JSON");
        let message = match fault {
            json::JsonFault::Syntax(_) => "Invalid JSON body".to_owned(),
            fault => format!("Invalid JSON body: {fault}"),
        };
        shape(StatusCode::BAD_REQUEST, message)
    })?;
    if !json::starts_with(text, b'{') {
        return Err(shape(StatusCode::BAD_REQUEST, "request body must be a JSON object".to_owned()));
    }
    let raw = RawValue::from_string(text.trim().to_owned())
        .map_err(|_| shape(StatusCode::BAD_REQUEST, "Invalid JSON body".to_owned()))?;
    Ok((bytes, raw))
}

/// [`read_object`] as a value; for routes whose bodies are ours to understand.
///
/// # Errors
/// As [`read_object`]; nesting beyond what the value can hold is a 400, too.
pub(crate) async fn read_value(body: Body, shape: Shape) -> Result<Value, Response<Body>> {
    let (_, raw) = read_object(body, CONTROL_LIMIT, shape).await?;
    serde_json::from_str(raw.get())
        .map_err(|error| shape(StatusCode::BAD_REQUEST, format!("Invalid JSON body: {error}")))
}

/// The status of a call that has no result, on `/step` (contract 4.2, 4.3).
pub(crate) fn step_status(error: &CallError) -> StatusCode {
    match error {
        CallError::UnknownTool(_) => StatusCode::NOT_FOUND,
        CallError::Disabled { .. } => StatusCode::FORBIDDEN,
        CallError::NotReady(_) | CallError::Unrecorded(_) => StatusCode::SERVICE_UNAVAILABLE,
        CallError::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
        CallError::Cancelled | CallError::Rpc { .. } | CallError::Failed { .. } => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}
