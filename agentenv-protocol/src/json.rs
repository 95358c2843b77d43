//! JSON that is passed on as it came: what may enter at all, and reading a few members of a text without building the
//! rest. What the members mean is left to the caller.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Deepest nesting of arrays and objects that is let in (contract 10).
pub const MAX_NESTING: usize = 256;

/// Why a text is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonFault {
    /// Not JSON, and where it stops being so.
    #[error("{0}")]
    Syntax(String),
    /// Arrays and objects inside one another more than [`MAX_NESTING`] deep.
    #[error("nested more than {MAX_NESTING} levels deep")]
    TooDeep,
    /// An escape such as `\ud800` without its other half: no text that UTF-8 can hold.
    #[error("a lone surrogate escape at byte {0}")]
    LoneSurrogate(usize),
    /// A number that no program reads as finite, such as `1e400`.
    #[error("a number out of range at byte {0}")]
    NumberOutOfRange(usize),
}

/// Lets a text in: UTF-8 JSON, one value, not too deep, no lone surrogate escapes, no number beyond a double's range. A
/// byte order mark before it is dropped. Returns the text without it.
///
/// # Errors
/// The first [`JsonFault`] found.
pub fn check(body: &[u8]) -> Result<&str, JsonFault> {
    let text = screen(body)?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|e| JsonFault::Syntax(e.to_string()))?;
    Ok(text)
}

/// [`check`] for a text that a parser reads next: all but whether it is JSON at all.
pub(crate) fn screen(body: &[u8]) -> Result<&str, JsonFault> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let text = std::str::from_utf8(body).map_err(|e| JsonFault::Syntax(format!("not UTF-8: {e}")))?;
    if !is_plain(text.as_bytes()) {
        scan(text.as_bytes())?;
    }
    Ok(text)
}

/// The checks that a parser of JSON does not make. The text may still not be JSON.
fn scan(text: &[u8]) -> Result<(), JsonFault> {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => at = scan_string(text, at + 1)?,
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_NESTING {
                    return Err(JsonFault::TooDeep);
                }
                at += 1;
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b'-' | b'0'..=b'9' => at = scan_number(text, at)?,
            _ => at += 1,
        }
    }
    Ok(())
}

/// Whether a text has nothing that would have to be looked at in its place: no more brackets than may be nested, no escape
/// by a number, and no digit before what may be an exponent. Most texts have not, and this takes a tenth of the time.
fn is_plain(text: &[u8]) -> bool {
    // Few enough that their number fits into a byte, which lets many be compared at a time.
    const PIECE: usize = 128;
    let mut opened = 0;
    for piece in text.chunks(PIECE) {
        opened += usize::from(piece.iter().map(|b| u8::from(matches!(b, b'[' | b'{'))).sum::<u8>());
    }
    let next = text.get(1..).unwrap_or_default();
    let suspect = text.iter().zip(next).fold(false, |found, (a, b)| {
        found | ((*a == b'\\') & (*b == b'u')) | (a.is_ascii_digit() & ((*b | 0x20) == b'e'))
    });
    opened <= MAX_NESTING && !suspect
}

/// From inside a string to behind its closing quote.
fn scan_string(text: &[u8], mut at: usize) -> Result<usize, JsonFault> {
    let unit = |at: usize| -> Option<u16> {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    // Most of a string is neither its end nor an escape.
    while let Some(skipped) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += skipped;
        if text[at] == b'"' {
            return Ok(at + 1);
        }
        match unit(at) {
            Some(0xD800..=0xDBFF) => match unit(at + 6) {
                Some(0xDC00..=0xDFFF) => at += 12,
                _ => return Err(JsonFault::LoneSurrogate(at)),
            },
            Some(0xDC00..=0xDFFF) => return Err(JsonFault::LoneSurrogate(at)),
            _ => at += 2,
        }
    }
    Ok(text.len())
}

/// From a number's first byte to behind its last. Only one with an exponent, or of many digits, can be out of range.
fn scan_number(text: &[u8], start: usize) -> Result<usize, JsonFault> {
    let rest = &text[start..];
    let len = rest
        .iter()
        .position(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
        .unwrap_or(rest.len());
    let number = &rest[..len];
    if number.iter().any(|b| matches!(b, b'e' | b'E')) {
        let value: Option<f64> = std::str::from_utf8(number).ok().and_then(|n| n.parse().ok());
        if value.is_some_and(f64::is_infinite) {
            return Err(JsonFault::NumberOutOfRange(start));
        }
    }
    Ok(start + len.max(1))
}

/// Whether a text's first byte that is not white space is this one.
pub fn starts_with(text: &str, byte: u8) -> bool {
    text.trim_start_matches([' ', '\t', '\r', '\n']).as_bytes().first() == Some(&byte)
}

/// Reads a member that may be there as `null`, which is not the same as not being there.
///
/// # Errors
/// What the deserializer says.
pub fn present<'de, D>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// An object's members in their order, their values as they stand in the text. Of a name that comes twice, both are here.
#[derive(Debug, Clone, Default)]
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object's text.
    ///
    /// # Errors
    /// The text is not an object.
    pub fn of(text: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// The value under a name; the last one, should it come twice.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// The text under a name, borrowed where it holds no escapes; `None` where the name is missing or its value no string.
    pub fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        text(self.get(name)?)
    }

    /// Every member.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), *value))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Read).map(Members)
    }
}

/// A string's text, borrowed where it holds no escapes; `None` for a value that is no string.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Key<'_>>(raw.get()).ok().map(|key| key.0)
}

/// A text that is borrowed where it stands without escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Borrowed<'b>(#[serde(borrow)] Cow<'b, str>);
        Borrowed::deserialize(deserializer).map(|key| Key(key.0))
    }
}

/// A JSON text that is shared without copying: a slice of the body that it came in, or one that we wrote.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Bytes);

impl RawJson {
    /// The text of a member of `body`, sharing its memory.
    pub fn within(body: &Bytes, member: &RawValue) -> Self {
        Self(body.slice_ref(member.get().as_bytes()))
    }

    /// A value written as JSON.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        serde_json::to_vec(value).map(|text| Self(text.into()))
    }

    /// What [`ObjectWriter::finish`] gives.
    pub fn object(text: Bytes) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Every way in is UTF-8: a member of a checked text, or what serde wrote.
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// The text's bytes, given away.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The text's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl From<Box<RawValue>> for RawJson {
    fn from(raw: Box<RawValue>) -> Self {
        let text: Box<str> = raw.into();
        Self(text.into_string().into())
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Writes an object from members whose values may be texts that are already JSON.
#[derive(Debug)]
pub struct ObjectWriter {
    text: Vec<u8>,
}

impl ObjectWriter {
    /// Begins an object, with room for this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut text = Vec::with_capacity(bytes + 2);
        text.push(b'{');
        Self { text }
    }

    /// Adds a member whose value is this JSON text.
    #[must_use]
    pub fn raw(mut self, name: &str, json: &str) -> Self {
        self.text.reserve(name.len() + json.len() + 5);
        // No value ends with the byte that an object begins with.
        if self.text.last() != Some(&b'{') {
            self.text.push(b',');
        }
        // Names are mostly of our own making, and seldom hold what JSON escapes.
        if name.bytes().any(|b| b < b' ' || b == b'"' || b == b'\\') {
            self.put(name);
        } else {
            self.text.push(b'"');
            self.text.extend_from_slice(name.as_bytes());
            self.text.push(b'"');
        }
        self.text.push(b':');
        self.text.extend_from_slice(json.as_bytes());
        self
    }

    /// Adds a member that is an object, of these members.
    #[must_use]
    pub fn object(self, name: &str, members: impl FnOnce(Self) -> Self) -> Self {
        let mut this = self.raw(name, "{");
        this = members(this);
        this.text.push(b'}');
        this
    }

    /// Adds a member. A value that cannot be written as JSON (a map with keys that are not text) becomes `null`.
    #[must_use]
    pub fn field<T: Serialize + ?Sized>(self, name: &str, value: &T) -> Self {
        let mut this = self.raw(name, "");
        this.put(value);
        this
    }

    fn put<T: Serialize + ?Sized>(&mut self, value: &T) {
        let before = self.text.len();
        if serde_json::to_writer(&mut self.text, value).is_err() {
            self.text.truncate(before);
            self.text.extend_from_slice(b"null");
        }
    }

    /// The object's text.
    pub fn finish(mut self) -> Bytes {
        self.text.push(b'}');
        self.text.into()
    }

    /// The same as a `String`, for a text that is only read.
    pub fn finish_text(mut self) -> String {
        self.text.push(b'}');
        // Texts and what serde_json writes are UTF-8.
        String::from_utf8(self.text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_in_what_is_json() {
        for text in [
            r#"{"a":[1,-0,1e2,99999999999999999999999999,"\ud83d\ude00","\u0000"]}"#,
            "\u{feff}{}",
            " 5 ",
            r#""\\ud800""#,
        ] {
            assert!(check(text.as_bytes()).is_ok(), "{text}: {:?}", check(text.as_bytes()));
        }
    }

    #[test]
    fn refuses_the_rest() {
        use JsonFault::*;
        assert!(matches!(check(b"{"), Err(Syntax(_))));
        assert!(matches!(check(b"{} x"), Err(Syntax(_))));
        assert!(matches!(check(b"NaN"), Err(Syntax(_))));
        assert!(matches!(check(b"\"\xff\""), Err(Syntax(_))));
        assert_eq!(check(br#"{"a":1e400}"#), Err(NumberOutOfRange(5)));
        assert_eq!(check(br#""\ud800""#), Err(LoneSurrogate(1)));
        assert_eq!(check(br#""\ud800\u0041""#), Err(LoneSurrogate(1)));
        assert_eq!(check(br#""\udc00""#), Err(LoneSurrogate(1)));
    }

    #[test]
    fn bounds_nesting() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(check(nested(MAX_NESTING).as_bytes()).is_ok());
        assert_eq!(check(nested(MAX_NESTING + 1).as_bytes()), Err(JsonFault::TooDeep));
        assert_eq!(check("[".repeat(1_000_000).as_bytes()), Err(JsonFault::TooDeep));
    }

    #[test]
    fn members_keep_their_text() {
        let members = Members::of(r#"{"a":1.0,"b":null,"a\u0041":"x","a":2}"#).unwrap();
        assert_eq!(members.get("a").unwrap().get(), "2");
        assert_eq!(members.get("b").unwrap().get(), "null");
        assert_eq!(members.get("aA").unwrap().get(), "\"x\"");
        assert_eq!(members.len(), 4);
        assert!(Members::of("[1]").is_err());
    }

    #[test]
    fn writes_objects() {
        let text = ObjectWriter::with_capacity(16).field("a\"", "x").raw("b", "[1.0]").finish();
        assert_eq!(text, r#"{"a\"":"x","b":[1.0]}"#);
        assert_eq!(ObjectWriter::with_capacity(0).finish(), "{}");
        let text = ObjectWriter::with_capacity(0)
            .object("a", |a| a)
            .object("b", |b| b.raw("c", "[]").object("d", |d| d.field("e", &1)).field("f", "{"))
            .raw("g", "{}")
            .finish();
        assert_eq!(text, r#"{"a":{},"b":{"c":[],"d":{"e":1},"f":"{"},"g":{}}"#);
    }

    proptest::proptest! {
        #[test]
        fn never_panics(body: Vec<u8>) {
            let _ = check(&body);
        }

        #[test]
        fn what_is_let_in_is_json(text in "[\\[\\]{}\",:\\\\u0-9a-fd8 .eE+-]{0,40}") {
            if check(text.as_bytes()).is_ok() {
                proptest::prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
            }
        }

        #[test]
        fn what_is_plain_has_nothing_to_scan_for(
            text in r#"\[(("(\\u[0dD][089a-f]{3}|\\["\\n]|[a-fu{\[0-9é]){0,6}"|[1-9]{1,3}(\.[0-9])?([eE][+-]?[1-9]{1,3})?|\[\]),){0,40}0\]"#
        ) {
            serde_json::from_str::<&RawValue>(&text).unwrap();
            proptest::prop_assert!(!is_plain(text.as_bytes()) || scan(text.as_bytes()).is_ok());
        }
    }
}
