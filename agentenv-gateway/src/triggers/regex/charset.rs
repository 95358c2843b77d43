//! Sets of characters as ranges, for the matcher. Unicode's tables come from `regex-syntax`, so that both engines read
//! a set alike.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

use super::ast::Set;

/// Sorted, separate ranges of characters.
#[derive(Debug, Clone)]
pub(super) struct Charset(Box<[(char, char)]>);

impl Charset {
    /// From a set of a pattern; the reason, when the tables do not take it.
    pub(super) fn new(set: &Set) -> Result<Self, String> {
        let mut text = String::new();
        set.write(&mut text);
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let hir = regex_syntax::parse(text).map_err(|error| error.to_string())?;
        match hir.kind() {
            HirKind::Class(Class::Unicode(class)) => {
                Ok(Self(class.iter().map(|range| (range.start(), range.end())).collect()))
            }
            HirKind::Class(Class::Bytes(class)) => {
                Ok(Self(class.iter().map(|range| (range.start().into(), range.end().into())).collect()))
            }
            HirKind::Literal(literal) => {
                let only = std::str::from_utf8(&literal.0).ok().and_then(|text| text.chars().next());
                only.map(|only| Self(Box::new([(only, only)]))).ok_or_else(|| "not a character".to_owned())
            }
            _ => Err("not a set of characters".to_owned()),
        }
    }

    /// Whether it holds a character.
    pub(super) fn contains(&self, character: char) -> bool {
        let at = self.0.partition_point(|(_, to)| *to < character);
        self.0.get(at).is_some_and(|(from, _)| *from <= character)
    }
}

/// Unicode's letters and numbers of every kind: Python's `str.isalnum`.
pub(super) fn is_letter_or_number(character: char) -> bool {
    static TABLE: LazyLock<Charset> =
        LazyLock::new(|| Charset::parse(r"[\p{L}\p{N}]").unwrap_or(Charset(Box::new([]))));
    TABLE.contains(character)
}

/// Whether two characters are the same when case is ignored.
pub(super) fn same_letter(a: char, b: char) -> bool {
    if a == b || (a.is_ascii() && b.is_ascii()) {
        return a.eq_ignore_ascii_case(&b);
    }
    Charset::new(&Set::one(a, true)).is_ok_and(|set| set.contains(b))
}
