//! What the environment variables say (contract 3.1). Every value that cannot be right is named with its variable, its entry
//! and what was expected; nothing is started from them here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use agentenv_protocol::access::{AccessRules, RoleView};
use agentenv_protocol::server::DEFAULT_PORT;
use url::Url;

use crate::instance::Mode;
use crate::trajectory::Fsync;

/// How long a child may take to come up.
pub const START_TIMEOUT: Duration = Duration::from_secs(180);

/// A name and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// Where it is.
    pub url: Url,
}

/// The gateway's settings.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// `MCP_HOST` and `MCP_PORT`.
    pub address: String,
    /// The port of `address`, which children reach the gateway at.
    pub port: u16,
    /// `MCP_SERVER_NAME`.
    pub name: String,
    /// `INTERNAL_MCP_SERVERS`: the children's MCP URLs.
    pub children: Vec<Named>,
    /// `REST_PROXY_URLS`: what `/svc/{key}/` leads to.
    pub services: Vec<Named>,
    /// `WEBSITE_URLS`: what `/website/{name}/` leads to.
    pub websites: Vec<Named>,
    /// `GATEWAY_MODE`.
    pub mode: Mode,
    /// `SERVICE_DB_URL`.
    pub store_url: Option<String>,
    /// `GATEWAY_TRAJECTORY_FILE`.
    pub trajectory_file: Option<PathBuf>,
    /// `GATEWAY_TRAJECTORY_SYNC`: `never`, `interval` (each second) or `always`.
    pub trajectory_fsync: Fsync,
    /// `GATEWAY_INTERNAL_SERVER_TIMEOUT_S`.
    pub start_timeout: Duration,
    /// `GATEWAY_ALLOW_MISSING`: serve without the children that do not come up.
    pub allow_missing: bool,
    /// `GATEWAY_ROLE_RULES`: rules to begin with, as `/state` shows them.
    pub rules: AccessRules,
    /// `GATEWAY_CLOCK_URL`: where children read the virtual clock.
    pub clock_url: Option<String>,
    /// `GATEWAY_AGENT_PORT`: a second listener for agents alone.
    pub agent_port: Option<u16>,
    /// `GATEWAY_CONTROL_TOKEN` or the file `GATEWAY_CONTROL_TOKEN_FILE`: what the harness's routes ask for.
    pub control_token: Option<String>,
    /// `GATEWAY_ROLE_TOKENS`: a bearer token for each role, as a JSON object of role to token.
    pub role_tokens: BTreeMap<String, String>,
    /// `MCP_ALLOWED_ORIGINS`: origins of browser pages that may call.
    pub allowed_origins: Vec<String>,
}

/// A variable that cannot be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {message}")]
pub struct ConfigFault {
    /// The variable.
    pub variable: &'static str,
    /// The entry, and what was expected.
    pub message: String,
}

/// Reads variables and gathers what is wrong with them.
struct Reader<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    faults: Vec<ConfigFault>,
}

impl Reader<'_> {
    fn text(&self, variable: &str) -> Option<String> {
        (self.get)(variable).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn fault(&mut self, variable: &'static str, message: impl Into<String>) {
        self.faults.push(ConfigFault { variable, message: message.into() });
    }

    fn parse<T>(
        &mut self,
        variable: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.text(variable)?;
        let parsed = parse(&value);
        if parsed.is_none() {
            self.fault(variable, format!("'{value}' is not {expected}"));
        }
        parsed
    }

    fn port(&mut self, variable: &'static str) -> Option<u16> {
        self.parse(variable, "a port from 0 to 65535", |value| value.parse().ok())
    }

    /// A comma-separated list of `name=url`; a bare name becomes what `bare` makes of it.
    fn list(&mut self, variable: &'static str, bare: Option<&dyn Fn(&str) -> String>) -> Vec<Named> {
        let value = self.text(variable).unwrap_or_default();
        let (mut names, mut list) = (BTreeSet::new(), Vec::new());
        for entry in value.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (name, url) = match (entry.split_once('='), bare) {
                (Some((name, url)), _) => (name.trim(), url.trim().to_owned()),
                (None, Some(bare)) => (entry, bare(entry)),
                (None, None) => {
                    self.fault(variable, format!("entry '{entry}' is not of the form name=url"));
                    continue;
                }
            };
            if name.is_empty() || name.contains(['/', '?', '#', '%']) || name.contains(char::is_whitespace) {
                self.fault(variable, format!("entry '{entry}' has no usable name before its '='"));
                continue;
            }
            let Some(url) = http_url(&url) else {
                // The URL is not repeated: it may hold a password.
                self.fault(
                    variable,
                    format!("entry '{name}': not an http:// URL with a host and no credentials"),
                );
                continue;
            };
            if !names.insert(name.to_owned()) {
                self.fault(variable, format!("the name '{name}' is there twice"));
                continue;
            }
            list.push(Named { name: name.to_owned(), url });
        }
        list
    }
}

/// An absolute http URL, without credentials, query or fragment.
pub(crate) fn http_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let plain = url.username().is_empty() && url.password().is_none();
    let fits = url.scheme() == "http" && url.has_host() && url.query().is_none() && url.fragment().is_none();
    (fits && plain).then_some(url)
}

impl Config {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// Every fault found.
    pub fn from_env() -> Result<Self, Vec<ConfigFault>> {
        Self::read(&|variable| std::env::var(variable).ok())
    }

    /// Reads variables from anywhere.
    ///
    /// # Errors
    /// Every fault found.
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<ConfigFault>> {
        let mut r = Reader { get, faults: Vec::new() };
        let port = r.port("MCP_PORT").unwrap_or(DEFAULT_PORT);
        let host = r.text("MCP_HOST").unwrap_or_else(|| "0.0.0.0".to_owned());
        let address = match host.parse::<std::net::IpAddr>() {
            Ok(ip) => std::net::SocketAddr::new(ip, port).to_string(),
            Err(_) => format!("{host}:{port}"),
        };
        let internal_port = r.port("INTERNAL_MCP_PORT").unwrap_or(DEFAULT_PORT);
        let bare = |name: &str| format!("http://{name}:{internal_port}/mcp");
        let config = Self {
            address,
            port,
            name: r.text("MCP_SERVER_NAME").unwrap_or_else(|| "env".to_owned()),
            children: r.list("INTERNAL_MCP_SERVERS", Some(&bare)),
            services: r.list("REST_PROXY_URLS", None),
            websites: r.list("WEBSITE_URLS", None),
            mode: r
                .parse("GATEWAY_MODE", "'performance' or 'consistent'", |value| match value {
                    "performance" => Some(Mode::Performance),
                    "consistent" => Some(Mode::Consistent),
                    _ => None,
                })
                .unwrap_or_default(),
            store_url: r.text("SERVICE_DB_URL"),
            trajectory_file: r.text("GATEWAY_TRAJECTORY_FILE").map(PathBuf::from),
            trajectory_fsync: r
                .parse("GATEWAY_TRAJECTORY_SYNC", "'never', 'interval' or 'always'", |value| match value {
                    "never" => Some(Fsync::Never),
                    "interval" => Some(Fsync::default()),
                    "always" => Some(Fsync::Always),
                    _ => None,
                })
                .unwrap_or_default(),
            start_timeout: r
                .parse("GATEWAY_INTERNAL_SERVER_TIMEOUT_S", "a number of seconds", |value| {
                    value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                })
                .unwrap_or(START_TIMEOUT),
            allow_missing: r
                .parse("GATEWAY_ALLOW_MISSING", "0 or 1", |value| match value {
                    "1" | "true" => Some(true),
                    "0" | "false" => Some(false),
                    _ => None,
                })
                .unwrap_or_default(),
            rules: r
                .parse(
                    "GATEWAY_ROLE_RULES",
                    "a JSON object of role to {\"disabled\", \"allowed\"}",
                    |value| serde_json::from_str::<BTreeMap<String, RoleView>>(value).ok(),
                )
                .map(|views| AccessRules::from_views(&views))
                .unwrap_or_default(),
            clock_url: r
                .parse("GATEWAY_CLOCK_URL", "an http:// or https:// URL", |value| {
                    Url::parse(value).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
                })
                .map(Into::into),
            agent_port: r.port("GATEWAY_AGENT_PORT"),
            control_token: secret(&mut r),
            role_tokens: r
                .parse("GATEWAY_ROLE_TOKENS", "a JSON object of role to token", |value| {
                    let tokens: BTreeMap<String, String> = serde_json::from_str(value).ok()?;
                    tokens
                        .iter()
                        .all(|(role, token)| !role.trim().is_empty() && !token.is_empty())
                        .then_some(tokens)
                })
                .unwrap_or_default(),
            allowed_origins: r
                .text("MCP_ALLOWED_ORIGINS")
                .map(|list| list.split(',').map(|origin| origin.trim().to_owned()).collect())
                .unwrap_or_default(),
        };
        if r.faults.is_empty() { Ok(config) } else { Err(r.faults) }
    }
}

/// The control token, from its variable or from the file that another names. It never appears in a fault.
fn secret(r: &mut Reader<'_>) -> Option<String> {
    let Some(path) = r.text("GATEWAY_CONTROL_TOKEN_FILE") else { return r.text("GATEWAY_CONTROL_TOKEN") };
    match std::fs::read_to_string(&path) {
        Ok(token) if !token.trim().is_empty() => Some(token.trim().to_owned()),
        Ok(_) => {
            r.fault("GATEWAY_CONTROL_TOKEN_FILE", format!("the file '{path}' is empty"));
            None
        }
        Err(error) => {
            r.fault("GATEWAY_CONTROL_TOKEN_FILE", format!("cannot read '{path}': {error}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let get =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Config::read(&get).map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn defaults() {
        let config = read(&[]).unwrap();
        assert_eq!((config.address.as_str(), config.name.as_str()), ("0.0.0.0:18765", "env"));
        assert_eq!((config.mode, config.start_timeout), (Mode::Performance, START_TIMEOUT));
        assert!(config.children.is_empty() && !config.allow_missing);
    }

    #[test]
    fn lists() {
        let config = read(&[
            ("INTERNAL_MCP_SERVERS", " email=http://127.0.0.1:1/mcp , contacts,"),
            ("INTERNAL_MCP_PORT", "9"),
            ("REST_PROXY_URLS", "mcp-email=http://127.0.0.1:1"),
        ])
        .unwrap();
        let children: Vec<_> = config.children.iter().map(|c| (c.name.as_str(), c.url.as_str())).collect();
        assert_eq!(children, [("email", "http://127.0.0.1:1/mcp"), ("contacts", "http://contacts:9/mcp")]);
        assert_eq!(config.services[0].name, "mcp-email");
    }

    #[test]
    fn names_what_cannot_be_right() {
        for (variable, value, said) in [
            ("MCP_PORT", "http", "'http' is not a port"),
            ("INTERNAL_MCP_SERVERS", "a=ftp://x", "entry 'a': not an http:// URL"),
            ("REST_PROXY_URLS", "a=http://u:s3cret@x", "entry 'a': not an http:// URL"),
            ("INTERNAL_MCP_SERVERS", "a,a", "'a' is there twice"),
            ("INTERNAL_MCP_SERVERS", "=http://x", "no usable name"),
            ("REST_PROXY_URLS", "x", "entry 'x' is not of the form name=url"),
            ("WEBSITE_URLS", "a=/x", "entry 'a'"),
            ("GATEWAY_MODE", "fast", "'performance' or 'consistent'"),
            ("GATEWAY_INTERNAL_SERVER_TIMEOUT_S", "-1", "a number of seconds"),
            ("GATEWAY_ROLE_RULES", "[]", "a JSON object"),
            ("GATEWAY_ALLOW_MISSING", "maybe", "0 or 1"),
            ("GATEWAY_CONTROL_TOKEN_FILE", "/no/such/file", "cannot read"),
        ] {
            let faults = read(&[(variable, value)]).unwrap_err();
            assert!(faults[0].starts_with(variable) && faults[0].contains(said), "{faults:?}");
            assert!(!faults[0].contains("s3cret"), "{faults:?}");
        }
        assert_eq!(read(&[("MCP_PORT", "x"), ("GATEWAY_MODE", "y")]).unwrap_err().len(), 2);
    }
}
