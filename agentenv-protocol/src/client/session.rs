//! A session for an environment's tools, as an agent's own loop uses it.

use http::{HeaderMap, HeaderValue};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::{HarnessError, read};
use crate::card::CardTool;
use crate::json::RawJson;
use crate::mcp::ROLE_HEADER;
use crate::mcp::client::{ClientOptions, McpClient, OutgoingCall, Reconnected};

/// A session for an environment's tools. After a call that failed, what the environment holds is not known: nothing that may
/// have run is tried again.
#[derive(Debug, Clone)]
pub struct ToolSession {
    client: McpClient,
}

impl ToolSession {
    /// Opens a session at the URL of an MCP endpoint, such as `http://127.0.0.1:18765/mcp`, with a role if one is given.
    ///
    /// # Errors
    /// [`HarnessError`]: the URL is none, the role cannot stand in a header, or the server does not answer as one of MCP.
    pub async fn open(mcp_url: &str, role: Option<&str>) -> Result<Self, HarnessError> {
        let url: Url = mcp_url.parse().map_err(|error: url::ParseError| HarnessError::Address {
            address: mcp_url.to_owned(),
            reason: error.to_string(),
        })?;
        let mut headers = HeaderMap::new();
        if let Some(role) = role {
            let value = HeaderValue::from_bytes(role.as_bytes())
                .map_err(|_| HarnessError::Header { name: ROLE_HEADER.to_string() })?;
            headers.insert(ROLE_HEADER, value);
        }
        Self::connect(&url, headers).await
    }

    pub(super) async fn connect(url: &Url, headers: HeaderMap) -> Result<Self, HarnessError> {
        let mut options = ClientOptions::named("agentenv-protocol");
        options.headers = headers;
        let client = McpClient::new(url, options)
            .map_err(|source| HarnessError::ToolAddress { address: url.to_string(), source })?;
        client.ping().await?;
        Ok(Self { client })
    }

    /// The tools that the role sees, over all pages.
    ///
    /// # Errors
    /// [`HarnessError`]: there is no such list to be had.
    pub async fn list(&self) -> Result<Vec<CardTool>, HarnessError> {
        let tools = self.client.list_tools().await?;
        tools.iter().map(|tool| read(&format!("tool {}", tool.name), tool.raw.bytes())).collect()
    }

    /// Calls a tool. `arguments` is anything that serde writes as an object.
    ///
    /// # Errors
    /// [`HarnessError`]: there is no reply. A tool that fails has one, which says so.
    pub async fn call<A: Serialize + ?Sized>(
        &self,
        tool: &str,
        arguments: &A,
    ) -> Result<ToolReply, HarnessError> {
        let arguments = serde_json::value::to_raw_value(arguments)
            .map_err(|source| HarnessError::Params { what: tool.to_owned(), source })?;
        let arguments = match arguments.get() {
            "null" => None,
            text if text.starts_with('{') => Some(&*arguments),
            _ => return Err(HarnessError::ParamsNotAnObject { what: tool.to_owned() }),
        };
        let reply = self.client.call(OutgoingCall::new(tool, arguments)).await?;
        let fields = read(&format!("the result of {tool}"), reply.result.bytes())?;
        Ok(ToolReply { raw: reply.result, fields, reconnected: reply.reconnected })
    }

    /// The client beneath, for calls with deadlines, progress or cancellation.
    pub fn client(&self) -> &McpClient {
        &self.client
    }

    /// Ends the session. A server that is gone already is no error.
    pub async fn close(self) {
        self.client.close().await;
    }
}

/// What a tool answered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolReply {
    /// The whole result, as it came.
    pub raw: RawJson,
    /// Set when the server was reconnected to before this call: what it held may be gone.
    pub reconnected: Option<Reconnected>,
    fields: Fields,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    #[serde(default)]
    content: Vec<Value>,
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    structured_content: Option<Value>,
}

impl ToolReply {
    /// Whether the tool failed.
    pub fn is_error(&self) -> bool {
        self.fields.is_error
    }

    /// The text of all text blocks, one a line.
    pub fn text(&self) -> String {
        let texts = self.fields.content.iter().filter(|block| block["type"] == "text");
        texts.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The structured result, if there is one.
    pub fn structured(&self) -> Option<&Value> {
        self.fields.structured_content.as_ref()
    }

    /// The result as a value: of the structured result if there is one, else of the text, read as JSON.
    ///
    /// # Errors
    /// [`HarnessError::Answer`]: it is not a `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, HarnessError> {
        let parsed = match self.structured() {
            Some(value) => T::deserialize(value),
            None => serde_json::from_str(&self.text()),
        };
        parsed.map_err(|error| HarnessError::Answer {
            what: "the tool's result".to_owned(),
            reason: error.to_string(),
        })
    }
}
