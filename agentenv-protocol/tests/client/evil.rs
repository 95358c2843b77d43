//! A scriptable MCP server on raw TCP: it can answer anything, in any pieces, or break off anywhere. What it is asked is
//! kept.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agentenv_protocol::json::Members;
use agentenv_protocol::mcp::client::{ClientOptions, McpClient};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// One thing that the child does in answer to a request.
#[derive(Clone)]
pub(crate) enum Step {
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Writes these bytes one by one.
    Drip(Vec<u8>),
    /// Writes these bytes again and again, until the client hangs up.
    Flood(Vec<u8>),
    /// Waits for this.
    Wait(Arc<Notify>),
    /// Reads until the client hangs up, then says so.
    Hang(Arc<Notify>),
    /// Ends the connection.
    Close,
    /// Ends it with a reset.
    Reset,
}

/// A request as the child got it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) verb: String,
    pub(crate) head: String,
    pub(crate) raw: String,
    pub(crate) body: Value,
    /// Which connection it came on, counted from 0.
    pub(crate) connection: usize,
}

impl Seen {
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub(crate) fn id(&self) -> String {
        self.body["id"].to_string()
    }
}

type Script = dyn Fn(&Seen) -> Vec<Step> + Send + Sync;

/// The child. Dropped, it is gone with all its connections, as if killed.
pub(crate) struct Evil {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    count: watch::Receiver<usize>,
    task: AbortHandle,
}

impl Evil {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, script)
    }

    /// Takes the place of one that is gone.
    pub(crate) async fn again(
        address: SocketAddr,
        script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Self::on(TcpListener::bind(address).await.unwrap(), script)
    }

    fn on(listener: TcpListener, script: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (counter, count) = watch::channel(0);
        let (script, record): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&seen));
        let counter = Arc::new(counter);
        let task = tokio::spawn(async move {
            let (mut connections, accepted) = (JoinSet::new(), AtomicUsize::new(0));
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let number = accepted.fetch_add(1, Ordering::Relaxed);
                let (script, record, counter) =
                    (Arc::clone(&script), Arc::clone(&record), Arc::clone(&counter));
                connections.spawn(async move { serve(stream, number, &*script, &record, &counter).await });
            }
        });
        Self { address, seen, count, task: task.abort_handle() }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The methods that it was asked for, in order.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.seen().iter().map(|seen| seen.method().to_owned()).collect()
    }

    pub(crate) fn times(&self, method: &str) -> usize {
        self.methods().iter().filter(|seen| *seen == method).count()
    }

    /// Waits until it has been asked for a method this many times.
    pub(crate) async fn asked(&self, method: &str, times: usize) {
        let mut count = self.count.clone();
        while self.times(method) < times {
            count.changed().await.unwrap();
        }
    }

    pub(crate) fn client(&self) -> McpClient {
        self.client_with(|_| {})
    }

    pub(crate) fn client_with(&self, change: impl FnOnce(&mut ClientOptions)) -> McpClient {
        let mut options = ClientOptions::named("test");
        change(&mut options);
        McpClient::new(&format!("http://{}/mcp", self.address).parse().unwrap(), options).unwrap()
    }
}

impl Drop for Evil {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    script: &Script,
    record: &Mutex<Vec<Seen>>,
    counter: &watch::Sender<usize>,
) {
    let mut buffer = Vec::new();
    while let Some((head, body)) = read(&mut stream, &mut buffer).await {
        let raw = String::from_utf8(body).unwrap();
        let verb = head.split(' ').next().unwrap_or_default().to_owned();
        let body = parse(&raw);
        let seen = Seen { verb, head, raw, body, connection };
        record.lock().unwrap().push(seen.clone());
        counter.send_modify(|count| *count += 1);
        for step in script(&seen) {
            if !take(&mut stream, step).await {
                return;
            }
        }
    }
}

/// The body, less the members that are nested too deep to be built.
fn parse(raw: &str) -> Value {
    serde_json::from_str(raw).unwrap_or_else(|_| {
        let members = Members::of(raw).unwrap_or_default();
        members.iter().map(|(name, value)| (name.to_owned(), parse(value.get()))).collect()
    })
}

/// Does a step. False when the connection is over.
async fn take(stream: &mut TcpStream, step: Step) -> bool {
    match step {
        Step::Write(bytes) => stream.write_all(&bytes).await.is_ok(),
        Step::Drip(bytes) => {
            for byte in bytes {
                if stream.write_all(&[byte]).await.is_err() {
                    return false;
                }
                tokio::task::yield_now().await;
            }
            true
        }
        Step::Flood(bytes) => {
            while stream.write_all(&bytes).await.is_ok() {}
            false
        }
        Step::Wait(notify) => {
            notify.notified().await;
            true
        }
        Step::Hang(notify) => {
            let mut byte = [0; 256];
            while matches!(stream.read(&mut byte).await, Ok(1..)) {}
            notify.notify_one();
            false
        }
        Step::Close => false,
        Step::Reset => {
            let _ = stream.set_zero_linger();
            false
        }
    }
}

/// One request off the wire; `None` at the connection's end.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, buffer).await?;
    };
    let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
    while buffer.len() < length {
        more(stream, buffer).await?;
    }
    Some((head, buffer.drain(..length).collect()))
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(buffer).await {
        Ok(1..) => Some(()),
        _ => None,
    }
}

/// A response with a body of this type.
pub(crate) fn response(status: &str, kind: &str, body: impl AsRef<[u8]>) -> Vec<Step> {
    response_with(status, &format!("Content-Type: {kind}\r\n"), body)
}

/// A response with these header fields, each ended.
pub(crate) fn response_with(status: &str, fields: &str, body: impl AsRef<[u8]>) -> Vec<Step> {
    let body = body.as_ref();
    let mut bytes =
        format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    vec![Step::Write(bytes)]
}

pub(crate) fn json_body(body: impl AsRef<[u8]>) -> Vec<Step> {
    response("200 OK", "application/json", body)
}

/// A JSON answer with this result's text.
pub(crate) fn result(seen: &Seen, result: &str) -> Vec<Step> {
    json_body(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, seen.id()))
}

/// The beginning of an event stream that ends with the connection.
pub(crate) fn stream(text: &str) -> Step {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    Step::Write(format!("{head}{text}").into_bytes())
}

/// A chunk of a chunked body.
pub(crate) fn chunk(text: &str) -> Step {
    Step::Write(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

/// The head of a chunked event stream.
pub(crate) fn chunked_stream() -> Step {
    Step::Write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
    )
}

/// A well-behaved server of the session era, for all that a script has no own mind about.
pub(crate) fn polite(seen: &Seen) -> Vec<Step> {
    polite_as(seen, "s1", "")
}

/// [`polite`], with this session and with more header fields in every answer.
pub(crate) fn polite_as(seen: &Seen, session: &str, fields: &str) -> Vec<Step> {
    let with = |result: Value| {
        let body = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}).to_string();
        response_with(
            "200 OK",
            &format!("{fields}Content-Type: application/json\r\nMcp-Session-Id: {session}\r\n"),
            body,
        )
    };
    match seen.method() {
        "server/discover" => {
            response("400 Bad Request", "application/json", error(seen, -32600, "Missing session ID"))
        }
        "initialize" => {
            let asked = &seen.body["params"]["protocolVersion"];
            with(
                json!({"protocolVersion": asked, "capabilities": {}, "serverInfo": {"name": "evil", "version": "1"}}),
            )
        }
        _ if seen.verb == "DELETE" => response_with("200 OK", fields, ""),
        _ if seen.header("mcp-session-id") != Some(session) => {
            let body = error(seen, -32600, "Session not found");
            response_with("404 Not Found", &format!("{fields}Content-Type: application/json\r\n"), body)
        }
        method if method.starts_with("notifications/") => response_with("202 Accepted", fields, ""),
        "tools/list" => with(json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})),
        "tools/call" => with(json!({"content": [{"type": "text", "text": "ok"}]})),
        _ => with(json!({})),
    }
}

/// A well-behaved server of the stateless era.
pub(crate) fn stateless(seen: &Seen) -> Vec<Step> {
    stateless_as(seen, "")
}

/// [`stateless`], with more header fields in every answer.
pub(crate) fn stateless_as(seen: &Seen, fields: &str) -> Vec<Step> {
    let with = |mut result: Value| {
        result["resultType"] = json!("complete");
        let body = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}).to_string();
        response_with("200 OK", &format!("{fields}Content-Type: application/json\r\n"), body)
    };
    match seen.method() {
        "server/discover" => {
            with(json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}))
        }
        "tools/list" => with(json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})),
        "tools/call" => with(json!({"content": [{"type": "text", "text": "ok"}]})),
        _ => {
            let body = error(seen, -32601, "method not found");
            response_with("404 Not Found", &format!("{fields}Content-Type: application/json\r\n"), body)
        }
    }
}

pub(crate) fn error(seen: &Seen, code: i64, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": {"code": code, "message": message}}).to_string()
}
