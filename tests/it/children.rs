//! Children in this process and behind URLs: the same to whoever calls them, and nothing changed on the way.

use agentenv_gateway::Instance;
use agentenv_gateway::http::ServeOptions;
use agentenv_tests::echo::EchoEnv;
use anyhow::Result;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::office::{Children, Office, Session, serve, serve_env};

#[tokio::test]
async fn both_kinds_of_child_list_and_answer_alike() -> Result<()> {
    let (near, far) = (Office::open(Children::InProcess).await?, Office::open(Children::Remote).await?);
    let (a, b) = (near.mcp(Some("assistant")).await?, far.mcp(Some("assistant")).await?);
    assert_eq!(a.raw("tools/list", "{}").await?, b.raw("tools/list", "{}").await?);
    for params in [
        r#"{"name":"send","arguments":{"to":"a","subject":"[1, 2]","body":"{\"x\": 1}"}}"#,
        r#"{"name":"send","arguments":{"to":5,"subject":"b"}}"#,
        r#"{"name":"email_search","arguments":{"query":"x"}}"#,
        r#"{"name":"fail","arguments":{"how":"coded"}}"#,
        r#"{"name":"fail","arguments":{"how":"plain"}}"#,
        r#"{"name":"fail","arguments":{"how":"panic"}}"#,
        r#"{"name":"nope","arguments":{}}"#,
        r#"{"name":"slow","arguments":{"seconds":-1}}"#,
        r#"{"name":"contacts_add","arguments":{"name":"a","email":"b","unknown":true}}"#,
    ] {
        assert_eq!(a.raw("tools/call", params).await?, b.raw("tools/call", params).await?, "{params}");
    }
    let whoami = json!({"role": "assistant"});
    for session in [&a, &b] {
        let said: Value = serde_json::from_str(
            session.call("whoami", json!({})).await?["content"][0]["text"].as_str().unwrap(),
        )?;
        assert_eq!(said["role"], whoami["role"]);
        assert!(said["session"].is_string(), "{said}");
    }
    let cards =
        (near.get("/.well-known/agent-env.json").await?, far.get("/.well-known/agent-env.json").await?);
    assert_eq!(cards.0, cards.1);
    Ok(())
}

#[tokio::test]
async fn arguments_reach_a_remote_child_as_they_were_sent() -> Result<()> {
    let stop = CancellationToken::new();
    let echo = serve_env(EchoEnv, &stop).await?;
    let instance = Instance::builder("echoes").remote("echo", &echo).build().await?;
    let (url, _) = serve(&instance, ServeOptions::default(), &stop).await?;
    let session = Session::open(&url, "/mcp", None).await?;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for arguments in [
        r#"{"big":123456789012345678901234567890,"minus":-0,"one":1.0,"e":1e2}"#.to_owned(),
        format!(r#"{{"deep":{deep}}}"#),
        r#"{"text":"[1, 2]","null":null,"model_config":1,"_id":"x","$ref":"y","a.b":"z","class":"\u0000é"}"#
            .to_owned(),
        "{}".to_owned(),
    ] {
        let params = format!(r#"{{"name":"echo","arguments":{arguments}}}"#);
        let answer: Value = serde_json::from_str(&session.raw("tools/call", &params).await?)?;
        assert_eq!(answer["result"]["content"][0]["text"], arguments);
    }
    stop.cancel();
    Ok(())
}

#[tokio::test]
async fn a_panic_is_that_calls_error_alone() -> Result<()> {
    let stop = CancellationToken::new();
    let echo = serve_env(EchoEnv, &stop).await?;
    let session = Session::open(&echo, "/mcp", None).await?;
    let result = session.call("explode", json!({})).await?;
    assert_eq!(result["isError"], true);
    assert!(!result.to_string().contains("secret"), "{result}");
    assert_eq!(session.call("echo", json!({})).await?["content"][0]["text"], "{}");
    stop.cancel();
    Ok(())
}

#[tokio::test]
async fn a_name_that_two_children_serve_takes_every_tool_away() -> Result<()> {
    let instance =
        Instance::builder("twice").env_named("one", EchoEnv).env_named("two", EchoEnv).build().await?;
    let stop = CancellationToken::new();
    let (url, _) = serve(&instance, ServeOptions::default(), &stop).await?;
    let http = crate::office::client();
    let state: Value = serde_json::from_str(&http.get(format!("{url}/state")).send().await?.text().await?)?;
    assert_eq!(state["tool_name_clashes"]["echo"], json!(["one", "two"]));
    let step = http.post(format!("{url}/step")).body(r#"{"action":"list_tools"}"#).send().await?;
    assert_eq!(step.status(), 503);
    assert!(step.text().await?.contains("echo"));
    assert!(Session::open(&url, "/mcp", None).await?.names().await?.is_empty());
    stop.cancel();
    Ok(())
}

#[tokio::test]
async fn the_data_plane_of_an_instance() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    office.seed("email", json!({"inbox": [{"subject": "a", "body": "b"}]})).await?;
    let rpc = async |params: Value, method: &str| -> Result<Value> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Ok(office.post("/agentenv", body).await?.1)
    };
    assert_eq!(rpc(json!({}), "data/get").await?["error"]["code"], -32000);
    assert_eq!(rpc(json!({"environment": "nope"}), "data/get").await?["error"]["code"], -32602);
    let inbox = async || rpc(json!({"environment": "email"}), "data/get").await;
    assert_eq!(inbox().await?["result"]["parts"][0]["data"]["inbox"][0]["subject"], "a");
    let reset = rpc(json!({"environment": "*"}), "data/reset").await?;
    assert_eq!(reset["result"]["environments"]["mcp-email"], json!({"ok": true}));
    assert_eq!(inbox().await?["result"]["parts"][0]["data"]["inbox"], json!([]));
    Ok(())
}
