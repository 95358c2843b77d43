//! The client side of MCP over streamable HTTP, in both eras: one client a server, which finds out what the server speaks,
//! keeps a session where there are sessions, and passes calls and results on as the texts they are. Who may call what, and
//! which server has which tool, is left to its user.

mod answer;
mod call;
mod error;
mod link;
mod list;
mod pool;
mod request;
mod retry;
mod socket;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, timeout};
use url::Url;

use self::answer::{Expected, Rest, Said};
use self::link::{Link, Links};
use self::pool::{Connection, Pool};
use self::request::Outgoing;
use self::retry::Retries;
use super::headers::MCP_SESSION;
use super::server::INSTANCE_HEADER;
use crate::json::RawJson;

pub use self::call::{CallReply, OutgoingCall, Reconnected};
pub use self::error::{ClientError, ErrorKind, RpcError, Sent};
pub use self::list::{PAGE_LIMIT, RawTool};
pub use self::socket::CONNECT_TIMEOUT;

/// How long a call may take unless its caller says otherwise (contract 10).
pub const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// How long finding out about a server, or listing its tools, may take (contract 10).
pub const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest answer that is taken, in bytes (contract 10).
pub const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

/// How long a cancelled call may take to end in the session era, where the server is told and not cut off.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// How long messages that nobody waits for may take: cancellations, answers to the server's own requests, farewells.
const ASIDE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the end of an event stream may take to come behind the answer before its connection is given up.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(2);

/// How a client behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientOptions {
    /// What the client calls itself.
    pub client_name: String,
    /// The version it gives.
    pub client_version: String,
    /// How long a call may take. By default [`CALL_TIMEOUT`].
    pub timeout: Duration,
    /// How long finding out about the server, or listing its tools, may take. By default [`DISCOVERY_TIMEOUT`].
    pub discovery: Duration,
    /// Largest answer that is taken, in bytes. By default [`ANSWER_LIMIT`].
    pub answer_limit: usize,
    /// Headers of every request besides the protocol's own, such as a role.
    pub headers: HeaderMap,
}

impl ClientOptions {
    /// The defaults, for a client of this name.
    pub fn named(client_name: impl Into<String>) -> Self {
        Self {
            client_name: client_name.into(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            timeout: CALL_TIMEOUT,
            discovery: DISCOVERY_TIMEOUT,
            answer_limit: ANSWER_LIMIT,
            headers: HeaderMap::new(),
        }
    }
}

/// An address that no client can be made for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressFault {
    /// Its scheme is not `http`.
    #[error("the scheme '{0}' is not http, the only one that MCP servers are reached by")]
    Scheme(String),
    /// It names no host.
    #[error("it names no host")]
    NoHost,
    /// It carries a user name or a password.
    #[error("it carries credentials, which are not sent")]
    Credentials,
    /// Its path cannot be asked for.
    #[error("its path is none of HTTP's: {0}")]
    Path(String),
}

/// A client of one MCP server. Clones are cheap and share everything.
///
/// Nothing is sent before the first request. Then the era is found out (`server/discover`, else `initialize`), and found
/// out again after it is lost; those who wait meanwhile wait for the same attempt.
///
/// ```no_run
/// use agentenv_protocol::mcp::client::{ClientOptions, McpClient, OutgoingCall};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = McpClient::new(&"http://127.0.0.1:18765/mcp".parse()?, ClientOptions::named("example"))?;
/// for tool in client.list_tools().await? {
///     println!("{}: {}", tool.name, tool.raw.as_str());
/// }
/// let arguments = serde_json::value::to_raw_value(&serde_json::json!({"query": "lunch"}))?;
/// let reply = client.call(OutgoingCall::new("email_search", Some(&arguments))).await?;
/// println!("{}", reply.result.as_str());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct McpClient {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Arc<Pool>,
    path: Uri,
    host_header: HeaderValue,
    options: ClientOptions,
    next_id: AtomicU64,
    links: Links,
}

/// An answer to one request, with what its head says about the server.
struct Answer {
    result: Result<RawJson, ClientError>,
    instance: Option<HeaderValue>,
    session: Option<HeaderValue>,
}

impl McpClient {
    /// A client for the server at this URL.
    ///
    /// # Errors
    /// [`AddressFault`]: not an `http` URL, or one with credentials.
    pub fn new(url: &Url, options: ClientOptions) -> Result<Self, AddressFault> {
        if url.scheme() != "http" {
            return Err(AddressFault::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressFault::Credentials);
        }
        let host = match url.host() {
            Some(url::Host::Domain(name)) => name.to_owned(),
            Some(url::Host::Ipv4(ip)) => ip.to_string(),
            Some(url::Host::Ipv6(ip)) => ip.to_string(),
            None => return Err(AddressFault::NoHost),
        };
        let path = url[url::Position::BeforePath..url::Position::AfterQuery]
            .parse()
            .map_err(|error: http::uri::InvalidUri| AddressFault::Path(error.to_string()))?;
        let host_header = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let host_header = HeaderValue::from_str(host_header).map_err(|_| AddressFault::NoHost)?;
        let pool = Arc::new(Pool::new(host, url.port().unwrap_or(80)));
        let next_id = AtomicU64::new(1);
        Ok(Self {
            inner: Arc::new(Inner { pool, path, host_header, options, next_id, links: Links::default() }),
        })
    }

    /// The protocol version that is spoken with the server; none while it is not known.
    pub fn version(&self) -> Option<&'static str> {
        self.inner.links.current().map(|link| link.version)
    }

    /// Asks whether the server answers, finding out about it first if need be.
    ///
    /// # Errors
    /// [`ClientError`]: it does not, within the discovery time.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let inner = &self.inner;
        let ping = async {
            let mut retries = Retries::default();
            loop {
                let link = inner.link().await?;
                let method = if link.is_session_era() { "ping" } else { "server/discover" };
                match inner.ask(&link, &Outgoing::new(method, &[])).await.result {
                    Ok(_) => return Ok(()),
                    Err(error) => inner.after(&link, error, &mut retries)?,
                }
            }
        };
        let late = || ClientError::timeout(Sent::Maybe, "the server did not answer in time");
        timeout(inner.options.discovery, ping).await.unwrap_or_else(|_| Err(late()))
    }

    /// Ends the session, if there is one, and closes idle connections. A server that is gone already is no error. The client
    /// can be used again, which connects anew.
    pub async fn close(&self) {
        let link = self.inner.links.close();
        if let Some(link) = link.filter(|link| link.session().is_some()) {
            let mut request = self.inner.request(link.headers.clone(), Bytes::new());
            *request.method_mut() = Method::DELETE;
            let farewell = async {
                let (response, connection) = self.inner.pool.send(request).await?;
                response.into_body().collect().await.ok();
                drop(connection);
                Ok::<_, ClientError>(())
            };
            if let Ok(Err(error)) = timeout(ASIDE_TIMEOUT, farewell).await {
                tracing::debug!(%error, "cannot end a session");
            }
        }
        self.inner.pool.clear();
    }
}

impl fmt::Debug for McpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClient").field("pool", &self.inner.pool).field("version", &self.version()).finish()
    }
}

impl Inner {
    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn request(&self, headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = headers;
        request
    }

    /// Sends one message and reads the answer to it. Dropping this closes the connection.
    async fn exchange(
        &self,
        headers: HeaderMap,
        body: Bytes,
        id: u64,
        said: &mut (dyn FnMut(Said<'_>) + Send),
    ) -> Answer {
        let (response, connection) = match self.pool.send(self.request(headers, body)).await {
            Ok(answered) => answered,
            Err(error) => return Answer { result: Err(error), instance: None, session: None },
        };
        let instance = response.headers().get(INSTANCE_HEADER).cloned();
        let session = response.headers().get(MCP_SESSION).cloned();
        let expected = Expected { id, limit: self.options.answer_limit };
        let (result, rest) = answer::read(response, expected, said).await;
        self.reuse(connection, rest);
        Answer { result, instance, session }
    }

    /// Keeps a connection, once what is left of its answer has come.
    fn reuse(&self, connection: Connection, rest: Rest) {
        match rest {
            Rest::Nothing => self.pool.keep(connection),
            Rest::Cut => {}
            Rest::Open(mut body) => {
                let pool = Arc::clone(&self.pool);
                tokio::spawn(async move {
                    let end = async { while let Some(Ok(_)) = body.frame().await {} };
                    if timeout(STREAM_END_TIMEOUT, end).await.is_ok() {
                        pool.keep(connection);
                    }
                });
            }
        }
    }

    /// Asks once, over a link that may not be in use yet. Nobody listens to what else the server says.
    async fn ask(&self, link: &Link, outgoing: &Outgoing<'_>) -> Answer {
        let id = self.next_id();
        let headers = outgoing.headers(&link.headers, &link.era);
        self.exchange(headers, outgoing.body(id, &link.era), id, &mut |_| {}).await
    }

    /// Sends a message that has no answer.
    async fn tell(&self, headers: &HeaderMap, body: Bytes) -> Result<(), ClientError> {
        let (response, connection) = self.pool.send(self.request(headers.clone(), body)).await?;
        let status = response.status();
        self.reuse(connection, Rest::Open(response.into_body()));
        if status.is_success() {
            Ok(())
        } else {
            let message = format!("the server answered a notification with HTTP {}", status.as_u16());
            Err(ClientError::bad_answer(status, message))
        }
    }
}

/// When a duration from now will have passed. One that is too long to be told means practically never.
fn deadline_in(duration: Duration) -> Instant {
    const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + NEVER)
}
