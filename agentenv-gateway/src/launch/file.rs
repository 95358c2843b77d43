//! The instance file, `instance.toml`: what an instance is made of. It is read whole, and everything that is wrong with it
//! is told at once, with its line. Nothing is started here.

mod cursor;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentenv_protocol::access::{Access, AccessRules, ToolSet};
use agentenv_protocol::environment::find_linked;
use url::Url;

use self::cursor::{Cursor, Faults, Table};
use crate::config::{Named, START_TIMEOUT, http_url};
use crate::instance::Mode;
use crate::store::StoreUrl;

/// What a file is called that has no name.
const UNNAMED: &str = "instance.toml";

/// What an instance is made of.
///
/// ```
/// use agentenv_gateway::launch::file::{InstanceFile, Place};
///
/// let text = r#"
///     name = "office"
///     mode = "consistent"
///
///     [[server]]
///     name = "wiki"
///     command = ["python3", "wiki.py"]
///     store = true
///     seed = "pages.json"
///
///     [[server]]
///     name = "maps"
///     url = "http://127.0.0.1:9000"
///
///     [roles.assistant]
///     disable = ["wiki_write"]
/// "#;
/// let office = InstanceFile::parse(text, "/srv/office".as_ref()).unwrap();
/// assert!(matches!(&office.servers[0].place, Place::Command(words) if words[0] == "python3"));
/// assert_eq!(office.servers[0].seeds, ["/srv/office/pages.json".as_ref() as &std::path::Path]);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InstanceFile {
    /// The file itself, as it was named.
    pub path: PathBuf,
    /// The folder that relative paths begin at.
    pub folder: PathBuf,
    /// `name`: that of the instance's MCP server and card.
    pub name: String,
    /// `host`: the address to listen on; 127.0.0.1 unless given.
    pub host: String,
    /// `port`: the gateway's; one that is free unless given.
    pub port: Option<u16>,
    /// `agent_port`: that of a second listener which serves agents alone.
    pub agent_port: Option<u16>,
    /// `control_token_file`: holds the token that the harness's routes ask for.
    pub control_token_file: Option<PathBuf>,
    /// `mode`: `performance` unless given (contract 8).
    pub mode: Mode,
    /// `start_timeout`: how long a server may take to come up, in seconds; 180 unless given.
    pub start_timeout: Duration,
    /// `trajectory`: the file of the log of calls.
    pub trajectory: Option<PathBuf>,
    /// `store_url`, or what the file `store_url_file` holds: the state store's Postgres.
    pub store_url: Option<StoreUrl>,
    /// `[[server]]`, in their order, which is that of their tools.
    pub servers: Vec<Server>,
    /// `[websites]`: what `/website/<name>/` leads to.
    pub websites: Vec<Named>,
    /// `[roles.<role>]`: the rules to begin with.
    pub roles: Vec<RoleRules>,
    /// `[compose]`: what only a Compose file needs.
    pub compose: ComposeImages,
}

/// A server of the instance.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Server {
    /// The line of the file on which it begins.
    pub line: usize,
    /// `name`: the environment's.
    pub name: String,
    /// `command`, `url` or `env`: what it is.
    pub place: Place,
    /// `folder`: where the command runs; the file's folder unless given.
    pub folder: PathBuf,
    /// `port`: the command's; one that is free unless given.
    pub port: Option<u16>,
    /// `seed`: files that are loaded into it once it is up.
    pub seeds: Vec<PathBuf>,
    /// `store`: whether it keeps its state in the instance's Postgres, and so gets a `DATABASE_URL`.
    pub store: bool,
    /// `environment`: variables of its own.
    pub environment: BTreeMap<String, String>,
    /// `image`: the container image that a Compose file runs it from.
    pub image: Option<String>,
}

/// What a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A program of this machine and its arguments. It is told its port by `MCP_PORT` (contract 2.7).
    Command(Vec<String>),
    /// A server that runs already, by its base URL.
    Url(Url),
    /// An environment that is linked into this program, by its declared name.
    Env(String),
}

/// The rules that a role begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoleRules {
    /// The role, or `*`.
    pub role: String,
    /// `disable`: tools that are off, `"*"` for all.
    pub disable: Option<ToolSet>,
    /// `enable`: tools that are on all the same.
    pub enable: Option<ToolSet>,
}

/// Container images that are not a server's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComposeImages {
    /// `gateway`: the gateway's.
    pub gateway: Option<String>,
    /// `program`: that of the program into which the `env` servers are linked.
    pub program: Option<String>,
    /// `postgres`: the state store's.
    pub postgres: Option<String>,
    /// `pgweb`: its web page's.
    pub pgweb: Option<String>,
}

/// Something that is wrong with an instance file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileFault {
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub message: String,
}

/// Everything that is wrong with an instance file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    /// The file, as it was named.
    pub path: PathBuf,
    /// What is wrong.
    pub faults: Vec<FileFault>,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FileFault { line, message }) in self.faults.iter().enumerate() {
            let next = if index == 0 { "" } else { "\n" };
            match line {
                0 => write!(f, "{next}{}: {message}", self.path.display())?,
                _ => write!(f, "{next}{}:{line}: {message}", self.path.display())?,
            }
        }
        Ok(())
    }
}

impl InstanceFile {
    /// Reads a file, and looks at the files and linked environments that it names.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let failed = |faults| FileError { path: path.to_owned(), faults };
        let text = fs::read_to_string(path).map_err(|error| {
            failed(vec![FileFault { line: 0, message: format!("cannot be read: {error}") }])
        })?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned());
        let mut faults = Faults::new(&text);
        let mut file = read(&mut faults, &folder);
        path.clone_into(&mut file.path);
        for server in &file.servers {
            server.look(&mut faults);
        }
        faults.into_result(file).map_err(failed)
    }

    /// Reads the text of a file whose relative paths begin at `folder`, without looking at anything else.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, FileError> {
        let mut faults = Faults::new(text);
        let file = read(&mut faults, folder);
        faults.into_result(file).map_err(|faults| FileError { path: PathBuf::from(UNNAMED), faults })
    }

    /// Reads the text that a program brings along, whose relative paths begin at the working folder, and looks at what it
    /// names.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn own(text: &str) -> Result<Self, FileError> {
        let folder = std::path::absolute(".").unwrap_or_else(|_| PathBuf::from("."));
        let mut faults = Faults::new(text);
        let file = read(&mut faults, &folder);
        for server in &file.servers {
            server.look(&mut faults);
        }
        faults.into_result(file).map_err(|faults| FileError { path: PathBuf::from(UNNAMED), faults })
    }

    /// Whether a server keeps its state in a Postgres that has to be started.
    pub fn needs_postgres(&self) -> bool {
        self.store_url.is_none() && self.servers.iter().any(|server| server.store)
    }

    /// The rules that the roles begin with (contract 4.1): what is off, then what is on all the same.
    pub fn rules(&self) -> AccessRules {
        let mut rules = AccessRules::new();
        for RoleRules { role, disable, enable } in &self.roles {
            for (access, tools) in [(Access::Disable, disable), (Access::Enable, enable)] {
                if let Some(tools) = tools {
                    // Only more roles than a file has lines for are too many.
                    let _ = rules.apply(access, role, tools);
                }
            }
        }
        rules
    }
}

impl Server {
    /// Looks at what its entry names.
    fn look(&self, faults: &mut Faults<'_>) {
        let name = &self.name;
        for seed in &self.seeds {
            let wrong = match fs::read(seed) {
                Err(error) => Some(format!("cannot be read: {error}")),
                Ok(bytes) if seed.extension().is_some_and(|extension| extension == "json") => {
                    serde_json::from_slice::<serde::de::IgnoredAny>(&bytes)
                        .err()
                        .map(|error| format!("is not JSON: {error}"))
                }
                Ok(_) => None,
            };
            if let Some(wrong) = wrong {
                faults.add(self.line, format!("server '{name}': seed {} {wrong}", seed.display()));
            }
        }
        if let Place::Env(env) = &self.place
            && find_linked(env).is_none_or(|env| (env.constructor)().is_none())
        {
            faults.add(
                self.line,
                format!("server '{name}': no environment '{env}' with a Default is linked into this program"),
            );
        }
        if matches!(self.place, Place::Command(_)) && !self.folder.is_dir() {
            faults.add(self.line, format!("server '{name}': {} is no folder", self.folder.display()));
        }
    }
}

fn read(faults: &mut Faults<'_>, folder: &Path) -> InstanceFile {
    let document = faults.document();
    let mut top = Table::top(&document);
    let name = top.take("name").and_then(|name| name.word(faults));
    if name.is_none() && !top.had("name") {
        faults.add(0, "has no 'name'".to_owned());
    }
    let store_url = store_url(&mut top, faults, folder);
    let mut file = InstanceFile {
        path: PathBuf::from(UNNAMED),
        folder: folder.to_owned(),
        name: name.unwrap_or_default(),
        host: top.take("host").and_then(|host| host.word(faults)).unwrap_or_else(|| "127.0.0.1".to_owned()),
        port: top.take("port").and_then(|port| port.port(faults)),
        agent_port: top.take("agent_port").and_then(|port| port.port(faults)),
        control_token_file: top.take("control_token_file").and_then(|path| path.path(faults, folder)),
        mode: top.take("mode").and_then(|mode| mode_of(mode, faults)).unwrap_or_default(),
        start_timeout: top
            .take("start_timeout")
            .and_then(|time| time.seconds(faults))
            .unwrap_or(START_TIMEOUT),
        trajectory: top.take("trajectory").and_then(|path| path.path(faults, folder)),
        store_url,
        servers: Vec::new(),
        websites: Vec::new(),
        roles: Vec::new(),
        compose: ComposeImages::default(),
    };
    let has_store = file.store_url.is_some();
    let entries = top.take("server").map(|servers| servers.tables(faults, "[[server]]")).unwrap_or_default();
    for entry in entries {
        if let Some(server) = server_of(entry, faults, folder, has_store) {
            file.servers.push(server);
        }
    }
    file.websites = top.take("websites").map(|sites| websites(sites, faults)).unwrap_or_default();
    file.roles = top.take("roles").map(|roles| roles_of(roles, faults)).unwrap_or_default();
    if let Some(mut images) = top.take("compose").and_then(|images| images.table(faults)) {
        let mut image = |key| images.take(key).and_then(|image| image.word(faults));
        file.compose = ComposeImages {
            gateway: image("gateway"),
            program: image("program"),
            postgres: image("postgres"),
            pgweb: image("pgweb"),
        };
        images.finish(faults, "[compose]");
    }
    top.finish(faults, "the file");
    if file.servers.is_empty() && !top.had("server") {
        faults.add(0, "has no [[server]]".to_owned());
    }
    twice(&file, faults);
    file
}

/// Names and ports that two have.
fn twice(file: &InstanceFile, faults: &mut Faults<'_>) {
    let (mut names, mut ports) = (BTreeMap::new(), BTreeMap::new());
    for (port, key) in [(file.port, "port"), (file.agent_port, "agent_port")] {
        if let Some(port) = port.filter(|port| *port != 0)
            && let Some(other) = ports.insert(port, key.to_owned())
        {
            faults.add(0, format!("{key} {port} is {other} too"));
        }
    }
    for server in &file.servers {
        if let Some(line) = names.insert(&server.name, server.line) {
            faults.add(
                server.line,
                format!("the name '{}' is that of the server on line {line} too", server.name),
            );
        }
        if let Some(port) = server.port.filter(|port| *port != 0)
            && let Some(other) = ports.insert(port, format!("that of server '{}'", server.name))
        {
            faults.add(server.line, format!("server '{}': port {port} is {other} too", server.name));
        }
    }
}

fn mode_of(mode: Cursor<'_>, faults: &mut Faults<'_>) -> Option<Mode> {
    match mode.text(faults)?.as_str() {
        "performance" => Some(Mode::Performance),
        "consistent" => Some(Mode::Consistent),
        other => mode.wrong(faults, format!("'{other}' is neither 'performance' nor 'consistent'")),
    }
}

fn store_url(top: &mut Table<'_>, faults: &mut Faults<'_>, folder: &Path) -> Option<StoreUrl> {
    let given = top.take("store_url").map(|url| (url, url.text(faults)));
    let from = top.take("store_url_file").map(|path| (path, path.path(faults, folder)));
    let (at, text) = match (given, from) {
        (Some(_), Some((at, _))) => return at.wrong(faults, "is there besides store_url".to_owned()),
        (Some((at, text)), None) => (at, text?),
        (None, Some((at, path))) => {
            let path = path?;
            match fs::read_to_string(&path) {
                Ok(text) => (at, text),
                Err(error) => return at.wrong(faults, format!("{} cannot be read: {error}", path.display())),
            }
        }
        (None, None) => return None,
    };
    match text.parse() {
        Ok(url) => Some(url),
        Err(error) => at.wrong(faults, error.to_string()),
    }
}

fn server_of(
    mut entry: Table<'_>,
    faults: &mut Faults<'_>,
    folder: &Path,
    has_store: bool,
) -> Option<Server> {
    let line = entry.line(faults);
    let named = entry.take("name").map(|name| name.name(faults));
    if named.is_none() {
        faults.add(line, "a [[server]] has no 'name'".to_owned());
    }
    let of = match &named {
        Some(Some(name)) => format!("server '{name}'"),
        _ => "a [[server]]".to_owned(),
    };
    let command = entry.take("command").map(|command| command.words(faults).map(Place::Command));
    let url = entry.take("url").map(|url| {
        let text = url.text(faults)?;
        match http_url(&text) {
            Some(url) => Some(Place::Url(url)),
            None => url.wrong(faults, format!("'{text}' is not an http:// URL with a host")),
        }
    });
    let env = entry.take("env").map(|env| env.word(faults).map(Place::Env));
    let mut places: Vec<Option<Place>> = [command, url, env].into_iter().flatten().collect();
    if places.len() != 1 {
        let said = if places.is_empty() { "none" } else { "more than one" };
        faults.add(line, format!("{of} must have one of 'command', 'url' and 'env', and has {said}"));
    }
    let store = entry.take("store").and_then(|store| store.boolean(faults)).unwrap_or_default();
    let own_folder = entry.take("folder").map(|own| (own, own.path(faults, folder)));
    let port = entry.take("port").map(|port| (port, port.port(faults)));
    let environment = entry.take("environment").map(|variables| (variables, variables.texts(faults)));
    // What only a process can have.
    let place = places.pop().flatten();
    if let Some(Place::Url(_) | Place::Env(_)) = place {
        let is_url = matches!(place, Some(Place::Url(_)));
        let fields = [
            ("folder", own_folder.as_ref().map(|(at, _)| *at), true),
            ("port", port.as_ref().map(|(at, _)| *at), true),
            ("environment", environment.as_ref().map(|(at, _)| *at), is_url),
        ];
        for (field, at, refused) in fields {
            if let Some(at) = at.filter(|_| refused) {
                let _: Option<()> = at.wrong(faults, format!("'{field}' is for a server with a command"));
            }
        }
        if is_url && store && !has_store {
            faults.add(
                line,
                format!(
                    "{of} runs already, so its store cannot be started for it: give the file a 'store_url'"
                ),
            );
        }
    }
    let server = Server {
        line,
        name: named.flatten().unwrap_or_default(),
        place: place.unwrap_or(Place::Command(Vec::new())),
        folder: own_folder.and_then(|(_, path)| path).unwrap_or_else(|| folder.to_owned()),
        port: port.and_then(|(_, port)| port),
        seeds: entry.take("seed").map(|seed| seed.paths(faults, folder)).unwrap_or_default(),
        store,
        environment: environment.map(|(_, variables)| variables).unwrap_or_default(),
        image: entry.take("image").and_then(|image| image.word(faults)),
    };
    entry.finish(faults, &of);
    (!server.name.is_empty()).then_some(server)
}

fn websites(sites: Cursor<'_>, faults: &mut Faults<'_>) -> Vec<Named> {
    let mut named = Vec::new();
    for (name, url) in sites.entries(faults) {
        let Some(name) = name.name(faults) else { continue };
        let Some(text) = url.text(faults) else { continue };
        match http_url(&text) {
            Some(url) => named.push(Named { name, url }),
            None => {
                url.wrong(faults, format!("'{text}' is not an http:// URL with a host")).unwrap_or_default()
            }
        }
    }
    named
}

fn roles_of(roles: Cursor<'_>, faults: &mut Faults<'_>) -> Vec<RoleRules> {
    let mut all = Vec::new();
    for (name, rules) in roles.entries(faults) {
        let role = name.text();
        if role.is_empty() {
            let _: Option<()> = name.wrong(faults, "a role has no name");
        }
        let Some(mut rules) = rules.table(faults) else { continue };
        let mut tools = |key| rules.take(key).and_then(|tools| tools.tools(faults));
        let (disable, enable) = (tools("disable"), tools("enable"));
        rules.finish(faults, &format!("[roles.{role}]"));
        all.push(RoleRules { role, disable, enable });
    }
    all
}

#[cfg(test)]
mod tests;
