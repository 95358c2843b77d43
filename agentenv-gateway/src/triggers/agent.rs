//! Hands instructions to the agents that carry them out. How an agent is spoken to is left to `executor`.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::executor;
use super::spec::ExecutorSpec;

/// What is added when an agent believes an instruction carried out, but the world does not show it.
const NOT_OBSERVED: &str = "\n\nThe change that this should have made was not observed in the environment, so it was not \
done, or not as described. Do it again, exactly as described.";

/// Whoever reaches the agents.
pub(crate) trait Agents: Send + Sync {
    /// Gives an executor an instruction on a trigger's account, and is done when the executor is. An error says what went
    /// wrong. Dropping the future stops the following; the agent may go on.
    fn instruct(
        &self,
        executor: &Arc<ExecutorSpec>,
        trigger_id: &Arc<str>,
        text: String,
    ) -> BoxFuture<'static, Result<(), String>>;
}

/// The text of an instruction, the first time or again.
pub(crate) fn text(instruction: &str, again: bool) -> String {
    format!("{instruction}{}", if again { NOT_OBSERVED } else { "" })
}

/// Reaches agents over A2A.
pub(crate) struct A2a(Result<reqwest::Client, String>);

impl A2a {
    pub(crate) fn new() -> Self {
        Self(executor::client())
    }
}

impl Agents for A2a {
    fn instruct(
        &self,
        executor: &Arc<ExecutorSpec>,
        trigger_id: &Arc<str>,
        text: String,
    ) -> BoxFuture<'static, Result<(), String>> {
        let (client, executor, trigger_id) = (self.0.clone(), Arc::clone(executor), Arc::clone(trigger_id));
        Box::pin(async move { executor.agent.run(&client?, &trigger_id, &text).await })
    }
}
