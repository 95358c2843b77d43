//! An extension's routes (contract 2.1 and 2.4): where a method is served, and the JSON or query string it is called with.
//! Serving them over HTTP is left to `server`, gathering them on the card to `environment`.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::error::{Applied, Failure, ToolError};
use crate::json;

/// The status of an answer to parameters that do not fit.
const BAD_REQUEST: u16 = 400;

/// The status of an answer to a failure without a code.
const INTERNAL_ERROR: u16 = 500;

/// An HTTP method that an extension may be called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::exhaustive_enums, reason = "the protocol has these")]
#[expect(missing_docs, reason = "HTTP's own names say all there is")]
pub enum Verb {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    pub(crate) fn http(self) -> http::Method {
        match self {
            Self::Get => http::Method::GET,
            Self::Post => http::Method::POST,
            Self::Put => http::Method::PUT,
            Self::Patch => http::Method::PATCH,
            Self::Delete => http::Method::DELETE,
        }
    }
}

/// A method of an extension, and where it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtensionRoute {
    /// The extension.
    pub uri: String,
    /// The method: its `op`, or its handler's name.
    pub method: String,
    /// The path on the environment's server.
    pub path: String,
    /// The HTTP method.
    pub verb: http::Method,
}

/// What a method is called with.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_enums, reason = "parameters come in these two ways")]
pub enum ExtensionInput<'a> {
    /// A request's body; an empty one is `{}`.
    Json(&'a [u8]),
    /// A GET request's query string, still encoded.
    Query(&'a str),
}

/// What an extension's handler may return: anything serde can write as JSON; also as the `Ok` of a `Result`. Nothing (`()`, or
/// a null) is answered as `{}`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an extension's answer",
    label = "cannot be written as JSON",
    note = "derive `serde::Serialize` for it"
)]
pub trait ExtensionOutput {
    /// The answer's JSON.
    ///
    /// # Errors
    /// A value that has no JSON.
    fn into_json(self) -> Result<Box<RawValue>, ToolError>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize> ExtensionOutput for T {
    fn into_json(self) -> Result<Box<RawValue>, ToolError> {
        let failed =
            |error: serde_json::Error| failed(format!("the answer cannot be written as JSON: {error}"));
        let json = to_raw_value(&self).map_err(failed)?;
        if json.get() == "null" { to_raw_value(&Map::new()).map_err(failed) } else { Ok(json) }
    }
}

/// The path of a method that names none: the handler's name, or for a method with an `op` the URN's slug and the `op`.
pub(crate) fn default_path(uri: &str, op: Option<&str>, handler: &str) -> String {
    match op {
        None => format!("{PATH_PREFIX}{handler}"),
        Some(op) => format!("{PATH_PREFIX}{}/{op}", slug(uri)),
    }
}

/// What every default path begins with.
const PATH_PREFIX: &str = "/agentenv/ext/";

fn slug(uri: &str) -> String {
    let unversioned = match uri.rsplit_once("/v") {
        Some((head, version)) if !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()) => {
            head
        }
        _ => uri,
    };
    match unversioned.strip_prefix("urn:agentenv:") {
        Some(name) => name.to_owned(),
        None => unversioned.strip_prefix("urn:").unwrap_or(unversioned).replace(':', "/"),
    }
}

/// The parameters as the text of one JSON object.
pub(crate) fn parameters(input: ExtensionInput<'_>) -> Result<Box<RawValue>, ToolError> {
    let json = match input {
        ExtensionInput::Json(body) => {
            let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
            let text = json::check(body)
                .map_err(|error| invalid_params(format!("the body is not JSON: {error}")))?;
            text.to_owned()
        }
        ExtensionInput::Query(query) => {
            let mut object = Map::new();
            for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
                let value = Value::String(value.into_owned());
                match object.get_mut(&*name) {
                    Some(Value::Array(values)) => values.push(value),
                    Some(first) => *first = Value::Array(vec![first.take(), value]),
                    None => drop(object.insert(name.into_owned(), value)),
                }
            }
            Value::Object(object).to_string()
        }
    };
    let raw = RawValue::from_string(json)
        .map_err(|error| invalid_params(format!("the body is not JSON: {error}")))?;
    if json::starts_with(raw.get(), b'{') {
        Ok(raw)
    } else {
        Err(invalid_params("the body must be a JSON object"))
    }
}

pub(crate) fn invalid_params(message: impl Into<String>) -> ToolError {
    ToolError::new("invalid_params", message).with_status(BAD_REQUEST)
}

/// A failure as an extension answers it.
pub(crate) fn answer_failure(failure: Failure) -> ToolError {
    match failure {
        Failure::Coded(error) => error,
        Failure::Plain(message) => failed(message),
    }
}

fn failed(message: String) -> ToolError {
    ToolError::new("extension_failed", message).with_applied(Applied::Unknown).with_status(INTERNAL_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_paths() {
        let op = |uri| default_path(uri, Some("one"), "handler");
        assert_eq!(default_path("urn:agentenv:clock/v1", None, "sync_time"), "/agentenv/ext/sync_time");
        assert_eq!(op("urn:agentenv:thing/v1"), "/agentenv/ext/thing/one");
        assert_eq!(op("urn:agentenv:noversion"), "/agentenv/ext/noversion/one");
        assert_eq!(op("urn:a:b:c/v12"), "/agentenv/ext/a/b/c/one");
    }

    #[test]
    fn a_query_string_is_an_object_of_texts() {
        let raw = parameters(ExtensionInput::Query("a=1&b=x%20y&a=2&c")).unwrap();
        assert_eq!(raw.get(), r#"{"a":["1","2"],"b":"x y","c":""}"#);
    }

    #[test]
    fn bodies_that_are_no_object_are_refused() {
        for body in [&b"{"[..], b"[1]", b"5", b"\xff"] {
            assert_eq!(parameters(ExtensionInput::Json(body)).unwrap_err().code, "invalid_params");
        }
        for body in [&b""[..], b" \n", b"\xef\xbb\xbf{}"] {
            assert_eq!(parameters(ExtensionInput::Json(body)).unwrap().get(), "{}");
        }
    }
}
