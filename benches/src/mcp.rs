//! The requests that callers make: MCP's session era, which every peer speaks, `/step`, and the data plane. Sending them
//! many times over is `load`'s.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::http::{Connection, once, request};

const VERSION: &str = "2025-06-18";

/// What is searched for in the world of [`seed`], and what only the right answer says.
pub(crate) const QUERY: &str = "q3";
pub(crate) const FOUND: &str = "Q3 numbers";

/// The name of the tool that most measurements call.
pub(crate) const SEARCH: &str = "email_search";

/// The arguments of that call.
pub(crate) fn search_arguments() -> Value {
    json!({"query": QUERY})
}

fn headers<'a>(session: Option<&'a str>, role: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let mut headers =
        vec![("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    if let Some(session) = session {
        headers.push(("Mcp-Session-Id", session));
    }
    if let Some(role) = role {
        headers.push(("AgentEnv-Role", role));
    }
    headers
}

fn message(path: &str, session: Option<&str>, message: &Value) -> Bytes {
    let mut headers = headers(session, None);
    headers.push(("MCP-Protocol-Version", VERSION));
    request("POST", path, &headers, &message.to_string())
}

/// An MCP endpoint: where, and under which path.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
}

impl Endpoint {
    pub(crate) fn new(address: SocketAddr, path: &str) -> Self {
        Self { address, path: path.to_owned() }
    }

    /// Opens a session on a connection; `None` where the server keeps none.
    pub(crate) async fn session(&self, connection: &mut Connection) -> anyhow::Result<Option<String>> {
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": VERSION,
            "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}});
        let answer =
            connection.call(&request("POST", &self.path, &headers(None, None), &hello.to_string())).await?;
        ensure!(answer.status == 200, "initialize answered {}: {}", answer.status, answer.text()?);
        let session = answer.header("mcp-session-id").map(str::to_owned);
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        connection.call(&message(&self.path, session.as_deref(), &ready)).await?;
        Ok(session)
    }

    /// A request of a session of its own for each caller.
    async fn each(&self, callers: usize, body: &Value) -> anyhow::Result<Vec<Bytes>> {
        let mut requests = Vec::with_capacity(callers);
        let mut connection = Connection::open(self.address).await?;
        for _ in 0..callers {
            let session =
                self.session(&mut connection).await.with_context(|| format!("a session at {}", self.path))?;
            requests.push(message(&self.path, session.as_deref(), body));
        }
        Ok(requests)
    }

    /// A `tools/call` for each of several callers, each in a session of its own.
    pub(crate) async fn calls(
        &self,
        callers: usize,
        tool: &str,
        arguments: &Value,
    ) -> anyhow::Result<Vec<Bytes>> {
        let params = json!({"name": tool, "arguments": arguments});
        self.each(callers, &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}))
            .await
    }

    /// A `tools/list` for each of several callers.
    pub(crate) async fn lists(&self, callers: usize) -> anyhow::Result<Vec<Bytes>> {
        self.each(callers, &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})).await
    }
}

/// The same call over `/step`, for each of several callers.
pub(crate) fn steps(callers: usize, tool: &str, arguments: &Value) -> Vec<Bytes> {
    let body = json!({"action": "call_tool", "tool_name": tool, "arguments": arguments}).to_string();
    vec![request("POST", "/step", &headers(None, None), &body); callers]
}

/// A data-plane request.
pub(crate) fn data(path: &str, method: &str, params: &Value) -> Bytes {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    request("POST", path, &[("Content-Type", "application/json")], &body)
}

/// A small world: three mails, of which one is found.
pub(crate) async fn seed(server: SocketAddr) -> anyhow::Result<()> {
    let mail =
        |subject: &str, body: &str| json!({"from": "dana@example.com", "subject": subject, "body": body});
    let inbox = [
        mail("Q3 numbers", "Can you send Sam the numbers today?"),
        mail("Offsite", "Do the 14th and 15th work?"),
        mail("Lunch", "The usual place at noon."),
    ];
    let params = json!({"parts": [{"kind": "data", "data": {"inbox": inbox}}]});
    asked(server, "data/add", &params).await
}

/// Asks a server's data plane for something that has no answer but that it is done.
pub(crate) async fn asked(server: SocketAddr, method: &str, params: &Value) -> anyhow::Result<()> {
    let (status, text) = once(server, &data("/agentenv", method, params)).await?;
    let start: String = text.chars().take(300).collect();
    ensure!(status == 200 && !text.contains("\"error\""), "{method} answered {status}: {start}");
    Ok(())
}

/// Posts a JSON body to a control route.
pub(crate) async fn post(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: &Value,
) -> anyhow::Result<Value> {
    let request = request(method, path, &[("Content-Type", "application/json")], &body.to_string());
    let (status, text) = once(server, &request).await?;
    ensure!(status == 200, "{path} answered {status}: {}", text.chars().take(500).collect::<String>());
    Ok(serde_json::from_str(&text)?)
}
