//! The gateway as a process of its own, told by environment variables what to put together (contract 3.1).

use std::process::ExitCode;

use agentenv_gateway::builder::InstanceBuilder;
use agentenv_gateway::config::Config;
use agentenv_gateway::http::{Access, ServeOptions};
use agentenv_gateway::telemetry::{self, LogFormat, Traces};
use agentenv_gateway::trajectory;
use agentenv_protocol::server::{listen, reserve, stop_on_signal};

/// A start that cannot be: the settings, the address, the trajectory.
const BAD_START: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
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
