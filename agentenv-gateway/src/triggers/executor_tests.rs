use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify};

use super::*;

/// Real sockets rule paused time out, so the waits are short instead.
const QUICK: Pace = Pace {
    first: Duration::from_millis(1),
    longest: Duration::from_millis(4),
    patience: Duration::from_secs(30),
};

enum Reply {
    /// The result of a JSON-RPC answer.
    Result(Value),
    /// A status line's status, headers each with a line end, and a body up to the connection's end.
    Raw(&'static str, &'static str, String),
    /// The connection ends without an answer.
    Nothing,
    /// No answer at all.
    Silence,
    /// The result, once the test allows it.
    Held(Value, Arc<Notify>),
}

use Reply::{Held, Nothing, Raw, Result as Answer, Silence};

fn task(state: &str) -> Reply {
    Answer(json!({"kind": "task", "id": "task-1", "contextId": "c", "status": {"state": state}}))
}

fn ok(body: &str) -> Reply {
    Raw("200 OK", "", body.to_owned())
}

/// An agent with one reply for each request; the last one again for whatever comes after.
struct Agent {
    executor: Executor,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Agent {
    async fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/agents/dana/", listener.local_addr().unwrap());
        let executor =
            Executor::parse(&json!({"a2a_url": url, "role": "world", "timeout_seconds": 30}), "e").unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let replies: Vec<Reply> = replies.into_iter().collect();
        let noted = Arc::clone(&requests);
        let serving = tokio::spawn(async move {
            let mut kept = Vec::new();
            for number in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let Ok(request) = read_request(&mut stream).await else { continue };
                let id = request.1["id"].clone();
                noted.lock().await.push(request);
                let reply = &replies[number.min(replies.len() - 1)];
                let (status, headers, body) = match reply {
                    Answer(result) => ("200 OK", "", answer(&id, result)),
                    Raw(status, headers, body) => (*status, *headers, body.clone()),
                    Held(result, allowed) => {
                        allowed.notified().await;
                        ("200 OK", "", answer(&id, result))
                    }
                    Nothing => continue,
                    Silence => {
                        kept.push(stream);
                        continue;
                    }
                };
                let head = format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n");
                // A client that has read enough may be gone.
                let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await;
            }
        });
        Self { executor, requests, serving }
    }

    async fn run_at(&self, pace: &Pace) -> Result<(), String> {
        self.executor.run_at(pace, &client().unwrap(), "dana", "Ask Dana.").await
    }

    async fn run(&self) -> Result<(), String> {
        self.run_at(&QUICK).await
    }

    async fn methods(&self) -> Vec<String> {
        let requests = self.requests.lock().await;
        requests.iter().map(|(_, body)| body["method"].as_str().unwrap().to_owned()).collect()
    }
}

fn answer(id: &Value, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

async fn read_request(stream: &mut TcpStream) -> io::Result<(String, Value)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await?;
    Ok((head.lines().next().unwrap().to_owned(), serde_json::from_slice(&body).unwrap()))
}

async fn failure(replies: impl IntoIterator<Item = Reply>) -> String {
    Agent::new(replies).await.run().await.unwrap_err()
}

#[tokio::test]
async fn a_task_is_followed_until_it_is_completed() {
    let agent = Agent::new([task("submitted"), task("working"), task("working"), task("completed")]).await;
    agent.run().await.unwrap();
    assert_eq!(agent.methods().await, ["message/send", "tasks/get", "tasks/get", "tasks/get"]);
    let requests = agent.requests.lock().await;
    for (line, body) in requests.iter() {
        assert_eq!(line, "post /agents/dana/a2a http/1.1");
        assert_eq!(body["jsonrpc"], "2.0");
    }
    assert_ne!(requests[1].1["id"], requests[2].1["id"]);
    assert_eq!(requests[1].1["params"], json!({"id": "task-1"}));
    let mut message = requests[0].1["params"]["message"].clone();
    let id = message.as_object_mut().unwrap().shift_remove("messageId").unwrap();
    Uuid::parse_str(id.as_str().unwrap()).unwrap();
    let sent = json!({"kind": "message", "role": "user", "parts": [{"kind": "text", "text": "Ask Dana."}],
        "contextId": "trigger-dana"});
    assert_eq!(message, sent);
    assert_eq!(requests[0].1["params"].as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn an_answer_that_is_the_end_is_not_asked_after() {
    for (result, fine) in [
        (json!({"kind": "message", "messageId": "m", "role": "agent", "parts": []}), true),
        (json!({"kind": "task", "id": "t", "status": {"state": "completed"}}), true),
        (json!({"kind": "task", "id": "t", "status": {"state": "rejected"}}), false),
    ] {
        let agent = Agent::new([Answer(result.clone())]).await;
        assert_eq!(agent.run().await.is_ok(), fine, "{result}");
        assert_eq!(agent.methods().await, ["message/send"]);
    }
}

#[tokio::test]
async fn an_agent_may_hold_its_answer_until_the_task_is_done() {
    let allowed = Arc::new(Notify::new());
    let done = json!({"kind": "task", "id": "t", "status": {"state": "completed"}});
    let agent = Agent::new([Held(done, Arc::clone(&allowed))]).await;
    allowed.notify_one();
    // With the patience of a tasks/get it would be over at once.
    agent.run_at(&Pace { patience: Duration::ZERO, ..QUICK }).await.unwrap();
}

#[tokio::test]
async fn other_ends_are_failures_with_the_agents_words() {
    for state in ["failed", "canceled", "rejected", "input-required", "auth-required"] {
        let end = json!({"kind": "task", "id": "task-1", "status": {"state": state, "message": {"kind": "message",
            "parts": [{"kind": "text", "text": "Dana is"}, {"kind": "data", "data": {}}, {"kind": "text", "text": "away"}]}}});
        assert_eq!(
            failure([task("working"), Answer(end)]).await,
            format!("the executor's task ended in the state {state}: Dana is away")
        );
    }
    assert_eq!(failure([task("failed")]).await, "the executor's task ended in the state failed");
}

#[tokio::test]
async fn an_agents_words_are_cut() {
    let words = "é".repeat(1000);
    let error = failure([ok(&json!({"error": {"code": -1, "message": words}}).to_string())]).await;
    assert_eq!(error.chars().filter(|c| *c == 'é').count(), MAX_QUOTED);
    assert!(error.ends_with("… (-1)"), "{error}");
}

#[tokio::test]
async fn a_failing_poll_is_repeated() {
    let broken = [
        Nothing,
        Raw("503 Service Unavailable", "", String::new()),
        Raw("500 Internal Server Error", "", json!({"error": {"code": -32603, "message": "x"}}).to_string()),
        Raw("200 OK", "content-length: 9\r\n", "{".to_owned()),
        Silence,
    ];
    let pace = Pace { patience: Duration::from_millis(300), ..QUICK };
    let agent =
        Agent::new([task("working")].into_iter().chain(broken).chain([task("working"), task("completed")]))
            .await;
    agent.run_at(&pace).await.unwrap();
    assert!(agent.methods().await.len() >= 8);
}

#[tokio::test]
async fn an_agent_that_has_lost_its_task_fails_it_at_once() {
    let lost = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "Task not found"}});
    let agent = Agent::new([task("working"), ok(&lost.to_string())]).await;
    let error = agent.run().await.unwrap_err();
    assert_eq!(error, "the executor answered tasks/get with an error: Task not found (-32001)");
    assert_eq!(agent.methods().await.len(), 2);
}

#[tokio::test]
async fn the_deadline_is_for_all_of_it() {
    let mut agent = Agent::new([task("working")]).await;
    agent.executor.timeout = Duration::from_millis(500);
    let error = agent.run().await.unwrap_err();
    assert_eq!(error, "the executor was not done within 500ms: its task is working");

    let mut agent = Agent::new([Silence]).await;
    agent.executor.timeout = Duration::from_millis(50);
    let error = agent.run().await.unwrap_err();
    assert_eq!(error, "the executor was not done within 50ms: message/send is not answered");

    let mut agent = Agent::new([task("working"), Raw("502 Bad Gateway", "", String::new())]).await;
    agent.executor.timeout = Duration::from_millis(500);
    let error = agent.run().await.unwrap_err();
    assert!(error.ends_with("500ms: the executor answered tasks/get with 502 Bad Gateway"), "{error}");
}

#[tokio::test]
async fn what_is_no_a2a_answer() {
    let big = format!("{{\"result\":{{\"kind\":\"message\"}}{}}}", " ".repeat(MAX_ANSWER_BYTES));
    let head = "the executor answered message/send with";
    let moved = "location: http://127.0.0.1:9/a2a\r\n";
    for (reply, error) in [
        (ok("<html>"), format!("{head} something that is not JSON")),
        (ok(""), format!("{head} something that is not JSON")),
        (ok(&"[".repeat(100_000)), format!("{head} something that is not JSON")),
        (ok("[]"), format!("{head} JSON that is no A2A answer")),
        (ok("{}"), format!("{head} JSON that is no A2A answer")),
        (ok(r#"{"result": "done", "error": null}"#), format!("{head} JSON that is no A2A answer")),
        (ok(r#"{"error": "no"}"#), format!("{head} an error: \"no\"")),
        (ok(&big), format!("{head} more than 4 MiB")),
        (ok(r#"{"result": {}}"#), format!("{head} neither a task's id nor a message")),
        (ok(r#"{"result": {"id": 7, "status": 1}}"#), format!("{head} neither a task's id nor a message")),
        (
            Raw("404 Not Found", "", r#"{"result": {"kind": "message"}}"#.to_owned()),
            format!("{head} 404 Not Found"),
        ),
        (Raw("500 Internal Server Error", "", String::new()), format!("{head} 500 Internal Server Error")),
        (
            Raw("400 Bad Request", "", r#"{"error": {"code": -32600, "message": "bad"}}"#.to_owned()),
            format!("{head} 400 Bad Request: bad (-32600)"),
        ),
        (
            Raw("307 Temporary Redirect", moved, String::new()),
            format!("{head} 307 Temporary Redirect, and no redirect is followed"),
        ),
    ] {
        let agent = Agent::new([reply]).await;
        assert_eq!(agent.run().await.unwrap_err(), error);
        assert_eq!(agent.methods().await.len(), 1);
    }
    let error = failure([task("working"), ok(r#"{"result": {"id": "task-1"}}"#)]).await;
    assert_eq!(error, "the executor answered tasks/get without a task's state");
}

#[tokio::test]
async fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let executor = Executor::parse(&json!({"a2a_url": url, "role": "w"}), "executor").unwrap();
    let error = executor.run(&client().unwrap(), "t", "x").await.unwrap_err();
    assert!(error.starts_with("message/send got no answer: ") && error.contains("refused"), "{error}");
    assert!(!error.contains("/a2a"), "{error}");
}

#[tokio::test]
async fn names_of_link_local_addresses_are_not_dialled() {
    let resolve = |name: &str| Resolver.resolve(name.parse().unwrap());
    let error = resolve("169.254.169.254").await.err().unwrap();
    assert_eq!(error.to_string(), "169.254.169.254 has no address that is not link-local");
    assert_eq!(resolve("127.0.0.1").await.ok().unwrap().count(), 1);
}

#[test]
fn an_executor_is_read() {
    let read = |value: Value| Executor::parse(&value, "executor").unwrap();
    let executor =
        read(json!({"a2a_url": "https://dana.example:8443/x", "role": "world", "timeout_seconds": 0.5}));
    assert_eq!(executor.a2a_url.as_str(), "https://dana.example:8443/x");
    assert_eq!((executor.role.as_str(), executor.timeout), ("world", Duration::from_millis(500)));
    assert_eq!(read(json!({"a2a_url": "http://[::1]:9", "role": "w"})).timeout, Duration::from_secs(120));
    assert_eq!(
        read(json!({"a2a_url": "HTTP://h", "role": "w", "timeout_seconds": 1e300})).timeout,
        Duration::MAX
    );
}

#[test]
fn every_fault_is_named() {
    let faults = |value: Value| Executor::parse(&value, "executors.dana").unwrap_err();
    assert_eq!(faults(json!("x")), ["executors.dana must be an object"]);
    assert_eq!(
        faults(json!({"a2a_url": "http://u:p@h/?x=#y", "role": " ", "timeout_seconds": true})),
        [
            "executors.dana.a2a_url must not have a user or a password",
            "executors.dana.a2a_url must not have a query",
            "executors.dana.a2a_url must not have a fragment",
            "executors.dana.role must be a string that is not blank",
            "executors.dana.timeout_seconds must be a positive number",
        ]
    );
    assert_eq!(faults(json!({})).len(), 2);
    for seconds in [json!(0), json!(-1), json!("5"), json!(null), json!([1])] {
        let found = faults(json!({"a2a_url": "http://h", "role": "w", "timeout_seconds": seconds}));
        assert_eq!(found, ["executors.dana.timeout_seconds must be a positive number"]);
    }
}

#[test]
fn addresses_that_are_refused() {
    for text in [
        "",
        "h",
        "/a2a",
        "//h/",
        "file:///etc/passwd",
        "gopher://h/",
        "ftp://h/",
        "http:",
        "http://",
        "http:///",
        "http:h",
        "http:/h",
        "http:///h",
        "http://[::1",
        "http://h:99999",
        "http://:80/",
        "http://@h/",
        "http://u@h",
        "http://h?",
        "http://h/#",
        "http://h\\@evil/",
        "http://h/ x",
        "ht\ntp://h",
        " http://h",
        "http://169.254.169.254/latest",
        "http://0xA9FEA9FE",
        "http://2852039166/",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]",
        "http://[fd00:ec2::254]/",
    ] {
        let faults = Executor::parse(&json!({"a2a_url": text, "role": "w"}), "executor").unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert!(faults[0].starts_with("executor.a2a_url must "), "{text}: {faults:?}");
    }
}
