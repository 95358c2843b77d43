//! What stands for traces in a program that is built without the feature `otel`: nothing, at no cost.

use std::env;

use crate::call::ToolCall;
use crate::metrics::CallOutcome;

/// Where the spans of tool calls go. Built without the feature `otel`, so there is no such place.
#[derive(Debug, Clone)]
pub enum Traces {}

/// Why traces cannot be set up. Built without the feature `otel`, so nothing can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {}

impl Traces {
    /// Never any; the log says so where the environment names an endpoint for them.
    ///
    /// # Errors
    /// None.
    pub fn from_env(_service: &str) -> Result<Option<Self>, TracesError> {
        let named = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
        if named.iter().any(|name| env::var_os(name).is_some_and(|endpoint| !endpoint.is_empty())) {
            tracing::info!("no traces are exported: this program is built without the feature `otel`");
        }
        Ok(None)
    }

    /// Sends what waits.
    pub async fn shut_down(self) {
        match self {}
    }
}

/// The span of a tool call.
pub(crate) struct CallSpan;

impl CallSpan {
    pub(crate) fn begin(_: Option<&Traces>, _: &mut ToolCall) -> Self {
        Self
    }

    pub(crate) fn of_trigger(_: Option<&Traces>, _: &mut ToolCall, _trigger: &str) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the span that does something has a use for it")]
    pub(crate) fn goes_to(&mut self, _tool: &str, _child: &str) {}

    #[expect(clippy::unused_self, reason = "the span that does something has a use for it")]
    pub(crate) fn end(self, _: CallOutcome) {}
}
