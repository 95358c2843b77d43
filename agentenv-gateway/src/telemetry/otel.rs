//! OpenTelemetry traces: a span of each tool call, exported over OTLP/HTTP as the standard `OTEL_*` variables say. How a span
//! is exported and sampled is the OpenTelemetry SDK's; what is sent over HTTP, `client`'s.
//!
//! Nothing is global, and nothing goes through `tracing`: what is logged and what is traced are set apart from each other, and
//! whatever a log line holds, a span holds no more than is named here. Of arguments and results that is nothing.

mod client;

use std::env;
use std::time::Duration;

use http::HeaderValue;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span as _, SpanContext, SpanKind, Status, Tracer, TracerProvider};
use opentelemetry::{Context, InstrumentationScope, Key, KeyValue};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL_HTTP_PROTOBUF,
    OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, SpanExporter, WithExportConfig,
    WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use url::Url;

use self::client::Client;
use crate::call::{Source, ToolCall};
use crate::metrics::{CallOutcome, MAX_NAME};

/// Turns everything of OpenTelemetry off when it is `true`.
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// Which exporter traces take: `otlp` or `none`.
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";

/// The MCP method that a call is, as the conventions for spans of MCP have it.
const METHOD: &str = "tools/call";

const SERVICE_NAME: Key = Key::from_static_str("service.name");

/// Where the spans of tool calls go. Clones go to the same place.
#[derive(Debug, Clone)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// Why traces cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TracesError {
    /// A variable holds what cannot be right.
    #[error("{variable} must be {expected}")]
    Variable {
        /// The variable's name. Its value is not repeated: an endpoint may hold a password.
        variable: &'static str,
        /// What it should hold.
        expected: &'static str,
    },
    /// The HTTP client cannot be.
    #[error("the client that exports traces: {0}")]
    Client(#[from] reqwest::Error),
    /// There is no tokio runtime to export from.
    #[error("traces are exported from within a tokio runtime")]
    NoRuntime(#[from] tokio::runtime::TryCurrentError),
    /// The exporter cannot be.
    #[error("the exporter of traces: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

impl Traces {
    /// What the `OTEL_*` variables ask for: `None` unless `OTEL_EXPORTER_OTLP_ENDPOINT`, the same for traces alone, or
    /// `OTEL_TRACES_EXPORTER=otlp` says where to. The service is named by `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES`,
    /// else `service`. To be called within a tokio runtime that outlives [`shut_down`](Self::shut_down).
    ///
    /// # Errors
    /// [`TracesError`]: a variable that cannot be right, a client or exporter that cannot be.
    pub fn from_env(service: &str) -> Result<Option<Self>, TracesError> {
        let variable = |name: &'static str| env::var(name).ok().filter(|value| !value.trim().is_empty());
        let Some(timeout) = export_timeout(variable)? else { return Ok(None) };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_timeout(timeout)
            .with_http_client(Client::new(timeout)?)
            .build()?;
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource(service));
        Ok(Some(Self::new(provider.build())))
    }

    /// Through a provider of the program's own.
    pub fn new(provider: SdkTracerProvider) -> Self {
        let scope =
            InstrumentationScope::builder(env!("CARGO_PKG_NAME")).with_version(env!("CARGO_PKG_VERSION"));
        let tracer = provider.tracer_with_scope(scope.build());
        Self { provider, tracer }
    }

    /// Sends what waits, and no more after that. To be called once the instances have ended.
    pub async fn shut_down(self) {
        // It blocks until the exporter is done, which in turn needs the runtime's threads.
        let shut_down = tokio::task::spawn_blocking(move || self.provider.shutdown());
        match shut_down.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "not every trace was exported"),
            Err(error) => tracing::warn!(%error, "not every trace was exported"),
        }
    }
}

/// How long one export may take; `None` where nothing is to be exported. The endpoint itself is read by the exporter.
fn export_timeout(
    variable: impl Fn(&'static str) -> Option<String>,
) -> Result<Option<Duration>, TracesError> {
    let fault = |variable, expected| Err(TracesError::Variable { variable, expected });
    let either = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, variable(name)?)));
    if variable(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let asked = match variable(EXPORTER).as_deref() {
        None => false,
        Some("otlp") => true,
        Some("none") => return Ok(None),
        Some(_) => return fault(EXPORTER, "'otlp' or 'none'"),
    };
    match either([OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT]) {
        None if !asked => return Ok(None),
        Some((name, url)) if !Url::parse(&url).is_ok_and(|url| is_http(&url)) => {
            return fault(name, "an http:// or https:// URL");
        }
        _ => {}
    }
    if let Some((name, protocol)) = either([OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL])
        && protocol != OTEL_EXPORTER_OTLP_PROTOCOL_HTTP_PROTOBUF
    {
        return fault(name, "'http/protobuf', the only protocol that there is here");
    }
    match either([OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT]) {
        None => Ok(Some(OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT)),
        Some((name, text)) => match text.parse() {
            Ok(milliseconds @ 1..) => Ok(Some(Duration::from_millis(milliseconds))),
            _ => fault(name, "a positive number of milliseconds"),
        },
    }
}

fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}

fn resource(service: &str) -> Resource {
    // What the SDK calls a service that nobody named is fixed by the specification.
    let named = |resource: &Resource| {
        resource.get(&SERVICE_NAME).is_some_and(|name| !name.as_str().starts_with("unknown_service"))
    };
    let said = Resource::builder().build();
    if named(&said) { said } else { Resource::builder().with_service_name(service.to_owned()).build() }
}

/// The span of a tool call, which ends with this. `None` where nobody asked for traces.
pub(crate) struct CallSpan(Option<Span>);

impl CallSpan {
    /// Begins the span of an agent's call, below its caller's. What the call has for a trace context from now on is the
    /// span's own, so that the child's spans come to lie below it.
    pub(crate) fn begin(traces: Option<&Traces>, call: &mut ToolCall) -> Self {
        let source = match call.source {
            Source::Mcp => "mcp",
            Source::Step => "step",
        };
        Self(traces.map(|traces| span(traces, call, source)))
    }

    /// [`begin`](Self::begin) for a trigger's own call, which begins a trace.
    pub(crate) fn of_trigger(traces: Option<&Traces>, call: &mut ToolCall, trigger: &str) -> Self {
        Self(traces.map(|traces| {
            let mut span = span(traces, call, "trigger");
            span.set_attribute(KeyValue::new("agentenv.trigger", short(trigger)));
            span
        }))
    }

    /// The call goes to a child, so the tool is one that exists: only now may it name the span.
    pub(crate) fn goes_to(&mut self, tool: &str, child: &str) {
        if let Some(span) = self.0.as_mut().filter(|span| span.is_recording()) {
            span.update_name(format!("{METHOD} {tool}"));
            span.set_attribute(KeyValue::new("agentenv.child", child.to_owned()));
        }
    }

    /// The call has ended.
    pub(crate) fn end(self, outcome: CallOutcome) {
        let Some(mut span) = self.0 else { return };
        span.set_attribute(KeyValue::new("agentenv.outcome", outcome.label()));
        if outcome != CallOutcome::Ok {
            span.set_attribute(KeyValue::new("error.type", outcome.label()));
            span.set_status(Status::error(outcome.label()));
        }
        span.end();
    }
}

fn span(traces: &Traces, call: &mut ToolCall, source: &'static str) -> Span {
    let attributes = [
        KeyValue::new("mcp.method.name", METHOD),
        KeyValue::new("gen_ai.operation.name", "execute_tool"),
        KeyValue::new("gen_ai.tool.name", short(&call.tool)),
        KeyValue::new("agentenv.role", short(&call.role)),
        KeyValue::new("agentenv.source", source),
    ];
    let parent = parent(call.traceparent.as_ref());
    let builder = traces.tracer.span_builder(METHOD).with_kind(SpanKind::Server).with_attributes(attributes);
    let span = builder.start_with_context(&traces.tracer, &parent);
    if let Some(own) = traceparent(span.span_context()) {
        call.traceparent = Some(own);
    }
    span
}

/// What a caller says, cut where no honest name ends.
fn short(name: &str) -> String {
    name[..name.floor_char_boundary(MAX_NAME)].to_owned()
}

/// The caller's span; a context without one where the caller names none or nothing that is one.
fn parent(traceparent: Option<&HeaderValue>) -> Context {
    struct Carrier<'a>(Option<&'a str>);

    impl Extractor for Carrier<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.filter(|_| key == "traceparent")
        }

        fn keys(&self) -> Vec<&str> {
            vec!["traceparent"]
        }
    }

    let carrier = Carrier(traceparent.and_then(|value| value.to_str().ok()));
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
}

/// A span as W3C's header names it; `None` after the exporter was shut down.
fn traceparent(span: &SpanContext) -> Option<HeaderValue> {
    let (trace, id, flags) = (span.trace_id(), span.span_id(), span.trace_flags().to_u8());
    let header = || HeaderValue::try_from(format!("00-{trace}-{id}-{flags:02x}")).ok();
    span.is_valid().then(header).flatten()
}

#[cfg(test)]
mod tests;
