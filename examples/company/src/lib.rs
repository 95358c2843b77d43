//! A company: sixteen environments with twenty-six tools. Each is a file of this package, or a package of its own where it
//! is an example by itself; all of them are linked into one binary and found there by name.

mod chat;
mod exchange;
mod expenses;
mod files;
mod glossary;
mod holidays;
mod news;
mod payroll;
mod rooms;
mod tickets;
mod warehouse;
mod weather;
mod world;

use agentenv_gateway::Instance;
use agentenv_protocol::environment::{EnvRuntime, find_linked, linked};
use anyhow::Context;
// Named, so that they are linked.
use {calendar as _, contacts as _, email as _, wiki as _};

pub use world::seed;

/// The names of all servers.
pub fn names() -> Vec<&'static str> {
    linked().into_iter().map(|env| env.name()).collect()
}

/// One of the servers, empty, under its own name or another.
///
/// # Errors
/// There is none of that name; the others are named.
pub fn server(name: &str, called: Option<&str>) -> anyhow::Result<EnvRuntime> {
    let found = find_linked(name).and_then(|env| env.build(called));
    Ok(found.with_context(|| format!("there is no server '{name}'; there are: {}", names().join(", ")))??)
}

/// The instance file that the program brings along: `instance.toml`, without the seeds, which are files beside it.
pub fn instance_file() -> String {
    let lines = include_str!("../instance.toml").lines();
    lines.filter(|line| !line.starts_with("seed = ")).flat_map(|line| [line, "\n"]).collect()
}

/// The whole company in this process, behind one gateway, with something going on in it. All of it goes with the process.
///
/// # Errors
/// A server that does not start.
pub async fn open() -> anyhow::Result<Instance> {
    let mut company = Instance::builder("company");
    for name in names() {
        let env = match name {
            // It would keep what is in the sample in whichever database `DATABASE_URL` happens to name.
            "wiki" => EnvRuntime::new(wiki::WikiEnv::in_memory())?,
            name => server(name, None)?,
        };
        env.add(vec![seed(name)?]).await.with_context(|| format!("the seed of {name}"))?;
        company = company.runtime(env);
    }
    Ok(company.build().await?)
}
