//! An office on real ports: an email and a contacts server behind a gateway, in one of two ways, and the requests that tests
//! make of it.

use std::sync::Arc;

use agentenv_gateway::Instance;
use agentenv_gateway::builder::InstanceBuilder;
use agentenv_gateway::http::ServeOptions;
use agentenv_protocol::environment::{EnvRuntime, Environment};
use agentenv_protocol::mcp::server::EndpointOptions;
use agentenv_protocol::server::{bind, router, serve_router};
use agentenv_tests::contacts::ContactsEnv;
use agentenv_tests::email::EmailEnv;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Where the children are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Children {
    InProcess,
    Remote,
}

/// A running office. It ends when this is dropped.
pub(crate) struct Office {
    pub(crate) instance: Instance,
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
    _stop: DropGuard,
}

/// An HTTP client of a test.
pub(crate) fn client() -> reqwest::Client {
    agentenv_protocol::http_client::build(|client| client.no_proxy()).expect("a client")
}

/// Serves an environment on a port of its own until `stop`.
pub(crate) async fn serve_env<E: Environment>(env: E, stop: &CancellationToken) -> Result<String> {
    serve_runtime(EnvRuntime::new(env)?, stop).await
}

/// Serves an environment that is built already.
pub(crate) async fn serve_runtime(runtime: EnvRuntime, stop: &CancellationToken) -> Result<String> {
    let listener = bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let options = EndpointOptions::default();
    let tracker = options.tracker.clone();
    let routes = router(runtime, options);
    tokio::spawn(serve_router(listener, routes, stop.clone(), tracker));
    Ok(url)
}

impl Office {
    pub(crate) async fn open(children: Children) -> Result<Self> {
        Self::open_with(children, |builder| builder).await
    }

    /// An office whose instance is built as `configure` says.
    pub(crate) async fn open_with(
        children: Children,
        configure: impl FnOnce(InstanceBuilder) -> InstanceBuilder,
    ) -> Result<Self> {
        let stop = CancellationToken::new();
        let builder = Instance::builder("office");
        let builder = match children {
            Children::InProcess => builder.env(EmailEnv::default()).env(ContactsEnv::default()),
            Children::Remote => {
                let email = serve_env(EmailEnv::default(), &stop).await?;
                let contacts = serve_env(ContactsEnv::default(), &stop).await?;
                builder.remote("email", &email).remote("contacts", &contacts)
            }
        };
        let instance = configure(builder).build().await?;
        let (url, _) = serve(&instance, ServeOptions::default(), &stop).await?;
        Ok(Self { instance, url, http: client(), _stop: stop.drop_guard() })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        let response = self.http.get(format!("{}{path}", self.url)).send().await?;
        ensure!(response.status().is_success(), "GET {path}: {}", response.status());
        Ok(serde_json::from_str(&response.text().await?)?)
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Result<(u16, Value)> {
        self.post_as(None, path, body).await
    }

    pub(crate) async fn post_as(&self, role: Option<&str>, path: &str, body: Value) -> Result<(u16, Value)> {
        let mut request = self.http.post(format!("{}{path}", self.url)).body(body.to_string());
        if let Some(role) = role {
            request = request.header("AgentEnv-Role", role);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        Ok((status, serde_json::from_str(&response.text().await?).unwrap_or_default()))
    }

    /// A call over `/step`: the status, and the parsed text of the result or the error's text.
    pub(crate) async fn step(
        &self,
        role: Option<&str>,
        tool: &str,
        arguments: Value,
    ) -> Result<(u16, Value)> {
        let body = json!({"action": "call_tool", "tool_name": tool, "arguments": arguments});
        let (status, answer) = self.post_as(role, "/step", body).await?;
        if status != 200 {
            return Ok((status, answer["error"].clone()));
        }
        let text = answer["content"][0]["text"].as_str().context("no text")?;
        Ok((status, serde_json::from_str(text).unwrap_or_else(|_| json!(text))))
    }

    /// Empties a child and loads it.
    pub(crate) async fn seed(&self, child: &str, data: Value) -> Result<()> {
        for (method, params) in
            [("data/reset", json!({})), ("data/add", json!({"parts": [{"kind": "data", "data": data}]}))]
        {
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            let (status, answer) = self.post(&format!("/svc/mcp-{child}/agentenv"), body).await?;
            ensure!(status == 200 && answer.get("result").is_some(), "{method}: {answer}");
        }
        Ok(())
    }

    /// The trajectory's events.
    pub(crate) async fn events(&self) -> Result<Vec<Value>> {
        let text = self.http.get(format!("{}/trajectory", self.url)).send().await?.text().await?;
        text.lines().map(|line| serde_json::from_str(line).context("a line that is not JSON")).collect()
    }

    pub(crate) async fn mcp(&self, role: Option<&str>) -> Result<Session> {
        Session::open(&self.url, "/mcp", role).await
    }
}

/// Serves an instance on a port of its own.
pub(crate) async fn serve(
    instance: &Instance,
    options: ServeOptions,
    stop: &CancellationToken,
) -> Result<(String, tokio::task::JoinHandle<()>)> {
    let listener = bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (instance, stop) = (instance.clone(), stop.clone());
    let task = tokio::spawn(async move {
        if let Err(error) = instance.serve_on(listener, options, stop).await {
            panic!("serving failed: {error}");
        }
    });
    Ok((url, task))
}

/// An MCP session as raw HTTP, so that every byte is the test's own.
#[derive(Clone)]
pub(crate) struct Session {
    http: reqwest::Client,
    url: String,
    role: Option<String>,
    id: Arc<str>,
}

impl Session {
    pub(crate) async fn open(base: &str, path: &str, role: Option<&str>) -> Result<Self> {
        let http = client();
        let url = format!("{base}{path}");
        let mut session = Self { http, url, role: role.map(str::to_owned), id: "".into() };
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = session.send(&body.to_string()).await?;
        let id = response.headers().get("mcp-session-id").context("no session")?.to_str()?;
        session.id = id.into();
        Ok(session)
    }

    async fn send(&self, body: &str) -> Result<reqwest::Response> {
        let mut request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_owned());
        if !self.id.is_empty() {
            request = request.header("mcp-session-id", &*self.id);
        }
        if let Some(role) = &self.role {
            request = request.header("AgentEnv-Role", role);
        }
        Ok(request.send().await?)
    }

    /// The answer's text to a request with these params, a JSON text.
    pub(crate) async fn raw(&self, method: &str, params: &str) -> Result<String> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        Ok(self.send(&body).await?.text().await?)
    }

    pub(crate) async fn names(&self) -> Result<Vec<String>> {
        let answer: Value = serde_json::from_str(&self.raw("tools/list", "{}").await?)?;
        let tools = answer["result"]["tools"].as_array().context("no tools")?;
        Ok(tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect())
    }

    /// A call's result object.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        let params = json!({"name": tool, "arguments": arguments}).to_string();
        let answer: Value = serde_json::from_str(&self.raw("tools/call", &params).await?)?;
        answer.get("result").cloned().with_context(|| format!("no result: {answer}"))
    }
}
