use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::*;

const CALLERS: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn timeout(variables: &[(&'static str, &str)]) -> Result<Option<Duration>, String> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    export_timeout(|name| variables.get(name).map(|value| (*value).to_owned()))
        .map_err(|error| error.to_string())
}

fn call(traceparent: Option<&'static str>) -> ToolCall {
    ToolCall {
        traceparent: traceparent.map(HeaderValue::from_static),
        ..ToolCall::new("send", RawValue::NULL.to_owned())
    }
}

/// The four fields of a call's trace context.
fn fields(call: &ToolCall) -> [String; 4] {
    let text = call.traceparent.as_ref().unwrap().to_str().unwrap();
    text.split('-').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn nothing_is_exported_unless_the_environment_says_where_to() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let default = Ok(Some(Duration::from_secs(10)));
    assert_eq!(timeout(&[]), Ok(None));
    assert_eq!(timeout(&[("OTEL_TRACES_EXPORTER", "otlp")]), default);
    assert_eq!(timeout(&[endpoint]), default);
    assert_eq!(timeout(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector/v1/traces")]), default);
    assert_eq!(timeout(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
    assert_eq!(timeout(&[endpoint, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
    let short = [endpoint, ("OTEL_EXPORTER_OTLP_TIMEOUT", "9"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "7")];
    assert_eq!(timeout(&short), Ok(Some(Duration::from_millis(7))));
}

#[test]
fn a_variable_that_cannot_be_right_is_named_and_its_value_is_not() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    for wrong in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "/secret"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ] {
        let error = timeout(&[endpoint, wrong]).unwrap_err();
        assert!(error.starts_with(&format!("{} must be ", wrong.0)), "{error}");
        assert!(!error.contains(wrong.1), "{error}");
    }
}

#[test]
fn a_call_goes_on_with_its_own_span_below_its_callers() {
    let traces = Traces::new(SdkTracerProvider::builder().build());
    let mut below = call(Some(CALLERS));
    drop(CallSpan::begin(Some(&traces), &mut below));
    let [version, trace, span, flags] = fields(&below);
    assert_eq!((&*version, &*trace, &*flags), ("00", "0af7651916cd43dd8448eb211c80319c", "01"));
    assert_ne!(span, "b7ad6b7169203331");

    // One that its caller keeps out of the sample stays out.
    let mut unsampled = call(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"));
    drop(CallSpan::begin(Some(&traces), &mut unsampled));
    let [_, trace, _, flags] = fields(&unsampled);
    assert_eq!((&*trace, &*flags), ("0af7651916cd43dd8448eb211c80319c", "00"));
}

#[test]
fn a_call_without_a_caller_that_can_be_named_begins_a_trace() {
    let traces = Traces::new(SdkTracerProvider::builder().build());
    for traceparent in [None, Some(""), Some("00-0-0-0"), Some("ff-0af7651916cd43dd8448eb211c80319c-x-01")] {
        let mut call = call(traceparent);
        drop(CallSpan::begin(Some(&traces), &mut call));
        let [version, trace, span, _] = fields(&call);
        assert_eq!((&*version, trace.len(), span.len()), ("00", 32, 16));
        assert_ne!(trace, "0af7651916cd43dd8448eb211c80319c");
    }
}

#[test]
fn without_traces_the_callers_context_passes_as_it_came() {
    let mut call = call(Some(CALLERS));
    drop(CallSpan::begin(None, &mut call));
    assert_eq!(call.traceparent.as_ref().unwrap(), CALLERS);

    let traces = Traces::new(SdkTracerProvider::builder().build());
    traces.provider.shutdown().unwrap();
    drop(CallSpan::begin(Some(&traces), &mut call));
    assert_eq!(call.traceparent.as_ref().unwrap(), CALLERS);
}

#[test]
fn names_from_outside_are_cut() {
    let long = "ä".repeat(MAX_NAME);
    assert_eq!(short(&long).len(), MAX_NAME);
    assert_eq!(short("send"), "send");
}
