//! crates.io `rmcp` as a client, in the session era, in the stateless one, and left to find out which, against a server
//! and through the gateway. The other clients that nobody here wrote are in `tests/peers`.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rmcp::model::{CallToolRequestParams, CallToolResult, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

const EMAIL: [&str; 5] = ["deliver", "email_search", "fail", "send", "whoami"];
/// `deliver` is hidden by default, and only a gateway hides.
const OFFICE: [&str; 7] =
    ["contacts_add", "contacts_lookup", "email_search", "fail", "send", "slow", "whoami"];

#[tokio::test]
async fn session_era() -> Result<()> {
    walk(ClientLifecycleMode::Initialize, ProtocolVersion::V_2025_11_25).await
}

#[tokio::test]
async fn stateless_era() -> Result<()> {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    walk(ClientLifecycleMode::Discover { preferred_versions }, ProtocolVersion::V_2026_07_28).await
}

#[tokio::test]
async fn whichever_era() -> Result<()> {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let auto = ClientLifecycleMode::Auto { preferred_versions, legacy_version: None };
    walk(auto, ProtocolVersion::V_2026_07_28).await
}

async fn walk(lifecycle: ClientLifecycleMode, version: ProtocolVersion) -> Result<()> {
    let office = Office::start().await?;
    through(&office.email.url, lifecycle.clone(), &version, &EMAIL, 1).await.context("a server")?;
    through(&office.gateway.url, lifecycle, &version, &OFFICE, 2).await.context("the gateway")
}

/// One client, from opening to closing. `sent` is how many mails there are once it has sent its own.
async fn through(
    url: &str,
    lifecycle: ClientLifecycleMode,
    version: &ProtocolVersion,
    tools: &[&str],
    sent: u32,
) -> Result<()> {
    let client = connect(url, lifecycle).await?;
    let agreed = client.peer_info().context("nothing agreed")?.protocol_version.clone();
    ensure!(agreed == *version, "agreed on {agreed}");

    let listed = client.list_all_tools().await?;
    let mut names: Vec<&str> = listed.iter().map(|tool| &*tool.name).collect();
    names.sort_unstable();
    ensure!(names == tools, "listed {names:?}");

    let mail = json!({"to": "sam@example.com", "subject": "Numbers", "body": "[1, 2]"});
    let result = call(&client, "send", mail).await?;
    ensure!(result.structured_content == Some(json!({"sent": sent})), "{result:?}");

    let result = call(&client, "fail", json!({"how": "coded"})).await?;
    let code = result.structured_content.as_ref().and_then(|error| error["code"].as_str());
    ensure!(result.is_error == Some(true) && code == Some("no_such_mailbox"), "{result:?}");

    let result = call(&client, "whoami", json!({})).await?;
    let role = result.structured_content.as_ref().and_then(|who| who["role"].as_str());
    ensure!(role == Some("assistant"), "{result:?}");

    client.cancel().await?;
    Ok(())
}

async fn call(
    client: &RunningService<RoleClient, ()>,
    tool: &'static str,
    arguments: Value,
) -> Result<CallToolResult> {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    Ok(client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?)
}

async fn connect(url: &str, lifecycle: ClientLifecycleMode) -> Result<RunningService<RoleClient, ()>> {
    provide_tls();
    let headers = HashMap::from([("agentenv-role".parse()?, "assistant".parse()?)]);
    let config = StreamableHttpClientTransportConfig::with_uri(format!("{url}/mcp")).custom_headers(headers);
    Ok(().serve_with_lifecycle(StreamableHttpClientTransport::from_config(config), lifecycle).await?)
}

/// The workspace builds reqwest without a TLS provider of its own. Plain HTTP needs none, but it asks for one.
fn provide_tls() {
    // An error says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The fixture servers and a gateway in front of them, as processes.
struct Office {
    email: Process,
    _contacts: Process,
    gateway: Process,
}

impl Office {
    async fn start() -> Result<Self> {
        let email = Process::start("fixture-email", &[("ENVIRONMENT_NAME", "email")]).await?;
        let contacts = Process::start("fixture-contacts", &[("ENVIRONMENT_NAME", "contacts")]).await?;
        let servers = format!("email={}/mcp,contacts={}/mcp", email.url, contacts.url);
        let gateway = Process::start("agentenv-gateway", &[("INTERNAL_MCP_SERVERS", &servers)]).await?;
        Ok(Self { email, _contacts: contacts, gateway })
    }
}

struct Process {
    url: String,
    child: Child,
}

impl Process {
    /// Starts one of the workspace's binaries on a free port, and waits until it is ready.
    async fn start(binary: &str, variables: &[(&str, &str)]) -> Result<Self> {
        // This test is `<target>/<profile>/deps/it-…`.
        let built =
            std::env::current_exe()?.parent().and_then(|deps| deps.parent()).context("no target")?.to_owned();
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new(built.join(binary))
            .envs(variables.iter().copied())
            .env("MCP_HOST", "127.0.0.1")
            .env("MCP_PORT", port.to_string())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("{binary} did not start; `cargo build --workspace --bins` builds it"))?;
        let mut process = Self { url: format!("http://127.0.0.1:{port}"), child };
        process.ready().await.with_context(|| format!("{binary} is not ready"))?;
        Ok(process)
    }

    async fn ready(&mut self) -> Result<()> {
        let ready = format!("{}/ready", self.url);
        provide_tls();
        let client = reqwest::Client::new();
        for _ in 0..3000 {
            if client.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("it ended: {status}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::bail!("it does not answer on {ready}")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
