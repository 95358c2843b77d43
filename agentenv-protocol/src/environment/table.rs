//! The table that the macros fill: what each `#[environment]` block holds, and how blocks are found at run time. It is filled by
//! generated code only, and read by `member`.

use std::any::Any;

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;

use super::call::Input;
use super::{Component, Environment};
use crate::context::ToolContext;
use crate::data::Part;
use crate::error::{Failure, ToolError};
use crate::extension::Verb;
use crate::schema::ObjectSchema;
use crate::tool::ToolResult;

/// How an operation of the data plane is answered.
#[derive(Debug)]
pub struct DataAnswer(pub(crate) Result<Vec<Part>, Failure>);

/// How a start or a stop went.
#[derive(Debug)]
pub struct Outcome(pub(crate) Result<(), Failure>);

/// Calls a tool.
pub(crate) type ToolFn<C> = for<'a> fn(&'a C, Input<'a>) -> BoxFuture<'a, ToolResult>;
/// Calls an extension's method.
pub(crate) type ExtensionFn<C> =
    for<'a> fn(&'a C, Input<'a>) -> BoxFuture<'a, Result<Box<RawValue>, ToolError>>;
/// Runs an operation of the data plane.
pub(crate) type OperationFn<C> = for<'a> fn(&'a C, Vec<Part>) -> BoxFuture<'a, DataAnswer>;
/// Sees a call before its tool, and may answer it.
pub(crate) type HookFn<C> = for<'a> fn(&'a C, &'a ToolContext) -> BoxFuture<'a, Option<ToolResult>>;
/// Starts or stops.
pub(crate) type LifecycleFn<C> = for<'a> fn(&'a C) -> BoxFuture<'a, Outcome>;

/// What an `#[environment]` block holds.
#[derive(Debug)]
#[expect(missing_docs, reason = "filled by generated code only")]
pub struct Block<C: 'static> {
    pub file: &'static str,
    pub line: u32,
    pub column: u32,
    pub tools: &'static [ToolEntry<C>],
    pub extensions: &'static [ExtensionEntry<C>],
    pub operations: &'static [(Operation, OperationFn<C>)],
    pub hooks: &'static [HookFn<C>],
    pub start: &'static [LifecycleFn<C>],
    pub stop: &'static [LifecycleFn<C>],
}

/// A tool and the function that calls it.
#[derive(Debug)]
#[expect(missing_docs, reason = "filled by generated code only")]
pub struct ToolEntry<C: 'static> {
    pub spec: ToolSpec,
    pub call: ToolFn<C>,
}

/// What is known of a tool at compile time.
#[derive(Debug)]
#[expect(missing_docs, reason = "filled by generated code only")]
pub struct ToolSpec {
    pub name: &'static str,
    pub title: Option<&'static str>,
    pub description: Option<&'static str>,
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
    pub hidden_by_default: bool,
    pub meta: Option<fn() -> Value>,
    pub requires_client_capability: Option<&'static str>,
    pub input: fn(&mut ObjectSchema),
    /// In place of what `input` puts together.
    pub input_schema: Option<fn() -> Value>,
    pub output: Option<fn() -> Value>,
    pub line: u32,
}

/// A method of an extension and the function that calls it.
#[derive(Debug)]
#[expect(missing_docs, reason = "filled by generated code only")]
pub struct ExtensionEntry<C: 'static> {
    pub spec: ExtensionSpec,
    pub call: ExtensionFn<C>,
}

/// What is known of an extension's method at compile time.
#[derive(Debug)]
#[expect(missing_docs, reason = "filled by generated code only")]
pub struct ExtensionSpec {
    pub uri: &'static str,
    pub op: Option<&'static str>,
    pub handler: &'static str,
    pub verb: Verb,
    pub path: Option<&'static str>,
    pub description: Option<&'static str>,
    pub required: Option<bool>,
    pub params: Option<fn() -> Value>,
    pub input: fn(&mut ObjectSchema),
    pub line: u32,
}

/// An extension that is declared on the card and has no handler.
#[derive(Debug)]
#[expect(missing_docs, reason = "filled by generated code only")]
pub struct DeclaredExtension {
    pub uri: &'static str,
    pub description: Option<&'static str>,
    pub required: Option<bool>,
    pub params: Option<fn() -> Value>,
}

/// An operation of the data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the protocol has these three")]
pub enum Operation {
    /// Back to the state that an environment starts with.
    Reset,
    /// More state.
    Add,
    /// The state as it is.
    Get,
}

impl Operation {
    /// All of them, in the order in which a card lists them.
    pub const ALL: [Self; 3] = [Self::Reset, Self::Add, Self::Get];

    /// Its method on the data plane.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Reset => "data/reset",
            Self::Add => "data/add",
            Self::Get => "data/get",
        }
    }

    /// The code of its failure.
    pub const fn failure_code(self) -> &'static str {
        match self {
            Self::Reset => "reset_failed",
            Self::Add => "add_failed",
            Self::Get => "get_failed",
        }
    }
}

/// A block as it is submitted: a `&'static Block<C>`.
#[derive(Debug)]
pub struct BlockEntry(pub &'static (dyn Any + Send + Sync));

inventory::collect!(BlockEntry);

/// Every block of a type, by file and line.
pub(super) fn blocks<C: Component>() -> Vec<&'static Block<C>> {
    let entries = inventory::iter::<BlockEntry>();
    let mut blocks: Vec<_> = entries.filter_map(|entry| entry.0.downcast_ref::<Block<C>>()).collect();
    blocks.sort_by_key(|block| (block.file, block.line, block.column));
    blocks
}

/// Fields of a struct that bring something: `#[data]` and `#[component]`.
pub struct Fields<E: Environment> {
    pub(super) data: Vec<(Operation, super::member::Runner<E>)>,
    pub(super) components: Vec<super::member::Attach<E>>,
}

impl<E: Environment> std::fmt::Debug for Fields<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fields").finish_non_exhaustive()
    }
}
