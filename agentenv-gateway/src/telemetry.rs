//! Where the log goes and how it looks, and where traces go. What is logged is left to whoever logs it.

#[cfg(feature = "otel")]
mod otel;
#[cfg(not(feature = "otel"))]
mod untraced;

use std::env::{self, VarError};
use std::io::{self, IsTerminal};
use std::str::FromStr;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

#[cfg(feature = "otel")]
pub(crate) use self::otel::CallSpan;
#[cfg(feature = "otel")]
pub use self::otel::{Traces, TracesError};
#[cfg(not(feature = "otel"))]
pub(crate) use self::untraced::CallSpan;
#[cfg(not(feature = "otel"))]
pub use self::untraced::{Traces, TracesError};

/// Names what is logged, in `tracing-subscriber`'s directives: `info`, `agentenv_gateway=debug,warn`.
pub const FILTER_VARIABLE: &str = "RUST_LOG";

/// Names how a line of the log looks: `text` or `json`.
pub const FORMAT_VARIABLE: &str = "GATEWAY_LOG_FORMAT";

/// What is logged when nothing is said.
const DEFAULT_FILTER: &str = "info";

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line, its fields beside the message.
    Json,
}

/// Why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoggingError {
    /// [`FILTER_VARIABLE`] is not a filter.
    #[error("{FILTER_VARIABLE} is not a log filter such as \"info\" or \"agentenv_gateway=debug\": {0}")]
    Filter(String),
    /// [`FORMAT_VARIABLE`] is not a format.
    #[error("{FORMAT_VARIABLE} must be \"text\" or \"json\", not {0:?}")]
    Format(String),
    /// Something else in this process takes what is logged.
    #[error("the log is set up already")]
    Taken(#[source] TryInitError),
}

impl FromStr for LogFormat {
    type Err = LoggingError;

    fn from_str(name: &str) -> Result<Self, LoggingError> {
        match name {
            "" | "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(LoggingError::Format(name.to_owned())),
        }
    }
}

impl LogFormat {
    /// What [`FORMAT_VARIABLE`] names; text when it is not set.
    ///
    /// # Errors
    /// It names something else.
    pub fn from_env() -> Result<Self, LoggingError> {
        match env::var(FORMAT_VARIABLE) {
            Ok(name) => name.parse(),
            Err(VarError::NotPresent) => Ok(Self::Text),
            Err(VarError::NotUnicode(name)) => Err(LoggingError::Format(name.to_string_lossy().into_owned())),
        }
    }
}

/// Sends this process's log to the standard error, as [`FILTER_VARIABLE`] says. For programs; a library leaves this to
/// the program that it is in.
///
/// # Errors
/// The filter is not one, or the log is set up already.
pub fn init_logging(format: LogFormat) -> Result<(), LoggingError> {
    let directives = match env::var(FILTER_VARIABLE) {
        Ok(directives) => directives,
        Err(VarError::NotPresent) => String::new(),
        Err(error @ VarError::NotUnicode(_)) => return Err(LoggingError::Filter(error.to_string())),
    };
    let filter = filter(&directives)?;
    let plain = env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let ansi = !plain && io::stderr().is_terminal();
    match format {
        LogFormat::Text => text(filter, ansi, io::stderr).try_init(),
        LogFormat::Json => json(filter, io::stderr).try_init(),
    }
    .map_err(LoggingError::Taken)
}

fn filter(directives: &str) -> Result<EnvFilter, LoggingError> {
    let directives = if directives.trim().is_empty() { DEFAULT_FILTER } else { directives };
    EnvFilter::try_new(directives).map_err(|error| LoggingError::Filter(error.to_string()))
}

fn text<W>(filter: EnvFilter, ansi: bool, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(writer).finish()
}

fn json<W>(filter: EnvFilter, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter).with_writer(writer).finish()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged by a program that says something at each level.
    fn logged<S: Subscriber + Send + Sync + 'static>(make: impl FnOnce(Lines) -> S) -> String {
        let lines = Lines::default();
        tracing::subscriber::with_default(make(lines.clone()), || {
            tracing::info!(child = "email\u{1b}[31m", attempts = 2, "reconnected");
            tracing::debug!("not by default");
        });
        let lines = lines.0.lock().unwrap().clone();
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn text_is_one_line_an_event_without_what_steers_a_terminal() {
        let log = logged(|lines| text(filter("").unwrap(), false, move || lines.clone()));
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("INFO") && log.contains("reconnected") && log.contains("attempts=2"), "{log}");
        assert!(!log.contains('\u{1b}'), "{log:?}");
    }

    #[test]
    fn json_is_an_object_a_line_with_its_fields() {
        let log = logged(|lines| json(filter("debug").unwrap(), move || lines.clone()));
        let events: Vec<serde_json::Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events.len(), 2);
        assert_eq!((&events[0]["message"], &events[0]["attempts"]), (&"reconnected".into(), &2.into()));
        assert_eq!(events[0]["level"], "INFO");
        assert!(events[0]["timestamp"].is_string());
    }

    #[test]
    fn filters_and_formats_that_are_none_are_refused() {
        assert!(filter("agentenv_gateway=debug,warn").is_ok());
        let error = filter("a=b=c").unwrap_err().to_string();
        assert!(error.starts_with("RUST_LOG is not a log filter"), "{error}");
        assert_eq!("json".parse::<LogFormat>().unwrap(), LogFormat::Json);
        assert_eq!("".parse::<LogFormat>().unwrap(), LogFormat::Text);
        let error = "yaml".parse::<LogFormat>().unwrap_err().to_string();
        assert_eq!(error, "GATEWAY_LOG_FORMAT must be \"text\" or \"json\", not \"yaml\"");
    }
}
