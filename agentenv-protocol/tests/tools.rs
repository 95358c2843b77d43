//! Calling tools: what they are given, what they answer, and what goes wrong (contract 2.3, 2.5).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agentenv_protocol::context::{Caller, Notification};
use agentenv_protocol::environment::CallRequest;
use agentenv_protocol::prelude::*;
use agentenv_protocol::testing::TestEnv;

#[derive(Default)]
struct Shared {
    started: AtomicU32,
    finished: AtomicU32,
}

#[environment_card(name = "tools")]
#[derive(Default)]
struct ToolsEnv {
    shared: Arc<Shared>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Point {
    x: i64,
    y: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot save")]
struct SaveError(#[source] std::io::Error);

type AliasResult<T> = Result<T, SaveError>;

#[environment]
impl ToolsEnv {
    #[tool]
    fn nothing(&self) {}

    #[tool]
    fn text(&self) -> &'static str {
        "h\u{e9}\"llo"
    }

    #[tool]
    fn number(&self) -> u64 {
        5
    }

    #[tool]
    fn list(&self) -> Vec<Point> {
        vec![Point { x: 1, y: None }]
    }

    #[tool]
    fn object(&self) -> Point {
        Point { x: 1, y: None }
    }

    #[tool]
    fn image(&self) -> Content {
        Content::image([1, 2, 3], "image/png")
    }

    #[tool]
    async fn blocks(&self) -> Result<Vec<Content>, ToolError> {
        Ok(vec![Content::text("a"), Content::link("test://a", "a").with_description("see")])
    }

    #[tool]
    fn result(&self) -> ToolResult {
        ToolResult::structured([Content::text("summary")], &Point { x: 1, y: Some(2) }).unwrap()
    }

    #[tool]
    fn not_json(&self) -> std::collections::BTreeMap<(i32, i32), i32> {
        [((1, 2), 3)].into()
    }

    #[tool]
    fn coded(&self) -> anyhow::Result<()> {
        Err(ToolError::new("gone", "no mailbox").with_hint("try y"))?;
        Ok(())
    }

    #[tool]
    fn with_causes(&self) -> AliasResult<()> {
        Err(SaveError(std::io::Error::other("disk full")))
    }

    #[tool]
    fn words(&self) -> Result<u8, String> {
        Err("boom".to_owned())
    }

    #[tool]
    async fn panics(&self, after_await: bool) {
        if after_await {
            tokio::task::yield_now().await;
        }
        panic!("no luck");
    }

    #[tool]
    fn takes(&self, point: Point, count: u8, mode: Option<String>, ratio: f64) -> Value {
        json!({"x": point.x, "count": count, "mode": mode, "ratio": ratio})
    }

    #[tool]
    fn echo(&self, value: Value) -> Value {
        value
    }

    #[tool]
    async fn who(&self, before: Option<i64>, call: &ToolContext, after: Option<i64>) -> Value {
        json!({
            "role": call.caller.role, "session": call.caller.session, "tool": &*call.tool,
            "arguments": call.arguments.get(), "id": call.call_id.len(), "before": before, "after": after,
        })
    }

    #[tool]
    async fn tells(&self, call: ToolContext) {
        call.progress(1.0, Some(2.0), "half".to_owned());
        call.log(LogLevel::Warning, "careful");
    }

    #[tool]
    async fn slow(&self) {
        self.shared.started.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        self.shared.finished.fetch_add(1, Ordering::SeqCst);
    }

    #[tool]
    fn without_self() -> &'static str {
        "here"
    }
}

async fn raw(tool: &str) -> String {
    TestEnv::new(ToolsEnv::default()).call(tool, json!({})).await.result().to_string()
}

#[tokio::test]
async fn values_are_text_and_objects_are_structured_too() {
    let text =
        |text: &str| format!(r#"{{"content":[{{"type":"text","text":{}}}],"isError":false}}"#, json!(text));
    assert_eq!(raw("text").await, text("h\u{e9}\"llo"));
    assert_eq!(raw("number").await, text("5"));
    assert_eq!(raw("list").await, text(r#"[{"x":1,"y":null}]"#));
    assert_eq!(raw("without_self").await, text("here"));
    assert_eq!(
        raw("object").await,
        r#"{"content":[{"type":"text","text":"{\"x\":1,\"y\":null}"}],"structuredContent":{"x":1,"y":null},"isError":false}"#
    );
    assert_eq!(
        raw("nothing").await,
        r#"{"content":[{"type":"text","text":"{}"}],"structuredContent":{},"isError":false}"#
    );
}

#[tokio::test]
async fn content_is_passed_as_it_is() {
    assert_eq!(
        raw("image").await,
        r#"{"content":[{"type":"image","data":"AQID","mimeType":"image/png"}],"isError":false}"#
    );
    assert_eq!(
        raw("blocks").await,
        concat!(
            r#"{"content":[{"type":"text","text":"a"},"#,
            r#"{"type":"resource_link","uri":"test://a","name":"a","description":"see"}],"isError":false}"#
        )
    );
    assert_eq!(
        raw("result").await,
        r#"{"content":[{"type":"text","text":"summary"}],"structuredContent":{"x":1,"y":2},"isError":false}"#
    );
}

#[tokio::test]
async fn failures_are_error_results() {
    let env = TestEnv::new(ToolsEnv::default());
    let coded = env.call("coded", json!({})).await;
    assert_eq!(coded.error(), "gone: no mailbox");
    assert_eq!(
        coded.result()["structuredContent"],
        json!({"code": "gone", "message": "no mailbox", "retryable": false, "applied": "no", "hint": "try y"})
    );
    assert_eq!(env.call("with_causes", json!({})).await.error(), "cannot save: disk full");
    assert_eq!(env.call("words", json!({})).await.error(), "boom");
    assert_eq!(env.call("words", json!({})).await.result().get("structuredContent"), None);
    assert!(env.call("not_json", json!({})).await.error().contains("cannot be written as JSON"));
    assert_eq!(env.call("nope", json!({})).await.error(), "Unknown tool: nope");
}

#[tokio::test]
async fn a_panic_fails_its_own_call_only() {
    let env = TestEnv::new(ToolsEnv::default());
    for after_await in [false, true] {
        assert_eq!(
            env.call("panics", json!({"after_await": after_await})).await.error(),
            "internal error: the handler panicked"
        );
        assert_eq!(env.call("number", json!({})).await.value(), 5);
    }
}

#[tokio::test]
async fn every_fault_of_the_arguments_is_told_at_once() {
    let env = TestEnv::new(ToolsEnv::default());
    let refused = env.call("takes", json!({"count": 300, "mode": 5, "ratio": "x"})).await;
    assert_eq!(
        refused.result()["structuredContent"]["message"],
        concat!(
            "`point` is missing, expected an object; `count`: integer `300`, expected an integer from 0 to 255; ",
            "`mode`: integer `5`, expected a string; `ratio`: string \"x\", expected a number"
        )
    );
    assert_eq!(refused.result()["structuredContent"]["code"], "invalid_params");
    let refused = env.call("takes", json!({"point": {"y": 1}, "count": 1, "ratio": 1})).await;
    assert!(refused.error().contains("`point`: missing field `x`"), "{}", refused.error());
    for odd in [json!([1]), json!("x"), json!(5)] {
        assert!(env.call("takes", odd).await.error().contains("arguments must be a JSON object"));
    }
}

#[tokio::test]
async fn arguments_that_fit_are_taken() {
    let env = TestEnv::new(ToolsEnv::default());
    let sent = json!({"point": {"x": 3}, "count": 5.0, "mode": null, "ratio": 2, "unknown": true});
    assert_eq!(
        env.call("takes", sent).await.value(),
        json!({"x": 3, "count": 5, "mode": null, "ratio": 2.0})
    );
    // Text that looks like JSON is text.
    assert_eq!(env.call("echo", json!({"value": "[1, 2]"})).await.text(), "[1, 2]");
    assert!(env.call("takes", json!({"point": "{\"x\": 1}", "count": 1, "ratio": 1})).await.is_error());
}

#[tokio::test]
async fn arguments_may_be_deep_or_missing_and_not_repeated() {
    let env = TestEnv::new(ToolsEnv::default()).runtime().clone();
    let call = async |tool: &str, arguments: Option<String>| {
        let arguments = arguments.map(|text| serde_json::value::RawValue::from_string(text).unwrap());
        env.call_tool(CallRequest::new(tool, arguments.as_deref())).await
    };
    let deep = |levels: usize| Some(format!(r#"{{"value":{}{}}}"#, "[".repeat(levels), "]".repeat(levels)));
    assert!(!call("echo", deep(200)).await.is_error());
    assert!(call("echo", deep(300)).await.is_error());
    assert!(!call("number", None).await.is_error());
    assert!(!call("number", Some("null".to_owned())).await.is_error());
    let twice = call("echo", Some(r#"{"value":1,"v\u0061lue":2}"#.to_owned())).await;
    assert!(twice.raw().as_str().contains("`value` is given twice"), "{}", twice.raw().as_str());
}

#[tokio::test]
async fn a_tool_knows_who_calls() {
    let env = TestEnv::new(ToolsEnv::default());
    let who =
        env.as_role("alice").in_session("s-1").call("who", json!({"before": 1, "other": 2})).await.value();
    assert_eq!(
        who,
        json!({
            "role": "alice", "session": "s-1", "tool": "who", "arguments": r#"{"before":1,"other":2}"#, "id": 32,
            "before": 1, "after": null,
        })
    );
    assert_eq!(env.as_role("default").call("who", json!({})).await.value()["role"], Value::Null);
    let properties = &env.card().tool("who").unwrap().input_schema["properties"];
    assert_eq!(properties.as_object().unwrap().keys().collect::<Vec<_>>(), ["before", "after"]);
}

#[tokio::test]
async fn a_tool_tells_before_it_answers() {
    let called = TestEnv::new(ToolsEnv::default()).call("tells", json!({})).await;
    let progress =
        Notification::Progress { progress: 1.0, total: Some(2.0), message: Some("half".to_owned()) };
    assert_eq!(called.notifications()[0], progress);
    assert!(matches!(&called.notifications()[1], Notification::Log { level: LogLevel::Warning, .. }));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_cut() {
    let shared = Arc::new(Shared::default());
    let env = TestEnv::new(ToolsEnv { shared: shared.clone() }).runtime().clone();
    let request = CallRequest::new("slow", None);
    let cancel = request.cancel.clone();
    let call = tokio::spawn(async move { env.call_tool(request).await });
    while shared.started.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    let answer = call.await.unwrap();
    assert!(answer.is_error() && answer.raw().as_str().contains("cancelled"));
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert_eq!(shared.finished.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn calls_run_side_by_side_and_instances_share_nothing() {
    let first = TestEnv::new(ToolsEnv::default());
    let second = TestEnv::new(ToolsEnv::default());
    let slow = first.call("slow", json!({}));
    tokio::pin!(slow);
    assert!(futures_util::poll!(&mut slow).is_pending());
    assert_eq!(first.call("number", json!({})).await.value(), 5);
    assert_eq!(second.call("number", json!({})).await.value(), 5);
    let caller = Caller::new(Some("x"), None);
    assert_eq!(caller.role_or_default(), "x");
}
