//! Agents and harness apart: every route, with and without a token, on both listeners.

use std::collections::BTreeMap;

use agentenv_gateway::http::{Access, ServeOptions};
use agentenv_protocol::server::bind;
use anyhow::Result;
use tokio_util::sync::CancellationToken;

use crate::office::{Children, Office, client, serve};

const HARNESS: [(&str, &str); 18] = [
    ("POST", "/tools/disable"),
    ("POST", "/tools/enable"),
    ("POST", "/agentenv"),
    ("GET", "/state"),
    ("GET", "/trajectory"),
    ("GET", "/changes"),
    ("GET", "/metrics"),
    ("PUT", "/clock/set-time"),
    ("GET", "/clock/state"),
    ("POST", "/clock/clear"),
    ("POST", "/clock/advance"),
    ("POST", "/triggers/register"),
    ("POST", "/triggers/remove"),
    ("POST", "/triggers/clear"),
    ("GET", "/triggers/state"),
    ("GET", "/triggers/explain"),
    ("GET", "/svc/mcp-email/agentenv"),
    ("POST", "/svc/mcp-email/mcp"),
];

const AGENT: [(&str, &str); 3] = [("POST", "/mcp"), ("POST", "/step"), ("GET", "/clock/time")];

async fn status(url: &str, method: &str, path: &str, token: Option<&str>) -> Result<u16> {
    let mut request = client().request(method.parse()?, format!("{url}{path}"));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    Ok(request.send().await?.status().as_u16())
}

#[tokio::test]
async fn the_control_token_is_asked_on_every_route_of_the_harness() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let stop = CancellationToken::new();
    let access = Access::default().with_control_token("s3cret");
    let (url, _) = serve(&office.instance, ServeOptions { access, ..ServeOptions::default() }, &stop).await?;
    for (method, path) in HARNESS {
        for token in [None, Some("s3cre"), Some("")] {
            assert_eq!(status(&url, method, path, token).await?, 401, "{method} {path} {token:?}");
        }
        assert_ne!(status(&url, method, path, Some("s3cret")).await?, 401, "{method} {path}");
    }
    for (method, path) in AGENT {
        assert_ne!(status(&url, method, path, None).await?, 401, "{method} {path}");
    }
    stop.cancel();
    Ok(())
}

#[tokio::test]
async fn the_agents_listener_serves_nothing_of_the_harness() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let (all, some) = (bind("127.0.0.1:0").await?, bind("127.0.0.1:0").await?);
    let url = format!("http://{}", some.local_addr()?);
    let stop = CancellationToken::new();
    let (instance, end) = (office.instance.clone(), stop.clone());
    let served =
        tokio::spawn(async move { instance.serve_apart(all, some, ServeOptions::default(), end).await });
    for (method, path) in HARNESS {
        assert_eq!(status(&url, method, path, None).await?, 404, "{method} {path}");
    }
    let step = client().post(format!("{url}/step")).body(r#"{"action":"list_tools"}"#).send().await?;
    assert_eq!(step.status(), 200);
    stop.cancel();
    Ok(served.await??)
}

#[tokio::test]
async fn a_role_token_decides_the_role() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let stop = CancellationToken::new();
    let tokens = BTreeMap::from([("intern".to_owned(), "t1".to_owned())]);
    let access = Access::default().with_role_tokens(&tokens);
    let (url, _) = serve(&office.instance, ServeOptions { access, ..ServeOptions::default() }, &stop).await?;
    let whoami = r#"{"action":"call_tool","tool_name":"whoami"}"#;
    let ask = |token: Option<&str>| {
        let request = client().post(format!("{url}/step")).header("AgentEnv-Role", "manager").body(whoami);
        let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
        async move { anyhow::Ok(request.send().await?) }
    };
    assert_eq!(ask(None).await?.status(), 401);
    assert_eq!(ask(Some("t2")).await?.status(), 401);
    let said = ask(Some("t1")).await?.text().await?;
    assert!(said.contains("intern") && !said.contains("manager"), "{said}");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}"#;
    let svc = client()
        .post(format!("{url}/svc/mcp-email/mcp"))
        .header("content-type", "application/json")
        .body(call);
    assert_eq!(svc.send().await?.status(), 401, "a child's own endpoint is no way round");
    let reset = r#"{"jsonrpc":"2.0","id":1,"method":"data/reset"}"#;
    let reset = client().post(format!("{url}/svc/mcp-email/agentenv")).body(reset).send().await?;
    assert_eq!(reset.status(), 200, "the harness has no role's token");
    stop.cancel();
    Ok(())
}
