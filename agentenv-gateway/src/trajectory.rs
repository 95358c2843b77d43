//! The trajectory: an append-only log of what happened, one JSON line an event (contract 5). Which events there are is
//! left to the stages; how a disk's failure shows to a caller is left to the pipeline.
//!
//! An event is told of only when its line is in the file: from then on it survives the death of the process. Of a power
//! cut it survives as [`Fsync`] says. A trajectory without a name ends with the process and is written to its file later.

mod board;
mod event;
mod queue;
mod read;
mod recover;
mod storage;
mod unnamed;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

pub use self::event::{Event, EventId, Kind, NotAnEventId, Stamp};
pub use self::read::Reading;

use self::board::{Board, Tip};
use self::queue::Queue;
use self::recover::{Found, Unfit};
use self::storage::{Refused, RegularFile, Storage};
use self::unnamed::UnnamedFile;
use self::writer::{Item, Otherwise, Outcome, StampFn, Writer, failed_call};

/// When what is written is put beyond a power cut's reach. The death of the process alone loses nothing in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// When the system sees fit.
    Never,
    /// At most this long after it was written.
    Interval(Duration),
    /// Before anyone is told.
    Always,
}

impl Default for Fsync {
    fn default() -> Self {
        Self::Interval(Duration::from_secs(1))
    }
}

/// A text that is not an [`Fsync`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not one of \"never\", \"interval\" (each second) and \"always\"")]
pub struct NotAnFsync;

impl FromStr for Fsync {
    type Err = NotAnFsync;

    fn from_str(name: &str) -> Result<Self, NotAnFsync> {
        match name {
            "never" => Ok(Self::Never),
            "interval" => Ok(Self::default()),
            "always" => Ok(Self::Always),
            _ => Err(NotAnFsync),
        }
    }
}

/// Where a trajectory is kept, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file, created if it is not there and gone on with if it is; `None` for one that has no name and ends with
    /// the process.
    pub path: Option<PathBuf>,
    /// When it is synced.
    pub fsync: Fsync,
    /// Whether whoever adds an event may write it too, which is quickest. A disk that turns out to be slow is written by
    /// a thread of its own in any case; `false` where even the first slow write must not hold a caller's thread up, as
    /// on a network file system.
    pub callers_write: bool,
    /// Most bytes of events that wait to be written; who adds more waits too.
    pub queue_bytes: usize,
    /// Most bytes of events that are kept in memory for a failing disk to come back.
    pub retained_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            path: None,
            fsync: Fsync::default(),
            callers_write: true,
            queue_bytes: 64 << 20,
            retained_bytes: 64 << 20,
        }
    }
}

/// Why a trajectory cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another gateway writes it.
    #[error("the trajectory file {} is in use by another process", .0.display())]
    Locked(PathBuf),
    /// It is a folder, a pipe or a device.
    #[error("the trajectory file {} is not a regular file", .0.display())]
    NotRegular(PathBuf),
    /// It holds something else, which must not be harmed.
    #[error("the file {} holds something other than a trajectory", .0.display())]
    NotATrajectory(PathBuf),
    /// The system says no.
    #[error("the trajectory file {} cannot be opened", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// An event could not be recorded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The disk is full or fails.
    #[error("trajectory unavailable: {0}")]
    Disk(#[source] Arc<io::Error>),
    /// Too much is waiting already.
    #[error("trajectory unavailable: too many events are waiting to be written")]
    Full,
    /// The trajectory is closed.
    #[error("trajectory unavailable: it is closed")]
    Closed,
}

/// What became of an event that tells of something that has already happened.
#[derive(Debug, Clone)]
pub enum Recorded {
    /// It is in the file.
    Written(EventId),
    /// The disk fails; it is kept in memory until it does not. The death of the process would lose it.
    Retained,
    /// It is lost, and [`Health`] says so.
    Lost(Unavailable),
}

/// How a trajectory is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Why events are being refused, if they are.
    pub failing: Option<String>,
    /// How many events wait in memory for the disk.
    pub retained: usize,
    /// How many events were lost.
    pub lost: u64,
    /// Somebody cut or removed the file while it was being written, so that events are gone from it.
    pub tampered: bool,
    /// A sync failed: what was written by then may not survive a power cut.
    pub unsynced: bool,
}

impl Health {
    /// Whether all is well.
    pub fn is_good(&self) -> bool {
        *self == Self::default()
    }
}

/// Makes a write beyond the limit on the size of files (`ulimit -f`) fail as one to a full disk does, where it would
/// kill the process. For the whole process, and for good: a program calls it, not a library.
///
/// # Errors
/// The signal cannot be taken.
///
/// # Panics
/// Outside a Tokio runtime that handles signals.
pub fn outlive_file_size_limit() -> io::Result<()> {
    let exceeded = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // It stays taken when nobody listens.
    signal(exceeded).map(drop)
}

/// A handle on a trajectory; clones are of the same one. It is closed with its last handle.
///
/// ```
/// use std::sync::Arc;
///
/// use agentenv_gateway::trajectory::{Event, Kind, Options, Recorded, Stamp, Trajectory};
/// use agentenv_protocol::json::ObjectWriter;
/// use futures_util::TryStreamExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stamp = || Stamp { timestamp_utc: "2026-10-05T09:00:00.000000+00:00".into(), virtual_time: None };
/// let trajectory = Trajectory::open(Options::default(), Arc::new(stamp))?;
///
/// let call = ObjectWriter::with_capacity(64)
///     .raw("tool_call", r#"{"function_name":"send","arguments":{}}"#)
///     .field("role", "default");
/// let id = trajectory.append(Event::new(Kind::ToolCall, call)).await?;
/// let result = ObjectWriter::with_capacity(64).field("tool_call_event_id", &id);
/// let recorded = trajectory.close_call(id, Event::new(Kind::ToolCallResult, result)).await;
/// assert!(matches!(recorded, Recorded::Written(_)));
///
/// let reading = trajectory.read(Some(id), false).await?;
/// let lines: Vec<_> = reading.lines.try_collect().await?;
/// assert!(lines.concat().starts_with(br#"{"event_type":"tool_call_result","event_id":"event_2","#));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Trajectory {
    owner: Arc<Owner>,
}

struct Owner {
    queue: Arc<Queue>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl fmt::Debug for Trajectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trajectory").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Trajectory {
    /// Opens a trajectory. What an earlier life left behind is mended: a torn last line is cut off (and copied to
    /// `<file>.torn`), and each call that it left open is closed by a `tool_call_failed`. The ids go on from there.
    ///
    /// `stamp` gives the time of the events that are about to be written, so that the order of the lines is that of their
    /// times. It is called by whoever writes, and must be quick and not panic.
    ///
    /// # Errors
    /// The file cannot be had or is not a trajectory.
    pub fn open(options: Options, stamp: Arc<dyn Fn() -> Stamp + Send + Sync>) -> Result<Self, OpenError> {
        let fail = |path: &Path, source| OpenError::Io { path: path.to_owned(), source };
        let Some(path) = &options.path else {
            let file = UnnamedFile::new().map_err(|error| fail(&std::env::temp_dir(), error))?;
            // No power cut leaves it behind.
            let options = Options { fsync: Fsync::Never, ..options };
            return Self::start(Arc::new(file), Found::default(), &options, stamp)
                .map_err(|error| fail(&std::env::temp_dir(), error));
        };
        let file = RegularFile::open(path).map_err(|refused| match refused {
            Refused::Locked => OpenError::Locked(path.clone()),
            Refused::NotRegular => OpenError::NotRegular(path.clone()),
            Refused::Io(error) => fail(path, error),
        })?;
        let found = recover::recover(&file, path).map_err(|unfit| match unfit {
            Unfit::NotATrajectory => OpenError::NotATrajectory(path.clone()),
            Unfit::Io(error) => fail(path, error),
        })?;
        Self::start(Arc::new(file), found, &options, stamp).map_err(|error| fail(path, error))
    }

    fn start(storage: Arc<dyn Storage>, found: Found, options: &Options, stamp: StampFn) -> io::Result<Self> {
        let tip = Tip { storage, file: 0, len: found.len, last: found.last, closed: false };
        let board = Arc::new(Board::new(tip, found.marks));
        let mut writer = Writer::new(stamp, Arc::clone(&board), options);
        let closing = found.open_calls.into_iter().map(|call| Item {
            event: failed_call(call, "gateway restarted"),
            otherwise: Otherwise::Retain(Some(call)),
            done: None,
        });
        writer.write(&mut closing.collect());
        let queue = Arc::new(Queue::new(writer, board, options));
        queue.start()?;
        Ok(Self { owner: Arc::new(Owner { queue }) })
    }

    /// Records an event that tells of something that is about to happen. Returns when its line is in the file. When
    /// the future is dropped, the event may be recorded or not, but never in part.
    ///
    /// # Errors
    /// It is not recorded, and what it tells of must not happen.
    pub async fn append(&self, event: Event) -> Result<EventId, Unavailable> {
        self.submit(event, Otherwise::Refuse).await.and_then(Result::from)
    }

    /// Records how a call ended. When the disk fails this is kept in memory, since the call has happened and its caller
    /// gets its answer; no later event overtakes it.
    pub async fn close_call(&self, call: EventId, event: Event) -> Recorded {
        match self.submit(event, Otherwise::Retain(Some(call))).await {
            Ok(Outcome::Written(id)) => Recorded::Written(id),
            Ok(Outcome::Retained) => Recorded::Retained,
            Ok(Outcome::Failed(unavailable)) | Err(unavailable) => Recorded::Lost(unavailable),
        }
    }

    /// Records an event that tells of something that has happened and that nobody waits for. When the disk fails it is
    /// kept in memory as [`close_call`](Self::close_call) does.
    ///
    /// # Errors
    /// It cannot even be put into the queue.
    pub fn append_soon(&self, event: Event) -> Result<(), Unavailable> {
        let item = Item { event, otherwise: Otherwise::Retain(None), done: None };
        self.owner.queue.add_now(item)
    }

    async fn submit(&self, event: Event, otherwise: Otherwise) -> Result<Outcome, Unavailable> {
        let (done, outcome) = oneshot::channel();
        self.owner.queue.add(Item { event, otherwise, done: Some(done) }).await?;
        outcome.await.map_err(|_| Unavailable::Closed)
    }

    /// Size of the trajectory, in bytes.
    pub fn bytes(&self) -> u64 {
        self.owner.queue.board.tip.borrow().len
    }

    /// The last event's id; `None` when there is none.
    pub fn last(&self) -> Option<EventId> {
        let last = self.owner.queue.board.tip.borrow().last;
        (last > 0).then_some(EventId(last))
    }

    /// The lines behind an event, or all of them, up to what is written now, or, to `follow`, on and on until the
    /// trajectory is closed. An event that is yet to come has nothing behind it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn read(
        &self,
        after: Option<EventId>,
        follow: bool,
    ) -> io::Result<Reading<impl Stream<Item = io::Result<Bytes>> + Send + 'static>> {
        read::read(&self.owner.queue.board, after, follow).await
    }

    /// How it is.
    pub fn health(&self) -> Health {
        self.owner.queue.board.health()
    }

    /// Takes no more events, writes what is waiting, syncs it unless that is never done, and lets go of the file.
    /// Cancelling this only stops the waiting.
    pub async fn close(&self) {
        let mut tips = self.owner.queue.board.tip.subscribe();
        self.owner.queue.close();
        // Fails only when the writer is gone.
        let _ = tips.wait_for(|tip| tip.closed).await;
    }
}
