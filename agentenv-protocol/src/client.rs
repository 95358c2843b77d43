//! The harness's side of an environment or an instance (contract 2.8): its card, its data plane, its extensions, and sessions
//! for its tools. What the messages hold is left to `card`, `data` and `mcp::client`.

mod error;
mod invoke;
mod session;

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use url::Url;

use crate::card::{
    CARD_PATH, CardExtension, CardTool, DATA_PLANE_PATH, EnvironmentCard, MCP_PATH, MethodRoute,
};
use crate::data::Part;
use crate::http_client;
use crate::mcp::ROLE_HEADER;

pub use self::error::{ExtensionFailure, HarnessError, RpcFailure};
pub use self::session::{ToolReply, ToolSession};

/// How long fetching a card may take.
pub const CARD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long resetting and reading an environment, or one method of an extension, may take unless said otherwise.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long loading data into an environment may take unless said otherwise.
pub const LOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Largest answer that is taken, in bytes.
pub const ANSWER_LIMIT: usize = 1024 * 1024 * 1024;

/// A harness's client of one environment, or of a composed instance. Clones are cheap.
///
/// ```no_run
/// use agentenv_protocol::client::EnvClient;
/// use agentenv_protocol::prelude::*;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let office = EnvClient::new("http://127.0.0.1:18765")?;
/// let card = office.get_card().await?;
/// let email = office.of(card.child("email").ok_or("no email here")?);
/// email.reset_data().await?;
/// email.add_data(&[Part::data(&json!({"inbox": []}))?]).await?;
/// let off = json!({"role": "assistant", "tools": ["send"]});
/// let rules: Value = office.invoke_extension(&card, "urn:agentenv:disable-tool/v1", "disable", &off).await?;
/// println!("{rules}");
/// let agent = office.with_role("assistant")?.open_tools(&card).await?;
/// println!("{}", agent.call("email_search", &json!({"query": "lunch"})).await?.text());
/// agent.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct EnvClient {
    http: reqwest::Client,
    /// Without a slash at its end.
    base: String,
    data_plane: String,
    headers: HeaderMap,
    timeout: Option<Duration>,
}

#[derive(Serialize)]
struct AddParams<'a> {
    parts: &'a [Part],
}

#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    parts: Vec<Part>,
}

impl EnvClient {
    /// A client for what is served at this URL, such as `http://127.0.0.1:18765`. Nothing is sent yet.
    ///
    /// # Errors
    /// [`HarnessError::Address`]: not the URL of an HTTP server.
    pub fn new(base: &str) -> Result<Self, HarnessError> {
        let address = |reason: String| HarnessError::Address { address: base.to_owned(), reason };
        let url: Url = base.parse().map_err(|error: url::ParseError| address(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(address("not the URL of an HTTP server".to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(address("paths are put behind it, so it may have no query".to_owned()));
        }
        let http = http_client::build(|client| client.redirect(reqwest::redirect::Policy::none()));
        let http = http.map_err(|error| address(error.to_string()))?;
        let base = url.as_str().trim_end_matches('/').to_owned();
        let data_plane = DATA_PLANE_PATH.to_owned();
        Ok(Self { http, base, data_plane, headers: HeaderMap::new(), timeout: None })
    }

    /// Acts as this role: every request carries it in `AgentEnv-Role`.
    ///
    /// # Errors
    /// [`HarnessError::Header`]: the role has a line break or another control character.
    pub fn with_role(self, role: &str) -> Result<Self, HarnessError> {
        self.with_header(ROLE_HEADER, role)
    }

    /// Proves itself with this token, on servers that ask for one.
    ///
    /// # Errors
    /// [`HarnessError::Header`]: the token cannot stand in a header.
    pub fn with_bearer(self, token: &str) -> Result<Self, HarnessError> {
        self.with_header(header::AUTHORIZATION, &format!("Bearer {token}"))
    }

    /// Puts a header on every request.
    ///
    /// # Errors
    /// [`HarnessError::Header`]: the value cannot stand in a header.
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Result<Self, HarnessError> {
        let mut text = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| HarnessError::Header { name: name.to_string() })?;
        text.set_sensitive(name == header::AUTHORIZATION);
        self.headers.insert(name, text);
        Ok(self)
    }

    /// Lets every request take this long, in place of [`CARD_TIMEOUT`], [`CALL_TIMEOUT`] and [`LOAD_TIMEOUT`].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The same client, with the data plane of this card: a child's, on a composed card.
    #[must_use]
    pub fn of(&self, card: &EnvironmentCard) -> Self {
        Self { data_plane: card.url.clone(), ..self.clone() }
    }

    /// Fetches the card (contract 2.1).
    ///
    /// # Errors
    /// [`HarnessError`]: there is none to be had, or it is no card.
    pub async fn get_card(&self) -> Result<EnvironmentCard, HarnessError> {
        let request = self.request(Method::GET, CARD_PATH, CARD_TIMEOUT)?;
        let (status, body) = self.send(request).await?;
        accept(status, &body)?;
        read("the card", &body)
    }

    /// Empties the environment: `data/reset` (contract 2.2).
    ///
    /// # Errors
    /// [`HarnessError`], as [`RpcFailure`] where the environment refused.
    pub async fn reset_data(&self) -> Result<(), HarnessError> {
        self.operate("data/reset", &json!({}), CALL_TIMEOUT).await.map(drop)
    }

    /// Loads data into the environment: `data/add` (contract 2.2).
    ///
    /// # Errors
    /// As [`reset_data`](Self::reset_data).
    pub async fn add_data(&self, parts: &[Part]) -> Result<(), HarnessError> {
        self.operate("data/add", &AddParams { parts }, LOAD_TIMEOUT).await.map(drop)
    }

    /// Reads what the environment holds: `data/get` (contract 2.2).
    ///
    /// # Errors
    /// As [`reset_data`](Self::reset_data).
    pub async fn get_data(&self) -> Result<Vec<Part>, HarnessError> {
        let result = self.operate("data/get", &json!({}), CALL_TIMEOUT).await?;
        read::<Parts>("the result of data/get", result.get().as_bytes()).map(|result| result.parts)
    }

    /// Opens a session for the tools of the environment whose card this is, with this client's role and headers.
    ///
    /// # Errors
    /// As [`ToolSession::open`].
    pub async fn open_tools(&self, card: &EnvironmentCard) -> Result<ToolSession, HarnessError> {
        ToolSession::connect(&self.url(mcp_path(card))?, self.headers.clone()).await
    }

    /// One method of the data plane.
    async fn operate<P: Serialize>(
        &self,
        method: &'static str,
        params: &P,
        timeout: Duration,
    ) -> Result<Box<RawValue>, HarnessError> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            result: Option<Box<RawValue>>,
            #[serde(default)]
            error: Option<RpcFailure>,
        }
        #[derive(Serialize)]
        struct Message<'a, P> {
            jsonrpc: &'static str,
            id: u8,
            method: &'static str,
            params: &'a P,
        }
        let body = serde_json::to_vec(&Message { jsonrpc: "2.0", id: 1, method, params })
            .map_err(|source| HarnessError::Params { what: method.to_owned(), source })?;
        let request = self.request(Method::POST, &self.data_plane, timeout)?;
        let (status, body) =
            self.send(request.header(header::CONTENT_TYPE, "application/json").body(body)).await?;
        accept(status, &body)?;
        match read::<Answer>("the data plane's answer", &body)? {
            Answer { error: Some(failure), .. } => Err(HarnessError::Rpc { method, failure }),
            Answer { result: Some(result), .. } => Ok(result),
            Answer { .. } => Err(HarnessError::Answer {
                what: format!("the answer to {method}"),
                reason: "it has neither a result nor an error".to_owned(),
            }),
        }
    }

    fn request(
        &self,
        verb: Method,
        path: &str,
        timeout: Duration,
    ) -> Result<reqwest::RequestBuilder, HarnessError> {
        let request = self.http.request(verb, self.url(path)?);
        Ok(request.headers(self.headers.clone()).timeout(self.timeout.unwrap_or(timeout)))
    }

    /// A path of a card's behind the base. A card may not send its reader, and the reader's headers, elsewhere.
    fn url(&self, path: &str) -> Result<Url, HarnessError> {
        let elsewhere = || HarnessError::Address {
            address: path.to_owned(),
            reason: "a card's paths begin with one slash".to_owned(),
        };
        if !path.starts_with('/') || path.starts_with("//") {
            return Err(elsewhere());
        }
        format!("{}{path}", self.base).parse().map_err(|_| elsewhere())
    }

    /// Sends a request and reads the whole answer.
    async fn send(&self, request: reqwest::RequestBuilder) -> Result<(StatusCode, Vec<u8>), HarnessError> {
        let mut response = request.send().await.map_err(HarnessError::Http)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(HarnessError::Http)? {
            if body.len() + chunk.len() > ANSWER_LIMIT {
                let reason = format!("it is larger than {ANSWER_LIMIT} bytes");
                return Err(HarnessError::Answer { what: "the answer".to_owned(), reason });
            }
            body.extend_from_slice(&chunk);
        }
        Ok((response.status(), body))
    }
}

/// An extension on a card, by its URI.
pub fn find_extension<'a>(card: &'a EnvironmentCard, uri: &str) -> Option<&'a CardExtension> {
    card.extension(uri)
}

/// Where and how a method of an extension is called: one without an endpoint is at the extension's, one without a verb takes
/// POST.
pub fn find_extension_method<'a>(
    card: &'a EnvironmentCard,
    uri: &str,
    method: &str,
) -> Option<MethodRoute<'a>> {
    card.extension(uri)?.method(method)
}

/// A tool on a card, by its name.
pub fn find_tool<'a>(card: &'a EnvironmentCard, name: &str) -> Option<&'a CardTool> {
    card.tool(name)
}

/// The card of an environment that this one is composed of, by its name. Its paths lead through the composed one.
pub fn find_child<'a>(card: &'a EnvironmentCard, name: &str) -> Option<&'a EnvironmentCard> {
    card.child(name)
}

/// The path of a card's MCP endpoint: the one that it names, else the usual one.
pub fn mcp_path(card: &EnvironmentCard) -> &str {
    card.mcp_path().filter(|path| !path.is_empty()).unwrap_or(MCP_PATH)
}

/// Refuses a status that is no success.
fn accept(status: StatusCode, body: &[u8]) -> Result<(), HarnessError> {
    if status.is_success() {
        Ok(())
    } else {
        Err(HarnessError::Refused(ExtensionFailure::read(status, body)))
    }
}

/// Reads a JSON answer.
fn read<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, HarnessError> {
    serde_json::from_slice(body)
        .map_err(|error| HarnessError::Answer { what: what.to_owned(), reason: error.to_string() })
}
