//! Arguments with placeholders: `${args.to}`, `${result.sent}`, `${name}` (contract 7.3, 7.5). What is put in is never
//! looked at again, so that no argument of an agent becomes a placeholder.

use std::collections::BTreeMap;

use super::json::{Json, NULL};
use super::path::Path;

/// Most bytes that filled-in arguments may have as JSON.
pub(crate) const MAX_RENDERED: usize = 16 << 20;

/// Deepest nesting of filled-in arguments: what the gateway takes from callers, too.
pub(crate) const MAX_DEPTH: usize = 256;

/// Arguments that may hold placeholders.
#[derive(Debug, Clone)]
pub(crate) enum Template {
    Fixed(Json),
    /// A string that is one placeholder: what it finds keeps its type.
    Whole(Placeholder),
    Text(Vec<Piece>),
    Array(Vec<Template>),
    Object(Vec<(String, Template)>),
}

#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Literal(String),
    Value(Placeholder),
}

#[derive(Debug, Clone)]
pub(crate) struct Placeholder {
    /// As written, for messages.
    text: String,
    source: Source,
    /// `?`: nothing there is no failure.
    optional: bool,
}

#[derive(Debug, Clone)]
enum Source {
    Args(Path),
    Result(Path),
    /// A name that a check's step bound; text when there is none of that name.
    Name(String),
}

/// Which of the provoking call's parts placeholders may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provoking {
    /// None: nothing called.
    Nothing,
    /// A website request has arguments only.
    Args,
    /// A tool call.
    Call,
}

/// Values for placeholders.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values<'a> {
    pub(crate) args: Option<&'a Json>,
    pub(crate) result: Option<&'a Json>,
    pub(crate) bound: BTreeMap<String, Json>,
}

/// Why arguments could not be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfilled {
    #[error("nothing to put in for {0}")]
    Missing(String),
    #[error("the arguments with everything put in are larger than {MAX_RENDERED} bytes")]
    TooLarge,
    #[error("the arguments with everything put in are nested more than {MAX_DEPTH} deep")]
    TooDeep,
}

impl Template {
    /// Reads arguments. Faults go to `fault`, one for each placeholder that is malformed or has nothing to read from.
    pub(crate) fn parse(value: &Json, provoking: Provoking, fault: &mut impl FnMut(String)) -> Self {
        match value {
            Json::String(text) if text.contains("${") => Self::text(text, provoking, fault),
            Json::Array(items) => {
                Self::Array(items.iter().map(|item| Self::parse(item, provoking, fault)).collect())
            }
            Json::Object(members) => {
                let members = members.iter();
                Self::Object(
                    members.map(|(key, value)| (key.clone(), Self::parse(value, provoking, fault))).collect(),
                )
            }
            other => Self::Fixed(other.clone()),
        }
    }

    fn text(text: &str, provoking: Provoking, fault: &mut impl FnMut(String)) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once("${") {
            if !literal.is_empty() {
                pieces.push(Piece::Literal(literal.to_owned()));
            }
            let Some((inside, after)) = after.split_once('}') else {
                fault(format!("unterminated placeholder in {text:?}"));
                return Self::Fixed(Json::Null);
            };
            match Placeholder::parse(inside, provoking) {
                Ok(placeholder) => pieces.push(Piece::Value(placeholder)),
                Err(problem) => fault(problem),
            }
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.to_owned()));
        }
        match <[Piece; 1]>::try_from(pieces) {
            Ok([Piece::Value(placeholder)]) => Self::Whole(placeholder),
            Ok(pieces) => Self::Text(pieces.into()),
            Err(pieces) => Self::Text(pieces),
        }
    }

    /// Every name that a placeholder reads which is not of the provoking call.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.each(&mut |placeholder| {
            if let Source::Name(name) = &placeholder.source {
                names.push(name.as_str());
            }
        });
        names
    }

    /// Whether anything is read from the provoking call's arguments, and from its result.
    pub(crate) fn reads(&self) -> (bool, bool) {
        let mut reads = (false, false);
        self.each(&mut |placeholder| match placeholder.source {
            Source::Args(_) => reads.0 = true,
            Source::Result(_) => reads.1 = true,
            Source::Name(_) => {}
        });
        reads
    }

    fn each<'a>(&'a self, see: &mut impl FnMut(&'a Placeholder)) {
        match self {
            Self::Fixed(_) => {}
            Self::Whole(placeholder) => see(placeholder),
            Self::Text(pieces) => {
                for piece in pieces {
                    if let Piece::Value(placeholder) = piece {
                        see(placeholder);
                    }
                }
            }
            Self::Array(items) => items.iter().for_each(|item| item.each(see)),
            Self::Object(members) => members.iter().for_each(|(_, value)| value.each(see)),
        }
    }

    /// Fills the placeholders in.
    ///
    /// # Errors
    /// A required placeholder has nothing to read, or the outcome is too large or too deep.
    pub(crate) fn fill(&self, values: &Values<'_>) -> Result<Json, Unfilled> {
        let mut left = MAX_RENDERED;
        let filled = self.fill_in(values, &mut left)?.unwrap_or(Json::Null);
        if deeper_than(&filled, MAX_DEPTH) { Err(Unfilled::TooDeep) } else { Ok(filled) }
    }

    /// None where an optional placeholder has nothing, which drops what it stands in.
    fn fill_in(&self, values: &Values<'_>, left: &mut usize) -> Result<Option<Json>, Unfilled> {
        Ok(Some(match self {
            Self::Fixed(value) => value.clone(),
            Self::Whole(placeholder) => match placeholder.find(values)? {
                Found::Value(value) => {
                    spend(left, value)?;
                    value.clone()
                }
                Found::Text(text) => Json::String(text),
                Found::Nothing => return Ok(None),
            },
            Self::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Literal(literal) => text.push_str(literal),
                        Piece::Value(placeholder) => match placeholder.find(values)? {
                            Found::Value(value) => {
                                spend(left, value)?;
                                text.push_str(&value.text());
                            }
                            Found::Text(literal) => text.push_str(&literal),
                            Found::Nothing => {}
                        },
                    }
                }
                Json::String(text)
            }
            Self::Array(items) => {
                let filled = items.iter().filter_map(|item| item.fill_in(values, left).transpose());
                Json::Array(filled.collect::<Result<_, _>>()?)
            }
            Self::Object(members) => {
                let mut filled = Vec::new();
                for (key, value) in members {
                    filled.extend(value.fill_in(values, left)?.map(|value| (key.clone(), value)));
                }
                Json::Object(filled)
            }
        }))
    }
}

enum Found<'a> {
    Value(&'a Json),
    /// The placeholder itself: no step has bound its name.
    Text(String),
    Nothing,
}

impl Placeholder {
    fn parse(inside: &str, provoking: Provoking) -> Result<Self, String> {
        let text = format!("${{{inside}}}");
        let (path, optional) = inside.strip_suffix('?').map_or((inside, false), |path| (path, true));
        Path::parse(path).map_err(|_| {
            format!("{text} is not a placeholder: expected ${{args.<path>}}, ${{result.<path>}} or a name that a check binds")
        })?;
        let source = match path.split_once('.') {
            None if path == "args" => Source::Args(Path::ROOT),
            None if path == "result" => Source::Result(Path::ROOT),
            None if !path.contains('[') => Source::Name(path.to_owned()),
            Some(("args", path)) => Source::Args(Path::parse(path)?),
            Some(("result", path)) => Source::Result(Path::parse(path)?),
            _ => {
                return Err(format!(
                    "{text} must be a path into args or result, or a name that a check binds"
                ));
            }
        };
        match (&source, provoking) {
            (Source::Args(_) | Source::Result(_), Provoking::Nothing) => {
                Err(format!("{text} reads a provoking call, which only action and website triggers have"))
            }
            (Source::Result(_), Provoking::Args) => {
                Err(format!("{text} reads a result, which a website request has not"))
            }
            _ => Ok(Self { text, source, optional }),
        }
    }

    fn find<'a>(&self, values: &'a Values<'_>) -> Result<Found<'a>, Unfilled> {
        let value = match &self.source {
            Source::Args(path) => path.find(values.args.unwrap_or(&NULL)),
            Source::Result(path) => path.find(values.result.unwrap_or(&NULL)),
            Source::Name(name) => match values.bound.get(name) {
                Some(value) => value,
                None if self.optional => &NULL,
                None => return Ok(Found::Text(self.text.clone())),
            },
        };
        match (value.is_null(), self.optional) {
            (false, _) => Ok(Found::Value(value)),
            (true, true) => Ok(Found::Nothing),
            (true, false) => Err(Unfilled::Missing(self.text.clone())),
        }
    }
}

/// Counts a value against what may still be put in.
fn spend(left: &mut usize, value: &Json) -> Result<(), Unfilled> {
    fn size(value: &Json) -> usize {
        match value {
            Json::String(text) => text.len() + 2,
            Json::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
            Json::Object(members) => {
                members.iter().map(|(key, value)| key.len() + size(value) + 4).sum::<usize>() + 2
            }
            Json::Big(digits) => digits.len(),
            _ => 8,
        }
    }
    *left = left.checked_sub(size(value)).ok_or(Unfilled::TooLarge)?;
    Ok(())
}

fn deeper_than(value: &Json, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return !matches!(value, Json::Null | Json::Bool(_) | Json::Int(_));
    };
    match value {
        Json::Array(items) => items.iter().any(|item| deeper_than(item, depth)),
        Json::Object(members) => members.iter().any(|(_, value)| deeper_than(value, depth)),
        _ => false,
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
