//! The HTTP client that spans are exported with. The exporter has a thread of its own, outside any runtime; what it sends is
//! sent from the runtime that the client was made in.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use agentenv_protocol::http_client;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

use super::TracesError;

/// Most bytes of a collector's answer, which says little more than that it took the spans.
const ANSWER_LIMIT: usize = 1024 * 1024;

pub(super) struct Client {
    http: reqwest::Client,
    runtime: Handle,
}

impl Client {
    /// Sends from the current runtime; each request takes no longer than this.
    pub(super) fn new(timeout: Duration) -> Result<Self, TracesError> {
        let http = http_client::build(|client| client.timeout(timeout))?;
        Ok(Self { http, runtime: Handle::try_current()? })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl HttpClient for Client {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        let sent = self.runtime.spawn(send(self.http.clone(), request));
        Box::pin(async move { sent.await? })
    }
}

async fn send(http: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let response = http.execute(request.try_into()?).await.map_err(reqwest::Error::without_url)?;
    let (head, body) = Response::<reqwest::Body>::from(response).into_parts();
    let body = Limited::new(body, ANSWER_LIMIT).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}
