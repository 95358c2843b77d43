//! Reading the trajectory while it is written: always whole lines, a piece at a time. What HTTP makes of it is left to
//! `http`.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use memchr::memchr;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::EventId;
use super::board::{Board, Tip};
use super::recover::Head;
use super::storage::Storage;

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

/// A part of the trajectory, about to be streamed.
#[derive(Debug)]
pub struct Reading<S> {
    /// Size of the whole trajectory when the reading began, in bytes (`X-Trajectory-Total-Bytes`).
    pub total_bytes: u64,
    /// How many bytes the stream will give; `None` when it goes on as events are written.
    pub body_bytes: Option<u64>,
    /// The lines, in pieces that need not end where lines do; all of them together do.
    pub lines: S,
}

pub(super) async fn read(
    board: &Board,
    after: Option<EventId>,
    follow: bool,
) -> io::Result<Reading<impl Stream<Item = io::Result<Bytes>> + Send + 'static>> {
    let tips = board.tip.subscribe();
    let tip = tips.borrow().clone();
    let start = match after {
        None => 0,
        Some(after) if after.number() >= tip.last => tip.len,
        Some(after) => {
            let (mark, tip) = (board.marks(|marks| marks.before(after)), tip.clone());
            blocking(move || line_behind(&*tip.storage, mark, tip.len, after)).await?
        }
    };
    let reader = Reader {
        // Of one that is followed from an event that is yet to come, those before it are left out.
        skip: after.filter(|after| after.number() > tip.last),
        tips: follow.then_some(tips),
        position: start,
        end: tip.len,
        tip,
    };
    Ok(Reading {
        total_bytes: reader.tip.len,
        body_bytes: (!follow).then(|| reader.end - start),
        lines: stream::try_unfold(reader, |mut reader| async move {
            Ok(reader.next().await?.map(|piece| (piece, reader)))
        }),
    })
}

struct Reader {
    /// There when the end moves on.
    tips: Option<watch::Receiver<Tip>>,
    tip: Tip,
    position: u64,
    end: u64,
    skip: Option<EventId>,
}

impl Reader {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while self.position >= self.end {
            if !self.move_on().await? {
                return Ok(None);
            }
        }
        let want = usize::try_from(self.end - self.position).unwrap_or(PIECE).min(PIECE);
        let (storage, position) = (Arc::clone(&self.tip.storage), self.position);
        let piece = blocking(move || read_piece(&*storage, position, want)).await?;
        self.position += piece.len() as u64;
        Ok(Some(piece))
    }

    /// Waits for the end to move. Says whether it may.
    async fn move_on(&mut self) -> io::Result<bool> {
        let Some(tips) = &mut self.tips else { return Ok(false) };
        if self.tip.closed || tips.changed().await.is_err() {
            return Ok(false);
        }
        let tip = tips.borrow_and_update().clone();
        if tip.file != self.tip.file {
            // What was last written to the file that is gone comes first.
            let storage = Arc::clone(&self.tip.storage);
            let rest = blocking(move || storage.len()).await?;
            if rest > self.position {
                self.end = rest;
                tips.mark_changed();
                return Ok(true);
            }
            self.position = 0;
        }
        if tip.len < self.position {
            // Somebody cut it: what follows is not what came after what was read.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(after) = self.skip {
            let (tip, from) = (tip.clone(), self.position);
            let last = tip.last;
            self.position = blocking(move || line_behind(&*tip.storage, from, tip.len, after)).await?;
            self.skip = self.skip.filter(|after| after.number() > last);
        }
        self.end = tip.len;
        self.tip = tip;
        Ok(true)
    }
}

/// Reading may wait for a disk, which no task must.
async fn blocking<T: Send + 'static>(read: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(read).await.map_err(io::Error::other)?
}

/// Reads some bytes, at least one. That there are none, although they were written, is an error and no end.
fn read_piece(storage: &dyn Storage, position: u64, want: usize) -> io::Result<Bytes> {
    let mut piece = vec![0; want];
    loop {
        match storage.read_at(&mut piece, position) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                piece.truncate(read);
                return Ok(piece.into());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Where the first line begins whose id is behind this one, looking from the start of a line on.
fn line_behind(storage: &dyn Storage, from: u64, end: u64, after: EventId) -> io::Result<u64> {
    let mut start = from;
    let mut line: Vec<u8> = Vec::new();
    let mut position = from;
    while position < end {
        let want = usize::try_from(end - position).unwrap_or(PIECE).min(PIECE);
        let piece = read_piece(storage, position, want)?;
        position += piece.len() as u64;
        let mut rest = &piece[..];
        while let Some(line_end) = memchr(b'\n', rest) {
            line.extend_from_slice(&rest[..line_end]);
            if Head::of(&line).is_some_and(|(_, id)| id > after) {
                return Ok(start);
            }
            start += line.len() as u64 + 1;
            line.clear();
            rest = &rest[line_end + 1..];
        }
        line.extend_from_slice(rest);
    }
    Ok(end)
}
