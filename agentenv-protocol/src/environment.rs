//! The environment runtime: an annotated type turned into something that can be called. What it has comes from the tables that
//! the macros fill (`table`), is checked and described once (`build`), and is then called by name (this file, `plane`). HTTP and
//! MCP are left to `server` and `mcp`.

mod build;
mod call;
mod lifecycle;
mod linked;
mod member;
mod plane;
pub(crate) mod table;
mod tool_access;

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::access::AccessRules;
use crate::arguments::Reading;
use crate::card::EnvironmentCard;
use crate::context::Caller;
use crate::error::{Failure, ToolError};
use crate::extension::{answer_failure, parameters};
use crate::standard::clock::TimeSource;
use crate::tool::{ToolListing, ToolResult};

pub use crate::extension::{ExtensionInput, ExtensionRoute};
pub use build::{BuildError, Fault};
pub use call::CallRequest;
#[doc(hidden)]
pub use call::Input;
pub(crate) use call::Origin;
pub use lifecycle::LifecycleError;
use lifecycle::Readiness;
#[doc(hidden)]
pub use linked::Constructor;
pub use linked::{LinkedEnv, find_linked, linked};
use member::{Member, Place};
pub use plane::DataError;
pub use table::Operation;
use table::{DeclaredExtension, Fields};
use tool_access::ToolAccess;

/// The head of an environment's card: what `#[environment_card(…)]` says.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct CardHead {
    pub name: Option<&'static str>,
    pub type_name: &'static str,
    pub version: &'static str,
    pub tool_access: bool,
    pub extensions: &'static [DeclaredExtension],
}

impl CardHead {
    /// The declared name, or the type's.
    pub const fn name(&self) -> &'static str {
        match self.name {
            Some(name) => name,
            None => self.type_name,
        }
    }
}

/// A type that `#[environment]` blocks may be written for: an environment, or a set of tools and extensions that environments
/// hold in a field marked `#[component]`.
///
/// `#[environment_card]` implements it for an environment. For a reusable component it takes one line:
///
/// ```
/// use agentenv_protocol::prelude::*;
/// use agentenv_protocol::environment::Component;
///
/// /// Counts.
/// #[derive(Default)]
/// struct Counter(std::sync::atomic::AtomicU64);
///
/// impl Component for Counter {}
///
/// #[environment]
/// impl Counter {
///     /// Count one more.
///     #[tool]
///     fn count(&self) -> u64 {
///         self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
///     }
/// }
///
/// #[environment_card(name = "counting")]
/// #[derive(Default)]
/// struct Counting {
///     #[component]
///     counter: Counter,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no card",
    label = "an `#[environment]` block belongs to a type with a card",
    note = "put `#[environment_card(name = \"…\")]` on the struct"
)]
pub trait Component: Any + Send + Sync {
    /// Called with the instance's clock when the component runs inside a gateway's process.
    fn follow(&self, clock: &Arc<dyn TimeSource>) {
        let _ = clock;
    }
}

/// An environment: what `#[environment_card]` makes of a struct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an environment",
    label = "has no card",
    note = "put `#[environment_card(name = \"…\")]` on the struct"
)]
pub trait Environment: Component + Sized {
    /// The head of the card.
    #[doc(hidden)]
    const HEAD: CardHead;

    /// The fields that bring something.
    #[doc(hidden)]
    fn fields(fields: &mut Fields<Self>);
}

/// A running environment, whatever its type: cheap to clone, and sharing nothing with any other, so that a program may hold a
/// thousand.
///
/// Dropping a call's future cuts the handler at its next await; the transports decide when a caller that hangs up does that.
///
/// ```
/// # async fn show() -> Result<(), Box<dyn std::error::Error>> {
/// use agentenv_protocol::environment::{CallRequest, EnvRuntime};
/// use agentenv_protocol::prelude::*;
///
/// #[environment_card(name = "echo")]
/// struct Echo;
///
/// #[environment]
/// impl Echo {
///     /// Say it again.
///     #[tool]
///     async fn echo(&self, text: String) -> String {
///         text
///     }
/// }
///
/// let env = EnvRuntime::new(Echo)?;
/// let arguments = serde_json::value::to_raw_value(&serde_json::json!({"text": "hello"}))?;
/// let result = env.call_tool(CallRequest::new("echo", Some(&arguments))).await;
/// assert_eq!(result.raw().as_str(), r#"{"content":[{"type":"text","text":"hello"}],"isError":false}"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EnvRuntime(Arc<Inner>);

/// Whose a tool is, and its place there.
struct ToolPlace {
    member: usize,
    place: usize,
    name: Arc<str>,
    at: Place,
}

/// Whose a route is, and its place there.
struct RoutePlace {
    member: usize,
    place: usize,
    name: Arc<str>,
}

struct Inner {
    version: &'static str,
    card: EnvironmentCard,
    card_json: Bytes,
    members: Vec<Box<dyn Member>>,
    tools: Vec<ToolListing>,
    tool_places: Vec<ToolPlace>,
    tools_by_name: HashMap<Arc<str>, usize>,
    routes: Vec<ExtensionRoute>,
    route_places: Vec<RoutePlace>,
    hooks: Vec<(usize, usize)>,
    access: Option<ToolAccess>,
    readiness: Readiness,
}

impl EnvRuntime {
    /// An environment under the name that it declares.
    ///
    /// # Errors
    /// Everything that is wrong with what it declares, at once.
    pub fn new<E: Environment>(env: E) -> Result<Self, BuildError> {
        Self::named(env, E::HEAD.name())
    }

    /// An environment under another name, as a deploy gives it in `ENVIRONMENT_NAME` (contract 2.1).
    ///
    /// # Errors
    /// As [`new`](Self::new), and a name that is blank.
    pub fn named<E: Environment>(env: E, name: &str) -> Result<Self, BuildError> {
        build::build(E::HEAD, name, member::members(env)).map(|inner| Self(Arc::new(inner)))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.card.name
    }

    /// Its version: that of the crate that declares it.
    pub fn version(&self) -> &'static str {
        self.0.version
    }

    /// Its card (contract 2.1).
    pub fn card(&self) -> &EnvironmentCard {
        &self.0.card
    }

    /// Its card's JSON.
    pub fn card_json(&self) -> &Bytes {
        &self.0.card_json
    }

    /// All its tools, in the order in which they are declared.
    pub fn tools(&self) -> &[ToolListing] {
        &self.0.tools
    }

    /// The tools that a caller of this role sees: all, unless the environment opted in to tool access of its own
    /// (contract 2.6).
    pub fn tools_for(&self, role: Option<&str>) -> impl Iterator<Item = &ToolListing> {
        let rules = self.0.access.as_ref().map(ToolAccess::rules);
        let caller = Caller::new(role, None);
        self.0
            .tools
            .iter()
            .filter(move |tool| rules.as_ref().is_none_or(|rules| allows(rules, &caller, tool)))
    }

    /// Calls a tool. Whatever goes wrong (an unknown tool, arguments that do not fit, a panic, a refusal) is an error result:
    /// this never fails.
    pub async fn call_tool(&self, request: CallRequest<'_>) -> ToolResult {
        let Some(&index) = self.0.tools_by_name.get(request.tool) else {
            return ToolResult::plain_error(format!("Unknown tool: {}", request.tool));
        };
        let tool = &self.0.tools[index];
        if let Some(access) = &self.0.access
            && !allows(&access.rules(), &request.caller, tool)
        {
            let role = request.caller.role_or_default();
            return ToolResult::plain_error(format!("Tool '{}' is disabled for role '{role}'", tool.name));
        }
        let origin = Origin {
            caller: &request.caller,
            name: &self.0.tool_places[index].name,
            arguments: request
                .arguments
                .filter(|arguments| arguments.get() != "null")
                .unwrap_or(no_arguments()),
            meta: request.meta,
            notify: request.notify.as_ref(),
            cancel: &request.cancel,
        };
        let call = AssertUnwindSafe(self.run_tool(index, origin)).catch_unwind();
        tokio::select! {
            biased;
            result = call => result.unwrap_or_else(|_panic| {
                tracing::error!(env = self.name(), tool = tool.name, "a tool panicked");
                ToolResult::failure(&Failure::panicked())
            }),
            () = request.cancel.cancelled() => ToolResult::plain_error("the call was cancelled"),
        }
    }

    async fn run_tool(&self, index: usize, origin: Origin<'_>) -> ToolResult {
        if !self.0.hooks.is_empty() {
            let context = origin.context();
            for &(member, hook) in &self.0.hooks {
                if let Some(answer) = self.0.members[member].call_hook(hook, &context).await {
                    return answer;
                }
            }
        }
        let ToolPlace { member, place, .. } = self.0.tool_places[index];
        self.0.members[member].call_tool(place, Input::new(origin, Reading::Exact)).await
    }

    /// The routes of its extensions. A route's place in this list is its index for
    /// [`invoke_extension`](Self::invoke_extension).
    pub fn extension_routes(&self) -> &[ExtensionRoute] {
        &self.0.routes
    }

    /// Calls a method of an extension (contract 2.4).
    ///
    /// # Errors
    /// Parameters that do not fit (`invalid_params`), and the handler's failure; [`ToolError::status`] is the HTTP status.
    pub async fn invoke_extension(
        &self,
        index: usize,
        input: ExtensionInput<'_>,
        caller: Caller,
    ) -> Result<Box<RawValue>, ToolError> {
        let Some(RoutePlace { member, place, name }) = self.0.route_places.get(index) else {
            return Err(ToolError::new("unknown_extension", format!("there is no extension route {index}")));
        };
        let arguments = parameters(input)?;
        let reading = if matches!(input, ExtensionInput::Query(_)) { Reading::Text } else { Reading::Lax };
        let cancel = CancellationToken::new();
        let origin = Origin {
            caller: &caller,
            name,
            arguments: &arguments,
            meta: None,
            notify: None,
            cancel: &cancel,
        };
        let call =
            async { self.0.members[*member].call_extension(*place, Input::new(origin, reading)).await };
        AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|_panic| {
            tracing::error!(env = self.name(), extension = &**name, "an extension panicked");
            Err(answer_failure(Failure::panicked()))
        })
    }

    /// Hands the instance's clock to every component that follows one, without HTTP in between.
    pub fn follow(&self, clock: &Arc<dyn TimeSource>) {
        self.0.members.iter().for_each(|member| member.component().follow(clock));
    }
}

impl std::fmt::Debug for EnvRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvRuntime").field("name", &self.name()).field("tools", &self.0.tools.len()).finish()
    }
}

fn allows(rules: &AccessRules, caller: &Caller, tool: &ToolListing) -> bool {
    rules.allows(caller.role_or_default(), &tool.name, tool.hidden_by_default)
}

fn no_arguments() -> &'static RawValue {
    static EMPTY: std::sync::LazyLock<Box<RawValue>> = std::sync::LazyLock::new(|| {
        serde_json::value::to_raw_value(&serde_json::Map::new()).unwrap_or_default()
    });
    &EMPTY
}
