//! Event streams: writing one, and reading one that arrives in pieces.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

/// An event that carries one JSON message, which holds no line breaks.
pub(crate) fn event(message: &[u8]) -> Bytes {
    let mut event = BytesMut::with_capacity(message.len() + 24);
    event.put_slice(b"event: message\ndata: ");
    event.put_slice(message);
    event.put_slice(b"\n\n");
    event.freeze()
}

/// Takes an event stream apart as it comes. Comments, names, ids and retry times are passed over.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// What has come of a line that is not ended yet.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
}

impl Reader {
    /// Takes the next bytes and gives the data of each event that they end.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(at);
            if self.line.is_empty() {
                self.end_line(Cow::Borrowed(line), &mut events);
            } else {
                self.line.extend_from_slice(line);
                let line = std::mem::take(&mut self.line);
                self.end_line(Cow::Owned(line), &mut events);
            }
            self.after_cr = rest == b"\r";
            bytes = rest.strip_prefix(b"\r\n").unwrap_or(&rest[1..]);
        }
        self.line.extend_from_slice(bytes);
        events
    }

    /// How many bytes are held back.
    pub(crate) fn held(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn end_line(&mut self, line: Cow<'_, [u8]>, events: &mut Vec<Vec<u8>>) {
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            if std::mem::take(&mut self.has_data) && !data.is_empty() {
                events.push(data);
            }
            return;
        }
        let start = match line.strip_prefix(b"data") {
            Some([]) => line.len(),
            Some([b':', b' ', ..]) => 6,
            Some([b':', ..]) => 5,
            _ => return,
        };
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
            self.data.extend_from_slice(&line[start..]);
        } else {
            // Most events have one line, which may be large: it is kept where it is.
            self.data = line.into_owned();
            self.data.drain(..start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let mut reader = Reader::default();
        assert_eq!(reader.push(&event(b"{}")), [b"{}".to_vec()]);
        assert_eq!(reader.held(), 0);
    }

    #[test]
    fn reads_every_form_in_any_pieces() {
        let stream = b": hi\r\ndatax: no\r\nid: 1\r\nevent: message\r\ndata: a\r\ndata:b\r\n\r\ndata\r\n\r\nretry: 5\n\ndata: c\r\rdata: d\n";
        let want = [b"a\nb".to_vec(), b"c".to_vec()];
        for size in 1..stream.len() {
            let mut reader = Reader::default();
            let got: Vec<_> = stream.chunks(size).flat_map(|chunk| reader.push(chunk)).collect();
            assert_eq!(got, want, "in pieces of {size}");
        }
    }
}
