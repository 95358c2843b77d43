//! Patterns of Python's `re`, searched in bounded time (contract 7.2, 9). A pattern that the linear engine of the `regex`
//! crate can take is searched with it; one with look-around, references or atomic groups by a backtracking matcher of
//! our own that counts its steps. The usual crate for such patterns bounds how often it backtracks but not what lies
//! between: `(?=.*x)a` on a megabyte without an x held it for minutes, and a pattern must never hold up the gateway.

mod ast;
mod charset;
mod linear;
mod matcher;
mod parse;
mod program;

pub(crate) use self::matcher::TooManySteps;

/// Longest pattern, in bytes.
pub(crate) const MAX_PATTERN: usize = 64 * 1024;

/// Memory that a compiled pattern of the linear engine may take, in bytes.
const MAX_COMPILED: usize = 4 << 20;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    linear: Option<regex::Regex>,
    /// For what the linear engine cannot do, and for texts in which it would do it differently.
    backtracking: Option<program::Program>,
}

impl Pattern {
    /// Compiles a pattern; an error says what is wrong with it.
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        if pattern.len() > MAX_PATTERN {
            return Err(format!("the pattern is longer than {MAX_PATTERN} bytes"));
        }
        let parsed = parse::parse(pattern)?;
        let Some(linear) = linear::write(&parsed.node) else {
            let program = program::compile(&parsed.node, parsed.groups)?;
            return Ok(Self { linear: None, backtracking: Some(program) });
        };
        let regex = regex::RegexBuilder::new(&linear.pattern).size_limit(MAX_COMPILED).build();
        let regex = regex.map_err(|_| "the pattern is too large".to_owned())?;
        let backtracking =
            linear.ascii_only.then(|| program::compile(&parsed.node, parsed.groups)).transpose()?;
        Ok(Self { linear: Some(regex), backtracking })
    }

    /// Whether a search may take a noticeable time.
    pub(crate) fn is_slow(&self) -> bool {
        self.backtracking.is_some()
    }

    /// Whether it matches anywhere in the text (`re.search`).
    pub(crate) fn is_match(&self, text: &str) -> Result<bool, TooManySteps> {
        match (&self.linear, &self.backtracking) {
            (Some(linear), None) => Ok(linear.is_match(text)),
            (Some(linear), Some(_)) if text.is_ascii() && !text.is_empty() => Ok(linear.is_match(text)),
            (_, Some(program)) => matcher::search(program, text),
            (None, None) => Ok(false),
        }
    }
}

#[cfg(test)]
#[path = "regex/tests.rs"]
mod tests;
