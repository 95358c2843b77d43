//! Reading the members of an object, and noting what is wrong with them.

use std::fmt::Display;

use super::super::json::Json;

/// What was found wrong, and what has no effect.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) faults: Vec<String>,
    pub(super) warnings: Vec<String>,
}

impl Report {
    /// Notes a fault of a field.
    pub(super) fn fault(&mut self, at: impl Display, expected: impl Display) {
        self.faults.push(sentence(at, expected));
    }

    /// Notes something that is taken but has no effect.
    pub(super) fn warn(&mut self, at: impl Display, what: impl Display) {
        self.warnings.push(sentence(at, what));
    }
}

fn sentence(at: impl Display, what: impl Display) -> String {
    let at = at.to_string();
    if at.is_empty() { format!("{what}") } else { format!("{at}: {what}") }
}

/// An object's members, and where it stands.
pub(super) struct Fields<'a> {
    pub(super) members: &'a [(String, Json)],
    at: String,
}

impl<'a> Fields<'a> {
    /// The members of an object at a place; a fault if it is something else.
    pub(super) fn read(value: &'a Json, at: &str, report: &mut Report) -> Option<Self> {
        match value.as_object() {
            Some(members) => {
                Some(Self { members, at: if at == "request body" { String::new() } else { at.to_owned() } })
            }
            None => {
                report.fault(at, "must be an object");
                None
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Json> {
        self.members.iter().find_map(|(key, value)| (key == name).then_some(value))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Where a member stands.
    pub(super) fn at(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    /// Where the object stands.
    pub(super) fn place(&self) -> &str {
        &self.at
    }

    /// A member that must be a non-empty string.
    pub(super) fn text(&self, name: &str, report: &mut Report) -> Option<&'a str> {
        let text = self.get(name).and_then(Json::as_str).filter(|text| !text.is_empty());
        if text.is_none() {
            report.fault(self.at(name), "must be a non-empty string");
        }
        text
    }

    /// A member that must be true or false; false when left out.
    pub(super) fn flag(&self, name: &str, report: &mut Report) -> bool {
        match self.get(name) {
            None => false,
            Some(Json::Bool(flag)) => *flag,
            Some(_) => {
                report.fault(self.at(name), "must be true or false");
                false
            }
        }
    }

    /// Warns of members that nothing reads.
    pub(super) fn only(&self, known: &[&str], report: &mut Report) {
        for (name, _) in self.members {
            if !known.contains(&name.as_str()) {
                report.warn(self.at(name), "is not a known key, and has no effect");
            }
        }
    }
}

/// A list of non-empty strings.
pub(super) fn names(value: &Json) -> Option<Vec<String>> {
    let names = value.as_array()?.iter();
    names.map(|name| name.as_str().filter(|name| !name.is_empty()).map(str::to_owned)).collect()
}

/// A number of seconds above zero.
pub(super) fn seconds(value: &Json) -> Option<f64> {
    value.as_f64().filter(|seconds| seconds.is_finite() && *seconds > 0.0)
}
