//! The composed card (contract 3.2): the gateway's own extensions, and each child's card beneath it, fetched anew at each
//! request.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use futures_util::future::join_all;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Http;
use super::errors::json_answer;
use crate::triggers;

/// How long a child may take to give its card (contract 10).
pub(crate) const CARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest card of a child that is taken in.
pub(crate) const CARD_LIMIT: usize = 4 * 1024 * 1024;

pub(super) async fn card(State(http): State<Arc<Http>>) -> Response<Body> {
    let inner = &http.instance.0;
    let own = own_extensions(inner.store.is_some());
    let cards = (0..inner.services.len()).map(|service| {
        let http = Arc::clone(&http);
        async move { tokio::time::timeout(CARD_TIMEOUT, http.child_card(service)).await.ok().flatten() }
    });
    let cards = join_all(cards).await;
    let children: Vec<Value> = inner
        .services
        .iter()
        .zip(cards)
        .filter_map(|(entry, card)| rewritten(card?, &format!("/svc/{}", entry.key), &own))
        .collect();
    let card = json!({
        "name": inner.name,
        "protocolVersion": "1.0",
        "url": "/agentenv",
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{"url": "/mcp", "transport": "mcp"}],
        "capabilities": {
            "extensions": own,
            "tools": null,
            "operations": ["data/reset", "data/add", "data/get"],
        },
        "children_environments": children,
    });
    json_answer(StatusCode::OK, &card)
}

/// A child's card as it stands beneath the gateway's: its paths below the prefix, but for what the gateway serves itself.
fn rewritten(mut card: Value, prefix: &str, own: &[Value]) -> Option<Value> {
    let object = card.as_object_mut()?;
    object.insert("children_environments".to_owned(), Value::Null);
    object.insert("additionalInterfaces".to_owned(), json!([]));
    if let Some(url) = object.get_mut("url") {
        prefix_path(url, prefix);
    }
    let extensions =
        object.get_mut("capabilities").and_then(|c| c.get_mut("extensions")).and_then(Value::as_array_mut);
    for extension in extensions.into_iter().flatten() {
        let same = own.iter().find(|ours| ours["uri"] == extension["uri"]);
        let Some(params) = extension.get_mut("params").and_then(Value::as_object_mut) else { continue };
        let shared = params.get("endpoint").cloned();
        let mut keeps_all = true;
        if let Some(methods) = params.get_mut("methods").and_then(Value::as_object_mut) {
            for (name, method) in methods {
                let endpoint = method.get("endpoint").or(shared.as_ref()).cloned();
                let verb = method.get("method").cloned().unwrap_or_else(|| json!("POST"));
                let ours = same.and_then(|ours| ours["params"]["methods"].get(name)).is_some_and(|ours| {
                    ours["method"] == verb && Some(&ours["endpoint"]) == endpoint.as_ref()
                });
                keeps_all &= ours;
                if let Some(endpoint) = method.get_mut("endpoint").filter(|_| !ours) {
                    prefix_path(endpoint, prefix);
                }
            }
        } else {
            keeps_all = false;
        }
        if let Some(endpoint) = params.get_mut("endpoint").filter(|_| !keeps_all) {
            prefix_path(endpoint, prefix);
        }
    }
    Some(card)
}

/// Puts a path below a prefix; a whole URL stays what it is.
fn prefix_path(path: &mut Value, prefix: &str) {
    if let Value::String(text) = path
        && text.starts_with('/')
    {
        text.insert_str(0, prefix);
    }
}

/// The gateway's own extensions.
fn own_extensions(with_store: bool) -> Vec<Value> {
    let rule = json!({
        "type": "object",
        "properties": {
            "role": {"type": "string", "minLength": 1, "description": "The role; '*' for every role."},
            "tools": {
                "description": "The tools' names; '*' for every tool.",
                "oneOf": [{"type": "array", "items": {"type": "string"}}, {"const": "*"}],
            },
        },
        "required": ["role", "tools"],
    });
    let nothing = json!({"type": "object", "properties": {}});
    let step = json!({
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["list_tools", "call_tool"]},
            "tool_name": {"type": "string", "description": "The tool to call."},
            "arguments": {"type": "object", "description": "The tool's arguments."},
        },
        "required": ["action"],
    });
    let trajectory = json!({
        "type": "object",
        "properties": {
            "after": {"type": "string", "description": "Leave out the events up to this one, such as event_7."},
            "follow": {"type": "boolean", "description": "Go on as events come."},
        },
    });
    let changes = json!({
        "type": "object",
        "properties": {
            "after_id": {"type": "integer", "minimum": 0, "default": 0},
            "limit": {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000},
        },
    });
    let one = |uri: &str, description: &str, method: &str, verb: &str, endpoint: &str, request: &Value| {
        json!({
            "uri": format!("urn:agentenv:{uri}/v1"),
            "description": description,
            "params": {
                "endpoint": endpoint,
                "methods": {method: {"method": verb, "endpoint": endpoint, "request": request}},
            },
            "required": false,
        })
    };
    let mut extensions = vec![
        one("disable-tool", "Turn tools off for a role.", "disable", "POST", "/tools/disable", &rule),
        one("enable-tool", "Turn tools on for a role.", "enable", "POST", "/tools/enable", &rule),
    ];
    extensions.extend(triggers::card_extensions());
    extensions.extend([
        one(
            "trajectory",
            "Every tool call and its result, as JSON Lines.",
            "get",
            "GET",
            "/trajectory",
            &trajectory,
        ),
        one("step", "List and call tools over plain HTTP.", "step", "POST", "/step", &step),
        one("state", "The servers, their tools, and every role's rules.", "get", "GET", "/state", &nothing),
    ]);
    if with_store {
        extensions.push(one(
            "changes",
            "What calls changed in the state store.",
            "get",
            "GET",
            "/changes",
            &changes,
        ));
    }
    extensions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_below_the_prefix() {
        let card = json!({
            "name": "email", "url": "/agentenv", "additionalInterfaces": [{"url": "/mcp"}],
            "capabilities": {"extensions": [
                {"uri": "urn:x", "params": {"endpoint": "/a", "methods": {"m": {"method": "GET"}, "n": {"endpoint": "/n"}}}},
                {"uri": "urn:y", "params": {"endpoint": "https://elsewhere/x"}},
                {"uri": "urn:z"},
            ]},
            "children_environments": [{}],
        });
        let card = rewritten(card, "/svc/mcp-email", &own_extensions(false)).unwrap();
        assert_eq!(card["url"], "/svc/mcp-email/agentenv");
        assert_eq!(
            (&card["additionalInterfaces"], &card["children_environments"]),
            (&json!([]), &Value::Null)
        );
        let extensions = &card["capabilities"]["extensions"];
        assert_eq!(extensions[0]["params"]["endpoint"], "/svc/mcp-email/a");
        assert_eq!(extensions[0]["params"]["methods"]["n"]["endpoint"], "/svc/mcp-email/n");
        assert_eq!(extensions[1]["params"]["endpoint"], "https://elsewhere/x");
    }

    #[test]
    fn what_the_gateway_serves_itself_keeps_its_path() {
        let rule = json!({"capabilities": {"extensions": [
            {"uri": "urn:agentenv:disable-tool/v1", "params": {"endpoint": "/tools/disable", "methods": {"disable": {"method": "POST"}}}},
            {"uri": "urn:agentenv:enable-tool/v1", "params": {"endpoint": "/other", "methods": {"enable": {"method": "POST"}}}},
        ]}});
        let card = rewritten(rule, "/svc/x", &own_extensions(false)).unwrap();
        let extensions = &card["capabilities"]["extensions"];
        assert_eq!(extensions[0]["params"]["endpoint"], "/tools/disable");
        assert_eq!(extensions[1]["params"]["endpoint"], "/svc/x/other");
    }

    #[test]
    fn a_card_that_is_no_object_is_left_out() {
        for card in [json!([]), json!(5), Value::Null] {
            assert!(rewritten(card, "/svc/x", &[]).is_none());
        }
    }
}
