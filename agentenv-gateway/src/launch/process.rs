//! A server as a process of this machine: started, waited for, and ended with all that it started, whatever dies first.
//! Which servers there are is left to `file`.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::upstream::Remote;

/// How long a server may take to end after it was asked to: a little more than the servers' own grace (contract 10).
pub const PATIENCE: Duration = Duration::from_secs(12);

/// How often a server is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// How long output is read that comes after a server's end.
const LATE_OUTPUT: Duration = Duration::from_millis(200);

/// The longest line of output that is kept whole.
const LINE: usize = 8 * 1024;

/// How many last lines of its standard error a server that ended is remembered by.
const LAST_LINES: usize = 3;

/// What guards it: see the file.
const GUARD: &str = include_str!("process.sh");

/// Takes each line that a server writes: the server's name, and the line.
pub type Output = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// What to start.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// The environment's name, which it gets as `ENVIRONMENT_NAME`.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it runs.
    pub folder: PathBuf,
    /// The port that it is told by `MCP_PORT`; one that is free unless given.
    pub port: Option<u16>,
    /// The `DATABASE_URL` that it gets. Without one it does not inherit ours either.
    pub database_url: Option<String>,
    /// Variables of its own, which win over the others.
    pub environment: BTreeMap<String, String>,
}

/// Why a server does not run. One line, which names it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// Its port is another program's.
    #[error("{name}: port {port} is taken")]
    PortTaken {
        /// The server.
        name: String,
        /// The port.
        port: u16,
    },
    /// It could not be started.
    #[error("{name}: cannot be started: {source}")]
    Start {
        /// The server.
        name: String,
        /// Why not.
        source: io::Error,
    },
    /// It ended by itself.
    #[error("{name}: {how}")]
    Ended {
        /// The server.
        name: String,
        /// How, and its last words.
        how: String,
    },
    /// It does not answer.
    #[error("{name}: not ready within {} s: {last}", within.as_secs_f64())]
    NeverReady {
        /// The server.
        name: String,
        /// How long it was waited for.
        within: Duration,
        /// What was seen last.
        last: String,
    },
}

/// A server that was started. Dropping it, or dying in any way, ends it and all that it started; [`stop`](Self::stop) also
/// waits for that.
///
/// It is guarded by a shell that leads a process group of its own and holds one end of a pipe. The operating system closes
/// the other with us, even if we are killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    url: Url,
    group: u32,
    pipe: ChildStdin,
    ended: watch::Receiver<Option<String>>,
    watcher: JoinHandle<()>,
}

impl Process {
    /// Starts a server on 127.0.0.1. It is told where by the variables of contract 2.7, and its output goes to `output`
    /// line by line.
    ///
    /// # Errors
    /// When its port is taken or it cannot be started. A program that is not there is told by [`ended`](Self::ended).
    pub fn start(spec: &ProcessSpec, output: Output) -> Result<Self, ProcessError> {
        let failed = |source| ProcessError::Start { name: spec.name.clone(), source };
        let port = spec.port.unwrap_or_default();
        // Whoever takes the port between here and the server's own start is found when the server ends at once.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => ProcessError::PortTaken { name: spec.name.clone(), port },
                _ => failed(error),
            })?
            .port();
        let url = Url::parse(&format!("http://127.0.0.1:{port}/"))
            .map_err(|error| failed(io::Error::other(error)))?;

        let mut guard = Command::new("sh");
        guard.arg("-c").arg(GUARD).arg(&spec.name).arg((PATIENCE.as_millis() / 100).to_string());
        guard.args(&spec.command).current_dir(&spec.folder).env_remove("DATABASE_URL");
        guard.env("MCP_HOST", "127.0.0.1").env("MCP_PORT", port.to_string());
        guard.env("ENVIRONMENT_NAME", &spec.name).env("PYTHONUNBUFFERED", "1").env("NO_COLOR", "1");
        guard.envs(spec.database_url.iter().map(|url| ("DATABASE_URL", url))).envs(&spec.environment);
        // Ctrl-C in our terminal is for us alone, and we end it in our own order.
        guard.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut guard = guard.spawn().map_err(failed)?;
        let missing = || failed(io::ErrorKind::BrokenPipe.into());
        let pipe = guard.stdin.take().ok_or_else(missing)?;
        let stdout = guard.stdout.take().ok_or_else(missing)?;
        let stderr = guard.stderr.take().ok_or_else(missing)?;
        let group = guard.id().ok_or_else(missing)?;

        let (told, ended) = watch::channel(None);
        let name = spec.name.clone();
        let program = spec.command.first().cloned().unwrap_or_default();
        // Ends with the guard, which ends with the pipe.
        let watcher = tokio::spawn(async move {
            let last = Arc::new(Mutex::new(VecDeque::new()));
            let (name, output) = (name.as_str(), &*output);
            let words = Arc::clone(&last);
            let gone = CancellationToken::new();
            let waiting = async {
                let status = guard.wait().await;
                gone.cancel();
                status
            };
            let reading = async {
                let out = lines(stdout, |line| output(name, line));
                let err = lines(stderr, |line| {
                    output(name, line);
                    remember(&words, line);
                });
                // What it wrote last is still in the pipes, but a process that it left behind may keep them open.
                let late = async {
                    gone.cancelled().await;
                    tokio::time::sleep(LATE_OUTPUT).await;
                };
                tokio::select! {
                    _ = async { tokio::join!(out, err) } => {}
                    () = late => {}
                }
            };
            let (status, ()) = tokio::join!(waiting, reading);
            let last = last.lock().unwrap_or_else(PoisonError::into_inner);
            told.send_replace(Some(how(status, &program, &last)));
        });
        Ok(Self { name: spec.name.clone(), url, group, pipe, ended, watcher })
    }

    /// The environment's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its base URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The process that leads its group, for whoever wants to look at it.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Waits until it has ended by itself, and says how.
    pub async fn ended(&self) -> ProcessError {
        let mut ended = self.ended.clone();
        let how = ended.wait_for(Option::is_some).await.ok().and_then(|how| how.clone()).unwrap_or_default();
        ProcessError::Ended { name: self.name.clone(), how }
    }

    /// Waits until it can take calls: its `/ready` answers 200, or failing that its MCP endpoint below 500 (contract 3.1).
    ///
    /// # Errors
    /// When it ends, or takes longer than `within`.
    pub async fn ready(&self, within: Duration) -> Result<(), ProcessError> {
        tokio::select! {
            biased;
            error = self.ended() => Err(error),
            ready = self.answers(within) => ready,
        }
    }

    async fn answers(&self, within: Duration) -> Result<(), ProcessError> {
        let failed = |last| ProcessError::NeverReady { name: self.name.clone(), within, last };
        let endpoint = self.url.join("mcp").map_err(|error| failed(error.to_string()))?;
        let remote = Remote::new(endpoint).map_err(|error| failed(error.to_string()))?;
        let deadline = Instant::now() + within;
        let mut last = "it was not asked".to_owned();
        while let Ok(answer) = tokio::time::timeout_at(deadline, remote.is_ready()).await {
            match answer {
                Ok(()) => return Ok(()),
                Err(why) => last = why,
            }
            if tokio::time::timeout_at(deadline, tokio::time::sleep(ASK_EVERY)).await.is_err() {
                break;
            }
        }
        Err(failed(last))
    }

    /// Ends it and waits until it and all that it started are gone: SIGTERM, and SIGKILL after [`PATIENCE`]. Dropping the
    /// future leaves that to the guard.
    pub async fn stop(self) {
        let Self { pipe, watcher, group, .. } = self;
        drop(pipe);
        if tokio::time::timeout(PATIENCE + Duration::from_secs(2), watcher).await.is_err() {
            // Somebody killed the guard and what it left to act for it.
            let _ = Command::new("kill")
                .args(["-KILL", &format!("-{group}")])
                .stderr(Stdio::null())
                .status()
                .await;
        }
    }
}

fn remember(last: &Mutex<VecDeque<String>>, line: &str) {
    if line.trim().is_empty() {
        return;
    }
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if last.len() == LAST_LINES {
        last.pop_front();
    }
    last.push_back(line.trim().to_owned());
}

/// How a process ended, in one line.
fn how(status: io::Result<ExitStatus>, program: &str, last: &VecDeque<String>) -> String {
    let code = status.ok().and_then(|status| status.code());
    let mut how = match code {
        Some(127) => return format!("there is no program '{program}'"),
        Some(126) => return format!("'{program}' cannot be run"),
        Some(signal @ 129..=192) => format!("killed by signal {}", signal - 128),
        Some(code) => format!("exited with status {code}"),
        None => "killed".to_owned(),
    };
    if let Some(line) = last.back() {
        how.push_str(": ");
        how.push_str(line);
    }
    how
}

/// Reads lines until the end. What is past [`LINE`] bytes of a line is a line of its own, so that nothing grows.
async fn lines(from: impl AsyncRead + Unpin, mut each: impl FnMut(&str)) {
    let mut from = BufReader::with_capacity(LINE, from);
    let mut line = Vec::new();
    while let Ok(more) = read_some(&mut from, &mut line).await {
        if more && line.len() < LINE && line.last() != Some(&b'\n') {
            continue;
        }
        if !line.is_empty() {
            each(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        if !more {
            return;
        }
    }
}

/// Takes what is there, up to the end of the line and no further than the longest line. `false` at the end.
async fn read_some(from: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> io::Result<bool> {
    let there = from.fill_buf().await?;
    if there.is_empty() {
        return Ok(false);
    }
    let room = LINE - line.len().min(LINE);
    let there = there.get(..room.min(there.len())).unwrap_or(there);
    let end = there.iter().position(|byte| *byte == b'\n').map_or(there.len(), |place| place + 1);
    line.extend_from_slice(there.get(..end).unwrap_or(there));
    from.consume(end);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Vec<String> {
        let mut all = Vec::new();
        lines(bytes, |line| all.push(line.to_owned())).await;
        all
    }

    #[tokio::test]
    async fn output_is_cut_into_lines_that_never_grow() {
        assert_eq!(read(b"one\n\ntwo\r\n\xffthree").await, ["one", "", "two", "\u{fffd}three"]);
        let long = read(&vec![b'x'; LINE * 2 + 1]).await;
        assert_eq!(long.iter().map(String::len).collect::<Vec<_>>(), [LINE, LINE, 1]);
        assert!(read(b"").await.is_empty());
    }
}
