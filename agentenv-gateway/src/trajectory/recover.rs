//! Reading what an earlier life left in the file: where it ends, how far it counted, which calls it left open. Closing
//! them is left to the trajectory.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::board::Marks;
use super::event::{EventId, Kind};
use super::storage::Storage;

/// Longest line that is read; more than any that is written (contract 10 bounds what a line is made of).
const MAX_LINE: u64 = 512 << 20;

/// What a file held.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Where it ends, in bytes.
    pub(super) len: u64,
    /// Number of the last event, or 0.
    pub(super) last: u64,
    pub(super) marks: Marks,
    /// Calls without a result, in their order.
    pub(super) open_calls: BTreeSet<EventId>,
    /// Bytes of a line that was cut off.
    torn: usize,
    /// Lines that are no events.
    unreadable: u64,
}

/// Why a file cannot be gone on with.
#[derive(Debug)]
pub(super) enum Unfit {
    /// It holds something else.
    NotATrajectory,
    /// It cannot be read or mended.
    Io(io::Error),
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What is read of an event. The borrowed texts hold no escapes in any line that a gateway writes.
#[derive(Deserialize)]
pub(super) struct Head<'a> {
    #[serde(default)]
    event_type: &'a str,
    event_id: &'a str,
    #[serde(default)]
    tool_call_event_id: Option<&'a str>,
}

impl<'a> Head<'a> {
    pub(super) fn of(line: &'a [u8]) -> Option<(Self, EventId)> {
        let head: Self = serde_json::from_slice(line).ok()?;
        let id = head.event_id.parse().ok()?;
        Some((head, id))
    }
}

/// Reads the whole file and mends its end: a last line without its newline is completed when it is an event, and cut
/// off otherwise, a copy of it going into a file beside it.
pub(super) fn recover(storage: &dyn Storage, path: &Path) -> Result<Found, Unfit> {
    let mut found = Found::default();
    let mut lines = BufReader::with_capacity(256 << 10, FromStart { storage, position: 0 });
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        let first = found.len == 0;
        let whole = line.last() == Some(&b'\n');
        if !whole && read as u64 == MAX_LINE {
            return Err(Unfit::NotATrajectory);
        }
        match Head::of(&line) {
            Some((head, id)) => {
                if !whole {
                    storage.append(b"\n")?;
                }
                found.marks.note(id.number(), found.len);
                found.add(&head, id);
                found.len += read as u64 + u64::from(!whole);
            }
            // Nothing that is not ours is cut.
            None if first && !begins_like_ours(&line) => return Err(Unfit::NotATrajectory),
            None if whole => {
                found.unreadable += 1;
                found.len += read as u64;
            }
            None => {
                found.torn = read;
                keep_copy(&line, path);
                storage.truncate(found.len)?;
                break;
            }
        }
    }
    found.report();
    Ok(found)
}

impl Found {
    fn add(&mut self, head: &Head<'_>, id: EventId) {
        self.last = self.last.max(id.number());
        let call = head.tool_call_event_id.and_then(|call| call.parse::<EventId>().ok());
        match Kind::named(head.event_type) {
            Some(Kind::ToolCall) => {
                self.open_calls.insert(id);
            }
            Some(Kind::ToolCallResult | Kind::ToolCallFailed) => {
                if let Some(call) = call {
                    self.open_calls.remove(&call);
                }
            }
            _ => {}
        }
    }

    fn report(&self) {
        if self.torn == 0 && self.open_calls.is_empty() && self.unreadable == 0 {
            return;
        }
        tracing::warn!(
            event = "trajectory_recovered",
            torn_bytes = self.torn,
            open_calls = self.open_calls.len(),
            unreadable_lines = self.unreadable,
            last_event = self.last,
            "the trajectory of an earlier life was mended"
        );
    }
}

/// Whether this may be the beginning of a trajectory that a crash cut short, that a power cut left as zeros, or what a
/// full disk was probed with.
fn begins_like_ours(line: &[u8]) -> bool {
    let start = b"{\"event_type\"";
    let common = line.len().min(start.len());
    line[..common] == start[..common] || line.iter().all(|byte| matches!(byte, 0 | b' '))
}

/// The file that torn lines are copied into.
pub(super) fn torn_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".torn");
    name.into()
}

/// Keeps what is about to be cut off. It was never acknowledged, so failing to is no reason not to start.
fn keep_copy(line: &[u8], path: &Path) {
    let copy = || -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(torn_path(path))?;
        file.write_all(line)?;
        file.write_all(b"\n")
    };
    if let Err(error) = copy() {
        tracing::error!(%error, bytes = line.len(), "the torn last line of the trajectory could not be kept");
    }
}

/// Reads a storage from its start.
struct FromStart<'a> {
    storage: &'a dyn Storage,
    position: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.storage.read_at(buffer, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}
