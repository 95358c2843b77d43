//! A call on its way to its handler: what it was made with, taken apart for generated code.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, ready};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, Param, Reading};
use crate::context::{Caller, Notify, ToolContext};
use crate::error::ToolError;
use crate::extension::invalid_params;
use crate::tool::ToolResult;

/// A call to a tool, as [`EnvRuntime::call_tool`](super::EnvRuntime::call_tool) takes it.
#[derive(Clone)]
pub struct CallRequest<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The arguments object as it was sent; none is an empty one.
    pub arguments: Option<&'a RawValue>,
    /// Who calls.
    pub caller: Caller,
    /// Where the call's notifications go, if its caller asked for them.
    pub notify: Option<Notify>,
    /// Cancelled when the caller gives the call up; the tool's future is then dropped.
    pub cancel: CancellationToken,
    /// The request's `_meta` as it was sent.
    pub meta: Option<&'a RawValue>,
}

impl<'a> CallRequest<'a> {
    /// A call from nobody in particular.
    pub fn new(tool: &'a str, arguments: Option<&'a RawValue>) -> Self {
        let (caller, cancel) = (Caller::default(), CancellationToken::new());
        Self { tool, arguments, caller, notify: None, cancel, meta: None }
    }
}

impl std::fmt::Debug for CallRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallRequest")
            .field("tool", &self.tool)
            .field("caller", &self.caller)
            .finish_non_exhaustive()
    }
}

/// Where a call comes from, for the handlers that ask.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) name: &'a Arc<str>,
    pub(crate) arguments: &'a RawValue,
    pub(crate) meta: Option<&'a RawValue>,
    pub(crate) notify: Option<&'a Notify>,
    pub(crate) cancel: &'a CancellationToken,
}

impl Origin<'_> {
    pub(crate) fn context(&self) -> ToolContext {
        ToolContext::new(
            self.caller.clone(),
            self.name.clone(),
            self.arguments.to_owned().into(),
            self.meta.map(|meta| meta.to_owned().into()),
            self.notify.cloned(),
            self.cancel.clone(),
        )
    }
}

/// A call's arguments, which generated code takes out one by one.
pub struct Input<'a> {
    arguments: Result<Arguments<'a>, String>,
    origin: Origin<'a>,
}

impl<'a> Input<'a> {
    pub(crate) fn new(origin: Origin<'a>, reading: Reading) -> Self {
        Self { arguments: Arguments::parse(origin.arguments, reading), origin }
    }

    /// A parameter's value; none if it is missing or does not fit, which is noted.
    pub fn take<T>(&mut self, param: &Param<T>) -> Option<T> {
        self.arguments.as_mut().ok()?.take(param)
    }

    /// The call's context.
    pub fn context(&self) -> ToolContext {
        self.origin.context()
    }

    /// Whether every parameter that was taken had a value that fits, and nothing else was given that may not be.
    pub fn fits(&mut self) -> bool {
        match &mut self.arguments {
            Ok(arguments) => match arguments.faults() {
                Some(faults) => {
                    self.arguments = Err(faults);
                    false
                }
                None => true,
            },
            Err(_) => false,
        }
    }

    /// The answer to a tool call that does not fit.
    pub fn refuse_tool(self) -> BoxFuture<'a, ToolResult> {
        ready(ToolResult::error(&self.fault())).boxed()
    }

    /// The answer to an extension call that does not fit.
    pub fn refuse_extension(self) -> BoxFuture<'a, Result<Box<RawValue>, ToolError>> {
        ready(Err(self.fault())).boxed()
    }

    fn fault(self) -> ToolError {
        invalid_params(self.arguments.err().unwrap_or_else(|| "arguments do not fit".to_owned()))
    }
}

impl std::fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("name", self.origin.name).finish_non_exhaustive()
    }
}
