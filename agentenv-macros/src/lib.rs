//! The attributes of `agentenv-protocol`, which re-exports them: depend on that crate, not on this one. The entry points are
//! here, and nothing else.

mod attr;
mod card;
mod docs;
mod environment;
mod errors;
mod marker;

use proc_macro::TokenStream;

/// Makes a struct an environment: the head of its card (contract 2.1).
///
/// ```text
/// #[environment_card(name = "email")]
/// #[derive(Default)]
/// struct EmailEnv {
///     #[data]
///     mail: Data<Mailbox>,
///     #[component]
///     clock: Clock,
/// }
/// ```
///
/// Options:
/// - `name = "…"`: the name on the card; without it the type's.
/// - `tool_access`: the environment filters its own tools by role, and takes rules at `/tools/disable` and `/tools/enable`
///   (contract 2.6).
/// - `version = "…"`: what MCP clients are told; without it the crate's.
/// - `extension(uri = "…", description = "…", required = true, params = { … })`: an extension that is declared and has no
///   handler. May be given several times.
///
/// Fields:
/// - `#[data]` on a `Data<T>`: reset, add and get are answered from it.
/// - `#[component]` on any `Component`: its tools, extensions and hooks are the environment's too.
#[proc_macro_attribute]
pub fn environment_card(options: TokenStream, item: TokenStream) -> TokenStream {
    card::environment_card(options.into(), item.into()).into()
}

/// Reads the markers in an impl block of an environment (or of a `Component`). An environment may have several such blocks, in
/// several files.
///
/// Methods take `&self`, are `async` or not, and return any value that serde writes as JSON, or a `Result` of one. The markers
/// are [`tool`](macro@tool), [`extension`](macro@extension), [`reset_data`](macro@reset_data), [`add_data`](macro@add_data),
/// [`get_data`](macro@get_data), [`before_call`](macro@before_call), [`on_start`](macro@on_start) and [`on_stop`](macro@on_stop).
#[proc_macro_attribute]
pub fn environment(options: TokenStream, item: TokenStream) -> TokenStream {
    environment::environment(options.into(), item.into()).into()
}

/// Marks a method of an [`environment`](macro@environment) block that agents can call (contract 2.3).
///
/// The doc comment is the tool's description. Parameters are read from the call's arguments; a doc comment on one describes it,
/// `Option` makes it optional, and so does `#[arg(default = …)]`; `#[arg(name = "…")]` renames it. `&ToolContext`, anywhere
/// among them, is who calls. Arguments that the tool does not know are left aside; `ToolContext::arguments` holds them.
///
/// Options:
/// - `name = "…"`: the method's name unless given; `{environment_name}` stands for the environment's.
/// - `title = "…"`, `description = "…"`.
/// - `read_only`, `destructive`, `idempotent`, `open_world`: MCP's hints; each also `= false`.
/// - `hidden_by_default`: a gateway hides the tool until a rule names it.
/// - `meta = { "key": … }`: more for the listing's `_meta`, as JSON.
/// - `output_schema`: the return type's schema is listed too; it must derive `JsonSchema`.
/// - `input_schema = function`: a function's `serde_json::Value` is listed in place of the parameters' schema.
/// - `requires_client_capability = "…"`: a client without this MCP capability cannot call the tool.
#[proc_macro_attribute]
pub fn tool(_options: TokenStream, item: TokenStream) -> TokenStream {
    marker::stray("tool", item.into()).into()
}

/// Marks a method of an [`environment`](macro@environment) block that answers a method of an extension (contract 2.1, 2.4).
///
/// Options:
/// - `uri = "urn:…"`: which extension. Required.
/// - `op = "…"`: the method's name where several handlers share the extension; without it the handler's name.
/// - `method = "GET"`: the HTTP method; `POST` unless given. GET takes its parameters from the query string.
/// - `path = "/…"`: where it is served; a path made of its names unless given.
/// - `description = "…"`: the doc comment unless given.
/// - `required = true`: whether a harness must use the extension.
/// - `params = { "features": […] }`: more for the card's `params`, as JSON.
#[proc_macro_attribute]
pub fn extension(_options: TokenStream, item: TokenStream) -> TokenStream {
    marker::stray("extension", item.into()).into()
}

/// Marks the method of an [`environment`](macro@environment) block that answers `data/reset`.
#[proc_macro_attribute]
pub fn reset_data(_options: TokenStream, item: TokenStream) -> TokenStream {
    marker::stray("reset_data", item.into()).into()
}

/// Marks the method of an [`environment`](macro@environment) block that answers `data/add`. It takes `Vec<Part>`; or `Vec<T>`,
/// where each part (a data part, or the JSON in a file) is read as a `T`; or one `T`, and is then called once a part, after all
/// of them were read.
#[proc_macro_attribute]
pub fn add_data(_options: TokenStream, item: TokenStream) -> TokenStream {
    marker::stray("add_data", item.into()).into()
}

/// Marks the method of an [`environment`](macro@environment) block that answers `data/get`. It returns `Vec<Part>`, or a value that
/// becomes one data part.
#[proc_macro_attribute]
pub fn get_data(_options: TokenStream, item: TokenStream) -> TokenStream {
    marker::stray("get_data", item.into()).into()
}

/// Marks a method of an [`environment`](macro@environment) block that sees each tool call before its tool, takes `&ToolContext`, and
/// may answer the call instead: by returning `Some(answer)` of an `Option`, or the `Err` of a `Result`.
#[proc_macro_attribute]
pub fn before_call(_options: TokenStream, item: TokenStream) -> TokenStream {
    marker::stray("before_call", item.into()).into()
}

/// Marks a method of an [`environment`](macro@environment) block that runs before the environment takes calls. Until it is done
/// `GET /ready` is not 200; if it fails the server does not start.
#[proc_macro_attribute]
pub fn on_start(_options: TokenStream, item: TokenStream) -> TokenStream {
    marker::stray("on_start", item.into()).into()
}

/// Marks a method of an [`environment`](macro@environment) block that runs after the last call, before the server ends.
#[proc_macro_attribute]
pub fn on_stop(_options: TokenStream, item: TokenStream) -> TokenStream {
    marker::stray("on_stop", item.into()).into()
}
