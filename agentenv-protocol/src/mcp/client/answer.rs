//! Reading what a server answers to one request: a JSON body or an event stream, bounded in size, down to the result's text.
//! What to do about an answer that is none is left to `client`.

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::sse;
use super::error::{ClientError, ErrorKind, RpcError, Sent};
use crate::json::{self, RawJson};
use crate::pieces::{Ungathered, gather};

/// Most of an error's body that is looked at.
const ERROR_BODY_LIMIT: usize = 64 * 1024;

/// How many bytes an answer may have, and which request it is to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) id: u64,
    pub(super) limit: usize,
}

/// A message that is no answer: a notification, or a request of the server's.
#[derive(Debug)]
pub(super) struct Said<'a> {
    pub(super) method: String,
    pub(super) id: Option<&'a RawValue>,
    pub(super) params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow, deserialize_with = "json::present")]
    id: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "json::present")]
    method: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "json::present")]
    params: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "json::present")]
    result: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "json::present")]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ErrorBody<'a> {
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default, borrow, deserialize_with = "json::present")]
    data: Option<&'a RawValue>,
}

/// What is left of a body whose answer has been read.
#[derive(Debug)]
pub(super) enum Rest {
    /// Nothing: the connection can be used again.
    Nothing,
    /// Its end, which should come soon.
    Open(Incoming),
    /// It is not worth reading: the connection ends with it.
    Cut,
}

impl Rest {
    fn of<T>(read: &Result<T, ClientError>) -> Self {
        if read.is_ok() { Self::Nothing } else { Self::Cut }
    }
}

/// Reads an answer down to its result, and no further: a server may keep an event stream open behind it.
pub(super) async fn read(
    response: Response<Incoming>,
    expected: Expected,
    said: &mut (dyn FnMut(Said<'_>) + Send),
) -> (Result<RawJson, ClientError>, Rest) {
    let (head, mut body) = response.into_parts();
    let status = head.status;
    if !status.is_success() {
        let text = collect(&mut body, ERROR_BODY_LIMIT).await;
        let rest = Rest::of(&text);
        return (Err(refused(status, &head.headers, text.ok())), rest);
    }
    match kind(&head.headers) {
        Kind::Json => match collect(&mut body, expected.limit).await {
            Ok(text) => (one(&text, status, expected), Rest::Nothing),
            Err(error) => (Err(error), Rest::Cut),
        },
        Kind::Events => match events(&mut body, status, expected, said).await {
            Ok(result) => {
                let end = body.frame().now_or_never();
                (result, if matches!(end, Some(None)) { Rest::Nothing } else { Rest::Open(body) })
            }
            Err(error) => (Err(error), Rest::Cut),
        },
        Kind::Other(kind) => {
            let text = collect(&mut body, ERROR_BODY_LIMIT).await;
            let what = match &text {
                Ok(text) if text.is_empty() => format!("HTTP {} without a body", status.as_u16()),
                _ => kind.map_or("no content type".to_owned(), |kind| format!("the content type {kind}")),
            };
            let message = format!("the server answered with {what}, where MCP has JSON or an event stream");
            (Err(ClientError::bad_answer(status, message)), Rest::of(&text))
        }
    }
}

enum Kind {
    Json,
    Events,
    Other(Option<String>),
}

fn kind(headers: &HeaderMap) -> Kind {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.map(|value| value.split(';').next().unwrap_or_default().trim());
    match essence {
        Some(kind) if kind.eq_ignore_ascii_case("application/json") => Kind::Json,
        Some(kind) if kind.eq_ignore_ascii_case("text/event-stream") => Kind::Events,
        // Only a short and plain one is worth repeating.
        other => Kind::Other(
            other.filter(|kind| !kind.is_empty() && kind.len() <= 64).map(str::to_ascii_lowercase),
        ),
    }
}

/// A body of at most `limit` bytes.
async fn collect(body: &mut Incoming, limit: usize) -> Result<Bytes, ClientError> {
    gather(body, limit).await.map_err(|fault| match fault {
        Ungathered::TooLarge => ClientError::too_large(limit),
        Ungathered::Broken(error) => ClientError::broke("the connection broke in the middle of the answer")
            .with_source(Box::<dyn std::error::Error + Send + Sync>::from(error)),
    })
}

/// A JSON body, which is one message: the answer.
fn one(text: &Bytes, status: StatusCode, expected: Expected) -> Result<RawJson, ClientError> {
    let bad = |what: String| ClientError::bad_answer(status, format!("the server's answer {what}"));
    if text.is_empty() {
        return Err(bad(format!("is empty (HTTP {})", status.as_u16())));
    }
    let envelope = envelope(text, status)?;
    if envelope.method.is_some() {
        return Err(bad("is a message of its own, not an answer".into()));
    }
    match envelope.id.map(RawValue::get) {
        Some(id) if is_id(id, expected.id) => {}
        // A server that could not read the id says so with an error.
        None | Some("null") if envelope.error.is_some() => {}
        _ => return Err(bad("is to another request".into())),
    }
    outcome(text, &envelope, status)
}

/// An event stream, up to the answer: its result, or the error that it is. `Err` where there is no answer.
async fn events(
    body: &mut Incoming,
    status: StatusCode,
    expected: Expected,
    said: &mut (dyn FnMut(Said<'_>) + Send),
) -> Result<Result<RawJson, ClientError>, ClientError> {
    let mut reader = sse::Reader::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ClientError::broke("the event stream broke before the answer").with_source(Box::<
                dyn std::error::Error + Send + Sync,
            >::from(
                error
            ))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        for event in reader.push(&data) {
            let event = Bytes::from(event);
            let envelope = envelope(&event, status)?;
            if let Some(method) = envelope.method {
                if let Ok(method) = serde_json::from_str(method.get()) {
                    said(Said { method, id: envelope.id, params: envelope.params });
                }
            } else if envelope.id.is_some_and(|id| is_id(id.get(), expected.id)) {
                return Ok(outcome(&event, &envelope, status));
            }
        }
        if reader.held() > expected.limit {
            return Err(ClientError::too_large(expected.limit));
        }
    }
    Err(ClientError::broke("the server ended the event stream without answering"))
}

/// A message's members, its text let in by the rules for any JSON from outside.
fn envelope(text: &Bytes, status: StatusCode) -> Result<Envelope<'_>, ClientError> {
    let bad = |what: String| ClientError::bad_answer(status, format!("the server's answer {what}"));
    let text = json::screen(text).map_err(|fault| bad(format!("cannot be taken: {fault}")))?;
    match serde_json::from_str(text) {
        // A list would be read as an object's members in their order.
        Ok(envelope) if json::starts_with(text, b'{') => Ok(envelope),
        Err(error) if !error.is_data() => Err(bad(format!("is not JSON: {error}"))),
        _ => Err(bad("is no JSON-RPC message".into())),
    }
}

/// The result, or the error that the server answered.
fn outcome(text: &Bytes, envelope: &Envelope<'_>, status: StatusCode) -> Result<RawJson, ClientError> {
    match (envelope.result, envelope.error) {
        (Some(result), None) if result.get().starts_with('{') => Ok(RawJson::within(text, result)),
        (None, Some(error)) => Err(rpc_error(text, error, status)),
        (Some(_), None) => {
            Err(ClientError::bad_answer(status, "the server's answer has a result that is not an object"))
        }
        _ => Err(ClientError::bad_answer(
            status,
            "the server's answer has neither a result nor an error, or both",
        )),
    }
}

fn rpc_error(text: &Bytes, error: &RawValue, status: StatusCode) -> ClientError {
    let body = serde_json::from_str::<ErrorBody<'_>>(error.get()).ok();
    let Some(body) = body.filter(|_| error.get().starts_with('{')) else {
        return ClientError::bad_answer(
            status,
            "the server's answer has an error that is none of JSON-RPC's",
        );
    };
    let message = format!("the server answered with an error: {} ({})", body.message, body.code);
    let data = body.data.map(|data| RawJson::within(text, data));
    let error = RpcError { code: body.code, message: body.message, data, status };
    ClientError::new(ErrorKind::Rpc(error), Sent::Maybe, message)
}

/// An answer whose status says no. MCP's own refusals carry a JSON-RPC error.
fn refused(status: StatusCode, headers: &HeaderMap, text: Option<Bytes>) -> ClientError {
    if let (Kind::Json, Some(text)) = (kind(headers), &text)
        && let Ok(envelope) = envelope(text, status)
        && let Some(error) = envelope.error
    {
        let error = rpc_error(text, error, status);
        if error.rpc().is_some() {
            return error;
        }
    }
    let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
    let more = if status.is_redirection() { "; redirects are not followed" } else { "" };
    ClientError::bad_answer(status, format!("the server answered HTTP {}{reason}{more}", status.as_u16()))
}

/// Whether this is the id of our request. Some servers give a number back as text.
fn is_id(text: &str, id: u64) -> bool {
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    text.parse() == Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected = Expected { id: 7, limit: usize::MAX };

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error(body: Vec<u8>) {
            let _ = one(&body.into(), StatusCode::OK, EXPECTED);
        }

        #[test]
        fn anything_like_an_answer_is_one_or_an_error(
            body in "(\\{|\\[|,|:|\"(jsonrpc|id|result|error|code|message|data|method)\"|7|null|\"7\"|\\}|\\]|\\{\\}){0,12}"
        ) {
            let body = Bytes::from(body);
            if let Ok(result) = one(&body, StatusCode::OK, EXPECTED) {
                proptest::prop_assert!(serde_json::from_str::<serde_json::Map<_, _>>(result.as_str()).is_ok());
            }
        }

        #[test]
        fn results_come_out_as_they_went_in(text in "\\PC{0,20}", number in "-?[1-9][0-9]{0,40}(\\.[0-9]{1,20})?") {
            let result = format!(r#"{{"t": {},"n":{number}}}"#, serde_json::json!(text));
            let body = Bytes::from(format!(r#" {{"result": {result} ,"jsonrpc":"2.0","id":7}} "#));
            let read = one(&body, StatusCode::OK, EXPECTED).unwrap();
            proptest::prop_assert_eq!(read.as_str(), result);
        }
    }
}
