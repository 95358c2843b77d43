//! Serving an environment over HTTP: card, data plane, extensions, `/mcp` and `/ready` (contract 2). The only rooms of this
//! crate that know HTTP statuses are here and in `mcp`.

mod body;
mod connection;
mod env;
mod listen;

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

pub use body::{BODY_TIMEOUT, BodyFault, read_body};
pub use connection::{HEAD_TIMEOUT, IDLE_TIMEOUT};
pub use env::{DATA_LIMIT, EXTENSION_LIMIT, EnvService, router};
pub use listen::{CONNECTION_LIMIT, SHUTDOWN_GRACE, serve_endpoint, serve_router, stop_on_signal};

use crate::environment::{BuildError, EnvRuntime, Environment, LifecycleError};
use crate::mcp::server::EndpointOptions;

/// The port that a server or a gateway listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 18765;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Why a server did not start, or stopped. Its text is one line that names what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An environment variable holds what cannot be right.
    #[error("{variable}: '{value}' is not {expected}")]
    Variable {
        /// The variable's name.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// The environment itself is at fault.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The environment's own start or stop failed.
    #[error("{name} did not start or stop as it should: {reason}")]
    Start {
        /// The environment.
        name: String,
        /// What it said.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Serving failed later.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves an environment as its own process, where `MCP_HOST` (0.0.0.0) and `MCP_PORT` (18765) say, under the name in
/// `ENVIRONMENT_NAME` if that is set (contract 2.7). Returns once SIGTERM or Ctrl-C has come and the calls under way have ended.
///
/// # Errors
/// [`ServeError`]: a variable that cannot be right, a fault of the environment, an address that is taken.
pub async fn serve<E: Environment>(env: E) -> Result<(), ServeError> {
    let name = std::env::var("ENVIRONMENT_NAME").ok().filter(|name| !name.trim().is_empty());
    let runtime = match &name {
        Some(name) => EnvRuntime::named(env, name)?,
        None => EnvRuntime::new(env)?,
    };
    serve_runtime(runtime).await
}

/// [`serve`] for an environment that is built already.
///
/// # Errors
/// As [`serve`].
pub async fn serve_runtime(runtime: EnvRuntime) -> Result<(), ServeError> {
    let address = listen_address()?;
    let socket = reserve(&address).await?;
    let stop = stop_on_signal()?;
    let failed = |error: LifecycleError| ServeError::Start {
        name: runtime.name().to_owned(),
        reason: error.to_string(),
    };
    runtime.start().await.map_err(failed)?;
    let listener = listen(socket, &address)?;
    eprintln!("{} listens on {}", runtime.name(), listener.local_addr()?);
    let options = EndpointOptions { allowed_origins: allowed_origins(), ..EndpointOptions::default() };
    let tracker = options.tracker.clone();
    let (endpoint, routes) = env::endpoint_and_routes(runtime.clone(), options);
    serve_endpoint(listener, endpoint, routes, stop, tracker).await?;
    runtime.stop().await.map_err(failed)
}

/// `MCP_ALLOWED_ORIGINS`: origins of browser pages that may call besides this machine's, separated by commas.
fn allowed_origins() -> Vec<String> {
    let list = std::env::var("MCP_ALLOWED_ORIGINS").unwrap_or_default();
    list.split(',').map(str::trim).filter(|origin| !origin.is_empty()).map(str::to_owned).collect()
}

/// Listens on an address.
///
/// # Errors
/// [`ServeError::Listen`], naming it.
pub async fn bind(address: &str) -> Result<TcpListener, ServeError> {
    listen(reserve(address).await?, address)
}

/// Takes an address without listening on it yet: it is ours, and whoever connects is refused until [`listen`].
///
/// # Errors
/// [`ServeError::Listen`], naming it.
pub async fn reserve(address: &str) -> Result<TcpSocket, ServeError> {
    let failed = |source| ServeError::Listen { address: address.to_owned(), source };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in tokio::net::lookup_host(address).await.map_err(failed)? {
        let socket =
            if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(failed)?;
        socket.set_reuseaddr(true).map_err(failed)?;
        match socket.bind(address) {
            Ok(()) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Listens on an address that [`reserve`] took.
///
/// # Errors
/// [`ServeError::Listen`], naming it.
pub fn listen(socket: TcpSocket, address: &str) -> Result<TcpListener, ServeError> {
    socket.listen(BACKLOG).map_err(|source| ServeError::Listen { address: address.to_owned(), source })
}

/// `MCP_HOST:MCP_PORT`, as the variables or their defaults have it.
///
/// # Errors
/// [`ServeError::Variable`]: a port that is none.
pub fn listen_address() -> Result<String, ServeError> {
    let host = std::env::var("MCP_HOST").ok().filter(|host| !host.trim().is_empty());
    let host = host.unwrap_or_else(|| "0.0.0.0".to_owned());
    let port = match std::env::var("MCP_PORT") {
        Ok(value) if !value.trim().is_empty() => {
            value.trim().parse::<u16>().map_err(|_| ServeError::Variable {
                variable: "MCP_PORT",
                value: value.clone(),
                expected: "a port from 0 to 65535",
            })?
        }
        _ => DEFAULT_PORT,
    };
    let address = match host.trim().parse::<std::net::IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{}:{port}", host.trim()),
    };
    Ok(address)
}
