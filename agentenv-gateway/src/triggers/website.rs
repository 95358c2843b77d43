//! The arguments of a website request: its query, and its body where that is a form or a JSON object (contract 7.9).

use super::json::Json;
use super::world::SeenRequest;

/// The arguments; a name that comes more than once has a list of values.
pub(crate) fn arguments(request: &SeenRequest) -> Json {
    let mut args = Vec::new();
    add_form(&mut args, request.query.as_bytes());
    let kind = request.content_type.as_deref().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/x-www-form-urlencoded" {
        let mut form = Vec::new();
        add_form(&mut form, &request.body);
        replace(&mut args, form);
    } else if kind == "application/json" || kind.ends_with("+json") {
        let body = std::str::from_utf8(&request.body).ok().and_then(Json::parse);
        if let Some(Json::Object(members)) = body {
            replace(&mut args, members);
        }
    }
    Json::Object(args)
}

fn add_form(args: &mut Vec<(String, Json)>, form: &[u8]) {
    for (name, value) in url::form_urlencoded::parse(form) {
        let value = Json::String(value.into_owned());
        match args.iter_mut().find(|(known, _)| *known == name) {
            None => args.push((name.into_owned(), value)),
            Some((_, Json::Array(values))) => values.push(value),
            Some((_, first)) => *first = Json::Array(vec![std::mem::replace(first, Json::Null), value]),
        }
    }
}

/// What the body says goes before what the query says.
fn replace(args: &mut Vec<(String, Json)>, body: Vec<(String, Json)>) {
    args.retain(|(name, _)| !body.iter().any(|(given, _)| given == name));
    args.extend(body);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn read(query: &str, kind: &str, body: &'static [u8]) -> String {
        arguments(&SeenRequest {
            app: "shop".to_owned(),
            role: "default".to_owned(),
            method: "POST".to_owned(),
            path: "/".to_owned(),
            query: query.to_owned(),
            content_type: Some(kind.to_owned()),
            body: Bytes::from_static(body),
            status: 200,
        })
        .dumps()
    }

    #[test]
    fn what_is_read() {
        let json = "application/json; charset=utf-8";
        let form = "application/x-www-form-urlencoded";
        for (query, kind, body, want) in [
            ("x=1&y=a%20b+c", "", b"".as_slice(), r#"{"x": "1", "y": "a b c"}"#),
            ("x=1&x=3&x=4", "", b"", r#"{"x": ["1", "3", "4"]}"#),
            ("x=1", json, br#"{"sku":5}"#, r#"{"x": "1", "sku": 5}"#),
            ("sku=1", json, br#"{"sku":5}"#, r#"{"sku": 5}"#),
            ("", "application/vnd.api+json", br#"{"a":[1]}"#, r#"{"a": [1]}"#),
            ("", form, b"a=1&b=2&a=3", r#"{"a": ["1", "3"], "b": "2"}"#),
            ("", json, b"[1,2]", "{}"),
            ("", json, b"{", "{}"),
            ("", json, b"\xff", "{}"),
            ("", "text/plain", b"a=1", "{}"),
            ("", "multipart/form-data; boundary=B", b"--B", "{}"),
        ] {
            assert_eq!(read(query, kind, body), want);
        }
    }
}
