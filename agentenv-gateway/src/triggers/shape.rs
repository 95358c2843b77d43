//! Arguments as logs may show them: their shape, and only such values as identify or classify (contract 7.8).

use serde_json::{Map, Value, json};

use super::json::Json;

/// Names whose scalars are shown.
const SHOWN: [&str; 11] = [
    "action",
    "createdTime",
    "fileName",
    "kind",
    "mimeType",
    "modifiedTime",
    "name",
    "role",
    "title",
    "type",
    "id",
];

/// Longest text that is shown, in characters.
const MAX_SHOWN: usize = 200;

/// Deepest nesting, and most members of one list or object, whose shape is told.
const MAX_DEPTH: usize = 16;
const MAX_MEMBERS: usize = 100;

/// The shape of arguments.
pub(crate) fn shape(value: &Json) -> Value {
    shape_at(value, "", MAX_DEPTH)
}

fn shape_at(value: &Json, name: &str, depth: usize) -> Value {
    match value {
        Json::Object(members) if depth > 0 && members.len() <= MAX_MEMBERS => {
            let members =
                members.iter().map(|(name, value)| (name.clone(), shape_at(value, name, depth - 1)));
            Value::Object(Map::from_iter(members))
        }
        Json::Array(items) if depth > 0 && items.len() <= MAX_MEMBERS => {
            items.iter().map(|item| shape_at(item, "", depth - 1)).collect()
        }
        Json::Object(members) => redacted("dict", Some(members.len())),
        Json::Array(items) => redacted("list", Some(items.len())),
        scalar if is_shown(name) => shown(scalar),
        Json::String(text) => redacted("str", Some(text.chars().count())),
        Json::Int(_) | Json::Big(_) => redacted("int", None),
        Json::Float(_) => redacted("float", None),
        Json::Bool(_) => redacted("bool", None),
        Json::Null => redacted("NoneType", None),
    }
}

fn redacted(kind: &str, length: Option<usize>) -> Value {
    match length {
        Some(length) => json!({"redacted": {"type": kind, "len": length}}),
        None => json!({"redacted": {"type": kind}}),
    }
}

fn is_shown(name: &str) -> bool {
    SHOWN.contains(&name) || name.ends_with("Id") || name.ends_with("_id")
}

fn shown(scalar: &Json) -> Value {
    match scalar {
        Json::String(text) if text.chars().count() > MAX_SHOWN => redacted("str", Some(text.chars().count())),
        Json::String(text) => text.as_str().into(),
        Json::Int(number) => (*number).into(),
        Json::Big(_) => redacted("int", None),
        Json::Float(number) => (*number).into(),
        Json::Bool(flag) => (*flag).into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_and_what_is_not() {
        let long = "x".repeat(MAX_SHOWN + 1);
        let given = json!({
            "to": "priya.shah@example.com", "n": 1, "f": 1.5, "b": true, "z": null, "list": ["é", 2], "deep": {"body": "x", "email_id": 7},
            "title": "Q3", "id": "e1", "threadId": "t", "name": long, "type": ["a"], "role": null, "grid": [["a"]],
        });
        let want = json!({
            "to": {"redacted": {"type": "str", "len": 22}}, "n": {"redacted": {"type": "int"}}, "f": {"redacted": {"type": "float"}},
            "b": {"redacted": {"type": "bool"}}, "z": {"redacted": {"type": "NoneType"}},
            "list": [{"redacted": {"type": "str", "len": 1}}, {"redacted": {"type": "int"}}],
            "deep": {"body": {"redacted": {"type": "str", "len": 1}}, "email_id": 7}, "title": "Q3", "id": "e1", "threadId": "t",
            "name": {"redacted": {"type": "str", "len": 201}}, "type": [{"redacted": {"type": "str", "len": 1}}], "role": null,
            "grid": [[{"redacted": {"type": "str", "len": 1}}]],
        });
        assert_eq!(shape(&Json::parse(&given.to_string()).unwrap()), want);
    }

    #[test]
    fn shapes_are_small() {
        let wide = Json::Array(vec![Json::Null; MAX_MEMBERS + 1]);
        assert_eq!(shape(&wide), json!({"redacted": {"type": "list", "len": 101}}));
        let deep = Json::parse(&format!("{}{}", "[".repeat(900), "]".repeat(900))).unwrap();
        assert!(shape(&deep).to_string().len() < 200);
    }
}
