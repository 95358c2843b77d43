//! A pattern as Python understands it, after parsing: flags resolved, names turned into numbers.

/// A piece of a pattern.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Matches the empty string.
    Empty,
    /// One character of a set.
    Set(Set),
    /// `.`: any character, or any but a newline.
    Any { newline: bool },
    /// Matches between characters.
    Edge(Edge),
    /// `(…)`, numbered from 1.
    Group(usize, Box<Node>),
    /// `(?=…)`, `(?!…)`, and with `behind`, the width of the inside in characters, `(?<=…)`, `(?<!…)`.
    Look { behind: Option<usize>, negated: bool, node: Box<Node> },
    /// `(?>…)`, `x*+`: once it has matched, it is not tried in another way.
    Atomic(Box<Node>),
    /// `*`, `+`, `?`, `{m,n}`.
    Repeat { node: Box<Node>, min: usize, max: Option<usize>, greedy: bool },
    /// One after another.
    Concat(Vec<Node>),
    /// `|`, the first that matches.
    Alt(Vec<Node>),
    /// What a group matched, again.
    Backref { group: usize, ignore_case: bool },
    /// `(?(n)yes|no)`.
    Conditional { group: usize, yes: Box<Node>, no: Box<Node> },
}

/// A place between characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// `\A`, and `^` without `m`.
    Start,
    /// `^` with `m`.
    LineStart,
    /// `\Z`.
    End,
    /// `$` without `m`: the end, or before a newline that is the last character.
    LastLineEnd,
    /// `$` with `m`.
    LineEnd,
    /// `\b`.
    Word,
    /// `\B`.
    NotWord,
}

/// A set of characters.
#[derive(Debug, Clone, Default)]
pub(super) struct Set {
    pub(super) items: Vec<SetItem>,
    pub(super) negated: bool,
    pub(super) ignore_case: bool,
}

/// What a set is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetItem {
    Range(char, char),
    /// `\w`, or `\W` when not.
    Word(bool),
    /// `\d`, `\D`.
    Digit(bool),
    /// `\s`, `\S`.
    Space(bool),
}

/// The four letters that Python holds for one when it ignores case, beyond what Unicode's simple folding says.
const LETTER_I: [char; 4] = ['i', 'I', '\u{130}', '\u{131}'];

impl Set {
    /// A single character.
    pub(super) fn one(character: char, ignore_case: bool) -> Self {
        Self { items: vec![SetItem::Range(character, character)], negated: false, ignore_case }
    }

    /// The character, if the set is that one and nothing else.
    pub(super) fn single(&self) -> Option<char> {
        match self.items.as_slice() {
            [SetItem::Range(from, to)] if from == to && !self.negated && !self.ignore_case => Some(*from),
            _ => None,
        }
    }

    /// Writes the set in the syntax of the `regex` crate, with Python's meaning of `\w`, `\d` and `\s`.
    pub(super) fn write(&self, out: &mut String) {
        if let Some(character) = self.single() {
            write_char(character, out);
            return;
        }
        out.push_str(if self.ignore_case { "(?i:[" } else { "[" });
        out.push_str(if self.negated { "^" } else { "" });
        for item in &self.items {
            match item {
                SetItem::Range(from, to) => {
                    write_char(*from, out);
                    out.push('-');
                    write_char(*to, out);
                }
                SetItem::Word(true) => out.push_str(r"\p{L}\p{N}_"),
                SetItem::Word(false) => out.push_str(r"[^\p{L}\p{N}_]"),
                SetItem::Digit(true) => out.push_str(r"\p{Nd}"),
                SetItem::Digit(false) => out.push_str(r"\P{Nd}"),
                SetItem::Space(true) => out.push_str(r"\s\x1c-\x1f"),
                SetItem::Space(false) => out.push_str(r"[^\s\x1c-\x1f]"),
            }
        }
        if self.ignore_case && self.has_letter_i() {
            out.extend(LETTER_I);
        }
        out.push_str(if self.ignore_case { "])" } else { "]" });
    }

    fn has_letter_i(&self) -> bool {
        let covers = |item: &SetItem| matches!(item, SetItem::Range(from, to) if LETTER_I.iter().any(|i| (from..=to).contains(&i)));
        self.items.iter().any(covers)
    }
}

fn write_char(character: char, out: &mut String) {
    if character.is_ascii_alphanumeric() {
        out.push(character);
    } else {
        out.push_str(&format!("\\x{{{:x}}}", u32::from(character)));
    }
}

/// Whether a character is one for `\w`, and so for `\b`.
pub(super) fn is_word(character: char) -> bool {
    // Rust's `is_alphanumeric` also counts the alphabetic marks, which Python does not.
    match character {
        '_' => true,
        ascii if ascii.is_ascii() => ascii.is_ascii_alphanumeric(),
        other => other.is_alphanumeric() && super::charset::is_letter_or_number(other),
    }
}
