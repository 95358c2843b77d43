//! `POST /step`: tools without MCP (contract 4.3).

use std::sync::Arc;

use agentenv_protocol::json::{Members, ObjectWriter};
use agentenv_protocol::mcp::server::BODY_LIMIT;
use axum::body::Body;
use axum::extract::State;
use http::{Request, Response, StatusCode};
use serde_json::value::RawValue;

use super::Http;
use super::access::AccessError;
use super::errors::{error, json_text, read_object, step_status};
use super::mcp::empty_object;
use crate::call::{Answered, Source, ToolCall};

pub(super) async fn step(State(http): State<Arc<Http>>, request: Request<Body>) -> Response<Body> {
    match answer(&http, request).await {
        Ok(response) | Err(response) => response,
    }
}

async fn answer(http: &Http, request: Request<Body>) -> Result<Response<Body>, Response<Body>> {
    let (parts, body) = request.into_parts();
    let refuse = |fault: AccessError| error(fault.status(), fault.to_string());
    let role = http.access.role(&parts.headers).map_err(refuse)?;
    let (_, raw) = read_object(body, BODY_LIMIT, error).await?;
    let bad = |message: &str| error(StatusCode::BAD_REQUEST, message);
    let members = Members::of(raw.get()).map_err(|_| bad("Invalid JSON body"))?;
    let inner = &http.instance.0;
    match members.text("action").as_deref() {
        Some("list_tools") => {
            if let Some(fault) =
                inner.catalog.load().fault().filter(|_| inner.catalog.load().served().next().is_none())
            {
                return Err(error(StatusCode::SERVICE_UNAVAILABLE, fault));
            }
            let tools = inner.listing(&role, |tool| &tool.flat);
            let body = ObjectWriter::with_capacity(tools.as_str().len() + 16).raw("tools", tools.as_str());
            Ok(json_text(StatusCode::OK, body.finish()))
        }
        Some("call_tool") => {
            let tool = members.text("tool_name").filter(|tool| !tool.is_empty());
            let tool = tool.ok_or_else(|| bad("Missing or invalid 'tool_name' field"))?;
            let arguments = match members.get("arguments").map(RawValue::get) {
                None => empty_object(),
                Some(text) if text.starts_with('{') => RawValue::from_string(text.to_owned())
                    .map_err(|_| bad("'arguments' must be a JSON object"))?,
                Some(_) => return Err(bad("'arguments' must be a JSON object")),
            };
            let traceparent = parts.headers.get("traceparent").cloned();
            let call = ToolCall { role, source: Source::Step, traceparent, ..ToolCall::new(tool, arguments) };
            match http.instance.call(call).await {
                Ok(answered) => Ok(json_text(StatusCode::OK, result(&answered))),
                Err(fault) => Err(error(step_status(&fault), fault.to_string())),
            }
        }
        _ => {
            let action = members.get("action").map_or("None", RawValue::get).trim_matches('"');
            Err(bad(&format!("Unknown action: {action}. Expected 'list_tools' or 'call_tool'.")))
        }
    }
}

/// The MCP result, without its `_meta`, and the changelog's id.
fn result(answered: &Answered) -> bytes::Bytes {
    let text = answered.result.as_str();
    let members = Members::of(text).unwrap_or_default();
    let mut out = ObjectWriter::with_capacity(text.len() + 40);
    for (key, value) in members.iter().filter(|(key, value)| *key != "_meta" && value.get() != "null") {
        out = out.raw(key, value.get());
    }
    if members.get("isError").is_none() {
        out = out.field("isError", &false);
    }
    out.field("changelog_id", &answered.changelog_id).finish()
}
