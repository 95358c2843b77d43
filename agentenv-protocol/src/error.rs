//! The errors that a tool, an extension or a data handler answers with. How they are written on a wire is left to
//! `tool`, `data` and `server`.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether a failed call changed anything (contract 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Applied {
    /// Everything the call asked for was done.
    Yes,
    /// Nothing was done; the call can be made again.
    #[default]
    No,
    /// It cannot be told.
    Unknown,
}

/// A failure with a code that programs can act on and a message for the person who must.
///
/// A tool that returns one answers `isError: true` with the text `"<code>: <message>"` and the fields as
/// `structuredContent`; an extension answers them under `error`, with [`status`](Self::with_status).
///
/// ```
/// use agentenv_protocol::error::ToolError;
///
/// let error = ToolError::new("no_such_mailbox", "mailbox x is gone").with_hint("try y");
/// assert_eq!(error.to_string(), "no_such_mailbox: mailbox x is gone");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolError {
    /// A stable identifier, in `snake_case`.
    pub code: Cow<'static, str>,
    /// What went wrong, for a person.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// Whether the call changed anything.
    pub applied: Applied,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// The HTTP status that an extension route answers with; 400 unless given.
    #[serde(skip)]
    pub status: Option<u16>,
}

impl ToolError {
    /// An error that is not retryable and changed nothing.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            retryable: false,
            applied: Applied::No,
            hint: None,
            status: None,
        }
    }

    /// Marks the error as one that may not occur again.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Says whether the call changed anything.
    #[must_use]
    pub fn with_applied(mut self, applied: Applied) -> Self {
        self.applied = applied;
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the HTTP status of an extension route's answer.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl Error for ToolError {}

/// What a tool, an extension or a data handler may fail with: any error type that `?` would turn into a boxed one, so `String`,
/// `&'static str`, every `std::error::Error`, `anyhow::Error`. A [`ToolError`] stays coded, also as the cause of another error;
/// of any other error the caller gets the text, with its causes.
#[diagnostic::on_unimplemented(
    message = "a handler cannot fail with `{Self}`",
    label = "not an error type",
    note = "return `Result<_, ToolError>`, or any type that converts into `Box<dyn std::error::Error + Send + Sync>`"
)]
pub trait HandlerError {
    /// The error, boxed.
    fn into_boxed(self) -> Box<dyn Error + Send + Sync>;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn Error + Send + Sync>> + 'static> HandlerError for E {
    fn into_boxed(self) -> Box<dyn Error + Send + Sync> {
        // Boxing an `anyhow::Error` hides the type of the error in it, so that one is asked first.
        let mut this = Some(self);
        if let Some(error) = (&mut this as &mut dyn Any).downcast_mut::<Option<anyhow::Error>>()
            && let Some(coded) = error.as_ref().and_then(|error| error.downcast_ref::<ToolError>())
        {
            return Box::new(coded.clone());
        }
        match this {
            Some(error) => error.into(),
            None => "unknown error".into(),
        }
    }
}

/// A handler's failure, as it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// With a code of the author's.
    Coded(ToolError),
    /// Without: the text of the error and its causes.
    Plain(String),
}

impl Failure {
    pub(crate) fn new(error: impl HandlerError) -> Self {
        let error = error.into_boxed();
        let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
        while let Some(error) = cause {
            // An `io::Error` made of another does not name it as its source.
            let inside = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            let inside = inside.and_then(|inside| inside.downcast_ref::<ToolError>());
            if let Some(coded) = error.downcast_ref::<ToolError>().or(inside) {
                return Self::Coded(coded.clone());
            }
            cause = error.source();
        }
        Self::Plain(describe(&*error))
    }

    /// A handler that panicked. What it said is for the log, where the panic itself wrote it: it may name paths.
    pub(crate) fn panicked() -> Self {
        Self::Plain("internal error: the handler panicked".to_owned())
    }

    /// The text without the code.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Coded(error) => &error.message,
            Self::Plain(text) => text,
        }
    }
}

/// An error's text and its causes', joined by `: `. A cause that the text above it repeats is not said twice.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("said already: {0}")]
    struct Repeats(#[source] std::io::Error);

    #[test]
    fn a_coded_error_stays_coded_wherever_it_is() {
        let coded = ToolError::new("gone", "no mailbox");
        let inside = std::io::Error::other(coded.clone());
        let failures = [
            Failure::new(coded.clone()),
            Failure::new(Box::new(coded.clone()) as Box<dyn Error + Send + Sync>),
            Failure::new(anyhow::Error::from(coded.clone())),
            Failure::new(anyhow::Error::from(coded.clone()).context("reading")),
            Failure::new(Outer(inside)),
        ];
        for failure in failures {
            assert_eq!(failure, Failure::Coded(coded.clone()));
        }
    }

    #[test]
    fn other_errors_are_told_with_their_causes() {
        let disk = || std::io::Error::other("disk full");
        assert_eq!(Failure::new("boom"), Failure::Plain("boom".to_owned()));
        assert_eq!(Failure::new(Outer(disk())).message(), "outer: disk full");
        assert_eq!(Failure::new(Repeats(disk())).message(), "said already: disk full");
        assert_eq!(
            Failure::new(anyhow::Error::from(disk()).context("saving")).message(),
            "saving: disk full"
        );
    }
}
