//! A test on a value: `regex`, `equals` or `exists` (contract 7.2). Parsing is left to `spec`.

use std::sync::Arc;

use super::json::Json;
use super::regex::{Pattern, TooManySteps};

/// A test.
#[derive(Debug, Clone)]
pub(crate) enum Test {
    /// The pattern is found in the string, or in the JSON text of anything else.
    Regex(Arc<Pattern>),
    /// Equal as JSON.
    Equals(Json),
    /// Whether there is something other than null, `""` and `[]`.
    Exists(bool),
}

impl Test {
    /// Whether a value passes; where there is no value, null is tested.
    ///
    /// # Errors
    /// The pattern took too long.
    pub(crate) fn passes(&self, value: &Json) -> Result<bool, TooManySteps> {
        match self {
            Self::Regex(pattern) => pattern.is_match(&value.text()),
            Self::Equals(wanted) => Ok(wanted == value),
            Self::Exists(wanted) => Ok(value.exists() == *wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_on_values() {
        let regex = |pattern: &str| Test::Regex(Arc::new(Pattern::new(pattern).unwrap()));
        let equals = |text: &str| Test::Equals(Json::parse(text).unwrap());
        for (test, value, passes) in [
            (regex("^Sam"), r#""Sam Lee""#, true),
            (regex("^\"Sam"), r#""Sam Lee""#, false),
            (regex(r#""name": "Sam Lee""#), r#"[{"name":"Sam Lee"}]"#, true),
            (regex(r"Zo\\u00eb"), r#"["Zoë"]"#, true),
            (regex("Zoë"), r#""Zoë""#, true),
            (regex("^1$"), "1", true),
            (regex(r"^1\.0$"), "1.0", true),
            (regex("^true$"), "true", true),
            (regex("^null$"), "null", true),
            (regex(""), "null", true),
            (equals("1"), "1.0", true),
            (equals("true"), "1", false),
            (equals("null"), "null", true),
            (equals(r#"{"a":[1]}"#), r#"{"a":[1.0]}"#, true),
            (Test::Exists(true), "0", true),
            (Test::Exists(true), "[]", false),
            (Test::Exists(false), "\"\"", true),
            (Test::Exists(false), "{}", false),
        ] {
            assert_eq!(test.passes(&Json::parse(value).unwrap()), Ok(passes), "{test:?} on {value}");
        }
    }
}
