//! The gateway as a process of its own, told by environment variables what to put together (contract 3.1).

use std::env::VarError;
use std::process::ExitCode;

use agentenv_gateway::builder::InstanceBuilder;
use agentenv_gateway::config::Config;
use agentenv_gateway::http::{Access, ServeOptions};
use agentenv_gateway::telemetry::{self, LogFormat, Traces};
use agentenv_gateway::trajectory;
use agentenv_protocol::server::{listen, reserve, stop_on_signal};
use tokio::runtime::{Builder, Runtime};

/// A start that cannot be: the settings, the address, the trajectory.
const BAD_START: u8 = 2;

/// How many threads run the gateway's tasks; tokio's own variable.
const THREADS: &str = "TOKIO_WORKER_THREADS";

/// Most of them.
const MOST_THREADS: usize = 1024;

fn main() -> ExitCode {
    match runtime() {
        Ok(runtime) => runtime.block_on(start()),
        Err(error) => {
            eprintln!("agentenv-gateway: {error}");
            ExitCode::from(BAD_START)
        }
    }
}

/// One thread does it all, so that a call is never handed from one to another, unless [`THREADS`] asks for more.
fn runtime() -> Result<Runtime, String> {
    let mut builder = match std::env::var(THREADS) {
        Err(VarError::NotPresent) => Builder::new_current_thread(),
        Ok(threads) => {
            let workers = threads.parse().ok().filter(|workers| (1..=MOST_THREADS).contains(workers));
            let workers = workers
                .ok_or_else(|| format!("{THREADS}: '{threads}' is not a number from 1 to {MOST_THREADS}"))?;
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(workers);
            builder
        }
        Err(VarError::NotUnicode(_)) => return Err(format!("{THREADS}: not a number")),
    };
    builder.enable_all().build().map_err(|error| format!("cannot start: {error}"))
}

async fn start() -> ExitCode {
    if std::env::args_os().len() > 1 {
        return agentenv_gateway::launch::command::run(None).await;
    }
    let config = match Config::from_env() {
        Ok(config) => config,
        Err(faults) => {
            for fault in faults {
                eprintln!("agentenv-gateway: {fault}");
            }
            return ExitCode::from(BAD_START);
        }
    };
    if let Err(error) = LogFormat::from_env().and_then(telemetry::init_logging) {
        eprintln!("agentenv-gateway: {error}");
        return ExitCode::from(BAD_START);
    }
    let traces = match Traces::from_env(&config.name) {
        Ok(traces) => traces,
        Err(error) => {
            eprintln!("agentenv-gateway: {error}");
            return ExitCode::from(BAD_START);
        }
    };
    let ended = run(config, traces.clone()).await;
    if let Some(traces) = traces {
        traces.shut_down().await;
    }
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            for line in error.to_string().lines() {
                eprintln!("agentenv-gateway: {line}");
            }
            ExitCode::from(BAD_START)
        }
    }
}

async fn run(config: Config, traces: Option<Traces>) -> Result<(), Box<dyn std::error::Error>> {
    let stop = stop_on_signal()?;
    trajectory::outlive_file_size_limit()?;
    let socket = reserve(&config.address).await?;
    let agents = match config.agent_port {
        Some(port) => {
            let host = config.address.rsplit_once(':').map_or("0.0.0.0", |(host, _)| host);
            let address = format!("{host}:{port}");
            Some((reserve(&address).await?, address))
        }
        None => None,
    };
    let mut access = Access::default().with_role_tokens(&config.role_tokens);
    if let Some(token) = &config.control_token {
        access = access.with_control_token(token);
    }
    if agents.is_none() && config.control_token.is_none() {
        tracing::warn!(
            "agents and harness share every route: an agent that reaches /mcp can reach /tools/enable too"
        );
    }
    let options = ServeOptions { access, allowed_origins: config.allowed_origins.clone() };
    let instance = tokio::select! {
        built = InstanceBuilder::from_config(&config).traces(traces).build() => built?,
        () = stop.cancelled() => return Ok(()),
    };
    let listener = listen(socket, &config.address)?;
    tracing::info!(name = instance.name(), address = %listener.local_addr()?, "serving");
    match agents {
        Some((socket, address)) => {
            let agents = listen(socket, &address)?;
            instance.serve_apart(listener, agents, options, stop).await?;
        }
        None => instance.serve_on(listener, options, stop).await?,
    }
    Ok(())
}
