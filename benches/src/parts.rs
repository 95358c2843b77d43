//! What this program is besides the benchmark: what is measured in a process of its own.

mod bare;
mod children;
mod drive;
mod id_read;
mod in_process;
mod relay;
mod stages;

use std::net::SocketAddr;

use anyhow::{Context, bail};
use axum::Router;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

pub(crate) use id_read::IdRead;
pub(crate) use in_process::InProcess;
pub(crate) use stages::Stages;

/// A server that does nothing.
pub(crate) const BARE: &str = "bare";

/// A relay to the server at [`RELAY_SERVER`], which logs to [`RELAY_LOG`].
pub(crate) const RELAY: &str = "relay";

/// Where the relay's server is.
pub(crate) const RELAY_SERVER: &str = "BENCH_SERVER";

/// The relay's log.
pub(crate) const RELAY_LOG: &str = "BENCH_LOG";

/// Many MCP servers, which [`CHILD_ADDRESSES`] and [`CHILD_TOOLS`] tell of.
pub(crate) const CHILDREN: &str = "children";

/// Load on a server that is there already.
const DRIVE: &str = "drive";

/// An instance in this process, called.
pub(crate) const IN_PROCESS: &str = "in-process";

/// The stages of a call that can be had alone.
pub(crate) const STAGES: &str = "stages";

/// Reading the latest id of the store that [`STORE_URL`] leads to.
pub(crate) const ID_READ: &str = "id-read";

/// The store's URL.
pub(crate) const STORE_URL: &str = "BENCH_STORE";

/// Where the children listen, with commas between.
pub(crate) const CHILD_ADDRESSES: &str = "BENCH_CHILDREN";

/// How many tools each child has.
pub(crate) const CHILD_TOOLS: &str = "BENCH_CHILD_TOOLS";

/// A word that a description of the children's tools holds.
pub(crate) const CHILD_WORD: &str = "benchmark";

/// What a part runs on: one thread where it stands for the email server, the gateway or the load, which have one.
pub(crate) fn runtime(part: &str) -> std::io::Result<Runtime> {
    let mut builder = match part {
        BARE | DRIVE | RELAY | STAGES => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.enable_all().build()
}

/// Runs a part to its end, which a server has none of.
pub(crate) async fn run(part: &str) -> anyhow::Result<()> {
    match part {
        BARE => serve(own_address()?, Router::new().route("/mcp", post(bare::answer))).await,
        CHILDREN => children::run().await,
        DRIVE => say(&drive::run().await?),
        ID_READ => say(&id_read::run().await?),
        IN_PROCESS => say(&in_process::run().await?),
        RELAY => serve(own_address()?, relay::router(variable(RELAY_SERVER)?.parse()?)?).await,
        STAGES => say(&stages::run().await?),
        _ => bail!("there is no part '{part}'"),
    }
}

/// What a part found out is one line of JSON.
fn say(found: &impl serde::Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(found)?);
    Ok(())
}

fn variable(name: &'static str) -> anyhow::Result<String> {
    std::env::var(name).context(name)
}

fn own_address() -> anyhow::Result<SocketAddr> {
    Ok(format!("{}:{}", variable("MCP_HOST")?, variable("MCP_PORT")?).parse()?)
}

async fn serve(address: SocketAddr, router: Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await?.tap_io(|stream| {
        // A socket that is gone already is found out at its first read.
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, router.route("/ready", get(async || "ok"))).await?)
}
