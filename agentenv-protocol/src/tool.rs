//! What a tool answers (contract 2.3): [`ToolResult`], what may be turned into one, and a tool's listing. Calling tools is
//! left to `environment`, the wire around a result to `mcp`.

mod content;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::{Failure, ToolError};
use crate::json::RawJson;

use content::Wire;
pub use content::{Annotations, Audience, Content};

/// A tool's answer: MCP's `CallToolResult`, already written as JSON.
///
/// ```
/// use agentenv_protocol::tool::ToolResult;
///
/// let result = ToolResult::json(&serde_json::json!({"sent": 1}));
/// assert_eq!(
///     result.raw().as_str(),
///     r#"{"content":[{"type":"text","text":"{\"sent\":1}"}],"structuredContent":{"sent":1},"isError":false}"#
/// );
/// ```
#[derive(Debug, Clone)]
pub struct ToolResult {
    raw: RawJson,
    is_error: bool,
}

impl ToolResult {
    /// One block of text.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::write(&[Wire::Text(text.as_ref())], None, false)
    }

    /// A value: one text block with its JSON (a string as itself), and `structuredContent` when it is a JSON object. A value
    /// that has no JSON (a map with keys that are no strings) is an error result that says so.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        let json = match serde_json::to_string(value) {
            Ok(json) => json,
            Err(error) => {
                return Self::plain_error(format!("the tool's value cannot be written as JSON: {error}"));
            }
        };
        match json.as_bytes().first() {
            Some(b'"') => Self::write(&[Wire::RawText(&json)], None, false),
            Some(b'{') => Self::write(&[Wire::Text(&json)], Some(&json), false),
            _ => Self::write(&[Wire::Text(&json)], None, false),
        }
    }

    /// Blocks of content, as they are.
    pub fn content(blocks: impl AsRef<[Content]>) -> Self {
        let blocks: Vec<_> = blocks.as_ref().iter().map(Wire::Content).collect();
        Self::write(&blocks, None, false)
    }

    /// Blocks of content, with a value as `structuredContent`.
    ///
    /// # Errors
    /// A value that is not a JSON object.
    pub fn structured<T: Serialize + ?Sized>(
        blocks: impl AsRef<[Content]>,
        value: &T,
    ) -> Result<Self, ToolError> {
        let json = crate::data::JsonObject::new(value)
            .map_err(|error| ToolError::new("invalid_result", format!("structured content: {error}")))?;
        let blocks: Vec<_> = blocks.as_ref().iter().map(Wire::Content).collect();
        Ok(Self::write(&blocks, Some(json.raw().get()), false))
    }

    /// A coded error: text `"<code>: <message>"`, its fields as `structuredContent`.
    pub fn error(error: &ToolError) -> Self {
        let fields = serde_json::to_string(error).ok();
        Self::write(&[Wire::Text(&error.to_string())], fields.as_deref(), true)
    }

    /// An error without a code.
    pub fn plain_error(text: impl AsRef<str>) -> Self {
        Self::write(&[Wire::Text(text.as_ref())], None, true)
    }

    pub(crate) fn failure(failure: &Failure) -> Self {
        match failure {
            Failure::Coded(error) => Self::error(error),
            Failure::Plain(text) => Self::plain_error(text),
        }
    }

    /// Whether the call failed.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// The result's JSON.
    pub fn raw(&self) -> &RawJson {
        &self.raw
    }

    /// The result's JSON, given away.
    pub fn into_raw(self) -> RawJson {
        self.raw
    }

    fn write(content: &[Wire<'_>], structured_content: Option<&str>, is_error: bool) -> Self {
        let room = content.iter().map(Wire::room).sum::<usize>() + structured_content.map_or(0, str::len);
        let mut text = Vec::with_capacity(room + 64);
        text.extend_from_slice(br#"{"content":["#);
        for (at, block) in content.iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            block.write(&mut text);
        }
        text.push(b']');
        if let Some(json) = structured_content {
            text.extend_from_slice(br#","structuredContent":"#);
            text.extend_from_slice(json.as_bytes());
        }
        let end: &[u8] = if is_error { br#","isError":true}"# } else { br#","isError":false}"# };
        text.extend_from_slice(end);
        Self { raw: RawJson::object(text.into()), is_error }
    }
}

/// What a tool may return: anything serde can write as JSON, [`ToolResult`], [`Content`], or a list of [`Content`]; each also
/// as the `Ok` of a `Result`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a tool's answer",
    label = "cannot be written as JSON",
    note = "derive `serde::Serialize` for it, or return `ToolResult`, `Content` or `Vec<Content>`"
)]
pub trait ToolOutput {
    /// The answer.
    fn into_result(self) -> ToolResult;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize> ToolOutput for T {
    fn into_result(self) -> ToolResult {
        // Nothing (`()`) is answered as an empty object, which models and programs take better than a null.
        if size_of::<T>() == 0 && serde_json::to_value(&self).is_ok_and(|value| value.is_null()) {
            return ToolResult::json(&serde_json::Map::new());
        }
        ToolResult::json(&self)
    }
}

impl ToolOutput for ToolResult {
    fn into_result(self) -> ToolResult {
        self
    }
}

impl ToolOutput for Content {
    fn into_result(self) -> ToolResult {
        ToolResult::content([self])
    }
}

/// A tool as `tools/list` shows it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolListing {
    /// Its name, with the environment's filled in.
    pub name: String,
    /// Whether it is off until a rule names it.
    pub hidden_by_default: bool,
    /// Whether it says that it changes nothing.
    pub read_only: bool,
    /// The MCP capability that a client must have to call it.
    pub requires_client_capability: Option<&'static str>,
    /// The entry of `tools/list`.
    pub raw: Box<RawValue>,
}
