//! The three kinds of part and their wire form.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{self, DeserializeOwned};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// Standard base64; padding is written, and may be missing in what is read.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The text of a JSON object, kept as it came.
#[derive(Debug, Clone)]
pub struct JsonObject(Box<RawValue>);

/// What should have been a JSON object is none.
#[derive(Debug, thiserror::Error)]
pub enum NotAnObject {
    /// It is another kind of value.
    #[error("expected a JSON object")]
    OtherKind,
    /// It has no JSON.
    #[error("cannot be written as JSON: {0}")]
    Unwritable(#[source] serde_json::Error),
}

impl JsonObject {
    /// From a value that serde writes as an object.
    ///
    /// # Errors
    /// Any other value.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, NotAnObject> {
        Self::from_raw(to_raw_value(value).map_err(NotAnObject::Unwritable)?)
    }

    /// From JSON text.
    ///
    /// # Errors
    /// Text of any other value.
    pub fn from_raw(raw: Box<RawValue>) -> Result<Self, NotAnObject> {
        if crate::json::starts_with(raw.get(), b'{') { Ok(Self(raw)) } else { Err(NotAnObject::OtherKind) }
    }

    /// The text.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// The object as a value of `T`.
    ///
    /// # Errors
    /// Where it does not fit.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        crate::arguments::from_raw(&self.0)
    }
}

impl PartialEq for JsonObject {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl From<serde_json::Map<String, serde_json::Value>> for JsonObject {
    fn from(map: serde_json::Map<String, serde_json::Value>) -> Self {
        // A map of JSON values is always an object.
        Self::new(&map).unwrap_or_else(|_| Self(RawValue::NULL.to_owned()))
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_raw(Box::<RawValue>::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A piece of what an environment holds, as it is loaded by `data/add` and read by `data/get`.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "the protocol has these three kinds")]
pub enum Part {
    /// Text.
    Text(TextPart),
    /// A JSON object.
    Data(DataPart),
    /// A file, inline or by its address.
    File(FilePart),
}

/// A part that is text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextPart {
    /// The text.
    pub text: String,
    /// What else is known of it.
    pub metadata: Option<JsonObject>,
}

/// A part that is a JSON object.
#[derive(Debug, Clone, PartialEq)]
pub struct DataPart {
    /// The object.
    pub data: JsonObject,
    /// What else is known of it.
    pub metadata: Option<JsonObject>,
}

/// A part that is a file. [`Part::read`] reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct FilePart {
    /// Its bytes, or where they are.
    pub content: FileContent,
    /// Its media type.
    pub mime_type: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// What else is known of it.
    pub metadata: Option<JsonObject>,
}

/// A file's bytes, or where they are.
#[derive(Clone, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "the protocol has these two kinds")]
pub enum FileContent {
    /// A `file://`, `http://` or `https://` address.
    Uri(String),
    /// The bytes; base64 on the wire.
    Bytes(Vec<u8>),
}

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(uri) => f.debug_tuple("Uri").field(uri).finish(),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
        }
    }
}

impl Part {
    /// A part that is text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextPart { text: text.into(), metadata: None })
    }

    /// A part from a value that serde writes as a JSON object.
    ///
    /// # Errors
    /// Any other value.
    pub fn data<T: Serialize + ?Sized>(value: &T) -> Result<Self, NotAnObject> {
        Ok(Self::Data(DataPart { data: JsonObject::new(value)?, metadata: None }))
    }

    /// A part that is the file at an address.
    pub fn file(uri: impl Into<String>) -> Self {
        Self::File(FilePart {
            content: FileContent::Uri(uri.into()),
            mime_type: None,
            name: None,
            metadata: None,
        })
    }

    /// A part that is a file of these bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::File(FilePart {
            content: FileContent::Bytes(bytes.into()),
            mime_type: None,
            name: None,
            metadata: None,
        })
    }
}

#[derive(Deserialize)]
struct WirePart<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    text: Option<String>,
    data: Option<JsonObject>,
    file: Option<WireFile>,
    metadata: Option<JsonObject>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireFile {
    uri: Option<String>,
    bytes: Option<String>,
    mime_type: Option<String>,
    name: Option<String>,
}

impl WireFile {
    fn content(&mut self) -> Result<FileContent, &'static str> {
        match (self.uri.take(), self.bytes.take()) {
            (Some(_), Some(_)) => Err("`file` has both `uri` and `bytes`"),
            (Some(uri), None) => Ok(FileContent::Uri(uri)),
            (None, Some(text)) => match BASE64.decode(text) {
                Ok(bytes) => Ok(FileContent::Bytes(bytes)),
                Err(_) => Err("`file.bytes` is not base64"),
            },
            (None, None) => Err("`file` has neither `uri` nor `bytes`"),
        }
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not an internally tagged enum: serde would buffer the object and lose the raw text.
        let WirePart { kind, text, data, file, metadata } = WirePart::deserialize(deserializer)?;
        match &*kind {
            "text" => match text {
                Some(text) => Ok(Self::Text(TextPart { text, metadata })),
                None => Err(de::Error::missing_field("text")),
            },
            "data" => match data {
                Some(data) => Ok(Self::Data(DataPart { data, metadata })),
                None => Err(de::Error::missing_field("data")),
            },
            "file" => match file {
                Some(mut file) => {
                    let content = file.content().map_err(de::Error::custom)?;
                    Ok(Self::File(FilePart { content, mime_type: file.mime_type, name: file.name, metadata }))
                }
                None => Err(de::Error::missing_field("file")),
            },
            other => Err(de::Error::unknown_variant(other, &["text", "data", "file"])),
        }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct File<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            uri: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            bytes: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            mime_type: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            name: Option<&'a str>,
        }

        let mut map = serializer.serialize_map(None)?;
        let metadata = match self {
            Self::Text(part) => {
                map.serialize_entry("kind", "text")?;
                map.serialize_entry("text", &part.text)?;
                &part.metadata
            }
            Self::Data(part) => {
                map.serialize_entry("kind", "data")?;
                map.serialize_entry("data", &part.data)?;
                &part.metadata
            }
            Self::File(part) => {
                let (uri, bytes) = match &part.content {
                    FileContent::Uri(uri) => (Some(uri.as_str()), None),
                    FileContent::Bytes(bytes) => (None, Some(BASE64.encode(bytes))),
                };
                let (mime_type, name) = (part.mime_type.as_deref(), part.name.as_deref());
                map.serialize_entry("kind", "file")?;
                map.serialize_entry("file", &File { uri, bytes, mime_type, name })?;
                &part.metadata
            }
        };
        if let Some(metadata) = metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}
