//! Putting an environment together: checking what its blocks declare, all faults at once, and writing its card and its tool
//! listings (contract 2.1).

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::lifecycle::Readiness;
use super::member::{Member, Place};
use super::table::{ExtensionSpec, Operation, ToolSpec};
use super::tool_access::ToolAccess;
use super::{CardHead, Inner, RoutePlace, ToolPlace};
use crate::card::{CARD_PATH, CardExtension, CardTool, DATA_PLANE_PATH, EnvironmentCard, MCP_PATH};
use crate::extension::{ExtensionRoute, default_path};
use crate::mcp::META_HIDDEN;
use crate::schema::ObjectSchema;
use crate::tool::ToolListing;

/// Longest name of a tool.
const MAX_TOOL_NAME: usize = 128;

/// Paths that every environment serves itself.
const OWN_PATHS: [&str; 4] = [CARD_PATH, DATA_PLANE_PATH, MCP_PATH, "/ready"];

/// Where rules are taken by an environment that opted in to tool access: URI, method, path, description.
const TOOL_ACCESS: [(&str, &str, &str, &str); 2] = [
    ("urn:agentenv:disable-tool/v1", "disable", "/tools/disable", "Take tools away from a role."),
    ("urn:agentenv:enable-tool/v1", "enable", "/tools/enable", "Give tools to a role."),
];

/// What is wrong with an environment: everything that was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("environment `{name}`: {}", list(faults))]
pub struct BuildError {
    name: String,
    faults: Vec<Fault>,
}

impl BuildError {
    /// Each fault.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

fn list(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("; ")
}

/// One thing that is wrong with an environment, and where it is declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The environment's name is blank.
    #[error("the environment's name is blank")]
    BlankName,
    /// Two of a name.
    #[error("{what} is declared twice, at {first} and {second}")]
    Twice {
        /// What: a tool, an operation, a method or a path.
        what: String,
        /// Where first.
        first: String,
        /// Where again.
        second: String,
    },
    /// A tool's name that agents cannot call.
    #[error("tool name `{name}` ({at}) is not 1 to {MAX_TOOL_NAME} letters, digits, `_`, `-` and `.`")]
    ToolName {
        /// The name, with the environment's filled in.
        name: String,
        /// Where.
        at: String,
    },
    /// A tool that declares an output schema and returns no object.
    #[error("tool `{name}` ({at}) has an output schema, so it must return an object")]
    OutputSchema {
        /// The tool.
        name: String,
        /// Where.
        at: String,
    },
    /// An extension with both a method of its own and methods by `op`.
    #[error("extension `{uri}` has methods with and without `op`, at {first} and {second}")]
    MixedOps {
        /// The extension.
        uri: String,
        /// Where first.
        first: String,
        /// Where otherwise.
        second: String,
    },
    /// Two declarations of one extension that disagree.
    #[error("extension `{uri}` declares `{key}` twice and differently")]
    Disagree {
        /// The extension.
        uri: String,
        /// What.
        key: String,
    },
    /// A component that handles the data plane, which only the environment itself may.
    #[error("a component handles `{operation}` at {at}; only the environment itself may")]
    ComponentOperation {
        /// The operation.
        operation: &'static str,
        /// Where.
        at: String,
    },
}

/// What is being put together.
struct Build {
    name: String,
    faults: Vec<Fault>,
    tools: Vec<ToolListing>,
    card_tools: Vec<CardTool>,
    tool_places: Vec<ToolPlace>,
    tools_by_name: HashMap<Arc<str>, usize>,
    extensions: Vec<Extension>,
    routes: Vec<ExtensionRoute>,
    route_places: Vec<RoutePlace>,
    paths: Vec<(String, String)>,
}

/// An extension as it comes together on the card.
struct Extension {
    card: CardExtension,
    methods: Map<String, Value>,
    /// For each method whether it has an `op`, and where it is declared.
    places: Vec<(String, bool, Place)>,
}

pub(super) fn build(head: CardHead, name: &str, members: Vec<Box<dyn Member>>) -> Result<Inner, BuildError> {
    let mut build = Build {
        name: name.trim().to_owned(),
        faults: Vec::new(),
        tools: Vec::new(),
        card_tools: Vec::new(),
        tool_places: Vec::new(),
        tools_by_name: HashMap::new(),
        extensions: Vec::new(),
        routes: Vec::new(),
        route_places: Vec::new(),
        paths: OWN_PATHS.map(|path| (path.to_owned(), "every environment's own routes".to_owned())).into(),
    };
    if build.name.is_empty() {
        build.faults.push(Fault::BlankName);
    }
    let access_paths = TOOL_ACCESS.iter().filter(|_| head.tool_access);
    build.paths.extend(access_paths.map(|(_, _, path, _)| ((*path).to_owned(), "`tool_access`".to_owned())));
    let mut hooks = Vec::new();
    for (index, member) in members.iter().enumerate() {
        for (place, (at, spec)) in member.tools().into_iter().enumerate() {
            build.tool(spec, at, index, place);
        }
        for (place, (at, spec)) in member.extensions().into_iter().enumerate() {
            build.method(spec, at, index, place);
        }
        build.operations(index, &member.operations());
        hooks.extend((0..member.hooks()).map(|hook| (index, hook)));
    }
    for declared in head.extensions {
        let params = declared.params.map(|params| params());
        build.extension(declared.uri, declared.description, declared.required, params);
    }
    if head.tool_access {
        build.tool_access();
    }
    if !build.faults.is_empty() {
        return Err(BuildError { name: build.name, faults: build.faults });
    }
    let handled = |operation: &Operation| members.first().is_some_and(|env| env.handles(*operation));
    let operations =
        Operation::ALL.into_iter().filter(handled).map(|operation| operation.method().to_owned()).collect();
    let waits = members.iter().any(|member| member.waits());
    let card = build.card(operations);
    let card_json = serde_json::to_vec(&card).unwrap_or_default().into();
    Ok(Inner {
        version: head.version,
        card,
        card_json,
        members,
        tools: build.tools,
        tool_places: build.tool_places,
        tools_by_name: build.tools_by_name,
        routes: build.routes,
        route_places: build.route_places,
        hooks,
        access: head.tool_access.then(ToolAccess::default),
        readiness: if waits { Readiness::default() } else { Readiness::at_once() },
    })
}

impl Build {
    fn tool(&mut self, spec: &ToolSpec, at: Place, member: usize, place: usize) {
        let name = spec.name.replace("{environment_name}", &self.name);
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || name.len() > MAX_TOOL_NAME || !name.bytes().all(allowed) {
            self.faults.push(Fault::ToolName { name: name.clone(), at: at.to_string() });
        }
        if let Some(&other) = self.tools_by_name.get(name.as_str()) {
            let (first, second) = (self.tool_places[other].at.to_string(), at.to_string());
            self.faults.push(Fault::Twice { what: format!("tool `{name}`"), first, second });
            return;
        }
        let input_schema = match spec.input_schema {
            Some(schema) => schema(),
            None => object_schema(spec.input),
        };
        let output_schema = spec.output.map(|schema| schema());
        if output_schema.as_ref().is_some_and(|schema| schema.get("type").is_none_or(|kind| kind != "object"))
        {
            self.faults.push(Fault::OutputSchema { name: name.clone(), at: at.to_string() });
        }
        let listing = listing(spec, &name, &input_schema, output_schema);
        let shared: Arc<str> = name.as_str().into();
        self.tools_by_name.insert(shared.clone(), self.tools.len());
        self.tool_places.push(ToolPlace { member, place, name: shared, at });
        self.tools.push(ToolListing {
            name: name.clone(),
            hidden_by_default: spec.hidden_by_default,
            read_only: spec.read_only.unwrap_or(false),
            requires_client_capability: spec.requires_client_capability,
            raw: serde_json::value::to_raw_value(&listing).unwrap_or_default(),
        });
        self.card_tools.push(CardTool {
            name,
            description: spec.description.map(str::to_owned),
            input_schema,
        });
    }

    /// A method of an extension that has a handler.
    fn method(&mut self, spec: &ExtensionSpec, at: Place, member: usize, place: usize) {
        let path = spec.path.map_or_else(|| default_path(spec.uri, spec.op, spec.handler), str::to_owned);
        if let Some((_, first)) = self.paths.iter().find(|(other, _)| *other == path) {
            let (first, second) = (first.clone(), at.to_string());
            self.faults.push(Fault::Twice { what: format!("path `{path}`"), first, second });
        }
        self.paths.push((path.clone(), at.to_string()));

        let name = spec.op.unwrap_or(spec.handler).to_owned();
        let params = spec.params.map(|params| params());
        let extension = self.extension(spec.uri, spec.description, spec.required, params);
        let clash = extension.places.iter().find_map(|(other, op, first)| {
            let (first, second) = (first.to_string(), at.to_string());
            if *op != spec.op.is_some() {
                return Some(Fault::MixedOps { uri: spec.uri.to_owned(), first, second });
            }
            // Without `op` an extension has the one method.
            let twice = spec.op.is_none() || *other == name;
            twice.then(|| Fault::Twice {
                what: format!("method `{name}` of extension `{}`", spec.uri),
                first,
                second,
            })
        });
        extension.places.push((name.clone(), spec.op.is_some(), at));
        let mut method = Map::from_iter([("method".to_owned(), Value::from(spec.verb.http().as_str()))]);
        if spec.op.is_some() {
            method.insert("endpoint".to_owned(), path.as_str().into());
        } else {
            let params = extension.card.params.get_or_insert_default();
            params.shift_insert(0, "endpoint".to_owned(), path.as_str().into());
        }
        method.insert("request".to_owned(), object_schema(spec.input));
        extension.methods.insert(name.clone(), method.into());
        self.faults.extend(clash);
        self.routes.push(ExtensionRoute {
            uri: spec.uri.to_owned(),
            method: name,
            path,
            verb: spec.verb.http(),
        });
        self.route_places.push(RoutePlace { member, place, name: spec.handler.into() });
    }

    /// An extension's entry on the card, with what another declaration says of it.
    fn extension(
        &mut self,
        uri: &str,
        description: Option<&str>,
        required: Option<bool>,
        params: Option<Value>,
    ) -> &mut Extension {
        let index =
            self.extensions.iter().position(|extension| extension.card.uri == uri).unwrap_or_else(|| {
                let card =
                    CardExtension { uri: uri.to_owned(), description: None, params: None, required: None };
                self.extensions.push(Extension { card, methods: Map::new(), places: Vec::new() });
                self.extensions.len() - 1
            });
        let extension = &mut self.extensions[index];
        let mut disagree =
            |key: &str| self.faults.push(Fault::Disagree { uri: uri.to_owned(), key: key.to_owned() });
        // The first description stands: methods of one extension each describe themselves.
        extension.card.description = extension.card.description.take().or(description.map(str::to_owned));
        if let Some(required) = required
            && extension.card.required.replace(required).is_some_and(|before| before != required)
        {
            disagree("required");
        }
        if let Some(Value::Object(more)) = params {
            let params = extension.card.params.get_or_insert_default();
            for (key, value) in more {
                if params.get(&key).is_some_and(|before| *before != value) {
                    disagree(&key);
                }
                params.insert(key, value);
            }
        }
        extension
    }

    fn operations(&mut self, member: usize, operations: &[(Place, Operation)]) {
        for (index, (at, operation)) in operations.iter().enumerate() {
            if member > 0 {
                let (operation, at) = (operation.method(), at.to_string());
                self.faults.push(Fault::ComponentOperation { operation, at });
            } else if let Some((first, _)) = operations[..index].iter().find(|(_, other)| other == operation)
            {
                let what = format!("`{}`", operation.method());
                self.faults.push(Fault::Twice { what, first: first.to_string(), second: at.to_string() });
            }
        }
    }

    /// The two extensions of an environment with tool access of its own (contract 2.6).
    fn tool_access(&mut self) {
        let request = json!({
            "type": "object",
            "properties": {
                "role": {"type": "string", "description": "Whose tools; `*` is every role."},
                "tools": {
                    "description": "Names of tools, or `*` for all of them.",
                    "anyOf": [{"type": "array", "items": {"type": "string"}}, {"const": "*"}],
                },
            },
            "required": ["role", "tools"],
        });
        for (uri, method, path, description) in TOOL_ACCESS {
            let extension =
                self.extension(uri, Some(description), Some(false), Some(json!({"endpoint": path})));
            extension.methods.insert(method.to_owned(), json!({"method": "POST", "request": request}));
        }
    }

    fn card(&mut self, operations: Vec<String>) -> EnvironmentCard {
        let mut card = EnvironmentCard::new(self.name.clone());
        let extensions = std::mem::take(&mut self.extensions).into_iter().map(|mut extension| {
            if !extension.methods.is_empty() {
                let params = extension.card.params.get_or_insert_default();
                let at = usize::from(params.contains_key("endpoint"));
                params.shift_insert(at, "methods".to_owned(), extension.methods.into());
            }
            extension.card
        });
        let (extensions, tools): (Vec<_>, _) = (extensions.collect(), std::mem::take(&mut self.card_tools));
        card.capabilities.extensions = Some(extensions).filter(|extensions| !extensions.is_empty());
        card.capabilities.tools = Some(tools).filter(|tools| !tools.is_empty());
        card.capabilities.operations = operations;
        card
    }
}

fn object_schema(fill: fn(&mut ObjectSchema)) -> Value {
    let mut schema = ObjectSchema::new();
    fill(&mut schema);
    schema.finish()
}

/// A tool's entry of `tools/list`.
fn listing(spec: &ToolSpec, name: &str, input_schema: &Value, output_schema: Option<Value>) -> Value {
    let mut tool = Map::new();
    tool.insert("name".to_owned(), name.into());
    let texts = [("title", spec.title), ("description", spec.description)];
    tool.extend(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?.into()))));
    tool.insert("inputSchema".to_owned(), input_schema.clone());
    tool.extend(output_schema.map(|schema| ("outputSchema".to_owned(), schema)));
    let hints = [
        ("readOnlyHint", spec.read_only),
        ("destructiveHint", spec.destructive),
        ("idempotentHint", spec.idempotent),
        ("openWorldHint", spec.open_world),
    ];
    let hints: Map<_, _> =
        hints.into_iter().filter_map(|(key, hint)| Some((key.to_owned(), hint?.into()))).collect();
    if !hints.is_empty() {
        tool.insert("annotations".to_owned(), hints.into());
    }
    let mut meta = spec.meta.map_or(Value::Null, |meta| meta());
    if spec.hidden_by_default {
        meta[META_HIDDEN] = true.into();
    }
    if !meta.is_null() {
        tool.insert("_meta".to_owned(), meta);
    }
    tool.into()
}
