//! The pieces of an HTTP message: its head and its body put together on their way to a socket, and those of a body that
//! comes.

use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

/// Most bytes that are put together.
const SMALL: usize = 2048;

/// Pieces that are small together, as one: the system takes one buffer for less than it takes several.
pub(crate) struct Joined {
    bytes: [u8; SMALL],
    len: usize,
}

impl Joined {
    /// `None` where they are so large that putting them together costs more than it saves.
    pub(crate) fn of(pieces: &[IoSlice<'_>]) -> Option<Self> {
        let mut joined = Self { bytes: [0; SMALL], len: 0 };
        for piece in pieces {
            let end = joined.len + piece.len();
            joined.bytes.get_mut(joined.len..end)?.copy_from_slice(piece);
            joined.len = end;
        }
        Some(joined)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Why a body is not there as a whole.
pub(crate) enum Ungathered<E> {
    /// It is longer than its limit.
    TooLarge,
    /// It broke.
    Broken(E),
}

/// A body of at most `limit` bytes. Never holds more; what comes in one piece is not copied.
pub(crate) async fn gather<B>(body: &mut B, limit: usize) -> Result<Bytes, Ungathered<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let lower = body.size_hint().lower();
    if lower > limit as u64 {
        return Err(Ungathered::TooLarge);
    }
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Ungathered::Broken)?.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(Ungathered::TooLarge);
        }
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.reserve(usize::try_from(lower).unwrap_or(0).max(first.len() + data.len()));
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_small_is_put_together() {
        let joined = |pieces: &[&[u8]]| {
            let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            Joined::of(&pieces).map(|joined| joined.bytes().to_vec())
        };
        assert_eq!(joined(&[b"head ", b"", b"body"]).unwrap(), b"head body");
        assert_eq!(joined(&[]).unwrap(), b"");
        assert_eq!(joined(&[&[b'x'; SMALL - 1], b"y"]).unwrap().len(), SMALL);
        assert!(joined(&[&[b'x'; SMALL], b"y"]).is_none());
    }
}
