//! The routes that a proxy is built from, and checking them all before the first request.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use http::uri::Authority;
use url::Url;

use super::Prefix;

/// Where the requests of one key go.
#[derive(Debug, Clone)]
pub struct Route {
    prefix: Prefix,
    key: String,
    to: To,
    endpoints: Vec<String>,
}

#[derive(Debug, Clone)]
enum To {
    Remote(Url),
    Local(Router),
}

impl Route {
    /// To a server at this URL, `http://host[:port][/path]`; what follows the key is put behind its path.
    pub fn remote(prefix: Prefix, key: impl Into<String>, base: Url) -> Self {
        Self { prefix, key: key.into(), to: To::Remote(base), endpoints: vec!["mcp".into()] }
    }

    /// To a server in this process.
    pub fn local(prefix: Prefix, key: impl Into<String>, router: Router) -> Self {
        Self { prefix, key: key.into(), to: To::Local(router), endpoints: vec!["mcp".into()] }
    }

    /// Another path of the server, besides `/mcp`, at which it takes MCP messages.
    #[must_use]
    pub fn mcp_at(mut self, path: &str) -> Self {
        let path = path.trim_matches('/');
        if !path.is_empty() && !self.endpoints.iter().any(|known| known == path) {
            self.endpoints.push(path.to_owned());
        }
        self
    }
}

/// A route that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteFault {
    /// It has no key, or one with a slash in it, which no request could name.
    #[error("/{}/{key}: a service's name must not be empty or hold a slash", .prefix.as_str())]
    Key {
        /// The route's family.
        prefix: Prefix,
        /// The key.
        key: String,
    },
    /// Another route has its key.
    #[error("/{}/{key}: there twice", .prefix.as_str())]
    Twice {
        /// The route's family.
        prefix: Prefix,
        /// The key.
        key: String,
    },
    /// Its URL is not of the form that is served. The URL is not named here: it may hold a password.
    #[error("/{}/{key}: the URL must be http://host[:port][/path], without user, query or fragment", .prefix.as_str())]
    Url {
        /// The route's family.
        prefix: Prefix,
        /// The key.
        key: String,
    },
}

/// Every fault of a set of routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteFaults(pub Vec<RouteFault>);

impl std::error::Error for RouteFaults {}

impl std::fmt::Display for RouteFaults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

/// A route, checked.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Arc<str>,
    pub(super) to: Destination,
    pub(super) endpoints: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Destination {
    /// The authority, and the path before every other, without a slash at its end.
    Remote(Authority, String),
    Local(Router),
}

/// The checked routes of each family, by key.
pub(super) type Routes = HashMap<Prefix, HashMap<String, Arc<Entry>>>;

/// Checks routes, every one.
pub(super) fn checked(routes: impl IntoIterator<Item = Route>) -> Result<Routes, RouteFaults> {
    let mut known = Routes::new();
    let mut faults = Vec::new();
    for Route { prefix, key, to, endpoints } in routes {
        if key.is_empty() || key.contains(['/', '\\']) {
            faults.push(RouteFault::Key { prefix, key });
            continue;
        }
        let to = match to {
            To::Local(router) => Some(Destination::Local(router)),
            To::Remote(url) => remote(&url),
        };
        let Some(to) = to else {
            faults.push(RouteFault::Url { prefix, key });
            continue;
        };
        let entry = Arc::new(Entry { key: key.as_str().into(), to, endpoints });
        if known.entry(prefix).or_default().insert(key.clone(), entry).is_some() {
            faults.push(RouteFault::Twice { prefix, key });
        }
    }
    if faults.is_empty() { Ok(known) } else { Err(RouteFaults(faults)) }
}

/// A route's URL as requests need it; `None` where it is not of the form that is served.
fn remote(url: &Url) -> Option<Destination> {
    let fits = url.scheme() == "http"
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    let host = url.host_str().filter(|host| fits && !host.is_empty())?;
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    Some(Destination::Remote(authority.parse().ok()?, url.path().trim_end_matches('/').to_owned()))
}
