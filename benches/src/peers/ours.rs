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
    /// Builds the packages that are measured, with the profile that this program was built with.
    pub(crate) fn prepare(packages: &[&str]) -> anyhow::Result<Self> {
        let folder = this_program()?.parent().context("a program in a folder")?.to_owned();
        // cargo keeps a profile's programs in a folder of its name; the one of `dev` is called `debug`.
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        if profile != "dist" {
            eprintln!("this is the profile '{profile}', not 'dist': its figures mean nothing");
        }
        eprintln!("building what is measured: {} (profile {profile})", packages.join(", "));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(root()).args(["build", "--locked", "--bins", "--profile", profile]);
        for package in packages {
            command.args(["-p", package]);
        }
        run(&mut command).context("building what is measured")?;
        for package in packages {
            ensure!(folder.join(package).exists(), "{package} was built, and is not in {}", folder.display());
        }
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
