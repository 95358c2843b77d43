//! JSON values as YAML that people read: block style, every string in quotes. YAML's double-quoted strings are JSON's, so
//! nothing can be taken for something else (`no`, `1.10`, `0x1F`).

use serde_json::Value;

/// A value as a YAML document.
pub(super) fn yaml(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, value) in members {
                indent(depth, text);
                text.push_str(&word(key));
                text.push(':');
                below(value, depth + 1, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(depth, text);
                text.push('-');
                below(item, depth + 1, text);
            }
        }
        // What is left is written alike in both.
        scalar => {
            indent(depth, text);
            text.push_str(&scalar.to_string());
            text.push('\n');
        }
    }
}

/// Writes a value after its key: beside it, or below it when it has members.
fn below(value: &Value, depth: usize, text: &mut String) {
    let has_members = match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if has_members {
        text.push('\n');
        write(value, depth, text);
    } else if value.is_null() {
        text.push('\n');
    } else {
        text.push(' ');
        write(value, 0, text);
    }
}

fn indent(depth: usize, text: &mut String) {
    for _ in 0..depth {
        text.push_str("  ");
    }
}

/// A key, bare when it cannot be anything but a word.
fn word(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_word =
        key.len() > 3 && key.starts_with(|c: char| c.is_ascii_alphabetic()) && key.chars().all(plain);
    match key {
        "true" | "false" | "null" | "True" | "False" | "Null" | "TRUE" | "FALSE" | "NULL" => {
            format!("\"{key}\"")
        }
        _ if is_word => key.to_owned(),
        _ => Value::from(key).to_string(),
    }
}
