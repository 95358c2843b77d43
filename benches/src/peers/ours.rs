//! Our own programs, built as this one is.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

use super::{root, run};
use crate::process::{Program, this_program};

/// Where our binaries are.
pub(crate) struct Ours {
    folder: PathBuf,
}

impl Ours {
    /// Builds the packages that are measured.
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        let folder = this_program()?.parent().context("a program in a folder")?.to_owned();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(root()).args(["build", "--quiet", "--bins"]);
        if cfg!(debug_assertions) {
            eprintln!("this is a debug build: its figures mean nothing");
        } else {
            command.arg("--release");
        }
        for package in PACKAGES {
            command.args(["-p", package]);
        }
        run(&mut command).context("building what is measured")?;
        ensure!(folder.join("agentenv-gateway").exists(), "the binaries are not in {}", folder.display());
        Ok(Self { folder })
    }

    /// The example's email server.
    pub(crate) fn email(&self, address: SocketAddr) -> Program {
        Program::new("email", self.folder.join("email"))
            .listening(address)
            .variable("ENVIRONMENT_NAME", "email")
    }

    /// The sixteen servers of the example, in one process.
    pub(crate) fn company(&self, address: SocketAddr) -> Program {
        Program::new("company", self.folder.join("company")).listening(address)
    }

    /// The gateway; its children are for the caller to name.
    pub(crate) fn gateway(&self) -> Program {
        Program::new("gateway", self.folder.join("agentenv-gateway"))
    }
}

/// The packages whose binaries are measured, and this one: so their dependencies are the very ones that it was built with.
const PACKAGES: &[&str] = &["agentenv-benches", "agentenv-gateway", "company", "email"];
