use serde_json::Value;

use super::*;

/// Verdicts of CPython 3.11.7, recorded once.
fn table() -> Value {
    serde_json::from_str(include_str!("../../../tests/data/python_regex.json")).unwrap()
}

/// Patterns that Python takes and this engine refuses, each with what its refusal says.
const REFUSED_ON_PURPOSE: [(&str, &str); 6] = [
    (r"(?a)\w", "'a' is not supported"),
    (r"(?La)x", "'L' is not supported"),
    (r"\N{BULLET}", "by name"),
    (r"x{2000000}", "too large"),
    (r"\ud800", "no character d800"),
    (r"(?:(?:\w{100}){100}){10}", "too large"),
];

fn disagreements(pattern: &str, verdicts: Option<&str>, texts: &[&str]) -> Vec<String> {
    let compiled = Pattern::new(pattern);
    match (compiled, verdicts) {
        (Err(_), None) => Vec::new(),
        (Ok(_), None) => vec![format!("{pattern:?} is taken, Python refuses it")],
        (Err(error), Some(_)) => vec![format!("{pattern:?} is refused: {error}")],
        (Ok(compiled), Some(verdicts)) => texts
            .iter()
            .zip(verdicts.chars())
            .filter(|(text, verdict)| compiled.is_match(text) != Ok(*verdict == '1'))
            .map(|(text, verdict)| format!("{pattern:?} on {text:?}: Python says {verdict}"))
            .collect(),
    }
}

#[test]
fn it_agrees_with_python() {
    let table = table();
    let strings = |value: &'static str| -> Vec<String> {
        table[value].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let texts = strings("texts");
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut wrong = Vec::new();
    for row in table["hand"].as_array().unwrap() {
        wrong.extend(disagreements(row[0].as_str().unwrap(), row[1].as_str(), &texts));
    }
    for row in table["random"].as_array().unwrap() {
        let row: Vec<&str> = row.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect();
        wrong.extend(disagreements(row[0], row.get(1).copied(), row.get(2..).unwrap_or_default()));
    }
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn refused_on_purpose() {
    for (pattern, reason) in REFUSED_ON_PURPOSE {
        let error = Pattern::new(pattern).unwrap_err();
        assert!(error.contains(reason), "{pattern}: {error}");
    }
    assert!(Pattern::new(&"a".repeat(MAX_PATTERN + 1)).is_err());
    assert!(Pattern::new(&"(".repeat(50_000)).is_err());
    assert!(Pattern::new(&"(?=".repeat(20_000)).is_err());
}

#[test]
fn both_engines_agree() {
    let table = table();
    for row in table["random"].as_array().unwrap() {
        let row: Vec<&str> = row.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect();
        let Ok(parsed) = parse::parse(row[0]) else { continue };
        let Some(linear) = linear::write(&parsed.node) else { continue };
        let linear = regex::Regex::new(&linear.pattern).unwrap();
        let program = program::compile(&parsed.node, parsed.groups).unwrap();
        for text in row.get(2..).unwrap_or_default().iter().filter(|text| text.is_ascii() && !text.is_empty())
        {
            assert_eq!(
                matcher::search(&program, text),
                Ok(linear.is_match(text)),
                "{:?} on {text:?}",
                row[0]
            );
        }
    }
}

#[test]
fn runaway_patterns_come_to_an_end() {
    let letters = format!("{}!", "a".repeat(40));
    let long = "a".repeat(1 << 16);
    assert_eq!(Pattern::new("^(a+)+$").unwrap().is_match(&letters), Ok(false));
    for (pattern, text) in [
        (r"^(a+)+\1$", &letters),
        (r"^(?=(a+)+$)(?!b)", &letters),
        (r"(?=.*x)a", &long),
        (r"(?:a|b)*+c", &long),
        (r"(?>a+)b", &long),
        (r"(a+)\1b", &long),
        (r".*?(?=.*y)z", &long),
        (r"(?i)(a+)\1b", &long),
        (r"(?:(?:a?){30}){30}(?<!a)b", &long),
        (r"(?:(?:(?:a*)*)*)*(?!a)b", &long),
    ] {
        // What matters is that it answers; it may say that it gave up.
        let _ = Pattern::new(pattern).unwrap().is_match(text);
    }
    assert_eq!(Pattern::new(r"^(a|aa)+(?!a)!\1").unwrap().is_match(&letters), Err(TooManySteps));
}

#[test]
fn ordinary_look_around_works_on_long_texts() {
    let long = format!("{}foobar", "abc foo ".repeat(10_000));
    for (pattern, found) in [
        ("foo(?=bar)", true),
        ("(?<!x)foobar$", true),
        ("foo(?!bar|\\s)", false),
        (r"(?<=\s)foo\b(?!\s)", false),
        (r"(?P<w>foo)(?!\s)bar(?P=w)?", true),
    ] {
        assert_eq!(Pattern::new(pattern).unwrap().is_match(&long), Ok(found), "{pattern}");
    }
}

proptest::proptest! {
    #[test]
    fn no_pattern_panics(pattern in r"[a-c1\\(){}\[\]?*+|^$.<=!P:>,iwdbZ#-]{0,30}", text in "[abc1\n é]{0,20}") {
        if let Ok(pattern) = Pattern::new(&pattern) {
            let _ = pattern.is_match(&text);
        }
    }
}
