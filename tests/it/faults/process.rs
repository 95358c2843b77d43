//! The gateway as a process: two on one file, told to stop in the middle of things, more clients than it may have files.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::{GateEnv, PATIENCE, connect, send};
use crate::office::{client, serve_env};
use crate::process::binary;

/// A gateway's process.
pub(crate) struct Gateway {
    process: Child,
    pub(crate) url: String,
    log: Option<std::thread::JoinHandle<String>>,
}

fn command(variables: &[(&str, &str)]) -> Result<Command> {
    let mut command = Command::new(binary()?);
    command.env_clear().env("MCP_HOST", "127.0.0.1").envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

impl Gateway {
    pub(crate) async fn start(variables: &[(&str, &str)]) -> Result<Self> {
        Self::launch(command(variables)?).await
    }

    async fn launch(mut command: Command) -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut process = command.env("MCP_PORT", &port).spawn().context("build the gateway first")?;
        let mut stderr = process.stderr.take().context("no stderr")?;
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            // What was read before a fault is what there is.
            let _ = stderr.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        });
        let mut gateway = Self { process, url: format!("http://127.0.0.1:{port}"), log: Some(log) };
        let http = client();
        loop {
            if http.get(format!("{}/health", gateway.url)).send().await.is_ok() {
                return Ok(gateway);
            }
            if gateway.process.try_wait()?.is_some() {
                anyhow::bail!("the gateway ended: {}", gateway.log());
            }
            tokio::task::yield_now().await;
        }
    }

    fn log(&mut self) -> String {
        self.log.take().and_then(|log| log.join().ok()).unwrap_or_default()
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let status = Command::new("kill").args([signal, &self.process.id().to_string()]).status()?;
        ensure!(status.success(), "cannot signal");
        Ok(())
    }

    async fn ended(&mut self) -> Result<ExitStatus> {
        let ended = async {
            loop {
                if let Some(status) = self.process.try_wait()? {
                    return anyhow::Ok(status);
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await?
    }

    /// Stops it and gives what it logged.
    pub(crate) async fn end(&mut self) -> Result<String> {
        self.signal("-TERM")?;
        self.ended().await?;
        Ok(self.log())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn file(name: &str) -> String {
    let file = std::env::temp_dir().join(format!("agentenv-fault-{}-{name}.jsonl", std::process::id()));
    let _ = std::fs::remove_file(&file);
    file.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_gateway_on_one_trajectory_does_not_start() -> Result<()> {
    let trajectory = file("twice");
    let _first = Gateway::start(&[("GATEWAY_TRAJECTORY_FILE", &trajectory)]).await?;
    let second = command(&[("GATEWAY_TRAJECTORY_FILE", &trajectory), ("MCP_PORT", "0")])?.output()?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("agentenv-gateway: ") && said.contains(&trajectory), "{said}");
    std::fs::remove_file(&trajectory)?;
    Ok(())
}

/// A gateway with a call inside its child.
async fn busy(name: &str, stop: &CancellationToken) -> Result<(Gateway, Arc<super::Gate>, String)> {
    let env = GateEnv::default();
    let gate = Arc::clone(&env.gate);
    let servers = format!("gate={}/mcp", serve_env(env, stop).await?);
    let trajectory = file(name);
    let gateway =
        Gateway::start(&[("INTERNAL_MCP_SERVERS", &servers), ("GATEWAY_TRAJECTORY_FILE", &trajectory)])
            .await?;
    Ok((gateway, gate, trajectory))
}

async fn nobody_is_let_in(gateway: &Gateway) -> Result<()> {
    let closed = async {
        while connect(&gateway.url).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    Ok(tokio::time::timeout(PATIENCE, closed).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_it_ends_streams_and_waits_for_calls() -> Result<()> {
    let stop = CancellationToken::new();
    let (mut gateway, gate, trajectory) = busy("stream", &stop).await?;
    let mut followed = connect(&gateway.url).await?;
    followed.write_all(b"GET /trajectory?follow=true HTTP/1.1\r\nHost: g\r\n\r\n").await?;
    let mut idle = connect(&gateway.url).await?;
    let body = r#"{"action":"call_tool","tool_name":"wait"}"#;
    let call = tokio::spawn(client().post(format!("{}/step", gateway.url)).body(body).send());
    gate.entered(1).await?;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("tool_call") {
        ensure!(tokio::time::timeout(PATIENCE, followed.read_buf(&mut seen)).await?? > 0, "it ended");
    }
    gateway.signal("-TERM")?;
    tokio::time::timeout(PATIENCE, followed.read_to_end(&mut seen)).await??;
    tokio::time::timeout(PATIENCE, idle.read_to_end(&mut seen)).await??;
    nobody_is_let_in(&gateway).await?;
    gate.let_through(1);
    assert_eq!(call.await??.status(), 200);
    assert_eq!(gateway.ended().await?.code(), Some(0));
    let text = std::fs::read_to_string(&trajectory)?;
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("tool_call_result"), "{text}");
    std::fs::remove_file(&trajectory)?;
    stop.cancel();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_twice_it_stops_at_once_and_the_next_life_closes_the_call() -> Result<()> {
    let stop = CancellationToken::new();
    let (mut gateway, gate, trajectory) = busy("second", &stop).await?;
    let body = r#"{"action":"call_tool","tool_name":"wait"}"#;
    let call = tokio::spawn(client().post(format!("{}/step", gateway.url)).body(body).send());
    gate.entered(1).await?;
    gateway.signal("-TERM")?;
    // The first has been taken by then.
    nobody_is_let_in(&gateway).await?;
    gateway.signal("-TERM")?;
    assert_eq!(gateway.ended().await?.code(), Some(1));
    assert!(call.await?.is_err());
    drop(Gateway::start(&[("GATEWAY_TRAJECTORY_FILE", &trajectory)]).await?);
    let text = std::fs::read_to_string(&trajectory)?;
    assert!(text.lines().count() == 2 && text.contains("tool_call_failed"), "{text}");
    std::fs::remove_file(&trajectory)?;
    stop.cancel();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_clients_keep_nobody_out() -> Result<()> {
    let mut command = Command::new("sh");
    command
        .env_clear()
        .env("MCP_HOST", "127.0.0.1")
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.args(["-c", "ulimit -n 100 && exec \"$0\""]).arg(binary()?);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut gateway = Gateway::launch(command).await?;
    let mut crowd = Vec::new();
    for client in 0..250 {
        let mut stream = connect(&gateway.url).await?;
        if client % 3 == 1 {
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n").await?;
        }
        crowd.push(stream);
    }
    assert_eq!(send(&gateway.url, "GET", "/health", "", b"").await?.status, 200);
    drop(crowd);
    assert_eq!(send(&gateway.url, "GET", "/health", "", b"").await?.status, 200);
    let log = gateway.end().await?;
    assert!(log.lines().count() < 100, "the log is flooded: {log}");
    Ok(())
}
