//! The ready-made components.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentenv_protocol::prelude::*;
use agentenv_protocol::standard::clock::TimeSource;
use agentenv_protocol::standard::{Clock, ForcedErrors};
use agentenv_protocol::testing::TestEnv;
use axum::Router;
use axum::extract::State;
use axum::routing::get;

const SYNC: (&str, &str) = ("urn:agentenv:clock/v1", "sync_time");

#[environment_card(name = "standard")]
#[derive(Default)]
struct Standard {
    #[component]
    clock: Clock,
    #[component]
    errors: ForcedErrors,
}

#[environment]
impl Standard {
    #[tool]
    async fn now(&self) -> DateTime {
        self.clock.now().await
    }

    #[tool]
    fn other(&self) {}
}

/// A gateway's clock: what `/clock/state` answers, and how often it was asked.
#[derive(Default)]
struct Gateway {
    state: Mutex<Value>,
    reads: AtomicU32,
}

async fn serve(gateway: Arc<Gateway>) -> String {
    async fn state(State(gateway): State<Arc<Gateway>>) -> String {
        gateway.reads.fetch_add(1, Ordering::SeqCst);
        gateway.state.lock().unwrap().to_string()
    }
    let router =
        Router::new().route("/clock/state", get(state)).route("/clock/time", get(state)).with_state(gateway);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/clock/time", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn armed(time: &str, speed: f64) -> Value {
    json!({"armed": true, "t0": time, "virtual_time": time, "virtual_seconds_per_real_second": speed})
}

async fn now(env: &TestEnv) -> DateTime {
    env.call("now", json!({})).await.text().parse().unwrap()
}

#[tokio::test]
async fn the_clock_is_on_the_card_and_shows_the_machines_time_until_it_is_synced() {
    let env = TestEnv::new(Standard::default());
    let clock = env.card().extension(SYNC.0).unwrap();
    assert_eq!(
        serde_json::to_value(clock).unwrap(),
        json!({
            "uri": "urn:agentenv:clock/v1", "description": "Sync this server to the gateway's virtual clock.", "required": null,
            "params": {"endpoint": "/agentenv/ext/sync_time", "methods": {"sync_time": {"method": "POST", "request": {
                "type": "object",
                "properties": {"env_get_time_url": {"type": "string", "description": "Where the gateway's clock is read."}},
                "required": ["env_get_time_url"],
            }}}},
        })
    );
    let before = DateTime::machine();
    let shown = now(&env).await;
    assert!(before <= shown && shown <= DateTime::machine());
}

#[tokio::test]
async fn a_synced_clock_reads_the_gateway_once_and_goes_on_at_its_speed() {
    let gateway =
        Arc::new(Gateway { state: Mutex::new(armed("2026-10-05T09:00:00Z", 3600.0)), ..Gateway::default() });
    let url = serve(gateway.clone()).await;
    let clock = Clock::new().with_max_age(Duration::from_secs(3600));
    let env = TestEnv::new(Standard { clock, ..Standard::default() });
    let answer = env.extension(SYNC.0, SYNC.1, json!({"env_get_time_url": url})).await.unwrap();
    assert!(answer["now"].as_str().unwrap().starts_with("2026-10-05T09:"), "{answer}");
    let first = now(&env).await;
    // Not slept: the clock runs an hour a second, so two readings apart by a few calls differ, and in the right direction.
    let second = loop {
        let second = now(&env).await;
        if second > first {
            break second;
        }
        tokio::task::yield_now().await;
    };
    assert!(second > first);
    assert_eq!(gateway.reads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_reading_that_is_too_old_is_taken_again() {
    let gateway =
        Arc::new(Gateway { state: Mutex::new(armed("2026-10-05T09:00:00Z", 0.0)), ..Gateway::default() });
    let url = serve(gateway.clone()).await;
    let clock = Clock::new().with_max_age(Duration::ZERO);
    let env = TestEnv::new(Standard { clock, ..Standard::default() });
    env.extension(SYNC.0, SYNC.1, json!({"env_get_time_url": url})).await.unwrap();
    assert_eq!(now(&env).await.to_string(), "2026-10-05T09:00:00Z");
    *gateway.state.lock().unwrap() = armed("2030-01-01T00:00:00Z", 0.0);
    assert_eq!(now(&env).await.to_string(), "2030-01-01T00:00:00Z");
    // A gateway that says nothing sensible does not stop the clock.
    *gateway.state.lock().unwrap() = json!("odd");
    assert_eq!(now(&env).await.to_string(), "2030-01-01T00:00:00Z");
    *gateway.state.lock().unwrap() = json!({"armed": false});
    assert!(now(&env).await > "2026-01-01T00:00:00Z".parse().unwrap());
    assert_ne!(now(&env).await.to_string(), "2030-01-01T00:00:00Z");
}

#[tokio::test]
async fn a_clock_where_no_clock_is_is_refused() {
    let env = TestEnv::new(Standard::default());
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}/clock/time", listener.local_addr().unwrap())
    };
    for (url, code, status) in [
        ("nowhere", "invalid_params", None),
        ("file:///etc/hostname", "invalid_params", None),
        (&*closed, "clock_unreachable", Some(502)),
    ] {
        let error = env.extension(SYNC.0, SYNC.1, json!({"env_get_time_url": url})).await.unwrap_err();
        assert_eq!((&*error.code, error.status), (code, status), "{url}");
    }
    assert!(now(&env).await <= DateTime::machine());
}

#[tokio::test]
async fn an_instances_clock_is_read_directly() {
    struct Instance(Mutex<Option<DateTime>>);
    impl TimeSource for Instance {
        fn now(&self) -> Option<DateTime> {
            *self.0.lock().unwrap()
        }
    }

    let env = TestEnv::new(Standard::default());
    let instance = Arc::new(Instance(Mutex::new(None)));
    let source: Arc<dyn TimeSource> = instance.clone();
    env.runtime().follow(&source);
    assert!(now(&env).await <= DateTime::machine());
    *instance.0.lock().unwrap() = Some("2026-10-05T09:00:00Z".parse().unwrap());
    assert_eq!(now(&env).await.to_string(), "2026-10-05T09:00:00Z");
}

#[tokio::test]
async fn errors_are_forced_at_an_even_rate() {
    let env = TestEnv::new(Standard::default());
    let set = async |body: Value| env.extension("urn:agentenv:set-errors/v1", "set_errors", body).await;
    let failures = async |tool: &str, calls: usize| {
        let mut failed = Vec::new();
        for call in 1..=calls {
            if env.call(tool, json!({})).await.is_error() {
                failed.push(call);
            }
        }
        failed
    };
    assert_eq!(
        set(json!({"tool_name": "other", "error_rate": 0.25, "error_type": "timeout"})).await.unwrap(),
        json!({"tool_name": "other", "error_rate": 0.25, "error_type": "timeout"})
    );
    assert_eq!(failures("other", 8).await, [4, 8]);
    assert!(failures("now", 8).await.is_empty());
    set(json!({"tool_name": "other", "error_rate": 0.1})).await.unwrap();
    assert_eq!(failures("other", 100).await.len(), 10);
    set(json!({"tool_name": "*", "error_rate": 1})).await.unwrap();
    assert_eq!(env.call("now", json!({})).await.error(), "forced_error: the service is unavailable");
    assert_eq!(failures("other", 10).await.len(), 1);
    set(json!({"tool_name": "*", "error_rate": 0})).await.unwrap();
    assert!(failures("now", 3).await.is_empty());
    for rate in [json!(-0.1), json!(1.5), json!("often")] {
        assert_eq!(
            set(json!({"tool_name": "other", "error_rate": rate})).await.unwrap_err().code,
            "invalid_params"
        );
    }
}
