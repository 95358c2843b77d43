//! Processes that are measured: started, watched through `/proc`, and ended by their ids whatever happens.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};
use serde::de::DeserializeOwned;

use crate::cores;
use crate::http::{once, request};

/// How long a process may take to come up.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long a process may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The hidden command under which this program starts another one that must not outlive it.
pub(crate) const LEASH: &str = "leash";

/// Becomes the command that the arguments name, and ends when `parent` does.
pub(crate) fn leash(mut arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let parent = arguments.next().and_then(|id| id.to_str()?.parse::<i32>().ok()).context("whose leash?")?;
    let program = arguments.next().context("what is to run?")?;
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    if rustix::process::getppid().map(Pid::as_raw_pid) != Some(parent) {
        bail!("the benchmark has ended");
    }
    Err(Command::new(program).args(arguments).exec().into())
}

/// What is to run.
pub(crate) struct Program {
    name: String,
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(String, OsString)>,
}

impl Program {
    pub(crate) fn new(name: impl Into<String>, program: impl Into<OsString>) -> Self {
        Self { name: name.into(), program: program.into(), arguments: Vec::new(), variables: Vec::new() }
    }

    /// This program, as one of its hidden parts.
    pub(crate) fn part(part: &str) -> anyhow::Result<Self> {
        Ok(Self::new(part, this_program()?).argument("part").argument(part))
    }

    pub(crate) fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// `MCP_HOST` and `MCP_PORT`, as every server and gateway reads them.
    pub(crate) fn listening(self, address: SocketAddr) -> Self {
        self.variable("MCP_HOST", address.ip().to_string()).variable("MCP_PORT", address.port().to_string())
    }

    /// Starts it; what it says goes to a file in `folder`.
    pub(crate) fn start(self, folder: &Path) -> anyhow::Result<Process> {
        let log = folder.join(format!("{}-{}.log", self.name, free_address()?.port()));
        let file = File::create(&log)?;
        let started = Instant::now();
        let child = Command::new(this_program()?)
            .arg(LEASH)
            .arg(std::process::id().to_string())
            .arg(&self.program)
            .args(&self.arguments)
            .envs(self.variables)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        cores::begun(child.id());
        Ok(Process { name: self.name, child, log, started })
    }
}

/// A process that runs. It ends when this is dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    started: Instant,
}

impl Process {
    /// Waits until `path` answers 200, and gives the time since the start.
    pub(crate) async fn ready(&mut self, address: SocketAddr, path: &str) -> anyhow::Result<Duration> {
        let request = request("GET", path, &[], "");
        while self.started.elapsed() < START_LIMIT {
            if let Ok((200, _)) = once(address, &request).await {
                return Ok(self.started.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}: {}", self.name, self.said());
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        bail!("{} is not up after {} s: {}", self.name, START_LIMIT.as_secs(), self.said())
    }

    /// Waits until it ends by itself, and gives the line of JSON that it said.
    pub(crate) async fn found<T: DeserializeOwned>(mut self, limit: Duration) -> anyhow::Result<T> {
        while self.started.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("{} ended with {status}: {}", self.name, self.said());
                }
                let text = fs::read_to_string(&self.log)?;
                let line = text.lines().rfind(|line| line.starts_with('{')).context("it found nothing")?;
                return Ok(serde_json::from_str(line)?);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("{} did not end within {} s: {}", self.name, limit.as_secs(), self.said())
    }

    /// The end of what it said.
    fn said(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.chars().skip(text.chars().count().saturating_sub(2000)).collect()
    }

    pub(crate) fn watched(&self) -> Watched {
        Watched(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended in between, which is what is wanted.
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
            let asked = Instant::now();
            while asked.elapsed() < END_LIMIT && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        cores::ended(self.child.id());
    }
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched(u32);

impl Watched {
    /// The benchmark itself.
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// Its id.
    pub(crate) fn id(self) -> u32 {
        self.0
    }

    /// Processor time so far, in user and kernel mode, of all its threads.
    pub(crate) fn cpu(self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).context("a process has ended")?;
        cpu_of(&stat, rustix::param::clock_ticks_per_second()).context("/proc/PID/stat reads otherwise here")
    }

    /// Resident memory in KiB.
    pub(crate) fn resident(self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).context("a process has ended")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }
}

fn cpu_of(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    // The second field, the name in brackets, may hold anything, blanks too.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_secs_f64((user + system) as f64 / ticks_per_second as f64))
}

/// Where this program lies. Asked first at the start: building what is measured may put the file there anew, after which the
/// system tells of one that is gone.
pub(crate) fn this_program() -> anyhow::Result<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(|| std::env::current_exe().ok()).as_deref().context("where is this program?")
}

/// An address on the loopback that nobody listens on.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Several, no two the same: each is held until all are there.
pub(crate) fn free_addresses(count: usize) -> anyhow::Result<Vec<SocketAddr>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    Ok(held.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_the_sum_of_both_modes_whatever_the_name() {
        let stat = "17 (a) b) S 1 17 17 0 -1 4194560 1 0 0 0 150 50 7 7 20 0 1 0 5 1000 9";
        assert_eq!(cpu_of(stat, 100), Some(Duration::from_secs(2)));
        assert_eq!(cpu_of("17 (a", 100), None);
    }

    #[test]
    fn this_process_is_seen() {
        assert!(Watched::this().resident().unwrap() > 100);
        Watched::this().cpu().unwrap();
    }
}
