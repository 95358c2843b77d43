//! The harness's side: what it sends for what a card says, and what it makes of the answers.

use std::time::Duration;

use agentenv_protocol::card::EnvironmentCard;
use agentenv_protocol::client::{
    EnvClient, HarnessError, ToolSession, find_child, find_extension, find_extension_method, find_tool,
    mcp_path,
};
use agentenv_protocol::data::Part;
use agentenv_protocol::error::Applied;
use serde_json::{Value, json};

use crate::evil::{Evil, Seen, Step, error, json_body, polite, response, response_with, result};

fn card() -> EnvironmentCard {
    let child = json!({
        "name": "email", "url": "/svc/mcp-email/agentenv", "additionalInterfaces": [],
        "capabilities": {"extensions": [
            {"uri": "urn:x:shared/v1", "params": {"endpoint": "/svc/mcp-email/shared", "methods": {
                "plain": {}, "own": {"endpoint": "/svc/mcp-email/own", "method": "get"}, "none": {"endpoint": null}}}},
            {"uri": "urn:x:declared/v1", "params": {"limit": 5}},
        ], "tools": [{"name": "send", "inputSchema": {"type": "object"}}], "operations": []},
        "children_environments": null,
    });
    let away = |endpoint: &str| json!({"methods": {"go": {"endpoint": endpoint}}});
    let card = json!({
        "name": "office",
        "additionalInterfaces": [{"url": "/tools/mcp", "transport": "mcp"}],
        "capabilities": {"extensions": [
            {"uri": "urn:agentenv:clock/v1", "params": {"methods": {"set_time": {"endpoint": "/clock/set-time", "method": "PUT"}}}},
            {"uri": "urn:x:away/v1", "params": away("//evil.example/x")},
            {"uri": "urn:x:far/v1", "params": away("http://evil.example/x")},
        ], "operations": null},
        "children_environments": [child],
    });
    serde_json::from_value(card).unwrap()
}

fn path(seen: &Seen) -> &str {
    seen.head.split(' ').nth(1).unwrap()
}

fn client(evil: &Evil) -> EnvClient {
    EnvClient::new(&format!("http://{}/", evil.address)).unwrap()
}

/// A child that answers everything with this.
async fn always(steps: Vec<Step>) -> Evil {
    Evil::start(move |_| steps.clone()).await
}

#[test]
fn cards_are_searched() {
    let card = card();
    assert_eq!(mcp_path(&card), "/tools/mcp");
    let child = find_child(&card, "email").unwrap();
    assert_eq!(mcp_path(child), "/mcp");
    assert_eq!(find_tool(child, "send").map(|tool| tool.name.as_str()), Some("send"));
    assert!(find_tool(&card, "send").is_none() && find_child(child, "email").is_none());
    assert!(
        find_extension(child, "urn:x:declared/v1").is_some()
            && find_extension(child, "urn:x:no/v1").is_none()
    );
    for (method, found) in [
        ("plain", Some(("/svc/mcp-email/shared", "POST"))),
        ("none", Some(("/svc/mcp-email/shared", "POST"))),
        ("own", Some(("/svc/mcp-email/own", "get"))),
        ("other", None),
    ] {
        let route = find_extension_method(child, "urn:x:shared/v1", method);
        assert_eq!(route.map(|route| (route.endpoint, route.verb)), found, "{method}");
    }
}

#[tokio::test]
async fn the_card_is_fetched() {
    let evil = always(json_body(serde_json::to_vec(&card()).unwrap())).await;
    assert_eq!(client(&evil).get_card().await.unwrap(), card());
    let seen = evil.seen().remove(0);
    assert_eq!((seen.verb.as_str(), path(&seen)), ("GET", "/.well-known/agent-env.json"));
    let page = always(response("200 OK", "text/html", "<html>")).await;
    assert!(matches!(client(&page).get_card().await, Err(HarnessError::Answer { .. })));
    let missing = always(response_with("404 Not Found", "", "")).await;
    let error = client(&missing).get_card().await.unwrap_err();
    assert_eq!(error.to_string(), "404 error: Not Found");
}

#[tokio::test]
async fn the_data_plane_is_spoken_to_as_the_card_says() {
    let evil = Evil::start(|seen| match seen.method() {
        "data/get" => result(seen, r#"{"parts":[{"kind":"text","text":"hi"}]}"#),
        _ => result(seen, "{}"),
    })
    .await;
    let (office, card) = (client(&evil), card());
    let email = office.of(find_child(&card, "email").unwrap());
    office.reset_data().await.unwrap();
    email.add_data(&[Part::data(&json!({"inbox": []})).unwrap()]).await.unwrap();
    assert_eq!(email.get_data().await.unwrap(), [Part::text("hi")]);
    let seen = evil.seen();
    let asked: Vec<_> = seen.iter().map(|seen| (path(seen), seen.method())).collect();
    let child = "/svc/mcp-email/agentenv";
    assert_eq!(asked, [("/agentenv", "data/reset"), (child, "data/add"), (child, "data/get")]);
    assert_eq!(seen[1].body["params"], json!({"parts": [{"kind": "data", "data": {"inbox": []}}]}));
}

#[tokio::test]
async fn the_data_planes_errors_are_told() {
    let evil = Evil::start(|seen| {
        let error = json!({"code": -32000, "message": "no disk", "data": {"code": "reset_failed"}});
        json_body(json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error}).to_string())
    })
    .await;
    let error = client(&evil).reset_data().await.unwrap_err();
    assert_eq!(error.to_string(), "data/reset failed: no disk (-32000): reset_failed");
    let HarnessError::Rpc { failure, .. } = error else { panic!("{error:?}") };
    assert_eq!(failure.code, -32000);
    for body in [r#"{"jsonrpc":"2.0","id":1}"#, r#"{"result":null}"#, "[]", "null", ""] {
        let evil = always(json_body(body)).await;
        assert!(matches!(client(&evil).reset_data().await, Err(HarnessError::Answer { .. })), "{body}");
    }
}

#[tokio::test]
async fn extensions_are_invoked_as_the_card_says() {
    let evil = always(json_body(r#"{"ok":true}"#)).await;
    let client = client(&evil).with_role("josé").unwrap().with_bearer("secret").unwrap();
    let card = card();
    let email = find_child(&card, "email").unwrap();
    let shared = "urn:x:shared/v1";
    let answer: Value = client.invoke_extension(email, shared, "plain", &json!({"n": 1})).await.unwrap();
    assert_eq!(answer, json!({"ok": true}));
    client.invoke_extension::<_, Value>(email, shared, "plain", &()).await.unwrap();
    client.invoke_extension::<_, Value>(email, shared, "own", &json!({"q": "a b", "n": 5})).await.unwrap();
    client.invoke_extension::<_, Value>(email, shared, "own", &json!({})).await.unwrap();
    client
        .invoke_extension::<_, Value>(&card, "urn:agentenv:clock/v1", "set_time", &json!({"t": 1}))
        .await
        .unwrap();
    let seen = evil.seen();
    let asked: Vec<_> = seen.iter().map(|seen| (seen.verb.as_str(), path(seen), seen.raw.as_str())).collect();
    assert_eq!(
        asked,
        [
            ("POST", "/svc/mcp-email/shared", r#"{"n":1}"#),
            ("POST", "/svc/mcp-email/shared", "{}"),
            ("GET", "/svc/mcp-email/own?q=a+b&n=5", ""),
            ("GET", "/svc/mcp-email/own", ""),
            ("PUT", "/clock/set-time", r#"{"t":1}"#),
        ]
    );
    assert!(seen.iter().all(|seen| seen.header("agentenv-role") == Some("josé")));
    assert!(seen.iter().all(|seen| seen.header("authorization") == Some("Bearer secret")));
    assert!(!format!("{client:?}").contains("secret"));
}

#[tokio::test]
async fn what_a_card_does_not_offer_is_not_asked_for() {
    let evil = always(json_body("{}")).await;
    let (client, card) = (client(&evil), card());
    let email = find_child(&card, "email").unwrap();
    for (card, uri, method, params, words) in [
        (&card, "urn:x:no/v1", "m", json!({}), "the card of office lists no extension urn:x:no/v1"),
        (
            email,
            "urn:x:shared/v1",
            "m",
            json!({}),
            "has no method 'm' with an endpoint; it has plain, own, none",
        ),
        (email, "urn:x:declared/v1", "m", json!({}), "it has none"),
        (email, "urn:x:shared/v1", "plain", json!([1]), "must be an object"),
        (&card, "urn:x:away/v1", "go", json!({}), "begin with one slash"),
        (&card, "urn:x:far/v1", "go", json!({}), "begin with one slash"),
    ] {
        let error = client.invoke_extension::<_, Value>(card, uri, method, &params).await.unwrap_err();
        assert!(error.to_string().contains(words), "{uri} {method}: {error}");
    }
    assert!(evil.seen().is_empty());
}

#[tokio::test]
async fn refusals_carry_what_the_server_says() {
    let refused = |status: &'static str, body: &'static str| async move {
        let evil = always(response(status, "application/json", body)).await;
        let card = card();
        let email = find_child(&card, "email").unwrap();
        match client(&evil).invoke_extension::<_, Value>(email, "urn:x:shared/v1", "plain", &()).await {
            Err(HarnessError::Refused(failure)) => failure,
            other => panic!("{other:?}"),
        }
    };
    let coded = r#"{"ok":false,"error":{"code":"gone","message":"no such box","retryable":true,"applied":"no","hint":"try y"}}"#;
    let failure = refused("409 Conflict", coded).await;
    assert_eq!((failure.status, failure.code.as_deref(), failure.applied), (409, Some("gone"), Applied::No));
    assert_eq!((failure.retryable, failure.hint.as_deref()), (true, Some("try y")));
    assert_eq!(failure.to_string(), "409 gone: no such box (try y)");
    for (status, body, text) in [
        ("400 Bad Request", r#"{"ok":false,"error":"clock not armed"}"#, "400 error: clock not armed"),
        ("404 Not Found", r#"{"error":"Unknown service: x"}"#, "404 error: Unknown service: x"),
        ("502 Bad Gateway", "<html>", "502 error: Bad Gateway"),
        (
            "500 Oops",
            r#"{"error":{"applied":"perhaps","retryable":"x"}}"#,
            "500 error: Internal Server Error",
        ),
        ("307 Temporary Redirect", "", "307 error: Temporary Redirect"),
    ] {
        let failure = refused(status, body).await;
        assert_eq!(
            (failure.to_string().as_str(), failure.applied, failure.code),
            (text, Applied::Unknown, None)
        );
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_or_silent_is_told_apart() {
    let evil = Evil::start(|seen| match seen.method() {
        "data/reset" => vec![Step::Hang(Default::default())],
        _ => vec![Step::Close],
    })
    .await;
    let harness = client(&evil).with_timeout(Duration::from_secs(5));
    let error = harness.get_data().await.unwrap_err();
    assert!(error.to_string().ends_with("broke off"), "{error}");
    let waiting = tokio::spawn({
        let harness = harness.clone();
        async move { harness.reset_data().await }
    });
    evil.asked("data/reset", 1).await;
    tokio::time::pause();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.to_string().ends_with("did not answer in time"), "{error}");
    tokio::time::resume();
    drop(evil);
    tokio::task::yield_now().await;
    let error = harness.get_card().await.unwrap_err();
    assert!(error.to_string().contains("/.well-known/agent-env.json at 127.0.0.1"), "{error}");
    assert!(error.to_string().ends_with("cannot be connected to"), "{error}");
}

#[test]
fn addresses_that_are_none_are_refused() {
    for base in ["", "email:18765", "/x", "ftp://x", "http://", "http://x?y=1", "http://x#y"] {
        assert!(matches!(EnvClient::new(base), Err(HarnessError::Address { .. })), "{base}");
    }
    assert!(matches!(
        EnvClient::new("http://x").unwrap().with_role("a\nb"),
        Err(HarnessError::Header { .. })
    ));
}

#[tokio::test]
async fn a_tool_session_lists_calls_and_closes() {
    let evil = Evil::start(|seen| match (seen.method(), seen.body["params"]["name"].as_str()) {
        ("tools/list", _) => result(seen, r#"{"tools":[{"name":"send","inputSchema":{"type":"object"},"title":"x"}]}"#),
        ("tools/call", Some("send")) => result(
            seen,
            r#"{"content":[{"type":"text","text":"{\"sent\":1}"},{"type":"image"},{"type":"text","text":""}],"structuredContent":{"sent":1}}"#,
        ),
        ("tools/call", Some("text")) => result(seen, r#"{"content":[{"type":"text","text":"[1, 2]"}]}"#),
        ("tools/call", Some("fail")) => result(seen, r#"{"content":[{"type":"text","text":"boom"}],"isError":true}"#),
        ("tools/call", Some("error")) => json_body(error(seen, -32603, "broken")),
        ("tools/call", Some("odd")) => result(seen, r#"{"content":5}"#),
        _ => polite(seen),
    })
    .await;
    let session = ToolSession::open(&format!("http://{}/mcp", evil.address), Some("bob")).await.unwrap();
    let tools = session.list().await.unwrap();
    assert_eq!(tools[0].name, "send");
    let reply = session.call("send", &json!({"to": "x"})).await.unwrap();
    assert_eq!((reply.is_error(), reply.text().as_str()), (false, "{\"sent\":1}\n"));
    assert_eq!(reply.structured(), Some(&json!({"sent": 1})));
    assert_eq!(reply.parse::<Value>().unwrap(), json!({"sent": 1}));
    assert!(reply.reconnected.is_none());
    assert_eq!(session.call("text", &()).await.unwrap().parse::<Vec<u8>>().unwrap(), [1, 2]);
    assert!(session.call("fail", &json!({})).await.unwrap().is_error());
    assert!(matches!(session.call("error", &json!({})).await, Err(HarnessError::Tools(_))));
    assert!(matches!(session.call("odd", &json!({})).await, Err(HarnessError::Answer { .. })));
    assert!(matches!(session.call("send", &json!([1])).await, Err(HarnessError::ParamsNotAnObject { .. })));
    session.close().await;
    assert_eq!(evil.seen().pop().unwrap().verb, "DELETE");
    assert!(evil.seen().iter().all(|seen| seen.header("agentenv-role") == Some("bob")));
    assert!(matches!(ToolSession::open("https://x/mcp", None).await, Err(HarnessError::ToolAddress { .. })));
}

#[tokio::test]
async fn a_tool_session_is_where_the_card_says() {
    let evil = Evil::start(polite).await;
    let session = client(&evil).with_role("bob").unwrap().open_tools(&card()).await.unwrap();
    session.call("t", &()).await.unwrap();
    assert!(
        evil.seen()
            .iter()
            .all(|seen| path(seen) == "/tools/mcp" && seen.header("agentenv-role") == Some("bob"))
    );
}
