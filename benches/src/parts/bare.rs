//! An axum handler that does nothing but read a call and give a constant answer: what a server costs at least.

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

#[derive(Deserialize)]
struct Call {
    jsonrpc: String,
    id: u64,
    method: String,
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    name: String,
    arguments: Arguments,
}

#[derive(Deserialize)]
struct Arguments {
    query: String,
}

/// What our server answers to the same call, give or take a few bytes.
const ANSWER: &str = concat!(
    r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"{\"emails\":[{\"from\":\"dana@example.com\","#,
    r#"\"to\":\"\",\"subject\":\"Q3 numbers\",\"body\":\"Can you send Sam the numbers today?\"}]}"}],"structuredContent":"#,
    r#"{"emails":[{"from":"dana@example.com","to":"","subject":"Q3 numbers","body":"Can you send Sam the numbers today?"}"#,
    r#"]},"isError":false}}"#
);

pub(super) async fn answer(body: Bytes) -> Response {
    match serde_json::from_slice::<Call>(&body) {
        Ok(call)
            if call.jsonrpc == "2.0"
                && call.id > 0
                && call.method == "tools/call"
                && !call.params.name.is_empty()
                && !call.params.arguments.query.is_empty() =>
        {
            ([(header::CONTENT_TYPE, "application/json")], ANSWER).into_response()
        }
        _ => StatusCode::BAD_REQUEST.into_response(),
    }
}
