//! Serves the fixture of this name where `MCP_HOST` and `MCP_PORT` say.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    Ok(agentenv_protocol::serve(agentenv_tests::email::EmailEnv::default()).await?)
}
