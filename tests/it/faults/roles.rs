//! Who a caller is, however it spells it, on every path by which a call can come.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Answer, MCP, send, session};
use crate::office::{Children, Office};

/// A call of `whoami` by `/step`, by `/mcp`, and by the child's own endpoint, with these header lines.
async fn whoami(office: &Office, id: &str, fields: &str) -> Result<[Answer; 3]> {
    let step = br#"{"action":"call_tool","tool_name":"whoami"}"#;
    let call = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}"#;
    let mcp = format!("{MCP}Mcp-Session-Id: {id}\r\n{fields}");
    Ok([
        send(&office.url, "POST", "/step", fields, step).await?,
        send(&office.url, "POST", "/mcp", &mcp, call).await?,
        send(&office.url, "POST", "/svc/mcp-email/mcp", &mcp, call).await?,
    ])
}

/// The role that the child saw.
fn role(answer: &Answer) -> Value {
    let said = answer.json();
    let result = said.get("result").unwrap_or(&said);
    result["structuredContent"]["role"].clone()
}

#[tokio::test]
async fn every_path_reads_a_role_alike() -> Result<()> {
    let long = "r".repeat(256);
    let longer = "r".repeat(257);
    for children in [Children::InProcess, Children::Remote] {
        let office = Office::open(children).await?;
        let id = session(&office.url, "").await?;
        for (value, seen) in [
            ("", None),
            ("  ", None),
            ("default", None),
            ("bob", Some("bob")),
            (" bob\t", Some("bob")),
            ("josé", Some("josé")),
            ("日本", Some("日本")),
            ("a, b", Some("a, b")),
            (&long, Some(&*long)),
        ] {
            for answer in whoami(&office, &id, &format!("AgentEnv-Role: {value}\r\n")).await? {
                assert_eq!((answer.status, role(&answer)), (200, json!(seen)), "{value:?}: {answer:?}");
            }
        }
        for fields in [
            "AgentEnv-Role: *\r\n".to_owned(),
            "AgentEnv-Role: a\r\nagentenv-role: b\r\n".to_owned(),
            format!("AgentEnv-Role: {longer}\r\n"),
        ] {
            for answer in whoami(&office, &id, &fields).await? {
                assert_eq!(answer.status, 400, "{fields}: {answer:?}");
            }
        }
        let calls = office.events().await?;
        assert!(calls.iter().all(|event| event["event_type"] != "tool_call_failed"), "{calls:?}");
    }
    Ok(())
}

#[tokio::test]
async fn bytes_that_are_no_text_are_no_role() -> Result<()> {
    let office = Office::open(Children::Remote).await?;
    let id = session(&office.url, "").await?;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}"#;
    let step = r#"{"action":"call_tool","tool_name":"whoami"}"#;
    for (path, body) in
        [("/step", step), ("/mcp", call), ("/svc/mcp-email/mcp", call), ("/svc/mcp-email/ready", "")]
    {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n{MCP}Mcp-Session-Id: {id}\r\n");
        let head = format!("{head}Content-Length: {}\r\n", body.len());
        let bytes = [head.as_bytes(), b"AgentEnv-Role: jos\xe9\r\n\r\n", body.as_bytes()].concat();
        assert_eq!(super::raw(&office.url, &bytes).await?.status, 400, "{path}");
    }
    assert!(office.events().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_rule_for_a_role_is_a_rule_on_every_path() -> Result<()> {
    for children in [Children::InProcess, Children::Remote] {
        let office = Office::open(children).await?;
        let id = session(&office.url, "").await?;
        for role in ["bob", "josé"] {
            let rule = json!({"role": role, "tools": ["whoami"]});
            assert_eq!(office.post("/tools/disable", rule).await?.0, 200);
            let text = format!("Tool 'whoami' is disabled for role '{role}'");
            for spelled in ["AgentEnv-Role", "agentenv-role", "AGENTENV-ROLE"] {
                let [step, mcp, svc] = whoami(&office, &id, &format!("{spelled}: {role}\r\n")).await?;
                assert_eq!((step.status, &step.json()["error"]), (403, &json!(text)));
                for answer in [mcp, svc] {
                    let result = &answer.json()["result"];
                    assert_eq!(
                        (&result["isError"], &result["content"][0]["text"]),
                        (&json!(true), &json!(text))
                    );
                }
            }
        }
        assert!(office.events().await?.is_empty(), "refused calls leave no event");
        // Nor is there another way to write a call of it.
        let fields = format!("{MCP}Mcp-Session-Id: {id}\r\nAgentEnv-Role: bob\r\n");
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}"#;
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let twice =
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"whoami"}}"#;
        let bodies: [Vec<u8>; 5] = [
            format!("[{call}]").into(),
            format!("[{ping},{call}]").into(),
            twice.into(),
            call.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            [b"\x1f\x8b", call.as_bytes()].concat(),
        ];
        for path in
            ["/svc/mcp-email/mcp", "/svc/mcp-email/mcp/", "/svc/mcp-email/%6dcp", "/svc/mcp-email/./mcp"]
        {
            for body in &bodies {
                let answer = send(&office.url, "POST", path, &fields, body).await?;
                assert_eq!(answer.status, 400, "{path}: {answer:?}");
            }
            let marked = [b"\xef\xbb\xbf", call.as_bytes()].concat();
            for body in [call.as_bytes(), &marked] {
                let answer = send(&office.url, "POST", path, &fields, body).await?;
                let refused = answer.status == 400 || answer.json()["result"]["isError"] == true;
                assert!(refused, "{path}: {answer:?}");
            }
            let zipped = format!("{fields}Content-Encoding: gzip\r\n");
            assert!(send(&office.url, "POST", path, &zipped, call.as_bytes()).await?.status >= 400, "{path}");
        }
        assert!(office.events().await?.is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn no_spelling_of_the_role_header_passes_upstream() -> Result<()> {
    let office = Office::open(Children::Remote).await?;
    let id = session(&office.url, "").await?;
    for other in ["AgentEnv_Role", "agentenv.role", "X-AgentEnv-Role", "AGENTENV_ROLE"] {
        for answer in whoami(&office, &id, &format!("{other}: boss\r\nAgentEnv-Role: bob\r\n")).await? {
            assert_eq!((answer.status, role(&answer)), (200, json!("bob")), "{other}: {answer:?}");
        }
        for answer in whoami(&office, &id, &format!("{other}: boss\r\n")).await? {
            assert_eq!((answer.status, role(&answer)), (200, Value::Null), "{other}: {answer:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn each_request_of_a_session_has_its_own_role() -> Result<()> {
    let office = Office::open(Children::Remote).await?;
    let id = session(&office.url, "AgentEnv-Role: bob\r\n").await?;
    for answer in whoami(&office, &id, "AgentEnv-Role: alice\r\n").await? {
        assert_eq!(role(&answer), "alice");
    }
    Ok(())
}

#[tokio::test]
async fn a_body_that_names_an_identity_is_not_believed() -> Result<()> {
    let office = Office::open(Children::Remote).await?;
    let id = session(&office.url, "").await?;
    let fields = format!("{MCP}Mcp-Session-Id: {id}\r\nAgentEnv-Role: bob\r\n");
    let meta =
        r#"{"agentenv.io/role":"boss","agentenv.io/session":"s","agentenv\u002eio/role":"boss","x":1}"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"whoami","_meta":{meta}}}}}"#
    );
    for path in ["/mcp", "/svc/mcp-email/mcp"] {
        let answer = send(&office.url, "POST", path, &fields, call.as_bytes()).await?;
        assert_eq!(role(&answer), "bob", "{path}: {answer:?}");
        let session = &answer.json()["result"]["structuredContent"]["session"];
        assert!(session.is_string() && session != "s", "{path}: {session}");
    }
    Ok(())
}

#[tokio::test]
async fn many_roles_in_headers_leave_nothing_behind() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    for role in 0..2_000 {
        let role = format!("role-{role}");
        office.post_as(Some(&role), "/step", json!({"action": "call_tool", "tool_name": "nope"})).await?;
    }
    assert_eq!(office.get("/state").await?["roles"], json!({}));
    let metrics = office.http.get(format!("{}/metrics", office.url)).send().await?.text().await?;
    let rows = metrics.lines().filter(|line| line.contains("role-")).count();
    assert!(rows < 64, "{rows} roles are counted by name");
    Ok(())
}
