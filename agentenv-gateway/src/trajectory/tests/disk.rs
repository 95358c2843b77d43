//! A disk that does what a test says.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::trajectory::storage::Storage;

#[derive(Default)]
pub(in crate::trajectory) struct Disk {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
pub(in crate::trajectory) struct State {
    pub(in crate::trajectory) bytes: Vec<u8>,
    /// Most bytes that fit.
    pub(in crate::trajectory) room: Option<usize>,
    /// Most bytes that one write takes.
    pub(in crate::trajectory) piece: Option<usize>,
    pub(in crate::trajectory) cannot_truncate: bool,
    pub(in crate::trajectory) cannot_sync: bool,
    /// How many bytes a power cut would leave.
    pub(in crate::trajectory) synced: usize,
    pub(in crate::trajectory) syncs: usize,
    /// How many writes have begun, and how many may end.
    pub(in crate::trajectory) writes: usize,
    pub(in crate::trajectory) writes_allowed: Option<usize>,
}

impl Disk {
    pub(in crate::trajectory) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(in crate::trajectory) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.moved.notify_all();
    }

    pub(in crate::trajectory) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(in crate::trajectory) fn synced(&self) -> usize {
        self.state().synced
    }

    pub(in crate::trajectory) fn text(&self) -> String {
        String::from_utf8(self.state().bytes.clone()).unwrap()
    }
}

impl Storage for Disk {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        state.writes += 1;
        let number = state.writes;
        self.moved.notify_all();
        let mut state = self
            .moved
            .wait_while(state, |state| state.writes_allowed.is_some_and(|most| number > most))
            .unwrap();
        let free = state.room.map_or(usize::MAX, |room| room.saturating_sub(state.bytes.len()));
        let count = bytes.len().min(free).min(state.piece.unwrap_or(usize::MAX));
        if count == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        state.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = self.state();
        let rest = state.bytes.get(position as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.cannot_truncate {
            return Err(ErrorKind::Other.into());
        }
        assert!(len as usize <= state.bytes.len(), "the file is made longer, with zeros");
        state.bytes.truncate(len as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.syncs += 1;
        if state.cannot_sync {
            return Err(ErrorKind::Other.into());
        }
        state.synced = state.bytes.len();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state().bytes.len() as u64)
    }
}
