//! What the gateway's card says of the clock and the triggers (contract 3.2).

use serde_json::{Value, json};

/// The features beyond the first release that are built (contract 7.9).
const FEATURES: [&str; 7] = [
    "named_executors",
    "provoking_roles",
    "action_delay",
    "executor_hours",
    "executor_hours_time_zone",
    "unless",
    "website",
];

/// The triggers' and the clock's entries for the gateway's card, in the card's order.
pub fn card_extensions() -> Vec<Value> {
    vec![triggers(), clock(), explain(), advance()]
}

/// Beyond the contract, so under a name of its own: the contract's extensions have the contract's methods.
fn explain() -> Value {
    let request = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
    json!({
        "uri": "urn:agentenv:triggers-explain/v1",
        "description": "Why a trigger has not fired: the test that failed on the last watched call, or the time left.",
        "params": {
            "endpoint": "/triggers/explain",
            "methods": {"explain": method("GET", "/triggers/explain", request)},
        },
        "required": false,
    })
}

/// Beyond the contract, too.
fn advance() -> Value {
    let request = json!({"type": "object", "properties": {"by": {"type": "string"}}, "required": ["by"]});
    json!({
        "uri": "urn:agentenv:clock-advance/v1",
        "description": "Move the virtual clock ahead by a duration such as PT8H, firing each due mark at its instant.",
        "params": {
            "endpoint": "/clock/advance",
            "methods": {"advance": method("POST", "/clock/advance", request)},
        },
        "required": false,
    })
}

fn triggers() -> Value {
    let ids = json!({
        "type": "object",
        "properties": {"ids": {"type": "array", "items": {"type": "string"}}},
        "required": ["ids"],
    });
    let register = json!({
        "type": "object",
        "properties": {
            "triggers": {"type": "array", "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "when": {
                        "type": "object",
                        "properties": {"type": {"type": "string", "enum": ["action", "state", "time", "website"]}},
                        "required": ["type"],
                    },
                    "actions": {"type": "array", "items": {
                        "type": "object",
                        "properties": {"type": {"type": "string", "enum": ["permission", "tool", "nl"]}},
                        "required": ["type"],
                    }},
                    "barrier": {
                        "type": "object",
                        "properties": {
                            "at": {"type": "string", "enum": ["provoking_call"]},
                            "timeout_seconds": {"type": "number", "exclusiveMinimum": 0},
                        },
                        "required": ["at"],
                    },
                },
                "required": ["when", "actions"],
            }},
            "watch_roles": {"type": "array", "items": {"type": "string"}},
            "executor": executor(),
            "executors": {"type": "object", "additionalProperties": executor()},
        },
        "required": ["triggers"],
    });
    json!({
        "uri": "urn:agentenv:triggers/v1",
        "description": "Triggers: when a tool call, a state, a website request or a virtual time matches, call a tool, change \
            a role's tools or give an agent an instruction. For the harness.",
        "params": {
            "endpoint": "/triggers/register",
            "features": FEATURES,
            "methods": {
                "register": method("POST", "/triggers/register", register),
                "remove": method("POST", "/triggers/remove", ids),
                "clear": method("POST", "/triggers/clear", nothing()),
                "state": method("GET", "/triggers/state", nothing()),
            },
        },
        "required": false,
    })
}

fn executor() -> Value {
    json!({
        "type": "object",
        "properties": {
            "a2a_url": {"type": "string"},
            "role": {"type": "string"},
            "timeout_seconds": {"type": "number", "exclusiveMinimum": 0},
            "hours": {
                "type": "object",
                "properties": {
                    "start": {"type": "string"},
                    "end": {"type": "string"},
                    "utc_offset": {"type": "string"},
                    "time_zone": {"type": "string"},
                    "days": {"type": "array", "items": {
                        "type": "string",
                        "enum": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
                    }},
                },
                "required": ["start", "end"],
            },
        },
        "required": ["a2a_url", "role"],
    })
}

fn clock() -> Value {
    let set_time = json!({
        "type": "object",
        "properties": {
            "virtual_time": {"type": "string"},
            "virtual_seconds_per_real_second": {"type": "number", "minimum": 0, "maximum": crate::clock::MAX_SPEED},
        },
        "required": ["virtual_time"],
    });
    json!({
        "uri": "urn:agentenv:clock/v1",
        "description": "The instance's virtual clock: read it, start it at a time and a speed, turn it off.",
        "params": {
            "endpoint": "/clock/time",
            "methods": {
                "get_time": method("GET", "/clock/time", nothing()),
                "set_time": method("PUT", "/clock/set-time", set_time),
                "clear": method("POST", "/clock/clear", nothing()),
                "state": method("GET", "/clock/state", nothing()),
            },
        },
        "required": false,
    })
}

fn method(verb: &str, endpoint: &str, request: Value) -> Value {
    json!({"method": verb, "endpoint": endpoint, "request": request})
}

fn nothing() -> Value {
    json!({"type": "object", "properties": {}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_says_where_and_how() {
        for extension in card_extensions() {
            assert_eq!(extension["required"], json!(false));
            assert!(!extension["description"].as_str().unwrap().is_empty());
            for (name, method) in extension["params"]["methods"].as_object().unwrap() {
                assert!(["GET", "POST", "PUT"].contains(&method["method"].as_str().unwrap()), "{name}");
                assert!(method["endpoint"].as_str().unwrap().starts_with('/'), "{name}");
                assert_eq!(method["request"]["type"], json!("object"), "{name}");
            }
        }
    }
}
