//! What the groups share: how long is measured, the programs, and servers and gateways that run.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::load::Load;
use crate::mcp::{Endpoint, FOUND, SEARCH, search_arguments, seed, steps};
use crate::peers::{McpProxy, Ours, Python};
use crate::process::{Process, Program, Watched, free_address};
use crate::rounds::Plan;

/// Callers at a time where nothing else is said.
pub(crate) const CALLERS: usize = 8;

/// One run of the benchmark.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    packages: Vec<&'static str>,
    folder: TempDir,
    ours: OnceCell<Ours>,
    python: OnceCell<Python>,
    mcp_proxy: OnceCell<McpProxy>,
}

impl Bench {
    /// One that measures the programs of these packages.
    pub(crate) fn new(plan: Plan, packages: Vec<&'static str>) -> anyhow::Result<Self> {
        Ok(Self {
            plan,
            packages,
            folder: tempfile::tempdir()?,
            ours: OnceCell::new(),
            python: OnceCell::new(),
            mcp_proxy: OnceCell::new(),
        })
    }

    /// Where logs and trajectories of this run go.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn ours(&self) -> anyhow::Result<&Ours> {
        self.ours.get_or_try_init(async || Ours::prepare(&self.packages)).await
    }

    pub(crate) async fn python(&self) -> anyhow::Result<&Python> {
        self.python.get_or_try_init(async || Python::prepare()).await
    }

    pub(crate) async fn mcp_proxy(&self) -> anyhow::Result<&McpProxy> {
        self.mcp_proxy.get_or_try_init(async || McpProxy::prepare()).await
    }

    /// Starts a program that listens on an address, and waits for it.
    pub(crate) async fn start(
        &self,
        program: Program,
        address: SocketAddr,
        ready: &str,
    ) -> anyhow::Result<Served> {
        let mut process = program.start(self.folder())?;
        let up_after = process.ready(address, ready).await?;
        Ok(Served { process, address, up_after })
    }

    /// Our email server, with a small world.
    pub(crate) async fn email(&self) -> anyhow::Result<Served> {
        let address = free_address()?;
        let served = self.start(self.ours().await?.email(address), address, "/ready").await?;
        seed(address).await?;
        Ok(served)
    }

    /// The Python SDK's, with the same.
    pub(crate) async fn python_email(&self) -> anyhow::Result<Served> {
        let address = free_address()?;
        let program = self.python().await?.email(address);
        let served = self.start(program, address, "/.well-known/agent-env.json").await?;
        seed(address).await?;
        Ok(served)
    }

    /// Our gateway in front of servers, told of nothing else: its trajectory goes with it.
    pub(crate) async fn plain_gateway(&self, children: &[(&str, SocketAddr)]) -> anyhow::Result<Served> {
        let program = self.ours().await?.gateway();
        self.start_gateway(program, children).await
    }

    /// The same with a trajectory of its own, as all gateways that are compared with others have.
    pub(crate) async fn gateway(&self, children: &[(&str, SocketAddr)]) -> anyhow::Result<Served> {
        let program = self.ours().await?.gateway();
        self.gateway_of(program, children).await
    }

    /// The Python one.
    pub(crate) async fn python_gateway(&self, children: &[(&str, SocketAddr)]) -> anyhow::Result<Served> {
        let program = self.python().await?.gateway();
        self.gateway_of(program, children).await
    }

    /// A gateway with a trajectory of its own.
    pub(crate) async fn gateway_of(
        &self,
        program: Program,
        children: &[(&str, SocketAddr)],
    ) -> anyhow::Result<Served> {
        let trajectory = self.folder().join(format!("trajectory-{}.jsonl", free_address()?.port()));
        self.gateway_on(program, children, &trajectory).await
    }

    /// The same on a trajectory that may be there already.
    pub(crate) async fn gateway_on(
        &self,
        program: Program,
        children: &[(&str, SocketAddr)],
        trajectory: &Path,
    ) -> anyhow::Result<Served> {
        self.start_gateway(program.variable("GATEWAY_TRAJECTORY_FILE", trajectory), children).await
    }

    /// Starts a gateway with the environment variables of contract 3.1.
    async fn start_gateway(
        &self,
        program: Program,
        children: &[(&str, SocketAddr)],
    ) -> anyhow::Result<Served> {
        let address = free_address()?;
        let (mut servers, mut proxied) = (String::new(), String::new());
        for (name, address) in children {
            write!(servers, "{name}=http://{address}/mcp,")?;
            write!(proxied, "mcp-{name}=http://{address},")?;
        }
        let program = program
            .listening(address)
            .variable("MCP_SERVER_NAME", "office")
            .variable("INTERNAL_MCP_SERVERS", servers.trim_end_matches(','))
            .variable("REST_PROXY_URLS", proxied.trim_end_matches(','));
        self.start(program, address, "/state").await
    }
}

/// A server or a gateway that runs.
pub(crate) struct Served {
    process: Process,
    pub(crate) address: SocketAddr,
    /// From the start to the first answer that said so.
    pub(crate) up_after: Duration,
}

impl Served {
    pub(crate) fn watched(&self) -> Watched {
        self.process.watched()
    }

    /// Resident memory in MB.
    pub(crate) fn resident(&self) -> anyhow::Result<f64> {
        Ok(self.watched().resident()? as f64 / 1024.0)
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.address, "/mcp")
    }

    /// Callers that search the mails over MCP.
    pub(crate) async fn searches(&self, name: &str, callers: usize) -> anyhow::Result<Load> {
        let requests = self.endpoint().calls(callers, SEARCH, &search_arguments()).await?;
        Ok(self.load(name, requests, FOUND))
    }

    /// Callers that do so over `/step`.
    pub(crate) fn step_searches(&self, name: &str, callers: usize) -> Load {
        self.load(name, steps(callers, SEARCH, &search_arguments()), FOUND)
    }

    pub(crate) fn load(&self, name: &str, requests: Vec<Bytes>, expect: &'static str) -> Load {
        Load::new(name, self.address, requests, expect, self.watched())
    }
}
