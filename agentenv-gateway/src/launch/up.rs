//! A whole instance on this machine: its Postgres, its servers, the gateway in front of them, and what they begin with.
//! What it is made of is left to `file`, how it is asked for to `command`.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use agentenv_protocol::client::EnvClient;
use agentenv_protocol::data::{DataPart, JsonObject, Part};
use agentenv_protocol::environment::{EnvRuntime, find_linked};
use agentenv_protocol::server::{ServeError, listen, reserve};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::file::{FileError, FileFault, InstanceFile, Place, Server};
use super::postgres::{PostgresError, PrivatePostgres};
use super::process::{Output, Process, ProcessError, ProcessSpec};
use crate::builder::InstanceError;
use crate::http::{Access, ServeOptions};
use crate::instance::Instance;
use crate::store::{Store, StoreError, StoreTimes, StoreUrl};
use crate::telemetry::Traces;

/// Why an instance is not up. Each line of its text names what is wrong; nothing that was started is left running.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UpError {
    /// The file asks for what cannot be.
    #[error(transparent)]
    File(#[from] FileError),
    /// The gateway's address cannot be listened on, or serving failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The control token cannot be read.
    #[error("{}: {source}", path.display())]
    Token {
        /// The file that should hold it.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no Postgres.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// The state store cannot be prepared for a server.
    #[error("{server}: {source}")]
    Store {
        /// The server.
        server: String,
        /// Why not.
        source: StoreError,
    },
    /// A server does not run.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The gateway cannot be put together.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// A server does not take what it should begin with.
    #[error("{server}: seed {}: {reason}", seed.display())]
    Seed {
        /// The server.
        server: String,
        /// The file.
        seed: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// Where everything of an instance is. It holds the store's password, so it has no `Debug`.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The instance's name.
    pub name: String,
    /// The gateway's base URL.
    pub url: String,
    /// Its MCP endpoint.
    pub mcp: String,
    /// The base URL of the listener for agents alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<String>,
    /// The servers' base URLs; `null` for one that runs in this process.
    pub servers: BTreeMap<String, Option<String>>,
    /// The state store's URL, password included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_url: Option<String>,
    /// The process that holds it all.
    pub pid: u32,
}

/// An instance that is up and not yet served. Dropping it takes everything down.
pub struct Up {
    report: Report,
    instance: Instance,
    listener: TcpListener,
    agents: Option<TcpListener>,
    options: ServeOptions,
    parts: Parts,
}

impl fmt::Debug for Up {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Up")
            .field("name", &self.report.name)
            .field("url", &self.report.url)
            .finish_non_exhaustive()
    }
}

/// What runs outside of this process.
#[derive(Debug, Default)]
struct Parts {
    postgres: Option<PrivatePostgres>,
    processes: Vec<Process>,
}

impl Parts {
    /// Ends the servers at once, and then what they keep their state in.
    async fn stop(self) {
        let mut ending: JoinSet<()> = self.processes.into_iter().map(Process::stop).collect();
        while ending.join_next().await.is_some() {}
        if let Some(postgres) = self.postgres {
            postgres.stop().await;
        }
    }

    /// Waits until one of the servers has ended by itself, and says how.
    async fn first_ended(&self) -> ProcessError {
        let mut ended: FuturesUnordered<_> = self.processes.iter().map(Process::ended).collect();
        match ended.next().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// `work`, unless a server ends first.
    async fn unless_ended<T, E: Into<UpError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, UpError> {
        tokio::select! {
            done = work => done.map_err(Into::into),
            error = self.first_ended() => Err(error.into()),
        }
    }
}

impl Up {
    /// Starts everything that a file asks for and loads what the servers begin with. The servers' output goes to `output`, and
    /// what the calls went through to `traces`.
    ///
    /// # Errors
    /// [`UpError`]; what was started is down again by then. Dropping the future takes it down too.
    pub async fn start(file: &InstanceFile, output: Output, traces: Option<Traces>) -> Result<Self, UpError> {
        let mut parts = Parts::default();
        match start(file, output, traces, &mut parts).await {
            Ok((report, instance, listener, agents, options)) => {
                Ok(Self { report, instance, listener, agents, options, parts })
            }
            Err(error) => {
                parts.stop().await;
                Err(error)
            }
        }
    }

    /// Where everything is.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Serves until `stop` is cancelled, then takes everything down. A server that ends meanwhile is said to have, and
    /// the others are served on.
    ///
    /// # Errors
    /// When serving fails.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), UpError> {
        let Self { instance, listener, agents, options, parts, .. } = self;
        let serving = async {
            match agents {
                Some(agents) => instance.serve_apart(listener, agents, options, stop).await,
                None => instance.serve_on(listener, options, stop).await,
            }
        };
        tokio::pin!(serving);
        let mut ended: FuturesUnordered<_> = parts.processes.iter().map(Process::ended).collect();
        let served = loop {
            tokio::select! {
                served = &mut serving => break served,
                Some(error) = ended.next() => tracing::error!("{error}"),
            }
        };
        drop(ended);
        parts.stop().await;
        Ok(served?)
    }

    /// Takes everything down without having served it.
    pub async fn stop(self) {
        self.instance.shut_down().await;
        self.parts.stop().await;
    }
}

type Started = (Report, Instance, TcpListener, Option<TcpListener>, ServeOptions);

async fn start(
    file: &InstanceFile,
    output: Output,
    traces: Option<Traces>,
    parts: &mut Parts,
) -> Result<Started, UpError> {
    let runtimes = runtimes(file)?;
    let options = options(file)?;
    let host = &file.host;
    let address = |port: Option<u16>| match host.parse::<std::net::IpAddr>() {
        Ok(ip) => std::net::SocketAddr::new(ip, port.unwrap_or_default()).to_string(),
        Err(_) => format!("{host}:{}", port.unwrap_or_default()),
    };
    let (gateway_at, agents_at) = (address(file.port), address(file.agent_port));
    let socket = reserve(&gateway_at).await?;
    let port = socket.local_addr().map_err(ServeError::Io)?.port();
    let agents = match file.agent_port {
        Some(_) => Some(reserve(&agents_at).await?),
        None => None,
    };

    if file.needs_postgres() {
        parts.postgres = Some(PrivatePostgres::start(None).await?);
    }
    let store_url = file.store_url.as_ref().or(parts.postgres.as_ref().map(PrivatePostgres::url)).cloned();
    let preparing = Preparing::of(store_url.as_ref());
    let databases = preparing.databases(file).await?;

    for server in &file.servers {
        if let Some(spec) = spec(server, &databases)? {
            let process = Process::start(&spec, output.clone())?;
            tracing::info!(server = server.name, url = %process.url(), "starting");
            parts.processes.push(process);
        }
    }

    let mut report = Report {
        name: file.name.clone(),
        url: base_url(host, port),
        mcp: format!("{}/mcp", base_url(host, port)),
        agents: None,
        servers: BTreeMap::new(),
        store_url: store_url.as_ref().map(|url| url.expose().to_owned()),
        pid: std::process::id(),
    };
    let clock = format!("{}/clock/time", base_url(host, port));
    let mut builder = Instance::builder(&file.name)
        .traces(traces)
        .mode(file.mode)
        .rules(file.rules())
        .start_timeout(file.start_timeout)
        .clock_url(clock);
    if let Some(url) = &store_url {
        // Whoever starts the servers begins their changelogs, now and whenever data is loaded again.
        builder = builder.store(url.expose()).installs_changelog();
    }
    if let Some(path) = &file.trajectory {
        builder = builder.trajectory_file(path);
    }
    for site in &file.websites {
        builder = builder.website(&site.name, site.url.as_str());
    }
    for Server { name, place, .. } in &file.servers {
        let process = parts.processes.iter().find(|process| process.name() == name);
        let url = match (place, process) {
            (_, Some(process)) => Some(process.url().as_str()),
            (Place::Url(url), None) => Some(url.as_str()),
            _ => None,
        };
        builder = match (url, runtimes.get(name)) {
            (Some(url), _) => builder.remote(name, url),
            (None, Some(runtime)) => builder.runtime(runtime.clone()),
            (None, None) => builder,
        };
        report.servers.insert(name.clone(), url.map(|url| url.trim_end_matches('/').to_owned()));
    }
    let instance = parts.unless_ended(builder.build()).await?;
    let seeded = parts.unless_ended(begin(file, &report, &runtimes, &preparing)).await;
    let listened = seeded
        .and_then(|()| Ok((listen(socket, &gateway_at)?, agents.map(|agents| listen(agents, &agents_at)))));
    let listened = listened.and_then(|(listener, agents)| Ok((listener, agents.transpose()?)));
    match listened {
        Ok((listener, agents)) => {
            let address = agents.as_ref().map(TcpListener::local_addr).transpose().map_err(ServeError::Io)?;
            report.agents = address.map(|address| base_url(host, address.port()));
            Ok((report, instance, listener, agents, options))
        }
        Err(error) => {
            instance.shut_down().await;
            Err(error)
        }
    }
}

/// The URL at which this machine reaches a port that we listen on at `host`.
fn base_url(host: &str, port: u16) -> String {
    match host {
        "0.0.0.0" | "::" | "[::]" => format!("http://127.0.0.1:{port}"),
        host if host.contains(':') && !host.starts_with('[') => format!("http://[{host}]:{port}"),
        host => format!("http://{host}:{port}"),
    }
}

fn options(file: &InstanceFile) -> Result<ServeOptions, UpError> {
    let mut options = ServeOptions::default();
    if let Some(path) = &file.control_token_file {
        let failed = |source| UpError::Token { path: path.clone(), source };
        let token = std::fs::read_to_string(path).map_err(failed)?;
        if token.trim().is_empty() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is empty")));
        }
        options.access = Access::default().with_control_token(token.trim());
    }
    Ok(options)
}

/// The environments that run in this process, and every fault that they have among them.
fn runtimes(file: &InstanceFile) -> Result<BTreeMap<String, EnvRuntime>, FileError> {
    let (mut runtimes, mut faults) = (BTreeMap::new(), Vec::new());
    let mut owners: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for Server { line, name, place, store, .. } in &file.servers {
        let Place::Env(env) = place else { continue };
        let fault =
            |message: String| FileFault { line: *line, message: format!("server '{name}': {message}") };
        match find_linked(env).and_then(|env| env.build(Some(name))) {
            None => faults
                .push(fault(format!("no environment '{env}' with a Default is linked into this program"))),
            Some(Err(error)) => faults.push(fault(error.to_string())),
            Some(Ok(runtime)) => {
                for tool in runtime.tools() {
                    if let Some((other, at)) = owners.insert(tool.name.clone(), (name, *line)) {
                        faults.push(fault(format!(
                            "its tool '{}' is server '{other}''s on line {at} too",
                            tool.name
                        )));
                    }
                }
                // One that keeps its state in the store is told where by its environment, so it has a process of its own.
                if !store {
                    runtimes.insert(name.clone(), runtime);
                }
            }
        }
    }
    if faults.is_empty() { Ok(runtimes) } else { Err(FileError { path: file.path.clone(), faults }) }
}

/// How a server is started, if it is a process.
fn spec(server: &Server, databases: &BTreeMap<String, String>) -> Result<Option<ProcessSpec>, ProcessError> {
    let command = match &server.place {
        Place::Command(command) => command.clone(),
        Place::Env(env) if server.store => {
            let program = std::env::current_exe()
                .map_err(|source| ProcessError::Start { name: server.name.clone(), source })?;
            vec![program.to_string_lossy().into_owned(), "serve".to_owned(), env.clone()]
        }
        Place::Env(_) | Place::Url(_) => return Ok(None),
    };
    Ok(Some(ProcessSpec {
        name: server.name.clone(),
        command,
        folder: server.folder.clone(),
        port: server.port,
        database_url: databases.get(&server.name).cloned(),
        environment: server.environment.clone(),
    }))
}

/// The state store, as far as it is needed before the instance has it.
struct Preparing {
    store: Option<Store>,
    stop: CancellationToken,
}

impl Drop for Preparing {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Preparing {
    fn of(url: Option<&StoreUrl>) -> Self {
        let stop = CancellationToken::new();
        let store =
            url.map(|url| Store::connect(url.clone(), StoreTimes::default(), &TaskTracker::new(), &stop));
        Self { store, stop }
    }

    /// The `DATABASE_URL` of each server that keeps its state in the store.
    async fn databases(&self, file: &InstanceFile) -> Result<BTreeMap<String, String>, UpError> {
        let mut databases = BTreeMap::new();
        let Some(store) = &self.store else { return Ok(databases) };
        for Server { name, .. } in file.servers.iter().filter(|server| server.store) {
            let url = store.prepare(name).await;
            let url = url.map_err(|source| UpError::Store { server: name.clone(), source })?;
            databases.insert(name.clone(), url);
        }
        Ok(databases)
    }
}

/// Loads what the servers begin with, and begins the changelog after it.
async fn begin(
    file: &InstanceFile,
    report: &Report,
    runtimes: &BTreeMap<String, EnvRuntime>,
    preparing: &Preparing,
) -> Result<(), UpError> {
    for Server { name, seeds, store, .. } in &file.servers {
        for seed in seeds {
            let failed = |reason: String| UpError::Seed { server: name.clone(), seed: seed.clone(), reason };
            let part = part(seed).map_err(failed)?;
            match (report.servers.get(name).and_then(Option::as_ref), runtimes.get(name)) {
                (Some(url), _) => {
                    let client = EnvClient::new(url).map_err(|error| failed(error.to_string()))?;
                    client.add_data(&[part]).await.map_err(|error| failed(error.to_string()))?;
                }
                (None, Some(runtime)) => {
                    runtime.add(vec![part]).await.map_err(|error| failed(error.to_string()))?
                }
                (None, None) => {}
            }
            tracing::info!(server = name, seed = %seed.display(), "loaded");
        }
        if *store && let Some(state) = &preparing.store {
            let installed = state.install(name).await;
            installed.map_err(|source| UpError::Store { server: name.clone(), source })?;
        }
    }
    Ok(())
}

/// A file as a part: an object when it is JSON, else its bytes.
fn part(seed: &Path) -> Result<Part, String> {
    let bytes = std::fs::read(seed).map_err(|error| format!("cannot be read: {error}"))?;
    if seed.extension().is_none_or(|extension| extension != "json") {
        let mut part = Part::bytes(bytes);
        if let Part::File(file) = &mut part {
            file.name = seed.file_name().map(|name| name.to_string_lossy().into_owned());
        }
        return Ok(part);
    }
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    let json = RawValue::from_string(text).map_err(|error| format!("is not JSON: {error}"))?;
    let data = JsonObject::from_raw(json).map_err(|error| error.to_string())?;
    Ok(Part::Data(DataPart { data, metadata: None }))
}
