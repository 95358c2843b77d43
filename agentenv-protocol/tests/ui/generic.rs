//! A generic environment.

use agentenv_protocol::prelude::*;

#[environment_card(name = "generic")]
struct Generic<T> {
    value: T,
}

#[environment]
impl<T: Send + Sync + 'static> Generic<T> {
    #[tool]
    fn tool(&self) {}
}

fn main() {}
