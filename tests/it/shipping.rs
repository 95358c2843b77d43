//! The image of a program, as far as that can be told without building it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

fn file(path: &str) -> Result<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
    fs::read_to_string(workspace.join(path)).with_context(|| path.to_owned())
}

#[test]
fn images_are_built_with_the_toolchain_that_is_tested() -> Result<()> {
    let toolchain = file("rust-toolchain.toml")?;
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).context("no channel")?;
    let wanted = format!("ARG RUST={}", channel.trim_matches('"'));
    assert!(
        file("docker/Dockerfile")?.lines().any(|line| line == wanted),
        "docker/Dockerfile has no {wanted}"
    );
    Ok(())
}

#[test]
fn the_images_user_may_write_where_compose_keeps_the_trajectory() -> Result<()> {
    let compose = file("agentenv-gateway/src/launch/compose.rs")?;
    let folder =
        compose.split_once("TRAJECTORY_FOLDER: &str = \"").and_then(|(_, rest)| rest.split_once('"'));
    let (folder, _) = folder.context("compose.rs names no folder")?;
    let made = format!("install -d -o \"${{UID}}\" -g \"${{UID}}\" {folder}");
    assert!(file("docker/Dockerfile")?.contains(&made), "docker/Dockerfile does not {made}");
    Ok(())
}
