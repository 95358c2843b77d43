//! Which header fields pass from one side of the proxy to the other. Each passes as it came, repeats kept; those that speak
//! of one connection only do not, and the caller's role is the gateway's to name.

use agentenv_protocol::mcp::ROLE_HEADER;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Fields that are about one connection (RFC 9110 7.6.1), besides those that `Connection` itself names.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Fields by which proxies tell where a request came from. Nothing stands before a gateway that a server behind it should
/// believe in their place, so what a client writes there ends here, and nothing is added.
const ORIGIN_CLAIMS: [&str; 3] = ["forwarded", "x-real-ip", "x-forwarded-"];

/// What a server behind the gateway gets of a request's fields. `Host`, `Content-Length` and the role are written anew by
/// [`super::Proxy::forward`]; `Expect` was the gateway's to answer.
pub(super) fn of_request(headers: &mut HeaderMap) {
    drop_hop_by_hop(headers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT] {
        headers.remove(name);
    }
    drop_where(headers, |name| {
        let claims =
            ORIGIN_CLAIMS.iter().any(|c| if c.ends_with('-') { name.starts_with(c) } else { name == *c });
        claims || names_role(name)
    });
}

/// What a client gets of an answer's fields.
pub(super) fn of_response(headers: &mut HeaderMap) {
    // A length beside chunks is not the body's: passed on, it would be taken for it.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    drop_hop_by_hop(headers);
    keep_one(headers, &header::CONTENT_LENGTH);
}

/// Whether some server takes a field of this (lower-case) name for the role's: many make no difference between `-`, `_` and
/// `.`, as CGI's variables do not.
fn names_role(name: &str) -> bool {
    let folded = |byte: u8| if matches!(byte, b'_' | b'.') { b'-' } else { byte };
    let equals = |wanted: &str| name.len() == wanted.len() && name.bytes().map(folded).eq(wanted.bytes());
    equals(ROLE_HEADER.as_str()) || equals("x-agentenv-role")
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named = |value: &HeaderValue| {
        let names =
            value.as_bytes().split(|b| *b == b',').map(|name| HeaderName::from_bytes(name.trim_ascii()));
        names.filter_map(Result::ok).collect::<Vec<_>>()
    };
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers.get_all(header::CONNECTION).iter().flat_map(named).collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

fn drop_where(headers: &mut HeaderMap, unwanted: impl Fn(&str) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn keep_one(headers: &mut HeaderMap, name: &HeaderName) {
    if headers.get_all(name).iter().nth(1).is_some()
        && let Some(value) = headers.remove(name)
    {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn end_to_end_fields_pass_with_their_repeats() {
        let mut headers = map(&[
            ("accept", "a"),
            ("accept", "b"),
            ("cookie", "c=1"),
            ("mcp-session-id", "s"),
            ("x-connection", "y"),
            ("authorization", "Bearer t"),
        ]);
        let before = headers.clone();
        of_request(&mut headers);
        assert_eq!(headers, before);
        of_response(&mut headers);
        assert_eq!(headers, before);
    }

    #[test]
    fn fields_of_one_connection_do_not() {
        let fields = [
            ("connection", "X-Secret, keep-alive"),
            ("connection", "x-other"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
            ("x-kept", "3"),
        ];
        let (mut request, mut response) = (map(&fields), map(&fields));
        of_request(&mut request);
        of_response(&mut response);
        assert_eq!((names(&request), names(&response)), (vec!["x-kept"], vec!["x-kept"]));
    }

    #[test]
    fn what_the_gateway_writes_itself() {
        let mut headers = map(&[
            ("host", "gateway"),
            ("content-length", "5"),
            ("expect", "100-continue"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "1.2.3.4"),
            ("x-forward", "kept"),
        ]);
        of_request(&mut headers);
        assert_eq!(names(&headers), ["x-forward"]);
    }

    #[test]
    fn an_answers_length_is_its_bodys() {
        let mut headers = map(&[("content-length", "5"), ("transfer-encoding", "chunked")]);
        of_response(&mut headers);
        assert!(headers.is_empty());
        let mut headers = map(&[("content-length", "5"), ("content-length", "5")]);
        of_response(&mut headers);
        assert_eq!(names(&headers), ["content-length"]);
    }

    proptest! {
        /// No spelling of the role's name gets through, and no other name is lost to it.
        #[test]
        fn no_spelling_of_the_role_passes(separators in "[-_.]{1}", upper: [bool; 12], prefix in "(x[-_.])?") {
            let name: String = format!("agentenv{separators}role").chars().zip(upper.into_iter().cycle())
                .map(|(c, up)| if up { c.to_ascii_uppercase() } else { c }).collect();
            let name = format!("{prefix}{name}");
            let mut headers = map(&[(&name, "admin"), ("agentenv-session", "s"), ("agentenv-roles", "r"), ("agent-env-role", "a")]);
            of_request(&mut headers);
            prop_assert_eq!(names(&headers), ["agent-env-role", "agentenv-roles", "agentenv-session"]);
        }

        #[test]
        fn never_panics(values in prop::collection::vec("[ -~]{0,20}", 0..6)) {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONNECTION, HeaderValue::from_str(&value).unwrap());
            }
            of_request(&mut headers);
            prop_assert!(headers.is_empty());
        }
    }
}
