use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn dumps(text: &str) -> String {
    Json::parse(text).unwrap_or_else(|| panic!("{text} was not read")).dumps()
}

#[test]
fn text_is_what_python_writes() {
    for (read, written) in [
        (r#"{"a":[1,{"b":null}],"c":"é"}"#, r#"{"a": [1, {"b": null}], "c": "\u00e9"}"#),
        (r#""a\"b\\c\/\n\u007f\u0001😀""#, "\"a\\\"b\\\\c/\\n\u{7f}\\u0001\\ud83d\\ude00\""),
        ("1.0", "1.0"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        ("1e22", "1e+22"),
        ("1E5", "100000.0"),
        ("1e16", "1e+16"),
        ("1e15", "1000000000000000.0"),
        ("123456789012345680.0", "1.2345678901234568e+17"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        ("1.5e-7", "1.5e-07"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1e400", "Infinity"),
        (r#"{"a":1,"b":2,"a":3}"#, r#"{"a": 3, "b": 2}"#),
        ("[]", "[]"),
        ("{}", "{}"),
    ] {
        assert_eq!(dumps(read), written, "{read}");
    }
}

#[test]
fn what_is_not_json_is_not_read() {
    for text in [
        "",
        " ",
        "nul",
        "01",
        "1.",
        ".5",
        "-",
        "+1",
        "1e",
        "1e+",
        "[1,]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"a\nb\"",
        "1 2",
        "NaN",
        "Infinity",
        "'a'",
        "[",
        "{",
        "1.5.5",
        "--1",
        "1-1",
        "\"\\u+123\"",
    ] {
        assert!(Json::parse(text).is_none(), "{text:?}");
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(Json::parse(&nested(MAX_DEPTH)).is_some());
    assert!(Json::parse(&nested(MAX_DEPTH + 1)).is_none());
    assert!(Json::parse(&"[".repeat(1_000_000)).is_none());
    assert!(Json::parse(&"{\"a\":".repeat(1_000_000)).is_none());
}

#[test]
fn equality_is_json_equality() {
    for (a, b, equal) in [
        ("1", "1.0", true),
        ("1", "true", false),
        ("0", "false", false),
        ("0", "-0.0", true),
        ("null", "false", false),
        ("\"1\"", "1", false),
        (r#"{"a":1,"b":[2]}"#, r#"{"b":[2.0],"a":1}"#, true),
        (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false),
        ("[1,2]", "[2,1]", false),
        ("12345678901234567890123", "12345678901234567890123", true),
        ("12345678901234567890123", "12345678901234567890124", false),
        ("100000000000000000000", "1e20", true),
        ("100000000000000000001", "1e20", false),
        ("9007199254740993", "9007199254740992.0", false),
        ("1e400", "1e500", true),
        ("5", "5.5", false),
    ] {
        let (left, right) = (Json::parse(a).unwrap(), Json::parse(b).unwrap());
        assert_eq!(left == right, equal, "{a} and {b}");
        assert_eq!(right == left, equal, "{b} and {a}");
    }
}

#[test]
fn existence() {
    for (text, exists) in [
        ("null", false),
        ("\"\"", false),
        ("[]", false),
        ("{}", true),
        ("0", true),
        ("false", true),
        ("\" \"", true),
        ("[null]", true),
    ] {
        assert_eq!(Json::parse(text).unwrap().exists(), exists, "{text}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Few digits: the parser compared with is exact only for those.
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 16.0)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn it_reads_what_others_write_and_writes_what_others_read(value in any_json()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let json = Json::parse(&text).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Value>(&json.dumps()).unwrap(), &value);
            prop_assert_eq!(&serde_json::from_str::<Value>(json.to_raw().get()).unwrap(), &value);
        }
    }

    #[test]
    fn it_reads_exactly_what_a_strict_parser_reads(text in r#"[\[\]{}",:0-9.eE+\-\\untrfals ]{0,24}"#) {
        // A float beyond what an `f64` holds is the one thing taken here that the other refuses.
        prop_assume!(!text.to_lowercase().contains('e') || !text.bytes().any(|byte| byte.is_ascii_digit()));
        prop_assert_eq!(Json::parse(&text).is_some(), serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
    }
}
