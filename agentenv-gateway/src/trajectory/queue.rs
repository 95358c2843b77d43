//! Who writes, and when. Whoever adds an event also writes it, with whatever else is waiting, if the file is free and
//! quick: that costs no change of threads. Otherwise, and for everything that may take long (syncing, trying a full disk
//! again), the writer's own thread does. How lines are written is left to `writer`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, TryAcquireError};

use super::board::Board;
use super::storage::Storage;
use super::writer::{Item, Outcome, Writer};
use super::{Fsync, Options, Unavailable};

/// Room in the queue is counted in pieces of this many bytes.
const PIECE: usize = 256;

/// Room for so many events is kept for those that come next.
const ROOM: usize = 64;

/// A write that takes longer than this is slow.
const SLOW: Duration = Duration::from_millis(10);

/// So many slow writes, one after the other, have a slow disk behind them, and not only a busy machine: then no caller's
/// thread writes for a while.
const SLOW_IN_A_ROW: u32 = 3;

/// How long a disk counts as slow after its last slow write.
const SLOW_FOR: Duration = Duration::from_secs(1);

/// How often a disk that fails is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Most batches that one caller writes for others.
const ROUNDS: usize = 4;

/// So many writes in a row with one event only have nobody else behind them who writes at the same time.
const ALONE_IN_A_ROW: u32 = 8;

/// Company is then looked for each time that so many more have been written.
const TRY_FOR_COMPANY: u32 = 64;

#[derive(Default)]
struct Waiting {
    items: Vec<Item>,
    /// Room for those that come next, from those that were written last.
    room: Vec<Item>,
    closed: bool,
}

/// What the handle and the writer's thread share.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    room: Semaphore,
    /// How many pieces there are room for.
    pieces: u32,
    writer: Mutex<Writer>,
    pub(super) board: Arc<Board>,
    fsync: Fsync,
    callers_write: bool,
    /// A write is a system call, which is worth sharing.
    shares_writes: bool,
    slow_in_a_row: AtomicU32,
    /// How many writes in a row had one event only.
    alone_in_a_row: AtomicU32,
    /// The disk is slow now: callers do not write.
    slow: AtomicBool,
    /// Something was written that no sync has covered.
    dirty: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Queue {
    pub(super) fn new(writer: Writer, board: Arc<Board>, options: &Options) -> Self {
        let pieces = u32::try_from(options.queue_bytes / PIECE).unwrap_or(u32::MAX).max(1);
        let shares_writes = !board.tip.borrow().storage.is_held_in_memory();
        Self {
            waiting: Mutex::default(),
            room: Semaphore::new(pieces as usize),
            pieces,
            writer: Mutex::new(writer),
            shares_writes,
            board,
            fsync: options.fsync,
            callers_write: options.callers_write && options.fsync != Fsync::Always,
            slow_in_a_row: AtomicU32::new(0),
            alone_in_a_row: AtomicU32::new(0),
            slow: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    fn pieces(&self, item: &Item) -> u32 {
        // One that is bigger than the queue gets all of it.
        u32::try_from(item.event.size() / PIECE + 1).unwrap_or(u32::MAX).min(self.pieces)
    }

    /// Adds an event when there is room for it. It may be written after this has returned.
    pub(super) async fn add(&self, item: Item) -> Result<(), Unavailable> {
        self.room.acquire_many(self.pieces(&item)).await.map_err(|_| Unavailable::Closed)?.forget();
        let unwritten = self.put(item)?;
        if unwritten.is_some() && self.callers_write() && self.expects_company() {
            tokio::task::yield_now().await;
        }
        drop(unwritten);
        Ok(())
    }

    /// Adds an event if there is room for it now.
    pub(super) fn add_now(&self, item: Item) -> Result<(), Unavailable> {
        let room = self.room.try_acquire_many(self.pieces(&item)).map_err(|refused| match refused {
            TryAcquireError::NoPermits => Unavailable::Full,
            TryAcquireError::Closed => Unavailable::Closed,
        })?;
        room.forget();
        self.put(item).map(drop)
    }

    /// Puts an event behind those that are waiting. The first of them sees to the writing of all.
    fn put(&self, item: Item) -> Result<Option<Unwritten<'_>>, Unavailable> {
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return Err(Unavailable::Closed);
        }
        let is_first = waiting.items.is_empty();
        waiting.items.push(item);
        Ok(is_first.then(|| Unwritten(self)))
    }

    fn callers_write(&self) -> bool {
        self.callers_write && !self.slow.load(Ordering::Relaxed)
    }

    /// Whether letting other tasks go first is likely to bring more events for the same write. It costs a turn of the
    /// runtime, so it is tried seldom while it brings none.
    fn expects_company(&self) -> bool {
        let alone = self.alone_in_a_row.load(Ordering::Relaxed);
        self.shares_writes && (alone < ALONE_IN_A_ROW || alone.is_multiple_of(TRY_FOR_COMPANY))
    }

    /// Writes what is waiting unless somebody else does, who then looks again when done. Says whether all is done.
    fn write_here(&self) -> bool {
        for _ in 0..ROUNDS {
            if lock(&self.waiting).items.is_empty() {
                return true;
            }
            let mut writer = match self.writer.try_lock() {
                Ok(writer) => writer,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return true,
            };
            let start = Instant::now();
            self.write_waiting(&mut writer);
            drop(writer);
            if self.turned_slow(start.elapsed()) {
                return false;
            }
        }
        lock(&self.waiting).items.is_empty()
    }

    /// Takes note of how long a caller's write took.
    fn turned_slow(&self, took: Duration) -> bool {
        if took <= SLOW {
            if self.slow_in_a_row.load(Ordering::Relaxed) > 0 {
                self.slow_in_a_row.store(0, Ordering::Relaxed);
            }
            return false;
        }
        let turned = self.slow_in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= SLOW_IN_A_ROW;
        if turned {
            self.slow_in_a_row.store(0, Ordering::Relaxed);
            self.slow.store(true, Ordering::Relaxed);
        }
        turned
    }

    fn write_waiting(&self, writer: &mut Writer) {
        let mut items = {
            let mut waiting = lock(&self.waiting);
            if waiting.items.is_empty() {
                return;
            }
            let room = std::mem::take(&mut waiting.room);
            std::mem::replace(&mut waiting.items, room)
        };
        let alone =
            if items.len() > 1 { 0 } else { self.alone_in_a_row.load(Ordering::Relaxed).wrapping_add(1) };
        self.alone_in_a_row.store(alone, Ordering::Relaxed);
        let pieces = items.iter().map(|item| self.pieces(item) as usize).sum();
        writer.write(&mut items);
        if items.capacity() <= ROOM {
            lock(&self.waiting).room = items;
        }
        self.room.add_permits(pieces);
        let interval = matches!(self.fsync, Fsync::Interval(_));
        if (interval && !self.dirty.swap(true, Ordering::Relaxed)) || writer.is_failing() {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Takes no more events; the thread writes what is waiting and ends.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.room.close();
        self.wake();
    }

    /// Runs the writer's thread.
    pub(super) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let queue = Arc::clone(self);
        let thread = thread::Builder::new().name("trajectory".into()).spawn(move || queue.run())?;
        // Set before anyone has the handle, so that no wake is missed.
        let _ = self.thread.set(thread.thread().clone());
        Ok(())
    }

    fn run(&self) {
        let mut upkeep = Upkeep::default();
        loop {
            // Read before the last look at what waits: nothing is added after it is set.
            let closed = lock(&self.waiting).closed;
            let pause = self.turn(&mut upkeep, Instant::now());
            if closed {
                break;
            }
            match pause {
                Some(pause) => thread::park_timeout(pause),
                None => thread::park(),
            }
        }
        lock(&self.writer).give_up();
        if self.fsync != Fsync::Never {
            self.sync();
        }
        self.storage().release();
        self.board.tip.send_modify(|tip| tip.closed = true);
    }

    /// One look at everything that the thread sees to. Says when the next is due, if nobody wakes it before.
    fn turn(&self, upkeep: &mut Upkeep, now: Instant) -> Option<Duration> {
        let mut next: Option<Duration> = None;
        let mut due = |pause: Duration| next = Some(next.map_or(pause, |next| next.min(pause)));

        let mut writer = lock(&self.writer);
        let start = Instant::now();
        self.write_waiting(&mut writer);
        if start.elapsed() > SLOW {
            upkeep.slow_at = Some(now);
        }
        if writer.is_failing() {
            let tried = upkeep.tried_at.map(|at| now.saturating_duration_since(at));
            if tried.is_none_or(|ago| ago >= RETRY) {
                upkeep.tried_at = Some(now);
                writer.try_again();
            }
            if writer.is_failing() {
                due(RETRY);
            }
        }
        drop(writer);
        if !lock(&self.waiting).items.is_empty() {
            due(Duration::ZERO);
        }

        if self.slow.load(Ordering::Relaxed) {
            let slow_at = *upkeep.slow_at.get_or_insert(now);
            match SLOW_FOR.checked_sub(now.saturating_duration_since(slow_at)) {
                Some(left) if !left.is_zero() => due(left),
                _ => {
                    upkeep.slow_at = None;
                    self.slow.store(false, Ordering::Relaxed);
                }
            }
        }
        if let Fsync::Interval(interval) = self.fsync
            && self.dirty.load(Ordering::Relaxed)
        {
            let since = *upkeep.dirty_since.get_or_insert(now);
            match interval.checked_sub(now.saturating_duration_since(since)) {
                Some(left) if !left.is_zero() => due(left),
                _ => {
                    upkeep.dirty_since = None;
                    // Cleared first: what is written meanwhile waits for the next one.
                    self.dirty.store(false, Ordering::Relaxed);
                    self.sync();
                }
            }
        }
        next
    }

    fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.board.tip.borrow().storage)
    }

    fn sync(&self) {
        if let Err(error) = self.storage().sync() {
            self.board.set_health(|health| {
                if !std::mem::replace(&mut health.unsynced, true) {
                    tracing::error!(%error, "the trajectory did not reach the disk: a power cut may lose some of it");
                }
            });
        }
    }
}

/// What is waiting, in the hands of the first who put something there. Dropping this has all of it written, so that nothing
/// waits for ever whose caller has gone.
struct Unwritten<'a>(&'a Queue);

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        let queue = self.0;
        if !queue.callers_write() || !queue.write_here() {
            queue.wake();
        }
    }
}

/// What the thread remembers from one turn to the next.
#[derive(Default)]
struct Upkeep {
    dirty_since: Option<Instant>,
    tried_at: Option<Instant>,
    slow_at: Option<Instant>,
}

/// A panic elsewhere left nothing half done: see `writer`.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<Outcome> for Result<super::EventId, Unavailable> {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Written(id) => Ok(id),
            // Only what may be retained is.
            Outcome::Retained => Err(Unavailable::Closed),
            Outcome::Failed(unavailable) => Err(unavailable),
        }
    }
}

#[cfg(test)]
mod tests {
    use agentenv_protocol::json::ObjectWriter;
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::task::coop::unconstrained;

    use super::super::board::{Marks, Tip};
    use super::super::tests::disk::Disk;
    use super::super::tests::stamps;
    use super::super::writer::Otherwise;
    use super::super::{Event, Kind};
    use super::*;

    /// A queue whose thread does not run.
    fn on(disk: &Arc<Disk>, options: &Options) -> Queue {
        let tip = Tip { storage: disk.clone(), file: 0, len: 0, last: 0, closed: false };
        let board = Arc::new(Board::new(tip, Marks::default()));
        Queue::new(Writer::new(stamps(), Arc::clone(&board), options), board, options)
    }

    fn item(otherwise: Otherwise) -> Item {
        Item { event: Event::new(Kind::HttpRequest, ObjectWriter::with_capacity(0)), otherwise, done: None }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_written_is_synced_an_interval_later() {
        let disk = Disk::new();
        let queue = on(&disk, &Options { fsync: Fsync::Interval(2 * SECOND), ..Options::default() });
        let (mut upkeep, start) = (Upkeep::default(), Instant::now());
        assert_eq!(queue.turn(&mut upkeep, start), None);
        queue.add_now(item(Otherwise::Refuse)).unwrap();
        assert_eq!(queue.turn(&mut upkeep, start), Some(2 * SECOND));
        queue.add_now(item(Otherwise::Refuse)).unwrap();
        assert_eq!(queue.turn(&mut upkeep, start + SECOND), Some(SECOND));
        assert_eq!(disk.state().syncs, 0);
        assert_eq!(queue.turn(&mut upkeep, start + 2 * SECOND), None);
        assert_eq!(disk.state().syncs, 1);
        assert_eq!(disk.synced(), disk.text().len());
        assert_eq!(queue.turn(&mut upkeep, start + 9 * SECOND), None);
        assert_eq!(disk.state().syncs, 1);
    }

    #[test]
    fn what_is_never_synced_is_not() {
        let disk = Disk::new();
        let queue = on(&disk, &Options { fsync: Fsync::Never, ..Options::default() });
        queue.add_now(item(Otherwise::Refuse)).unwrap();
        assert_eq!(queue.turn(&mut Upkeep::default(), Instant::now()), None);
        queue.close();
        queue.run();
        assert_eq!(disk.state().syncs, 0);
    }

    #[test]
    fn who_writes_looks_again_for_what_came_meanwhile() {
        let disk = Disk::new();
        let queue = on(&disk, &Options { fsync: Fsync::Never, ..Options::default() });
        disk.set(|state| state.writes_allowed = Some(0));
        thread::scope(|scope| {
            let first = scope.spawn(|| queue.add_now(item(Otherwise::Refuse)));
            while disk.state().writes == 0 {
                thread::yield_now();
            }
            // Does not wait for the write that is going on.
            queue.add_now(item(Otherwise::Refuse)).unwrap();
            disk.set(|state| state.writes_allowed = None);
            first.join().unwrap().unwrap();
        });
        assert_eq!(disk.text().lines().count(), 2);
    }

    #[tokio::test]
    async fn those_who_come_together_are_written_together() {
        let disk = Disk::new();
        let queue = on(&disk, &Options { fsync: Fsync::Never, ..Options::default() });
        join_all((0..5).map(|_| queue.add(item(Otherwise::Refuse)))).await;
        assert_eq!(disk.state().writes, 1);
        assert_eq!(disk.text().lines().count(), 5);
        // Who comes alone time and again is kept waiting now and then only.
        let kept_waiting = (0..1000)
            .filter(|_| unconstrained(queue.add(item(Otherwise::Refuse))).now_or_never().is_none())
            .count();
        assert!((16..32).contains(&kept_waiting), "{kept_waiting}");
        join_all((0..500).map(|_| queue.add(item(Otherwise::Refuse)))).await;
        assert!(disk.state().writes < 1_200);
        assert_eq!(disk.text().lines().count(), 1_505);
    }

    #[tokio::test]
    async fn what_is_waiting_is_written_when_its_caller_goes() {
        let disk = Disk::new();
        let queue = on(&disk, &Options { fsync: Fsync::Never, ..Options::default() });
        let mut adding = Box::pin(queue.add(item(Otherwise::Refuse)));
        assert!((&mut adding).now_or_never().is_none());
        assert_eq!(disk.text(), "");
        drop(adding);
        assert_eq!(disk.text().lines().count(), 1);
    }

    #[test]
    fn a_slow_disk_is_left_to_the_thread_for_a_while() {
        let disk = Disk::new();
        let queue = on(&disk, &Options { fsync: Fsync::Never, ..Options::default() });
        let (mut upkeep, start) = (Upkeep::default(), Instant::now());
        for took in [2 * SLOW, 2 * SLOW, SLOW, 2 * SLOW, 2 * SLOW] {
            assert!(!queue.turned_slow(took));
        }
        assert_eq!(queue.turn(&mut upkeep, start), None);
        assert!(queue.turned_slow(2 * SLOW));
        assert_eq!(queue.turn(&mut upkeep, start), Some(SLOW_FOR));
        queue.add_now(item(Otherwise::Refuse)).unwrap();
        assert_eq!(disk.text(), "");
        assert_eq!(queue.turn(&mut upkeep, start + SLOW_FOR / 2), Some(SLOW_FOR / 2));
        assert_eq!(disk.text().lines().count(), 1);
        assert_eq!(queue.turn(&mut upkeep, start + SLOW_FOR), None);
        queue.add_now(item(Otherwise::Refuse)).unwrap();
        assert_eq!(disk.text().lines().count(), 2);
    }

    #[test]
    fn a_full_disk_is_tried_again_now_and_then() {
        let disk = Disk::new();
        let queue = on(&disk, &Options { fsync: Fsync::Never, ..Options::default() });
        let (mut upkeep, start) = (Upkeep::default(), Instant::now());
        disk.set(|state| state.room = Some(0));
        queue.add_now(item(Otherwise::Refuse)).unwrap();
        assert_eq!(queue.turn(&mut upkeep, start), Some(RETRY));
        disk.set(|state| state.room = Some(200_000));
        assert!(queue.board.health().failing.is_some());
        // Nothing is written, and yet it is known to be well.
        assert_eq!(queue.turn(&mut upkeep, start + RETRY), None);
        assert!(queue.board.health().is_good());
        assert_eq!(disk.text(), "");

        let start = start + 2 * RETRY;
        disk.set(|state| state.room = Some(0));
        queue.add_now(item(Otherwise::Retain(None))).unwrap();
        assert_eq!(queue.turn(&mut upkeep, start), Some(RETRY));
        let tries = disk.state().writes;
        assert_eq!(queue.turn(&mut upkeep, start + RETRY / 2), Some(RETRY));
        assert_eq!(disk.state().writes, tries);
        disk.set(|state| state.room = None);
        assert_eq!(queue.turn(&mut upkeep, start + RETRY), None);
        assert_eq!(disk.text().lines().count(), 1);
        assert!(queue.board.health().is_good());
    }
}
