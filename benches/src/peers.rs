//! The programs that are measured, ours and others', installed or built when they are not there yet.

mod mcp_proxy;
mod ours;
mod python;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

pub(crate) use mcp_proxy::McpProxy;
pub(crate) use ours::Ours;
pub(crate) use python::Python;

/// The repository's root.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Where what is installed goes.
fn cache() -> PathBuf {
    root().join(".cache").join("benches")
}

/// Runs a command to its end, its words going to standard error.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    let status = status.with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    ensure!(status.success(), "{} failed with {status}", command.get_program().to_string_lossy());
    Ok(())
}
