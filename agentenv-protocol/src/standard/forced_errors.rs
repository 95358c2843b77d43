//! Forced errors (`urn:agentenv:set-errors/v1`): a harness makes a tool fail at a rate, to see what an agent does about it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::context::ToolContext;
use agentenv_macros::environment;

use crate::environment::Component;
use crate::error::ToolError;

/// The name that stands for every tool that has no rate of its own.
const EVERY_TOOL: &str = "*";

/// Most tools that have a rate.
const MAX_TOOLS: usize = 10_000;

/// Errors on demand. In a field marked `#[component]` it offers the extension `urn:agentenv:set-errors/v1` with the method
/// `set_errors(tool_name, error_rate, error_type, message)`.
///
/// `error_rate` is the share of calls that fail, from 0 (none, which takes the tool's entry away) to 1 (all). Which calls fail is
/// even and the same in every run: at 0.25 every fourth. A call that fails is answered before its tool sees it, with `error_type`
/// as the code, so nothing was applied. The tool `*` stands for every tool that has no entry of its own.
#[derive(Debug, Default)]
pub struct ForcedErrors {
    tools: Mutex<BTreeMap<String, Forced>>,
}

#[derive(Debug)]
struct Forced {
    rate: f64,
    /// How much of the next failure has come together.
    due: f64,
    error: ToolError,
}

/// What fails now.
#[derive(Debug, Serialize)]
struct Setting {
    tool_name: String,
    error_rate: f64,
    error_type: String,
}

impl Component for ForcedErrors {}

#[environment]
impl ForcedErrors {
    /// Make a tool fail at a rate.
    #[extension(uri = "urn:agentenv:set-errors/v1")]
    fn set_errors(
        &self,
        /// The tool, or `*` for every tool without a rate of its own.
        tool_name: String,
        /// The share of its calls that fail: 0 for none, 1 for all.
        error_rate: f64,
        /// The code of the error.
        #[arg(default = "forced_error")]
        error_type: String,
        /// The message of the error.
        #[arg(default = "the service is unavailable")]
        message: String,
    ) -> Result<Setting, ToolError> {
        if !(0.0..=1.0).contains(&error_rate) {
            return Err(ToolError::new("invalid_params", "`error_rate`: expected a number from 0 to 1"));
        }
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        if error_rate == 0.0 {
            tools.remove(&tool_name);
        } else if tools.len() >= MAX_TOOLS && !tools.contains_key(&tool_name) {
            return Err(ToolError::new("too_many", format!("at most {MAX_TOOLS} tools have an error rate")));
        } else {
            let error = ToolError::new(error_type.clone(), message).retryable();
            tools.insert(tool_name.clone(), Forced { rate: error_rate, due: 0.0, error });
        }
        Ok(Setting { tool_name, error_rate, error_type })
    }

    #[before_call]
    fn fail(&self, call: &ToolContext) -> Result<(), ToolError> {
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let name = if tools.contains_key(&*call.tool) { &*call.tool } else { EVERY_TOOL };
        let Some(forced) = tools.get_mut(name) else { return Ok(()) };
        // Rates such as 0.1 do not add up to exactly 1.
        forced.due += forced.rate + f64::EPSILON * 8.0;
        if forced.due < 1.0 {
            return Ok(());
        }
        forced.due -= 1.0;
        Err(forced.error.clone())
    }
}
