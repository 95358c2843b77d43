//! What the writer tells the rest, so that nobody has to wait for it to know: how far the file is written, where its
//! events stand, how it is.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::storage::Storage;
use super::{EventId, Health};

/// Distance between two places in the file whose event is remembered.
const MARK_EVERY: u64 = 1 << 20;

/// How far the trajectory is written, for readers: always the end of a line.
#[derive(Clone)]
pub(super) struct Tip {
    pub(super) storage: Arc<dyn Storage>,
    /// Which file it is: one more each time that one had to be begun anew.
    pub(super) file: u32,
    /// In bytes.
    pub(super) len: u64,
    /// Number of the last event, or 0.
    pub(super) last: u64,
    /// Nothing will be added any more.
    pub(super) closed: bool,
}

impl fmt::Debug for Tip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tip").field("len", &self.len).field("last", &self.last).finish_non_exhaustive()
    }
}

/// Where some of the events stand, so that any is found by reading little.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks(Vec<(u64, u64)>);

impl Marks {
    /// Takes note of where an event's line begins, if the last note is far enough away. Events come in their order.
    pub(super) fn note(&mut self, id: u64, position: u64) {
        if self.0.last().is_none_or(|(_, last)| position.saturating_sub(*last) >= MARK_EVERY) {
            self.0.push((id, position));
        }
    }

    /// Where to begin to look for what is behind an event.
    pub(super) fn before(&self, after: EventId) -> u64 {
        let behind = self.0.partition_point(|(id, _)| *id <= after.number().saturating_add(1));
        behind.checked_sub(1).map_or(0, |at| self.0[at].1)
    }

    /// Forgets what is behind a length.
    pub(super) fn cut(&mut self, len: u64) {
        self.0.retain(|(_, position)| *position < len);
    }
}

/// See the module.
pub(super) struct Board {
    pub(super) tip: watch::Sender<Tip>,
    health: Mutex<Health>,
    marks: Mutex<Marks>,
}

impl Board {
    pub(super) fn new(tip: Tip, marks: Marks) -> Self {
        Self { tip: watch::Sender::new(tip), health: Mutex::default(), marks: Mutex::new(marks) }
    }

    pub(super) fn health(&self) -> Health {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_health(&self, change: impl FnOnce(&mut Health)) {
        change(&mut self.health.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn marks<T>(&self, use_them: impl FnOnce(&mut Marks) -> T) -> T {
        use_them(&mut self.marks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lead_to_a_place_before_what_is_looked_for() {
        let mut marks = Marks::default();
        for id in 1..=100 {
            marks.note(id, (id - 1) * 100_000);
        }
        assert!(marks.0.len() > 5 && marks.0.len() < 12, "{marks:?}");
        for after in 0..=120 {
            let place = marks.before(EventId(after));
            assert!(place <= after * 100_000, "{after}: {place}");
            assert!(after * 100_000 - place < MARK_EVERY + 2_200_000, "{after}: {place}");
        }
        marks.cut(0);
        assert_eq!(marks.before(EventId(50)), 0);
    }
}
