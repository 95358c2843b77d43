//! A server that says what it was sent, byte for byte.

use agentenv_protocol::prelude::*;

/// Says what it was sent.
#[environment_card(name = "echo")]
#[derive(Default)]
pub struct EchoEnv;

#[environment]
impl EchoEnv {
    /// The arguments as they came, as text.
    #[tool]
    fn echo(&self, ctx: &ToolContext) -> String {
        ctx.arguments.get().to_owned()
    }

    /// Panic.
    #[tool]
    fn explode(&self) -> String {
        panic!("boom at /secret/path")
    }
}
