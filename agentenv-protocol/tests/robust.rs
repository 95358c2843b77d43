//! Nothing that comes from outside stops an environment.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use agentenv_protocol::context::Caller;
use agentenv_protocol::data::Part;
use agentenv_protocol::environment::{CallRequest, EnvRuntime, ExtensionInput};
use agentenv_protocol::json::RawJson;
use agentenv_protocol::prelude::*;
use proptest::prelude::{any, prop};
use proptest::strategy::{Just, Strategy};
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct State {
    list: Vec<Value>,
    map: std::collections::BTreeMap<String, Value>,
}

#[environment_card(name = "robust")]
#[derive(Default)]
struct Robust {
    #[data]
    state: Data<State>,
}

#[environment]
impl Robust {
    #[tool]
    fn takes(&self, text: String, number: Option<i8>, list: Option<Vec<f64>>, value: Option<Value>) -> Value {
        json!({"text": text, "number": number, "list": list, "value": value})
    }

    #[extension(uri = "urn:x:a/v1", method = "GET")]
    fn query(
        &self,
        text: Option<String>,
        number: Option<i8>,
        list: Option<Vec<bool>>,
        at: Option<DateTime>,
    ) -> Value {
        json!({"text": text, "number": number, "list": list, "at": at})
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("text|number|list|value|parts|data|[a-z]{1,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Whether a text is a result of a tool: an object with content and whether it failed.
fn is_result(raw: &RawJson) -> bool {
    let value: Value = serde_json::from_str(raw.as_str()).unwrap();
    value["content"].is_array() && value["isError"].is_boolean()
}

proptest! {
    #[test]
    fn any_arguments(arguments in json_value()) {
        let env = EnvRuntime::new(Robust::default()).unwrap();
        let raw = serde_json::value::to_raw_value(&arguments).unwrap();
        prop_assert!(is_result(block_on(env.call_tool(CallRequest::new("takes", Some(&raw)))).raw()));
    }

    #[test]
    fn any_body_of_the_data_plane(body: Vec<u8>) {
        let env = EnvRuntime::new(Robust::default()).unwrap();
        let answer: Value = serde_json::from_slice(&block_on(env.data_plane(&body))).unwrap();
        prop_assert_eq!(&answer["jsonrpc"], "2.0");
    }

    #[test]
    fn any_parts(parts in json_value()) {
        let env = EnvRuntime::new(Robust::default()).unwrap();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "data/add", "params": {"parts": parts}});
        let answer: Value = serde_json::from_slice(&block_on(env.data_plane(body.to_string().as_bytes()))).unwrap();
        prop_assert!(answer["error"]["code"] == -32602, "{answer}");
    }

    #[test]
    fn any_seed(seed in prop::collection::btree_map("list|map|[a-z]", json_value(), 0..3)) {
        let env = EnvRuntime::new(Robust::default()).unwrap();
        let before = block_on(env.get()).unwrap();
        // Either all of it is there afterwards, or nothing.
        match block_on(env.add(vec![Part::data(&seed).unwrap()])) {
            Ok(()) => prop_assert!(seed.keys().all(|key| key == "list" || key == "map")),
            Err(_) => prop_assert_eq!(block_on(env.get()).unwrap(), before),
        }
    }

    #[test]
    fn any_query(query in "[a-z&=%0-9\\[\\],+]{0,40}|(text|number|list|at)=.{0,10}") {
        let env = EnvRuntime::new(Robust::default()).unwrap();
        match block_on(env.invoke_extension(0, ExtensionInput::Query(&query), Caller::default())) {
            Ok(_) => {}
            Err(error) => prop_assert_eq!((&*error.code, error.status), ("invalid_params", Some(400))),
        }
    }

    #[test]
    fn any_extension_body(body: Vec<u8>) {
        let env = EnvRuntime::new(Robust::default()).unwrap();
        if let Err(error) = block_on(env.invoke_extension(0, ExtensionInput::Json(&body), Caller::default())) {
            prop_assert_eq!((&*error.code, error.status), ("invalid_params", Some(400)));
        }
    }
}

#[test]
fn a_fault_does_not_repeat_all_that_was_sent() {
    let env = EnvRuntime::new(Robust::default()).unwrap();
    let long =
        serde_json::value::to_raw_value(&json!({"text": "t", "number": "x".repeat(1_000_000)})).unwrap();
    let answer = block_on(env.call_tool(CallRequest::new("takes", Some(&long))));
    assert!(answer.is_error() && answer.raw().as_str().len() < 2_000);
    let many: serde_json::Map<_, _> = (0..50_000).map(|index| (format!("p{index}"), Value::Null)).collect();
    let body = serde_json::to_vec(&many).unwrap();
    let error =
        block_on(env.invoke_extension(0, ExtensionInput::Json(&body), Caller::default())).unwrap_err();
    assert!(error.message.ends_with("; and 49980 more") && error.message.len() < 5_000, "{}", error.message);
}
