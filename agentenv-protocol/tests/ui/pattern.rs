//! Patterns in place of names.

use agentenv_protocol::prelude::*;

#[derive(Deserialize, JsonSchema)]
struct Point {
    x: u8,
}

#[environment_card(name = "pattern")]
struct Pattern;

#[environment]
impl Pattern {
    #[tool]
    fn pattern(&self, Point { x }: Point, (a, b): (u8, u8), _: u8, ref c: u8) {
        let _ = (x, a, b, c);
    }
}

fn main() {}
