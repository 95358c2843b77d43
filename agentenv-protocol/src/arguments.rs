//! Taking a call's arguments apart: each parameter is read from its own raw text, and every fault of every parameter is told
//! at once (contract 2.3, 2.4). What the parameters are is left to the tables that the macros write.

mod read;
mod words;

use std::borrow::Cow;
use std::collections::HashSet;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::Members;
use crate::schema;

pub(crate) use self::read::{Reading, absent, from_raw, read};
pub(crate) use self::words::{in_words, without_position};

/// Most faults that are told one by one.
const MAX_FAULTS: usize = 20;

/// Longest text of one fault, which may hold what the caller sent.
const MAX_FAULT_LEN: usize = 300;

/// What may be a parameter: any type with `serde::Deserialize` and `schemars::JsonSchema`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter",
    label = "cannot be read from JSON",
    note = "derive `serde::Deserialize` and `schemars::JsonSchema` for it"
)]
pub trait Parameter: DeserializeOwned + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> Parameter for T {}

/// A parameter of a tool or an extension, as generated code describes it. What is done with its type is in its functions, so that
/// a type that cannot be a parameter is one error.
#[derive(Debug)]
pub struct Param<T> {
    pub(crate) name: &'static str,
    pub(crate) description: Option<&'static str>,
    pub(crate) default: Option<fn() -> T>,
    pub(crate) default_json: Option<DefaultJson<T>>,
    pub(crate) absent: fn() -> Option<T>,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
    read: fn(&RawValue, Reading) -> Result<T, serde_json::Error>,
    expected: fn() -> String,
}

/// Writes a default as JSON.
type DefaultJson<T> = fn(fn() -> T) -> Option<Value>;

/// Describes a parameter.
pub const fn param<T: Parameter>(name: &'static str, description: Option<&'static str>) -> Param<T> {
    Param {
        name,
        description,
        default: None,
        default_json: None,
        absent: absent::<T>,
        schema: SchemaGenerator::subschema_for::<T>,
        read: read::<T>,
        expected: schema::expected::<T>,
    }
}

/// Describes a parameter that has a default.
pub const fn param_with_default<T: Parameter + Serialize>(
    name: &'static str,
    description: Option<&'static str>,
    default: fn() -> T,
) -> Param<T> {
    let mut param = param::<T>(name, description);
    param.default = Some(default);
    param.default_json = Some(|default| serde_json::to_value(default()).ok());
    param
}

/// The arguments of one call.
#[derive(Debug)]
pub(crate) struct Arguments<'a> {
    given: Members<'a>,
    known: Vec<&'static str>,
    faults: Vec<String>,
    reading: Reading,
}

impl<'a> Arguments<'a> {
    /// Takes an arguments object apart.
    pub(crate) fn parse(raw: &'a RawValue, reading: Reading) -> Result<Self, String> {
        let given = Members::of(raw.get()).map_err(|_| "arguments must be a JSON object".to_owned())?;
        let faults: Vec<_> =
            repeated(&given).into_iter().map(|name| format!("`{name}` is given twice")).collect();
        Ok(Self { given, known: Vec::new(), faults, reading })
    }

    /// A parameter's value, unless it is missing or does not fit, which is then a fault.
    pub(crate) fn take<T>(&mut self, param: &Param<T>) -> Option<T> {
        let name = param.name;
        if self.reading != Reading::Exact {
            self.known.push(name);
        }
        let Some(raw) = self.given.get(name) else {
            let value = param.default.map(|default| default()).or_else(param.absent);
            if value.is_none() {
                self.faults.push(format!("`{name}` is missing, expected {}", (param.expected)()));
            }
            return value;
        };
        match (param.read)(raw, self.reading) {
            Ok(value) => Some(value),
            Err(error) => {
                self.faults.push(format!("`{name}`: {}", in_words(&error)));
                None
            }
        }
    }

    /// What is wrong with the arguments, once every parameter was taken. A tool leaves aside what it does not know; an extension
    /// refuses it.
    pub(crate) fn faults(&mut self) -> Option<String> {
        if self.reading != Reading::Exact {
            let known = self.known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "it has none" } else { &*format!("it has {known}") };
            let unknown = self.given.iter().map(|(name, _)| name).filter(|name| !self.known.contains(name));
            self.faults.extend(unknown.map(|name| format!("`{name}` is not a parameter, {known}")));
        }
        if self.faults.is_empty() {
            return None;
        }
        let told =
            self.faults.iter().take(MAX_FAULTS).map(|fault| shortened(fault)).collect::<Vec<_>>().join("; ");
        let more = self.faults.len().saturating_sub(MAX_FAULTS);
        Some(if more == 0 { told } else { format!("{told}; and {more} more") })
    }
}

fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_FAULT_LEN) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Most arguments that are compared one by one, which for a handful is quicker than hashing them.
const FEW: usize = 16;

fn repeated<'m>(members: &'m Members<'_>) -> Vec<&'m str> {
    let names = || members.iter().map(|(name, _)| name);
    if members.len() <= FEW {
        return names()
            .enumerate()
            .filter(|(at, name)| names().take(*at).any(|other| other == *name))
            .map(|(_, name)| name)
            .collect();
    }
    let mut seen = HashSet::with_capacity(members.len());
    names().filter(|name| !seen.insert(*name)).collect()
}
