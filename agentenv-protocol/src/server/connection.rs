//! One HTTP/1.1 connection: each request is answered by whoever serves, it may be silent only so long, and it can be told to
//! end. How many there are is `listen`'s.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::pieces::Joined;

/// How long a request's head may take from its first byte on.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may lie idle before its first request, and between two.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// What answers the requests of a connection.
pub(super) trait Handler:
    Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<H> Handler for H where
    H: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Serves a connection until either side closes it. Once `end` resolves, it closes at its next pause: at once where it is idle,
/// else behind the answer under way.
pub(super) async fn serve<S, H>(stream: S, handler: H, end: impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let activity = Activity::new();
    let stream = Timed::new(stream, Arc::clone(&activity));
    let service = service_fn(move |request: Request<Incoming>| {
        let answering = Answering::begin(&activity);
        let response = names_its_host(&request).then(|| handler.call(request));
        async move {
            let response = match response {
                Some(response) => AssertUnwindSafe(response).catch_unwind().await.unwrap_or_else(|_| {
                    tracing::error!("a request's handler panicked");
                    Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, r#"{"error":"internal error"}"#))
                }),
                None => {
                    Ok(plain(StatusCode::BAD_REQUEST, r#"{"error":"the Host header must be there once"}"#))
                }
            };
            response
                .map(|response: Response<Body>| response.map(|body| Watched { body, _answering: answering }))
        }
    });
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = end => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Whether a request says once to whom it goes, as HTTP/1.1 asks (RFC 9112, section 3.2). Two who read it could otherwise take
/// it for two requests to two servers.
fn names_its_host(request: &Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), None) => true,
        (None, _) => request.version() < Version::HTTP_11,
        (Some(_), Some(_)) => false,
    }
}

fn plain(status: StatusCode, json: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What happens on a connection, and since when.
struct Activity {
    start: Instant,
    /// The microseconds from the start to the end of the last answer, or [`ANSWERING`](Self::ANSWERING).
    silent: AtomicU64,
}

impl Activity {
    const ANSWERING: u64 = u64::MAX;

    fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), silent: AtomicU64::new(0) })
    }

    /// Since when no request has been answered; `None` while one is.
    fn silent_since(&self) -> Option<Instant> {
        let silent = self.silent.load(Ordering::Relaxed);
        (silent != Self::ANSWERING).then(|| self.start + Duration::from_micros(silent))
    }
}

/// Says while it lives that a request is being answered.
struct Answering(Arc<Activity>);

impl Answering {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.silent.store(Activity::ANSWERING, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let since = u64::try_from(self.0.start.elapsed().as_micros()).unwrap_or(Activity::ANSWERING - 1);
        self.0.silent.store(since, Ordering::Relaxed);
    }
}

/// The body of an answer, which is under way until this is dropped.
struct Watched {
    body: Body,
    _answering: Answering,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that fails once it has been silent for [`IDLE_TIMEOUT`], or a request's head has begun and not ended within
/// [`HEAD_TIMEOUT`]. Hyper has one timer for both, and sets it anew for each request; here a request costs a look at the clock.
struct Timed<S> {
    stream: S,
    activity: Arc<Activity>,
    /// Whether something of a head has come.
    came: bool,
    /// Since when the rest of it is waited for.
    begun: Option<Instant>,
    /// Goes off when the time may be over, which is then looked at: it is not moved with each request.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity, came: false, begun: None, alarm: None }
    }

    /// When what is waited for must have come; `None` while a request is being answered.
    fn deadline(&self) -> Option<Instant> {
        let silent = self.activity.silent_since()?;
        Some(self.begun.map_or(silent + IDLE_TIMEOUT, |begun| begun + HEAD_TIMEOUT))
    }

    /// Ready once it is too late. An answer may end without hyper's looking at the stream again, so it has an alarm too.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let due = self.deadline();
            let alarm = self.alarm.get_or_insert_with(|| {
                Box::pin(sleep_until(due.unwrap_or_else(|| Instant::now() + IDLE_TIMEOUT)))
            });
            if let Some(due) = due.filter(|due| *due < alarm.deadline()) {
                alarm.as_mut().reset(due);
            }
            ready!(alarm.as_mut().poll(cx));
            if self.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
                return Poll::Ready(());
            }
            self.alarm = None;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.activity.silent_since().is_none() {
            // What comes now is no head.
            (self.came, self.begun) = (false, None);
        } else if buf.filled().len() > before {
            self.came = true;
        }
        if read.is_ready() {
            return read;
        }
        // Most heads come at once, and are never waited for.
        if self.came && self.begun.is_none() {
            self.begun = Some(Instant::now());
        }
        ready!(self.poll_late(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "a request took too long to come")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Joined::of(bufs) {
            Some(joined) => Pin::new(&mut self.stream).poll_write(cx, joined.bytes()),
            None => Pin::new(&mut self.stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::{get, post};
    use hyper_util::service::TowerToHyperService;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;
    use tokio::time::sleep;

    use super::*;

    /// A connection to a server that answers `/` at once, `/slow` after two minutes, and `POST /body` with what it was sent.
    fn connect(end: impl Future<Output = ()> + Send + 'static) -> (DuplexStream, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let routes = Router::new()
            .route("/", get(|| async { "hello" }))
            .route(
                "/slow",
                get(|| async {
                    sleep(2 * IDLE_TIMEOUT).await;
                    "late"
                }),
            )
            .route("/panic", get(|| async { panic!("secret") as () }))
            .route("/body", post(|body: String| async { body }));
        (near, tokio::spawn(serve(far, TowerToHyperService::new(routes), end)))
    }

    /// Reads an answer that ends with this text.
    async fn answer(stream: &mut DuplexStream, last: &str) -> String {
        let mut text = Vec::new();
        while !text.ends_with(last.as_bytes()) {
            assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0, "closed");
        }
        String::from_utf8(text).unwrap()
    }

    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    #[tokio::test(start_paused = true)]
    async fn a_head_has_less_time_than_silence() {
        for (sent, seconds) in [(&b""[..], 60), (b"GET / HTTP/1.1\r\nhost: x", 10)] {
            for (path, last) in [("", ""), ("/", "hello"), ("/slow", "late")] {
                let (mut stream, served) = connect(std::future::pending());
                if !path.is_empty() {
                    let get = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
                    stream.write_all(get.as_bytes()).await.unwrap();
                    answer(&mut stream, last).await;
                }
                let begun = Instant::now();
                stream.write_all(sent).await.unwrap();
                served.await.unwrap();
                assert_eq!(begun.elapsed().as_secs(), seconds, "{sent:?} {path}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_trickles_has_no_more_time_for_it() {
        let (mut stream, served) = connect(std::future::pending());
        let begun = Instant::now();
        tokio::spawn(async move {
            loop {
                let _ = stream.write_all(b"G").await;
                sleep(Duration::from_secs(1)).await;
            }
        });
        served.await.unwrap();
        assert_eq!(begun.elapsed(), HEAD_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_head_has_its_time() {
        let (mut stream, served) = connect(std::future::pending());
        stream.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        answer(&mut stream, "late").await;
        stream.write_all(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nsl").await.unwrap();
        sleep(2 * IDLE_TIMEOUT).await;
        stream.write_all(b"ow").await.unwrap();
        answer(&mut stream, "slow").await;
        sleep(IDLE_TIMEOUT / 2).await;
        stream.write_all(GET).await.unwrap();
        answer(&mut stream, "hello").await;
        drop(stream);
        served.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_names_one_host() {
        for (head, status) in [
            ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", "200"),
            ("GET / HTTP/1.0\r\n\r\n", "200"),
            ("GET http://y/ HTTP/1.1\r\nhost: x\r\n\r\n", "200"),
            ("GET / HTTP/1.1\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", "400"),
        ] {
            let (mut stream, _served) = connect(std::future::pending());
            stream.write_all(head.as_bytes()).await.unwrap();
            let last = if status == "200" { "hello" } else { "}" };
            let said = answer(&mut stream, last).await;
            assert_eq!(said.split(' ').nth(1), Some(status), "{head:?}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_its_requests_alone() {
        let (mut stream, _served) = connect(std::future::pending());
        stream.write_all(b"GET /panic HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let said = answer(&mut stream, "}").await;
        assert!(said.starts_with("HTTP/1.1 500") && !said.contains("secret"), "{said}");
        stream.write_all(GET).await.unwrap();
        answer(&mut stream, "hello").await;
    }

    #[tokio::test(start_paused = true)]
    async fn told_to_end_it_ends_at_its_next_pause() {
        for (sent, last) in
            [(&b""[..], ""), (GET, "hello"), (b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n", "late")]
        {
            let end = Arc::new(Notify::new());
            let told = Arc::clone(&end);
            let (mut stream, served) = connect(async move { told.notified().await });
            stream.write_all(sent).await.unwrap();
            if last == "hello" {
                answer(&mut stream, last).await;
            }
            sleep(Duration::from_secs(1)).await;
            let begun = Instant::now();
            end.notify_one();
            if last == "late" {
                assert!(answer(&mut stream, last).await.contains("connection: close"));
            }
            served.await.unwrap();
            assert_eq!(begun.elapsed() > Duration::from_secs(1), last == "late", "{last}");
        }
    }
}
