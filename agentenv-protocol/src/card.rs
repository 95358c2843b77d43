//! The environment card (contract 2.1): its shape on the wire, for servers that write one and harnesses that read one.
//! What stands on an environment's own card is gathered in `environment`.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Where every environment serves its card.
pub const CARD_PATH: &str = "/.well-known/agent-env.json";

/// The protocol's version.
pub const PROTOCOL_VERSION: &str = "1.0";

/// Where every environment serves its data plane.
pub const DATA_PLANE_PATH: &str = "/agentenv";

/// Where every environment serves its tools.
pub const MCP_PATH: &str = "/mcp";

/// What an environment says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentCard {
    /// Its name.
    pub name: String,
    /// [`PROTOCOL_VERSION`].
    #[serde(default = "protocol_version")]
    pub protocol_version: String,
    /// The data plane, relative to the card's origin.
    #[serde(default = "data_plane")]
    pub url: String,
    /// What the data plane speaks: `JSONRPC`.
    #[serde(default = "json_rpc")]
    pub preferred_transport: String,
    /// The other doors: its MCP endpoint.
    #[serde(default, deserialize_with = "null_as_default")]
    pub additional_interfaces: Vec<CardInterface>,
    /// What it can do.
    #[serde(default, deserialize_with = "null_as_default")]
    pub capabilities: Capabilities,
    /// The environments that it is composed of.
    #[serde(default, rename = "children_environments")]
    pub children_environments: Option<Vec<EnvironmentCard>>,
}

/// A door besides the data plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardInterface {
    /// Relative to the card's origin.
    pub url: String,
    /// What is spoken there: `mcp`.
    pub transport: String,
}

/// What an environment can do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Capabilities {
    /// The extensions that it supports.
    #[serde(default)]
    pub extensions: Option<Vec<CardExtension>>,
    /// The tools that it has.
    #[serde(default)]
    pub tools: Option<Vec<CardTool>>,
    /// Those of `data/reset`, `data/add` and `data/get` that it handles, in that order.
    #[serde(default, deserialize_with = "null_as_default")]
    pub operations: Vec<String>,
}

/// A tool as a card shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CardTool {
    /// Its name.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: Option<String>,
    /// The JSON schema of its arguments.
    pub input_schema: Value,
}

/// An extension as a card shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CardExtension {
    /// Which extension it is, and in which version.
    pub uri: String,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// Where its methods are (`endpoint`, `methods`), and whatever else the extension declares.
    #[serde(default)]
    pub params: Option<Map<String, Value>>,
    /// Whether a harness must use it.
    #[serde(default)]
    pub required: Option<bool>,
}

/// Where and how a method of an extension is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodRoute<'a> {
    /// The path, relative to the card's origin.
    pub endpoint: &'a str,
    /// The HTTP method.
    pub verb: &'a str,
}

impl EnvironmentCard {
    /// A card with nothing on it but a name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            protocol_version: protocol_version(),
            url: data_plane(),
            preferred_transport: json_rpc(),
            additional_interfaces: vec![CardInterface {
                url: MCP_PATH.to_owned(),
                transport: "mcp".to_owned(),
            }],
            capabilities: Capabilities::default(),
            children_environments: None,
        }
    }

    /// The MCP endpoint, if the card names one.
    pub fn mcp_path(&self) -> Option<&str> {
        self.additional_interfaces.iter().find(|door| door.transport == "mcp").map(|door| door.url.as_str())
    }

    /// A tool by its name.
    pub fn tool(&self, name: &str) -> Option<&CardTool> {
        self.capabilities.tools.iter().flatten().find(|tool| tool.name == name)
    }

    /// An extension by its URI.
    pub fn extension(&self, uri: &str) -> Option<&CardExtension> {
        self.capabilities.extensions.iter().flatten().find(|extension| extension.uri == uri)
    }

    /// An environment that this one is composed of, by its name.
    pub fn child(&self, name: &str) -> Option<&EnvironmentCard> {
        self.children_environments.iter().flatten().find(|child| child.name == name)
    }
}

impl CardExtension {
    /// Where and how a method is called: one without an endpoint is at the extension's, one without a verb takes POST.
    pub fn method(&self, name: &str) -> Option<MethodRoute<'_>> {
        let params = self.params.as_ref()?;
        let method = params.get("methods")?.get(name)?;
        let endpoint = text(method.get("endpoint")).or_else(|| text(params.get("endpoint")))?;
        Some(MethodRoute { endpoint, verb: text(method.get("method")).unwrap_or("POST") })
    }
}

/// A member's text. One that is null or empty counts as none.
fn text(member: Option<&Value>) -> Option<&str> {
    member?.as_str().filter(|text| !text.is_empty())
}

fn protocol_version() -> String {
    PROTOCOL_VERSION.to_owned()
}

fn data_plane() -> String {
    DATA_PLANE_PATH.to_owned()
}

fn json_rpc() -> String {
    "JSONRPC".to_owned()
}

fn null_as_default<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
