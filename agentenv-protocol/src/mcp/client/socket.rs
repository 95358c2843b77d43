//! A TCP connection that knows whether any byte of a request has left it. What is written is left to hyper.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::net::RecvFlags;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::pieces::Joined;

/// How long opening a connection may take, over all addresses of a name (contract 10).
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A peer that says nothing for this long is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How long a peer may leave what it was sent unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(45);

/// Opens a connection to the first address of `host` that takes one.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no answer to the connection attempt");
    let addresses: Vec<SocketAddr> = match host.parse() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => timeout_at(deadline, tokio::net::lookup_host((host, port))).await.map_err(late)??.collect(),
    };
    let mut failed = None;
    for (tried, address) in addresses.iter().enumerate() {
        // An address that swallows the attempt leaves its share of the time to those after it.
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let attempt = timeout_at(Instant::now() + share, TcpStream::connect(address)).await;
        match attempt.map_err(late).and_then(|connected| connected) {
            Ok(stream) => {
                tune(&stream);
                return Ok(stream);
            }
            // Why the first one failed says most; a later one is often a form of it that nobody listens on.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

/// Small messages at once, and a dead peer noticed. A socket that refuses an option still works without.
fn tune(stream: &TcpStream) {
    let set = || -> rustix::io::Result<()> {
        sockopt::set_tcp_nodelay(stream, true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        #[cfg(target_os = "linux")]
        {
            sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
            sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
            sockopt::set_tcp_keepcnt(stream, 3)?;
            sockopt::set_tcp_user_timeout(
                stream,
                u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX),
            )?;
        }
        Ok(())
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "cannot tune a connection");
    }
}

/// Whether the request under way on a connection can have left it. Armed before each request.
#[derive(Debug, Clone, Default)]
pub(super) struct Unsent(Arc<AtomicU8>);

impl Unsent {
    const SENT: u8 = 0;
    const UNSENT: u8 = 1;
    /// Unsent, and the peer is looked for first.
    const UNSURE: u8 = 2;

    /// A request is about to be written, on a connection that has lain idle or has just been used.
    pub(super) fn arm(&self, idle: bool) {
        self.0.store(if idle { Self::UNSURE } else { Self::UNSENT }, Ordering::Relaxed);
    }

    /// Whether no byte of it was taken by the socket.
    pub(super) fn is_unsent(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::SENT
    }
}

/// A connection that looks once more whether its peer is there before the first byte of a request is written, where it has
/// lain idle: it may have been closed without the runtime having heard of it yet.
pub(super) struct Socket {
    io: TokioIo<TcpStream>,
    unsent: Unsent,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, unsent: Unsent) -> Self {
        Self { io: TokioIo::new(stream), unsent }
    }

    /// Nothing is owed on an idle connection, so an end, an error and bytes all mean that it is of no use.
    fn is_stale(&self) -> bool {
        let mut byte = [0_u8; 1];
        let read =
            rustix::net::recv(self.io.inner().as_fd(), &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(read, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
    }

    fn write_with(
        &mut self,
        write: impl FnOnce(Pin<&mut TokioIo<TcpStream>>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let before = self.unsent.0.load(Ordering::Relaxed);
        if before == Unsent::UNSURE && self.is_stale() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "closed before the request",
            )));
        }
        let written = write(Pin::new(&mut self.io));
        if before != Unsent::SENT && matches!(written, Poll::Ready(Ok(1..))) {
            self.unsent.0.store(Unsent::SENT, Ordering::Relaxed);
        }
        written
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.write_with(|io| io.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_with(|io| match Joined::of(bufs) {
            Some(joined) => io.poll_write(cx, joined.bytes()),
            None => io.poll_write_vectored(cx, bufs),
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
