//! MCP content: what a tool may answer besides a value, and how each block is written.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Whom a block of content is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The person in front of the agent.
    User,
    /// The agent.
    Assistant,
}

/// What a block of content says about itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// Whom it is for; everyone when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub audience: Vec<Audience>,
    /// From 0 (may be left out) to 1 (must be seen).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// When it last changed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

/// A block of MCP content. It is not `Serialize`, since a tool that returns one means the block and not a value that happens to
/// look like it.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    body: Body,
    annotations: Option<Annotations>,
}

#[derive(Debug, Clone, PartialEq)]
enum Body {
    Text { text: String },
    Media { kind: &'static str, data: String, mime_type: String },
    Link { uri: String, name: String, description: Option<String>, mime_type: Option<String> },
    Resource { uri: String, mime_type: Option<String>, text: Option<String>, blob: Option<String> },
}

impl Content {
    fn of(body: Body) -> Self {
        Self { body, annotations: None }
    }

    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of(Body::Text { text: text.into() })
    }

    /// A picture from its bytes, for example with the type `image/png`.
    pub fn image(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Self::of(Body::Media { kind: "image", data: STANDARD.encode(bytes), mime_type: mime_type.into() })
    }

    /// A picture that is base64 already.
    pub fn image_base64(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::of(Body::Media { kind: "image", data: data.into(), mime_type: mime_type.into() })
    }

    /// A sound that is base64 already.
    pub fn audio_base64(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::of(Body::Media { kind: "audio", data: data.into(), mime_type: mime_type.into() })
    }

    /// A sound from its bytes, for example with the type `audio/wav`.
    pub fn audio(bytes: impl AsRef<[u8]>, mime_type: impl Into<String>) -> Self {
        Self::of(Body::Media { kind: "audio", data: STANDARD.encode(bytes), mime_type: mime_type.into() })
    }

    /// A link to a resource that the caller may read elsewhere.
    pub fn link(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self::of(Body::Link { uri: uri.into(), name: name.into(), description: None, mime_type: None })
    }

    /// A resource whose content is text.
    pub fn text_resource(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        let (uri, mime_type) = (uri.into(), Some(mime_type.into()));
        Self::of(Body::Resource { uri, mime_type, text: Some(text.into()), blob: None })
    }

    /// A resource whose content is bytes.
    pub fn bytes_resource(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        bytes: impl AsRef<[u8]>,
    ) -> Self {
        let (uri, mime_type) = (uri.into(), Some(mime_type.into()));
        Self::of(Body::Resource { uri, mime_type, text: None, blob: Some(STANDARD.encode(bytes)) })
    }

    /// Names the media type of what a link leads to; other blocks are made with theirs.
    #[must_use]
    pub fn with_mime_type(mut self, name: impl Into<String>) -> Self {
        if let Body::Link { mime_type, .. } = &mut self.body {
            *mime_type = Some(name.into());
        }
        self
    }

    /// Describes a link; other blocks have no description.
    #[must_use]
    pub fn with_description(mut self, text: impl Into<String>) -> Self {
        if let Body::Link { description, .. } = &mut self.body {
            *description = Some(text.into());
        }
        self
    }

    /// Says whom the block is for and how much it matters.
    #[must_use]
    pub fn with_annotations(mut self, annotations: Annotations) -> Self {
        self.annotations = Some(annotations);
        self
    }
}

/// A block on its way out.
pub(super) enum Wire<'a> {
    /// Text to be escaped.
    Text(&'a str),
    /// Text that is a JSON string already.
    RawText(&'a str),
    /// A block as its author made it.
    Content(&'a Content),
}

impl Wire<'_> {
    /// About how many bytes it takes. Text takes more than it has, for what is escaped in it.
    pub(super) fn room(&self) -> usize {
        let text = match self {
            Self::Text(text) => text.len() + text.len() / 4,
            Self::RawText(text) => text.len(),
            Self::Content(content) => match &content.body {
                Body::Text { text } => text.len() + text.len() / 4,
                Body::Media { data, .. } => data.len(),
                Body::Link { .. } => 0,
                Body::Resource { text, blob, .. } => text.as_ref().or(blob.as_ref()).map_or(0, String::len),
            },
        };
        text + 64
    }

    /// Appends its JSON.
    pub(super) fn write(&self, json: &mut Vec<u8>) {
        const TEXT: &[u8] = br#"{"type":"text","text":"#;
        // None of these can fail to be written.
        match self {
            Self::Text(text) => {
                json.extend_from_slice(TEXT);
                let _ = serde_json::to_writer(&mut *json, text);
                json.push(b'}');
            }
            Self::RawText(text) => {
                json.extend_from_slice(TEXT);
                json.extend_from_slice(text.as_bytes());
                json.push(b'}');
            }
            Self::Content(content) => {
                let _ = serde_json::to_writer(json, &Block(content));
            }
        }
    }
}

/// A block as MCP writes it.
struct Block<'a>(&'a Content);

impl Serialize for Block<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Inner<'a> {
            uri: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            mime_type: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            text: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            blob: Option<&'a str>,
        }

        let mut map = serializer.serialize_map(None)?;
        let content = self.0;
        match &content.body {
            Body::Text { text } => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
            }
            Body::Media { kind, data, mime_type } => {
                map.serialize_entry("type", kind)?;
                map.serialize_entry("data", data)?;
                map.serialize_entry("mimeType", mime_type)?;
            }
            Body::Link { uri, name, description, mime_type } => {
                map.serialize_entry("type", "resource_link")?;
                map.serialize_entry("uri", uri)?;
                map.serialize_entry("name", name)?;
                if let Some(description) = description {
                    map.serialize_entry("description", description)?;
                }
                if let Some(mime_type) = mime_type {
                    map.serialize_entry("mimeType", mime_type)?;
                }
            }
            Body::Resource { uri, mime_type, text, blob } => {
                map.serialize_entry("type", "resource")?;
                let (mime_type, text, blob) = (mime_type.as_deref(), text.as_deref(), blob.as_deref());
                map.serialize_entry("resource", &Inner { uri, mime_type, text, blob })?;
            }
        }
        if let Some(annotations) = &content.annotations {
            map.serialize_entry("annotations", annotations)?;
        }
        map.end()
    }
}
