//! Extensions: on the card, and called (contract 2.1, 2.4).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use agentenv_protocol::context::Caller;
use agentenv_protocol::environment::{EnvRuntime, ExtensionInput};
use agentenv_protocol::prelude::*;
use agentenv_protocol::testing::TestEnv;

#[environment_card(
    name = "extended",
    extension(
        uri = "urn:example:declared/v1",
        description = "Only declared.",
        required = true,
        params = { "features": ["a", "b"] },
    ),
    extension(uri = "urn:example:bare/v1")
)]
struct Extended;

#[environment]
impl Extended {
    /// Docs that a description goes before.
    #[extension(uri = "urn:example:mailbox/v1", description = "Mailbox size limits.", params = { "limits": {"max": 9} })]
    async fn set_limit(&self, limit: i64, #[arg(default = "hard")] mode: String) -> Value {
        json!({"limit": limit, "mode": mode})
    }

    #[extension(uri = "urn:example:stats/v1", method = "GET")]
    fn stats(
        &self,
        n: i64,
        #[arg(default = false)] flag: bool,
        when: Option<DateTime>,
        text: Option<String>,
        ratio: Option<f64>,
        #[arg(default)] list: Vec<i64>,
    ) -> Value {
        json!({"n": n, "flag": flag, "when": when, "text": text, "ratio": ratio, "list": list})
    }

    #[extension(uri = "urn:agentenv:things/v1", op = "one")]
    fn first_thing(&self) {}

    /// The second.
    #[extension(
        uri = "urn:agentenv:things/v1",
        op = "two",
        method = "PUT",
        path = "/things/two",
        required = false
    )]
    fn second_thing(&self, call: &ToolContext) -> Value {
        json!({"role": call.caller.role, "tool": &*call.tool, "arguments": call.arguments.get()})
    }

    #[extension(uri = "urn:example:fails/v1")]
    fn fails(&self, how: String) -> Result<Option<u8>, ToolError> {
        match how.as_str() {
            "coded" => Err(ToolError::new("teapot", "short and stout").with_status(418)),
            "null" => Ok(None),
            _ => panic!("boom"),
        }
    }

    #[extension(uri = "urn:example:plain/v1")]
    fn plain(&self) -> Result<(), String> {
        Err("boom".to_owned())
    }
}

fn card() -> Value {
    serde_json::from_slice(EnvRuntime::new(Extended).unwrap().card_json()).unwrap()
}

fn on_card(uri: &str) -> Value {
    let card = card();
    let extensions = card["capabilities"]["extensions"].as_array().unwrap();
    extensions.iter().find(|extension| extension["uri"] == uri).unwrap().clone()
}

async fn get(query: &str) -> Result<Value, ToolError> {
    let env = EnvRuntime::new(Extended).unwrap();
    let index = env.extension_routes().iter().position(|route| route.method == "stats").unwrap();
    let answer = env.invoke_extension(index, ExtensionInput::Query(query), Caller::default()).await?;
    Ok(serde_json::from_str(answer.get()).unwrap())
}

#[test]
fn a_method_of_its_own() {
    assert_eq!(
        on_card("urn:example:mailbox/v1").to_string(),
        concat!(
            r#"{"uri":"urn:example:mailbox/v1","description":"Mailbox size limits.","params":{"#,
            r#""endpoint":"/agentenv/ext/set_limit","methods":{"set_limit":{"method":"POST","request":"#,
            r#"{"type":"object","properties":{"limit":{"type":"integer"},"mode":{"type":"string","default":"hard"}},"#,
            r#""required":["limit"]}}},"limits":{"max":9}},"required":null}"#
        )
    );
}

#[test]
fn methods_by_op() {
    assert_eq!(
        on_card("urn:agentenv:things/v1").to_string(),
        concat!(
            r#"{"uri":"urn:agentenv:things/v1","description":"The second.","params":{"methods":{"#,
            r#""one":{"method":"POST","endpoint":"/agentenv/ext/things/one","request":{"type":"object","properties":{}}},"#,
            r#""two":{"method":"PUT","endpoint":"/things/two","request":{"type":"object","properties":{}}}}},"#,
            r#""required":false}"#
        )
    );
}

#[test]
fn declared_without_a_handler() {
    assert_eq!(
        on_card("urn:example:declared/v1"),
        json!({
            "uri": "urn:example:declared/v1", "description": "Only declared.",
            "params": {"features": ["a", "b"]}, "required": true,
        })
    );
    assert_eq!(
        on_card("urn:example:bare/v1"),
        json!({"uri": "urn:example:bare/v1", "description": null, "params": null, "required": null})
    );
}

#[tokio::test]
async fn query_parameters_are_converted() {
    let all =
        get("n=5&flag=true&when=2026-10-05T11:00:00%2B02:00&text=7&ratio=2&list=1&list=2").await.unwrap();
    assert_eq!(
        all,
        json!({"n": 5, "flag": true, "when": "2026-10-05T09:00:00Z", "text": "7", "ratio": 2.0, "list": [1, 2]})
    );
    assert_eq!(get("n=5&flag=1&list=3").await.unwrap()["list"], json!([3]));
    assert_eq!(get("n=5&flag=0&list=%5B4,5%5D").await.unwrap()["list"], json!([4, 5]));
    for (query, named) in [
        ("", "`n` is missing"),
        ("n=", "`n`"),
        ("n=x", "`n`"),
        ("n=1&n=2", "`n`"),
        ("n=1&flag=maybe", "`flag`"),
        ("n=1&when=noon", "`when`"),
        ("n=1&list=a&list=1", "`list`"),
        ("n=1&zzz=2", "`zzz` is not a parameter"),
    ] {
        let error = get(query).await.unwrap_err();
        assert_eq!((&*error.code, error.status), ("invalid_params", Some(400)), "{query}");
        assert!(error.message.contains(named), "{query}: {}", error.message);
    }
}

#[tokio::test]
async fn body_parameters_are_converted() {
    let env = TestEnv::new(Extended);
    let set = async |body: Value| env.extension("urn:example:mailbox/v1", "set_limit", body).await;
    assert_eq!(set(json!({"limit": 5})).await.unwrap(), json!({"limit": 5, "mode": "hard"}));
    assert_eq!(set(json!({"limit": "5", "mode": "x"})).await.unwrap(), json!({"limit": 5, "mode": "x"}));
    for body in [
        json!({}),
        json!({"limit": "x"}),
        json!({"limit": 1, "z": 2}),
        json!([1]),
        json!({"limit": 1, "mode": 5}),
    ] {
        let error = set(body).await.unwrap_err();
        assert_eq!((&*error.code, error.status, error.retryable), ("invalid_params", Some(400), false));
    }
}

#[tokio::test]
async fn answers_and_failures() {
    let env = TestEnv::new(Extended).as_role("bob");
    let fails = async |how: &str| env.extension("urn:example:fails/v1", "fails", json!({"how": how})).await;
    assert_eq!(env.extension("urn:agentenv:things/v1", "one", json!({})).await.unwrap(), json!({}));
    assert_eq!(fails("null").await.unwrap(), json!({}));
    let two = env.extension("urn:agentenv:things/v1", "two", json!({})).await.unwrap();
    assert_eq!(two, json!({"role": "bob", "tool": "second_thing", "arguments": "{}"}));

    let coded = fails("coded").await.unwrap_err();
    assert_eq!((&*coded.code, coded.status), ("teapot", Some(418)));
    for plain in [
        fails("panic").await.unwrap_err(),
        env.extension("urn:example:plain/v1", "plain", json!({})).await.unwrap_err(),
    ] {
        assert_eq!(
            (&*plain.code, plain.status, plain.applied),
            ("extension_failed", Some(500), Applied::Unknown)
        );
        assert!(
            ["boom", "internal error: the handler panicked"].contains(&&*plain.message),
            "{}",
            plain.message
        );
    }
}
