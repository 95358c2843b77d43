//! The JSON-RPC 2.0 envelope, kept raw: ids and params stay the text that came. Methods are left to `mcp` and `data`.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::json::{self, JsonFault, ObjectWriter};

/// The body is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The body is JSON but no request.
pub const INVALID_REQUEST: i64 = -32600;
/// Nobody serves the method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The method is served, its params do not fit.
pub const INVALID_PARAMS: i64 = -32602;
/// The server failed.
pub const INTERNAL_ERROR: i64 = -32603;
/// A handler of the data plane failed (contract 2.2), or there is none to choose (3.5).
pub const SERVER_ERROR: i64 = -32000;
/// A header disagrees with the body, or is missing (MCP 2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// A tool needs a capability that the client did not declare (MCP 2026-07-28).
pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
/// The protocol version is not one the server speaks (MCP 2026-07-28).
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
/// The caller cancelled the request.
pub const REQUEST_CANCELLED: i64 = -32800;

/// One incoming message: a request (an id and a method), a notification (a method), or a response (an id and no method).
#[derive(Debug, Clone)]
pub struct Message<'a> {
    /// The id's text; `None` for a notification.
    pub id: Option<&'a RawValue>,
    /// The method; `None` for a response.
    pub method: Option<Cow<'a, str>>,
    /// The params' text; `None` where the message has none.
    pub params: Option<&'a RawValue>,
}

/// Why a body is no message: the code, what is wrong, and the request's id where one could be read.
#[derive(Debug, Clone)]
pub struct Malformed<'a> {
    /// [`PARSE_ERROR`] or [`INVALID_REQUEST`].
    pub code: i64,
    /// What is wrong.
    pub message: String,
    /// The id, if it is a string or a number.
    pub id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow, deserialize_with = "json::present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "json::present")]
    id: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "json::present")]
    method: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "json::present")]
    params: Option<&'a RawValue>,
}

impl<'a> Message<'a> {
    /// Reads one message.
    ///
    /// # Errors
    /// [`Malformed`]: not JSON, a batch or another value that is no object, a member twice, `jsonrpc` not `"2.0"`, an id that
    /// is no string or integer, a method that is no string.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed<'a>> {
        let malformed = |code, message: String, id| Malformed { code, message, id };
        let invalid = |message: String, id| malformed(INVALID_REQUEST, message, id);
        let no_json = |fault: JsonFault| malformed(PARSE_ERROR, format!("parse error: {fault}"), None);
        let text = json::screen(body).map_err(no_json)?;
        if !json::starts_with(text, b'{') {
            json::check(body).map_err(no_json)?;
            let batch = json::starts_with(text, b'[');
            let what =
                if batch { "a batch; send one message at a time" } else { "the body must be a JSON object" };
            return Err(invalid(format!("invalid request: {what}"), None));
        }
        // The members that are not looked at are read as raw text, which checks them too.
        let envelope: Envelope<'a> = serde_json::from_str(text).map_err(|error| match error.classify() {
            Category::Data => invalid(format!("invalid request: {error}"), None),
            _ => malformed(PARSE_ERROR, format!("parse error: {error}"), None),
        })?;
        let id = envelope.id.filter(|id| is_id(id.get()));
        if envelope.jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
            return Err(invalid("invalid request: 'jsonrpc' must be \"2.0\"".into(), id));
        }
        if envelope.id.is_some() && id.is_none() {
            return Err(invalid("invalid request: 'id' must be a string or an integer".into(), None));
        }
        let method = match envelope.method {
            None => None,
            Some(raw) => Some(
                json::text(raw)
                    .ok_or_else(|| invalid("invalid request: 'method' must be a string".into(), id))?,
            ),
        };
        Ok(Self { id, method, params: envelope.params })
    }
}

/// Whether a JSON text is a string or an integer.
fn is_id(text: &str) -> bool {
    match text.as_bytes() {
        [b'"', ..] => true,
        [b'-' | b'0'..=b'9', ..] => !text.contains(['.', 'e', 'E']),
        _ => false,
    }
}

/// A response that carries a result, the id and the result as the JSON texts they are.
pub fn result(id: &str, result: &str) -> Bytes {
    // Its very length: a text that is no longer than it needs to be becomes `Bytes` as it is.
    ObjectWriter::with_capacity(r#""jsonrpc":"2.0","id":,"result":"#.len() + id.len() + result.len())
        .raw("jsonrpc", r#""2.0""#)
        .raw("id", id)
        .raw("result", result)
        .finish()
}

/// A response that carries an error; `id` is a JSON text, `null` where the request's is not known.
pub fn error(id: Option<&RawValue>, code: i64, message: &str, data: Option<&serde_json::Value>) -> Bytes {
    let mut error =
        ObjectWriter::with_capacity(message.len() + 48).field("code", &code).field("message", message);
    if let Some(data) = data {
        error = error.field("data", data);
    }
    let error = error.finish();
    ObjectWriter::with_capacity(error.len() + 48)
        .raw("jsonrpc", r#""2.0""#)
        .raw("id", id.map_or("null", RawValue::get))
        .raw("error", std::str::from_utf8(&error).unwrap_or("null"))
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str) -> Option<i64> {
        Message::parse(body.as_bytes()).err().map(|e| e.code)
    }

    #[test]
    fn reads_messages() {
        let m = Message::parse(br#"{"jsonrpc":"2.0","id":"7","method":"ping","params":{"a":1.0}}"#).unwrap();
        assert_eq!((m.id.unwrap().get(), m.method.as_deref()), ("\"7\"", Some("ping")));
        assert_eq!(m.params.unwrap().get(), r#"{"a":1.0}"#);
        let m = Message::parse(br#"{"jsonrpc":"2.0","method":"x"}"#).unwrap();
        assert!(m.id.is_none() && m.params.is_none());
        assert!(Message::parse(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).unwrap().method.is_none());
    }

    #[test]
    fn names_what_is_wrong() {
        for body in ["{", "", "{} x", "\"\\ud800\""] {
            assert_eq!(code(body), Some(PARSE_ERROR), "{body}");
        }
        for body in [
            "[]",
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            "5",
            "null",
            "{}",
            r#"{"jsonrpc":2.0,"id":1,"method":"x"}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":true,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":["x"]}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}"#,
        ] {
            assert_eq!(code(body), Some(INVALID_REQUEST), "{body}");
        }
    }

    #[test]
    fn keeps_the_id_of_a_bad_request() {
        let bad = Message::parse(br#"{"id":9,"method":"x"}"#).unwrap_err();
        assert_eq!(bad.id.unwrap().get(), "9");
    }
}
