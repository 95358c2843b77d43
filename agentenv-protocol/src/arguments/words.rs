//! What serde says of a value, in the words of JSON.

use std::fmt;

/// serde_json's message as a caller understands it: without the place, which is one in the argument's text, and in JSON's words.
pub(crate) fn in_words(error: &serde_json::Error) -> String {
    let text = without_position(error);
    let Some((found, expected)) = text.rsplit_once(", expected ") else { return text };
    let found = found
        .strip_prefix("invalid type: ")
        .or_else(|| found.strip_prefix("invalid value: "))
        .unwrap_or(found);
    let found = match found {
        "sequence" => "an array",
        "map" => "an object",
        "unit value" => "null",
        found => found,
    };
    let range = |lowest: &dyn fmt::Display, highest: &dyn fmt::Display| match found.starts_with("integer") {
        true => format!("an integer from {lowest} to {highest}"),
        false => "an integer".to_owned(),
    };
    let expected = match expected {
        "i8" => range(&i8::MIN, &i8::MAX),
        "i16" => range(&i16::MIN, &i16::MAX),
        "i32" => range(&i32::MIN, &i32::MAX),
        "i64" | "isize" => range(&i64::MIN, &i64::MAX),
        "u8" => range(&u8::MIN, &u8::MAX),
        "u16" => range(&u16::MIN, &u16::MAX),
        "u32" => range(&u32::MIN, &u32::MAX),
        "u64" | "usize" => range(&u64::MIN, &u64::MAX),
        "i128" | "u128" => "an integer".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        name if name.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    };
    format!("{found}, expected {expected}")
}

/// serde_json's message without the place.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
