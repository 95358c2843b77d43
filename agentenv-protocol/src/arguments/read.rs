//! Reading one argument from its raw text, as strictly as is asked.

use std::borrow::Cow;

use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde_json::value::RawValue;

use crate::json;

/// How strictly an argument must be of its parameter's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As the schema has it: a tool's arguments.
    Exact,
    /// Text may stand for a number or a boolean: an extension's JSON body.
    Lax,
    /// Everything is text, and a list may be one item or a JSON array: an extension's query string.
    Text,
}

/// A value from its JSON text. serde_json stops at 128 levels; a text that is deeper, and may be (contract 10), is read without
/// that guard.
pub(crate) fn from_raw<T: DeserializeOwned>(raw: &RawValue) -> Result<T, serde_json::Error> {
    serde_json::from_str(raw.get()).or_else(|error| {
        if !error.to_string().starts_with("recursion limit exceeded")
            || json::check(raw.get().as_bytes()).is_err()
        {
            return Err(error);
        }
        let mut deserializer = serde_json::Deserializer::from_str(raw.get());
        deserializer.disable_recursion_limit();
        T::deserialize(&mut deserializer)
    })
}

/// What a parameter is when it is not given, for the types that have such a value (`Option`).
pub(crate) fn absent<T: DeserializeOwned>() -> Option<T> {
    struct Absent;

    impl<'de> Deserializer<'de> for Absent {
        type Error = de::value::Error;
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(de::Error::custom("absent"))
        }
        fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            visitor.visit_none()
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
            newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
        }
    }

    T::deserialize(Absent).ok()
}

/// Reads a value; where its text does not fit as it stands, what else the reading lets it mean is tried, and the first error is
/// the one that is told.
pub(crate) fn read<T: DeserializeOwned>(raw: &RawValue, reading: Reading) -> Result<T, serde_json::Error> {
    let error = match from_raw(raw) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    // To JSON Schema 5.0 is an integer, and some languages write all their numbers so.
    if let Some(integer) = whole_number(raw.get())
        && let Ok(value) = serde_json::from_str(integer)
    {
        return Ok(value);
    }
    if reading == Reading::Exact {
        return Err(error);
    }
    if reading == Reading::Text
        && let Ok(texts) = serde_json::from_str::<Vec<String>>(raw.get())
    {
        // A name that a query string gives several times: numbers if they all are, otherwise booleans.
        let all = |pick: fn(Vec<Cow<'_, str>>) -> Option<Cow<'_, str>>| -> Option<T> {
            let items = texts.iter().map(|text| pick(meanings(text, Reading::Lax)));
            let items: Option<Vec<_>> = items.collect();
            serde_json::from_str(&format!("[{}]", items?.join(","))).ok()
        };
        return all(|meanings| meanings.into_iter().next())
            .or_else(|| all(|meanings| meanings.into_iter().last()))
            .ok_or(error);
    }
    let text: String = match serde_json::from_str(raw.get()) {
        Ok(text) => text,
        Err(_) => return Err(error),
    };
    meanings(text.trim(), reading).iter().find_map(|json| serde_json::from_str(json).ok()).ok_or(error)
}

/// The JSON that a text may stand for.
fn meanings(text: &str, reading: Reading) -> Vec<Cow<'_, str>> {
    let mut meanings = Vec::new();
    let scalar =
        serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| !raw.get().starts_with(['"', '[', '{', 'n']));
    if scalar {
        meanings.push(Cow::Borrowed(text));
        meanings.extend(whole_number(text).map(Cow::Borrowed));
    }
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => meanings.push("true".into()),
        "0" | "false" | "no" | "off" => meanings.push("false".into()),
        _ => {}
    }
    if reading == Reading::Text {
        if text.starts_with(['[', '{']) {
            meanings.push(Cow::Borrowed(text));
        }
        let items: Vec<_> = meanings.iter().map(|item| format!("[{item}]").into()).collect();
        meanings.extend(items);
        meanings.push(serde_json::to_string(&[text]).unwrap_or_default().into());
    }
    meanings
}

/// The integer that a number such as `5.0` is.
fn whole_number(json: &str) -> Option<&str> {
    let (whole, fraction) = json.split_once('.')?;
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    (integer && !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0')).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads<T: DeserializeOwned>(json: &str, reading: Reading) -> Option<T> {
        read(serde_json::from_str(json).unwrap(), reading).ok()
    }

    #[test]
    fn exactly_means_as_the_schema_has_it() {
        let exact = Reading::Exact;
        assert_eq!(reads::<i64>("5.0", exact), Some(5));
        assert_eq!(reads::<i64>("-5.00", exact), Some(-5));
        assert_eq!(reads::<u8>("300.0", exact), None);
        assert_eq!(reads::<i64>("5.5", exact), None);
        assert_eq!(reads::<i64>("\"5\"", exact), None);
        assert_eq!(reads::<bool>("\"true\"", exact), None);
        assert_eq!(reads::<String>("5", exact), None);
        assert_eq!(reads::<u64>("18446744073709551615", exact), Some(u64::MAX));
    }

    #[test]
    fn laxly_means_that_text_may_stand_for_a_number_or_a_boolean() {
        let lax = Reading::Lax;
        assert_eq!(reads::<i64>("\" 5 \"", lax), Some(5));
        assert_eq!(reads::<i64>("\"5.0\"", lax), Some(5));
        assert_eq!(reads::<Option<f64>>("\"1e2\"", lax), Some(Some(100.0)));
        assert_eq!(reads::<bool>("\"Yes\"", lax), Some(true));
        assert_eq!(reads::<bool>("\"0\"", lax), Some(false));
        assert_eq!(reads::<String>("\"5\"", lax).as_deref(), Some("5"));
        assert_eq!(reads::<Vec<i64>>("\"[1]\"", lax), None);
        assert_eq!(reads::<i64>("\"\"", lax), None);
        assert_eq!(reads::<i64>("true", lax), None);
        assert_eq!(reads::<Option<i64>>("\"null\"", lax), None);
    }

    #[test]
    fn a_query_string_may_also_hold_lists() {
        let text = Reading::Text;
        assert_eq!(reads::<Vec<i64>>("\"[1, 2]\"", text), Some(vec![1, 2]));
        assert_eq!(reads::<Vec<i64>>("\"1\"", text), Some(vec![1]));
        assert_eq!(reads::<Vec<String>>("\"a\"", text), Some(vec!["a".to_owned()]));
        assert_eq!(reads::<Vec<i64>>(r#"["1", "2"]"#, text), Some(vec![1, 2]));
        assert_eq!(reads::<Vec<bool>>(r#"["1", "no"]"#, text), Some(vec![true, false]));
        assert_eq!(reads::<Vec<i64>>(r#"["1", "x"]"#, text), None);
    }
}
