//! The data plane (contract 2.2): the envelope, the parts, and the ways in which an environment handles them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use agentenv_protocol::data::{FileContent, Part};
use agentenv_protocol::environment::{DataError, EnvRuntime, Operation};
use agentenv_protocol::prelude::*;
use agentenv_protocol::testing::TestEnv;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct State {
    names: Vec<String>,
    ages: BTreeMap<String, u8>,
    title: String,
    #[serde(skip_deserializing)]
    size: usize,
}

/// With its state in a field.
#[environment_card(name = "held")]
#[derive(Default)]
struct Held {
    #[data]
    state: Data<State>,
}

#[environment]
impl Held {
    #[tool]
    fn re_enter(&self) {
        self.state.write(|state| state.size = self.state.read(|state| state.names.len()));
    }

    #[tool]
    fn size(&self) -> usize {
        self.state.read(|state| state.names.len())
    }
}

/// With parts as they come.
#[environment_card]
#[derive(Default)]
struct ByPart {
    parts: Mutex<Vec<Part>>,
}

#[environment]
impl ByPart {
    #[reset_data]
    async fn reset(&self) {
        self.parts.lock().unwrap().clear();
    }

    #[add_data]
    async fn add(&self, parts: Vec<Part>) -> Result<(), ToolError> {
        for part in &parts {
            let bytes = part.read().await.map_err(|error| ToolError::new("unreadable", error.to_string()))?;
            if bytes == b"panic" {
                panic!("at the disco");
            }
        }
        self.parts.lock().unwrap().extend(parts);
        Ok(())
    }

    #[get_data]
    fn get(&self) -> Vec<Part> {
        self.parts.lock().unwrap().clone()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seed {
    number: i64,
}

/// With one typed seed at a time.
#[environment_card]
#[derive(Default)]
struct BySeed {
    seeds: Mutex<Vec<Seed>>,
}

#[environment]
impl BySeed {
    #[add_data]
    fn add(&self, seed: Seed) -> Result<(), String> {
        if seed.number < 0 {
            return Err("negative".to_owned());
        }
        self.seeds.lock().unwrap().push(seed);
        Ok(())
    }

    #[get_data]
    fn get(&self) -> Result<Value, ToolError> {
        Ok(json!({"seeds": *self.seeds.lock().unwrap()}))
    }
}

/// With all of them at once, and its own rule for one operation of a held state.
#[environment_card]
#[derive(Default)]
struct Mixed {
    #[data]
    state: Data<State>,
}

#[environment]
impl Mixed {
    #[add_data]
    fn add(&self, seeds: Vec<Seed>) {
        self.state.write(|state| state.title = format!("{} seeds", seeds.len()));
    }
}

async fn rpc(env: &EnvRuntime, body: &str) -> Value {
    serde_json::from_slice(&env.data_plane(body.as_bytes()).await).unwrap()
}

async fn add(env: &EnvRuntime, parts: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "data/add", "params": {"parts": parts}});
    rpc(env, &body.to_string()).await
}

fn failed(answer: &Value) -> &str {
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    assert_eq!(answer["error"]["data"], json!({"code": "add_failed"}));
    answer["error"]["message"].as_str().unwrap()
}

#[tokio::test]
async fn each_kind_of_bad_request_has_its_code_and_keeps_its_id() {
    let env = EnvRuntime::new(Held::default()).unwrap();
    let error = async |body: &str| {
        let answer = rpc(&env, body).await;
        (answer["id"].clone(), answer["error"]["code"].as_i64().unwrap())
    };
    assert_eq!(error("{").await, (Value::Null, -32700));
    for body in ["[]", "5", "null", r#"{"jsonrpc":"2.0","id":{},"method":"data/get"}"#] {
        assert_eq!(error(body).await, (Value::Null, -32600), "{body}");
    }
    assert_eq!(error(r#"{"id":9,"method":"data/get"}"#).await, (json!(9), -32600));
    assert_eq!(error(r#"{"jsonrpc":"2.0","id":"x"}"#).await, (json!("x"), -32600));
    assert_eq!(error(r#"{"jsonrpc":"2.0","id":"a","method":"data/zip"}"#).await, (json!("a"), -32601));
    assert_eq!(
        error(r#"{"jsonrpc":"2.0","id":1,"method":"data/get","params":[1]}"#).await,
        (json!(1), -32602)
    );
    for params in [
        "{}",
        r#"{"parts":[]}"#,
        r#"{"parts":"x"}"#,
        r#"{"parts":[{"kind":"text"}]}"#,
        r#"{"parts":[{"kind":"data","data":[1]}]}"#,
        r#"{"parts":[{"kind":"file","file":{}}]}"#,
        r#"{"parts":[{"kind":"file","file":{"uri":"a","bytes":"eA=="}}]}"#,
        r#"{"parts":[{"kind":"file","file":{"bytes":"*"}}]}"#,
        r#"{"parts":[{"kind":"odd"}]}"#,
        r#"{"parts":[5]}"#,
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"data/add","params":{params}}}"#);
        let answer = rpc(&env, &body).await;
        assert_eq!(answer["error"]["code"], -32602, "{params}");
        assert_eq!(answer["error"]["message"], "invalid_request");
        assert!(answer["error"]["data"]["detail"].is_string(), "{answer}");
    }
}

#[tokio::test]
async fn operations_without_a_handler_are_not_on_the_card() {
    let env = EnvRuntime::new(BySeed::default()).unwrap();
    assert_eq!(env.card().capabilities.operations, ["data/add", "data/get"]);
    assert_eq!(rpc(&env, r#"{"jsonrpc":"2.0","id":1,"method":"data/reset"}"#).await["error"]["code"], -32601);
    assert_eq!(env.reset().await, Err(DataError::NoHandler(Operation::Reset)));
}

#[tokio::test]
async fn results_are_as_the_contract_has_them() {
    let env = EnvRuntime::new(Held::default()).unwrap();
    assert_eq!(add(&env, json!([{"kind": "data", "data": {"title": "t"}}])).await["result"], json!({}));
    let body = br#"{"jsonrpc":"2.0","id":7,"method":"data/get"}"#;
    assert_eq!(
        env.data_plane(body).await,
        concat!(
            r#"{"jsonrpc":"2.0","id":7,"result":{"parts":[{"kind":"data","data":"#,
            r#"{"names":[],"ages":{},"title":"t","size":0}}]}}"#
        )
    );
    assert_eq!(rpc(&env, r#"{"jsonrpc":"2.0","id":1,"method":"data/reset"}"#).await["result"], json!({}));
    assert_eq!(TestEnv::new(Held::default()).state().await["title"], "");
}

#[tokio::test]
async fn a_held_state_merges_what_is_added() {
    let env = TestEnv::new(Held::default());
    env.add(json!({"names": ["a"], "ages": {"a": 1}, "title": "one"})).await;
    env.add(json!({"names": ["b"], "ages": {"b": 2, "a": 3}, "title": "two"})).await;
    let state = env.state().await;
    assert_eq!(state, json!({"names": ["a", "b"], "ages": {"a": 3, "b": 2}, "title": "two", "size": 0}));
    // What was read can be loaded: `size` is written and not read.
    env.reset().await;
    env.add(state.clone()).await;
    assert_eq!(env.state().await, state);
    env.reset().await;
    assert_eq!(env.state().await["names"], json!([]));
}

#[tokio::test]
async fn a_held_state_takes_all_of_an_addition_or_nothing() {
    let env = EnvRuntime::new(Held::default()).unwrap();
    let data = |value: Value| json!({"kind": "data", "data": value});
    let good = data(json!({"names": ["a"]}));
    for (bad, said) in [
        (data(json!({"names": [1]})), "parts[1]: invalid type: integer `1`"),
        (data(json!({"nmes": ["b"]})), "parts[1]: the state has no `nmes`"),
        (json!({"kind": "text", "text": "x"}), "parts[1]: a text part"),
        (
            json!({"kind": "file", "file": {"bytes": "W10=", "name": "seed.json"}}),
            "parts[1]: seed.json does not fit",
        ),
        (
            json!({"kind": "file", "file": {"uri": "file:///no/such/file"}}),
            "parts[1]: cannot read /no/such/file",
        ),
        (json!({"kind": "file", "file": {"uri": "ftp://x/y"}}), "parts[1]: `ftp://x/y` is not"),
    ] {
        let answer = add(&env, json!([good, bad])).await;
        assert!(failed(&answer).starts_with(said), "{answer}");
        assert_eq!(env.get().await.unwrap()[0], Part::data(&State::default()).unwrap());
    }
}

#[tokio::test]
async fn a_held_state_cannot_lock_itself_out() {
    let env = TestEnv::new(Held::default());
    assert_eq!(env.call("re_enter", json!({})).await.error(), "internal error: the handler panicked");
    assert_eq!(env.call("size", json!({})).await.value(), 0);
}

#[tokio::test]
async fn files_are_read_wherever_they_are() {
    let env = TestEnv::new(Held::default());
    let file = tempfile::NamedTempFile::with_suffix(" with blank.json").unwrap();
    std::fs::write(file.path(), "\u{feff}{\"names\": [\"from a file\"]}").unwrap();
    let uri = url::Url::from_file_path(file.path()).unwrap().to_string();
    env.runtime().add(vec![Part::file(uri)]).await.unwrap();
    env.runtime().add(vec![Part::bytes(*br#"{"names": ["inline"]}"#)]).await.unwrap();

    let router = axum::Router::new()
        .route("/seed.json", axum::routing::get(|| async { r#"{"names": ["over http"]}"# }))
        .route("/gone", axum::routing::get(|| async { http::StatusCode::NOT_FOUND }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://user:secret@{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    env.runtime().add(vec![Part::file(format!("{base}/seed.json?token=secret"))]).await.unwrap();
    let gone = env
        .runtime()
        .add(vec![Part::file(format!("{base}/gone?token=secret"))])
        .await
        .unwrap_err()
        .to_string();
    assert!(gone.contains("/gone") && gone.contains("404") && !gone.contains("secret"), "{gone}");
    server.abort();
    assert_eq!(env.state().await["names"], json!(["from a file", "inline", "over http"]));

    let directory = url::Url::from_directory_path(file.path().parent().unwrap()).unwrap().to_string();
    let refused = env.runtime().add(vec![Part::file(directory)]).await.unwrap_err().to_string();
    assert!(refused.contains("not a regular file"), "{refused}");
}

#[tokio::test]
async fn parts_come_and_go_as_they_are() {
    let env = EnvRuntime::new(ByPart::default()).unwrap();
    let parts = json!([
        {"kind": "text", "text": "t", "metadata": {"a": 1}},
        {"kind": "data", "data": {"n": 123_456_789_012_345_678_u64}},
        {"kind": "file", "file": {"bytes": "AQID", "mimeType": "x/y", "name": "f"}},
    ]);
    assert_eq!(add(&env, parts.clone()).await["result"], json!({}));
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"data/get"}"#;
    assert_eq!(rpc(&env, body).await["result"]["parts"], parts);
    // A number keeps its digits.
    let big = r#"{"kind":"data","data":{"n":123456789012345678901234567890,"f":1.10}}"#;
    env.add(vec![serde_json::from_str(big).unwrap()]).await.unwrap();
    assert_eq!(serde_json::to_string(&env.get().await.unwrap()[3]).unwrap(), big);
    assert!(
        matches!(&env.get().await.unwrap()[2], Part::File(file) if file.content == FileContent::Bytes(vec![1, 2, 3]))
    );
    assert_eq!(
        failed(&add(&env, json!([{"kind": "text", "text": "panic"}])).await),
        "internal error: the handler panicked"
    );
    assert_eq!(env.add(Vec::new()).await, Err(DataError::NoParts));
}

#[tokio::test]
async fn seeds_are_all_read_before_any_is_applied() {
    let env = EnvRuntime::new(BySeed::default()).unwrap();
    let seed = |number: i64| json!({"kind": "data", "data": {"number": number}});
    let answer = add(&env, json!([seed(1), {"kind": "data", "data": {"numbr": 2}}])).await;
    assert!(
        failed(&answer).starts_with("parts[1]: the part's data does not fit: unknown field `numbr`"),
        "{answer}"
    );
    assert_eq!(env.get().await.unwrap(), [Part::data(&json!({"seeds": []})).unwrap()]);
    assert_eq!(failed(&add(&env, json!([seed(-1)])).await), "negative");
    assert_eq!(add(&env, json!([seed(1), seed(2)])).await["result"], json!({}));
    assert_eq!(
        env.get().await.unwrap(),
        [Part::data(&json!({"seeds": [{"number": 1}, {"number": 2}]})).unwrap()]
    );
}

#[tokio::test]
async fn a_method_goes_before_what_a_field_brings() {
    let env = TestEnv::new(Mixed::default());
    assert_eq!(env.card().capabilities.operations, ["data/reset", "data/add", "data/get"]);
    let seeds = vec![Part::data(&Seed { number: 1 }).unwrap(), Part::bytes(*br#"{"number": 2}"#)];
    env.runtime().add(seeds).await.unwrap();
    assert_eq!(env.state().await["title"], "2 seeds");
    env.reset().await;
    assert_eq!(env.state().await["title"], "");
}
