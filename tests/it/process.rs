//! The gateway as a process: how it refuses to start, how it is killed, how it stops.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use agentenv_tests::contacts::ContactsEnv;
use agentenv_tests::email::EmailEnv;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::office::{client, serve_env};

/// The gateway's binary, which stands where this test's own does.
pub(crate) fn binary() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(2).context("no target folder")?;
    Ok(target.join("agentenv-gateway"))
}

fn gateway(variables: &[(&str, &str)]) -> Result<Command> {
    let mut command = Command::new(binary()?);
    command.env_clear().envs(variables.iter().copied()).stdin(Stdio::null());
    Ok(command)
}

fn refused(variables: &[(&str, &str)]) -> Result<Output> {
    gateway(variables)?.output().context("cannot run the gateway: build it first (cargo build --workspace)")
}

#[tokio::test]
async fn what_cannot_be_right_ends_the_start_with_a_line() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    let folder = std::env::temp_dir();
    let folder = folder.to_str().context("a temporary folder with an odd name")?;
    for (variables, said) in [
        (vec![("MCP_PORT", "x")], "MCP_PORT: 'x'"),
        (vec![("TOKIO_WORKER_THREADS", "many")], "TOKIO_WORKER_THREADS: 'many' is not a number"),
        (vec![("TOKIO_WORKER_THREADS", "0")], "TOKIO_WORKER_THREADS: '0'"),
        (vec![("INTERNAL_MCP_SERVERS", "a=b")], "INTERNAL_MCP_SERVERS: entry 'a': not an http:// URL"),
        (vec![("INTERNAL_MCP_SERVERS", "a,a")], "'a' is there twice"),
        (vec![("REST_PROXY_URLS", "x")], "REST_PROXY_URLS: entry 'x'"),
        (vec![("GATEWAY_MODE", "fast")], "GATEWAY_MODE: 'fast'"),
        (vec![("MCP_HOST", "127.0.0.1"), ("MCP_PORT", &port)], "cannot listen on"),
        (
            vec![("MCP_HOST", "127.0.0.1"), ("MCP_PORT", "0"), ("GATEWAY_TRAJECTORY_FILE", folder)],
            "not a regular file",
        ),
        (vec![("SERVICE_DB_URL", "http://x")], "state store"),
        (
            vec![
                ("MCP_HOST", "127.0.0.1"),
                ("MCP_PORT", "0"),
                ("INTERNAL_MCP_SERVERS", "ghost=http://127.0.0.1:1/mcp"),
                ("GATEWAY_INTERNAL_SERVER_TIMEOUT_S", "0.3"),
            ],
            "ghost: not ready after 0.3 s",
        ),
    ] {
        let output = refused(&variables)?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{variables:?}: {stderr}");
        let lines: Vec<_> = stderr.lines().filter(|line| line.starts_with("agentenv-gateway: ")).collect();
        assert_eq!(lines.len(), 1, "{variables:?}: {stderr}");
        assert!(lines[0].contains(said), "{variables:?}: {stderr}");
    }
    Ok(())
}

/// A gateway's process in front of two servers of this one.
struct Running {
    process: Child,
    url: String,
}

impl Running {
    async fn start(email: &str, contacts: &str, trajectory: &str) -> Result<Self> {
        let port = {
            let free = std::net::TcpListener::bind("127.0.0.1:0")?;
            free.local_addr()?.port().to_string()
        };
        let servers = format!("email={email}/mcp,contacts={contacts}/mcp");
        let process = gateway(&[
            ("MCP_HOST", "127.0.0.1"),
            ("MCP_PORT", &port),
            ("INTERNAL_MCP_SERVERS", &servers),
            ("GATEWAY_TRAJECTORY_FILE", trajectory),
            ("RUST_LOG", "error"),
        ])?
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run the gateway: build it first (cargo build --workspace)")?;
        let mut running = Self { process, url: format!("http://127.0.0.1:{port}") };
        let http = client();
        loop {
            if let Ok(answer) = http.get(format!("{}/ready", running.url)).send().await
                && answer.status() == 200
            {
                return Ok(running);
            }
            if running.process.try_wait()?.is_some() {
                let mut stderr = String::new();
                running.process.stderr.take().context("no stderr")?.read_to_string(&mut stderr)?;
                anyhow::bail!("the gateway ended: {stderr}");
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines(path: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))).collect()
}

/// A file of this test's own.
fn trajectory_file(name: &str) -> String {
    let file = std::env::temp_dir().join(format!("agentenv-{}-{name}.jsonl", std::process::id()));
    let _ = std::fs::remove_file(&file);
    file.to_string_lossy().into_owned()
}

const CALLERS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load_nothing_that_was_answered_is_lost() -> Result<()> {
    let stop = CancellationToken::new();
    let email = serve_env(EmailEnv::default(), &stop).await?;
    let contacts = serve_env(ContactsEnv::default(), &stop).await?;
    let trajectory = trajectory_file("killed");
    let mut answered = BTreeSet::new();
    for round in 0..20 {
        let mut gateway = Running::start(&email, &contacts, &trajectory).await?;
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (http, url) = (client(), format!("{}/step", gateway.url));
                tokio::spawn(async move {
                    let mut answered = Vec::new();
                    for call in 0.. {
                        let name = format!("{round}-{caller}-{call}");
                        let body = format!(
                            r#"{{"action":"call_tool","tool_name":"contacts_add","arguments":{{"name":"{name}","email":"e"}}}}"#
                        );
                        let Ok(response) = http.post(&url).body(body).send().await else { break };
                        if response.status() != 200 || response.text().await.is_err() {
                            break;
                        }
                        answered.push(name);
                    }
                    answered
                })
            })
            .collect();
        // Killed once there are enough answers, wherever the other calls are just then.
        let enough = 20 + 7 * round;
        while std::fs::read_to_string(&trajectory)
            .map_or(0, |text| text.matches("tool_call_result\"").count())
            < enough
        {
            tokio::task::yield_now().await;
        }
        gateway.process.kill()?;
        gateway.process.wait()?;
        for caller in callers {
            answered.extend(caller.await?);
        }
    }
    drop(Running::start(&email, &contacts, &trajectory).await?);
    let events = lines(&trajectory)?;
    let mut open = std::collections::BTreeMap::new();
    let mut closed = BTreeSet::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["event_id"], format!("event_{}", index + 1));
        match event["event_type"].as_str() {
            Some("tool_call") => {
                let name = event["tool_call"]["arguments"]["name"].as_str().context("no name")?;
                open.insert(event["event_id"].as_str().context("no id")?.to_owned(), name.to_owned());
            }
            Some("tool_call_result" | "tool_call_failed") => {
                let call = event["tool_call_event_id"].as_str().context("no call")?;
                let name =
                    open.remove(call).with_context(|| format!("{call} is closed twice or never began"))?;
                if event["event_type"] == "tool_call_result" {
                    closed.insert(name);
                }
            }
            other => ensure!(other == Some("child_reconnected"), "{other:?}"),
        }
    }
    assert!(open.is_empty(), "calls without an end: {open:?}");
    let lost: Vec<_> = answered.difference(&closed).collect();
    assert!(lost.is_empty(), "answered and not logged: {lost:?}");
    assert!(answered.len() > 20 * 20, "only {} answers", answered.len());
    std::fs::remove_file(&trajectory)?;
    stop.cancel();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_it_ends_the_calls_under_way() -> Result<()> {
    let stop = CancellationToken::new();
    let email = serve_env(EmailEnv::default(), &stop).await?;
    let contacts = serve_env(ContactsEnv::default(), &stop).await?;
    let trajectory = trajectory_file("stopped");
    let mut gateway = Running::start(&email, &contacts, &trajectory).await?;
    let call = {
        let (http, url) = (client(), format!("{}/step", gateway.url));
        let body = r#"{"action":"call_tool","tool_name":"slow","arguments":{"seconds":0.4}}"#;
        tokio::spawn(async move { http.post(url).body(body).send().await })
    };
    while std::fs::read_to_string(&trajectory)?.is_empty() {
        tokio::task::yield_now().await;
    }
    let pid = gateway.process.id().to_string();
    ensure!(Command::new("kill").args(["-TERM", &pid]).status()?.success(), "cannot signal");
    assert_eq!(call.await??.status(), 200);
    let ended = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let Some(status) = gateway.process.try_wait()? {
                return anyhow::Ok(status);
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(ended.await??.code(), Some(0));
    assert_eq!(lines(&trajectory)?.last().context("nothing")?["event_type"], "tool_call_result");
    std::fs::remove_file(&trajectory)?;
    stop.cancel();
    Ok(())
}
