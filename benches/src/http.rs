//! HTTP/1.1 as a load generator needs it: request bytes made beforehand, answers read no further than to their end. It
//! knows nothing of MCP.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use bytes::Bytes;
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The most that an answer's head may hold.
const HEAD_LIMIT: usize = 64 << 10;

/// The most that is read of one answer; what is larger goes through [`drain`].
const ANSWER_LIMIT: usize = 64 << 20;

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Bytes {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if method != "GET" {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into()
}

/// An answer, as it lies in the connection's buffer.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    head: &'a [u8],
    body: &'a [u8],
    framing: Framing,
}

impl Answer<'_> {
    /// The body, still in its chunks if it came in any: enough to look for a few words in.
    pub(crate) fn raw_body(&self) -> &[u8] {
        self.body
    }

    /// The body's text.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        let bytes = match self.framing {
            Framing::Length(_) => self.body.to_vec(),
            Framing::Chunked => unchunk(self.body).context("the chunks make no sense")?,
        };
        Ok(String::from_utf8(bytes)?)
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// One connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(16 << 10) })
    }

    /// Sends a request and reads its answer whole.
    pub(crate) async fn call(&mut self, request: &[u8]) -> anyhow::Result<Answer<'_>> {
        self.buffer.clear();
        self.stream.write_all(request).await?;
        let (head_end, status, framing) = loop {
            self.fill().await?;
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                let head = &self.buffer[..end];
                break (end + 4, status(head)?, framing(head)?);
            }
            if self.buffer.len() > HEAD_LIMIT {
                bail!("an answer's head is too large");
            }
        };
        let mut chunk = head_end;
        loop {
            let whole = match framing {
                Framing::Length(length) => self.buffer.len() >= head_end + length,
                Framing::Chunked => chunks_end(&self.buffer, &mut chunk)?,
            };
            if whole {
                break;
            }
            if self.buffer.len() > ANSWER_LIMIT {
                bail!("an answer is too large");
            }
            self.fill().await?;
        }
        let (head, body) = self.buffer.split_at(head_end);
        Ok(Answer { status, head, body, framing })
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the connection was closed before the answer's end");
        }
        Ok(())
    }
}

/// One request on a connection of its own.
pub(crate) async fn once(address: SocketAddr, request: &[u8]) -> anyhow::Result<(u16, String)> {
    let mut connection = Connection::open(address).await?;
    let answer = connection.call(request).await?;
    Ok((answer.status, answer.text()?))
}

/// `GET` of a long answer that is thrown away as it comes: how many bytes it had, chunk marks and head included.
pub(crate) async fn drain(address: SocketAddr, path: &str) -> anyhow::Result<u64> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&request("GET", path, &[("Connection", "close")], "")).await?;
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let read = stream.read(&mut buffer).await?;
        if total == 0 && status(&buffer[..read])? != 200 {
            bail!("{path} answered {}", String::from_utf8_lossy(&buffer[..read.min(300)]));
        }
        if read == 0 {
            return Ok(total);
        }
        total += u64::try_from(read)?;
    }
}

fn status(head: &[u8]) -> anyhow::Result<u16> {
    let digits = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).context("no status line")
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    lines
        .filter_map(|line| std::str::from_utf8(line).ok()?.split_once(':'))
        .find_map(|(found, value)| found.eq_ignore_ascii_case(name).then(|| value.trim()))
}

fn framing(head: &[u8]) -> anyhow::Result<Framing> {
    if let Some(length) = header(head, "content-length") {
        return Ok(Framing::Length(length.parse()?));
    }
    if header(head, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return Ok(Framing::Chunked);
    }
    match status(head)? {
        204 | 304 => Ok(Framing::Length(0)),
        _ => bail!("an answer without a length"),
    }
}

/// A chunk at the start of the bytes: where its data begins and how long that is. `None` while it is not all there.
fn chunk(bytes: &[u8]) -> anyhow::Result<Option<(usize, usize)>> {
    let Some(line) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
    let size = std::str::from_utf8(&bytes[..line])?.split(';').next().unwrap_or_default().trim();
    let size = usize::from_str_radix(size, 16).context("a chunk's size")?;
    Ok((bytes.len() >= line + 1 + size + 2).then_some((line + 1, size)))
}

/// Whether the last chunk is there; `at` is where the first one that was not whole yet begins.
fn chunks_end(buffer: &[u8], at: &mut usize) -> anyhow::Result<bool> {
    while let Some((start, size)) = chunk(&buffer[*at..])? {
        *at += start + size + 2;
        if size == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unchunk(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::with_capacity(bytes.len());
    loop {
        let (start, size) = chunk(bytes).ok()??;
        if size == 0 {
            return Some(data);
        }
        data.extend_from_slice(bytes.get(start..start + size)?);
        bytes = bytes.get(start + size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn chunks_are_whole_only_with_their_last() {
        let whole = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n";
        for cut in 0..whole.len() {
            assert!(!chunks_end(&whole[..cut], &mut 0).unwrap(), "{cut}");
        }
        let mut at = 0;
        assert!(chunks_end(whole, &mut at).unwrap());
        assert_eq!(at, whole.len());
        assert_eq!(unchunk(whole).unwrap(), b"hello world");
        assert!(chunks_end(b"zz\r\n", &mut 0).is_err());
    }

    #[test]
    fn heads_are_read() {
        let head = b"HTTP/1.1 202 Accepted\r\nMcp-Session-Id:  a b \r\nCONTENT-LENGTH: 12\r\n";
        assert_eq!(status(head).unwrap(), 202);
        assert_eq!(header(head, "mcp-session-id"), Some("a b"));
        assert_eq!(framing(head).unwrap(), Framing::Length(12));
        assert!(framing(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(status(b"HTTP").is_err());
    }

    #[tokio::test]
    async fn answers_in_pieces_are_put_together_and_the_connection_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 512];
            for answer in [
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
                "HTTP/1.1 404 X\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
            ] {
                assert!(stream.read(&mut request).await.unwrap() > 0);
                for byte in answer.as_bytes() {
                    stream.write_all(&[*byte]).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut connection = Connection::open(address).await.unwrap();
        for (status, text) in [(200, "ok"), (404, "no")] {
            let answer = connection.call(&request("POST", "/", &[("A", "b")], "{}")).await.unwrap();
            assert_eq!((answer.status, answer.text().unwrap().as_str()), (status, text));
        }
        assert!(connection.call(b"x").await.is_err());
        server.await.unwrap();
    }
}
