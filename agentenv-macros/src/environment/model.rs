//! What an `#[environment]` block holds.

use proc_macro2::TokenStream;
use syn::{Attribute, Ident, LitStr, Type};

/// A block.
pub(super) struct Block {
    pub(super) self_ty: Type,
    pub(super) tools: Vec<Tool>,
    pub(super) extensions: Vec<Extension>,
    pub(super) operations: Vec<Operation>,
    pub(super) hooks: Vec<Method>,
    pub(super) starts: Vec<Method>,
    pub(super) stops: Vec<Method>,
}

/// A method, whatever it is for.
pub(super) struct Method {
    pub(super) ident: Ident,
    /// `#[cfg]`s, which its entry in the table shares.
    pub(super) cfgs: Vec<Attribute>,
    pub(super) is_async: bool,
    pub(super) takes_self: bool,
    pub(super) parameters: Vec<Parameter>,
    pub(super) output: Output,
}

/// A parameter of a method.
pub(super) enum Parameter {
    /// Who calls.
    Context { by_ref: bool },
    /// An argument.
    Value(Box<Argument>),
}

/// A parameter that is read from a call's arguments.
pub(super) struct Argument {
    /// Its name on the wire.
    pub(super) name: LitStr,
    /// Its type, owned.
    pub(super) ty: Type,
    /// Whether the method takes a reference to it.
    pub(super) by_ref: bool,
    pub(super) description: Option<String>,
    pub(super) default: Option<TokenStream>,
}

/// What a method returns.
pub(super) enum Output {
    /// Nothing.
    Nothing,
    /// A value.
    Value(Box<Type>),
    /// A `Result`, of nothing or of a value, whose types are known unless it is an alias.
    Result { nothing: bool, written: Box<Type>, ok: Option<Box<Type>> },
}

/// A `#[tool]`.
pub(super) struct Tool {
    pub(super) method: Method,
    pub(super) name: LitStr,
    pub(super) title: Option<LitStr>,
    pub(super) description: Option<String>,
    pub(super) read_only: Option<bool>,
    pub(super) destructive: Option<bool>,
    pub(super) idempotent: Option<bool>,
    pub(super) open_world: Option<bool>,
    pub(super) hidden_by_default: bool,
    pub(super) meta: Option<TokenStream>,
    /// The type whose schema is listed.
    pub(super) output_schema: Option<Type>,
    pub(super) input_schema: Option<TokenStream>,
    pub(super) requires_client_capability: Option<LitStr>,
}

/// An `#[extension]`.
pub(super) struct Extension {
    pub(super) method: Method,
    pub(super) uri: LitStr,
    pub(super) op: Option<LitStr>,
    pub(super) verb: &'static str,
    pub(super) path: Option<LitStr>,
    pub(super) description: Option<String>,
    pub(super) required: Option<bool>,
    pub(super) params: Option<TokenStream>,
}

/// A handler of the data plane.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) kind: Kind,
}

/// Which operation, and what its method takes or gives.
pub(super) enum Kind {
    Reset,
    /// The parts themselves.
    AddParts,
    /// Every part as a value, in one call.
    AddAll(Type),
    /// Every part as a value, a call each.
    AddEach(Type),
    /// The parts themselves.
    GetParts,
    /// One value.
    GetState,
}
