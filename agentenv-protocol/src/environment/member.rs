//! The type of an environment erased: an environment, or a component that it holds in a field, as `EnvRuntime` calls it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::call::Input;
use super::table::{
    Block, DataAnswer, ExtensionEntry, ExtensionSpec, Fields, HookFn, LifecycleFn, Operation, OperationFn,
    Outcome, ToolEntry, ToolSpec, blocks,
};
use super::{Component, Environment};
use crate::context::ToolContext;
use crate::data::Part;
use crate::error::ToolError;
use crate::tool::ToolResult;

/// Runs an operation of the data plane.
pub(super) type Runner<E> = Box<dyn for<'a> Fn(&'a E, Vec<Part>) -> BoxFuture<'a, DataAnswer> + Send + Sync>;

/// Makes a member of a component that an environment holds.
pub(super) type Attach<E> = Box<dyn FnOnce(&Arc<E>) -> Box<dyn Member>>;

/// Where something stands in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: &'static str,
    pub(super) line: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An environment or a component of it. What it has is listed once, and then called by its place in the list.
pub(super) trait Member: Send + Sync {
    fn tools(&self) -> Vec<(Place, &'static ToolSpec)>;
    fn extensions(&self) -> Vec<(Place, &'static ExtensionSpec)>;
    /// The operations that its methods handle, and where; fields' are not among them.
    fn operations(&self) -> Vec<(Place, Operation)>;
    fn hooks(&self) -> usize;
    fn handles(&self, operation: Operation) -> bool;
    /// Whether it does something before it can take calls.
    fn waits(&self) -> bool;

    fn call_tool<'a>(&'a self, index: usize, input: Input<'a>) -> BoxFuture<'a, ToolResult>;
    fn call_extension<'a>(
        &'a self,
        index: usize,
        input: Input<'a>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, ToolError>>;
    fn call_hook<'a>(&'a self, index: usize, context: &'a ToolContext) -> BoxFuture<'a, Option<ToolResult>>;
    fn operate(&self, operation: Operation, parts: Vec<Part>) -> Option<BoxFuture<'_, DataAnswer>>;
    fn start(&self) -> Vec<BoxFuture<'_, Outcome>>;
    fn stop(&self) -> Vec<BoxFuture<'_, Outcome>>;
    fn component(&self) -> &dyn Component;
}

/// A `C` in an `E`; they are the same for the environment itself.
struct Held<E, C: 'static> {
    env: Arc<E>,
    of: fn(&E) -> &C,
    tools: Vec<(Place, &'static ToolEntry<C>)>,
    extensions: Vec<(Place, &'static ExtensionEntry<C>)>,
    hooks: Vec<HookFn<C>>,
    operations: Vec<(Place, Operation, OperationFn<C>)>,
    start: Vec<LifecycleFn<C>>,
    stop: Vec<LifecycleFn<C>>,
    fields: Vec<(Operation, Runner<E>)>,
}

impl<E, C: Component> Held<E, C> {
    fn new(env: Arc<E>, of: fn(&E) -> &C, fields: Vec<(Operation, Runner<E>)>) -> Self {
        let blocks = blocks::<C>();
        let place = |block: &Block<C>, line| Place { file: block.file, line };
        let (mut tools, mut extensions, mut operations) = (Vec::new(), Vec::new(), Vec::new());
        let (mut hooks, mut start, mut stop) = (Vec::new(), Vec::new(), Vec::new());
        for block in blocks {
            tools.extend(block.tools.iter().map(|tool| (place(block, tool.spec.line), tool)));
            extensions.extend(block.extensions.iter().map(|method| (place(block, method.spec.line), method)));
            operations.extend(
                block.operations.iter().map(|(operation, run)| (place(block, block.line), *operation, *run)),
            );
            hooks.extend(block.hooks);
            start.extend(block.start);
            stop.extend(block.stop);
        }
        Self { env, of, tools, extensions, hooks, operations, start, stop, fields }
    }

    fn get(&self) -> &C {
        (self.of)(&self.env)
    }
}

impl<E: Send + Sync, C: Component> Member for Held<E, C> {
    fn tools(&self) -> Vec<(Place, &'static ToolSpec)> {
        self.tools.iter().map(|(place, tool)| (*place, &tool.spec)).collect()
    }

    fn extensions(&self) -> Vec<(Place, &'static ExtensionSpec)> {
        self.extensions.iter().map(|(place, method)| (*place, &method.spec)).collect()
    }

    fn operations(&self) -> Vec<(Place, Operation)> {
        self.operations.iter().map(|(place, operation, _)| (*place, *operation)).collect()
    }

    fn hooks(&self) -> usize {
        self.hooks.len()
    }

    fn handles(&self, operation: Operation) -> bool {
        let methods = self.operations.iter().map(|(_, handled, _)| handled);
        methods.chain(self.fields.iter().map(|(handled, _)| handled)).any(|handled| *handled == operation)
    }

    fn waits(&self) -> bool {
        !self.start.is_empty()
    }

    fn call_tool<'a>(&'a self, index: usize, input: Input<'a>) -> BoxFuture<'a, ToolResult> {
        (self.tools[index].1.call)(self.get(), input)
    }

    fn call_extension<'a>(
        &'a self,
        index: usize,
        input: Input<'a>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, ToolError>> {
        (self.extensions[index].1.call)(self.get(), input)
    }

    fn call_hook<'a>(&'a self, index: usize, context: &'a ToolContext) -> BoxFuture<'a, Option<ToolResult>> {
        self.hooks[index](self.get(), context)
    }

    fn operate(&self, operation: Operation, parts: Vec<Part>) -> Option<BoxFuture<'_, DataAnswer>> {
        // A method of the author's goes before what a field brings.
        if let Some((_, _, run)) = self.operations.iter().find(|(_, handled, _)| *handled == operation) {
            return Some(run(self.get(), parts));
        }
        let (_, run) = self.fields.iter().find(|(handled, _)| *handled == operation)?;
        Some(run(&self.env, parts))
    }

    fn start(&self) -> Vec<BoxFuture<'_, Outcome>> {
        self.start.iter().map(|start| start(self.get())).collect()
    }

    fn stop(&self) -> Vec<BoxFuture<'_, Outcome>> {
        self.stop.iter().map(|stop| stop(self.get())).collect()
    }

    fn component(&self) -> &dyn Component {
        self.get()
    }
}

/// An environment and the components in its fields, in the order of the fields.
pub(super) fn members<E: Environment>(env: E) -> Vec<Box<dyn Member>> {
    let env = Arc::new(env);
    let mut fields = Fields { data: Vec::new(), components: Vec::new() };
    E::fields(&mut fields);
    let of: fn(&E) -> &E = |env| env;
    let mut members: Vec<Box<dyn Member>> = vec![Box::new(Held::new(env.clone(), of, fields.data))];
    members.extend(fields.components.into_iter().map(|attach| attach(&env)));
    members
}

impl<E: Environment> Fields<E> {
    /// A field that holds the environment's data: resets, adds and gets are answered from it.
    pub fn data<T: crate::data::State>(&mut self, of: fn(&E) -> &crate::data::Data<T>) {
        self.data.push((Operation::Reset, Box::new(move |env, _| of(env).operate_reset())));
        self.data.push((Operation::Add, Box::new(move |env, parts| of(env).operate_add(parts))));
        self.data.push((Operation::Get, Box::new(move |env, _| of(env).operate_get())));
    }

    /// A field that brings tools, extensions and hooks of its own.
    pub fn component<C: Component>(&mut self, of: fn(&E) -> &C) {
        self.components.push(Box::new(move |env| Box::new(Held::new(env.clone(), of, Vec::new()))));
    }
}
