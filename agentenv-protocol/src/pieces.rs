//! The pieces of an HTTP message, its head and its body, on their way to a socket.

use std::io::IoSlice;

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
