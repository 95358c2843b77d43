//! A relay that does the least that a gateway with a log does: it reads a call, writes a line, asks the server behind it,
//! writes another line, and gives the answer back. No tools, no roles, no checks: what is left is axum, hyper and the kernel.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::{RELAY_LOG, variable};

struct Relay {
    client: Client<HttpConnector, Full<Bytes>>,
    server: SocketAddr,
    log: File,
}

/// The router of a relay to the server at this address.
pub(super) fn router(server: SocketAddr) -> anyhow::Result<Router> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let relay = Relay {
        client: Client::builder(TokioExecutor::new()).build(connector),
        server,
        log: File::options().append(true).create(true).open(variable(RELAY_LOG)?)?,
    };
    Ok(Router::new().fallback(answer).with_state(Arc::new(relay)))
}

async fn answer(State(relay): State<Arc<Relay>>, request: Request<Body>) -> Response<Body> {
    relay.pass(request).await.unwrap_or_else(|error| {
        let mut response = Response::new(Body::from(format!("{error:#}")));
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    })
}

impl Relay {
    async fn pass(&self, request: Request<Body>) -> anyhow::Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        self.write(&body)?;
        parts.uri = format!("http://{}{}", self.server, parts.uri.path()).parse()?;
        let response = self.client.request(Request::from_parts(parts, Full::new(body))).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        self.write(&body)?;
        Ok(Response::from_parts(parts, Body::from(body)))
    }

    fn write(&self, message: &[u8]) -> std::io::Result<()> {
        (&self.log).write_all(&[message, b"\n"].concat())
    }
}
