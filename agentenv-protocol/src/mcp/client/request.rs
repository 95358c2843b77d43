//! What is sent: JSON-RPC messages written in one buffer from texts that are JSON already, and their headers in each era.
//! When to send them, and over what, is left to `client` and `pool`.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use serde_json::json;

use super::super::headers::{MCP_METHOD, MCP_NAME, MCP_SESSION, MCP_VERSION, wrap_base64};
use super::super::{META_CAPABILITIES, META_CLIENT_INFO, META_LOG_LEVEL, META_VERSION, STATELESS};

/// The era of a server, and what every request to it carries for that.
#[derive(Debug, Clone)]
pub(super) enum Era {
    /// 2026-07-28: each request says all there is to know. Holds the beginning of every `_meta`.
    Stateless { meta: String },
    /// 2024-11-05 to 2025-11-25: `initialize` came first.
    Session,
}

impl Era {
    /// The stateless era, for a client of this name and version.
    pub(super) fn stateless(name: &str, version: &str) -> Self {
        let meta = json!({
            META_VERSION: STATELESS,
            META_CLIENT_INFO: {"name": name, "version": version},
            META_CAPABILITIES: {},
        });
        let mut meta = meta.to_string();
        meta.pop();
        Self::Stateless { meta }
    }
}

/// A request before it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) method: &'static str,
    /// What `Mcp-Name` copies.
    pub(super) name: Option<&'a str>,
    /// The params but `_meta`: names and JSON texts.
    pub(super) params: &'a [(&'static str, &'a str)],
    /// The params' `_meta`: an object's text, or empty for none.
    pub(super) meta: &'a str,
    /// Whether log messages are listened to.
    pub(super) logs: bool,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(method: &'static str, params: &'a [(&'static str, &'a str)]) -> Self {
        Self { method, name: None, params, meta: "", logs: false }
    }

    /// The message's text.
    pub(super) fn body(&self, id: u64, era: &Era) -> Bytes {
        let params: usize = self.params.iter().map(|(name, text)| name.len() + text.len() + 4).sum();
        let mut body = BytesMut::with_capacity(params + self.meta.len() + self.method.len() + 384);
        let put = |body: &mut BytesMut, text: &str| body.put_slice(text.as_bytes());
        put(&mut body, r#"{"jsonrpc":"2.0","id":"#);
        put(&mut body, &id.to_string());
        put(&mut body, r#","method":""#);
        put(&mut body, self.method);
        put(&mut body, r#"","params":{"#);
        let mut comma = "";
        for (name, text) in self.params {
            put(&mut body, comma);
            put(&mut body, "\"");
            put(&mut body, name);
            put(&mut body, "\":");
            put(&mut body, text);
            comma = ",";
        }
        let members = members(self.meta);
        match era {
            Era::Stateless { meta } => {
                put(&mut body, comma);
                put(&mut body, r#""_meta":"#);
                put(&mut body, meta);
                if self.logs {
                    put(&mut body, ",\"");
                    put(&mut body, META_LOG_LEVEL);
                    put(&mut body, r#"":"debug""#);
                }
                if members.is_some() {
                    put(&mut body, ",");
                }
                put(&mut body, members.unwrap_or("}"));
            }
            Era::Session => {
                if let Some(members) = members {
                    put(&mut body, comma);
                    put(&mut body, r#""_meta":{"#);
                    put(&mut body, members);
                }
            }
        }
        put(&mut body, "}}");
        body.freeze()
    }

    /// The headers, given those that every request to the server has.
    pub(super) fn headers(&self, base: &HeaderMap, era: &Era) -> HeaderMap {
        let mut headers = base.clone();
        if matches!(era, Era::Stateless { .. }) {
            headers.insert(MCP_METHOD, HeaderValue::from_static(self.method));
            let name = self.name.map(wrap_base64).and_then(|name| HeaderValue::try_from(name).ok());
            match name {
                Some(name) => headers.insert(MCP_NAME, name),
                None => headers.remove(MCP_NAME),
            };
        }
        headers
    }
}

/// An object's text from behind its opening brace, if it has members.
fn members(object: &str) -> Option<&str> {
    let members = object.trim_ascii().strip_prefix('{')?;
    (!members.trim_ascii_start().starts_with('}')).then_some(members)
}

/// A notification's text.
pub(super) fn notification(method: &str, params: Option<&str>) -> Bytes {
    let params = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"{params}}}"#).into()
}

/// The headers that every message to a server has: the protocol's own over the client's.
pub(super) fn base_headers(
    own: &HeaderMap,
    host: &HeaderValue,
    version: &'static str,
    session: Option<HeaderValue>,
) -> HeaderMap {
    let mut headers = own.clone();
    headers.reserve(8);
    headers.insert(header::HOST, host.clone());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(MCP_VERSION, HeaderValue::from_static(version));
    if let Some(session) = session {
        headers.insert(MCP_SESSION, session);
    }
    if version == STATELESS {
        // Every request fills these in. A copy of the headers has no room but for what is in them.
        headers.insert(MCP_METHOD, HeaderValue::from_static(""));
        headers.insert(MCP_NAME, HeaderValue::from_static(""));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(params: &'a [(&'static str, &'a str)], meta: &'a str, logs: bool) -> Outgoing<'a> {
        Outgoing { method: "tools/call", name: Some("send"), params, meta, logs }
    }

    #[test]
    fn session_messages_keep_the_texts_they_are_made_of() {
        let params = [("name", "\"send\""), ("arguments", r#"{"n": 1.0,"big":99999999999999999999999999}"#)];
        let body = call(&params, r#" {"a/b": -0 } "#, true).body(7, &Era::Session);
        assert_eq!(
            body,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"send","arguments":{"n": 1.0,"big":99999999999999999999999999},"_meta":{"a/b": -0 }}}"#
        );
        assert_eq!(
            Outgoing::new("ping", &[]).body(1, &Era::Session),
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}"#
        );
        assert_eq!(
            call(&[], "{ }", false).body(1, &Era::Session),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#
        );
    }

    #[test]
    fn stateless_messages_say_who_sends_them() {
        let era = Era::stateless("gateway", "1");
        for (meta, logs) in
            [("", false), ("{}", true), (r#"{"progressToken":1}"#, false), (r#"{"a":{}}"#, true)]
        {
            let body = call(&[("name", "\"send\"")], meta, logs).body(1, &era);
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let found = &body["params"]["_meta"];
            assert_eq!(found[META_VERSION], STATELESS);
            assert_eq!(found[META_CLIENT_INFO]["name"], "gateway");
            assert_eq!(found[META_CAPABILITIES], json!({}));
            assert_eq!(found.get(META_LOG_LEVEL).is_some(), logs);
            if let Some(token) = found.get("progressToken") {
                assert_eq!((token, meta), (&json!(1), r#"{"progressToken":1}"#));
            }
        }
    }

    #[test]
    fn stateless_headers_copy_method_and_name() {
        let base = |version| base_headers(&HeaderMap::new(), &HeaderValue::from_static("h"), version, None);
        let outgoing = Outgoing { name: Some("josé"), ..call(&[], "", false) };
        let era = Era::stateless("g", "1");
        let headers = outgoing.headers(&base(STATELESS), &era);
        assert_eq!(headers[MCP_METHOD], "tools/call");
        assert_eq!(headers[MCP_NAME], "=?base64?am9zw6k=?=");
        let headers = Outgoing::new("tools/list", &[]).headers(&base(STATELESS), &era);
        assert_eq!(headers[MCP_METHOD], "tools/list");
        assert!(!headers.contains_key(MCP_NAME));
        let headers = outgoing.headers(&base("2025-11-25"), &Era::Session);
        assert!(!headers.contains_key(MCP_METHOD) && !headers.contains_key(MCP_NAME));
    }
}
