//! The Python implementation: its SDK serving our benchmark's environment, and its gateway, in a virtual environment of
//! their own.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use sha2::{Digest, Sha256};

use super::{cache, run};
use crate::process::Program;

const REQUIREMENTS: &str = include_str!("../../python/requirements.txt");

/// The wheel that holds the gateway's package.
const FRAMEWORK: &str = "agentenv-framework==0.9.1364";

/// An interpreter with everything installed.
pub(crate) struct Python {
    folder: PathBuf,
}

impl Python {
    /// Installs what is missing.
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        let pins = Sha256::new().chain_update(REQUIREMENTS).chain_update(FRAMEWORK).finalize();
        let tag: String = pins.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let python = Self { folder: cache().join(format!("python-{tag}")) };
        let complete = python.folder.join("complete");
        if !complete.exists() {
            python.install().context("installing the Python implementation")?;
            fs::write(complete, "")?;
        }
        Ok(python)
    }

    fn install(&self) -> anyhow::Result<()> {
        eprintln!("installing the Python implementation");
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        fs::create_dir_all(&self.folder)?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&self.folder))?;
        let requirements = self.folder.join("requirements.txt");
        fs::write(&requirements, REQUIREMENTS)?;
        let pip = || {
            let mut command = Command::new(self.interpreter());
            command.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
            command
        };
        run(pip().args(["install", "--no-deps", "-r"]).arg(requirements))?;

        // As the gateway's container has it: the folder of that name, taken out of the wheel.
        let wheel = self.folder.join("wheel");
        run(pip().args(["install", "--no-deps", "--target"]).arg(&wheel).arg(FRAMEWORK))?;
        let reference = self.reference();
        fs::create_dir_all(&reference)?;
        fs::rename(wheel.join("agent_env/env/gateway"), reference.join("gateway"))?;
        fs::remove_dir_all(wheel)?;
        Ok(())
    }

    fn interpreter(&self) -> PathBuf {
        self.folder.join("bin").join("python")
    }

    fn reference(&self) -> PathBuf {
        self.folder.join("reference")
    }

    /// The email server on the Python SDK.
    pub(crate) fn email(&self, address: SocketAddr) -> Program {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/python/email_env.py");
        Program::new("python-email", self.interpreter())
            .argument(file)
            .listening(address)
            .variable("ENVIRONMENT_NAME", "email")
    }

    /// The Python gateway; its children are for the caller to name.
    pub(crate) fn gateway(&self) -> Program {
        Program::new("python-gateway", self.interpreter())
            .argument("-m")
            .argument("gateway.entrypoint")
            .variable("PYTHONPATH", self.reference())
    }
}
