use proptest::prelude::*;

use super::*;

const ARGS: &str = r#"{"name":"Sam","email":"s@x","n":7,"f":1.0,"list":[1,["é"]],"nul":null,"empty":"","trap":"${args.name}"}"#;
const RESULT: &str = r#"{"sent":3,"deep":{"a":[{"b":true}]}}"#;

fn parse(text: &str, provoking: Provoking) -> Result<Template, Vec<String>> {
    let mut faults = Vec::new();
    let template = Template::parse(&Json::parse(text).unwrap(), provoking, &mut |fault| faults.push(fault));
    if faults.is_empty() { Ok(template) } else { Err(faults) }
}

fn fill(template: &str) -> Result<String, Unfilled> {
    let (args, result) = (Json::parse(ARGS).unwrap(), Json::parse(RESULT).unwrap());
    let bound = BTreeMap::from([("who".to_owned(), Json::Int(5)), ("gone".to_owned(), Json::Null)]);
    let values = Values { args: Some(&args), result: Some(&result), bound };
    parse(template, Provoking::Call).unwrap().fill(&values).map(|filled| filled.to_raw().get().to_owned())
}

#[test]
fn what_is_put_in() {
    for (template, filled) in [
        (r#"{"to":"${args.email}"}"#, r#"{"to":"s@x"}"#),
        (r#"{"to":"Hi ${args.name}, ${result.sent} sent"}"#, r#"{"to":"Hi Sam, 3 sent"}"#),
        (r#"["${args.n}","${args.f}","${args.list}"]"#, r#"[7,1.0,[1,["é"]]]"#),
        (r#""n=${args.n} f=${args.f} l=${args.list}""#, r#""n=7 f=1.0 l=[1, [\"\\u00e9\"]]""#),
        (r#""${args}""#, ARGS),
        (r#""${result}!""#, r#""{\"sent\": 3, \"deep\": {\"a\": [{\"b\": true}]}}!""#),
        (r#""${result.deep.a[0].b}""#, "true"),
        (r#""${args.empty}|""#, r#""|""#),
        (r#""${args.empty}""#, r#""""#),
        (r#"{"cc":"${args.cc?}","to":"x"}"#, r#"{"to":"x"}"#),
        (r#"{"cc":"${args.nul?}"}"#, "{}"),
        (r#"["a","${args.cc?}"]"#, r#"["a"]"#),
        (r#""a${args.cc?}b""#, r#""ab""#),
        (r#""${args.trap}""#, r#""${args.name}""#),
        (r#""x ${args.trap}""#, r#""x ${args.name}""#),
        (r#""$${args.name}$ {x} $x""#, r#""$Sam$ {x} $x""#),
        (r#""${who}""#, "5"),
        (r#""${who}!""#, r#""5!""#),
        (r#""${HOME} ${other?}.""#, r#""${HOME} .""#),
        (r#"{"${args.name}":1}"#, r#"{"${args.name}":1}"#),
        (r#""\\${args.name}""#, r#""\\Sam""#),
    ] {
        assert_eq!(fill(template).as_deref(), Ok(filled), "{template}");
    }
}

#[test]
fn what_is_missing_fails() {
    for (template, missing) in [
        (r#""${args.cc}""#, "${args.cc}"),
        (r#""x${args.nul}""#, "${args.nul}"),
        (r#"{"a":[{"b":"${result.deep.a[7]}"}]}"#, "${result.deep.a[7]}"),
        (r#""${gone}""#, "${gone}"),
    ] {
        assert_eq!(fill(template), Err(Unfilled::Missing(missing.to_owned())), "{template}");
    }
}

#[test]
fn malformed_placeholders() {
    for text in [
        "${args.to",
        "${",
        "a ${ b",
        "${args.}",
        "${ args.to }",
        "${args.to }",
        "${}",
        "${?}",
        "${args.to??}",
        "${args.a-b}",
        "${args.a b}",
        "${args.a..b}",
        "${args.${args.x}}",
        "${other.to}",
        "${args[0]}",
        "${result[0].a}",
        "${who[0]}",
        "${args.a[x]}",
    ] {
        for value in [format!("{text:?}"), format!("{{\"deep\":[{text:?}]}}")] {
            assert_eq!(parse(&value, Provoking::Call).map(drop).unwrap_err().len(), 1, "{text}");
        }
    }
    assert_eq!(parse(r#"["${","${}","${args.x}"]"#, Provoking::Nothing).map(drop).unwrap_err().len(), 3);
}

#[test]
fn what_there_is_to_read() {
    for (text, nothing, args) in [
        ("${args.a}", false, true),
        ("${args}", false, true),
        ("${result.a?}", false, false),
        ("${result}", false, false),
        ("${name}", true, true),
    ] {
        let value = format!("{text:?}");
        assert!(parse(&value, Provoking::Call).is_ok());
        assert_eq!(parse(&value, Provoking::Nothing).is_ok(), nothing, "{text}");
        assert_eq!(parse(&value, Provoking::Args).is_ok(), args, "{text}");
    }
    let template = parse(r#"["${args.a}",{"b":"x${name}"}]"#, Provoking::Call).unwrap();
    assert_eq!((template.reads(), template.names()), ((true, false), vec!["name"]));
}

#[test]
fn size_and_depth_are_bounded() {
    let big = Json::Object(vec![("a".to_owned(), Json::String("x".repeat(1 << 20)))]);
    let template = parse(&format!("[{}]", vec![r#""${args.a}""#; 17].join(",")), Provoking::Call).unwrap();
    let values = Values { args: Some(&big), ..Values::default() };
    assert!(matches!(template.fill(&values), Err(Unfilled::TooLarge)));
    let deep = Json::parse(&format!("{}{}", "[".repeat(300), "]".repeat(300))).unwrap();
    let template = parse(r#"{"a":"${args}"}"#, Provoking::Call).unwrap();
    assert!(matches!(
        template.fill(&Values { args: Some(&deep), ..Values::default() }),
        Err(Unfilled::TooDeep)
    ));
}

proptest! {
    #[test]
    fn data_is_never_expanded(data in r"[${}a-z.?\[\]0-9 ]{0,30}", around in "[a-z ]{0,5}") {
        let args = Json::Object(vec![("x".to_owned(), Json::String(data.clone())), ("a".to_owned(), Json::Int(1))]);
        let values = Values { args: Some(&args), ..Values::default() };
        let template = parse(&format!("{:?}", format!("{around}${{args.x}}{around}")), Provoking::Call).unwrap();
        prop_assert_eq!(template.fill(&values), Ok(Json::String(format!("{around}{data}{around}"))));
    }

    #[test]
    fn reading_never_panics(text in r"[${}a-z.?\[\]0-9 é]{0,30}") {
        let _ = Template::parse(&Json::String(text), Provoking::Call, &mut |_| {});
    }
}
