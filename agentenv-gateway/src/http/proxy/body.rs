//! Bodies on their way through: passed piece by piece, with a limit on how long nothing may come.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

/// How a request's body is getting on.
#[derive(Debug)]
pub(super) struct Activity {
    begun: Instant,
    /// When the last piece went by, in milliseconds since `begun`.
    last: AtomicU64,
    /// Whether the client broke it off, or sent what is no body.
    broken: AtomicBool,
}

impl Activity {
    pub(super) fn now() -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), last: AtomicU64::new(0), broken: AtomicBool::new(false) })
    }

    pub(super) fn last(&self) -> Instant {
        self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn touch(&self) {
        let passed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(passed, Ordering::Relaxed);
    }
}

/// A request's body on its way to the server, noting when it moves.
#[derive(Debug)]
pub(super) struct Upload {
    body: Body,
    activity: Arc<Activity>,
}

impl Upload {
    pub(super) fn new(body: Body, activity: Arc<Activity>) -> Self {
        Self { body, activity }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.activity.touch();
        if matches!(frame, Some(Err(_))) {
            self.activity.broken.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why an answer's body broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The server broke off.
    #[error("the server broke off its answer")]
    Cut(#[source] hyper::Error),
    /// Nothing came for too long.
    #[error("nothing came for {} s", .0.as_secs())]
    Idle(Duration),
}

/// An answer's body on its way to the client. Where the server breaks off, or stops for longer than `idle`, the body ends in
/// an error, so that the client's breaks off too instead of looking complete.
#[derive(Debug)]
pub(super) struct Download {
    body: Incoming,
    idle: Option<Duration>,
    /// Set while waiting for a piece.
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    service: Arc<str>,
}

impl Download {
    pub(super) fn new(body: Incoming, idle: Option<Duration>, service: Arc<str>) -> Self {
        Self { body, idle, timer: None, waiting: false, service }
    }

    fn broken(&self, fault: Broken) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        tracing::warn!(service = %self.service, error = %crate::http::proxy::chain(&fault), "an answer broke off");
        Poll::Ready(Some(Err(fault)))
    }
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                this.waiting = false;
                match frame {
                    Some(Err(fault)) => this.broken(Broken::Cut(fault)),
                    Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
                    None => Poll::Ready(None),
                }
            }
            Poll::Pending => {
                let Some(idle) = this.idle else { return Poll::Pending };
                let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
                if !this.waiting {
                    timer.as_mut().reset(Instant::now() + idle);
                    this.waiting = true;
                }
                ready!(timer.as_mut().poll(cx));
                this.broken(Broken::Idle(idle))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
