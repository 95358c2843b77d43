//! The Compose file of an instance (the topology of contract 3 and 8): the gateway, a container for each server, and with a
//! state store Postgres, its web page and its MCP server. No secret stands in it; each has a file of its own beside it.
//! Building images is left to whoever has them.

mod yaml;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use agentenv_protocol::server::DEFAULT_PORT;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use url::Url;

use self::yaml::yaml;
use super::file::{FileFault, InstanceFile, Place, Server};
use crate::instance::Mode;
use crate::store::{StoreUrl, quoted};

/// The gateway's service, by whose name servers reach it (contract 6).
const GATEWAY: &str = "gateway";

/// The services of the state store, the names that the Python framework uses.
const POSTGRES: &str = "servicedb";
const PGWEB: &str = "pgweb";
const DATABASE: &str = "db-mcp";

/// The state store's database and its owner.
const STORE: &str = "agentenv";

/// Where pgweb and the database's MCP server are published on the host.
const PGWEB_PORT: u16 = 8081;
const DATABASE_PORT: u16 = 18767;

/// How long a container has to stop: longer than the calls under way have to end (contract 10), which is as long as Docker
/// waits by itself.
const STOP_GRACE: &str = "15s";

/// Where the gateway's container serves agents when the port of that on the host is its other one's.
const AGENT_PORT: u16 = 18766;

/// The images of what is not a server's own, unless the file says otherwise.
const GATEWAY_IMAGE: &str = "agentenv-gateway:latest";
const POSTGRES_IMAGE: &str = "postgres:17-alpine";
const PGWEB_IMAGE: &str = "sosedoff/pgweb:latest";

/// The Postgres's password, as a file beside the Compose file.
const PASSWORD_FILE: &str = "secrets/postgres_password";

/// What does not stand as it is in an address of an `env_file`: Compose would put variables in for `$`, and take quotes and
/// comments out.
const IN_ENV_FILE: &AsciiSet =
    &CONTROLS.add(b'$').add(b' ').add(b'#').add(b'"').add(b'\'').add(b'`').add(b'\\');

/// The trajectory's folder in the gateway's container.
const TRAJECTORY_FOLDER: &str = "/var/log/agentenv";

/// Compose file, and the files that it names.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The Compose file's text.
    pub compose: String,
    /// The other files' paths, from the Compose file's folder, and their texts.
    pub files: BTreeMap<String, RenderedFile>,
}

/// A file that a Compose file names.
#[derive(Clone, PartialEq, Eq)]
pub struct RenderedFile {
    /// Its text.
    pub text: String,
    /// Whether nobody but its owner may read it.
    pub secret: bool,
}

impl std::fmt::Debug for RenderedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = if self.secret { "…" } else { &self.text };
        f.debug_struct("RenderedFile").field("text", &text).finish_non_exhaustive()
    }
}

impl Rendered {
    /// Writes the Compose file as `compose.yaml` into a folder, and the other files beside it.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("compose.yaml"), &self.compose)?;
        for (name, file) in &self.files {
            let path = folder.join(name);
            if !file.secret {
                fs::write(path, &file.text)?;
                continue;
            }
            // Cut short, writing it again would lose the password that a running Postgres knows.
            if name == PASSWORD_FILE && password(folder)? == file.text {
                continue;
            }
            if let Some(parent) = path.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            }
            let mut options = fs::OpenOptions::new();
            let mut secret = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
            io::Write::write_all(&mut secret, file.text.as_bytes())?;
        }
        Ok(())
    }
}

/// The password for [`render`]: the one that was written into this folder before, for a Postgres that runs knows it, or else
/// a new one.
///
/// # Errors
/// When the one that is there cannot be read.
pub fn password(folder: &Path) -> io::Result<String> {
    match fs::read_to_string(folder.join(PASSWORD_FILE)) {
        Ok(kept) if !kept.trim().is_empty() => Ok(kept.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(uuid::Uuid::new_v4().simple().to_string()),
    }
}

/// The Compose file of an instance. `password` becomes that of its Postgres.
///
/// # Errors
/// Everything in the file that containers cannot run, with its line.
pub fn render(file: &InstanceFile, password: &str) -> Result<Rendered, Vec<FileFault>> {
    let mut plan = Plan { file, password, files: BTreeMap::new(), faults: Vec::new() };
    let services = plan.services();
    if !plan.faults.is_empty() {
        return Err(plan.faults);
    }
    let mut compose = json!({
        "services": services,
        "networks": {"env-network": {"driver": "bridge"}},
    });
    let secrets: Vec<(&str, &str)> = [("postgres_password", PASSWORD_FILE)]
        .into_iter()
        .filter(|(_, path)| plan.files.contains_key(*path))
        .chain(plan.control_token().map(|path| ("control_token", path)))
        .collect();
    if !secrets.is_empty() {
        compose["secrets"] =
            secrets.iter().map(|(name, path)| ((*name).to_owned(), json!({"file": literal(path)}))).collect();
    }
    if file.trajectory.is_some() {
        compose["volumes"] = json!({"trajectory": null});
    }
    Ok(Rendered { compose: yaml(&compose), files: plan.files })
}

struct Plan<'a> {
    file: &'a InstanceFile,
    password: &'a str,
    files: BTreeMap<String, RenderedFile>,
    faults: Vec<FileFault>,
}

impl Plan<'_> {
    fn services(&mut self) -> Value {
        let mut services = serde_json::Map::new();
        self.check_ports();
        if self.has_postgres() {
            services.insert(POSTGRES.to_owned(), self.postgres());
        }
        for server in &self.file.servers {
            self.check(server);
            if let Some(service) = self.server(server) {
                services.insert(server.name.clone(), service);
            }
        }
        services.insert(GATEWAY.to_owned(), self.gateway());
        if self.has_store() {
            services.insert(PGWEB.to_owned(), self.pgweb());
            services.insert(DATABASE.to_owned(), self.database());
        }
        Value::Object(services)
    }

    /// Whether there is a state store, in a container of its own or elsewhere.
    fn has_store(&self) -> bool {
        self.file.store_url.is_some() || self.has_postgres()
    }

    fn has_postgres(&self) -> bool {
        self.file.needs_postgres()
    }

    fn store_url(&self) -> Option<StoreUrl> {
        match &self.file.store_url {
            Some(url) => Some(url.clone()),
            None => {
                let password = utf8_percent_encode(self.password, NON_ALPHANUMERIC);
                format!("postgresql://{STORE}:{password}@{POSTGRES}:5432/{STORE}").parse().ok()
            }
        }
    }

    fn control_token(&self) -> Option<&str> {
        self.file.control_token_file.as_ref().and_then(|path| path.to_str())
    }

    /// A file with a variable that holds an address, for a service's `env_file`.
    fn env_file(&mut self, service: &str, variable: &str, url: &str) -> String {
        let path = format!("secrets/{service}.env");
        let text = format!("{variable}={}\n", utf8_percent_encode(url, IN_ENV_FILE));
        self.files.insert(path.clone(), RenderedFile { text, secret: true });
        path
    }

    /// Ports of the host that two services would be published at.
    fn check_ports(&mut self) {
        let file = self.file;
        let mut ports = vec![("port", file.port.unwrap_or(DEFAULT_PORT))];
        ports.extend(file.agent_port.map(|port| ("agent_port", port)));
        // These are published on the loopback address alone.
        if self.has_store() && is_local_host(&file.host) {
            ports.extend([(PGWEB, PGWEB_PORT), (DATABASE, DATABASE_PORT)]);
        }
        for (index, (key, port)) in ports.iter().enumerate() {
            if let Some((other, _)) = ports.iter().take(index).find(|(_, other)| other == port) {
                let message = format!(
                    "{other} and {key} are both {port} in a Compose file: give 'port' and 'agent_port' others"
                );
                self.faults.push(FileFault { line: 0, message });
            }
        }
    }

    /// What a container cannot be named or reach.
    fn check(&mut self, server: &Server) {
        let Server { line, name, .. } = server;
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !name.chars().all(letters) {
            let message =
                format!("server '{name}': a Compose service is named with letters, digits, '.', '_' and '-'");
            self.faults.push(FileFault { line: *line, message });
        }
        if [GATEWAY, POSTGRES, PGWEB, DATABASE].contains(&name.as_str()) {
            let message = format!("server '{name}': the instance has a service of its own of that name");
            self.faults.push(FileFault { line: *line, message });
        }
        if let Place::Url(url) = &server.place
            && is_local(url)
        {
            let message =
                format!("server '{name}': {url} is this machine's own address, which no container reaches");
            self.faults.push(FileFault { line: *line, message });
        }
    }

    fn server(&mut self, server: &Server) -> Option<Value> {
        let Server { line, name, .. } = server;
        let env = match &server.place {
            Place::Url(_) => return None,
            Place::Env(env) => Some(env),
            Place::Command(_) => None,
        };
        let image = server.image.as_ref().or(self.file.compose.program.as_ref().filter(|_| env.is_some()));
        let Some(image) = image else {
            let missing = if env.is_some() { "'image', or [compose] a 'program'" } else { "'image'" };
            let message = format!("server '{name}': containers run images: give it an {missing}");
            self.faults.push(FileFault { line: *line, message });
            return None;
        };
        let mut variables = BTreeMap::from([
            ("MCP_HOST", "0.0.0.0".to_owned()),
            ("MCP_PORT", DEFAULT_PORT.to_string()),
            ("ENVIRONMENT_NAME", name.clone()),
        ]);
        variables.extend(server.environment.iter().map(|(key, value)| (key.as_str(), literal(value))));
        let mut service = json!({"image": literal(image), "environment": variables});
        if let Some(env) = env.filter(|_| server.image.is_none()) {
            service["command"] = json!(["serve", literal(env)]);
        }
        if server.store
            && let Some(url) = self.store_url()
        {
            let path = self.env_file(name, "DATABASE_URL", &url.for_schema(name));
            service["env_file"] = json!([path]);
            self.after_postgres(&mut service);
        }
        service["healthcheck"] = health(DEFAULT_PORT);
        service["stop_grace_period"] = json!(STOP_GRACE);
        service["networks"] = json!(["env-network"]);
        Some(service)
    }

    fn after_postgres(&self, service: &mut Value) {
        if self.has_postgres() {
            service["depends_on"] = json!({POSTGRES: {"condition": "service_healthy"}});
        }
    }

    fn gateway(&mut self) -> Value {
        let file = self.file;
        let (mut children, mut services, mut awaited) = (Vec::new(), Vec::new(), serde_json::Map::new());
        if self.has_postgres() {
            awaited.insert(POSTGRES.to_owned(), json!({"condition": "service_healthy"}));
        }
        for Server { name, place, .. } in &file.servers {
            if let Place::Url(url) = place {
                let base = url.as_str().trim_end_matches('/');
                children.push(format!("{name}={base}/mcp"));
                services.push(format!("mcp-{name}={base}"));
            } else {
                children.push(name.clone());
                services.push(format!("mcp-{name}=http://{name}:{DEFAULT_PORT}"));
                awaited.insert(name.clone(), json!({"condition": "service_healthy"}));
            }
        }
        let mode = match file.mode {
            Mode::Performance => "performance",
            Mode::Consistent => "consistent",
        };
        let mut variables = BTreeMap::from([
            ("MCP_HOST", "0.0.0.0".to_owned()),
            ("MCP_PORT", DEFAULT_PORT.to_string()),
            ("MCP_SERVER_NAME", literal(&file.name)),
            ("INTERNAL_MCP_SERVERS", literal(&children.join(","))),
            ("INTERNAL_MCP_PORT", DEFAULT_PORT.to_string()),
            ("REST_PROXY_URLS", literal(&services.join(","))),
            ("GATEWAY_MODE", mode.to_owned()),
            ("GATEWAY_INTERNAL_SERVER_TIMEOUT_S", file.start_timeout.as_secs_f64().to_string()),
        ]);
        if !file.websites.is_empty() {
            let sites: Vec<String> =
                file.websites.iter().map(|site| format!("{}={}", site.name, site.url)).collect();
            variables.insert("WEBSITE_URLS", literal(&sites.join(",")));
        }
        if !file.roles.is_empty() {
            variables.insert("GATEWAY_ROLE_RULES", literal(&json!(file.rules().views()).to_string()));
        }
        let mut ports =
            vec![format!("{}:{}:{DEFAULT_PORT}", bracketed(&file.host), file.port.unwrap_or(DEFAULT_PORT))];
        if let Some(port) = file.agent_port {
            let inner = if port == DEFAULT_PORT { AGENT_PORT } else { port };
            variables.insert("GATEWAY_AGENT_PORT", inner.to_string());
            ports.push(format!("{}:{port}:{inner}", bracketed(&file.host)));
        }
        let image = file.compose.gateway.as_deref().unwrap_or(GATEWAY_IMAGE);
        let mut service = json!({"image": literal(image), "restart": "on-failure"});
        if let Some(path) = &file.trajectory {
            let name = path
                .file_name()
                .map_or("trajectory.jsonl".into(), |name| name.to_string_lossy().into_owned());
            variables.insert("GATEWAY_TRAJECTORY_FILE", literal(&format!("{TRAJECTORY_FOLDER}/{name}")));
            service["volumes"] = json!([format!("trajectory:{TRAJECTORY_FOLDER}")]);
        }
        if self.control_token().is_some() {
            variables.insert("GATEWAY_CONTROL_TOKEN_FILE", "/run/secrets/control_token".to_owned());
            service["secrets"] = json!(["control_token"]);
        }
        if self.has_store()
            && let Some(url) = self.store_url()
        {
            let path = self.env_file(GATEWAY, "SERVICE_DB_URL", url.expose());
            service["env_file"] = json!([path]);
        }
        service["environment"] = json!(variables);
        service["ports"] = json!(ports);
        if !awaited.is_empty() {
            service["depends_on"] = Value::Object(awaited);
        }
        service["healthcheck"] = health(DEFAULT_PORT);
        service["stop_grace_period"] = json!(STOP_GRACE);
        service["networks"] = json!(["env-network"]);
        service
    }

    fn postgres(&mut self) -> Value {
        let password = RenderedFile { text: self.password.to_owned(), secret: true };
        self.files.insert(PASSWORD_FILE.to_owned(), password);
        let schemas = self.file.servers.iter().filter(|server| server.store);
        let schemas = schemas
            .map(|server| format!("CREATE SCHEMA IF NOT EXISTS {};\n", quoted(&server.name)))
            .collect();
        self.files.insert("schemas.sql".to_owned(), RenderedFile { text: schemas, secret: false });
        json!({
            "image": literal(self.file.compose.postgres.as_deref().unwrap_or(POSTGRES_IMAGE)),
            "environment": {
                "POSTGRES_USER": STORE,
                "POSTGRES_DB": STORE,
                "POSTGRES_PASSWORD_FILE": "/run/secrets/postgres_password",
            },
            "secrets": ["postgres_password"],
            "volumes": ["./schemas.sql:/docker-entrypoint-initdb.d/schemas.sql:ro"],
            "healthcheck": {
                // Over TCP: while it runs the scripts above, it listens on its socket alone.
                "test": ["CMD-SHELL", format!("pg_isready -h 127.0.0.1 -U {STORE} -d {STORE}")],
                "interval": "2s",
                "timeout": "5s",
                "retries": 30,
            },
            "networks": ["env-network"],
        })
    }

    fn pgweb(&mut self) -> Value {
        let url = self.store_url().map(|url| url.expose().to_owned()).unwrap_or_default();
        let plain = if url.contains('?') { "&sslmode=disable" } else { "?sslmode=disable" };
        let path = self.env_file(PGWEB, "PGWEB_DATABASE_URL", &format!("{url}{plain}"));
        let mut service = json!({
            "image": literal(self.file.compose.pgweb.as_deref().unwrap_or(PGWEB_IMAGE)),
            "restart": "unless-stopped",
            "environment": {"PGWEB_LOCK_SESSION": "true"},
            "env_file": [path],
            "ports": [format!("127.0.0.1:{PGWEB_PORT}:{PGWEB_PORT}")],
            "networks": ["env-network"],
        });
        self.after_postgres(&mut service);
        service
    }

    fn database(&mut self) -> Value {
        let url = self.store_url().map(|url| url.expose().to_owned()).unwrap_or_default();
        let path = self.env_file(DATABASE, "DATABASE_URL", &url);
        let mut service = json!({
            "image": literal(self.file.compose.gateway.as_deref().unwrap_or(GATEWAY_IMAGE)),
            "command": ["database"],
            "restart": "unless-stopped",
            "environment": {"MCP_HOST": "0.0.0.0", "MCP_PORT": DEFAULT_PORT.to_string()},
            "env_file": [path],
            "ports": [format!("127.0.0.1:{DATABASE_PORT}:{DEFAULT_PORT}")],
            "healthcheck": health(DEFAULT_PORT),
            "networks": ["env-network"],
        });
        self.after_postgres(&mut service);
        service
    }
}

/// Whether the container's server listens. Which programs an image has is not known, so whichever it has asks.
fn health(port: u16) -> Value {
    let python = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 2).close()");
    let asks = [
        format!("python3 -c \"{python}\""),
        format!("wget -q -O /dev/null http://127.0.0.1:{port}/ready"),
        format!("curl -fs -o /dev/null http://127.0.0.1:{port}/ready"),
    ];
    json!({
        "test": ["CMD-SHELL", asks.map(|ask| format!("{ask} 2>/dev/null")).join(" || ")],
        "interval": "2s",
        "timeout": "10s",
        "retries": 90,
    })
}

/// Text that Compose takes as it stands: it would put variables in for `$`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

/// Whether what listens on this address of the host is reached over the loopback address too.
fn is_local_host(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    ip.map_or(host == "localhost", |ip| ip.is_loopback() || ip.is_unspecified())
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unspecified(),
        None => false,
    }
}

#[cfg(test)]
mod tests;
