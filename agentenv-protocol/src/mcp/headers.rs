//! What the request headers of an MCP message say: who calls, what it accepts, where it comes from.

use base64::Engine;
use http::{HeaderMap, HeaderName, header};

/// The header that names a caller's role (contract 1).
pub const ROLE_HEADER: HeaderName = HeaderName::from_static("agentenv-role");

/// The header by which a stateless caller may name its session (contract 2.3): up to 128 printable characters.
pub const SESSION_HEADER: HeaderName = HeaderName::from_static("agentenv-session");

/// The session protocol's own header.
pub(crate) const MCP_SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// The protocol version that a message is in.
pub(crate) const MCP_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The stateless protocol's copy of the body's method.
pub(crate) const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// The stateless protocol's copy of the name that the body's params give.
pub(crate) const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Longest role, in bytes.
const MAX_ROLE: usize = 256;

/// Longest session key that a stateless caller may give, in characters.
const MAX_SESSION: usize = 128;

/// A role header that names no role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoleFault {
    /// Its bytes are not UTF-8.
    #[error("the AgentEnv-Role header is not UTF-8")]
    NotUtf8,
    /// It is longer than 256 bytes.
    #[error("the AgentEnv-Role header is longer than {MAX_ROLE} bytes")]
    TooLong,
    /// It is `*`, which stands for every role.
    #[error("the AgentEnv-Role header names '*', which is not a role")]
    Wildcard,
    /// It is there more than once, with different values.
    #[error("the AgentEnv-Role header is there more than once")]
    Repeated,
}

/// The role that a request's headers name: trimmed, `None` where the header is absent or blank (contract 1).
///
/// # Errors
/// [`RoleFault`], which a server answers with 400 (contract 9.12).
pub fn role(headers: &HeaderMap) -> Result<Option<&str>, RoleFault> {
    let mut values = headers.get_all(&ROLE_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.any(|other| other != value) {
        return Err(RoleFault::Repeated);
    }
    let role = std::str::from_utf8(value.as_bytes()).map_err(|_| RoleFault::NotUtf8)?.trim();
    match role {
        "" => Ok(None),
        "*" => Err(RoleFault::Wildcard),
        role if role.len() > MAX_ROLE => Err(RoleFault::TooLong),
        role => Ok(Some(role)),
    }
}

/// The session key that a stateless caller gives, or what is wrong with it.
pub(crate) fn stateless_session(headers: &HeaderMap) -> Result<Option<&str>, &'static str> {
    let Some(value) = headers.get(&SESSION_HEADER) else { return Ok(None) };
    match value.to_str().map(str::trim) {
        Ok("") => Ok(None),
        Ok(key) if key.len() <= MAX_SESSION => Ok(Some(key)),
        _ => Err("the AgentEnv-Session header must be up to 128 printable ASCII characters"),
    }
}

/// A header that may be there once, as text. `Err` where it is not ASCII or is there more than once.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(());
    }
    value.to_str().map(|text| Some(text.trim())).map_err(|_| ())
}

/// A value that may be wrapped as `=?base64?…?=`, as a header holds what ASCII cannot say.
pub(crate) fn unwrap_base64(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|v| v.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok()
}

/// A header's value for this text: itself where a header can hold it as it is, else wrapped.
pub(crate) fn wrap_base64(value: &str) -> String {
    let plain = value.bytes().all(|b| (b' '..=b'~').contains(&b))
        && value.trim() == value
        && !value.is_empty()
        && !value.starts_with("=?base64?");
    if plain {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(value))
    }
}

/// What a client takes as an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepts {
    pub(crate) json: bool,
    pub(crate) events: bool,
}

/// Reads `Accept`: absent means anything; a quality of 0 means no.
pub(crate) fn accepts(headers: &HeaderMap) -> Accepts {
    let mut found = Accepts { json: false, events: false };
    let mut values = headers.get_all(header::ACCEPT).iter().peekable();
    if values.peek().is_none() {
        return Accepts { json: true, events: true };
    }
    for value in values {
        // What MCP's clients send, word for word: nothing can be more.
        if value == "application/json, text/event-stream" {
            return Accepts { json: true, events: true };
        }
        for entry in value.to_str().unwrap_or_default().split(',') {
            let mut parts = entry.split(';').map(str::trim);
            let range = parts.next().unwrap_or_default();
            let refused = parts.any(|p| {
                let quality = p.strip_prefix("q=").or_else(|| p.strip_prefix("Q="));
                quality.and_then(|q| q.trim().parse::<f32>().ok()).is_some_and(|q| q <= 0.0)
            });
            if refused {
                continue;
            }
            let is = |kind: &&str| range.eq_ignore_ascii_case(kind);
            found.json |= ["*/*", "application/*", "application/json"].iter().any(is);
            found.events |= ["*/*", "text/*", "text/event-stream"].iter().any(is);
        }
    }
    found
}

/// Whether a body is said to be JSON in UTF-8.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()) else { return false };
    let mut parts = value.split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    let charset =
        parts.filter_map(|p| p.split_once('=')).find(|(name, _)| name.eq_ignore_ascii_case("charset"));
    json && charset.is_none_or(|(_, set)| set.trim_matches('"').eq_ignore_ascii_case("utf-8"))
}

/// Whether a browser page may have sent this request (contract 2.3): no `Origin`; an origin on this machine; the very IP
/// address that the request was sent to, which no name can be rebound to; or one of the allowed ones.
pub fn origin_is_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return true };
    if origins.next().is_some() {
        return false;
    }
    let Ok(origin) = origin.to_str() else { return false };
    if allowed.iter().any(|a| a.eq_ignore_ascii_case(origin)) {
        return true;
    }
    let Ok(url) = url::Url::parse(origin) else { return false };
    let same_as_host = || {
        let host = headers.get(header::HOST).and_then(|h| h.to_str().ok());
        host.is_some_and(|host| origin.split_once("://").is_some_and(|(_, o)| o.eq_ignore_ascii_case(host)))
    };
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || same_as_host(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback() || same_as_host(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: HeaderName, values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), http::HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn roles() {
        let role_of = |values: &[&[u8]]| role(&with(ROLE_HEADER, values)).map(|r| r.map(str::to_owned));
        assert_eq!(role_of(&[]), Ok(None));
        assert_eq!(role_of(&[b"  "]), Ok(None));
        assert_eq!(role_of(&[b" x "]), Ok(Some("x".into())));
        assert_eq!(role_of(&["josé".as_bytes()]), Ok(Some("josé".into())));
        assert_eq!(role_of(&[b"jos\xe9"]), Err(RoleFault::NotUtf8));
        assert_eq!(role_of(&[b" * "]), Err(RoleFault::Wildcard));
        assert_eq!(role_of(&[&[b'a'; 257]]), Err(RoleFault::TooLong));
        assert_eq!(role_of(&[b"a", b"b"]), Err(RoleFault::Repeated));
        assert_eq!(role_of(&[b"a", b"a"]), Ok(Some("a".into())));
    }

    #[test]
    fn accept() {
        let of = |value: &str| {
            let found = accepts(&with(header::ACCEPT, &[value.as_bytes()]));
            (found.json, found.events)
        };
        assert_eq!(of("application/json, text/event-stream"), (true, true));
        assert_eq!(of("*/*"), (true, true));
        assert_eq!(of("application/json;q=0, text/event-stream"), (false, true));
        assert_eq!(of("text/html"), (false, false));
        assert_eq!(of("text/event-stream"), (false, true));
        assert_eq!(accepts(&HeaderMap::new()), Accepts { json: true, events: true });
    }

    #[test]
    fn content_types() {
        for (value, fits) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=latin-1", false),
            ("application/jsonx", false),
            ("text/plain", false),
        ] {
            assert_eq!(is_json(&with(header::CONTENT_TYPE, &[value.as_bytes()])), fits, "{value}");
        }
    }

    #[test]
    fn origins() {
        let of = |origin: &str, host: &str| {
            let mut headers = with(header::ORIGIN, &[origin.as_bytes()]);
            headers.insert(header::HOST, host.parse().unwrap());
            origin_is_allowed(&headers, &["https://app.example".into()])
        };
        assert!(of("http://localhost:3000", "localhost:18765"));
        assert!(of("http://127.0.0.1:1", "x"));
        assert!(of("http://[::1]:1", "x"));
        assert!(of("http://10.0.0.5:18765", "10.0.0.5:18765"));
        assert!(of("https://app.example", "x"));
        assert!(!of("http://10.0.0.5:1", "10.0.0.5:18765"));
        assert!(!of("http://evil.example", "evil.example"));
        assert!(!of("null", "localhost"));
    }

    #[test]
    fn names_that_ascii_cannot_say() {
        for name in ["send", "josé", " x", "", "=?base64?x"] {
            assert_eq!(unwrap_base64(&wrap_base64(name)).as_deref(), Some(name));
        }
        assert_eq!(wrap_base64("send"), "send");
    }
}
