//! Traces of the gateway's program: a caller above, a child below, and a collector beside it that takes OTLP over HTTP.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use agentenv_protocol::http_client;
use agentenv_protocol::json::RawJson;
use agentenv_protocol::mcp::server::{Call, Endpoint, EndpointOptions, Refusal, Service};
use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::routing::{any, post};
use http::HeaderMap;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

type TestResult<T = ()> = Result<T, Box<dyn Error>>;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A child that tells of each call the trace context that came with it.
struct Mailbox(mpsc::UnboundedSender<Option<String>>);

impl Service for Mailbox {
    fn info(&self) -> (&str, &str) {
        ("mailbox", "1")
    }

    async fn list(&self, _role: Option<&str>) -> Result<RawJson, Refusal> {
        let tool = |name| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        Ok(RawJson::object(format!("[{},{}]", tool("send"), tool("fail")).into()))
    }

    fn list_depends_on_role(&self) -> bool {
        false
    }

    async fn call(self: Arc<Self>, call: Call) -> Result<RawJson, Refusal> {
        let traceparent = call.traceparent.as_ref().and_then(|value| value.to_str().ok()).map(str::to_owned);
        let _ = self.0.send(traceparent);
        let is_error = call.tool == "fail";
        let result = format!(r#"{{"content":[{{"type":"text","text":"no secret"}}],"isError":{is_error}}}"#);
        Ok(RawJson::object(result.into()))
    }
}

async fn serve(router: Router) -> TestResult<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}

async fn mailbox() -> TestResult<(String, mpsc::UnboundedReceiver<Option<String>>)> {
    let (calls, called) = mpsc::unbounded_channel();
    let endpoint = Endpoint::new(Arc::new(Mailbox(calls)), EndpointOptions::default());
    let handle = move |request: Request| Arc::clone(&endpoint).handle(request);
    Ok((serve(Router::new().route("/mcp", any(handle))).await?, called))
}

async fn collector() -> TestResult<(String, mpsc::UnboundedReceiver<(HeaderMap, Bytes)>)> {
    let (exports, exported) = mpsc::unbounded_channel();
    let take = move |headers: HeaderMap, body: Bytes| {
        let _ = exports.send((headers, body));
        async { [("content-type", "application/x-protobuf")] }
    };
    Ok((serve(Router::new().route("/v1/traces", post(take))).await?, exported))
}

/// The gateway's program in front of the mailbox, on a port of its choice.
struct Gateway {
    process: Child,
    url: String,
    _stderr: std::thread::JoinHandle<()>,
}

impl Gateway {
    async fn start(mailbox: &str, variables: &[(&str, &str)]) -> TestResult<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_agentenv-gateway"))
            .env_clear()
            .env("MCP_HOST", "127.0.0.1")
            .env("MCP_PORT", "0")
            .env("MCP_SERVER_NAME", "post-office")
            .env("INTERNAL_MCP_SERVERS", format!("mailbox={mailbox}/mcp"))
            .env("GATEWAY_ROLE_RULES", r#"{"clerk":{"disabled":["fail"],"allowed":[]}}"#)
            .env("GATEWAY_LOG_FORMAT", "json")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut log = BufReader::new(process.stderr.take().ok_or("no stderr")?);
        let (address, said, log) = tokio::task::spawn_blocking(move || {
            let (mut said, mut line) = (String::new(), String::new());
            while log.read_line(&mut line).is_ok_and(|read| read > 0) {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                if event["message"] == "serving" {
                    return (event["address"].as_str().map(str::to_owned), said, log);
                }
                said.push_str(&line);
                line.clear();
            }
            (None, said, log)
        })
        .await?;
        let stderr = std::thread::spawn(move || drop(log.into_inner().read_to_end(&mut Vec::new())));
        let Some(address) = address else {
            process.kill()?;
            return Err(format!("the gateway did not come up: {said}").into());
        };
        Ok(Self { process, url: format!("http://{address}"), _stderr: stderr })
    }

    async fn step(&self, tool: &str, traceparent: Option<&str>) -> TestResult<()> {
        let http = http_client::build(reqwest::ClientBuilder::no_proxy)?;
        let body = format!(
            r#"{{"action":"call_tool","tool_name":"{tool}","arguments":{{"body":"a secret of the agent's"}}}}"#
        );
        let mut request = http.post(format!("{}/step", self.url)).body(body).header("agentenv-role", "clerk");
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        request.send().await?;
        Ok(())
    }

    /// Ends it as Docker would, and waits until it has.
    async fn stop(mut self) -> TestResult {
        let pid = Pid::from_raw(self.process.id().try_into()?).ok_or("no process")?;
        kill_process(pid, Signal::TERM)?;
        let status = tokio::task::spawn_blocking(move || self.process.wait()).await??;
        assert!(status.success(), "{status}");
        Ok(())
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    kind: u64,
    attributes: BTreeMap<String, String>,
    status: u64,
}

/// A field of a protobuf message: its number and what it holds.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(message: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = message.split_first().expect("a number that ends");
            *message = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, Field::Number(varint(&mut message))));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)).expect("a length"),
            5 => 4,
            other => panic!("no such wire type: {other}"),
        };
        let (bytes, rest) = message.split_at(length);
        message = rest;
        found.push((key >> 3, Field::Bytes(bytes)));
    }
    found
}

fn below(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter_map(move |(n, field)| match field {
        Field::Bytes(bytes) if n == number => Some(bytes),
        _ => None,
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key of a `KeyValue`, and the text of its value.
fn attribute(message: &[u8]) -> (String, String) {
    let value = below(message, 2).flat_map(|value| below(value, 1)).map(text).next();
    (below(message, 1).map(text).next().unwrap_or_default(), value.unwrap_or_default())
}

fn span(message: &[u8]) -> Span {
    let mut span = Span::default();
    for field in fields(message) {
        match field {
            (1, Field::Bytes(bytes)) => span.trace = hex(bytes),
            (2, Field::Bytes(bytes)) => span.id = hex(bytes),
            (4, Field::Bytes(bytes)) => span.parent = hex(bytes),
            (5, Field::Bytes(bytes)) => span.name = text(bytes),
            (6, Field::Number(kind)) => span.kind = kind,
            (9, Field::Bytes(bytes)) => span.attributes.extend([attribute(bytes)]),
            (15, Field::Bytes(bytes)) => {
                let code = fields(bytes).into_iter().find_map(|field| match field {
                    (3, Field::Number(code)) => Some(code),
                    _ => None,
                });
                span.status = code.unwrap_or_default();
            }
            _ => {}
        }
    }
    span
}

/// An `ExportTraceServiceRequest`: the resource's attributes, and the spans.
fn export(message: &[u8]) -> (BTreeMap<String, String>, Vec<Span>) {
    let of = |message| below(message, 1);
    let resource = of(message).flat_map(of).flat_map(of).map(attribute).collect();
    let scopes = of(message).flat_map(|resource| below(resource, 2));
    (resource, scopes.flat_map(|scope| below(scope, 2)).map(span).collect())
}

fn attributes(tool: &str, outcome: &str, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let all = [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", tool),
        ("agentenv.role", "clerk"),
        ("agentenv.source", "step"),
        ("agentenv.outcome", outcome),
    ];
    all.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn each_call_is_a_span_between_its_callers_and_its_childs() -> TestResult {
    let (mailbox, mut called) = mailbox().await?;
    let (collector, mut exported) = collector().await?;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc"),
    ];
    let gateway = Gateway::start(&mailbox, &variables).await?;
    gateway.step("send", Some(&format!("00-{TRACE}-{CALLER}-01"))).await?;
    gateway.step("fail", None).await?;
    gateway.step("nothing", None).await?;
    gateway.stop().await?;

    // What waited was sent before the program ended.
    let mut spans = Vec::new();
    while let Ok((headers, body)) = exported.try_recv() {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        assert_eq!(headers["authorization"], "Basic abc");
        assert!(!body.windows(6).any(|bytes| bytes == b"secret"), "arguments and results are nobody else's");
        let (resource, exported) = export(&body);
        assert_eq!(resource["service.name"], "post-office");
        spans.extend(exported);
    }
    let [send, fail, nothing] = <[Span; 3]>::try_from(spans).map_err(|spans| format!("{spans:?}"))?;

    let below = called.try_recv()?.ok_or("the child was told of no trace")?;
    assert_eq!(below, format!("00-{TRACE}-{}-01", send.id));
    assert_eq!((&*send.trace, &*send.parent, &*send.name), (TRACE, CALLER, "tools/call send"));
    assert_eq!((send.kind, send.status), (2, 0), "a server's span, without an error");
    assert_eq!(send.attributes, attributes("send", "ok", &[("agentenv.child", "mailbox")]));

    // A refused call never reaches a child. Its status is an error's.
    assert!(called.try_recv().is_err());
    assert_eq!((&*fail.parent, &*fail.name, fail.status), ("", "tools/call", 2));
    assert_eq!(fail.attributes, attributes("fail", "disabled", &[("error.type", "disabled")]));
    assert_eq!((&*nothing.name, nothing.status), ("tools/call", 2));
    assert_eq!(nothing.attributes, attributes("nothing", "unknown_tool", &[("error.type", "unknown_tool")]));
    assert_ne!(fail.trace, nothing.trace);
    Ok(())
}

#[tokio::test]
async fn without_an_exporter_the_callers_trace_goes_through_as_it_came() -> TestResult {
    let (mailbox, mut called) = mailbox().await?;
    let gateway = Gateway::start(&mailbox, &[]).await?;
    let callers = format!("00-{TRACE}-{CALLER}-01");
    gateway.step("send", Some(&callers)).await?;
    gateway.step("send", None).await?;
    gateway.stop().await?;
    assert_eq!(called.try_recv()?, Some(callers));
    assert_eq!(called.try_recv()?, None);
    Ok(())
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_no_call() -> TestResult {
    let (mailbox, mut called) = mailbox().await?;
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        format!("http://{}", listener.local_addr()?)
    };
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*nobody), ("OTEL_EXPORTER_OTLP_TIMEOUT", "100")];
    let gateway = Gateway::start(&mailbox, &variables).await?;
    gateway.step("send", None).await?;
    gateway.stop().await?;
    assert!(called.try_recv()?.is_some());
    Ok(())
}

#[test]
fn what_cannot_be_exported_to_ends_the_start_with_a_line() -> TestResult {
    let output = Command::new(env!("CARGO_BIN_EXE_agentenv-gateway"))
        .env_clear()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .stdin(Stdio::null())
        .output()?;
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr)?;
    assert!(
        stderr.starts_with("agentenv-gateway: OTEL_EXPORTER_OTLP_PROTOCOL must be 'http/protobuf'"),
        "{stderr}"
    );
    Ok(())
}
