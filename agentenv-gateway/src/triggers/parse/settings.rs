//! What is fixed by the first registration that says it: the watched roles and the executors (contract 7.1, 7.6).

use std::collections::BTreeMap;
use std::sync::Arc;

use agentenv_protocol::access::ANY;
use jiff::civil::{Time, Weekday};
use jiff::tz::{Offset, TimeZone};

use super::super::executor::Executor;
use super::super::hours::Hours;
use super::super::json::Json;
use super::super::spec::ExecutorSpec;
use super::fields::{Fields, Report, names};
use crate::clock::get_time::find_zone;

/// The days of the week as they are written.
const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

/// The settings that stand until the triggers are cleared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// None before the first registration.
    pub(crate) watch_roles: Option<Vec<String>>,
    pub(crate) executor: Option<Arc<ExecutorSpec>>,
    pub(crate) executors: BTreeMap<String, Arc<ExecutorSpec>>,
}

impl Settings {
    /// The roles whose calls count.
    pub(crate) fn watched(&self) -> &[String] {
        self.watch_roles.as_deref().unwrap_or_default()
    }

    /// The executor of a name, or the one without.
    pub(crate) fn find_executor(&self, name: Option<&str>) -> Option<&Arc<ExecutorSpec>> {
        match name {
            Some(name) => self.executors.get(name),
            None => self.executor.as_ref(),
        }
    }

    pub(crate) fn executor_roles(&self) -> impl Iterator<Item = &String> {
        self.executor.iter().chain(self.executors.values()).map(|executor| &executor.agent.role)
    }

    /// These settings with what a registration adds to them.
    pub(super) fn extended(&self, fields: &Fields<'_>, report: &mut Report) -> Self {
        let mut settings = self.clone();
        settings.add_roles(fields, report);
        if let Some(value) = fields.get("executor").filter(|value| !value.is_null()) {
            let known = settings.executor.take();
            settings.executor = read_executor(value, "executor", known, &settings, report);
        }
        match fields.get("executors").filter(|value| !value.is_null()) {
            None => {}
            Some(Json::Object(executors)) => {
                for (name, value) in executors {
                    let at = format!("executors.{name}");
                    if name.is_empty() {
                        report.fault("executors", "must be keyed by non-empty names");
                    }
                    let known = settings.executors.remove(name);
                    if let Some(executor) = read_executor(value, &at, known, &settings, report) {
                        settings.executors.insert(name.clone(), executor);
                    }
                }
            }
            Some(_) => report.fault("executors", "must be an object of executors by name"),
        }
        settings
    }

    fn add_roles(&mut self, fields: &Fields<'_>, report: &mut Report) {
        let given = fields.get("watch_roles").filter(|roles| !roles.is_null());
        let Some(given) = given else {
            self.watch_roles.get_or_insert_with(|| vec!["default".to_owned()]);
            return;
        };
        let Some(given) = names(given) else {
            report.fault("watch_roles", "must be a list of non-empty strings");
            return;
        };
        if given.iter().any(|role| role == ANY) {
            report.warn("watch_roles", "names '*', which is not a role that a caller can have");
        }
        let standing = self.watch_roles.get_or_insert_with(|| given.clone());
        let all_in = |some: &[String], others: &[String]| some.iter().all(|role| others.contains(role));
        if !(all_in(&given, standing) && all_in(standing, &given)) {
            report.fault(
                "watch_roles",
                format_args!("are fixed as {standing:?} until the triggers are cleared, got {given:?}"),
            );
        }
    }
}

fn read_executor(
    value: &Json,
    at: &str,
    known: Option<Arc<ExecutorSpec>>,
    settings: &Settings,
    report: &mut Report,
) -> Option<Arc<ExecutorSpec>> {
    if let Some(known) = known {
        if known.source != *value {
            report.fault(at, "is fixed until the triggers are cleared, and this is another");
        }
        return Some(known);
    }
    let fields = Fields::read(value, at, report)?;
    fields.only(&["a2a_url", "role", "timeout_seconds", "hours"], report);
    let agent = serde_json::from_str(value.to_raw().get()).map_err(|_| vec![format!("{at} cannot be read")]);
    let agent = agent
        .and_then(|value| Executor::parse(&value, at))
        .map_err(|faults| report.faults.extend(faults))
        .ok();
    if let Some(role) =
        agent.as_ref().map(|agent| &agent.role).filter(|role| settings.watched().contains(role))
    {
        let problem =
            format!("'{role}' is a watched role, so that the executor's own calls would fire triggers");
        report.fault(fields.at("role"), problem);
    }
    let hours = fields.get("hours").filter(|hours| !hours.is_null());
    let hours = hours.and_then(|hours| read_hours(hours, &fields.at("hours"), report));
    Some(Arc::new(ExecutorSpec { source: value.clone(), agent: agent?, hours }))
}

fn read_hours(value: &Json, at: &str, report: &mut Report) -> Option<Hours> {
    let fields = Fields::read(value, at, report)?;
    fields.only(&["start", "end", "utc_offset", "time_zone", "days"], report);
    let mut time = |name: &str| {
        let time = fields.get(name).and_then(Json::as_str).and_then(read_time);
        if time.is_none() {
            report.fault(fields.at(name), "must be a time of day written HH:MM");
        }
        time
    };
    let (start, end) = (time("start"), time("end"));
    if start.is_some() && start == end {
        report.fault(at, "must not end when they start, or the executor would never work");
    }
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let zone = match (given("utc_offset"), given("time_zone")) {
        (None, None) => Some(TimeZone::UTC),
        (Some(_), Some(_)) => {
            report.fault(at, "take utc_offset or time_zone, not both");
            None
        }
        (Some(offset), None) => {
            let zone = offset.as_str().and_then(read_offset).map(TimeZone::fixed);
            if zone.is_none() {
                report.fault(fields.at("utc_offset"), "must be written like -07:00 or +05:30");
            }
            zone
        }
        (None, Some(name)) => {
            let zone = name.as_str().and_then(find_zone);
            if zone.is_none() {
                report
                    .fault(fields.at("time_zone"), "must be an IANA time zone name such as America/New_York");
            }
            zone
        }
    };
    let days = match given("days") {
        None => Some(Vec::new()),
        Some(days) => {
            let day =
                |name: String| DAYS.iter().find_map(|(day, weekday)| (*day == name).then_some(*weekday));
            let days = names(days).and_then(|days| days.into_iter().map(day).collect::<Option<Vec<_>>>());
            let days = days.filter(|days| !days.is_empty());
            if days.is_none() {
                report.fault(
                    fields.at("days"),
                    "must be a non-empty list of mon, tue, wed, thu, fri, sat, sun",
                );
            }
            days
        }
    };
    Some(Hours { start: start?, end: end?, zone: zone?, days: days? })
}

/// `HH:MM`.
fn read_time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let two = |text: &str| {
        (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse::<i8>().ok())?
    };
    Time::new(two(hour)?, two(minute)?, 0, 0).ok()
}

/// `+HH:MM` or `-HH:MM`.
fn read_offset(text: &str) -> Option<Offset> {
    let sign = match text.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let time = read_time(text.get(1..)?)?;
    Offset::from_seconds(sign * (i32::from(time.hour()) * 3_600 + i32::from(time.minute()) * 60)).ok()
}
