//! `company` runs all sixteen servers in this process, behind one gateway, with something going on in them.
//! `company email` serves one of them alone. `company up` starts the instance as it is shipped: those that keep their
//! state in a database in processes of their own, on a Postgres that goes with them. `company --help` lists the rest.
//!
//! `MCP_HOST` and `MCP_PORT` say where, and `DATABASE_URL` where the wiki keeps its pages when it is served alone.

use std::process::ExitCode;

use agentenv_gateway::call::DEFAULT_ROLE;
use agentenv_gateway::launch::command;
use agentenv_protocol::server::{bind, stop_on_signal};
use anyhow::Context;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    if std::env::args_os().len() > 1 {
        return Ok(command::run(Some(&company::instance_file())).await);
    }
    together().await?;
    Ok(ExitCode::SUCCESS)
}

/// All of them behind a gateway.
async fn together() -> anyhow::Result<()> {
    let var = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let listener = bind(&format!("{}:{}", var("MCP_HOST", "127.0.0.1"), var("MCP_PORT", "18765"))).await?;
    let company = company::open().await.context("the company does not open")?;
    let url = format!("http://{}", listener.local_addr()?);
    let (servers, tools) = (company::names(), company.tool_names(DEFAULT_ROLE));
    println!("The company is open: {} servers, {} tools.\n", servers.len(), tools.len());
    println!("  MCP      {url}/mcp");
    println!("  card     {url}/.well-known/agent-env.json");
    println!("  servers  {}", servers.join(", "));
    println!("  one      {url}/svc/mcp-email/.well-known/agent-env.json\n");
    println!("Connect any MCP client, for example\n");
    println!("  npx @modelcontextprotocol/inspector --cli {url}/mcp --transport http --method tools/list\n");
    println!("or call a tool over plain HTTP:\n");
    println!(
        "  curl -s {url}/step -d '{{\"action\":\"call_tool\",\"tool_name\":\"wiki_search\",\"arguments\":{{\"query\":\"badge\"}}}}'\n"
    );
    println!("Ctrl-C ends it.");
    Ok(company.serve_on(listener, Default::default(), stop_on_signal()?).await?)
}
