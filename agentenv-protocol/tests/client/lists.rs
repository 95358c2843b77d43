//! Lists of tools: pages, and lists that never end.

use std::sync::atomic::{AtomicUsize, Ordering};

use agentenv_protocol::mcp::client::{ErrorKind, PAGE_LIMIT, Sent};
use serde_json::json;

use crate::evil::{Evil, Seen, polite, polite_as, result, stateless};

/// A child whose `tools/list` answers these texts, by cursor: none is the first, `"1"` the second.
async fn child(pages: Vec<String>) -> Evil {
    Evil::start(move |seen| match seen.method() {
        "tools/list" => {
            let cursor = seen.body["params"]["cursor"].as_str().unwrap_or("0").parse().unwrap_or(0);
            result(seen, &pages[std::cmp::min(cursor, pages.len() - 1)])
        }
        _ => polite(seen),
    })
    .await
}

#[tokio::test]
async fn every_page_comes_in_order_and_as_it_is() {
    let second = r#"{ "inputSchema":{"type":"object","properties":{"model_config":{},"_id":{},"$ref":{},"a.b":{"maximum":1e2}}},"name":"b" }"#;
    let pages = vec![
        r#"{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"nextCursor":"1"}"#.to_owned(),
        r#"{"tools":[],"nextCursor":"2"}"#.to_owned(),
        format!(r#"{{"tools":[{second}],"nextCursor":null,"_meta":{{}}}}"#),
    ];
    let tools = child(pages).await.client().list_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!((names, tools[1].raw.as_str()), (vec!["a", "b"], second));
}

#[tokio::test]
async fn lists_that_are_none_are_errors() {
    for (page, words) in [
        (r#"{"tools":[],"nextCursor":"0"}"#, "a cursor comes again"),
        (r#"{"tools":[],"nextCursor":5}"#, "a cursor that is no text"),
        (r#"{"tools":{}}"#, "is none"),
        (r#"{"tools":null}"#, "is none"),
        ("{}", "is none"),
        (r#"{"tools":[{"name":"a"},{"title":"b"}]}"#, "tool 2 of the server's list has no name"),
        (r#"{"tools":[{"name":5}]}"#, "tool 1 of"),
        (r#"{"tools":["a"]}"#, "tool 1 of"),
    ] {
        let error = child(vec![page.to_owned()]).await.client().list_tools().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::BadAnswer { .. }), "{page}: {error:?}");
        assert!(error.to_string().contains(words), "{page}: {error}");
    }
}

/// Answers page after page, each with another cursor and with padding of this length.
fn endless(seen: &Seen, padding: usize) -> Vec<crate::evil::Step> {
    let cursor: usize = seen.body["params"]["cursor"].as_str().map_or(0, |cursor| cursor.parse().unwrap());
    let padding = "x".repeat(padding);
    result(
        seen,
        &json!({"tools": [], "nextCursor": (cursor + 1).to_string(), "padding": padding}).to_string(),
    )
}

#[tokio::test]
async fn a_list_without_an_end_is_an_error() {
    let evil =
        Evil::start(|seen| if seen.method() == "tools/list" { endless(seen, 0) } else { stateless(seen) })
            .await;
    let error = evil.client().list_tools().await.unwrap_err();
    assert!(error.to_string().contains("more than 1000 pages"), "{error}");
    assert_eq!(evil.times("tools/list"), PAGE_LIMIT);
}

#[tokio::test]
async fn pages_together_are_no_larger_than_an_answer_may_be() {
    let evil =
        Evil::start(|seen| if seen.method() == "tools/list" { endless(seen, 1_000) } else { polite(seen) })
            .await;
    let client = evil.client_with(|options| options.answer_limit = 10_000);
    assert_eq!(*client.list_tools().await.unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(evil.times("tools/list") <= 10);
}

#[tokio::test]
async fn a_list_begins_anew_in_a_new_session() {
    let sessions = AtomicUsize::new(0);
    let evil = Evil::start(move |seen| {
        let cursor = seen.body["params"]["cursor"].as_str();
        if seen.method() == "initialize" {
            sessions.fetch_add(1, Ordering::Relaxed);
        }
        let session = sessions.load(Ordering::Relaxed);
        match (seen.method(), cursor) {
            ("tools/list", None) => {
                let page = json!({"tools": [{"name": format!("first-{session}")}], "nextCursor": session.to_string()});
                result(seen, &page.to_string())
            }
            ("tools/list", Some("1")) => polite_as(seen, "gone", ""),
            ("tools/list", Some(_)) => result(seen, r#"{"tools":[{"name":"second"}]}"#),
            _ => polite_as(seen, &format!("s{session}"), ""),
        }
    })
    .await;
    let tools = evil.client().list_tools().await.unwrap();
    let names: Vec<_> = tools.into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["first-2", "second"]);
}

#[tokio::test]
async fn a_server_that_is_not_there_has_no_list() {
    let evil = Evil::start(polite).await;
    let client = evil.client();
    drop(evil);
    tokio::task::yield_now().await;
    let error = client.list_tools().await.unwrap_err();
    assert_eq!((error.kind(), error.sent()), (&ErrorKind::Unreachable, Sent::No));
}
