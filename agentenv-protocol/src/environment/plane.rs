//! The data plane (contract 2.2): JSON-RPC in, JSON-RPC out, and the typed doors to the same three operations.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::EnvRuntime;
use super::table::Operation;
use crate::arguments::without_position;
use crate::data::Part;
use crate::error::Failure;
use crate::rpc::{self, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Message, SERVER_ERROR};

/// An operation of the data plane that was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The environment does not handle it.
    #[error("method not found: {}", .0.method())]
    NoHandler(Operation),
    /// There is nothing to add.
    #[error("parts: at least one is needed")]
    NoParts,
    /// Its handler failed.
    #[error("{message}")]
    Failed {
        /// Which.
        operation: Operation,
        /// What the handler said.
        message: String,
    },
}

#[derive(Deserialize)]
struct AddParams<'a> {
    #[serde(borrow)]
    parts: Vec<&'a RawValue>,
}

impl EnvRuntime {
    /// Brings the environment back to the state that it starts with.
    ///
    /// # Errors
    /// No handler, or its failure.
    pub async fn reset(&self) -> Result<(), DataError> {
        self.operate(Operation::Reset, Vec::new()).await.map(drop)
    }

    /// Loads more state.
    ///
    /// # Errors
    /// No handler, no parts, or the handler's failure.
    pub async fn add(&self, parts: Vec<Part>) -> Result<(), DataError> {
        if parts.is_empty() {
            return Err(DataError::NoParts);
        }
        self.operate(Operation::Add, parts).await.map(drop)
    }

    /// Reads the state.
    ///
    /// # Errors
    /// No handler, or its failure.
    pub async fn get(&self) -> Result<Vec<Part>, DataError> {
        self.operate(Operation::Get, Vec::new()).await
    }

    /// Whether the environment handles an operation.
    pub fn handles(&self, operation: Operation) -> bool {
        self.0.members.first().is_some_and(|env| env.handles(operation))
    }

    async fn operate(&self, operation: Operation, parts: Vec<Part>) -> Result<Vec<Part>, DataError> {
        let env = self.0.members.first().filter(|env| env.handles(operation));
        let env = env.ok_or(DataError::NoHandler(operation))?;
        // The handler is called inside, so that a panic before its first await is caught too.
        let run = async {
            match env.operate(operation, parts) {
                Some(run) => run.await.0,
                None => Ok(Vec::new()),
            }
        };
        let answer = AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|_panic| {
            tracing::error!(env = self.name(), operation = operation.method(), "a data handler panicked");
            Err(Failure::panicked())
        });
        answer.map_err(|failure| DataError::Failed { operation, message: failure.message().to_owned() })
    }

    /// Answers a request of the data plane. Every fault is an answer.
    pub async fn data_plane(&self, body: &[u8]) -> Bytes {
        let message = match Message::parse(body) {
            Ok(message) => message,
            Err(fault) => return rpc::error(fault.id, fault.code, &fault.message, None),
        };
        let Some(method) = message.method else {
            return rpc::error(message.id, INVALID_REQUEST, "invalid request: there is no 'method'", None);
        };
        let handled = Operation::ALL.into_iter().find(|operation| operation.method() == method);
        let Some(operation) = handled.filter(|operation| self.handles(*operation)) else {
            return rpc::error(message.id, METHOD_NOT_FOUND, &format!("method not found: {method}"), None);
        };
        let parts = match parts(operation, message.params) {
            Ok(parts) => parts,
            Err(detail) => {
                return rpc::error(
                    message.id,
                    INVALID_PARAMS,
                    "invalid_request",
                    Some(&json!({"detail": detail})),
                );
            }
        };
        let answer = match self.operate(operation, parts).await {
            Ok(parts) if operation == Operation::Get => serde_json::to_string(&json!({"parts": parts}))
                .map_err(|error| format!("the state cannot be written as JSON: {error}")),
            Ok(_) => Ok("{}".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(result) => rpc::result(message.id.map_or("null", RawValue::get), &result),
            Err(text) => {
                rpc::error(message.id, SERVER_ERROR, &text, Some(&json!({"code": operation.failure_code()})))
            }
        }
    }
}

/// The parts in a request's params.
fn parts(operation: Operation, params: Option<&RawValue>) -> Result<Vec<Part>, String> {
    let params = params.map_or("{}", |params| if params.get() == "null" { "{}" } else { params.get() });
    if !params.starts_with('{') {
        return Err("params: expected an object".to_owned());
    }
    if operation != Operation::Add {
        return Ok(Vec::new());
    }
    let AddParams { parts } =
        serde_json::from_str(params).map_err(|error| format!("params: {}", without_position(&error)))?;
    if parts.is_empty() {
        return Err(DataError::NoParts.to_string());
    }
    let parse = |(index, part): (usize, &RawValue)| {
        serde_json::from_str(part.get())
            .map_err(|error| format!("parts[{index}]: {}", without_position(&error)))
    };
    let (parts, faults): (Vec<_>, Vec<_>) =
        parts.into_iter().enumerate().map(parse).partition(Result::<Part, String>::is_ok);
    if faults.is_empty() {
        return Ok(parts.into_iter().flatten().collect());
    }
    Err(faults.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("; "))
}
