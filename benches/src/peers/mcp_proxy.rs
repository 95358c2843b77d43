//! crates.io `mcp-proxy`: a gateway in Rust that keeps no log. Installed from source, which takes minutes the first time.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::{cache, run};
use crate::mcp::Endpoint;
use crate::process::Program;

const VERSION: &str = "0.6.0";

/// The program, installed.
pub(crate) struct McpProxy {
    program: PathBuf,
}

impl McpProxy {
    /// Installs it if it is missing. What it has beyond passing calls on is left out: none of it is wanted here, and it is
    /// the faster for it.
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        let folder = cache().join(format!("mcp-proxy-{VERSION}"));
        let program = folder.join("bin").join("mcp-proxy");
        if !program.exists() {
            eprintln!("installing mcp-proxy {VERSION} (minutes, once)");
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let build = cache().join("mcp-proxy-build");
            run(Command::new(cargo)
                .args([
                    "install",
                    "mcp-proxy",
                    "--version",
                    VERSION,
                    "--locked",
                    "--no-default-features",
                    "--quiet",
                ])
                .arg("--root")
                .arg(&folder)
                .arg("--target-dir")
                .arg(&build)
                .env_remove("CARGO_TARGET_DIR"))
            .context("installing mcp-proxy")?;
            fs::remove_dir_all(build)?;
        }
        Ok(Self { program })
    }

    /// The proxy in front of one server, whose tools keep their names behind a prefix.
    pub(crate) fn gateway(
        &self,
        folder: &Path,
        address: SocketAddr,
        server: SocketAddr,
    ) -> anyhow::Result<Program> {
        let config = folder.join("mcp-proxy.toml");
        let (host, port) = (address.ip(), address.port());
        fs::write(
            &config,
            format!(
                "[proxy]\nname = \"bench\"\nseparator = \"_\"\n\n[proxy.listen]\nhost = \"{host}\"\nport = {port}\n\n\
                 [[backends]]\nname = \"mail\"\ntransport = \"http\"\nurl = \"http://{server}/mcp\"\n"
            ),
        )?;
        Ok(Program::new("mcp-proxy", &self.program).argument("--config").argument(config))
    }

    /// Its endpoint.
    pub(crate) fn endpoint(address: SocketAddr) -> Endpoint {
        Endpoint::new(address, "/")
    }

    /// What it calls a tool of the server.
    pub(crate) fn tool(name: &str) -> String {
        format!("mail_{name}")
    }
}
