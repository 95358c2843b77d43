//! Reading an impl block: each method's marker and its options. The markers are taken away.

use proc_macro2::TokenStream;
use syn::spanned::Spanned;
use syn::{Attribute, ImplItem, ImplItemFn, ItemImpl, LitStr, Meta, Type};

use super::method::{first_argument, is_last_segment, method};
use super::model::{Block, Extension, Kind, Method, Operation, Output, Parameter, Tool};
use crate::attr::Options;
use crate::card::refuse_generics;
use crate::docs::description;
use crate::errors::Errors;
use crate::marker::{MARKERS, strip_parameters};

const TOOL_OPTIONS: [&str; 12] = [
    "name",
    "title",
    "description",
    "read_only",
    "destructive",
    "idempotent",
    "open_world",
    "hidden_by_default",
    "meta",
    "output_schema",
    "input_schema",
    "requires_client_capability",
];
const EXTENSION_OPTIONS: [&str; 7] = ["uri", "op", "method", "path", "description", "required", "params"];

/// The only placeholder in a tool's name.
const ENVIRONMENT_NAME: &str = "{environment_name}";

pub(super) fn parse(item: &mut ItemImpl, errors: &mut Errors) -> Block {
    refuse_generics(&item.generics, errors);
    if let Some((path, _)) = &item.trait_ {
        errors.at(path, "`#[environment]` goes on an `impl` block of the type itself, not of a trait");
    }
    let mut block = Block {
        self_ty: (*item.self_ty).clone(),
        tools: Vec::new(),
        extensions: Vec::new(),
        operations: Vec::new(),
        hooks: Vec::new(),
        starts: Vec::new(),
        stops: Vec::new(),
    };
    for item in &mut item.items {
        let ImplItem::Fn(method) = item else { continue };
        if let Some(marker) = take_marker(method, errors) {
            block.read(&marker, method, errors);
            strip_parameters(method);
            // How many parameters there are is the wire's affair, not the method's.
            method.attrs.push(syn::parse_quote!(#[allow(clippy::too_many_arguments)]));
        }
    }
    refuse_repeats(&block, errors);
    block
}

/// A method's marker.
struct Marker {
    name: String,
    attribute: Attribute,
    options: TokenStream,
}

fn take_marker(method: &mut ImplItemFn, errors: &mut Errors) -> Option<Marker> {
    let mut markers = Vec::new();
    method.attrs.retain(|attribute| {
        let segments = &attribute.path().segments;
        let ours =
            segments.len() == 1 || segments.first().is_some_and(|first| first.ident == "agentenv_protocol");
        let name = segments.last().map(|last| last.ident.to_string()).filter(|_| ours);
        match name.filter(|name| MARKERS.contains(&name.as_str())) {
            Some(name) => {
                markers.push((name, attribute.clone()));
                false
            }
            None => true,
        }
    });
    let mut markers = markers.into_iter();
    let (name, attribute) = markers.next()?;
    for (_, more) in markers {
        errors.at(&more, format!("a method has one marker, and this one is a `#[{name}]`"));
    }
    let options = match &attribute.meta {
        Meta::Path(_) => TokenStream::new(),
        Meta::List(list) => list.tokens.clone(),
        Meta::NameValue(meta) => {
            errors.at(&meta.value, format!("options go in parentheses: `#[{name}(…)]`"));
            TokenStream::new()
        }
    };
    Some(Marker { name, attribute, options })
}

impl Block {
    fn read(&mut self, marker: &Marker, item: &ImplItemFn, errors: &mut Errors) {
        let what = match marker.name.as_str() {
            "tool" => "a tool",
            "extension" => "an extension",
            "before_call" => "a hook",
            "on_start" | "on_stop" => "a start or a stop",
            _ => "a data handler",
        };
        let method = method(item, what, &self.self_ty, errors);
        if !matches!(marker.name.as_str(), "tool" | "extension") {
            let of = format!("`#[{}]`", marker.name);
            Options::parse(marker.options.clone(), &of, &[], &[], errors);
        }
        match marker.name.as_str() {
            "tool" => self.tools.push(tool(marker, item, method, errors)),
            "extension" => self.extensions.extend(extension(marker, item, method, errors)),
            "before_call" => {
                if !matches!(method.parameters.as_slice(), [Parameter::Context { .. }]) {
                    errors.at(&item.sig.inputs, "a hook takes `&self` and `&ToolContext`");
                }
                self.hooks.push(method);
            }
            "on_start" | "on_stop" => {
                if !method.parameters.is_empty() {
                    errors.at(&item.sig.inputs, format!("`#[{}]` takes `&self` alone", marker.name));
                }
                let list = if marker.name == "on_start" { &mut self.starts } else { &mut self.stops };
                list.push(method);
            }
            name => self.operations.extend(operation(name, item, method, errors)),
        }
    }
}

fn tool(marker: &Marker, item: &ImplItemFn, method: Method, errors: &mut Errors) -> Tool {
    let mut options = Options::parse(marker.options.clone(), "a tool", &TOOL_OPTIONS, &[], errors);
    let name = match options.text("name", errors) {
        Some(name) => {
            check_name(&name, errors);
            name
        }
        None => LitStr::new(&syn::ext::IdentExt::unraw(&method.ident).to_string(), method.ident.span()),
    };
    let described = options.text("description", errors).map(|text| text.value());
    let output_schema = options.flag("output_schema", errors).then(|| match &method.output {
        Output::Value(ty) => Some((**ty).clone()),
        Output::Result { ok, .. } => ok.as_deref().cloned(),
        Output::Nothing => None,
    });
    if matches!(output_schema, Some(None)) {
        errors.at(&marker.attribute, "`output_schema` needs a return type that is written out");
    }
    Tool {
        name,
        title: options.text("title", errors),
        description: described.or_else(|| description(&item.attrs)),
        read_only: options.hint("read_only", errors),
        destructive: options.hint("destructive", errors),
        idempotent: options.hint("idempotent", errors),
        open_world: options.hint("open_world", errors),
        hidden_by_default: options.flag("hidden_by_default", errors),
        meta: options.json("meta", errors),
        output_schema: output_schema.flatten(),
        input_schema: options.expression("input_schema").and_then(|(at, function)| {
            if function.is_none() {
                errors.at(&at, "`input_schema` takes a function: `input_schema = my_schema`");
            }
            function
        }),
        requires_client_capability: options.text("requires_client_capability", errors),
        method,
    }
}

/// A tool's name: letters, digits, `_`, `-`, `.`, and the one placeholder.
fn check_name(literal: &LitStr, errors: &mut Errors) {
    let name = literal.value();
    let rest = name.replace(ENVIRONMENT_NAME, "");
    if let Some(start) = rest.find('{') {
        let end = rest[start..].find('}').map_or(rest.len(), |end| start + end + 1);
        let placeholder = &rest[start..end];
        errors.at(literal, format!("unknown placeholder `{placeholder}`; there is `{ENVIRONMENT_NAME}`"));
    } else if name.is_empty() {
        errors.at(literal, "a tool needs a name");
    } else if let Some(odd) =
        rest.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')))
    {
        errors.at(literal, format!("a tool's name has letters, digits, `_`, `-` and `.`, and no `{odd}`"));
    }
}

fn extension(marker: &Marker, item: &ImplItemFn, method: Method, errors: &mut Errors) -> Option<Extension> {
    let mut options = Options::parse(marker.options.clone(), "an extension", &EXTENSION_OPTIONS, &[], errors);
    let uri = options.text("uri", errors).filter(|uri| !uri.value().trim().is_empty());
    if uri.is_none() {
        errors.at(&marker.attribute, "an extension needs its `uri = \"…\"`");
    }
    let op = options.text("op", errors);
    if let Some(op) = &op
        && (op.value().is_empty()
            || !op.value().chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')))
    {
        errors.at(op, "an `op` has letters, digits, `_`, `-` and `.`");
    }
    let verb = options.text("method", errors);
    let verb = verb.map_or("Post", |verb| match verb.value().to_ascii_uppercase().as_str() {
        "GET" => "Get",
        "POST" => "Post",
        "PUT" => "Put",
        "PATCH" => "Patch",
        "DELETE" => "Delete",
        _ => {
            errors.at(&verb, "`method` is GET, POST, PUT, PATCH or DELETE");
            "Post"
        }
    });
    let path = options.text("path", errors);
    if let Some(path) = &path {
        let fine = |c: char| c.is_ascii_graphic() && !"{}*?#%".contains(c);
        if !path.value().starts_with('/') || !path.value().chars().all(fine) {
            errors.at(path, "a path begins with `/` and has no blanks, braces, `*`, `?`, `#` or `%`");
        }
    }
    let described = options.text("description", errors).map(|text| text.value());
    let (required, params) = (options.hint("required", errors), options.json("params", errors));
    let description = described.or_else(|| description(&item.attrs));
    Some(Extension { uri: uri?, op, verb, path, description, required, params, method })
}

fn operation(marker: &str, item: &ImplItemFn, method: Method, errors: &mut Errors) -> Option<Operation> {
    let inputs = &item.sig.inputs;
    let kind = match (marker, method.parameters.as_slice()) {
        ("reset_data", []) => Kind::Reset,
        ("get_data", []) => match &method.output {
            Output::Nothing => {
                errors.at(&item.sig.ident, "`#[get_data]` returns the state: `Vec<Part>` or a value");
                return None;
            }
            Output::Value(ty) | Output::Result { ok: Some(ty), .. } if is_parts(ty) => Kind::GetParts,
            Output::Value(_) | Output::Result { .. } => Kind::GetState,
        },
        ("add_data", [Parameter::Value(seed)]) => {
            match first_argument(&seed.ty).filter(|_| is_last_segment(&seed.ty, "Vec")) {
                Some(item) if is_last_segment(&item, "Part") => Kind::AddParts,
                Some(item) => Kind::AddAll(item),
                None => Kind::AddEach(seed.ty.clone()),
            }
        }
        ("add_data", _) => {
            errors.at_span(
                inputs.span(),
                "`#[add_data]` takes `&self` and one more: `Vec<Part>`, or the type of a seed",
            );
            return None;
        }
        _ => {
            errors.at_span(inputs.span(), format!("`#[{marker}]` takes `&self` alone"));
            return None;
        }
    };
    if !matches!(kind, Kind::GetParts | Kind::GetState)
        && let Output::Value(ty) | Output::Result { nothing: false, ok: Some(ty), .. } = &method.output
    {
        errors.at(ty, format!("`#[{marker}]` returns nothing, or `Result<(), E>`"));
    }
    Some(Operation { method, kind })
}

fn is_parts(ty: &Type) -> bool {
    is_last_segment(ty, "Vec") && first_argument(ty).is_some_and(|item| is_last_segment(&item, "Part"))
}

/// Two of a name in one block. Across blocks, and where a `#[cfg]` chooses, it is found when the environment is made.
fn refuse_repeats(block: &Block, errors: &mut Errors) {
    for (index, tool) in block.tools.iter().enumerate() {
        let before = block.tools[..index].iter().find(|other| other.name.value() == tool.name.value());
        if let Some(other) = before.filter(|other| both_stand(&other.method, &tool.method)) {
            let message =
                format!("two tools are named `{}`: `{}` is the first", tool.name.value(), other.method.ident);
            errors.at(&tool.name, message);
        }
    }
    for (index, extension) in block.extensions.iter().enumerate() {
        let same_uri = |other: &&Extension| other.uri.value() == extension.uri.value();
        for other in block.extensions[..index].iter().filter(same_uri) {
            let op = |extension: &Extension| extension.op.as_ref().map(LitStr::value);
            let message = match (op(other), op(extension)) {
                _ if !both_stand(&other.method, &extension.method) => continue,
                (None, None) => "two handlers for one extension: give each an `op`".to_owned(),
                (Some(first), Some(second)) if first == second => {
                    format!("two handlers for `op = \"{first}\"`")
                }
                (Some(_), Some(_)) => continue,
                _ => "an extension has handlers with an `op`, or one without".to_owned(),
            };
            errors.at(&extension.uri, format!("{message}; `{}` is the first", other.method.ident));
            break;
        }
    }
    for (index, operation) in block.operations.iter().enumerate() {
        let name = |operation: &Operation| match operation.kind {
            Kind::Reset => "reset_data",
            Kind::AddParts | Kind::AddAll(_) | Kind::AddEach(_) => "add_data",
            Kind::GetParts | Kind::GetState => "get_data",
        };
        let before = block.operations[..index].iter().find(|other| name(other) == name(operation));
        if let Some(other) = before.filter(|other| both_stand(&other.method, &operation.method)) {
            let message =
                format!("two `#[{}]` methods: `{}` is the first", name(operation), other.method.ident);
            errors.at(&operation.method.ident, message);
        }
    }
}

fn both_stand(first: &Method, second: &Method) -> bool {
    first.cfgs.is_empty() && second.cfgs.is_empty()
}
