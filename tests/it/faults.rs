//! Bad input and bad luck, a table for each part of the product: what is done, and what is right then. What a single crate can
//! tell of itself is tested there; `docs/faults.md` says where.

mod calls;
mod children;
mod json;
mod process;
mod roles;
mod secrets;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use agentenv_gateway::Instance;
use agentenv_gateway::builder::InstanceBuilder;
use agentenv_gateway::http::ServeOptions;
use agentenv_protocol::prelude::*;
use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::office::{client, serve};

/// A test that hangs fails with this.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server whose one slow tool ends when the test says so.
#[environment_card(name = "gate")]
#[derive(Default)]
struct GateEnv {
    gate: Arc<Gate>,
}

/// The test's side of it.
struct Gate {
    /// How many calls are inside or have been.
    entered: watch::Sender<usize>,
    /// How many have passed.
    passed: watch::Sender<usize>,
    open: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        let (entered, passed) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { entered, passed, open: Semaphore::new(0) }
    }
}

impl Gate {
    /// Waits until this many calls have come in.
    async fn entered(&self, calls: usize) -> Result<()> {
        at_least(&self.entered, calls).await
    }

    /// Waits until this many calls have gone through.
    async fn passed(&self, calls: usize) -> Result<()> {
        at_least(&self.passed, calls).await
    }

    fn let_through(&self, calls: usize) {
        self.open.add_permits(calls);
    }
}

async fn at_least(count: &watch::Sender<usize>, wanted: usize) -> Result<()> {
    let mut count = count.subscribe();
    tokio::time::timeout(PATIENCE, count.wait_for(|count| *count >= wanted)).await??;
    Ok(())
}

#[environment]
impl GateEnv {
    /// Wait to be let through.
    #[tool]
    async fn wait(&self) -> &'static str {
        self.gate.entered.send_modify(|count| *count += 1);
        if let Ok(permit) = self.gate.open.acquire().await {
            permit.forget();
        }
        self.gate.passed.send_modify(|count| *count += 1);
        "through"
    }

    /// Answer at once.
    #[tool(name = "quick")]
    fn quick(&self) -> &'static str {
        "done"
    }
}

/// An instance with a gate, in front of it a gateway.
struct Gated {
    gate: Arc<Gate>,
    instance: Instance,
    url: String,
    _stop: DropGuard,
}

impl Gated {
    async fn open(remote: bool, configure: impl FnOnce(InstanceBuilder) -> InstanceBuilder) -> Result<Self> {
        let stop = CancellationToken::new();
        let env = GateEnv::default();
        let gate = Arc::clone(&env.gate);
        let builder = Instance::builder("gated");
        let builder = if remote {
            builder.remote("gate", &crate::office::serve_env(env, &stop).await?)
        } else {
            builder.env(env)
        };
        let instance = configure(builder).build().await?;
        let (url, _) = serve(&instance, ServeOptions::default(), &stop).await?;
        Ok(Self { gate, instance, url, _stop: stop.drop_guard() })
    }

    /// Begins a call of the slow tool over `/step`.
    fn begin(&self) -> tokio::task::JoinHandle<Result<u16>> {
        let request = client().post(format!("{}/step", self.url));
        let request = request.body(r#"{"action":"call_tool","tool_name":"wait"}"#);
        tokio::spawn(async move { Ok(request.send().await?.status().as_u16()) })
    }

    async fn events(&self) -> Result<Vec<Value>> {
        events(&self.url).await
    }

    /// The trajectory once it has this many events.
    async fn events_once(&self, count: usize) -> Result<Vec<Value>> {
        let enough = async {
            loop {
                let events = self.events().await?;
                if events.len() >= count {
                    return anyhow::Ok(events);
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, enough).await?
    }
}

async fn events(url: &str) -> Result<Vec<Value>> {
    let text = client().get(format!("{url}/trajectory")).send().await?.text().await?;
    text.lines().map(|line| serde_json::from_str(line).context("a line that is not JSON")).collect()
}

/// An answer as it came.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

async fn connect(url: &str) -> Result<TcpStream> {
    Ok(TcpStream::connect(url.strip_prefix("http://").context("no URL")?).await?)
}

/// Sends bytes as they are on a connection of their own and reads until the server closes it.
async fn raw(url: &str, bytes: &[u8]) -> Result<Answer> {
    let mut stream = connect(url).await?;
    // A server that has refused what came so far may have closed already.
    let _ = stream.write_all(bytes).await;
    let mut read = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.context("no end")?;
    ensure!(ended.is_ok() || !read.is_empty(), "no answer: {ended:?}");
    let text = String::from_utf8_lossy(&read).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no head: {text}"))?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// A request with these header lines and this body, after which the connection closes.
async fn send(url: &str, method: &str, path: &str, fields: &str, body: &[u8]) -> Result<Answer> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n"
    );
    raw(url, &[head.as_bytes(), body].concat()).await
}

/// What every MCP message says in its head.
const MCP: &str = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";

/// Opens a session with these header lines added and gives its id.
async fn session(url: &str, fields: &str) -> Result<String> {
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    let answer = send(url, "POST", "/mcp", &format!("{MCP}{fields}"), body).await?;
    Ok(answer.header("mcp-session-id").with_context(|| format!("no session: {answer:?}"))?.to_owned())
}
