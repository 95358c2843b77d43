//! How an environment comes together: its card, its blocks, what is refused, and what runs around its calls.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use agentenv_protocol::access::{Access, ToolSet};
use agentenv_protocol::environment::{Component, EnvRuntime, Fault, find_linked, linked};
use agentenv_protocol::prelude::*;
use agentenv_protocol::testing::TestEnv;

#[environment_card]
#[derive(Default)]
struct Unnamed;

#[environment]
impl Unnamed {
    /// First.
    #[tool(
        name = "{environment_name}_first",
        title = "One",
        read_only,
        destructive = false,
        open_world = false
    )]
    fn first(&self) {}
}

#[environment]
impl Unnamed {
    #[tool(hidden_by_default, idempotent, meta = { "ui/resource": "x", "n": [1, null] }, description = "Second.")]
    fn second(&self) {}

    #[cfg(any())]
    #[tool]
    fn never(&self, missing: NoSuchType) {}
}

#[environment_card(name = "twice")]
struct Twice;

#[environment]
impl Twice {
    #[tool(name = "twice_a")]
    fn a(&self) {}

    #[extension(uri = "urn:x:a/v1")]
    fn ext_a(&self) {}

    #[extension(uri = "urn:x:b/v1", op = "one", params = { "limit": 1 }, required = true)]
    fn ext_b(&self) {}

    #[reset_data]
    fn reset(&self) {}
}

#[environment]
impl Twice {
    #[tool(name = "{environment_name}_a")]
    fn again(&self) {}

    #[tool(output_schema)]
    fn number(&self) -> u8 {
        1
    }

    #[extension(uri = "urn:x:a/v1", op = "x")]
    fn ext_a_again(&self) {}

    #[extension(uri = "urn:x:b/v1", op = "one", path = "/agentenv/ext/ext_a", params = { "limit": 2 }, required = false)]
    fn ext_b_again(&self) {}

    #[extension(uri = "urn:x:c/v1", path = "/mcp")]
    fn ext_c(&self) {}

    #[reset_data]
    fn reset_again(&self) {}
}

/// Tools, a hook and a start that environments may hold in a field.
#[derive(Default)]
struct Guard {
    seen: Mutex<Vec<String>>,
    steps: AtomicU32,
}

impl Component for Guard {}

#[environment]
impl Guard {
    #[before_call]
    async fn watch(&self, call: &ToolContext) -> Option<ToolResult> {
        self.seen.lock().unwrap().push(format!("{}{}", call.tool, call.arguments.get()));
        (&*call.tool == "forbidden").then(|| ToolResult::text("answered before"))
    }

    #[tool]
    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    #[on_start]
    async fn start(&self) {
        self.steps.fetch_add(1, Ordering::SeqCst);
    }
}

#[environment_card(name = "guarded", tool_access, version = "1.2.3")]
#[derive(Default)]
struct Guarded {
    #[component]
    guard: Guard,
    broken: bool,
}

#[environment]
impl Guarded {
    #[tool]
    fn allowed(&self) -> u8 {
        1
    }

    #[tool]
    fn forbidden(&self) -> u8 {
        2
    }

    #[tool(hidden_by_default)]
    fn hidden(&self) -> u8 {
        3
    }

    #[before_call]
    fn refuse(&self, call: &ToolContext) -> Result<(), ToolError> {
        if call.caller.role.as_deref() == Some("enemy") {
            Err(ToolError::new("no", "not you"))
        } else {
            Ok(())
        }
    }

    #[on_start]
    fn open(&self) -> Result<(), String> {
        if self.broken { Err("no database".to_owned()) } else { Ok(()) }
    }

    #[on_stop]
    async fn close(&self) {
        self.guard.steps.fetch_add(10, Ordering::SeqCst);
    }
}

#[environment_card(name = "without-default")]
struct WithoutDefault(#[expect(dead_code, reason = "what keeps it from having a default")] u8);

#[test]
fn the_card_is_exact() {
    let env = EnvRuntime::named(Unnamed, "given").unwrap();
    assert_eq!(
        env.card_json(),
        concat!(
            r#"{"name":"given","protocolVersion":"1.0","url":"/agentenv","preferredTransport":"JSONRPC","#,
            r#""additionalInterfaces":[{"url":"/mcp","transport":"mcp"}],"#,
            r#""capabilities":{"extensions":null,"tools":["#,
            r#"{"name":"given_first","description":"First.","inputSchema":{"type":"object","properties":{}}},"#,
            r#"{"name":"second","description":"Second.","inputSchema":{"type":"object","properties":{}}}],"#,
            r#""operations":[]},"children_environments":null}"#
        )
    );
    assert_eq!(EnvRuntime::new(Unnamed).unwrap().name(), "Unnamed");
    let bare: Value =
        serde_json::from_slice(EnvRuntime::new(WithoutDefault(1)).unwrap().card_json()).unwrap();
    assert_eq!(bare["capabilities"], json!({"extensions": null, "tools": null, "operations": []}));
    assert_eq!(
        serde_json::to_value(env.card()).unwrap(),
        serde_json::from_slice::<Value>(env.card_json()).unwrap()
    );
}

#[test]
fn listings_carry_the_options() {
    let env = EnvRuntime::new(Unnamed).unwrap();
    let listings: Vec<_> = env.tools().iter().map(|tool| tool.raw.get()).collect();
    assert_eq!(
        listings,
        [
            concat!(
                r#"{"name":"Unnamed_first","title":"One","description":"First.","#,
                r#""inputSchema":{"type":"object","properties":{}},"#,
                r#""annotations":{"readOnlyHint":true,"destructiveHint":false,"openWorldHint":false}}"#
            ),
            concat!(
                r#"{"name":"second","description":"Second.","inputSchema":{"type":"object","properties":{}},"#,
                r#""annotations":{"idempotentHint":true},"#,
                r#""_meta":{"ui/resource":"x","n":[1,null],"agentenv.io/hiddenByDefault":true}}"#
            ),
        ]
    );
    assert!(env.tools()[0].read_only && env.tools()[1].hidden_by_default);
}

#[test]
fn every_fault_is_found_at_once() {
    let error = EnvRuntime::new(Twice).unwrap_err();
    let text = error.to_string();
    for what in [
        "environment `twice`: ",
        "tool `twice_a` is declared twice, at agentenv-protocol/tests/build.rs:",
        "tool `number`",
        "path `/agentenv/ext/ext_a` is declared twice",
        "path `/mcp` is declared twice",
        "extension `urn:x:a/v1` has methods with and without `op`",
        "method `one` of extension `urn:x:b/v1` is declared twice",
        "extension `urn:x:b/v1` declares `limit` twice and differently",
        "extension `urn:x:b/v1` declares `required` twice and differently",
        "`data/reset` is declared twice",
    ] {
        assert!(text.contains(what), "{what} is not in: {text}");
    }
    assert_eq!(error.faults().len(), 9, "{text}");
    let blank = EnvRuntime::named(Unnamed, "  ").unwrap_err();
    assert!(blank.faults().contains(&Fault::BlankName));
    assert!(EnvRuntime::named(Unnamed, "with blank").unwrap_err().to_string().contains("`with blank_first`"));
}

#[tokio::test]
async fn hooks_see_each_call_and_may_answer_it() {
    let env = TestEnv::new(Guarded::default());
    assert_eq!(env.call("allowed", json!({"x": 1})).await.value(), 1);
    assert_eq!(env.call("forbidden", json!({})).await.value(), "answered before");
    assert_eq!(env.as_role("enemy").call("allowed", json!({})).await.error(), "no: not you");
    // The environment's own hook goes first, so the component's did not see the last one.
    assert_eq!(
        env.call("seen", json!({})).await.value(),
        json!([r#"allowed{"x":1}"#, "forbidden{}", "seen{}"])
    );
}

#[tokio::test]
async fn an_environment_starts_and_stops() {
    let env = EnvRuntime::new(Guarded::default()).unwrap();
    assert_eq!(env.version(), "1.2.3");
    assert_eq!(env.ready().unwrap_err(), "guarded has not started yet");
    env.start().await.unwrap();
    assert_eq!(env.ready(), Ok(()));
    env.stop().await.unwrap();

    let broken = EnvRuntime::new(Guarded { broken: true, ..Guarded::default() }).unwrap();
    assert_eq!(broken.start().await.unwrap_err().to_string(), "no database");
    assert_eq!(broken.ready().unwrap_err(), "guarded did not start: no database");
    assert_eq!(EnvRuntime::new(Unnamed).unwrap().ready(), Ok(()));
}

#[tokio::test]
async fn tool_access_of_its_own() {
    let env = TestEnv::new(Guarded::default());
    let names = |role| env.runtime().tools_for(role).map(|tool| tool.name.as_str()).collect::<Vec<_>>();
    let hidden = ToolSet::from_names(vec!["hidden".to_owned()]);
    assert_eq!(names(None), ["allowed", "forbidden", "seen"]);
    assert_eq!(env.call("hidden", json!({})).await.error(), "Tool 'hidden' is disabled for role 'default'");
    let view = env.runtime().apply_access(Access::Enable, "alice", &hidden).unwrap();
    assert_eq!(view.allowed, ["hidden"]);
    env.runtime()
        .apply_access(Access::Disable, "alice", &ToolSet::from_names(vec!["allowed".to_owned()]))
        .unwrap();
    assert_eq!(names(Some("alice")), ["forbidden", "hidden", "seen"]);
    assert_eq!(env.as_role("alice").call("hidden", json!({})).await.value(), 3);
    assert!(env.as_role("alice").call("allowed", json!({})).await.error().contains("for role 'alice'"));

    let disable = env.card().extension("urn:agentenv:disable-tool/v1").unwrap();
    let route = disable.method("disable").unwrap();
    assert_eq!((route.verb, route.endpoint), ("POST", "/tools/disable"));
    assert!(env.card().extension("urn:agentenv:enable-tool/v1").is_some());
    assert_eq!(TestEnv::new(Unnamed).runtime().tools_for(Some("x")).count(), 2);
}

#[test]
fn linked_environments_are_found_by_name() {
    let names: Vec<_> = linked().iter().map(|env| env.name()).collect();
    assert_eq!(names, ["Unnamed", "guarded"]);
    let env = find_linked("Unnamed").unwrap().build(Some("other")).unwrap().unwrap();
    assert_eq!(env.name(), "other");
    assert!(find_linked("without-default").is_none());
    assert!(find_linked("nope").is_none());
}
