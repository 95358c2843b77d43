//! What generated code calls. Not for anybody else: it changes without notice.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub use futures_util::future::BoxFuture;
pub use inventory;
pub use serde_json::{Value, json};

pub use crate::arguments::{Param, Parameter, param, param_with_default};
pub use crate::context::ToolContext;
pub use crate::data::{Part, State};
pub use crate::environment::table::{
    Block, BlockEntry, DataAnswer, DeclaredExtension, ExtensionEntry, ExtensionSpec, Fields, Operation,
    Outcome, ToolEntry, ToolSpec,
};
pub use crate::environment::{CardHead, Component, Constructor, Environment, Input, LinkedEnv};
pub use crate::extension::Verb;
pub use crate::schema::{ObjectSchema, output_schema};
pub use crate::tool::ToolResult;

use crate::EnvRuntime;
use crate::data::NotAnObject;
use crate::error::{Failure, HandlerError, ToolError, describe};
use crate::extension::{ExtensionOutput, answer_failure};
use crate::tool::{Content, ToolOutput};

/// What an extension's handler answered.
pub type ExtensionAnswer = Result<Box<RawValue>, ToolError>;

/// What a method returned. Its own methods go before those of [`ReturnedValue`], which is how a list of content blocks is told from
/// a list of values, and a `Result` under another name from a value.
#[derive(Debug)]
pub struct Returned<T>(pub T);

impl<T, E> Returned<Result<T, E>> {
    /// As a tool's answer.
    pub fn tool_result(self) -> ToolResult
    where
        T: ToolOutput,
        E: HandlerError,
    {
        self.0.map_or_else(tool_failed, ToolOutput::into_result)
    }

    /// As an extension's answer.
    ///
    /// # Errors
    /// The method's, and a value that has no JSON.
    pub fn extension_answer(self) -> ExtensionAnswer
    where
        T: ExtensionOutput,
        E: HandlerError,
    {
        self.0.map_or_else(extension_failed, ExtensionOutput::into_json)
    }
}

impl Returned<Vec<Content>> {
    /// As a tool's answer.
    pub fn tool_result(self) -> ToolResult {
        ToolResult::content(self.0)
    }
}

/// Any other value.
pub trait ReturnedValue<T> {
    /// As a tool's answer.
    fn tool_result(self) -> ToolResult
    where
        T: ToolOutput;

    /// As an extension's answer.
    ///
    /// # Errors
    /// A value that has no JSON.
    fn extension_answer(self) -> ExtensionAnswer
    where
        T: ExtensionOutput;
}

impl<T> ReturnedValue<T> for Returned<T> {
    fn tool_result(self) -> ToolResult
    where
        T: ToolOutput,
    {
        self.0.into_result()
    }

    fn extension_answer(self) -> ExtensionAnswer
    where
        T: ExtensionOutput,
    {
        self.0.into_json()
    }
}

/// A tool that failed.
pub fn tool_failed<E: HandlerError>(error: E) -> ToolResult {
    ToolResult::failure(&Failure::new(error))
}

/// An extension that failed.
///
/// # Errors
/// Always.
pub fn extension_failed<E: HandlerError>(error: E) -> ExtensionAnswer {
    Err(answer_failure(Failure::new(error)))
}

/// A data handler that is done.
pub fn data_done() -> DataAnswer {
    DataAnswer(Ok(Vec::new()))
}

/// A data handler that failed.
pub fn data_failed<E: HandlerError>(error: E) -> DataAnswer {
    DataAnswer(Err(Failure::new(error)))
}

/// The state as the parts that an author made.
pub fn data_parts(parts: Vec<Part>) -> DataAnswer {
    DataAnswer(Ok(parts))
}

/// What an environment's state may be: any value that serde writes as a JSON object.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an environment's state",
    label = "cannot be written as JSON",
    note = "derive `serde::Serialize` for it, or return `Vec<Part>`"
)]
pub trait StateValue {
    /// The state as parts.
    fn into_answer(self) -> DataAnswer;
}

#[diagnostic::do_not_recommend]
impl<T: serde::Serialize> StateValue for T {
    fn into_answer(self) -> DataAnswer {
        let failed = |error: NotAnObject| Failure::Plain(format!("the state: {error}"));
        DataAnswer(Part::data(&self).map(|part| vec![part]).map_err(failed))
    }
}

/// The state as one value.
pub fn data_state<T: StateValue>(state: T) -> DataAnswer {
    state.into_answer()
}

/// What a part may be read as.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a seed",
    label = "cannot be read from JSON",
    note = "derive `serde::Deserialize` for it, or take `Vec<Part>`"
)]
pub trait Seed: DeserializeOwned + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + Send + 'static> Seed for T {}

/// Every part as a value, before any of them is applied; or the answer to one that cannot be read or does not fit.
pub fn seeds<T: Seed>(parts: Vec<Part>) -> BoxFuture<'static, Result<Vec<T>, DataAnswer>> {
    Box::pin(async move {
        let mut seeds = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            match part.parse().await {
                Ok(seed) => seeds.push(seed),
                Err(error) => {
                    return Err(DataAnswer(Err(Failure::Plain(format!(
                        "parts[{index}]: {}",
                        describe(&error)
                    )))));
                }
            }
        }
        Ok(seeds)
    })
}

/// A start or a stop that went well.
pub fn lifecycle_done() -> Outcome {
    Outcome(Ok(()))
}

/// A start or a stop that failed.
pub fn lifecycle_failed<E: HandlerError>(error: E) -> Outcome {
    Outcome(Err(Failure::new(error)))
}

/// What a hook may return: nothing lets the call go on, and so does `None`; `Some` of what a tool may return answers it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a hook's answer",
    note = "return `Option<ToolResult>`, or `Result<(), E>` to refuse a call"
)]
pub trait HookOutput {
    /// The answer in place of the tool's.
    fn answer(self) -> Option<ToolResult>;
}

impl HookOutput for () {
    fn answer(self) -> Option<ToolResult> {
        None
    }
}

impl<T: ToolOutput> HookOutput for Option<T> {
    fn answer(self) -> Option<ToolResult> {
        self.map(ToolOutput::into_result)
    }
}

/// A hook's answer.
pub fn hook_answer<T: HookOutput>(value: T) -> Option<ToolResult> {
    value.answer()
}

/// A hook that refused the call.
pub fn hook_failed<E: HandlerError>(error: E) -> Option<ToolResult> {
    Some(tool_failed(error))
}

/// Finds out whether a type has a `Default`, by which method resolution comes to an end first.
#[derive(Debug)]
pub struct Probe<E>(std::marker::PhantomData<E>);

impl<E> Probe<E> {
    /// A probe of a type.
    #[expect(clippy::new_without_default, reason = "a `Default` here would only confuse")]
    pub const fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<E: Environment + Default> Probe<E> {
    /// Makes an environment of the type.
    pub fn constructor(&self) -> Option<Constructor> {
        Some(|name| EnvRuntime::named(E::default(), name))
    }
}

/// What is found of a type without a `Default`.
pub trait NoConstructor {
    /// Nothing.
    fn constructor(&self) -> Option<Constructor> {
        None
    }
}

impl<E> NoConstructor for Probe<E> {}
