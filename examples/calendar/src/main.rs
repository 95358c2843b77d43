//! Serves the calendar on its own: `MCP_HOST` and `MCP_PORT` say where.

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    Ok(agentenv_protocol::serve(calendar::CalendarEnv::default()).await?)
}
