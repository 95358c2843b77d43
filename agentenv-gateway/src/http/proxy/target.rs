//! What a request's target says: whose it is, and the path that its server gets, byte for byte as it came. Where a path
//! leads on the other side is only judged here, never changed.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri};
use percent_encoding::percent_decode_str;

use super::error_body;

/// Which of the two families of routes a request came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Prefix {
    /// `/svc/{key}/…`: a child's own server.
    Svc,
    /// `/website/{name}/…`: a website of the instance.
    Website,
}

impl Prefix {
    /// The first segment of its paths, which is also how the trajectory names it (contract 5).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Svc => "svc",
            Self::Website => "website",
        }
    }
}

/// Why a request is answered here and never passed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No route has the key.
    #[error("Unknown service: {0}")]
    Unknown(String),
    /// The key holds an encoded slash, or is not UTF-8.
    #[error("the service's name must not hold an encoded slash, and must be UTF-8")]
    Key,
    /// The path's dot segments lead out of the service.
    #[error("the path leads out of the service")]
    Escapes,
    /// With the service's own path before it, the path is longer than a request line can hold.
    #[error("the path is too long")]
    TooLong,
    /// Neither `/svc/{key}` nor `/website/{name}`.
    #[error("not a path of a service or a website")]
    Prefix,
    /// A method that is not passed on.
    #[error("method not allowed")]
    Method,
    /// The request asks for another protocol.
    #[error("protocol upgrades are not passed on")]
    Upgrade,
    /// The length of the body is told in a way that two servers may read differently.
    #[error("the only transfer coding accepted is 'chunked'")]
    Framing,
    /// The `Host` header is missing, or is there more than once.
    #[error("the Host header must be there once")]
    Host,
    /// The role cannot be written as a header.
    #[error("the role cannot be sent in a header")]
    Role,
}

impl Refusal {
    /// The HTTP status that says so (contract 3.4).
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Upgrade => StatusCode::NOT_IMPLEMENTED,
            Self::TooLong => StatusCode::URI_TOO_LONG,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let mut response = error_body(self.status(), &self.to_string());
        let headers = response.headers_mut();
        match self {
            Self::Method => {
                headers.insert(http::header::ALLOW, http::HeaderValue::from_static(super::ALLOWED));
            }
            // Where the body ends is in doubt, so nothing behind it may be read as a request.
            Self::Framing | Self::Host | Self::Upgrade => {
                headers.insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

/// The parts of a target that the proxy works with, borrowed from it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) prefix: Prefix,
    /// The key, decoded.
    pub(super) key: Cow<'a, str>,
    /// What follows the key, still encoded; begins with `/` unless it is empty.
    pub(super) rest: &'a str,
    /// The query, still encoded; `Some("")` for a bare `?`.
    pub(super) query: Option<&'a str>,
}

/// Takes a target apart.
pub(super) fn split(target: &Uri) -> Result<Parts<'_>, Refusal> {
    let path = target.path();
    let mut prefixes = [Prefix::Svc, Prefix::Website].into_iter();
    let (prefix, tail) = prefixes
        .find_map(|prefix| {
            let tail = path.strip_prefix('/')?.strip_prefix(prefix.as_str())?;
            (tail.is_empty() || tail.starts_with('/')).then_some((prefix, tail))
        })
        .ok_or(Refusal::Prefix)?;
    let tail = tail.strip_prefix('/').unwrap_or(tail);
    let (key, rest) = tail.split_at(tail.find('/').unwrap_or(tail.len()));
    let key = percent_decode_str(key).decode_utf8().map_err(|_| Refusal::Key)?;
    if key.contains(['/', '\\']) {
        return Err(Refusal::Key);
    }
    Ok(Parts { prefix, key, rest, query: target.query() })
}

/// What divides a path into segments, as one server or another sees it.
const DIVIDERS: [&[char]; 2] = [&['/'], &['/', '\\']];

/// Whether the literal dot segments of a path lead above where it begins, for any server: one that takes backslashes for
/// slashes or not, leaves out parameters behind `;`, merges slashes. Encoded ones are data and stay as they are.
pub(super) fn escapes(rest: &str) -> bool {
    DIVIDERS.iter().any(|dividers| walk(rest, dividers, |_| {}))
}

/// Whether a request to this path may reach one of a server's MCP endpoints, `endpoints` being the paths of those without
/// slashes around them. Servers differ in what they decode, merge and resolve before they choose a route, so the path is
/// taken for an endpoint's if any of the ways to read it leads there or below, be it on the way to somewhere else.
pub(super) fn may_reach(rest: &str, endpoints: &[String]) -> bool {
    let mut reading = Cow::Borrowed(rest);
    // A server decodes once, and one that stands before it may decode once more.
    for _ in 0..=2 {
        for endpoint in endpoints {
            let wanted: Vec<&str> = endpoint.split('/').collect();
            if DIVIDERS.iter().any(|dividers| leads_to(&reading, dividers, &wanted)) {
                return true;
            }
        }
        let Cow::Owned(decoded) = percent_decode_str(&reading).decode_utf8_lossy() else { return false };
        reading = Cow::Owned(decoded);
    }
    false
}

fn leads_to(path: &str, dividers: &[char], wanted: &[&str]) -> bool {
    let is_it = |path: &[&str]| path.iter().zip(wanted).all(|(a, b)| a.eq_ignore_ascii_case(b));
    let mut reached = false;
    let escaped = walk(path, dividers, |here| reached |= here.len() == wanted.len() && is_it(here));
    // Above the base, where a path leads cannot be told: that the endpoint's name is in it is enough.
    let named = || segments(path, dividers).collect::<Vec<_>>().windows(wanted.len()).any(is_it);
    reached || (escaped && named())
}

fn segments<'a>(path: &'a str, dividers: &[char]) -> impl Iterator<Item = &'a str> {
    let segments = path.split(dividers).filter_map(|segment| segment.split([';', '?', '#', '\0']).next());
    segments.filter(|segment| !segment.is_empty())
}

/// Goes through a path segment by segment, showing where each leads. Whether a dot segment led above the beginning.
fn walk<'a>(path: &'a str, dividers: &[char], mut at: impl FnMut(&[&'a str])) -> bool {
    let (mut here, mut escaped) = (Vec::new(), false);
    for segment in segments(path, dividers) {
        match segment {
            "." => continue,
            ".." => escaped |= here.pop().is_none(),
            segment => here.push(segment),
        }
        at(&here);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mcp(rest: &str) -> bool {
        may_reach(rest, &["mcp".into()])
    }

    #[test]
    fn takes_targets_apart() {
        let of = |target: &str| {
            let uri: Uri = target.parse().unwrap();
            split(&uri).map(|p| (p.prefix, p.key.into_owned(), p.rest.to_owned(), p.query.map(str::to_owned)))
        };
        let svc = |key: &str, rest: &str, query: Option<&str>| {
            Ok((Prefix::Svc, key.to_owned(), rest.to_owned(), query.map(str::to_owned)))
        };
        assert_eq!(
            of("/svc/mcp-email/a%2Fb//c;d?x=1&x=%zz"),
            svc("mcp-email", "/a%2Fb//c;d", Some("x=1&x=%zz"))
        );
        assert_eq!(of("/svc/mcp%2Demail"), svc("mcp-email", "", None));
        assert_eq!(of("/svc/x/?"), svc("x", "/", Some("")));
        assert_eq!(of("/svc/x?y"), svc("x", "", Some("y")));
        assert_eq!(of("/svc"), svc("", "", None));
        assert_eq!(of("/svc//x"), svc("", "/x", None));
        assert_eq!(of("/svc/../x"), svc("..", "/x", None));
        assert_eq!(of("http://elsewhere/svc/x/y"), svc("x", "/y", None));
        assert_eq!(of("/website/shop/a").map(|p| p.0), Ok(Prefix::Website));
        assert_eq!(of("/svc/a%2Fb/c"), Err(Refusal::Key));
        assert_eq!(of("/svc/a%2fb"), Err(Refusal::Key));
        assert_eq!(of("/svc/%ff/c"), Err(Refusal::Key));
        assert_eq!(of("/svc%2Fmcp-email/c"), Err(Refusal::Prefix));
        assert_eq!(of("/svcs/mcp-email/c"), Err(Refusal::Prefix));
        assert_eq!(of("/"), Err(Refusal::Prefix));
    }

    #[test]
    fn dot_segments_stay_inside() {
        for path in ["", "/", "/a/../b", "/a/./..", "/a..b/...", "/%2e%2e/x", "/..%2fx", "/a/%2e%2e/%2e%2e/x"]
        {
            assert!(!escapes(path), "{path}");
        }
        for path in [
            "/..",
            "/../x",
            "/a/../../x",
            "//../x",
            "/./../x",
            "/..;/x",
            "/..;a=b/x",
            "/..\\x",
            "/a/..\\..\\x",
        ] {
            assert!(escapes(path), "{path}");
        }
    }

    #[test]
    fn every_way_to_the_endpoint_is_known() {
        for path in [
            "/mcp",
            "/mcp/",
            "/mcp/below",
            "//mcp",
            "/./mcp",
            "/a/../mcp",
            "/%6dcp",
            "/%6Dc%70/",
            "/%256dcp",
            "/mcp;x=1",
            "/MCP",
            "/a/%2e%2e/mcp",
            "/a%2f..%2fmcp",
            "/mcp/../a",
            "/mcp%2f..%2fa",
            "\\mcp",
            "/%2fmcp",
            "/%2e%2e/base/mcp",
            "/mcp%3fx",
            "/mcp%00x",
            "/a\\b/../mcp",
        ] {
            assert!(mcp(path), "{path}");
        }
        for path in ["", "/", "/agentenv", "/a/mcp", "/mcpx", "/agentenv/ext/mcp", "/mc%70x", "/m/cp"] {
            assert!(!mcp(path), "{path}");
        }
        assert!(may_reach("/api/v1/mcp", &["mcp".into(), "api/v1/mcp".into()]));
        assert!(!may_reach("/api/v1", &["api/v1/mcp".into()]));
    }

    proptest! {
        /// However the endpoint's name is encoded and surrounded, it is known.
        #[test]
        fn no_spelling_hides_it(encoded: [bool; 3], upper: [bool; 3], before in "(/|\\./|a/\\.\\./|%2[eE]/|b/%2e\\./){0,4}", after in "(/[a-z%./]{0,8})?") {
            let name: String = "mcp".chars().zip(encoded).zip(upper).map(|((c, encoded), upper)| {
                let c = if upper { c.to_ascii_uppercase() } else { c };
                if encoded { format!("%{:02X}", u32::from(c)) } else { c.to_string() }
            }).collect();
            let path = format!("/{before}{name}{after}");
            prop_assert!(mcp(&path), "{path}");
        }

        /// A path that does not escape stays below its base, whatever its server takes for a divider and a segment.
        #[test]
        fn what_stays_inside_is_inside(path in "(/[a.;\\\\]{0,4}){0,6}", backslash: bool, parameters: bool, merges: bool) {
            if !escapes(&path) {
                let mut depth = 0_i32;
                let path = if backslash { path.replace('\\', "/") } else { path };
                for segment in path.split('/').skip(1) {
                    let segment = if parameters { segment.split(';').next().unwrap() } else { segment };
                    depth += match segment { ".." => -1, "." => 0, "" => i32::from(!merges), _ => 1 };
                    prop_assert!(depth >= 0, "{path}");
                }
            }
        }

        /// A path that leads to the endpoint, for a server of any of these kinds, is known to.
        #[test]
        fn who_gets_there_is_seen(
            path in "(/([a.]{1,2}|\\.\\.|mcp|MCP|%6d%63p|%2e%2e|%2f|\\\\|;x|mcp;a|%5c)?){1,6}",
            decodes in 0..3_usize, backslash: bool, parameters: bool, merges: bool, resolves: bool,
        ) {
            let mut read = path.clone();
            for _ in 0..decodes {
                read = percent_decode_str(&read).decode_utf8_lossy().into_owned();
            }
            if backslash {
                read = read.replace('\\', "/");
            }
            let mut here: Vec<&str> = Vec::new();
            for segment in read.split('/').skip(1) {
                let segment = if parameters { segment.split(';').next().unwrap() } else { segment };
                match segment {
                    "" if merges => {}
                    "." if resolves => {}
                    ".." if resolves => drop(here.pop()),
                    segment => here.push(segment),
                }
            }
            if here.first().is_some_and(|first| first.eq_ignore_ascii_case("mcp")) {
                prop_assert!(mcp(&path), "{path} is read as {here:?}");
            }
        }
    }
}
