//! The executor of `nl` actions, an A2A agent: how it is registered, and how an instruction is given to it and followed
//! to its end (contract 7.6). When one is sent, and what its failure means, is left to the engine.

use std::error::Error;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use agentenv_protocol::http_client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, header};
use serde_json::{Value, json};
use url::{Host, Url};
use uuid::Uuid;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// How much of the executor's own words an error repeats, in characters.
const MAX_QUOTED: usize = 300;
/// Where one cloud's machines ask for their credentials; elsewhere that address is link-local.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// An agent that carries out instructions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Executor {
    /// The agent's address; instructions are posted to `{a2a_url}/a2a`.
    pub(crate) a2a_url: Url,
    /// The role in which the agent calls tools.
    pub(crate) role: String,
    /// How long the agent has for one instruction, from sending it on.
    pub(crate) timeout: Duration,
}

/// The client for [`Executor::run`]. It follows no redirect, uses no proxy and connects to no name that stands for a
/// link-local address, where clouds keep credentials.
///
/// # Errors
/// It cannot be set up, in words.
pub(crate) fn client() -> Result<Client, String> {
    http_client::build(|client| client.redirect(Policy::none()).no_proxy().dns_resolver(Resolver))
        .map_err(|error| format!("no HTTP client for executors: {}", describe(&error)))
}

impl Executor {
    /// Reads a registered executor, `{"a2a_url","role","timeout_seconds"?}`, that is found at the path `at`.
    ///
    /// # Errors
    /// Every fault, each beginning with the field's path.
    pub(crate) fn parse(value: &Value, at: &str) -> Result<Self, Vec<String>> {
        let Value::Object(fields) = value else {
            return Err(vec![format!("{at} must be an object")]);
        };
        let mut faults = Vec::new();
        let a2a_url = match fields.get("a2a_url").and_then(Value::as_str) {
            Some(text) => parse_address(text),
            None => Err(vec!["must be an http or https URL"]),
        };
        let a2a_url = a2a_url
            .map_err(|found| faults.extend(found.iter().map(|fault| format!("{at}.a2a_url {fault}"))))
            .ok();
        let role = fields.get("role").and_then(Value::as_str).filter(|role| !role.trim().is_empty());
        if role.is_none() {
            faults.push(format!("{at}.role must be a string that is not blank"));
        }
        let timeout = match fields.get("timeout_seconds") {
            None => Some(DEFAULT_TIMEOUT),
            Some(seconds) => seconds
                .as_f64()
                .filter(|seconds| *seconds > 0.0 && seconds.is_finite())
                .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
        };
        if timeout.is_none() {
            faults.push(format!("{at}.timeout_seconds must be a positive number"));
        }
        match (a2a_url, role, timeout) {
            (Some(a2a_url), Some(role), Some(timeout)) => {
                Ok(Self { a2a_url, role: role.to_owned(), timeout })
            }
            _ => Err(faults),
        }
    }

    /// Gives the agent an instruction on a trigger's account and returns when it has completed it. Dropping the future
    /// stops the following; the agent may go on.
    ///
    /// # Errors
    /// What the agent did instead, in words.
    pub(crate) async fn run(&self, http: &Client, trigger_id: &str, text: &str) -> Result<(), String> {
        self.run_at(&PACE, http, trigger_id, text).await
    }

    async fn run_at(&self, pace: &Pace, http: &Client, trigger_id: &str, text: &str) -> Result<(), String> {
        let mut progress = "message/send is not answered".to_owned();
        let following = self.follow(pace, http, trigger_id, text, &mut progress);
        match tokio::time::timeout(self.timeout, following).await {
            Ok(end) => end,
            Err(_) => Err(format!("the executor was not done within {:?}: {progress}", self.timeout)),
        }
    }

    /// Without the deadline. `progress` says at any time how far it has come.
    async fn follow(
        &self,
        pace: &Pace,
        http: &Client,
        trigger_id: &str,
        text: &str,
        progress: &mut String,
    ) -> Result<(), String> {
        let message = json!({
            "kind": "message",
            "messageId": Uuid::new_v4().to_string(),
            "role": "user",
            "parts": [{"kind": "text", "text": text}],
            "contextId": format!("trigger-{trigger_id}"),
        });
        // An agent may answer only when the task is done, so nothing but the deadline limits this request.
        let answer = self.ask(http, "message/send", json!({"message": message})).await;
        let answer = answer.map_err(Failure::into_text)?;
        if answer.get("kind").and_then(Value::as_str) == Some("message") {
            return Ok(());
        }
        if let Some(end) = ended(&answer) {
            return end;
        }
        let Some(task) = answer.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()) else {
            return Err(
                "the executor answered message/send with neither a task's id nor a message".to_owned()
            );
        };
        *progress = seen(&answer).unwrap_or_else(|| "its task has no state yet".to_owned());
        let mut wait = pace.first;
        loop {
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(pace.longest);
            let asking = self.ask(http, "tasks/get", json!({"id": task}));
            match tokio::time::timeout(pace.patience, asking).await {
                Ok(Ok(answer)) => {
                    if let Some(end) = ended(&answer) {
                        return end;
                    }
                    *progress =
                        seen(&answer).ok_or("the executor answered tasks/get without a task's state")?;
                }
                Ok(Err(Failure::Passing(why))) => *progress = why,
                Ok(Err(Failure::Final(why))) => return Err(why),
                Err(_) => *progress = "tasks/get is not answered".to_owned(),
            }
        }
    }

    /// One JSON-RPC request; the answer's result.
    async fn ask(&self, http: &Client, method: &str, params: Value) -> Result<Value, Failure> {
        let mut url = self.a2a_url.clone();
        url.set_path(&format!("{}/a2a", self.a2a_url.path().trim_end_matches('/')));
        let request =
            json!({"jsonrpc": "2.0", "id": Uuid::new_v4().to_string(), "method": method, "params": params});
        let request = http
            .post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(request.to_string());
        let broken = |error: reqwest::Error| {
            Failure::Passing(format!("{method} got no answer: {}", describe(&error.without_url())))
        };
        let mut response = request.send().await.map_err(broken)?;
        let status = response.status();
        let body = read(&mut response).await.map_err(broken)?;
        let answer = body.as_deref().map(serde_json::from_slice::<Value>);
        let refusal = match &answer {
            Some(Ok(answer)) => answer.get("error").filter(|error| !error.is_null()).map(refusal),
            _ => None,
        };
        if !status.is_success() {
            let why = match refusal {
                Some(refusal) => format!("the executor answered {method} with {status}: {refusal}"),
                None if status.is_redirection() => {
                    format!("the executor answered {method} with {status}, and no redirect is followed")
                }
                None => format!("the executor answered {method} with {status}"),
            };
            return Err(if status.is_server_error() { Failure::Passing(why) } else { Failure::Final(why) });
        }
        let wrong = |what: &str| Failure::Final(format!("the executor answered {method} with {what}"));
        if let Some(refusal) = refusal {
            return Err(wrong(&format!("an error: {refusal}")));
        }
        match answer {
            None => Err(wrong("more than 4 MiB")),
            Some(Err(_)) => Err(wrong("something that is not JSON")),
            Some(Ok(mut answer)) => match answer.get_mut("result").map(Value::take) {
                Some(result @ Value::Object(_)) => Ok(result),
                _ => Err(wrong("JSON that is no A2A answer")),
            },
        }
    }
}

/// How an agent's task is asked after.
struct Pace {
    /// The wait before the first `tasks/get`; each later one is twice as long.
    first: Duration,
    /// The longest wait between two.
    longest: Duration,
    /// How long one has for its answer before another is sent: an agent that restarts may leave it without one.
    patience: Duration,
}

const PACE: Pace = Pace {
    first: Duration::from_millis(250),
    longest: Duration::from_secs(2),
    patience: Duration::from_secs(30),
};

/// Why a request has no result.
enum Failure {
    /// It may have one when it is asked again.
    Passing(String),
    Final(String),
}

impl Failure {
    fn into_text(self) -> String {
        match self {
            Self::Passing(why) | Self::Final(why) => why,
        }
    }
}

/// The body; none when it is too large.
async fn read(response: &mut Response) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

fn state(task: &Value) -> Option<&str> {
    task.get("status")?.get("state")?.as_str()
}

fn seen(task: &Value) -> Option<String> {
    state(task).map(|state| format!("its task is {}", quoted(state)))
}

/// How a task ended; none while it has not.
fn ended(task: &Value) -> Option<Result<(), String>> {
    let state = state(task)?;
    match state {
        "completed" => Some(Ok(())),
        // Nobody is there to give the input.
        "failed" | "canceled" | "rejected" | "input-required" | "auth-required" => {
            let mut why = format!("the executor's task ended in the state {state}");
            if let Some(words) = status_message(task) {
                why = format!("{why}: {}", quoted(&words));
            }
            Some(Err(why))
        }
        _ => None,
    }
}

/// The text parts of the message with a task's status.
fn status_message(task: &Value) -> Option<String> {
    let parts = task.get("status")?.get("message")?.get("parts")?.as_array()?;
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    let text = texts.join(" ");
    (!text.trim().is_empty()).then_some(text)
}

fn refusal(error: &Value) -> String {
    match (error.get("code").and_then(Value::as_i64), error.get("message").and_then(Value::as_str)) {
        (Some(code), Some(message)) => format!("{} ({code})", quoted(message)),
        (None, Some(message)) => quoted(message),
        _ => quoted(&error.to_string()),
    }
}

fn quoted(text: &str) -> String {
    match text.trim().char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", text.trim().get(..end).unwrap_or_default()),
        None => text.trim().to_owned(),
    }
}

fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Faults are said after the field's path.
fn parse_address(text: &str) -> Result<Url, Vec<&'static str>> {
    // The parser forgives these, and what it makes of them need not be what was meant.
    if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
        return Err(vec!["must be a URL without spaces, control characters and backslashes"]);
    }
    let url = Url::parse(text).map_err(|_| vec!["must be an http or https URL"])?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(vec!["must be an http or https URL"]);
    }
    let after_scheme = text.get(url.scheme().len()..).and_then(|rest| rest.strip_prefix("://"));
    let authority = after_scheme.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if authority.is_empty() {
        return Err(vec!["must have a host"]);
    }
    let address = match url.host() {
        Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
        _ => None,
    };
    let faults: Vec<_> = [
        (authority.contains('@'), "must not have a user or a password"),
        (url.query().is_some(), "must not have a query"),
        (url.fragment().is_some(), "must not have a fragment"),
        (address.is_some_and(is_link_local), "must not be a link-local address"),
    ]
    .into_iter()
    .filter_map(|(faulty, fault)| faulty.then_some(fault))
    .collect();
    if faults.is_empty() { Ok(url) } else { Err(faults) }
}

fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address == METADATA_V6,
    }
}

/// The system's resolver without link-local addresses.
struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|address| !is_link_local(address.ip())).collect();
            if allowed.is_empty() {
                return Err(format!("{} has no address that is not link-local", name.as_str()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
