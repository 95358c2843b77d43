//! `meta` that is no JSON.

use agentenv_protocol::prelude::*;

#[environment_card(name = "meta")]
struct Meta;

#[environment]
impl Meta {
    #[tool(meta = { "a": 1, "b" })]
    fn tool(&self) {}
}

fn main() {}
