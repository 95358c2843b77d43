//! A child behind a URL.

use std::sync::LazyLock;
use std::time::Duration;

use agentenv_protocol::error::Applied;
use agentenv_protocol::http_client;
use agentenv_protocol::json::{Members, ObjectWriter, RawJson};
use agentenv_protocol::mcp::META_PROTOCOL_PREFIX;
use agentenv_protocol::mcp::client::{
    AddressFault, ClientError, ClientOptions, ErrorKind, McpClient, OutgoingCall, Sent,
};
use memchr::memmem::Finder;
use tokio::time::Instant;
use url::Url;

use super::{UpstreamCall, UpstreamReply, stamped_meta};
use crate::call::CallError;

/// How long one question whether a child is ready may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// A child behind a URL.
#[derive(Clone)]
pub struct Remote {
    client: McpClient,
    url: Url,
}

impl Remote {
    /// The child whose MCP endpoint is at this URL.
    ///
    /// # Errors
    /// [`AddressFault`]
    pub fn new(url: Url) -> Result<Self, AddressFault> {
        let client = McpClient::new(&url, ClientOptions::named("agentenv-gateway"))?;
        Ok(Self { client, url })
    }

    /// The URL of its MCP endpoint.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Whether the child is ready: its `/ready` answers 200, or failing that its MCP URL below 500 (contract 3.1).
    ///
    /// # Errors
    /// What it does instead, in words.
    pub(crate) async fn is_ready(&self) -> Result<(), String> {
        let client = http_client::build(|client| {
            client.timeout(PROBE_TIMEOUT).redirect(reqwest::redirect::Policy::none()).no_proxy()
        });
        let client = client.map_err(|error| format!("cannot ask: {error}"))?;
        // An answer's head is enough: a child may answer with a stream that never ends.
        let ask = async |url: Url| match client.get(url).send().await {
            Ok(response) => Ok(response.status()),
            Err(error) if error.is_timeout() => Err("no answer in time".to_owned()),
            Err(error) if error.is_connect() => Err("it cannot be connected to".to_owned()),
            Err(error) => Err(error.without_url().to_string()),
        };
        let mut ready = self.url.clone();
        ready.set_path(
            &ready.path().rsplit_once('/').map_or("/ready".to_owned(), |(base, _)| format!("{base}/ready")),
        );
        if ask(ready).await.is_ok_and(|status| status.as_u16() == 200) {
            return Ok(());
        }
        match ask(self.url.clone()).await? {
            status if status.as_u16() < 500 => Ok(()),
            status => Err(format!("it answers {status}")),
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<(String, RawJson)>, String> {
        let tools = self.client.list_tools().await.map_err(|error| error.to_string())?;
        Ok(tools.into_iter().map(|tool| (tool.name, tool.raw)).collect())
    }

    pub(super) async fn call(&self, call: UpstreamCall<'_>) -> UpstreamReply {
        let meta = stamped_meta(call.meta, call.role, call.session);
        let outgoing = OutgoingCall {
            tool: call.tool,
            arguments: Some(call.arguments),
            meta: &meta,
            notify: call.notify,
            cancel: call.cancel,
            traceparent: call.traceparent,
            deadline: Some(Instant::now() + call.deadline),
        };
        match self.client.call(outgoing).await {
            Ok(reply) => UpstreamReply {
                result: Ok(without_era(reply.result)),
                reconnected: reply.reconnected.map(|reconnected| reconnected.reason.to_owned()),
            },
            Err(error) => {
                UpstreamReply { result: Err(failure(error, call.tool, call.deadline)), reconnected: None }
            }
        }
    }

    /// Ends the session with the child, if there is one.
    pub(crate) async fn close(&self) {
        self.client.close().await;
    }
}

/// A child's result less what its era adds to every one: what an agent gets must not depend on how the gateway talks to a
/// child. A result that says that it is anything but whole stays as it is.
fn without_era(result: RawJson) -> RawJson {
    static ADDED: LazyLock<[Finder<'static>; 2]> =
        LazyLock::new(|| [META_PROTOCOL_PREFIX, "\"resultType\""].map(Finder::new));
    let [meta, kind] = &*ADDED;
    let text = result.as_str();
    if meta.find(text.as_bytes()).is_none() {
        // What our own servers add comes first.
        if let Some(rest) = text.strip_prefix(r#"{"resultType":"complete","#) {
            return RawJson::object(["{", rest].concat().into());
        }
        if kind.find(text.as_bytes()).is_none() {
            return result;
        }
    }
    let Ok(members) = Members::of(text) else { return result };
    if members.get("resultType").is_some_and(|kind| kind.get() != r#""complete""#) {
        return result;
    }
    let mut out = ObjectWriter::with_capacity(text.len());
    for (key, value) in members.iter().filter(|(key, _)| *key != "resultType") {
        let meta = if key == "_meta" { Members::of(value.get()).ok() } else { None };
        let Some(meta) = meta else {
            out = out.raw(key, value.get());
            continue;
        };
        let kept: Vec<_> = meta.iter().filter(|(key, _)| !key.starts_with(META_PROTOCOL_PREFIX)).collect();
        if !kept.is_empty() {
            let meta = kept
                .iter()
                .fold(ObjectWriter::with_capacity(64), |out, (key, value)| out.raw(key, value.get()));
            out = out.raw(key, &meta.finish_text());
        }
    }
    RawJson::object(out.finish())
}

fn failure(error: ClientError, tool: &str, deadline: Duration) -> CallError {
    let applied = match error.sent() {
        Sent::No => Applied::No,
        Sent::Maybe => Applied::Unknown,
    };
    match error.kind() {
        ErrorKind::Timeout if applied == Applied::Unknown => {
            CallError::TimedOut { tool: tool.to_owned(), seconds: deadline.as_secs() }
        }
        ErrorKind::Cancelled => CallError::Cancelled,
        ErrorKind::Rpc(rpc) => {
            CallError::Rpc { code: rpc.code, message: rpc.message.clone(), data: rpc.data.clone() }
        }
        _ => CallError::Failed { message: error.to_string(), applied },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_era_adds_goes_and_nothing_else() {
        let of = |text: &str| without_era(RawJson::object(text.to_owned().into())).as_str().to_owned();
        let server = r#""io.modelcontextprotocol/serverInfo":{"name":"x"}"#;
        let content = r#""content":[{"text":"1.0"}]"#;
        assert_eq!(
            of(&format!(r#"{{"resultType":"complete","_meta":{{{server}}},{content}}}"#)),
            format!("{{{content}}}")
        );
        let both = format!(r#"{{"_meta":{{{server},"a":1.0}},{content},"resultType":"complete"}}"#);
        assert_eq!(of(&both), format!(r#"{{"_meta":{{"a":1.0}},{content}}}"#));
        assert_eq!(of(&format!(r#"{{"resultType":"complete",{content}}}"#)), format!("{{{content}}}"));
        let named = r#""structuredContent":{"resultType":"complete"}"#;
        assert_eq!(of(&format!(r#"{{"resultType":"complete",{named}}}"#)), format!("{{{named}}}"));
        for kept in [r#"{"resultType":"input_required","x":1}"#, r#"{"content":[],"_meta":{}}"#, "{ }"] {
            assert_eq!(of(kept), kept);
        }
    }
}
