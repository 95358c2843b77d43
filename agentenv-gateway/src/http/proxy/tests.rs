//! The proxy between real sockets: a server that records and answers as it is told, and clients that write raw bytes.

mod heads;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use url::Url;

use super::*;

/// A server on raw TCP. Each request's bytes are recorded, and answered with what `answer` makes of them.
struct Server {
    address: SocketAddr,
    seen: mpsc::UnboundedReceiver<String>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// One that reads requests with a `Content-Length`, with chunks, or without a body, and keeps its connections.
    async fn answering(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, seen) = mpsc::unbounded_channel();
        let answer = Arc::new(answer);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (tell, answer) = (tell.clone(), Arc::clone(&answer));
                tokio::spawn(async move {
                    let mut buffer = Vec::new();
                    while let Some(request) = read_message(&mut stream, &mut buffer).await {
                        let text = answer(&request);
                        let _ = tell.send(request);
                        if stream.write_all(text.as_bytes()).await.is_err()
                            || text.contains("Connection: close")
                        {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, seen, connections }
    }

    /// One that answers everything with 200.
    async fn ok() -> Self {
        Self::answering(|_| "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into()).await
    }

    fn url(&self, path: &str) -> Url {
        format!("http://{}{path}", self.address).parse().unwrap()
    }

    /// What it has seen so far.
    fn requests(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }
}

/// One message's bytes as text, `None` at the end of the stream. What follows it stays in `buffer`.
async fn read_message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        let text = String::from_utf8_lossy(buffer).into_owned();
        if let Some(end) = text.find("\r\n\r\n").map(|at| at + 4) {
            let head = text[..end].to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            let whole = match length {
                _ if head.contains("transfer-encoding: chunked") => {
                    text[end..].find("0\r\n\r\n").map(|at| end + at + 5)
                }
                Some(length) => Some(end + length),
                None => Some(end),
            };
            if let Some(whole) = whole.filter(|whole| *whole <= buffer.len()) {
                let message = buffer.drain(..whole).collect::<Vec<u8>>();
                return Some(String::from_utf8_lossy(&message).into_owned());
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// A gateway that is nothing but a proxy with these routes, for callers of the role `intern`.
async fn gateway(routes: impl IntoIterator<Item = Route>) -> SocketAddr {
    let proxy = Proxy::new(routes).unwrap();
    let app = Router::new().fallback(async move |request: Request<Body>| match proxy.route(&request) {
        Err(refusal) => refusal.into_response(),
        Ok(target) => proxy.forward(&target, request, "intern", None).await.into_response(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A gateway before one server, at `/svc/s`.
async fn before(server: &Server) -> SocketAddr {
    gateway([Route::remote(Prefix::Svc, "s", server.url(""))]).await
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Sends these bytes and gives all that comes back until the connection ends, which the request should ask for.
async fn raw(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = connect(address).await;
    stream.write_all(request.as_ref()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request without a body.
async fn get(address: SocketAddr, target: &str) -> String {
    raw(address, format!("GET {target} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n")).await
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

fn values<'a>(message: &'a str, name: &str) -> Vec<&'a str> {
    let head = message.split("\r\n\r\n").next().unwrap_or_default();
    let fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
}
