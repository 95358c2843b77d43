//! Reading a check: a state trigger's, or an action's `verify` (contract 7.3).

use std::collections::BTreeSet;

use super::super::json::Json;
use super::super::path::Path;
use super::super::spec::{Check, CheckStep, Extract, Pick};
use super::super::template::{Provoking, Template};
use super::Reader;
use super::fields::{Fields, Report};
use super::when::read_test;

impl Reader<'_, '_> {
    pub(super) fn check(
        &self,
        value: &Json,
        at: &str,
        provoking: Provoking,
        report: &mut Report,
    ) -> Option<Check> {
        let fields = Fields::read(value, at, report)?;
        let mut bound = BTreeSet::new();
        let Some(listed) = fields.get("steps") else {
            if !fields.has("tool") {
                report.fault(at, "needs steps, or one step's tool and predicate");
                return None;
            }
            let step = self.step(&fields, true, provoking, &mut bound, report)?;
            return Some(Check { steps: vec![step] });
        };
        fields.only(&["steps"], report);
        let Some(listed) = listed.as_array().filter(|steps| !steps.is_empty()) else {
            report.fault(fields.at("steps"), "must be a non-empty list");
            return None;
        };
        let mut steps = Vec::new();
        for (index, step) in listed.iter().enumerate() {
            let Some(step) = Fields::read(step, &format!("{}[{index}]", fields.at("steps")), report) else {
                continue;
            };
            steps.extend(self.step(&step, index + 1 == listed.len(), provoking, &mut bound, report));
        }
        (steps.len() == listed.len()).then_some(Check { steps })
    }

    fn step(
        &self,
        fields: &Fields<'_>,
        last: bool,
        provoking: Provoking,
        bound: &mut BTreeSet<String>,
        report: &mut Report,
    ) -> Option<CheckStep> {
        fields.only(&["tool", "args", "extract", "bind", "predicate"], report);
        let tool = self.tool(fields, report);
        let args = read_args(fields, provoking, report);
        for name in args.iter().flat_map(Template::names).filter(|name| !bound.contains(*name)) {
            report.warn(
                fields.at("args"),
                format_args!("${{{name}}} is bound by no earlier step, and stays as it is"),
            );
        }
        let extract =
            fields.get("extract").and_then(|extract| read_extract(extract, &fields.at("extract"), report));
        let bind = match fields.get("bind") {
            None | Some(Json::Null) => None,
            Some(Json::String(name)) => {
                if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
                    report.warn(fields.at("bind"), "is not a name that a placeholder can have");
                }
                bound.insert(name.clone());
                Some(name.clone())
            }
            Some(_) => {
                report.fault(fields.at("bind"), "must be a name");
                None
            }
        };
        let predicate =
            fields.get("predicate").and_then(|test| read_test(test, &fields.at("predicate"), report));
        if last && !fields.has("predicate") {
            report.fault(fields.at("predicate"), "must be there on the last step");
        }
        Some(CheckStep { tool: tool?, args: args?, extract, bind, predicate })
    }
}

/// `args`, an object with placeholders.
pub(super) fn read_args(fields: &Fields<'_>, provoking: Provoking, report: &mut Report) -> Option<Template> {
    let at = fields.at("args");
    match fields.get("args") {
        None => Some(Template::Object(Vec::new())),
        Some(args @ Json::Object(_)) => {
            Some(Template::parse(args, provoking, &mut |problem| report.fault(&at, problem)))
        }
        Some(_) => {
            report.fault(at, "must be an object");
            None
        }
    }
}

/// None, without a fault, where the raw text is meant.
fn read_extract(value: &Json, at: &str, report: &mut Report) -> Option<Extract> {
    let mut path = |text: &str, at: &str| {
        if text.is_empty() {
            return Some(Path::ROOT);
        }
        Path::parse_from_root(text).map_err(|problem| report.fault(at, problem)).ok()
    };
    match value {
        Json::Null => None,
        Json::String(text) if text.is_empty() => None,
        Json::String(text) => Some(Extract { path: path(text, at)?, pick: None }),
        Json::Object(members) if value.get("path").is_some_and(|path| path.as_str().is_some()) => {
            let place = format!("{at}.path");
            let found = path(value.get("path").and_then(Json::as_str).unwrap_or_default(), &place);
            for (name, _) in
                members.iter().filter(|(name, _)| !matches!(name.as_str(), "path" | "match" | "take"))
            {
                report.warn(format_args!("{at}.{name}"), "is not a known key, and has no effect");
            }
            let mut fields = Vec::new();
            if let Some(tests) = value.get("match") {
                let tests = Fields::read(tests, &format!("{at}.match"), report)?;
                for (field, test) in tests.members {
                    fields
                        .extend(read_test(test, &tests.at(field), report).map(|test| (field.clone(), test)));
                }
            }
            let take = match value.get("take") {
                None | Some(Json::Null) => None,
                Some(Json::String(take)) => Some(take.clone()).filter(|take| !take.is_empty()),
                Some(_) => {
                    report.fault(format_args!("{at}.take"), "must be a field's name");
                    None
                }
            };
            Some(Extract { path: found?, pick: Some(Pick { fields, take }) })
        }
        _ => {
            report.fault(at, "must be a dot path, or an object with path and optionally match and take");
            None
        }
    }
}
