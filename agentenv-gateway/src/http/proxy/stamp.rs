//! The caller's identity, written into an MCP message that goes to a child's own endpoint (contract 3.3 and 3.4). What the
//! message may do, and whether it may at all, is decided elsewhere.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use agentenv_protocol::json::{ObjectWriter, starts_with};
use agentenv_protocol::mcp::{META_ROLE, META_SESSION};
use agentenv_protocol::rpc::{self, Message};

/// A message that cannot be stamped, and so must not be passed on: its answer is 400 with a JSON-RPC error.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StampError {
    /// The JSON-RPC code.
    pub code: i64,
    /// What is wrong.
    pub message: String,
    /// The request's id, where it has one that can be read.
    pub id: Option<Box<RawValue>>,
}

impl StampError {
    fn params(message: &str, id: Option<&RawValue>) -> Self {
        Self {
            code: rpc::INVALID_PARAMS,
            message: format!("invalid params: {message}"),
            id: id.map(ToOwned::to_owned),
        }
    }
}

impl IntoResponse for StampError {
    fn into_response(self) -> Response<Body> {
        let mut response =
            Response::new(Body::from(rpc::error(self.id.as_deref(), self.code, &self.message, None)));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// Whether a body with these headers is text that can be read here as its receiver will read it.
///
/// # Errors
/// [`StampError`]: it is compressed, or said to be in another character set than UTF-8.
pub(super) fn readable(headers: &HeaderMap) -> Result<(), StampError> {
    let fault = |message: &str| {
        Err(StampError { code: rpc::PARSE_ERROR, message: format!("parse error: {message}"), id: None })
    };
    let plain = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        return fault("a body with a content encoding is not accepted");
    }
    for value in headers.get_all(CONTENT_TYPE) {
        let value = value.as_bytes().to_ascii_lowercase();
        for parameter in value.split(|b| *b == b';').skip(1) {
            let Some(charset) = parameter.trim_ascii().strip_prefix(b"charset") else { continue };
            let name = charset.trim_ascii_start().strip_prefix(b"=").unwrap_or_default().trim_ascii();
            if !matches!(name, b"utf-8" | b"utf8" | b"\"utf-8\"" | b"\"utf8\"") {
                return fault("a body in another character set than UTF-8 is not accepted");
            }
        }
    }
    Ok(())
}

/// The message with the caller's role, and its session where it has one, in `params._meta`. What the caller wrote under those
/// two keys, however escaped, is gone; everything else is as it came. A message without a method is a response, which carries no params and stays as it is.
pub(super) fn stamp(body: &[u8], role: &str, session: Option<&str>) -> Result<Bytes, StampError> {
    let message = Message::parse(body).map_err(|fault| StampError {
        code: fault.code,
        message: fault.message,
        id: fault.id.map(ToOwned::to_owned),
    })?;
    let text = std::str::from_utf8(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)).unwrap_or_default();
    if message.method.is_none() {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    let mut identity = ObjectWriter::with_capacity(64 + role.len()).field(META_ROLE, role);
    if let Some(session) = session {
        identity = identity.field(META_SESSION, session);
    }
    let identity = identity.finish();
    // Without its closing brace, so that what else `_meta` holds can follow.
    let identity = identity.slice(..identity.len() - 1);

    let Some(params) = message.params.filter(|params| params.get() != "null") else {
        // The last brace of the text is the message's: only white space may follow it.
        return match (message.params, text.rfind('}')) {
            (Some(null), _) => Ok(splice(text, null.get(), &[b"{\"_meta\":", &identity, b"}}"])),
            (None, Some(end)) => {
                let parts: [&[u8]; 3] = [b",\"params\":{\"_meta\":", &identity, b"}}"];
                Ok(splice(text, &text[end..end], &parts))
            }
            (None, None) => Err(StampError::params("the message is no object", message.id)),
        };
    };
    if !starts_with(params.get(), b'{') {
        return Err(StampError::params("'params' must be an object", message.id));
    }
    let members = members(params, message.id)?;
    if let Some(name) = repeated(&members) {
        return Err(StampError::params(&format!("'{name}' is there more than once"), message.id));
    }
    let Some(member) = members.iter().find(|member| member.name == "_meta") else {
        let after = if members.is_empty() { "" } else { "," };
        let brace = &params.get()[..1];
        return Ok(splice(text, brace, &[b"{\"_meta\":", &identity, b"}", after.as_bytes()]));
    };
    let meta = member.value;
    if meta.get() == "null" {
        return Ok(splice(text, meta.get(), &[&identity, b"}"]));
    }
    if !starts_with(meta.get(), b'{') {
        return Err(StampError::params("'_meta' must be an object", message.id));
    }
    let mut kept = BytesMut::with_capacity(identity.len() + meta.get().len());
    kept.put_slice(&identity);
    for member in self::members(meta, message.id)? {
        if member.name != META_ROLE && member.name != META_SESSION {
            for part in [",", member.key.get(), ":", member.value.get()] {
                kept.put_slice(part.as_bytes());
            }
        }
    }
    kept.put_u8(b'}');
    Ok(splice(text, meta.get(), &[&kept]))
}

/// `text` with the piece of it that `old` is replaced.
fn splice(text: &str, old: &str, new: &[&[u8]]) -> Bytes {
    let start = old.as_ptr().addr() - text.as_ptr().addr();
    let (before, rest) = text.as_bytes().split_at(start);
    let after = &rest[old.len()..];
    let mut out = BytesMut::with_capacity(text.len() + new.iter().map(|part| part.len()).sum::<usize>());
    out.put_slice(before);
    for part in new {
        out.put_slice(part);
    }
    out.put_slice(after);
    out.freeze()
}

/// One member of an object: its name, and name and value as they stand in the text.
struct Member<'a> {
    name: String,
    key: &'a RawValue,
    value: &'a RawValue,
}

fn members<'a>(object: &'a RawValue, id: Option<&RawValue>) -> Result<Vec<Member<'a>>, StampError> {
    struct Read<'a>(Vec<Member<'a>>);
    impl<'de: 'a, 'a> Deserialize<'de> for Read<'a> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Each;
            impl<'de> Visitor<'de> for Each {
                type Value = Vec<Member<'de>>;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a JSON object")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                    let mut members = Vec::new();
                    while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                        let name = serde_json::from_str(key.get()).map_err(serde::de::Error::custom)?;
                        members.push(Member { name, key, value });
                    }
                    Ok(members)
                }
            }
            deserializer.deserialize_map(Each).map(Read)
        }
    }
    let read = serde_json::from_str::<Read<'a>>(object.get());
    read.map(|read| read.0).map_err(|fault| StampError::params(&fault.to_string(), id))
}

/// A name that comes twice, of which one reader would take the first value and another the last.
fn repeated<'a>(members: &'a [Member<'_>]) -> Option<&'a str> {
    let mut names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn stamped(body: &str) -> String {
        String::from_utf8(stamp(body.as_bytes(), "intern", Some("s-1")).unwrap().to_vec()).unwrap()
    }

    fn code(body: &[u8]) -> i64 {
        stamp(body, "intern", None).unwrap_err().code
    }

    const STAMP: &str = r#"{"agentenv.io/role":"intern","agentenv.io/session":"s-1""#;

    #[test]
    fn writes_the_identity() {
        for (before, after) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":@}}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"}","id":"}"}  "#,
                r#"{"jsonrpc":"2.0","method":"}","id":"}","params":{"_meta":@}}}  "#,
            ),
            (
                r#"{"params": null, "jsonrpc":"2.0","method":"m"}"#,
                r#"{"params": {"_meta":@}}, "jsonrpc":"2.0","method":"m"}"#,
            ),
            (
                r#"{"params": { }, "jsonrpc":"2.0","method":"m"}"#,
                r#"{"params": {"_meta":@} }, "jsonrpc":"2.0","method":"m"}"#,
            ),
            (
                r#"{"params":{"a" : 1.0 },"jsonrpc":"2.0","method":"m"}"#,
                r#"{"params":{"_meta":@},"a" : 1.0 },"jsonrpc":"2.0","method":"m"}"#,
            ),
            (
                r#"{"params":{"_meta": null ,"a":-0},"jsonrpc":"2.0","method":"m"}"#,
                r#"{"params":{"_meta": @} ,"a":-0},"jsonrpc":"2.0","method":"m"}"#,
            ),
            (
                r#"{"params":{"\u005fmeta":{"progressToken" : 1e2,"agentenv.io/role":"boss","\u0061gentenv.io\/session":[1],"agentenv.io/role":1,"\u0061":2},"a":1},"jsonrpc":"2.0","method":"m"}"#,
                r#"{"params":{"\u005fmeta":@,"progressToken":1e2,"\u0061":2},"a":1},"jsonrpc":"2.0","method":"m"}"#,
            ),
        ] {
            assert_eq!(stamped(before), after.replacen('@', STAMP, 1));
        }
    }

    #[test]
    fn a_caller_without_a_session_has_none() {
        let body = br#"{"jsonrpc":"2.0","method":"m","params":{"_meta":{"agentenv.io/session":"x"}}}"#;
        let text = stamp(body, "default", None).unwrap();
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","method":"m","params":{"_meta":{"agentenv.io/role":"default"}}}"#
        );
    }

    #[test]
    fn responses_stay_as_they_are() {
        let body = r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"agentenv.io/role":"x"}}}"#;
        assert_eq!(stamped(body), body);
        assert_eq!(stamped(&format!("\u{feff}{body}")), body);
    }

    #[test]
    fn refuses_what_it_cannot_read() {
        for body in [&b""[..], b"{", b"\x1f\x8b\x08\x00", b"{\0}\0", b"\"\xff\"", b"{}x"] {
            assert_eq!(code(body), rpc::PARSE_ERROR, "{body:?}");
        }
        for body in [
            r#"[]"#,
            r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#,
            r#"{"jsonrpc":"2.0","method":"m","params":{},"params":{}}"#,
            r#"{"jsonrpc":"2.0","method":"m","params":{},"par\u0061ms":{}}"#,
            r#"{"jsonrpc":"2.0","method":"m","m\u0065thod":"n"}"#,
        ] {
            assert_eq!(code(body.as_bytes()), rpc::INVALID_REQUEST, "{body}");
        }
        for params in [
            "[]",
            "5",
            r#"{"_meta":[]}"#,
            r#"{"_meta":"x"}"#,
            r#"{"_meta":{},"_meta":{}}"#,
            r#"{"_meta":{},"_met\u0061":{}}"#,
            r#"{"name":"a","n\u0061me":"b"}"#,
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{params}}}"#);
            let fault = stamp(body.as_bytes(), "intern", None).unwrap_err();
            assert_eq!(
                (fault.code, fault.id.as_ref().map(|id| id.get())),
                (rpc::INVALID_PARAMS, Some("7")),
                "{params}"
            );
        }
    }

    #[test]
    fn reads_only_plain_utf8() {
        let of = |name, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            readable(&headers).is_ok()
        };
        assert!(readable(&HeaderMap::new()).is_ok());
        assert!(of(CONTENT_ENCODING, "identity"));
        assert!(!of(CONTENT_ENCODING, "gzip"));
        assert!(of(CONTENT_TYPE, "application/json"));
        assert!(of(CONTENT_TYPE, "application/json; Charset=UTF-8"));
        assert!(of(CONTENT_TYPE, "application/json; profile=charset"));
        assert!(!of(CONTENT_TYPE, "application/json;charset=utf-16"));
        assert!(!of(CONTENT_TYPE, "application/json;a=b; charset = latin-1"));
    }

    /// JSON whose keys are often the ones that matter, spelt in several ways.
    fn value() -> impl Strategy<Value = String> {
        let key = prop::sample::select(vec![
            r#""agentenv.io/role""#,
            r#""agentenv.io\/role""#,
            r#""\u0061gentenv.io/session""#,
            r#""_meta""#,
            r#""a""#,
            r#""progressToken""#,
        ]);
        let leaf = prop::sample::select(vec![
            "1",
            "-0",
            "1.0",
            "99999999999999999999",
            "null",
            r#""x""#,
            r#""\u00e9""#,
            "[]",
        ])
        .prop_map(str::to_owned);
        leaf.prop_recursive(3, 12, 4, move |inner| {
            prop::collection::vec((key.clone(), inner, "[ \n]?"), 0..4).prop_map(|members| {
                let members: Vec<String> =
                    members.into_iter().map(|(k, v, s)| format!("{s}{k}{s}:{s}{v}{s}")).collect();
                format!("{{{}}}", members.join(","))
            })
        })
    }

    proptest! {
        /// Whoever reads the stamped message, first value or last, finds the gateway's identity in it and nothing but the
        /// caller's own text elsewhere.
        #[test]
        fn nobody_can_be_another(params in value()) {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
            let Ok(out) = stamp(body.as_bytes(), "intern", Some("s")) else { return Ok(()) };
            let text = std::str::from_utf8(&out).unwrap();
            let new: Value = serde_json::from_str(text).unwrap();
            let meta = new["params"]["_meta"].as_object().unwrap();
            prop_assert_eq!((&meta["agentenv.io/role"], &meta["agentenv.io/session"]), (&json!("intern"), &json!("s")));
            let message = Message::parse(&out).unwrap();
            let mut outer = members(message.params.unwrap(), None).unwrap();
            prop_assert!(repeated(&outer).is_none());
            outer.retain(|m| m.name == "_meta");
            let ours = members(outer[0].value, None).unwrap();
            prop_assert_eq!(ours.iter().filter(|m| m.name == META_ROLE || m.name == META_SESSION).count(), 2);
            // Everything else is the caller's text.
            let old = Message::parse(body.as_bytes()).unwrap();
            if let Some(old) = old.params.filter(|p| p.get() != "null") {
                let pairs = |members: Vec<Member<'_>>| -> Vec<(String, String)> {
                    members.iter().filter(|m| m.name != META_ROLE && m.name != META_SESSION && m.name != "_meta")
                        .map(|m| (m.key.get().to_owned(), m.value.get().to_owned())).collect()
                };
                let find = |all: &RawValue| members(all, None).unwrap().iter().find(|m| m.name == "_meta").map(|m| m.value.to_owned());
                prop_assert_eq!(pairs(members(message.params.unwrap(), None).unwrap()), pairs(members(old, None).unwrap()));
                if let Some(meta) = find(old).filter(|m| m.get() != "null") {
                    prop_assert_eq!(pairs(ours), pairs(members(&meta, None).unwrap()));
                }
            }
        }

        #[test]
        fn never_panics(body: Vec<u8>) {
            let _ = stamp(&body, "r", None);
        }
    }
}
