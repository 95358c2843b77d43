//! Calling an environment in a test, with no network in between.
//!
//! ```
//! use agentenv_protocol::prelude::*;
//! use agentenv_protocol::testing::TestEnv;
//!
//! #[derive(Default, Serialize, Deserialize)]
//! #[serde(default)]
//! struct Notes {
//!     lines: Vec<String>,
//! }
//!
//! #[environment_card(name = "notes")]
//! #[derive(Default)]
//! struct NotesEnv {
//!     #[data]
//!     notes: Data<Notes>,
//! }
//!
//! #[environment]
//! impl NotesEnv {
//!     /// Write a line.
//!     #[tool]
//!     fn write(&self, line: String) -> Value {
//!         json!({"lines": self.notes.write(|notes| {
//!             notes.lines.push(line);
//!             notes.lines.len()
//!         })})
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let env = TestEnv::new(NotesEnv::default());
//! env.add(json!({"lines": ["one"]})).await;
//! assert_eq!(env.call("write", json!({"line": "two"})).await.value(), json!({"lines": 2}));
//! assert_eq!(env.state().await, json!({"lines": ["one", "two"]}));
//! assert!(env.call("write", json!({})).await.error().contains("`line` is missing"));
//! # });
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio_util::sync::CancellationToken;

use crate::card::EnvironmentCard;
use crate::context::{Caller, Notification};
use crate::data::Part;
use crate::environment::{CallRequest, EnvRuntime, Environment};
use crate::error::ToolError;
use crate::extension::ExtensionInput;

/// An environment under test. What should not fail panics with what failed.
#[derive(Debug, Clone)]
pub struct TestEnv {
    runtime: EnvRuntime,
    caller: Caller,
}

/// A tool's answer, and what it told on the way.
#[derive(Debug, Clone)]
pub struct Called {
    result: Value,
    notifications: Vec<Notification>,
}

/// An environment that is built already, such as one that was found by its name.
impl From<EnvRuntime> for TestEnv {
    fn from(runtime: EnvRuntime) -> Self {
        Self { runtime, caller: Caller::default() }
    }
}

impl TestEnv {
    /// An environment under the name that it declares, called by nobody in particular.
    ///
    /// # Panics
    /// If anything is wrong with what it declares.
    #[track_caller]
    pub fn new<E: Environment>(env: E) -> Self {
        match EnvRuntime::new(env) {
            Ok(runtime) => runtime.into(),
            Err(error) => panic!("{error}"),
        }
    }

    /// The same environment, called by a role.
    #[must_use]
    pub fn as_role(&self, role: &str) -> Self {
        let caller = Caller::new(Some(role), self.caller.session.as_deref());
        Self { runtime: self.runtime.clone(), caller }
    }

    /// The same environment, called in a session.
    #[must_use]
    pub fn in_session(&self, session: &str) -> Self {
        let caller = Caller::new(self.caller.role.as_deref(), Some(session));
        Self { runtime: self.runtime.clone(), caller }
    }

    /// The environment itself.
    pub fn runtime(&self) -> &EnvRuntime {
        &self.runtime
    }

    /// Its card.
    pub fn card(&self) -> &EnvironmentCard {
        self.runtime.card()
    }

    /// Calls a tool.
    ///
    /// # Panics
    /// If the arguments are no JSON.
    pub async fn call(&self, tool: &str, arguments: impl serde::Serialize) -> Called {
        let notifications = Arc::new(Mutex::new(Vec::new()));
        let told = notifications.clone();
        let arguments =
            to_raw_value(&arguments).unwrap_or_else(|error| panic!("the arguments of {tool}: {error}"));
        let request = CallRequest {
            tool,
            arguments: Some(&arguments),
            caller: self.caller.clone(),
            notify: Some(Arc::new(move |told_now| {
                told.lock().unwrap_or_else(PoisonError::into_inner).push(told_now)
            })),
            cancel: CancellationToken::new(),
            meta: None,
        };
        let result = self.runtime.call_tool(request).await;
        let result = serde_json::from_str(result.raw().as_str())
            .unwrap_or_else(|error| panic!("the answer of {tool}: {error}"));
        let notifications =
            std::mem::take(&mut *notifications.lock().unwrap_or_else(PoisonError::into_inner));
        Called { result, notifications }
    }

    /// Calls a method of an extension with a JSON body.
    ///
    /// # Errors
    /// What the extension answers.
    ///
    /// # Panics
    /// If the environment has no such method.
    pub async fn extension(
        &self,
        uri: &str,
        method: &str,
        params: impl serde::Serialize,
    ) -> Result<Value, ToolError> {
        let routes = self.runtime.extension_routes();
        let index = routes.iter().position(|route| route.uri == uri && route.method == method);
        let index = index.unwrap_or_else(|| panic!("there is no method {method} of {uri}"));
        let body =
            serde_json::to_vec(&params).unwrap_or_else(|error| panic!("the parameters of {method}: {error}"));
        let answer =
            self.runtime.invoke_extension(index, ExtensionInput::Json(&body), self.caller.clone()).await?;
        Ok(serde_json::from_str(answer.get())
            .unwrap_or_else(|error| panic!("the answer of {method}: {error}")))
    }

    /// Resets its data.
    ///
    /// # Panics
    /// If that fails.
    pub async fn reset(&self) {
        self.runtime.reset().await.unwrap_or_else(|error| panic!("data/reset: {error}"));
    }

    /// Adds a JSON object to its data.
    ///
    /// # Panics
    /// If that fails.
    pub async fn add(&self, seed: impl serde::Serialize) {
        let part = Part::data(&seed).unwrap_or_else(|error| panic!("the seed: {error}"));
        self.runtime.add(vec![part]).await.unwrap_or_else(|error| panic!("data/add: {error}"));
    }

    /// Its data: the object of the one part.
    ///
    /// # Panics
    /// If that fails, or there is not exactly one data part.
    pub async fn state(&self) -> Value {
        let parts = self.runtime.get().await.unwrap_or_else(|error| panic!("data/get: {error}"));
        match parts.as_slice() {
            [Part::Data(part)] => part.data.parse().unwrap_or_else(|error| panic!("the state: {error}")),
            _ => panic!("data/get gave {} parts, not one data part", parts.len()),
        }
    }
}

impl Called {
    /// The MCP result as it is.
    pub fn result(&self) -> &Value {
        &self.result
    }

    /// What the tool told on the way.
    pub fn notifications(&self) -> &[Notification] {
        &self.notifications
    }

    /// The text of the first block.
    pub fn text(&self) -> &str {
        self.result["content"][0]["text"].as_str().unwrap_or_default()
    }

    /// The value that the tool answered.
    ///
    /// # Panics
    /// If it failed.
    #[track_caller]
    pub fn value(&self) -> Value {
        assert!(!self.is_error(), "the tool failed: {}", self.text());
        match self.result.get("structuredContent") {
            Some(value) => value.clone(),
            None => serde_json::from_str(self.text()).unwrap_or_else(|_| self.text().into()),
        }
    }

    /// The text of the error that the tool answered.
    ///
    /// # Panics
    /// If it did not fail.
    #[track_caller]
    pub fn error(&self) -> &str {
        assert!(self.is_error(), "the tool did not fail: {}", self.result);
        self.text()
    }

    /// Whether the tool failed.
    pub fn is_error(&self) -> bool {
        self.result["isError"] == true
    }
}
