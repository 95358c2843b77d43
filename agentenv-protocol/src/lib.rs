//! Environment servers: tools for agents over MCP, a data plane for the harness, one JSON card.
//!
//! An environment is a struct with a card, and methods that are marked for what they answer:
//!
//! ```no_run
//! use agentenv_protocol::prelude::*;
//!
//! /// The whole state: what `data/add` takes and `data/get` gives.
//! #[derive(Default, Serialize, Deserialize)]
//! #[serde(default)]
//! struct Mailbox {
//!     inbox: Vec<Email>,
//!     sent: Vec<Email>,
//! }
//!
//! #[derive(Clone, Serialize, Deserialize, JsonSchema)]
//! struct Email {
//!     to: String,
//!     subject: String,
//!     body: String,
//! }
//!
//! #[environment_card(name = "email")]
//! #[derive(Default)]
//! struct EmailEnv {
//!     #[data]
//!     mail: Data<Mailbox>,
//!     #[component]
//!     clock: Clock,
//! }
//!
//! #[environment]
//! impl EmailEnv {
//!     /// Find inbox emails whose subject contains the query.
//!     #[tool(name = "{environment_name}_search", read_only)]
//!     fn search(&self, query: &str) -> Vec<Email> {
//!         self.mail.read(|mail| mail.inbox.iter().filter(|email| email.subject.contains(query)).cloned().collect())
//!     }
//!
//!     /// Send an email.
//!     #[tool]
//!     async fn send(
//!         &self,
//!         caller: &ToolContext,
//!         /// Address of the recipient.
//!         to: String,
//!         subject: String,
//!         #[arg(default = "")] body: String,
//!     ) -> Result<Value, ToolError> {
//!         if !to.contains('@') {
//!             return Err(ToolError::new("bad_address", format!("'{to}' is not an email address")));
//!         }
//!         let sent_at = self.clock.now().await;
//!         self.mail.write(|mail| mail.sent.push(Email { to, subject, body }));
//!         Ok(json!({"sent_at": sent_at, "by": caller.caller.role}))
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), agentenv_protocol::ServeError> {
//!     agentenv_protocol::serve(EmailEnv::default()).await
//! }
//! ```
//!
//! - [`environment_card`] is the head of the card, and says which fields bring something: `#[data]` the data plane
//!   ([`Data`](data::Data)), `#[component]` tools and extensions that are written already ([`standard`]).
//! - [`environment`](macro@environment) reads the markers on an impl block's methods: [`tool`](macro@tool),
//!   [`extension`](macro@extension), [`reset_data`], [`add_data`], [`get_data`], [`before_call`], [`on_start`], [`on_stop`].
//! - Methods take `&self` and run side by side. What blocks the thread belongs in `tokio::task::spawn_blocking`. One thread is enough
//!   for tools that answer from memory, and quicker than several; a server whose tools compute for long takes plain `#[tokio::main]`.
//! - Parameters are read from JSON, so their types derive `Deserialize` and `JsonSchema`; answers derive `Serialize`. The crates
//!   `serde` and `schemars` must be dependencies of the environment's for those derives.
//! - [`testing`] calls an environment with no network in between, [`server`] serves one, and `agentenv-gateway` composes several.
//! - [`client`] is the other side: a harness that reads cards, loads data and calls extensions; [`mcp::client`] calls tools.
//!
//! The feature `mimalloc` makes that the program's allocator. A program that is linked statically to musl wants it, for musl's
//! own has one lock for all threads, which costs it nearly half of its calls a second; a library must leave it alone.

extern crate self as agentenv_protocol;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod access;
mod arguments;
pub mod card;
pub mod client;
pub mod context;
pub mod data;
pub mod environment;
pub mod error;
pub mod extension;
pub mod http_client;
pub mod json;
pub mod mcp;
mod pieces;
pub mod rpc;
pub mod schema;
pub mod server;
pub mod standard;
pub mod task;
pub mod testing;
pub mod time;
pub mod tool;

pub use agentenv_macros::{
    add_data, before_call, environment, environment_card, extension, get_data, on_start, on_stop, reset_data,
    tool,
};
pub use environment::EnvRuntime;

pub use server::{ServeError, serve};

/// Everything that an environment's source needs, in one line: `use agentenv_protocol::prelude::*;`.
pub mod prelude {
    pub use schemars::{self, JsonSchema};
    pub use serde::{self, Deserialize, Serialize};
    pub use serde_json::{self, Value, json};

    pub use crate::context::{LogLevel, ToolContext};
    pub use crate::data::{Data, Part};
    pub use crate::error::{Applied, ToolError};
    pub use crate::standard::Clock;
    pub use crate::time::DateTime;
    pub use crate::tool::{Content, ToolResult};
    pub use crate::{
        add_data, before_call, environment, environment_card, extension, get_data, on_start, on_stop,
        reset_data, tool,
    };
}

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
