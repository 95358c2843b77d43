//! The company as a whole: what is linked, that each server's data comes back as it went in, and a morning's work.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use agentenv_gateway::Instance;
use agentenv_gateway::call::{DEFAULT_ROLE, ToolCall};
use agentenv_gateway::launch::file::InstanceFile;
use agentenv_protocol::client::EnvClient;
use agentenv_protocol::prelude::*;
use agentenv_protocol::testing::TestEnv;
use anyhow::{Context, Result};
use serde_json::value::to_raw_value;

#[tokio::test]
async fn sixteen_servers_and_twenty_six_tools() -> Result<()> {
    assert_eq!(company::names().len(), 16);
    let company = company::open().await?;
    let mut tools = company.tool_names(DEFAULT_ROLE);
    tools.sort();
    let names = "calendar_book calendar_list chat_post chat_read contacts_add contacts_lookup email_search \
                 exchange_convert expenses_approve expenses_submit files_read files_write glossary_define \
                 holidays_next news_read payroll_salary rooms_find send tickets_close tickets_list tickets_open \
                 warehouse_stock warehouse_take weather_forecast wiki_edit wiki_search";
    assert_eq!(tools.join(" "), names);
    assert_eq!(tools.len(), 26);
    let state = company.state().await;
    assert_eq!(state["tool_name_clashes"], json!({}));
    assert_eq!(state["mcp_servers"].as_array().map(Vec::len), Some(16));
    company.shut_down().await;
    Ok(())
}

#[tokio::test]
async fn what_is_loaded_comes_back() -> Result<()> {
    for name in company::names() {
        let runtime = match name {
            "wiki" => agentenv_protocol::EnvRuntime::new(wiki::WikiEnv::in_memory())?,
            name => company::server(name, None)?,
        };
        let env = TestEnv::from(runtime);
        env.runtime().start().await?;
        let empty = env.state().await;
        let Part::Data(seed) = company::seed(name)? else { anyhow::bail!("the seed of {name} is no data") };
        let seed: Value = seed.data.parse()?;
        assert_ne!(seed, empty, "{name}");
        env.add(&seed).await;
        assert_eq!(env.state().await, seed, "{name}");
        env.reset().await;
        assert_eq!(env.state().await, empty, "{name}");
        assert!(env.card().capabilities.tools.iter().flatten().all(|tool| tool.description.is_some()));
    }
    Ok(())
}

#[test]
fn the_instance_file_names_them_all() -> Result<()> {
    let file = InstanceFile::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("instance.toml"))?;
    let servers: Vec<_> = file.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(servers, company::names());
    assert!(file.servers.iter().all(|server| server.seeds.len() == 1));
    let own = InstanceFile::own(&company::instance_file())?;
    assert_eq!(own.servers.len(), 16);
    assert!(own.needs_postgres() && own.servers.iter().all(|server| server.seeds.is_empty()));
    Ok(())
}

/// Calls a tool as a role, and gives its answer or its error's text.
async fn call(company: &Instance, role: &str, tool: &str, arguments: Value) -> Result<Value> {
    let mut call = ToolCall::new(tool, to_raw_value(&arguments)?);
    call.role = role.to_owned();
    let answered = company.call(call).await?;
    let result: Value = serde_json::from_str(answered.result.as_str())?;
    let value =
        if result["isError"] == true { &result["content"][0]["text"] } else { &result["structuredContent"] };
    Ok(value.clone())
}

#[tokio::test]
async fn a_morning_at_work() -> Result<()> {
    let company = company::open().await?;
    // Frozen, so that every answer is known.
    let nine = json!({"virtual_time": "2026-10-05T09:00:00Z", "virtual_seconds_per_real_second": 0});
    company.clock().arm(&nine, false)?;
    let steps = [
        ("me", "email_search", json!({"query": "Q3"}), "/emails/0/from", json!("dana@example.com")),
        ("me", "contacts_lookup", json!({"name": "sam"}), "/contacts/0/email", json!("sam.lee@example.com")),
        ("me", "files_read", json!({"path": "reports/2026"}), "/folder/1", json!("reports/2026/q3-draft.md")),
        (
            "me",
            "files_read",
            json!({"path": "/reports/2026/q3-draft.md"}),
            "/text",
            json!("Revenue 4.4 M, to be confirmed by Priya."),
        ),
        ("me", "files_read", json!({"path": "a/../b"}), "", json!("bad_path: 'a/../b' is no plain path")),
        ("me", "files_read", json!({"path": "report"}), "", json!("not_found: there is nothing at 'report'")),
        ("me", "glossary_define", json!({"term": "arr"}), "/see_also", json!(["Churn"])),
        (
            "me",
            "exchange_convert",
            json!({"amount": 440, "from": "usd", "to": "GBP"}),
            "",
            json!({"amount": 344.0, "currency": "GBP"}),
        ),
        (
            "me",
            "exchange_convert",
            json!({"amount": 1, "from": "EUR", "to": "XAU"}),
            "",
            json!("no_rate: there is no rate for 'XAU'"),
        ),
        ("me", "files_write", json!({"path": "reports/2026/q3.md", "text": "4.4 M"}), "/bytes", json!(5)),
        (
            "me",
            "send",
            json!({"to": "sam.lee@example.com", "subject": "Q3", "body": "4.4 M"}),
            "/sent",
            json!(1),
        ),
        (
            "me",
            "chat_post",
            json!({"channel": "finance", "text": "Done."}),
            "/at",
            json!("2026-10-05T09:00:00Z"),
        ),
        ("sam", "chat_read", json!({"channel": "finance", "limit": 1}), "/messages/0/from", json!("me")),
        (
            "me",
            "chat_post",
            json!({"channel": "x", "text": ""}),
            "",
            json!("no_channel: there is no channel 'x'"),
        ),
        ("me", "news_read", json!({}), "/articles/0/headline", json!("Markets open higher")),
        ("me", "news_read", json!({"topic": "local"}), "/articles/1", Value::Null),
        ("me", "holidays_next", json!({"country": "de"}), "/name", json!("Christmas Day")),
        (
            "me",
            "weather_forecast",
            json!({"city": "Berlin", "days": 1}),
            "/days/2026-10-05/sky",
            json!("sun"),
        ),
        ("me", "weather_forecast", json!({"city": "Berlin"}), "/days/2026-10-04", Value::Null),
        ("me", "calendar_list", json!({}), "/events/0/title", json!("Standup")),
        (
            "me",
            "calendar_book",
            json!({"title": "Lunch", "start": "2026-10-05T12:00:00Z", "end": "2026-10-05T13:00:00Z"}),
            "/title",
            json!("Lunch"),
        ),
        ("me", "rooms_find", json!({"seats": 3, "equipment": ["screen"]}), "/rooms/0/name", json!("Bridge")),
        (
            "me",
            "wiki_search",
            json!({"query": "badge"}),
            "/pages/Badges/edited_at",
            json!("2026-09-28T10:00:00Z"),
        ),
        (
            "me",
            "wiki_edit",
            json!({"title": "Q3", "text": "4.4 M"}),
            "/edited_at",
            json!("2026-10-05T09:00:00Z"),
        ),
        ("me", "contacts_add", json!({"name": "Li Wei", "email": "li@example.com"}), "/contacts", json!(4)),
        ("me", "tickets_list", json!({}), "/tickets/0/id", json!(2)),
        ("me", "tickets_open", json!({"title": "No badge"}), "/priority", json!("normal")),
        ("me", "tickets_close", json!({"id": 3, "solution": "Given."}), "/solution", json!("Given.")),
        (
            "me",
            "tickets_close",
            json!({"id": 3, "solution": "Again."}),
            "",
            json!("not_open: no ticket 3 is open"),
        ),
        ("me", "warehouse_take", json!({"item": "laptop 14", "count": 2}), "/left", json!(1)),
        (
            "me",
            "warehouse_take",
            json!({"item": "laptop 14", "count": 2}),
            "",
            json!("out_of_stock: there are not 2 of 'laptop 14'"),
        ),
        (
            "me",
            "warehouse_stock",
            json!({"item": "laptop"}),
            "/stock",
            json!({"laptop 14": 1, "laptop 16": 0}),
        ),
        ("me", "expenses_submit", json!({"what": "Lunch", "cents": 1450}), "/claim", json!(3)),
        (
            "me",
            "expenses_approve",
            json!({"claim": 3}),
            "",
            json!("own_claim: somebody else must approve it"),
        ),
        ("dana", "expenses_approve", json!({"claim": 3}), "/approved_by", json!("dana")),
        ("dana", "expenses_approve", json!({"claim": 0}), "", json!("no_claim: there is no claim 0")),
        ("dana", "payroll_salary", json!({"name": "Sam Lee"}), "/cents_a_year", json!(7_200_000)),
    ];
    for (role, tool, arguments, at, answer) in steps {
        let answered = call(&company, role, tool, arguments).await?;
        assert_eq!(answered.pointer(at).unwrap_or_default(), &answer, "{tool}: {answered}");
    }
    company.shut_down().await;
    Ok(())
}

/// The first line that the program says when it serves a server alone.
fn first_line(server: &str, called: Option<&str>) -> Result<(std::process::Child, String)> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_company"));
    program.arg(server).env("MCP_HOST", "127.0.0.1").env("MCP_PORT", "0").env_remove("DATABASE_URL");
    program.env_remove("ENVIRONMENT_NAME").envs(called.map(|called| ("ENVIRONMENT_NAME", called)));
    let mut child = program.stderr(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stderr.take().context("no standard error")?).read_line(&mut line)?;
    Ok((child, line.trim().to_owned()))
}

#[tokio::test]
async fn one_server_alone() -> Result<()> {
    for (called, name) in [(None, "weather"), (Some("sky"), "sky")] {
        let (mut child, line) = first_line("weather", called)?;
        let address = line.strip_prefix(&format!("{name} listens on ")).context(line.clone())?;
        let card = EnvClient::new(&format!("http://{address}"))?.get_card().await;
        child.kill()?;
        child.wait()?;
        let card = card?;
        assert_eq!(card.name, name);
        let tools = card.capabilities.tools.unwrap_or_default();
        assert_eq!(
            tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>(),
            [format!("{name}_forecast")]
        );
    }
    let (mut child, line) = first_line("climate", None)?;
    assert!(!child.wait()?.success());
    assert!(line.contains("'climate'") && line.contains("calendar, chat, "), "{line}");
    Ok(())
}
