//! What a person types: `up`, `render compose`, and an environment by its name. A program with environments of its own gets
//! the same by calling [`run`] in its `main`. What a gateway does that is told by variables alone is left to its own `main`.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agentenv_protocol::environment::{EnvRuntime, find_linked, linked};
use agentenv_protocol::mcp::server::EndpointOptions;
use agentenv_protocol::server::{self, DEFAULT_PORT, bind, serve_router, serve_runtime, stop_on_signal};
use clap::{Parser, Subcommand};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::compose;
use super::file::{FileError, InstanceFile};
use super::up::Up;
use crate::database::{self, Database, DatabaseEnv, QUERY_TIME};
use crate::store::StoreUrl;
use crate::telemetry::{self, LogFormat, Traces};

/// The file that is read when none is named.
const FILE: &str = "instance.toml";

/// A start that cannot be.
const BAD_START: u8 = 2;

#[derive(Parser)]
#[command(about = "Compose environment servers into one instance", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start everything that an instance file asks for, and serve it until Ctrl-C
    Up {
        /// The instance file [default: the program's own, or instance.toml]
        file: Option<PathBuf>,
        /// Return once it is up and leave it running
        #[arg(long)]
        wait: bool,
        /// Say where everything is as one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Write what ships an instance
    Render {
        #[command(subcommand)]
        what: Render,
    },
    /// Serve one environment that is linked into this program, as MCP_HOST, MCP_PORT and ENVIRONMENT_NAME say
    Serve {
        /// Its name
        env: String,
    },
    /// List the environments that are linked into this program
    Envs,
    /// Serve the state store at DATABASE_URL to be looked at, read-only: a page at /db, an MCP server at /mcp
    Database,
    /// NAME is short for `serve NAME`
    #[command(external_subcommand)]
    Named(Vec<String>),
}

#[derive(Subcommand)]
enum Render {
    /// A Compose file, and the files that it names
    Compose {
        /// The instance file [default: the program's own, or instance.toml]
        file: Option<PathBuf>,
        /// The folder to write them into
        #[arg(long, short, default_value = "compose")]
        out: PathBuf,
    },
}

/// Does what the program's arguments say. `own` is the text of an instance file that the program brings along.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// #[tokio::main]
/// async fn main() -> ExitCode {
///     agentenv_gateway::launch::command::run(Some("name = \"office\"\n[[server]]\nname = \"email\"\nenv = \"email\"")).await
/// }
/// ```
pub async fn run(own: Option<&str>) -> ExitCode {
    let arguments = Arguments::try_parse();
    let command = match arguments {
        Ok(arguments) => arguments.command,
        Err(error) => {
            // clap prints help to the standard output and faults to the standard error.
            let status = if error.use_stderr() { BAD_START } else { 0 };
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    let done = match command {
        Command::Up { file, wait: true, .. } => return wait(file.as_deref()).await,
        Command::Up { file, json, .. } => up(file.as_deref(), own, json).await,
        Command::Render { what: Render::Compose { file, out } } => render(file.as_deref(), own, &out),
        Command::Serve { env } => serve(&env).await,
        Command::Envs => envs(),
        Command::Database => look().await,
        Command::Named(words) => match words.first() {
            Some(env) if words.len() == 1 => serve(env).await,
            _ => Err(format!("there is no command '{}'; see --help", words.join(" ")).into()),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            for line in error.to_string().lines() {
                say(&mut std::io::stderr(), line);
            }
            ExitCode::from(BAD_START)
        }
    }
}

type Done = Result<(), Box<dyn std::error::Error>>;

/// Prints a line; whoever does not listen any more misses nothing that matters.
fn say(to: &mut impl std::io::Write, line: &str) {
    let _ = writeln!(to, "{line}").and_then(|()| to.flush());
}

fn read(file: Option<&Path>, own: Option<&str>) -> Result<InstanceFile, FileError> {
    match (file, own) {
        (Some(file), _) => InstanceFile::load(file),
        (None, Some(own)) => InstanceFile::own(own),
        (None, None) => InstanceFile::load(Path::new(FILE)),
    }
}

async fn up(file: Option<&Path>, own: Option<&str>, json: bool) -> Done {
    let file = read(file, own)?;
    LogFormat::from_env().and_then(telemetry::init_logging)?;
    let traces = Traces::from_env(&file.name)?;
    let stop = stop_on_signal()?;
    let done = tell_and_serve(&file, json, traces.clone(), stop).await;
    if let Some(traces) = traces {
        traces.shut_down().await;
    }
    done
}

async fn tell_and_serve(
    file: &InstanceFile,
    json: bool,
    traces: Option<Traces>,
    stop: CancellationToken,
) -> Done {
    let output = Arc::new(|name: &str, line: &str| say(&mut std::io::stderr(), &format!("{name} | {line}")));
    let up = tokio::select! {
        up = Up::start(file, output, traces) => up?,
        () = stop.cancelled() => return Ok(()),
    };
    let report = up.report();
    let mut out = std::io::stdout();
    if json {
        say(&mut out, &serde_json::to_string(report)?);
    } else {
        say(&mut out, &format!("{} is up.\n", report.name));
        say(&mut out, &format!("  MCP      {}", report.mcp));
        say(&mut out, &format!("  card     {}/.well-known/agent-env.json", report.url));
        if let Some(agents) = &report.agents {
            say(&mut out, &format!("  agents   {agents}/mcp"));
        }
        for (name, url) in &report.servers {
            say(&mut out, &format!("  server   {name}: {}", url.as_deref().unwrap_or("in this process")));
        }
        if let Some(Ok(store)) = report.store_url.as_ref().map(|url| url.parse::<StoreUrl>()) {
            say(&mut out, &format!("  store    {store}"));
        }
        say(&mut out, "\nCtrl-C ends it.");
    }
    Ok(up.serve(stop).await?)
}

/// Starts ourselves anew without `--wait`, and returns when that is up. What it logs goes into a file, for nobody who waits
/// for our own output to end must wait for it too.
async fn wait(file: Option<&Path>) -> ExitCode {
    let log = std::env::temp_dir().join(format!("agentenv-up-{}.log", uuid::Uuid::new_v4().simple()));
    match stay(file, &log).await {
        Ok(Ok(report)) => {
            say(&mut std::io::stdout(), &report);
            ExitCode::SUCCESS
        }
        Ok(Err(status)) => {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            said.lines().for_each(|line| say(&mut std::io::stderr(), line));
            // It has been said.
            let _ = std::fs::remove_file(&log);
            ExitCode::from(status)
        }
        Err(error) => {
            say(&mut std::io::stderr(), &format!("cannot start: {error}"));
            ExitCode::from(BAD_START)
        }
    }
}

/// The report of an instance that stays up, its log's file added to it, or its exit status.
async fn stay(file: Option<&Path>, log: &Path) -> std::io::Result<Result<String, u8>> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.args(["up", "--json"]).args(file).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(std::fs::File::create(log)?);
    // A group of its own: Ctrl-C here must not end what was asked to stay.
    let mut child = command.process_group(0).spawn()?;
    let mut lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
    // Its report is its first line.
    let line = match &mut lines {
        Some(lines) => lines.next_line().await?,
        None => None,
    };
    let report = line.and_then(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
    let Some(mut report) = report else {
        let status = child.wait().await?.code().and_then(|code| u8::try_from(code).ok());
        return Ok(Err(status.unwrap_or(BAD_START).max(1)));
    };
    report["log"] = log.to_string_lossy().into();
    Ok(Ok(report.to_string()))
}

fn render(file: Option<&Path>, own: Option<&str>, out: &Path) -> Done {
    let file = read(file, own)?;
    let failed = |error: std::io::Error| format!("{}: {error}", out.display());
    let password = compose::password(out).map_err(failed)?;
    let rendered =
        compose::render(&file, &password).map_err(|faults| FileError { path: file.path.clone(), faults })?;
    rendered.write(out).map_err(failed)?;
    say(&mut std::io::stdout(), &out.join("compose.yaml").display().to_string());
    Ok(())
}

async fn serve(env: &str) -> Done {
    let name = std::env::var("ENVIRONMENT_NAME").ok().filter(|name| !name.trim().is_empty());
    let built = find_linked(env).and_then(|env| env.build(name.as_deref()));
    let Some(runtime) = built else {
        let known: Vec<&str> = linked().iter().map(|env| env.name()).collect();
        return Err(format!(
            "no environment '{env}' with a Default is linked into this program, only {}",
            known.join(", ")
        )
        .into());
    };
    Ok(serve_runtime(runtime?).await?)
}

fn envs() -> Done {
    for name in names() {
        say(&mut std::io::stdout(), name);
    }
    Ok(())
}

/// The linked environments that can be made.
fn names() -> Vec<&'static str> {
    linked().iter().filter(|env| (env.constructor)().is_some()).map(|env| env.name()).collect()
}

async fn look() -> Done {
    let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
    let url: StoreUrl = url.parse().map_err(|error| format!("DATABASE_URL: {error}"))?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let host = variable("MCP_HOST").unwrap_or_else(|| "0.0.0.0".to_owned());
    let port = variable("MCP_PORT").unwrap_or_else(|| DEFAULT_PORT.to_string());
    LogFormat::from_env().and_then(telemetry::init_logging)?;
    let listener = bind(&format!("{host}:{port}")).await?;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let database = Database::new(url, QUERY_TIME, &tasks, &stop);
    let options = EndpointOptions::default();
    let tracker = options.tracker.clone();
    // As a server of its own, and as an instance has it under /db, page and all.
    let runtime = EnvRuntime::new(DatabaseEnv::new(database.clone()))?;
    let routes = server::router(runtime, options.clone()).merge(database::router(database, options)?);
    tracing::info!(address = %listener.local_addr()?, "serving");
    let served = serve_router(listener, routes, stop_on_signal()?, tracker).await;
    stop.cancel();
    tasks.close();
    // The store may swallow everything; what is left of its connections goes with us.
    let _ = tokio::time::timeout(Duration::from_secs(1), tasks.wait()).await;
    Ok(served?)
}
