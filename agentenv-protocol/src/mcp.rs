//! MCP over streamable HTTP, both eras on one endpoint: the session protocol (2024-11-05 to 2025-11-25) and the stateless
//! one (2026-07-28). The wire only: which tools there are and what calling one does is a [`server::Service`]'s.

pub mod client;
mod headers;
pub mod server;
mod session;
mod sse;

pub use headers::{ROLE_HEADER, RoleFault, SESSION_HEADER, origin_is_allowed, role};
pub use session::{SESSION_IDLE, SESSION_LIMIT};

/// The stateless protocol's version.
pub const STATELESS: &str = "2026-07-28";

/// The session protocol's versions, newest first.
pub const SESSION_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Every version spoken, newest first.
pub const VERSIONS: [&str; 5] = [STATELESS, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The `_meta` key under which a gateway names the caller's role to a child (contract 2.5).
pub const META_ROLE: &str = "agentenv.io/role";

/// The `_meta` key under which a gateway names the caller's session to a child (contract 2.5).
pub const META_SESSION: &str = "agentenv.io/session";

/// The `_meta` key of a tool that a gateway hides until a rule names it (contract 2.3).
pub const META_HIDDEN: &str = "agentenv.io/hiddenByDefault";

/// What the keys of `_meta` begin with that speak of one hop only: a gateway never passes them on.
pub const META_PROTOCOL_PREFIX: &str = "io.modelcontextprotocol/";

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
