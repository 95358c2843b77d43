//! Reads a registration (contract 7.1): every fault of every trigger is found before anything is changed, and each says
//! which trigger, which field and what was expected.

mod actions;
mod checks;
mod fields;
mod settings;
mod times;
mod when;

use std::collections::HashSet;

use agentenv_protocol::access::ANY;

use self::fields::{Fields, Report};
pub(crate) use self::settings::Settings;
use super::json::Json;
use super::spec::{Spec, When};
use super::template::Provoking;

/// Most triggers at one time.
pub(crate) const MAX_TRIGGERS: usize = 100_000;

/// Most faults that a refusal lists.
const MAX_LISTED: usize = 50;

/// What there is to be named.
pub(crate) struct Names<'a> {
    /// Whether there is a tool of a name; none while tools are not known, and then any name is taken.
    pub(crate) tool: Option<&'a dyn Fn(&str) -> bool>,
    pub(crate) website: &'a dyn Fn(&str) -> bool,
    /// The trigger of an id, as it was sent.
    pub(crate) registered: &'a dyn Fn(&str) -> Option<&'a Json>,
    /// Tools of the gateway itself that come and go.
    pub(crate) own_tools: &'a [&'a str],
}

/// A registration without faults.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) settings: Settings,
    pub(crate) entries: Vec<Entry>,
    pub(crate) warnings: Vec<String>,
}

/// A trigger of a registration.
#[derive(Debug)]
pub(crate) enum Entry {
    New(Box<Spec>),
    /// The same as the one that there is.
    Unchanged(String),
}

impl Entry {
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::New(spec) => &spec.id,
            Self::Unchanged(id) => id,
        }
    }
}

/// Reads the body of `POST /triggers/register`. `settings` are those that stand, `make_id` gives a trigger without an id
/// one.
pub(crate) fn register(
    body: &Json,
    settings: &Settings,
    names: &Names<'_>,
    mut make_id: impl FnMut() -> String,
) -> Result<Registration, String> {
    let mut report = Report::default();
    let Some(fields) = Fields::read(body, "request body", &mut report) else {
        return Err(report.faults.join("; "));
    };
    fields.only(&["triggers", "watch_roles", "executor", "executors"], &mut report);
    let settings = settings.extended(&fields, &mut report);
    let Some(triggers) = fields.get("triggers").and_then(Json::as_array) else {
        report.fault("triggers", "must be a list");
        return Err(report.faults.join("; "));
    };
    if triggers.len() > MAX_TRIGGERS {
        report.fault("triggers", format_args!("are more than {MAX_TRIGGERS}"));
        return Err(report.faults.join("; "));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(triggers.len());
    let mut ids = HashSet::new();
    for (at, trigger) in triggers.iter().enumerate() {
        let mut own = Report::default();
        let entry = read_trigger(trigger, &settings, names, &mut make_id, &mut own);
        let id = trigger.get("id").and_then(Json::as_str);
        if id.is_some_and(|id| !ids.insert(id.to_owned())) {
            own.fault("id", "is used twice in this request");
        }
        let label = id.map(|id| format!(" '{id}'")).unwrap_or_default();
        report
            .warnings
            .extend(own.warnings.into_iter().map(|warning| format!("triggers[{at}]{label}: {warning}")));
        if !own.faults.is_empty() {
            report.faults.push(format!("triggers[{at}]{label}: {}", own.faults.join("; ")));
        }
        entries.extend(entry);
    }
    if report.faults.is_empty() {
        return Ok(Registration { settings, entries, warnings: report.warnings });
    }
    let more = report.faults.len().saturating_sub(MAX_LISTED);
    report.faults.truncate(MAX_LISTED);
    if more > 0 {
        report.faults.push(format!("and {more} more"));
    }
    Err(report.faults.join("; "))
}

/// Reads the body of `POST /triggers/remove`.
pub(crate) fn remove(body: &Json) -> Result<Vec<String>, String> {
    let ids = body.get("ids").and_then(Json::as_array).and_then(|ids| {
        ids.iter()
            .map(|id| id.as_str().filter(|id| !id.is_empty()).map(str::to_owned))
            .collect::<Option<Vec<_>>>()
    });
    ids.ok_or_else(|| "request body must be an object whose ids is a list of non-empty strings".to_owned())
}

fn read_trigger(
    trigger: &Json,
    settings: &Settings,
    names: &Names<'_>,
    make_id: &mut impl FnMut() -> String,
    report: &mut Report,
) -> Option<Entry> {
    let fields = Fields::read(trigger, "", report)?;
    let id = match fields.get("id") {
        None | Some(Json::Null) => make_id(),
        Some(Json::String(id)) if !id.is_empty() => id.clone(),
        Some(_) => {
            report.fault("id", "must be a non-empty string");
            String::new()
        }
    };
    if let Some(registered) = (names.registered)(&id) {
        if registered == trigger {
            return Some(Entry::Unchanged(id));
        }
        report.fault("id", "is used by a different trigger; remove that one first");
        return None;
    }
    fields.only(&["id", "when", "actions", "barrier"], report);
    let reader = Reader { settings, names };
    let when = reader.when(&fields, report);
    let provoking = match &when {
        Some(When::Action(_)) => Provoking::Call,
        Some(When::Website(_)) => Provoking::Args,
        Some(_) => Provoking::Nothing,
        // Of what it fires on nothing is known, so that nothing can be said about placeholders either.
        None => Provoking::Call,
    };
    let actions = reader.actions(&fields, provoking, report);
    let barrier = reader.barrier(&fields, when.as_ref(), report);
    let (when, actions) = (when?, actions?);
    if !report.faults.is_empty() {
        return None;
    }
    let reads =
        actions.iter().map(super::spec::Action::reads).fold((false, false), |a, b| (a.0 || b.0, a.1 || b.1));
    let summary = when::summary(fields.get("when")?);
    Some(Entry::New(Box::new(Spec { id, source: trigger.clone(), when, actions, barrier, summary, reads })))
}

/// What the parts of a trigger are read with.
struct Reader<'a, 'n> {
    settings: &'a Settings,
    names: &'a Names<'n>,
}

impl Reader<'_, '_> {
    /// A field that names a tool.
    fn tool(&self, fields: &Fields<'_>, report: &mut Report) -> Option<String> {
        let tool = fields.text("tool", report)?;
        self.check_tool(&fields.at("tool"), tool, report);
        Some(tool.to_owned())
    }

    fn check_tool(&self, at: &str, tool: &str, report: &mut Report) {
        if self.names.tool.is_some_and(|known| !known(tool)) {
            report.fault(at, format_args!("names the tool '{tool}', which no environment serves"));
        }
    }

    /// `roles`, in place of the watched ones; none when left out.
    fn roles(&self, fields: &Fields<'_>, report: &mut Report) -> Option<Vec<String>> {
        let roles = fields.get("roles").filter(|roles| !roles.is_null())?;
        let Some(roles) = fields::names(roles).filter(|roles| !roles.is_empty()) else {
            report.fault(fields.at("roles"), "must be a non-empty list of role names");
            return None;
        };
        for role in &roles {
            if role == ANY {
                report.warn(fields.at("roles"), "names '*', which is not a role that a caller can have");
            }
            if self.settings.executor_roles().any(|executor| executor == role) {
                report.warn(
                    fields.at("roles"),
                    format_args!("names '{role}', an executor's role: what it does here fires the trigger"),
                );
            }
        }
        Some(roles)
    }
}

#[cfg(test)]
#[path = "parse/tests.rs"]
mod tests;
