//! `with-postgres COMMAND ARGUMENT…`: runs the command with `SERVICE_DB_URL` set to a private Postgres that ends with it.
//! The changelog is there and empty, as a harness hands it to a gateway; the command's standard input is empty, too.
//! The exit status is the command's, or 2 where it could not be run to its end.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use agentenv_gateway::launch::postgres::PrivatePostgres;
use agentenv_gateway::store::{Store, StoreTimes};
use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the command may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(30);

/// The servers of the conformance cases, each of which has a schema in its instance's store.
const SERVERS: [&str; 2] = ["email", "contacts"];

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(status) => {
            let code = status.code().or(status.signal().map(|signal| 128 + signal));
            ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("with-postgres: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run() -> Result<ExitStatus> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().context("no command: with-postgres COMMAND ARGUMENT…")?;
    let mut signals = Signals::new()?;
    let postgres = tokio::select! {
        started = PrivatePostgres::start(None) => started?,
        _ = signals.next() => bail!("told to stop before there was a Postgres"),
    };
    let ended = async {
        tokio::select! {
            prepared = prepare(&postgres) => prepared.context("preparing the store")?,
            _ = signals.next() => bail!("told to stop before the store was ready"),
        }
        let mut command = Command::new(&program);
        command.args(words).env("SERVICE_DB_URL", postgres.url().expose()).stdin(Stdio::null());
        // A group of its own, so that Ctrl-C in a terminal reaches it once, through us. run.py ends what it started after
        // the first and would be cut short by a second.
        let child = command.process_group(0).kill_on_drop(true).spawn();
        attend(child.with_context(|| format!("cannot run {}", program.display()))?, &postgres, &mut signals)
            .await
    };
    let ended = ended.await;
    postgres.stop().await;
    ended
}

async fn prepare(postgres: &PrivatePostgres) -> Result<()> {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let _stopped = stop.clone().drop_guard();
    let store = Store::connect(postgres.url().clone(), StoreTimes::default(), &tasks, &stop);
    for server in SERVERS {
        store.prepare(server).await?;
    }
    Ok(())
}

/// Waits for the command's end, passing on what we are told and killing it when that does not help.
async fn attend(mut child: Child, postgres: &PrivatePostgres, signals: &mut Signals) -> Result<ExitStatus> {
    let group = child.id().context("it has no process id")?;
    let (signal, lost) = tokio::select! {
        ended = child.wait() => return Ok(ended?),
        signal = signals.next() => (signal, None),
        // Whatever the command would say of the store from here on, it would say of one that is down.
        words = postgres.ended() => ("INT", Some(words)),
    };
    send(signal, group).await?;
    let ended = tokio::select! {
        ended = child.wait() => ended?,
        () = async {
            tokio::select! {
                _ = signals.next() => {}
                () = tokio::time::sleep(PATIENCE) => {}
            }
        } => {
            send("KILL", group).await?;
            child.wait().await?
        }
    };
    match lost {
        Some(words) => bail!("Postgres ended before the command did: {words}"),
        None => Ok(ended),
    }
}

async fn send(signal: &str, group: u32) -> Result<()> {
    // It fails where the group has just ended by itself, which is as good.
    Command::new("kill")
        .args(["-s", signal, "--", &format!("-{group}")])
        .stderr(Stdio::null())
        .status()
        .await
        .context("cannot run kill")?;
    Ok(())
}

/// What ends us.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The name of the next one.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "TERM",
            _ = self.interrupt.recv() => "INT",
        }
    }
}
