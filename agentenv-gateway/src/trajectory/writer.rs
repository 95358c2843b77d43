//! Giving ids and writing lines: the one owner of the file's end. Whole lines or none, whatever the disk does. When it
//! is asked to is left to `queue`.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use agentenv_protocol::json::ObjectWriter;
use tokio::sync::oneshot;

use super::board::{Board, Marks};
use super::event::{Event, EventId, Kind, Stamp};
use super::storage::{Place, Storage, line_end_before};
use super::{Fsync, Options, Unavailable};

/// Most bytes of lines that are put together for one write, unless one line alone is longer.
const BATCH_BYTES: usize = 1 << 20;

/// Most events that are kept in memory for a disk to come back.
const RETAINED_EVENTS: usize = 65_536;

/// Bytes that must fit before a disk that failed counts as one that can be written.
const PROBE_BYTES: usize = 64 << 10;

/// What gives an event its time.
pub(super) type StampFn = Arc<dyn Fn() -> Stamp + Send + Sync>;

/// What becomes of an event that cannot be written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Otherwise {
    /// It is refused: what it tells of has not happened yet.
    Refuse,
    /// It is kept and written when the disk is back, since it has happened; if it closes a call and is too big to keep,
    /// a short `tool_call_failed` takes its place.
    Retain(Option<EventId>),
}

/// An event on its way.
pub(super) struct Item {
    pub(super) event: Event,
    pub(super) otherwise: Otherwise,
    /// Who waits for it.
    pub(super) done: Option<oneshot::Sender<Outcome>>,
}

/// What became of an event.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Written(EventId),
    Retained,
    Failed(Unavailable),
}

impl Item {
    fn tell(self, outcome: Outcome) {
        if let Some(done) = self.done {
            // Nobody waits any more: what is written stays written.
            let _ = done.send(outcome);
        }
    }
}

/// The end of the file.
pub(super) struct Writer {
    storage: Arc<dyn Storage>,
    stamp: StampFn,
    board: Arc<Board>,
    file: u32,
    len: u64,
    last: u64,
    /// Bytes of a line that could not be cut off again lie behind `len`.
    torn: bool,
    /// What is behind `len` next begins with a line end, since somebody else's bytes have none.
    unended: bool,
    /// The last write failed.
    failing: bool,
    /// A sync failed, so that no later one can be believed.
    unsynced: bool,
    fsync: Fsync,
    retained: VecDeque<Event>,
    retained_bytes: usize,
    retained_most: usize,
    lines: Vec<u8>,
    ends: Vec<usize>,
}

impl Writer {
    pub(super) fn new(stamp: StampFn, board: Arc<Board>, options: &Options) -> Self {
        let tip = board.tip.borrow().clone();
        if options.fsync != Fsync::Never {
            tip.storage.sync_name();
        }
        Self {
            storage: tip.storage,
            stamp,
            board,
            file: tip.file,
            len: tip.len,
            last: tip.last,
            torn: false,
            unended: false,
            failing: false,
            unsynced: false,
            fsync: options.fsync,
            retained: VecDeque::new(),
            retained_bytes: 0,
            retained_most: options.retained_bytes,
            lines: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Writes what is kept, then these, and tells those who wait. An event is told of only when it is in the file.
    pub(super) fn write(&mut self, items: &mut Vec<Item>) {
        // The order of what happened is kept: nothing overtakes what is waiting for the disk.
        let mut failure = self.write_retained().err();
        let mut rest = items.drain(..);
        while failure.is_none() && !rest.as_slice().is_empty() {
            let first = self.last + 1;
            let (written, error) = self.write_events(rest.as_slice().iter().map(|item| &item.event));
            failure = error;
            if failure.is_none() {
                // Whoever is told of a success must find that all is well.
                self.recovered();
            }
            for (item, id) in rest.by_ref().take(written).zip(first..) {
                item.tell(Outcome::Written(EventId(id)));
            }
        }
        let Some(failure) = failure else {
            return self.recovered();
        };
        for item in rest {
            self.put_off(item, &failure);
        }
    }

    /// Tries a disk that failed again: with what is kept for it, or else with blanks, which do not stay.
    pub(super) fn try_again(&mut self) {
        if !self.retained.is_empty() {
            self.write(&mut Vec::new());
        } else if self.failing && self.probe().is_ok() {
            self.recovered();
        }
    }

    /// Whether to [`try_again`](Self::try_again) later.
    pub(super) fn is_failing(&self) -> bool {
        (self.failing && !self.unsynced) || !self.retained.is_empty()
    }

    fn probe(&mut self) -> io::Result<()> {
        self.look()?;
        self.lines.clear();
        self.lines.resize(PROBE_BYTES, b' ');
        let (_, error) = self.write_lines();
        // Without a newline they are a torn line, should this be the end.
        let cut = self.storage.truncate(self.len);
        self.torn = cut.is_err();
        error.map_or(cut, Err)
    }

    fn recovered(&mut self) {
        if std::mem::take(&mut self.failing) {
            tracing::info!("the trajectory can be written again");
            self.board.set_health(|health| health.failing = None);
        }
    }

    /// Tries a last time to write what is kept.
    pub(super) fn give_up(&mut self) {
        self.try_again();
        if !self.retained.is_empty() {
            tracing::error!(events = self.retained.len(), "the last events of the trajectory are lost");
            let lost = self.retained.len() as u64;
            self.board.set_health(|health| health.lost += lost);
        }
    }

    fn write_retained(&mut self) -> Result<(), Unavailable> {
        while !self.retained.is_empty() {
            let retained = std::mem::take(&mut self.retained);
            let (written, error) = self.write_events(retained.iter());
            self.retained = retained;
            for event in self.retained.drain(..written) {
                self.retained_bytes -= event.size();
            }
            self.report_retained();
            if let Some(error) = error {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Lays an event aside, or refuses it.
    fn put_off(&mut self, item: Item, failure: &Unavailable) {
        let Otherwise::Retain(call) = item.otherwise else {
            return item.tell(Outcome::Failed(failure.clone()));
        };
        let fits = self.retained_bytes + item.event.size() <= self.retained_most;
        let kept = match call {
            _ if fits => Some(item.event.clone()),
            Some(call) => Some(failed_call(call, "the result could not be recorded")),
            None => None,
        };
        let outcome = match kept {
            Some(event) if self.retained.len() < RETAINED_EVENTS => {
                self.retained_bytes += event.size();
                self.retained.push_back(event);
                self.report_retained();
                Outcome::Retained
            }
            _ => {
                tracing::error!(
                    event_type = item.event.kind().as_str(),
                    "an event of the trajectory is lost"
                );
                self.board.set_health(|health| health.lost += 1);
                Outcome::Failed(failure.clone())
            }
        };
        item.tell(outcome);
    }

    fn report_retained(&self) {
        self.board.set_health(|health| health.retained = self.retained.len());
    }

    /// Writes the first of these that make a batch. Says how many are in the file now, and what kept the others out.
    fn write_events<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> (usize, Option<Unavailable>) {
        let outcome = self.look().and_then(|()| self.make_lines(events)).map_or_else(
            |error| (0, Some(error)),
            |()| {
                let (bytes, error) = self.write_lines();
                self.settle(self.ends.partition_point(|end| *end <= bytes), error)
            },
        );
        if self.lines.capacity() > 2 * BATCH_BYTES {
            self.lines = Vec::new();
        }
        (outcome.0, outcome.1.map(|error| self.report(error)))
    }

    fn make_lines<'a>(&mut self, events: impl Iterator<Item = &'a Event>) -> io::Result<()> {
        if self.unsynced {
            return Err(io::Error::other("an earlier write did not reach the disk; restart on a sound one"));
        }
        self.lines.clear();
        self.ends.clear();
        if self.unended {
            self.lines.push(b'\n');
        }
        let stamp = (self.stamp)();
        for (event, id) in events.zip(self.last + 1..) {
            event.write_line(id, &stamp, &mut self.lines);
            self.ends.push(self.lines.len());
            if self.lines.len() >= BATCH_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Gets the lines into the file as far as it goes.
    fn write_lines(&mut self) -> (usize, Option<io::Error>) {
        let mut written = 0;
        while written < self.lines.len() {
            match self.storage.append(&self.lines[written..]) {
                Ok(0) => return (written, Some(ErrorKind::WriteZero.into())),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (written, Some(error)),
            }
        }
        (written, None)
    }

    /// Cuts off what is not a whole line, and lets the readers see the rest.
    fn settle(&mut self, mut whole: usize, mut error: Option<io::Error>) -> (usize, Option<io::Error>) {
        if error.is_none()
            && self.fsync == Fsync::Always
            && let Err(failed) = self.storage.sync()
        {
            // Nothing that was written since the last time can be counted on, nor can it be tried again: the system
            // may have forgotten it and say that all is well.
            whole = 0;
            error = Some(failed);
            self.unsynced = true;
            self.board.set_health(|health| health.unsynced = true);
        }
        let end = |whole: usize| whole.checked_sub(1).map_or(0, |at| self.ends[at]) as u64;
        let len = self.len + end(whole);
        if error.is_some() {
            self.torn = self.storage.truncate(len).is_err();
        }
        if whole > 0 {
            self.board.marks(|marks| {
                for (at, id) in (0..whole).zip(self.last + 1..) {
                    marks.note(id, self.len + end(at));
                }
            });
            self.unended = false;
            self.len = len;
            self.last += whole as u64;
            self.publish();
        }
        (whole, error)
    }

    fn publish(&self) {
        let tips = &self.board.tip;
        tips.send_if_modified(|tip| {
            if tip.file != self.file {
                tip.file = self.file;
                tip.storage = Arc::clone(&self.storage);
            }
            tip.len = self.len;
            tip.last = self.last;
            // Who looks for the first time only now finds it without being told; telling nobody takes time, too.
            tips.receiver_count() > 0
        });
    }

    /// Makes sure that the file is the one that was written last time, and ends where that ended. Others may have cut
    /// it, removed it or written to it; what is told of from now on must be found in it none the less.
    fn look(&mut self) -> io::Result<()> {
        match self.storage.look()? {
            Place::Here(len) if len == self.len => self.torn = false,
            Place::Here(len) if len > self.len && self.torn => {
                self.storage.truncate(self.len)?;
                self.torn = false;
            }
            Place::Here(len) if len > self.len => {
                tracing::warn!(bytes = len - self.len, "somebody else wrote to the trajectory");
                self.unended = line_end_before(&*self.storage, len)? != len;
                self.len = len;
            }
            Place::Here(len) => {
                let end = line_end_before(&*self.storage, len)?;
                self.storage.truncate(end)?;
                tracing::error!(bytes = self.len - end, "somebody cut the trajectory: events are gone");
                self.board.set_health(|health| health.tampered = true);
                self.board.marks(|marks| marks.cut(end));
                (self.len, self.torn, self.unended) = (end, false, false);
                self.publish();
            }
            Place::Gone => {
                self.storage = self.storage.reopen()?;
                if self.fsync != Fsync::Never {
                    self.storage.sync_name();
                }
                tracing::error!(
                    last_event = self.last,
                    "somebody removed the trajectory: a new file goes on with it"
                );
                self.board.set_health(|health| health.tampered = true);
                self.board.marks(|marks| *marks = Marks::default());
                self.file += 1;
                (self.len, self.torn, self.unended) = (0, false, false);
                self.publish();
            }
        }
        Ok(())
    }

    /// Says once that the disk fails.
    fn report(&mut self, error: io::Error) -> Unavailable {
        let unavailable = Unavailable::Disk(Arc::new(error));
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(error = %unavailable, "the trajectory cannot be written: calls are refused");
        }
        self.board.set_health(|health| health.failing = Some(unavailable.to_string()));
        unavailable
    }
}

/// What closes a call whose result is not known, or not kept.
pub(super) fn failed_call(call: EventId, error: &str) -> Event {
    let members = ObjectWriter::with_capacity(128)
        .field("tool_call_event_id", &call)
        .field("error", error)
        .raw("changelog_id_before", "null")
        .raw("changelog_id", "null");
    Event::new(Kind::ToolCallFailed, members)
}
