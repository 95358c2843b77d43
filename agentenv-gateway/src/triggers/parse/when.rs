//! Reading what a trigger fires on (contract 7.2, 7.3, 7.9).

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::super::json::Json;
use super::super::path::Path;
use super::super::predicate::Test;
use super::super::regex::Pattern;
use super::super::spec::{BarrierSpec, CallWhen, Condition, Subject, WebsiteWhen, When, Where};
use super::super::template::Provoking;
use super::Reader;
use super::fields::{Fields, Report, seconds};

/// How long a barrier holds an answer, unless it says otherwise.
const BARRIER_TIMEOUT: f64 = 30.0;

/// The longest it does, so that it ends before callers give up.
const MAX_BARRIER_TIMEOUT: f64 = 300.0;

/// What of `when` is shown in `GET /triggers/state`.
const SHOWN: [&str; 15] = [
    "type", "tool", "app", "method", "path", "status", "repeat", "roles", "at", "after", "offset", "every",
    "seed", "count", "until",
];

/// What `GET /triggers/state` shows of a `when`: not its tests, checks and whatever else may be long.
pub(super) fn summary(when: &Json) -> Box<RawValue> {
    let shown = SHOWN.iter().filter_map(|name| Some(((*name).to_owned(), when.get(name)?.clone())));
    Json::Object(shown.filter(|(name, value)| !(name == "roles" && value.is_null())).collect()).to_raw()
}

impl Reader<'_, '_> {
    pub(super) fn when(&self, trigger: &Fields<'_>, report: &mut Report) -> Option<When> {
        let Some(when) = trigger.get("when") else {
            report.fault("when", "must be an object");
            return None;
        };
        let fields = Fields::read(when, "when", report)?;
        let kind = fields.get("type").and_then(Json::as_str).unwrap_or_default();
        if matches!(kind, "state" | "time") && fields.flag("repeat", report) {
            report.fault(fields.at("repeat"), "is for action and website triggers");
        }
        if kind != "time" && fields.get("unless").is_some_and(|unless| !unless.is_null()) {
            report.fault(fields.at("unless"), "is for time triggers");
        }
        match kind {
            "action" => {
                fields.only(&["type", "tool", "where", "repeat", "roles", "unless"], report);
                self.call_when(&fields, report).map(When::Action)
            }
            "state" => {
                fields.only(&["type", "check", "roles", "repeat", "unless"], report);
                let roles = self.roles(&fields, report);
                let check = match fields.get("check") {
                    Some(check) => self.check(check, &fields.at("check"), Provoking::Nothing, report),
                    None => {
                        report.fault(fields.at("check"), "must be an object");
                        None
                    }
                };
                Some(When::State { check: Arc::new(check?), roles })
            }
            "time" => self.times(&fields, report),
            "website" => self.website(&fields, report).map(When::Website),
            _ => {
                report.fault(fields.at("type"), "must be one of action, state, time, website");
                None
            }
        }
    }

    pub(super) fn call_when(&self, fields: &Fields<'_>, report: &mut Report) -> Option<CallWhen> {
        let tool = self.tool(fields, report);
        let repeat = fields.flag("repeat", report);
        let roles = self.roles(fields, report);
        let tests = read_where(fields, true, report);
        Some(CallWhen { tool: tool?, tests, repeat, roles })
    }

    fn website(&self, fields: &Fields<'_>, report: &mut Report) -> Option<WebsiteWhen> {
        fields
            .only(&["type", "app", "method", "path", "status", "where", "repeat", "roles", "unless"], report);
        let app = fields.text("app", report);
        if let Some(app) = app.filter(|app| !(self.names.website)(app)) {
            report.fault(fields.at("app"), format_args!("names the website '{app}', which there is not"));
        }
        let method = match fields.get("method") {
            None => None,
            Some(Json::String(method)) if !method.is_empty() => Some(method.to_ascii_uppercase()),
            Some(_) => {
                report.fault(fields.at("method"), "must be an HTTP method, such as POST");
                None
            }
        };
        let mut test =
            |name: &str| fields.get(name).and_then(|test| read_test(test, &fields.at(name), report));
        let (path, status) = (test("path"), test("status"));
        let repeat = fields.flag("repeat", report);
        let roles = self.roles(fields, report);
        let tests = read_where(fields, false, report);
        Some(WebsiteWhen { app: app?.to_owned(), method, path, status, tests, repeat, roles })
    }

    pub(super) fn barrier(
        &self,
        trigger: &Fields<'_>,
        when: Option<&When>,
        report: &mut Report,
    ) -> Option<BarrierSpec> {
        let barrier = trigger.get("barrier").filter(|barrier| !barrier.is_null())?;
        let fields = Fields::read(barrier, "barrier", report)?;
        for (name, _) in fields.members {
            // A misspelt timeout would hold every call for the default one.
            if !matches!(name.as_str(), "at" | "timeout_seconds") {
                report.fault(fields.at(name), "is not a known key");
            }
        }
        if fields.get("at").and_then(Json::as_str) != Some("provoking_call") {
            report.fault(fields.at("at"), "must be provoking_call");
        }
        if matches!(when, Some(When::State { .. } | When::Time { .. })) {
            report.fault("barrier", "is for action triggers: nothing is held for a state or a time");
        }
        let timeout = match fields.get("timeout_seconds").filter(|timeout| !timeout.is_null()) {
            None => Some(BARRIER_TIMEOUT),
            Some(timeout) => seconds(timeout),
        };
        let Some(timeout) = timeout else {
            report.fault(fields.at("timeout_seconds"), "must be a number of seconds above 0");
            return None;
        };
        if timeout > MAX_BARRIER_TIMEOUT {
            report.warn(
                fields.at("timeout_seconds"),
                format_args!("holds an answer for {MAX_BARRIER_TIMEOUT} s at most"),
            );
        }
        let timeout = Duration::from_secs_f64(timeout.min(MAX_BARRIER_TIMEOUT));
        Some(BarrierSpec { timeout, shown: barrier.to_raw() })
    }
}

/// The tests of `where`.
fn read_where(fields: &Fields<'_>, with_result: bool, report: &mut Report) -> Where {
    let Some(value) = fields.get("where") else { return Where::default() };
    let Some(tests) = Fields::read(value, &fields.at("where"), report) else { return Where::default() };
    let mut conditions = Vec::new();
    for (key, test) in tests.members {
        let at = tests.at(key);
        let subject = match key.split_once('.') {
            Some(("args", path)) => Path::parse(path).map(Subject::Args),
            Some(("result", _)) if !with_result => {
                Err("reads a result, which a website request has not".to_owned())
            }
            Some(("result", path)) => Path::parse(path).map(Subject::Result),
            _ => {
                if ["args", "result"].contains(&key.split('[').next().unwrap_or_default()) {
                    let advice = "names an argument; a path into the arguments or the result begins with args. or result.";
                    report.warn(&at, advice);
                }
                Ok(Subject::Argument(key.clone()))
            }
        };
        let test = read_test(test, &at, report);
        match (subject, test) {
            (Ok(subject), Some(test)) => {
                conditions.push(Condition { name: format!("where.{key}").into(), subject, test })
            }
            (Err(problem), _) => report.fault(&at, problem),
            (Ok(_), None) => {}
        }
    }
    Where(conditions)
}

/// A test: exactly one of `regex`, `equals` and `exists`.
pub(super) fn read_test(value: &Json, at: &str, report: &mut Report) -> Option<Test> {
    let members = value.as_object().unwrap_or_default();
    let mut kinds = members.iter().filter(|(key, _)| matches!(key.as_str(), "regex" | "equals" | "exists"));
    let (Some((kind, operand)), None) = (kinds.next(), kinds.next()) else {
        report.fault(at, "must be an object with exactly one of regex, equals and exists");
        return None;
    };
    for (key, _) in members.iter().filter(|(key, _)| key != kind) {
        report.warn(format_args!("{at}.{key}"), "is not a known key, and has no effect");
    }
    let fault = |report: &mut Report, expected: &str| report.fault(format_args!("{at}.{kind}"), expected);
    match (kind.as_str(), operand) {
        ("regex", Json::String(pattern)) => match Pattern::new(pattern) {
            Ok(pattern) => return Some(Test::Regex(Arc::new(pattern))),
            Err(problem) => fault(report, &format!("is not a pattern that can be used: {problem}")),
        },
        ("regex", _) => fault(report, "must be a string"),
        ("exists", Json::Bool(exists)) => return Some(Test::Exists(*exists)),
        ("exists", _) => fault(report, "must be true or false"),
        _ => return Some(Test::Equals(operand.clone())),
    }
    None
}
