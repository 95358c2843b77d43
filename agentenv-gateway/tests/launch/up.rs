//! A whole instance comes up from its file, says in one line what is wrong, and leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use agentenv_gateway::launch::file::InstanceFile;
use agentenv_gateway::launch::up::{Up, UpError};
use agentenv_protocol::client::EnvClient;
use agentenv_protocol::prelude::*;
use agentenv_protocol::server::serve;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::processes::{command, eventually, kill, members};

/// Tells the copy of this program that a file starts that it is a server.
const ACTS_AS_SERVER: &str = "AGENTENV_TEST_IS_A_SERVER";

/// What an environment that is linked into this program keeps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Notes {
    notes: Vec<String>,
}

/// Notes in memory.
#[environment_card(name = "notes")]
#[derive(Default)]
struct NotesEnv {
    #[data]
    notes: Data<Notes>,
}

#[environment]
impl NotesEnv {
    /// How many notes there are.
    #[tool(name = "{environment_name}_count", read_only)]
    fn count(&self) -> usize {
        self.notes.read(|notes| notes.notes.len())
    }
}

/// Has a tool that another of its kind would have too.
#[environment_card(name = "clashing")]
#[derive(Default)]
struct ClashingEnv;

#[environment]
impl ClashingEnv {
    /// Nothing.
    #[tool(read_only)]
    fn same(&self) -> bool {
        true
    }
}

/// Pages in Postgres.
#[environment_card(name = "wiki")]
#[derive(Default)]
struct WikiEnv;

impl WikiEnv {
    async fn run(sql: &str, id: i32) -> Result<(), ToolError> {
        let url = std::env::var("DATABASE_URL").map_err(|_| ToolError::new("no_store", "no DATABASE_URL"))?;
        let failed = |error: tokio_postgres::Error| ToolError::new("store", error.to_string());
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.map_err(failed)?;
        tokio::spawn(connection);
        client.batch_execute("CREATE TABLE IF NOT EXISTS page (id int PRIMARY KEY)").await.map_err(failed)?;
        client.execute(sql, &[&id]).await.map_err(failed)?;
        Ok(())
    }
}

/// What a wiki begins with.
#[derive(Deserialize)]
struct Pages {
    pages: Vec<i32>,
}

#[environment]
impl WikiEnv {
    /// Write a page.
    #[tool]
    async fn wiki_write(&self, id: i32) -> Result<bool, ToolError> {
        Self::run("INSERT INTO page VALUES ($1)", id).await?;
        Ok(true)
    }

    #[add_data]
    async fn add(&self, seed: Pages) -> Result<(), ToolError> {
        for id in seed.pages {
            Self::run("INSERT INTO page VALUES ($1)", id).await?;
        }
        Ok(())
    }
}

/// Not a test of its own: the server that files start.
#[tokio::test]
async fn a_server() {
    if std::env::var_os(ACTS_AS_SERVER).is_some() {
        serve(WikiEnv).await.unwrap();
    }
}

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("agentenv-test-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind fails no test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The lines of a server that this program itself is.
fn wiki() -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "[[server]]\nname = \"wiki\"\ncommand = [\"{}\", \"--exact\", \"up::a_server\", \"--nocapture\"]\n\
         store = true\nenvironment = {{ {ACTS_AS_SERVER} = \"1\" }}\n",
        program.display()
    )
}

fn quiet() -> agentenv_gateway::launch::process::Output {
    Arc::new(|_, _| {})
}

/// Our own processes that run `words`, whoever their parents are.
fn running(words: &str) -> Vec<u32> {
    let ids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| command(*id).contains(words)).collect()
}

/// Whether a process was told this port.
fn has_port(process: u32, port: &str) -> bool {
    let variables = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    variables.split(|byte| *byte == 0).any(|variable| variable == format!("MCP_PORT={port}").as_bytes())
}

#[tokio::test]
async fn an_instance_comes_up_with_what_it_begins_with_and_goes_without_a_trace() {
    let folder = Folder::new();
    folder.write("notes.json", r#"{"notes": ["one", "two"]}"#);
    folder.write("pages.json", r#"{"pages": [1, 2]}"#);
    let text = format!(
        "name = \"office\"\ntrajectory = \"log.jsonl\"\n{}seed = \"pages.json\"\n\
         [[server]]\nname = \"notes\"\nenv = \"notes\"\nseed = \"notes.json\"\n[roles.guest]\ndisable = [\"wiki_write\"]",
        wiki()
    );
    let file = InstanceFile::load(&folder.write("instance.toml", &text)).unwrap();
    let up = Up::start(&file, quiet(), None).await.unwrap();
    let report = up.report().clone();
    assert!(report.servers["wiki"].is_some() && report.servers["notes"].is_none());
    let port = report.servers["wiki"].as_ref().unwrap().rsplit_once(':').unwrap().1;
    let server = running("up::a_server").into_iter().find(|id| has_port(*id, port)).unwrap();

    let stop = CancellationToken::new();
    let serving = tokio::spawn(up.serve(stop.clone()));
    let office = EnvClient::new(&report.url).unwrap();
    let card = office.get_card().await.unwrap();
    let tools = office.open_tools(&card).await.unwrap();
    let names: Vec<String> = tools.list().await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["wiki_write", "notes_count"]);
    assert_eq!(tools.call("notes_count", &json!({})).await.unwrap().text(), "2");
    assert_eq!(tools.call("wiki_write", &json!({"id": 3})).await.unwrap().text(), "true");
    let guest = office.clone().with_role("guest").unwrap().open_tools(&card).await.unwrap();
    assert_eq!(guest.list().await.unwrap().len(), 1);
    // The changelog begins after what was loaded.
    let changes: Value =
        office.invoke_extension(&card, "urn:agentenv:changes/v1", "get", &json!({})).await.unwrap();
    assert_eq!(changes["changes"].as_array().unwrap().len(), 1, "{changes}");
    assert_eq!(changes["changes"][0]["row_id"], "3");
    assert_eq!(changes["changes"][0]["actors"][0]["tool"], "wiki_write");

    let store = report.store_url.unwrap();
    let port = store.rsplit_once('/').unwrap().0.rsplit_once(':').unwrap().1.to_owned();
    assert!(!running(&format!("-p {port} ")).is_empty());
    stop.cancel();
    serving.await.unwrap().unwrap();
    eventually("the server is gone", || !Path::new(&format!("/proc/{server}/exe")).exists()).await;
    eventually("its Postgres is gone", || running(&format!("-p {port} ")).is_empty()).await;
    assert!(std::fs::read_to_string(folder.0.join("log.jsonl")).unwrap().contains("wiki_write"));
}

/// What is wrong with an instance of which one server is fine.
async fn fault(rest: &str, files: &[(&str, &str)]) -> (UpError, Vec<u32>) {
    let folder = Folder::new();
    for (name, text) in files {
        folder.write(name, text);
    }
    let mark = format!("sleep 10{}", std::process::id());
    let helper = format!("[[server]]\nname = \"fine\"\ncommand = [\"sh\", \"-c\", \"{mark}; true\"]\n");
    let text = format!("name = \"x\"\nstart_timeout = 1\n{rest}");
    let text = if rest.contains("[[server]]") { format!("{text}\n{helper}") } else { text };
    let file = InstanceFile::load(&folder.write("instance.toml", &text)).unwrap();
    let error = Up::start(&file, quiet(), None).await.unwrap_err();
    let left = running(&mark).into_iter().filter(|id| !members(*id).is_empty()).collect();
    (error, left)
}

#[tokio::test]
async fn what_is_wrong_is_said_in_one_line_and_everything_is_taken_down() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let server = |rest: &str| format!("[[server]]\nname = \"bad\"\n{rest}");
    for (rest, said) in [
        (
            server("command = [\"sh\", \"-c\", \"echo 'no config' >&2; exit 3\"]"),
            "bad: exited with status 3: no config",
        ),
        (server("command = [\"no-such-program\"]"), "bad: there is no program 'no-such-program'"),
        (server(&format!("command = [\"true\"]\nport = {port}")), &*format!("bad: port {port} is taken")),
        (format!("port = {port}\n{}", server("env = \"notes\"")), "cannot listen on 127.0.0.1:"),
        (server("env = \"notes\"\nseed = \"bad.json\""), "bad: seed "),
        (
            format!(
                "store_url = \"postgresql://x:s3cret@127.0.0.1:1/x\"\n{}",
                server("command = [\"true\"]\nstore = true")
            ),
            "bad: the state store is not reachable",
        ),
    ] {
        // Without the server that is fine, the one that is not is the only one to wait for.
        let (error, left) = fault(&rest, &[("bad.json", r#"{"notes": 5}"#)]).await;
        let error = error.to_string();
        assert!(
            error.lines().all(|line| line.starts_with(said)) || rest.contains("seed"),
            "{error} instead of {said}"
        );
        assert!(!error.contains("s3cret"));
        assert!(left.is_empty(), "{left:?} still run after {error}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_named() {
    let (error, left) = fault("[[server]]\nname = \"bad\"\ncommand = [\"sleep\", \"1000\"]", &[]).await;
    let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    assert!(lines.iter().any(|line| line.starts_with("bad: not ready after 1 s")), "{lines:?}");
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_tool_that_two_linked_environments_have_is_said_with_their_lines() {
    let text = "name = \"x\"\n[[server]]\nname = \"one\"\nenv = \"clashing\"\n[[server]]\nname = \"two\"\nenv = \"clashing\"";
    let file = InstanceFile::parse(text, Path::new("/")).unwrap();
    let error = Up::start(&file, quiet(), None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "instance.toml:5: server 'two': its tool 'same' is server 'one''s on line 2 too"
    );
}

fn gateway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentenv-gateway"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn the_command_says_what_is_wrong_and_fails() {
    let folder = Folder::new();
    let path = folder.write("instance.toml", "name = \"x\"\nprot = 1\n");
    let Output { status, stdout, stderr } = gateway(&["up", &path.to_string_lossy()]).output().await.unwrap();
    assert_eq!(status.code(), Some(2));
    let shown = path.display();
    assert_eq!(
        text(&stderr),
        format!(
            "{shown}: has no [[server]]\n{shown}:2: the file has an unknown key 'prot', perhaps 'port' was meant\n"
        )
    );
    assert!(stdout.is_empty());
    for (arguments, status) in
        [(&["--help"][..], 0), (&["nothing"], 2), (&["up", "--what"], 2), (&["up", "none.toml"], 2)]
    {
        let output = gateway(arguments).output().await.unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(output.stderr.is_empty(), status == 0, "{arguments:?}");
    }
}

#[tokio::test]
async fn a_command_that_is_killed_leaves_nothing() {
    let folder = Folder::new();
    let path = folder.write("instance.toml", &format!("name = \"office\"\n{}", wiki()));
    let path = path.to_string_lossy().into_owned();
    let mut up =
        gateway(&["up", "--json", &path]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let line =
        BufReader::new(up.stdout.take().unwrap()).lines().next_line().await.unwrap().expect("it failed");
    let report: Value = serde_json::from_str(&line).unwrap();
    let postgres = format!(
        "-p {} ",
        report["store_url"].as_str().unwrap().rsplit_once(':').unwrap().1.split('/').next().unwrap()
    );
    let port = report["servers"]["wiki"].as_str().unwrap().rsplit_once(':').unwrap().1;
    let serves = || running("up::a_server").into_iter().any(|id| has_port(id, port));
    assert!(serves() && !running(&postgres).is_empty());
    kill(up.id().unwrap(), "KILL").await;
    up.wait().await.unwrap();
    eventually("the server is gone", || !serves()).await;
    eventually("Postgres is gone", || running(&postgres).is_empty()).await;
}

#[tokio::test]
async fn a_command_that_waits_leaves_the_instance_up() {
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_agentenv-gateway");
    let path = folder.write(
        "instance.toml",
        &format!("name = \"office\"\n[[server]]\nname = \"inner\"\ncommand = [\"{program}\"]\n"),
    );
    let output = gateway(&["up", "--wait", &path.to_string_lossy()]).output().await.unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let office = EnvClient::new(report["url"].as_str().unwrap()).unwrap();
    assert_eq!(office.get_card().await.unwrap().name, "office");
    assert!(std::fs::read_to_string(report["log"].as_str().unwrap()).unwrap().contains("inner | "));
    std::fs::remove_file(report["log"].as_str().unwrap()).unwrap();
    let pid = u32::try_from(report["pid"].as_u64().unwrap()).unwrap();
    kill(pid, "TERM").await;
    eventually("it is gone", || !Path::new(&format!("/proc/{pid}/exe")).exists()).await;

    let bad = folder.write("bad.toml", "name = \"x\"\n[[server]]\nname = \"bad\"\ncommand = [\"false\"]\n");
    let output = gateway(&["up", "--wait", &bad.to_string_lossy()]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("bad: exited with status 1"), "{}", text(&output.stderr));
}

#[tokio::test]
async fn a_compose_file_is_written_with_what_it_names() {
    let folder = Folder::new();
    let text_of = "name = \"office\"\n[[server]]\nname = \"wiki\"\ncommand = [\"wiki\"]\nimage = \"wiki\"\nstore = true\n";
    let path = folder.write("instance.toml", text_of);
    let out = folder.0.join("out");
    let output = gateway(&["render", "compose", &path.to_string_lossy(), "--out", &out.to_string_lossy()])
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let compose = std::fs::read_to_string(out.join("compose.yaml")).unwrap();
    let password = std::fs::read_to_string(out.join("secrets/postgres_password")).unwrap();
    assert!(password.len() == 32 && !compose.contains(&password));
    assert!(std::fs::read_to_string(out.join("secrets/wiki.env")).unwrap().contains(&password));
}
