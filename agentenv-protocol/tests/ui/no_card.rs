//! A block of a type without a card.

use agentenv_protocol::prelude::*;

struct NoCard;

#[environment]
impl NoCard {
    #[tool]
    fn tool(&self) {}
}

fn main() {
    let _ = agentenv_protocol::EnvRuntime::new(NoCard);
}
