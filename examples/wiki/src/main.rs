//! Serves the wiki on its own: `MCP_HOST` and `MCP_PORT` say where, `DATABASE_URL` where its pages are.

use anyhow::Context;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let url = wiki::database_url();
    url.context(
        "DATABASE_URL is not set: give the wiki a Postgres, as in postgresql://user:password@host/db",
    )?;
    Ok(agentenv_protocol::serve(wiki::WikiEnv::default()).await?)
}
