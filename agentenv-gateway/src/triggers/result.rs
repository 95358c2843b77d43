//! What is read from a `CallToolResult` (contract 7.2): its text, whether that is JSON or not.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::Json;

/// The parts of a result that matter here. Everything else is skipped without being built, so that no nesting of it keeps
/// the text from being read.
#[derive(Debug, Deserialize)]
struct Parts<'a> {
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    #[serde(borrow, default, rename = "structuredContent")]
    structured: Option<&'a RawValue>,
    #[serde(default, rename = "isError")]
    is_error: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// A result's text, and whether it is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultText {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl ResultText {
    /// The text blocks of a result, one after another; without any, the structured content's JSON.
    pub(crate) fn of(result: &RawValue) -> Self {
        let Ok(parts) = serde_json::from_str::<Parts<'_>>(result.get()) else {
            return Self { text: String::new(), is_error: false };
        };
        let blocks = parts.content.iter().filter_map(|block| serde_json::from_str::<Block>(block.get()).ok());
        let texts: Vec<String> =
            blocks.filter(|block| block.kind == "text").filter_map(|block| block.text).collect();
        let text = match (texts.is_empty(), parts.structured) {
            (true, Some(structured)) => structured.get().to_owned(),
            _ => texts.join("\n"),
        };
        Self { text, is_error: parts.is_error.unwrap_or(false) }
    }

    /// The text parsed; null when it is not JSON, so that tests on it see nothing.
    pub(crate) fn json(&self) -> Json {
        Json::parse(&self.text).unwrap_or(Json::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text(result: &Value) -> ResultText {
        ResultText::of(&serde_json::value::to_raw_value(result).unwrap())
    }

    #[test]
    fn texts() {
        for (result, want, is_error) in [
            (json!({"content": [{"type": "text", "text": "{\"a\": 1}"}]}), "{\"a\": 1}", false),
            (
                json!({"content": [{"type": "text", "text": "a"}, {"type": "image", "data": "", "mimeType": ""}, {"type": "text", "text": "b"}], "isError": true}),
                "a\nb",
                true,
            ),
            (json!({"content": [], "structuredContent": {"a": 1}}), "{\"a\":1}", false),
            (
                json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}, "isError": null}),
                "x",
                false,
            ),
            (json!({}), "", false),
            (json!([1]), "", false),
        ] {
            assert_eq!(text(&result), ResultText { text: want.to_owned(), is_error }, "{result}");
        }
    }

    #[test]
    fn nesting_beside_the_text_does_not_hide_it() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let raw = format!(
            r#"{{"structuredContent":{{"a":{deep}}},"content":[{{"type":"text","text":"{{\"sent\":1}}"}}]}}"#
        );
        let result = ResultText::of(&RawValue::from_string(raw).unwrap());
        assert_eq!(result.json().dumps(), r#"{"sent": 1}"#);
        let echoed = ResultText { text: "[".repeat(3_000), is_error: false };
        assert!(echoed.json().is_null());
    }
}
