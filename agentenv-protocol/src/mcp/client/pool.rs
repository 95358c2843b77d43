//! Connections to one server: opened when none is idle, kept after an answer, used for one request at a time. What the
//! requests say is left to `exchange`.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use tokio::time::Instant;

use super::error::{ClientError, ErrorKind, Sent};
use super::socket::{self, Socket, Unsent};

/// Most idle connections that are kept.
const IDLE_LIMIT: usize = 256;

/// How long a connection is kept idle. Servers may close theirs earlier: that is noticed, not outrun.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// A connection that answered longer ago than this is looked at before it is used. Those of a busy client are not, which
/// would be a system call a request: its runtime hears of an end about as soon.
const JUST_USED: Duration = Duration::from_millis(1);

/// The connections to one server.
pub(super) struct Pool {
    host: String,
    port: u16,
    idle: Mutex<VecDeque<(Connection, Instant)>>,
}

/// A connection that is given out. Dropped before its answer is read, it is closed.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    unsent: Unsent,
}

impl Pool {
    pub(super) fn new(host: String, port: u16) -> Self {
        Self { host, port, idle: Mutex::default() }
    }

    /// Sends a request and gives the answer's head. A connection that proves stale is passed over for the next one.
    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Connection), ClientError> {
        loop {
            let (mut connection, fresh) = match self.take() {
                Some((connection, since)) => {
                    connection.unsent.arm(since.elapsed() > JUST_USED);
                    (connection, false)
                }
                None => {
                    let connection = self.open().await?;
                    connection.unsent.arm(false);
                    (connection, true)
                }
            };
            let mut fault = match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                Err(fault) => fault,
            };
            let unsent = connection.unsent.is_unsent();
            match fault.take_message() {
                Some(unstarted) if !fresh => request = unstarted,
                taken => {
                    let sent = if unsent || taken.is_some() { Sent::No } else { Sent::Maybe };
                    if sent == Sent::No {
                        // Those that lay idle beside it have most likely ended with it.
                        self.clear();
                    }
                    return Err(ClientError::broke("the connection broke before the answer")
                        .with_sent(sent)
                        .with_source(Box::<dyn std::error::Error + Send + Sync>::from(fault.into_error())));
                }
            }
        }
    }

    /// Keeps a connection whose answer has been read to its end.
    pub(super) fn keep(&self, connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let now = Instant::now();
        let mut idle = self.lock();
        while idle.len() >= IDLE_LIMIT || idle.front().is_some_and(|(_, since)| now - *since > IDLE_TIMEOUT) {
            idle.pop_front();
        }
        idle.push_back((connection, now));
    }

    /// Closes every idle connection.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// The connection used last that can take a request, and since when it is idle. One that is not ready yet is left for
    /// later: it may still be on its way back, and one that never is grows old.
    fn take(&self) -> Option<(Connection, Instant)> {
        let mut idle = self.lock();
        let mut at = idle.len();
        while let Some(before) = at.checked_sub(1) {
            at = before;
            let sender = &idle[at].0.sender;
            if sender.is_closed() {
                idle.remove(at);
            } else if sender.is_ready() {
                return idle.remove(at);
            }
        }
        None
    }

    async fn open(&self) -> Result<Connection, ClientError> {
        let stream = socket::connect(&self.host, self.port).await.map_err(unreachable)?;
        let unsent = Unsent::default();
        let gone = |error: hyper::Error| unreachable(io::Error::new(io::ErrorKind::ConnectionReset, error));
        let handshake = http1::Builder::new().handshake(Socket::new(stream, unsent.clone())).await;
        let (mut sender, connection) = handshake.map_err(gone)?;
        // It ends by itself once the sender is dropped and the answer under way is read or dropped.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a server ended");
            }
        });
        sender.ready().await.map_err(gone)?;
        Ok(Connection { sender, unsent })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no connection, in words that name no address.
fn unreachable(error: io::Error) -> ClientError {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::TimedOut => "no answer to the connection attempt".to_owned(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "no route".to_owned(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
            "the connection was closed at once".to_owned()
        }
        // What looking up a name fails with has no kind, and no number, of its own.
        _ if error.raw_os_error().is_none() => "its name cannot be resolved".to_owned(),
        kind => kind.to_string(),
    };
    ClientError::new(ErrorKind::Unreachable, Sent::No, format!("the server cannot be reached: {why}"))
        .with_source(Box::<dyn std::error::Error + Send + Sync>::from(error))
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("idle", &self.lock().len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use http_body_util::BodyExt;

    use super::*;

    fn request() -> Request<Full<Bytes>> {
        Request::post("/mcp").header("host", "x").body(Full::from("{}")).unwrap()
    }

    /// A pool with one connection that has lain idle, and the other end of it.
    async fn idle() -> (Pool, TcpListener, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pool = Pool::new("127.0.0.1".into(), listener.local_addr().unwrap().port());
        let connection = pool.open().await.unwrap();
        let (peer, _) = listener.accept().unwrap();
        pool.keep(connection);
        tokio::time::pause();
        tokio::time::advance(2 * JUST_USED).await;
        tokio::time::resume();
        (pool, listener, peer)
    }

    /// Nothing runs between the peer's end and the request, so that the runtime cannot have heard of the end.
    #[tokio::test]
    async fn a_request_to_a_peer_that_has_just_gone_is_not_sent() {
        let (pool, _listener, peer) = idle().await;
        drop(peer);
        let error = pool.send(request()).await.err().unwrap();
        assert_eq!((error.kind(), error.sent()), (&ErrorKind::Broke, Sent::No));
    }

    /// A server that times an idle connection out may say so first.
    #[tokio::test]
    async fn a_request_to_a_peer_that_has_just_said_something_is_not_sent() {
        let (pool, _listener, mut peer) = idle().await;
        peer.write_all(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n").unwrap();
        let error = pool.send(request()).await.err().unwrap();
        assert_eq!((error.kind(), error.sent()), (&ErrorKind::Broke, Sent::No));
    }

    #[tokio::test]
    async fn a_request_that_a_peer_can_have_read_is_sent() {
        let (pool, _listener, mut peer) = idle().await;
        let peer = std::thread::spawn(move || peer.read_exact(&mut [0]).unwrap());
        let error = pool.send(request()).await.err().unwrap();
        assert_eq!((error.kind(), error.sent()), (&ErrorKind::Broke, Sent::Maybe));
        peer.join().unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_ended_while_idle_is_passed_over() {
        let (pool, listener, peer) = idle().await;
        drop(peer);
        while !pool.lock()[0].0.sender.is_closed() {
            tokio::task::yield_now().await;
        }
        let server = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            peer.read_exact(&mut [0; 20]).unwrap();
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            peer
        });
        let (response, _connection) = pool.send(request()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
        server.join().unwrap();
    }
}
