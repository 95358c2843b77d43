//! A Postgres of an instance's own, from this machine's binaries: found, started, and gone with whoever started it.
//! What is kept in it is left to [`store`](crate::store).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;

use crate::store::StoreUrl;

/// How long it may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How often it is asked meanwhile.
const ASK_EVERY: Duration = Duration::from_millis(15);

/// How many ports are tried when another program takes the one that was free.
const PORTS_TRIED: usize = 5;

/// The accounts that it runs as when we are root, the first that there is.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];

/// Its database and the user that owns it, the names that the Python framework uses.
const NAME: &str = "agentenv";

/// What guards it: see the file.
const GUARD: &str = include_str!("postgres.sh");

/// The guard's name in the folder.
const SCRIPT: &str = "guard.sh";

/// Settings for data that is thrown away with the instance: nothing waits for the disk, yet a commit survives the death
/// of the server's processes. Every server of an instance opens connections of its own.
const SETTINGS: [&str; 7] = [
    "fsync=off",
    "full_page_writes=off",
    "max_connections=300",
    "shared_buffers=32MB",
    "jit=off",
    "timezone=UTC",
    "log_timezone=UTC",
];

/// A running Postgres. Dropping it, or dying in any way, stops the server and removes its folder; [`stop`](Self::stop)
/// also waits for that.
///
/// It is guarded by a shell that runs the server for as long as we hold the other end of a pipe. The operating system
/// closes that with us, even if we are killed. A server that dies by itself is started again on the same data.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use agentenv_gateway::launch::postgres::PrivatePostgres;
///
/// let postgres = PrivatePostgres::start(None).await?;
/// println!("{}", postgres.url());
/// postgres.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PrivatePostgres {
    url: StoreUrl,
    folder: PathBuf,
    stopped: watch::Receiver<Option<String>>,
    pipe: OwnedFd,
    listener: JoinHandle<()>,
}

/// Why there is no private Postgres.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The machine has none.
    #[error(
        "no Postgres on this machine: looked for initdb and postgres on PATH and in /usr/lib/postgresql/*/bin; \
         install one, or give the store's url"
    )]
    NotInstalled,
    /// We are root, and there is nobody else to be.
    #[error("a Postgres cannot run as root, and this machine has neither an account postgres nor nobody")]
    NoAccount,
    /// Its folder could not be made.
    #[error("cannot make a folder for Postgres in {}", place.display())]
    Folder {
        /// Where it was to be.
        place: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The shell that guards it could not be started.
    #[error("cannot start sh, which runs Postgres")]
    Guard(#[source] io::Error),
    /// It ended before it was ready.
    #[error("Postgres ended before it was ready: {0}")]
    Failed(String),
    /// The port that was asked for is another program's.
    #[error("port {0} for Postgres is taken")]
    PortTaken(u16),
    /// It never answered.
    #[error("Postgres was not ready within {0:?}")]
    NeverReady(Duration),
}

impl PrivatePostgres {
    /// Starts one on 127.0.0.1, on `port` or on a free one, and waits until it answers. It has a database and a user of
    /// the name `agentenv`, and a password that is drawn anew each time.
    ///
    /// As root, it is run as `postgres` or, without such an account, as `nobody`. Dropping the future stops it.
    ///
    /// # Errors
    /// When there is none on this machine, or it does not start.
    pub async fn start(port: Option<u16>) -> Result<Self, PostgresError> {
        let binaries = Binaries::find(std::env::var_os("PATH"), Path::new("/usr/lib/postgresql"))
            .ok_or(PostgresError::NotInstalled)?;
        if let Some(port) = port {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|_| PostgresError::PortTaken(port))?;
            return Starting::begin(&binaries, port)?.finish().await;
        }
        for _ in 1..PORTS_TRIED {
            match Starting::begin(&binaries, free_port()?)?.finish().await {
                Err(PostgresError::Failed(log)) if log.contains("could not bind") => {}
                ended => return ended,
            }
        }
        Starting::begin(&binaries, free_port()?)?.finish().await
    }

    /// Its address on the loopback interface, as its owner.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// The process id of its server now, for whoever wants to look at it or kill it.
    pub fn process_id(&self) -> Option<u32> {
        let noted = fs::read_to_string(self.folder.join("pid")).ok()?;
        noted.trim().parse().ok()
    }

    /// Waits until it has ended by itself for good, and answers its last words.
    pub async fn ended(&self) -> String {
        let mut stopped = self.stopped.clone();
        let ended = stopped.wait_for(Option::is_some).await;
        ended.ok().and_then(|words| words.clone()).unwrap_or_default()
    }

    /// Stops it and waits until nothing of it is left. Dropping the future leaves that to the guard.
    pub async fn stop(self) {
        let Self { pipe, listener, folder, .. } = self;
        drop(pipe);
        // The guard's last line comes after everything else; a panic in the listener leaves nothing more to wait for.
        let _ = listener.await;
        clear(&folder).await;
    }
}

/// Takes away what is left when the guard was killed and could not.
async fn clear(folder: &Path) {
    if !folder.exists() {
        return;
    }
    if let Ok(pid) = fs::read_to_string(folder.join("pid")) {
        // It is most likely gone already.
        let _ = Command::new("kill").args(["-QUIT", pid.trim()]).stderr(Stdio::null()).status().await;
    }
    if let Err(error) = fs::remove_dir_all(folder) {
        tracing::warn!(folder = %folder.display(), %error, "the folder of a stopped Postgres stays behind");
    }
}

fn free_port() -> Result<u16, PostgresError> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    free.map(|address| address.port()).map_err(PostgresError::Guard)
}

/// A server that has been started and has not answered yet.
struct Starting {
    guard: Child,
    lines: Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
    url: StoreUrl,
    port: u16,
}

impl Starting {
    fn begin(binaries: &Binaries, port: u16) -> Result<Self, PostgresError> {
        let password = uuid::Uuid::new_v4().simple().to_string();
        let (folder, account) = make_folder(&password)?;
        let mut guard = Command::new("sh");
        guard.arg(folder.join(SCRIPT)).arg(&folder).arg(&binaries.initdb).arg(&binaries.postgres);
        guard.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-k"]).arg(&folder);
        for setting in SETTINGS {
            guard.args(["-c", setting]);
        }
        for (name, _) in std::env::vars_os() {
            // PGDATA, PGPORT and their like would lead it elsewhere.
            if name.as_encoded_bytes().starts_with(b"PG") {
                guard.env_remove(name);
            }
        }
        guard.env("LC_ALL", "C").current_dir(&folder);
        if let Some(account) = account {
            guard.uid(account.user).gid(account.group);
        }
        // A group of its own: Ctrl-C in our terminal is for us alone, and we stop it in our own order.
        guard.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let started = guard.spawn().and_then(|mut guard| {
            let stdout = guard.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
            Ok((guard, stdout))
        });
        let url = format!("postgresql://{NAME}:{password}@127.0.0.1:{port}/{NAME}").parse();
        match (started, url) {
            (Ok((guard, stdout)), Ok(url)) => {
                Ok(Self { guard, lines: BufReader::new(stdout).lines(), folder, url, port })
            }
            (Err(error), _) => {
                // Nobody has used it yet.
                let _ = fs::remove_dir_all(&folder);
                Err(PostgresError::Guard(error))
            }
            (_, Err(error)) => Err(PostgresError::Failed(error.to_string())),
        }
    }

    async fn finish(mut self) -> Result<PrivatePostgres, PostgresError> {
        let failed = tokio::select! {
            answered = tokio::time::timeout(READY_WITHIN, make_database(&self.folder, self.port)) => match answered {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(PostgresError::Failed(error.to_string())),
                Err(_) => Some(PostgresError::NeverReady(READY_WITHIN)),
            },
            words = last_words(&mut self.lines) => Some(PostgresError::Failed(words)),
        };
        if let Some(failed) = failed {
            drop(self.guard.stdin.take());
            last_words(&mut self.lines).await;
            clear(&self.folder).await;
            return Err(failed);
        }
        let mut pipe =
            self.guard.stdin.take().ok_or_else(|| PostgresError::Guard(io::ErrorKind::BrokenPipe.into()))?;
        pipe.write_all(b"ready\n").await.map_err(PostgresError::Guard)?;
        let pipe = pipe.into_owned_fd().map_err(PostgresError::Guard)?;

        let (told, stopped) = watch::channel(None);
        // Ends with the guard, which ends with the pipe.
        let listener = tokio::spawn(async move {
            let words = last_words(&mut self.lines).await;
            // Reaped here, so that it does not stay behind as a zombie.
            let _ = self.guard.wait().await;
            told.send_replace(Some(words));
        });
        Ok(PrivatePostgres { url: self.url, folder: self.folder, stopped, pipe, listener })
    }
}

/// Reads what the guard says until it has ended, and answers what it quoted of the server's log.
async fn last_words(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let mut words: Vec<String> = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.strip_prefix("log ") {
            Some(quoted) => words.push(quoted.trim().to_owned()),
            None if line == "restarting" => tracing::warn!("Postgres died and is started again"),
            None => tracing::debug!(line, "postgres"),
        }
    }
    let telling = |word: &&String| ["FATAL", "error", "HINT"].iter().any(|sign| word.contains(sign));
    let told: Vec<&str> = match words.iter().filter(telling).map(String::as_str).collect::<Vec<_>>() {
        told if !told.is_empty() => told,
        _ => words.iter().map(String::as_str).collect(),
    };
    told.join("; ")
}

/// Waits until the server answers on its socket, and makes the database.
async fn make_database(folder: &Path, port: u16) -> Result<(), tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config.host_path(folder).port(port).user(NAME).dbname("postgres");
    loop {
        if let Ok((client, connection)) = config.connect(NoTls).await {
            let made = async {
                let made = client.batch_execute(&format!("CREATE DATABASE {NAME}")).await;
                drop(client);
                made
            };
            let (made, _) = tokio::join!(made, connection);
            return made;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// An account to run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    user: u32,
    group: u32,
}

/// Makes a folder that nobody else can read, with the password in it, and answers the account that owns it when that is
/// not ours.
fn make_folder(password: &str) -> Result<(PathBuf, Option<Account>), PostgresError> {
    let place = std::env::temp_dir();
    let folder = place.join(format!("agentenv-postgres-{}", uuid::Uuid::new_v4().simple()));
    let wrong = |source| PostgresError::Folder { place: place.clone(), source };
    fs::DirBuilder::new().mode(0o700).create(&folder).map_err(wrong)?;
    let made = (|| {
        let owned = [(folder.join("password"), password), (folder.join(SCRIPT), GUARD)];
        for (path, text) in &owned {
            let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes())).map_err(wrong)?;
        }
        if fs::metadata(&folder).map_err(wrong)?.uid() != 0 {
            return Ok(None);
        }
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let account = unprivileged(&accounts).ok_or(PostgresError::NoAccount)?;
        for path in owned.iter().map(|(path, _)| path).chain([&folder]) {
            std::os::unix::fs::chown(path, Some(account.user), Some(account.group)).map_err(wrong)?;
        }
        Ok(Some(account))
    })();
    match made {
        Ok(account) => Ok((folder, account)),
        Err(error) => {
            // The error that led here is the one to tell.
            let _ = fs::remove_dir_all(&folder);
            Err(error)
        }
    }
}

/// The account to run as instead of root, from the text of `/etc/passwd`.
fn unprivileged(accounts: &str) -> Option<Account> {
    ACCOUNTS.iter().find_map(|wanted| {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next() != Some(wanted) {
                return None;
            }
            let (user, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            (user != 0).then_some(Account { user, group })
        })
    })
}

/// The programs of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binaries {
    initdb: PathBuf,
    postgres: PathBuf,
}

impl Binaries {
    /// Those on the path, else those of the newest version in Debian's folder.
    fn find(path: Option<OsString>, debian: &Path) -> Option<Self> {
        let on_path = path.iter().flat_map(std::env::split_paths).find_map(|folder| Self::within(&folder));
        on_path.or_else(|| {
            let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(debian)
                .into_iter()
                .flatten()
                .filter_map(|entry| {
                    let entry = entry.ok()?;
                    Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
                })
                .collect();
            versions.sort_unstable();
            versions.iter().rev().find_map(|(_, folder)| Self::within(folder))
        })
    }

    fn within(folder: &Path) -> Option<Self> {
        let found = Self { initdb: folder.join("initdb"), postgres: folder.join("postgres") };
        (folder.is_absolute() && found.initdb.is_file() && found.postgres.is_file()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_is_not_root_is_found() {
        let debian = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n";
        assert_eq!(unprivileged(debian), Some(Account { user: 65534, group: 65534 }));
        let both = format!("{debian}postgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n");
        assert_eq!(unprivileged(&both), Some(Account { user: 101, group: 104 }));
        assert_eq!(unprivileged("postgres:x:0:0::/:/bin/sh\nnobody"), None);
    }

    #[test]
    fn the_newest_version_is_found_where_path_has_none() {
        let root = std::env::temp_dir().join(format!("agentenv-test-{}", uuid::Uuid::new_v4().simple()));
        for version in ["9.6", "9", "15", "17"] {
            let folder = root.join(version).join("bin");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("postgres"), "").unwrap();
            if version != "17" {
                fs::write(folder.join("initdb"), "").unwrap();
            }
        }
        let found = Binaries::find(Some("relative:/nowhere".into()), &root);
        assert_eq!(found.unwrap().initdb, root.join("15/bin/initdb"));
        assert_eq!(Binaries::find(None, Path::new("/nowhere")), None);
        fs::remove_dir_all(root).unwrap();
    }
}
