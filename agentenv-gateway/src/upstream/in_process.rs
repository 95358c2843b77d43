//! A child in this process.

use agentenv_protocol::context::Caller;
use agentenv_protocol::environment::{CallRequest, EnvRuntime};
use agentenv_protocol::json::RawJson;
use serde_json::value::RawValue;

use super::{UpstreamCall, UpstreamReply, stamped_meta};
use crate::call::CallError;

pub(super) fn list(runtime: &EnvRuntime) -> Vec<(String, RawJson)> {
    runtime.tools().iter().map(|tool| (tool.name.clone(), RawJson::from(tool.raw.to_owned()))).collect()
}

pub(super) async fn call(runtime: &EnvRuntime, call: UpstreamCall<'_>) -> UpstreamReply {
    let meta = RawValue::from_string(stamped_meta(call.meta, call.role, call.session)).ok();
    let request = CallRequest {
        tool: call.tool,
        arguments: Some(call.arguments),
        caller: Caller::new(Some(call.role), call.session),
        notify: call.notify,
        cancel: call.cancel,
        meta: meta.as_deref(),
    };
    let given_up = request.cancel.clone();
    let seconds = call.deadline.as_secs();
    let result = tokio::select! {
        // What the environment says of a call that was given up is a result; the caller gets none.
        biased;
        () = given_up.cancelled() => Err(CallError::Cancelled),
        answer = tokio::time::timeout(call.deadline, runtime.call_tool(request)) => match answer {
            Ok(result) => Ok(result.into_raw()),
            Err(_) => Err(CallError::TimedOut { tool: call.tool.to_owned(), seconds }),
        },
    };
    UpstreamReply { result, reconnected: None }
}
