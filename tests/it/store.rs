//! A gateway with a state store on a real Postgres, over real ports: which rows are whose, and when a changelog begins.

mod outage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentenv_gateway::instance::Mode;
use agentenv_gateway::launch::postgres::PrivatePostgres;
use agentenv_gateway::store::{Store, StoreTimes};
use agentenv_protocol::environment::EnvRuntime;
use agentenv_protocol::prelude::*;
use anyhow::{Context, Result, ensure};
use tokio::sync::{Mutex, Semaphore};
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::office::{Children, Office, Session, serve_runtime};

/// A test that hangs fails with this.
const PATIENCE: Duration = Duration::from_secs(60);

/// Texts in a table of Postgres, so that a row says which call wrote it.
#[environment_card(name = "notes")]
#[derive(Default)]
struct NotesEnv {
    url: String,
    client: Mutex<Option<Arc<Client>>>,
    gate: Arc<Gate>,
}

/// Where calls wait that are told to.
struct Gate {
    waiting: Semaphore,
    open: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        Self { waiting: Semaphore::new(0), open: Semaphore::new(0) }
    }
}

impl Gate {
    async fn reached(&self) -> Result<()> {
        tokio::time::timeout(PATIENCE, self.waiting.acquire()).await??.forget();
        Ok(())
    }
}

#[derive(Deserialize)]
struct Texts {
    texts: Vec<String>,
}

impl NotesEnv {
    /// A connection, opened anew once the last one broke.
    async fn client(&self) -> Result<Arc<Client>, ToolError> {
        let mut kept = self.client.lock().await;
        if let Some(client) = kept.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let client = connect(&self.url).await.map_err(|error| ToolError::new("store", error.to_string()))?;
        Ok(Arc::clone(kept.insert(Arc::new(client))))
    }

    async fn insert(&self, text: &str, rows: i32) -> Result<i32, ToolError> {
        let sql = "INSERT INTO note (text) SELECT $1::text FROM generate_series(1, $2::int)";
        let written = self.client().await?.execute(sql, &[&text, &rows]).await;
        written.map_err(|error| ToolError::new("store", error.to_string()))?;
        Ok(rows)
    }
}

#[environment]
impl NotesEnv {
    /// Write so many rows of a text in one transaction, and then wait at the gate if told to.
    #[tool(name = "{environment_name}_write")]
    async fn write(
        &self,
        text: String,
        rows: i32,
        #[arg(default = false)] wait: bool,
    ) -> Result<i32, ToolError> {
        let rows = self.insert(&text, rows).await?;
        if wait {
            self.gate.waiting.add_permits(1);
            if let Ok(permit) = self.gate.open.acquire().await {
                permit.forget();
            }
        }
        Ok(rows)
    }

    #[extension(uri = "urn:example:notes/v1", description = "Writes rows without a tool.")]
    async fn put(&self, text: String, rows: i32) -> Result<Value, ToolError> {
        Ok(json!({"rows": self.insert(&text, rows).await?}))
    }

    #[reset_data]
    async fn reset(&self) -> anyhow::Result<()> {
        Ok(self.client().await?.batch_execute("TRUNCATE note").await?)
    }

    #[add_data]
    async fn add(&self, seed: Texts) -> Result<(), ToolError> {
        for text in seed.texts {
            self.insert(&text, 1).await?;
        }
        Ok(())
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A Postgres of a test's own, and what whoever starts the servers does in it.
struct Database {
    postgres: PrivatePostgres,
    url: String,
    store: Store,
    stop: CancellationToken,
}

impl Database {
    async fn start() -> Result<Self> {
        let postgres = PrivatePostgres::start(None).await?;
        let url = postgres.url().expose().to_owned();
        Self::of(postgres, url)
    }

    fn of(postgres: PrivatePostgres, url: String) -> Result<Self> {
        let stop = CancellationToken::new();
        let store = Store::connect(url.parse()?, StoreTimes::default(), &TaskTracker::new(), &stop);
        Ok(Self { postgres, url, store, stop })
    }

    /// Makes the schema of a server and the table in it.
    async fn schema(&self, name: &str) -> Result<()> {
        let url = self.store.prepare(name).await?;
        let table = "CREATE TABLE note (id serial PRIMARY KEY, text text NOT NULL)";
        Ok(connect(&url).await?.batch_execute(table).await?)
    }

    /// Serves notes in a schema of their own until the test ends.
    async fn notes(&self, name: &str) -> Result<Notes> {
        notes(name, &self.store.url().for_schema(name), &self.stop).await
    }

    /// Servers, each with a schema that is watched, behind a gateway.
    async fn office(&self, mode: Mode, names: &[&str]) -> Result<(Office, Vec<Notes>)> {
        let mut servers = Vec::new();
        for name in names {
            self.schema(name).await?;
            self.store.install(name).await?;
            servers.push(self.notes(name).await?);
        }
        let office = Office::open_with(Children::Remote, |builder| {
            let builder = builder.store(&self.url).mode(mode);
            servers.iter().fold(builder, |builder, server| builder.remote(&server.name, &server.url))
        });
        Ok((office.await?, servers))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A server of notes.
struct Notes {
    name: String,
    url: String,
    gate: Arc<Gate>,
}

async fn notes(name: &str, database: &str, stop: &CancellationToken) -> Result<Notes> {
    let env = NotesEnv { url: database.to_owned(), ..NotesEnv::default() };
    let gate = Arc::clone(&env.gate);
    let url = serve_runtime(EnvRuntime::named(env, name)?, stop).await?;
    Ok(Notes { name: name.to_owned(), url, gate })
}

/// A call over `/step`: the whole answer.
async fn step(office: &Office, role: Option<&str>, tool: &str, arguments: Value) -> Result<Value> {
    let body = json!({"action": "call_tool", "tool_name": tool, "arguments": arguments});
    let (status, answer) = office.post_as(role, "/step", body).await?;
    ensure!(status == 200, "{tool}: {status} {answer}");
    Ok(answer)
}

/// What a call that writes notes is told.
fn note(text: &str, rows: usize) -> Value {
    json!({"text": text, "rows": rows})
}

/// The whole changelog, by pages of which none is the only one.
async fn changelog(office: &Office) -> Result<Vec<Value>> {
    let (mut rows, mut after) = (Vec::<Value>::new(), 0);
    loop {
        let page = office.get(&format!("/changes?after_id={after}&limit=100")).await?;
        rows.extend(page["changes"].as_array().context("no changes")?.iter().cloned());
        if page["has_more"] == false {
            return Ok(rows);
        }
        after =
            rows.last().and_then(|row| row["id"].as_i64()).context("an empty page that is not the last")?;
    }
}

/// The events that `/changes` names for a row.
fn actors(row: &Value) -> Vec<&str> {
    row["actors"].as_array().into_iter().flatten().filter_map(|actor| actor["event_id"].as_str()).collect()
}

/// The text of the note that a row is about.
fn text_of(row: &Value) -> Result<&str> {
    row["changed_fields"]["text"].as_str().with_context(|| format!("no text: {row}"))
}

/// What the trajectory says of a call or request that ended: by which event it is known, and the ids around it.
#[derive(Debug, Clone, PartialEq)]
struct Window {
    event: String,
    role: String,
    /// What it was told to write, if that is a call's argument.
    text: Option<String>,
    before: Option<i64>,
    after: Option<i64>,
}

/// The windows in the order of the trajectory.
fn windows(events: &[Value]) -> Result<Vec<Window>> {
    let (mut calls, mut windows) = (BTreeMap::new(), Vec::new());
    for event in events {
        let (began, after) = match event["event_type"].as_str() {
            Some("tool_call") => {
                calls.insert(event["event_id"].as_str(), event);
                continue;
            }
            Some("tool_call_result" | "tool_call_failed") => {
                let call =
                    calls.get(&event["tool_call_event_id"].as_str()).context("an end without a call")?;
                (*call, &event["changelog_id"])
            }
            Some("http_request") => (event, &event["changelog_id_after"]),
            other => anyhow::bail!("{other:?}"),
        };
        windows.push(Window {
            event: began["event_id"].as_str().context("no id")?.to_owned(),
            role: began["role"].as_str().context("no role")?.to_owned(),
            text: began["tool_call"]["arguments"]["text"].as_str().map(str::to_owned),
            before: event["changelog_id_before"].as_i64(),
            after: after.as_i64(),
        });
    }
    Ok(windows)
}

const SERVERS: [&str; 5] = ["alpha", "beta", "gamma", "delta", "omega"];
const CALLS: usize = 40;

/// How many rows a writer's call writes.
fn rows_of(call: usize) -> usize {
    1 + call % 3
}

/// Whether a writer's call goes by a server's extension, and not by a tool.
fn is_request(writer: usize, call: usize) -> bool {
    (writer + call) % 4 == 3
}

/// One writer's calls, each through another door. Gives what `/step` said the changelog's id was, by text.
async fn writes(office: Arc<Office>, writer: usize) -> Result<Vec<(String, Value)>> {
    let name = SERVERS[writer];
    let tool = format!("{name}_write");
    let sessions = [
        office.mcp(Some(name)).await?,
        Session::open(&office.url, &format!("/svc/mcp-{name}/mcp"), Some(name)).await?,
    ];
    let mut told = Vec::new();
    for call in 0..CALLS {
        let text = format!("{name} {call}");
        let arguments = note(&text, rows_of(call));
        if is_request(writer, call) {
            let path = format!("/svc/mcp-{name}/agentenv/ext/put");
            let (status, answer) = office.post_as(Some(name), &path, arguments).await?;
            ensure!(status == 200, "{answer}");
            continue;
        }
        let answer = match (writer + call) % 4 {
            0 => sessions[0].call(&tool, arguments).await?,
            1 => sessions[1].call(&tool, arguments).await?,
            _ => {
                let answer = step(&office, Some(name), &tool, arguments).await?;
                told.push((text, answer["changelog_id"].clone()));
                answer
            }
        };
        ensure!(answer["isError"] != true, "{answer}");
    }
    Ok(told)
}

/// Five servers and a writer for each, side by side. Gives the windows in the trajectory's order, each with the text that it
/// wrote, and the rows, each of which its own window holds and names.
async fn scene(mode: Mode) -> Result<(Vec<Window>, Vec<Value>)> {
    let database = Database::start().await?;
    let (office, _servers) = database.office(mode, &SERVERS).await?;
    let office = Arc::new(office);
    let writers: Vec<_> =
        (0..SERVERS.len()).map(|writer| tokio::spawn(writes(Arc::clone(&office), writer))).collect();
    let mut told = BTreeMap::new();
    for writer in writers {
        told.extend(writer.await??);
    }
    let mut windows = windows(&office.events().await?)?;
    assert_eq!(windows.len(), SERVERS.len() * CALLS);
    for (writer, name) in SERVERS.iter().enumerate() {
        // An `http_request` does not say what was in it, but a writer's requests come one after the other.
        let mut requests = (0..CALLS).filter(|call| is_request(writer, *call));
        for window in windows.iter_mut().filter(|window| window.role == *name && window.text.is_none()) {
            window.text = Some(format!("{name} {}", requests.next().context("a request too many")?));
        }
        assert_eq!(requests.next(), None);
    }
    let by_text: BTreeMap<_, _> = windows.iter().map(|window| (window.text.as_deref(), window)).collect();
    for (text, id) in &told {
        assert_eq!(id.as_i64(), by_text[&Some(text.as_str())].after, "{text}: /step says another id");
    }
    let rows = changelog(&office).await?;
    assert_eq!(rows.len(), SERVERS.len() * (0..CALLS).map(rows_of).sum::<usize>());
    for row in &rows {
        let own = by_text.get(&Some(text_of(row)?)).context("nobody wrote it")?;
        let held = row["id"].as_i64() > own.before && row["id"].as_i64() <= own.after;
        assert!(held, "{own:?} does not hold {row}");
        assert!(actors(row).contains(&own.event.as_str()), "{own:?} is not named by {row}");
        assert_eq!(row["schema_name"], own.role);
    }
    Ok((windows, rows))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistent_calls_have_their_rows_to_themselves() -> Result<()> {
    let (windows, rows) = scene(Mode::Consistent).await?;
    let mut rows = rows.iter();
    let mut last = None;
    for window in &windows {
        assert_eq!(window.before, last, "{window:?} does not begin where the one before it ended");
        last = window.after;
        let text = window.text.as_deref().context("no text")?;
        let call: usize = text.rsplit(' ').next().context("no number")?.parse()?;
        for row in rows.by_ref().take(rows_of(call)) {
            assert_eq!(text_of(row)?, text);
            assert_eq!(actors(row), [window.event.as_str()], "{row}");
            assert_eq!(row["actors"][0]["role"], window.role);
            last = row["id"].as_i64();
        }
        assert_eq!(window.after, last, "{window:?} ends elsewhere than its last row");
    }
    assert!(rows.next().is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn performance_calls_share_rows_and_the_writer_is_always_named() -> Result<()> {
    let (windows, rows) = scene(Mode::Performance).await?;
    let shared = rows.iter().filter(|row| actors(row).len() > 1).count();
    assert!(shared > 0, "no two windows ever overlapped");
    for row in &rows {
        let id = row["id"].as_i64();
        let holding = windows.iter().filter(|window| window.before < id && id <= window.after);
        let mut holding: Vec<_> = holding.map(|window| window.event.as_str()).collect();
        let mut named = actors(row);
        holding.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, holding, "/changes and the trajectory disagree on {row}");
    }
    Ok(())
}

/// Loads texts through the gateway: the status and the answer.
async fn load(office: &Office, path: &str, texts: Value) -> Result<Value> {
    let params = json!({"environment": "notes", "parts": [{"kind": "data", "data": {"texts": texts}}]});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "data/add", "params": params});
    let (status, answer) = office.post(path, body).await?;
    ensure!(status == 200, "{status} {answer}");
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_data_begins_the_changelog_of_a_store_that_is_ours() -> Result<()> {
    let database = Database::start().await?;
    database.schema("notes").await?;
    let notes = database.notes("notes").await?;
    let (url, at) = (database.url.as_str(), notes.url.as_str());
    let open = |own: bool| {
        Office::open_with(Children::InProcess, move |builder| {
            let builder = builder.store(url).remote("notes", at);
            if own { builder.installs_changelog() } else { builder }
        })
    };
    let (ours, theirs) = (open(true).await?, open(false).await?);
    let wrote = |text: &'static str| step(&ours, None, "notes_write", note(text, 1));
    let texts = async || -> Result<Vec<String>> {
        changelog(&ours).await?.iter().map(|row| text_of(row).map(str::to_owned)).collect()
    };

    assert!(wrote("unwatched").await?["changelog_id"].is_null());
    // A store that another owns is another's to install.
    assert!(load(&theirs, "/svc/mcp-notes/agentenv", json!(["loaded"])).await?["result"].is_object());
    assert!(wrote("unwatched too").await?["changelog_id"].is_null());
    assert!(load(&ours, "/svc/mcp-notes/agentenv", json!(["loaded"])).await?["result"].is_object());
    assert!(texts().await?.is_empty());
    assert_eq!(wrote("first").await?["changelog_id"], 1);
    assert_eq!(texts().await?, ["first"]);

    // What was not loaded begins nothing.
    assert!(load(&ours, "/agentenv", json!(5)).await?["error"].is_object());
    assert_eq!(texts().await?, ["first"]);
    assert!(load(&ours, "/agentenv", json!(["loaded again"])).await?["result"].is_object());
    assert!(texts().await?.is_empty());
    let id = wrote("second").await?["changelog_id"].as_i64();
    assert!(id > Some(1), "{id:?}");
    assert_eq!(texts().await?, ["second"]);
    let row = &changelog(&ours).await?[0];
    assert_eq!(row["actors"].as_array().map(Vec::len), Some(1), "{row}");
    assert_eq!(row["actors"][0]["tool"], "notes_write");
    Ok(())
}
