//! JSON as trigger authors write tests against it: numbers keep every digit, objects their order, and a value's text is
//! what Python's `json.dumps` makes of it, since that is what published patterns were written for (contract 7.2).

use std::fmt::Write as _;

use serde_json::value::RawValue;

/// Deepest nesting that is read; a text nested deeper is not taken for JSON. As deep as Python's own parser goes, so
/// that no result is read there and passed over here.
pub(crate) const MAX_DEPTH: usize = 1_000;

/// A JSON value.
#[derive(Debug, Clone)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer of more digits than an `i64` has, as decimal text.
    Big(Box<str>),
    Float(f64),
    String(String),
    Array(Vec<Json>),
    /// In order, each key once.
    Object(Vec<(String, Json)>),
}

/// What a path finds where there is nothing.
pub(crate) static NULL: Json = Json::Null;

impl Json {
    /// Reads a whole text; none if it is not JSON or nested deeper than [`MAX_DEPTH`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { rest: text, depth: 0 };
        let value = parser.value()?;
        parser.skip_blanks();
        parser.rest.is_empty().then_some(value)
    }

    /// The member of an object.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find_map(|(name, value)| (name == key).then_some(value))
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    pub(crate) fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub(crate) fn as_object(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Big(digits) => digits.parse().ok(),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether there is something: not null, not `""`, not `[]`.
    pub(crate) fn exists(&self) -> bool {
        match self {
            Self::Null => false,
            Self::String(text) => !text.is_empty(),
            Self::Array(items) => !items.is_empty(),
            _ => true,
        }
    }

    /// The text that a person would put into a sentence: a string as itself, anything else as its JSON.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::String(text) => text.as_str().into(),
            other => other.dumps().into(),
        }
    }

    /// The JSON text as `json.dumps` writes it: `", "` and `": "` between things, everything beyond ASCII escaped.
    pub(crate) fn dumps(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, true);
        out
    }

    /// Compact JSON, for sending.
    pub(crate) fn to_raw(&self) -> Box<RawValue> {
        let mut out = String::new();
        self.write(&mut out, false);
        RawValue::from_string(out).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }

    fn write(&self, out: &mut String, python: bool) {
        let (comma, colon) = if python { (", ", ": ") } else { (",", ":") };
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(yes) => out.push_str(if *yes { "true" } else { "false" }),
            Self::Int(number) => {
                let _ = write!(out, "{number}");
            }
            Self::Big(digits) => out.push_str(digits),
            Self::Float(number) => write_float(*number, out),
            Self::String(text) => write_string(text, out, python),
            Self::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at > 0 { comma } else { "" });
                    item.write(out, python);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    out.push_str(if at > 0 { comma } else { "" });
                    write_string(key, out, python);
                    out.push_str(colon);
                    value.write(out, python);
                }
                out.push('}');
            }
        }
    }
}

/// Equal as JSON: `1` and `1.0` are one number, `true` is not `1`, the order of keys does not matter.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Big(a), Self::Big(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a == b,
            (Self::Float(float), Self::Int(_) | Self::Big(_)) => float_is(*float, other),
            (Self::Int(_) | Self::Big(_), Self::Float(float)) => float_is(*float, self),
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => a.len() == b.len() && same_members(a, b),
            _ => false,
        }
    }
}

fn same_members(a: &[(String, Json)], b: &[(String, Json)]) -> bool {
    let sorted = |members| {
        let mut members: Vec<&(String, Json)> = Vec::from_iter(members);
        members.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        members
    };
    sorted(a) == sorted(b)
}

/// Whether a float is exactly this integer.
fn float_is(float: f64, integer: &Json) -> bool {
    // Without a fraction, `{:.0}` writes every digit of a float, however large.
    float.is_finite() && float.fract() == 0.0 && format!("{:.0}", float + 0.0) == integer.dumps()
}

/// As Python's `repr`: the fewest digits that give the number back, in scientific form below 1e-4 and from 1e16 on.
fn write_float(number: f64, out: &mut String) {
    if !number.is_finite() {
        out.push_str(if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        });
        return;
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let _ = if (-4..16).contains(&exponent) {
        write!(out, "{number:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.abs())
    };
}

fn write_string(text: &str, out: &mut String, ascii: bool) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            plain if plain >= ' ' && (plain.is_ascii() || !ascii) => out.push(plain),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn take(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(token)?;
        Some(())
    }

    fn value(&mut self) -> Option<Json> {
        self.skip_blanks();
        match self.rest.bytes().next()? {
            b'n' => self.take("null").map(|()| Json::Null),
            b't' => self.take("true").map(|()| Json::Bool(true)),
            b'f' => self.take("false").map(|()| Json::Bool(false)),
            b'"' => self.string().map(Json::String),
            b'[' => self.nested(Self::array),
            b'{' => self.nested(Self::object),
            _ => self.number(),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<Json>) -> Option<Json> {
        self.depth += 1;
        let value = if self.depth > MAX_DEPTH { None } else { read(self) };
        self.depth -= 1;
        value
    }

    /// Reads things with commas between them up to `end`, its opening already known to be there.
    fn list(&mut self, end: char, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.rest = self.rest.get(1..)?;
        self.skip_blanks();
        if self.rest.starts_with(end) {
            self.rest = self.rest.get(1..)?;
            return Some(());
        }
        loop {
            item(self)?;
            self.skip_blanks();
            let next = self.rest.chars().next()?;
            if next != ',' && next != end {
                return None;
            }
            self.rest = self.rest.get(1..)?;
            if next == end {
                return Some(());
            }
        }
    }

    fn array(&mut self) -> Option<Json> {
        let mut items = Vec::new();
        self.list(']', |parser| {
            items.push(parser.value()?);
            Some(())
        })?;
        Some(Json::Array(items))
    }

    fn object(&mut self) -> Option<Json> {
        let mut members = Vec::new();
        self.list('}', |parser| {
            parser.skip_blanks();
            let key = parser.string()?;
            parser.skip_blanks();
            parser.take(":")?;
            members.push((key, parser.value()?));
            Some(())
        })?;
        Some(Json::Object(last_of_each(members)))
    }

    fn string(&mut self) -> Option<String> {
        self.take("\"")?;
        let mut text = String::new();
        loop {
            let plain = self.rest.find(|c: char| c == '"' || c == '\\' || c < ' ')?;
            let (head, tail) = self.rest.split_at(plain);
            text.push_str(head);
            self.rest = tail;
            if self.take("\"").is_some() {
                return Some(text);
            }
            self.take("\\")?;
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Option<char> {
        let code = self.rest.chars().next()?;
        self.rest = self.rest.get(code.len_utf8()..)?;
        Some(match code {
            '"' | '\\' | '/' => code,
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let unit = self.hex()?;
                if !(0xd800..0xdc00).contains(&unit) {
                    return char::from_u32(unit);
                }
                self.take("\\u")?;
                let low = self.hex()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                return char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + low);
            }
            _ => return None,
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        self.rest = rest;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    }

    fn number(&mut self) -> Option<Json> {
        let end = self.rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let (text, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let whole = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        if whole == 0 || (whole > 1 && unsigned.starts_with('0')) {
            return None;
        }
        if whole == unsigned.len() {
            return Some(text.parse().map_or_else(|_| Json::Big(text.into()), Json::Int));
        }
        is_fraction(unsigned.get(whole..)?).then(|| text.parse().ok().map(Json::Float))?
    }
}

/// Whether a text is what may follow a number's whole part: `.5`, `e+7`, `.5E7`.
fn is_fraction(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (point, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text.get(at + 1..)),
        None => (text, None),
    };
    point.strip_prefix('.').map_or(point.is_empty(), digits)
        && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

/// Of members with one key, keeps the last value, at the place of the first.
fn last_of_each(members: Vec<(String, Json)>) -> Vec<(String, Json)> {
    let mut by_key: Vec<usize> = (0..members.len()).collect();
    by_key.sort_by(|a, b| members[*a].0.cmp(&members[*b].0));
    if by_key.windows(2).all(|pair| members[pair[0]].0 != members[pair[1]].0) {
        return members;
    }
    let mut places = std::collections::HashMap::new();
    let mut kept: Vec<(String, Json)> = Vec::new();
    for (key, value) in members {
        match places.get(&key) {
            Some(place) => kept[*place] = (key, value),
            None => {
                places.insert(key.clone(), kept.len());
                kept.push((key, value));
            }
        }
    }
    kept
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
