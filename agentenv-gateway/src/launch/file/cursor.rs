//! Walking through a TOML document while gathering everything that is wrong with it. What an instance file may say is left
//! to `file`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentenv_protocol::access::ToolSet;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::FileFault;

/// What is wrong so far, and the text by which places become lines.
pub(super) struct Faults<'t> {
    text: &'t str,
    faults: Vec<FileFault>,
    /// Lines that are no TOML, of whose meaning nothing more need be said.
    unreadable: BTreeSet<usize>,
}

impl<'t> Faults<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, faults: Vec::new(), unreadable: BTreeSet::new() }
    }

    /// The document, as far as it can be read.
    pub(super) fn document(&mut self) -> Spanned<DeTable<'t>> {
        let (document, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let place = error.span().unwrap_or_default();
            let quoted = self
                .text
                .get(place.clone())
                .filter(|text| (1..40).contains(&text.len()) && !text.contains('\n'));
            let quoted = quoted.map(|text| format!(" '{}'", text.trim())).unwrap_or_default();
            let line = self.line_at(place.start);
            self.unreadable.insert(line);
            self.faults.push(FileFault {
                line,
                message: format!("{}{quoted}", error.message().trim().replace('\n', ", ")),
            });
        }
        document
    }

    pub(super) fn add(&mut self, line: usize, message: String) {
        if !self.unreadable.contains(&line) {
            self.faults.push(FileFault { line, message });
        }
    }

    fn line_at(&self, place: usize) -> usize {
        1 + self.text.bytes().take(place).filter(|byte| *byte == b'\n').count()
    }

    /// `read`, if nothing was wrong.
    pub(super) fn into_result<T>(mut self, read: T) -> Result<T, Vec<FileFault>> {
        if self.faults.is_empty() {
            return Ok(read);
        }
        self.faults.sort();
        self.faults.dedup();
        Err(self.faults)
    }
}

/// A table of which keys are taken one by one; what is left is unknown.
pub(super) struct Table<'d> {
    table: &'d DeTable<'d>,
    start: usize,
    taken: Vec<&'static str>,
}

impl<'d> Table<'d> {
    pub(super) fn top(document: &'d Spanned<DeTable<'d>>) -> Self {
        Self { table: document.get_ref(), start: document.span().start, taken: Vec::new() }
    }

    /// The value of a key that may be there.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Cursor<'d>> {
        self.taken.push(key);
        let (key, value) = self.table.get_key_value(key)?;
        Some(Cursor { key: key.get_ref(), value })
    }

    /// Whether the key is there, whatever its value.
    pub(super) fn had(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn line(&self, faults: &Faults<'_>) -> usize {
        faults.line_at(self.start)
    }

    /// Names every key that was not taken, and the one that may have been meant.
    pub(super) fn finish(&self, faults: &mut Faults<'_>, of: &str) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if self.taken.contains(&name) {
                continue;
            }
            let meant = self.taken.iter().map(|known| (distance(name, known), known)).min();
            let hint = match meant {
                Some((distance, known)) if distance <= 2 => format!(", perhaps '{known}' was meant"),
                _ => format!(", it knows {}", self.taken.join(", ")),
            };
            let line = faults.line_at(key.span().start);
            faults.add(line, format!("{of} has an unknown key '{name}'{hint}"));
        }
    }
}

/// How many letters must be put in, taken out or replaced to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut corner = above;
        let mut left = above + 1;
        for (cell, against) in row.iter_mut().skip(1).zip(&other) {
            let replaced = corner + usize::from(letter != *against);
            corner = *cell;
            left = replaced.min(corner + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = above + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// A value and the key that it stands under. Each way to take it says what is wrong if it is something else.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'d> {
    key: &'d str,
    value: &'d Spanned<DeValue<'d>>,
}

impl<'d> Cursor<'d> {
    /// Says that the value is wrong, and gives nothing.
    pub(super) fn wrong<T>(self, faults: &mut Faults<'_>, message: String) -> Option<T> {
        let line = faults.line_at(self.value.span().start);
        faults.add(line, format!("{}: {message}", self.key));
        None
    }

    fn expected<T>(self, faults: &mut Faults<'_>, what: &str) -> Option<T> {
        self.wrong(faults, format!("expected {what}, found {}", self.value.get_ref().type_str()))
    }

    pub(super) fn text(self, faults: &mut Faults<'_>) -> Option<String> {
        match self.value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => self.expected(faults, "a string"),
        }
    }

    /// A string that is not blank.
    pub(super) fn word(self, faults: &mut Faults<'_>) -> Option<String> {
        let text = self.text(faults)?;
        if text.trim().is_empty() {
            self.wrong(faults, "is empty".to_owned())
        } else {
            Some(text.trim().to_owned())
        }
    }

    /// A name that can stand in a path and in lists of names.
    pub(super) fn name(self, faults: &mut Faults<'_>) -> Option<String> {
        let name = self.word(faults)?;
        if is_name(&name) { Some(name) } else { self.wrong(faults, format!("'{name}' {NOT_A_NAME}")) }
    }

    pub(super) fn boolean(self, faults: &mut Faults<'_>) -> Option<bool> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            _ => self.expected(faults, "true or false"),
        }
    }

    pub(super) fn port(self, faults: &mut Faults<'_>) -> Option<u16> {
        match self.value.get_ref() {
            DeValue::Integer(number) => match u16::from_str_radix(number.as_str(), number.radix()) {
                Ok(port) => Some(port),
                Err(_) => self.wrong(faults, format!("{number} is not a port from 0 to 65535")),
            },
            _ => self.expected(faults, "a port"),
        }
    }

    pub(super) fn seconds(self, faults: &mut Faults<'_>) -> Option<Duration> {
        let number: Option<f64> = match self.value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => return self.expected(faults, "a number of seconds"),
        };
        match number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            Some(time) => Some(time),
            None => self.wrong(faults, "is not a number of seconds".to_owned()),
        }
    }

    pub(super) fn path(self, faults: &mut Faults<'_>, folder: &Path) -> Option<PathBuf> {
        self.word(faults).map(|path| folder.join(path))
    }

    /// One path, or a list of them.
    pub(super) fn paths(self, faults: &mut Faults<'_>, folder: &Path) -> Vec<PathBuf> {
        match self.value.get_ref() {
            DeValue::Array(_) => {
                self.items(faults).iter().filter_map(|item| item.path(faults, folder)).collect()
            }
            _ => self.path(faults, folder).into_iter().collect(),
        }
    }

    fn items(self, faults: &mut Faults<'_>) -> Vec<Self> {
        match self.value.get_ref() {
            DeValue::Array(items) => items.iter().map(|value| Self { key: self.key, value }).collect(),
            _ => self.expected::<Vec<Self>>(faults, "a list").unwrap_or_default(),
        }
    }

    /// A command: a list of strings, the first of which says something.
    pub(super) fn words(self, faults: &mut Faults<'_>) -> Option<Vec<String>> {
        if !matches!(self.value.get_ref(), DeValue::Array(_)) {
            return self.expected(faults, "a list of strings, the program and its arguments");
        }
        let items = self.items(faults);
        let words: Vec<String> = items.iter().filter_map(|item| item.text(faults)).collect();
        if words.len() < items.len() {
            return None;
        }
        match words.first() {
            Some(program) if !program.trim().is_empty() => Some(words),
            _ => self.wrong(faults, "names no program".to_owned()),
        }
    }

    /// A list of tools, or `"*"`.
    pub(super) fn tools(self, faults: &mut Faults<'_>) -> Option<ToolSet> {
        match self.value.get_ref() {
            DeValue::String(text) if text == "*" => Some(ToolSet::All),
            DeValue::Array(_) => {
                let names = self.items(faults).iter().filter_map(|item| item.word(faults)).collect();
                Some(ToolSet::from_names(names))
            }
            _ => self.wrong(faults, "expected a list of tools, or \"*\"".to_owned()),
        }
    }

    pub(super) fn table(self, faults: &mut Faults<'_>) -> Option<Table<'d>> {
        match self.value.get_ref() {
            DeValue::Table(table) => Some(Table { table, start: self.value.span().start, taken: Vec::new() }),
            _ => self.expected(faults, "a table"),
        }
    }

    /// A list of tables, as `[[…]]` writes it.
    pub(super) fn tables(self, faults: &mut Faults<'_>, written: &str) -> Vec<Table<'d>> {
        if !matches!(self.value.get_ref(), DeValue::Array(_)) {
            return self.wrong::<Vec<_>>(faults, format!("is written {written}")).unwrap_or_default();
        }
        self.items(faults).into_iter().filter_map(|item| item.table(faults)).collect()
    }

    /// The keys and values of a table of which any key may be.
    pub(super) fn entries(self, faults: &mut Faults<'_>) -> Vec<(Key<'d>, Self)> {
        let Some(Table { table, .. }) = self.table(faults) else { return Vec::new() };
        table.iter().map(|(key, value)| (Key(key), Self { key: key.get_ref(), value })).collect()
    }

    /// A table of strings.
    pub(super) fn texts(self, faults: &mut Faults<'_>) -> BTreeMap<String, String> {
        let entries = self.entries(faults);
        let read = |(_, value): (_, Self)| Some((value.key.to_owned(), value.text(faults)?));
        entries.into_iter().filter_map(read).collect()
    }
}

/// A key that is itself what is said.
#[derive(Clone, Copy)]
pub(super) struct Key<'d>(&'d Spanned<Cow<'d, str>>);

impl Key<'_> {
    pub(super) fn text(self) -> String {
        self.0.get_ref().trim().to_owned()
    }

    /// A name that can stand in a path and in lists of names.
    pub(super) fn name(self, faults: &mut Faults<'_>) -> Option<String> {
        let name = self.text();
        if is_name(&name) { Some(name) } else { self.wrong(faults, &format!("'{name}' {NOT_A_NAME}")) }
    }

    /// Says that the key is wrong, and gives nothing.
    pub(super) fn wrong<T>(self, faults: &mut Faults<'_>, message: &str) -> Option<T> {
        let line = faults.line_at(self.0.span().start);
        faults.add(line, message.to_owned());
        None
    }
}

const NOT_A_NAME: &str = "is empty, or has a character that a name cannot have";

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '?', '#', '%', ',', '=']) && !name.contains(char::is_whitespace)
}
