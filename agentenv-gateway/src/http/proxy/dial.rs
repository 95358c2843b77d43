//! Opening a connection to a server behind the proxy, within a bounded time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;

use super::CONNECT_TIMEOUT;

/// Connects over plain HTTP. Looking up the name counts against the time, which [`HttpConnector`]'s own limit leaves out.
#[derive(Debug, Clone)]
pub(super) struct Dial(HttpConnector);

impl Dial {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(connector)
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(connected) => Ok(connected?),
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time").into()),
            }
        })
    }
}

/// Whether an error says, at any depth, that time ran out.
pub(super) fn timed_out(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        next = error.source();
    }
    false
}
