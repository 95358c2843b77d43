//! Both our ends: the clients against a server of this crate's.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use agentenv_protocol::client::{EnvClient, ToolSession};
use agentenv_protocol::context::Notification;
use agentenv_protocol::environment::EnvRuntime;
use agentenv_protocol::mcp::client::{ClientOptions, ErrorKind, McpClient, OutgoingCall};
use agentenv_protocol::mcp::server::EndpointOptions;
use agentenv_protocol::prelude::*;
use agentenv_protocol::server::{router, serve_router};
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Notes {
    notes: Vec<String>,
}

/// Notes, and tools that do what a client must cope with.
#[environment_card(name = "notes")]
#[derive(Default)]
struct NotesEnv {
    #[data]
    notes: Data<Notes>,
    began: Arc<Notify>,
    ended: Arc<Notify>,
}

#[environment]
impl NotesEnv {
    /// Adds a note.
    #[tool]
    fn add(&self, text: String) -> Value {
        self.notes.write(|notes| notes.notes.push(text));
        json!({"notes": self.notes.read(|notes| notes.notes.len())})
    }

    /// Answers its arguments and who calls.
    #[tool]
    fn echo(&self, context: &ToolContext, text: Value) -> Value {
        json!({"text": text, "role": context.caller.role, "session": context.caller.session})
    }

    /// Says how far it is.
    #[tool]
    async fn steps(&self, context: &ToolContext) -> &'static str {
        for step in 0..3 {
            context.progress(f64::from(step), Some(2.0), None);
            context.log(LogLevel::Debug, format!("step {step}"));
            tokio::task::yield_now().await;
        }
        "done"
    }

    /// Never answers.
    #[tool]
    async fn hang(&self) -> &'static str {
        struct End(Arc<Notify>);
        impl Drop for End {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let _end = End(Arc::clone(&self.ended));
        self.began.notify_one();
        std::future::pending().await
    }

    /// Limits the notes.
    #[extension(uri = "urn:x:limit/v1")]
    fn limit(&self, most: u8) -> Value {
        json!({"most": most})
    }
}

/// The environment on this address, until the token is cancelled.
async fn serve(address: SocketAddr, env: NotesEnv) -> (SocketAddr, CancellationToken) {
    let listener = TcpListener::bind(address).await.unwrap();
    let (address, stop, tracker) =
        (listener.local_addr().unwrap(), CancellationToken::new(), TaskTracker::new());
    let options = EndpointOptions { tracker: tracker.clone(), ..EndpointOptions::default() };
    let router = router(EnvRuntime::new(env).unwrap(), options);
    tokio::spawn(serve_router(listener, router, stop.clone(), tracker));
    (address, stop)
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn client(address: SocketAddr) -> McpClient {
    McpClient::new(&format!("http://{address}/mcp").parse().unwrap(), ClientOptions::named("test")).unwrap()
}

#[tokio::test]
async fn tools_are_listed_and_called() {
    let (address, _stop) = serve(any(), NotesEnv::default()).await;
    let client = client(address);
    let tools = client.list_tools().await.unwrap();
    let mut names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["add", "echo", "hang", "steps"]);
    assert_eq!(client.version(), Some("2026-07-28"));
    let arguments = r#"{"text":"[1, 2]"}"#;
    let mut call = OutgoingCall::new("echo", Some(serde_json::from_str::<&RawValue>(arguments).unwrap()));
    call.meta = r#"{"agentenv.io/role":"bob","agentenv.io/session":"s"}"#;
    let reply = client.call(call).await.unwrap();
    let result: Value = serde_json::from_str(reply.result.as_str()).unwrap();
    assert_eq!(result["structuredContent"], json!({"text": "[1, 2]", "role": "bob", "session": "s"}));
    assert_eq!(reply.reconnected, None);
    let unknown = client.call(OutgoingCall::new("nothing", None)).await.unwrap();
    assert!(unknown.result.as_str().contains("Unknown tool: nothing"));
}

#[tokio::test]
async fn progress_and_logs_arrive() {
    let (address, _stop) = serve(any(), NotesEnv::default()).await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let mut call = OutgoingCall::new("steps", None);
    call.meta = r#"{"progressToken":"p"}"#;
    call.notify = Some(Arc::new(move |notification| sink.lock().unwrap().push(notification)));
    client(address).call(call).await.unwrap();
    let heard = heard.lock().unwrap();
    let steps: Vec<_> = heard
        .iter()
        .filter_map(|notification| match notification {
            Notification::Progress { progress, total: Some(2.0), .. } => Some(*progress),
            _ => None,
        })
        .collect();
    assert_eq!((steps, heard.len()), (vec![0.0, 1.0, 2.0], 6), "{heard:?}");
}

#[tokio::test]
async fn a_call_that_is_given_up_ends_on_the_server() {
    let env = NotesEnv::default();
    let (began, ended) = (Arc::clone(&env.began), Arc::clone(&env.ended));
    let (address, _stop) = serve(any(), env).await;
    let client = client(address);
    let cancel = CancellationToken::new();
    let mut call = OutgoingCall::new("hang", None);
    call.cancel = cancel.clone();
    let (given_up, ()) = tokio::join!(client.call(call), async {
        began.notified().await;
        cancel.cancel();
    });
    assert_eq!(*given_up.unwrap_err().kind(), ErrorKind::Cancelled);
    ended.notified().await;
}

#[tokio::test]
async fn a_restart_is_told_of_once() {
    let (address, stop) = serve(any(), NotesEnv::default()).await;
    let (client, add) = (client(address), serde_json::value::to_raw_value(&json!({"text": "x"})).unwrap());
    let news = async || {
        let reply = client.call(OutgoingCall::new("add", Some(&add))).await.unwrap();
        (reply.result.as_str().contains("\"notes\":2"), reply.reconnected.is_some())
    };
    assert_eq!((news().await, news().await), ((false, false), (true, false)));
    stop.cancel();
    // The port is free again once the old server has let go of it.
    while TcpListener::bind(address).await.is_err() {
        tokio::task::yield_now().await;
    }
    let _again = serve(address, NotesEnv::default()).await;
    assert_eq!((news().await, news().await), ((false, true), (true, false)));
}

#[tokio::test]
async fn a_harness_prepares_and_reads_the_environment() {
    let (address, _stop) = serve(any(), NotesEnv::default()).await;
    let env = EnvClient::new(&format!("http://{address}")).unwrap();
    let card = env.get_card().await.unwrap();
    assert_eq!(card.name, "notes");
    env.add_data(&[Part::data(&json!({"notes": ["a"]})).unwrap()]).await.unwrap();
    let session = env.clone().with_role("bob").unwrap().open_tools(&card).await.unwrap();
    assert_eq!(
        session.call("add", &json!({"text": "b"})).await.unwrap().parse::<Value>().unwrap()["notes"],
        2
    );
    let echo = session.call("echo", &json!({"text": 5})).await.unwrap();
    assert_eq!(echo.structured().unwrap()["role"], "bob");
    assert!(session.call("add", &json!({"text": 5})).await.unwrap().is_error());
    session.close().await;
    let state = env.get_data().await.unwrap();
    assert_eq!(state, [Part::data(&json!({"notes": ["a", "b"]})).unwrap()]);
    env.reset_data().await.unwrap();
    assert_eq!(env.get_data().await.unwrap(), [Part::data(&json!({"notes": []})).unwrap()]);
    let limit: Value =
        env.invoke_extension(&card, "urn:x:limit/v1", "limit", &json!({"most": 5})).await.unwrap();
    assert_eq!(limit, json!({"most": 5}));
    let refused =
        env.invoke_extension::<_, Value>(&card, "urn:x:limit/v1", "limit", &json!({"most": "x"})).await;
    assert!(refused.unwrap_err().to_string().starts_with("400 invalid_params: "));
    let direct = ToolSession::open(&format!("http://{address}/mcp"), None).await.unwrap();
    assert_eq!(direct.list().await.unwrap().len(), 4);
}
