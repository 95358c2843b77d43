//! Many MCP servers with a few tools each, that are listed and never called.

use anyhow::bail;
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{CHILD_ADDRESSES, CHILD_TOOLS, CHILD_WORD, serve, variable};

/// Serves them until one ends.
pub(super) async fn run() -> anyhow::Result<()> {
    let tools: usize = variable(CHILD_TOOLS)?.parse()?;
    let mut serving = JoinSet::new();
    for (index, address) in variable(CHILD_ADDRESSES)?.split(',').enumerate() {
        let listing = listing(index, tools);
        let router = Router::new().route("/mcp", post(async move |body: Bytes| child(&listing, &body)));
        serving.spawn(serve(address.parse()?, router));
    }
    match serving.join_next().await {
        Some(ended) => ended?,
        None => bail!("no children"),
    }
}

fn listing(child: usize, tools: usize) -> Value {
    let schema =
        json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]});
    let description =
        format!("A tool that is there to be listed in a {CHILD_WORD}, and described at a usual length.");
    let tool = |tool: usize| json!({"name": format!("c{child}_t{tool}"), "description": description, "inputSchema": schema});
    Value::Array((0..tools).map(tool).collect())
}

fn child(tools: &Value, body: &[u8]) -> Response {
    let Ok(message) = serde_json::from_slice::<Value>(body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let outcome = match message["method"].as_str() {
        Some("initialize") => json!({"result": {"protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "child", "version": "1"}}}),
        Some("tools/list") => json!({"result": {"tools": tools}}),
        Some("ping") => json!({"result": {}}),
        _ => json!({"error": {"code": -32601, "message": "Method not found"}}),
    };
    let mut answer = json!({"jsonrpc": "2.0", "id": id});
    for (name, value) in outcome.as_object().into_iter().flatten() {
        answer[name] = value.clone();
    }
    ([(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}
