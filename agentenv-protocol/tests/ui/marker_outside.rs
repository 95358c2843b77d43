//! Markers with no block around them.

use agentenv_protocol::prelude::*;

#[environment_card(name = "outside")]
struct Outside;

impl Outside {
    #[tool]
    fn tool(
        &self,
        /// Whom.
        #[arg(default = "x")]
        name: String,
    ) {
        let _ = name;
    }

    #[extension(uri = "urn:x:a/v1")]
    fn extension(&self) {}

    #[reset_data]
    fn reset(&self) {}

    #[add_data]
    fn add(&self, parts: Vec<Part>) {
        let _ = parts;
    }

    #[get_data]
    fn get(&self) -> Vec<Part> {
        Vec::new()
    }

    #[before_call]
    fn hook(&self, call: &ToolContext) {
        let _ = call;
    }

    #[on_start]
    fn start(&self) {}

    #[on_stop]
    fn stop(&self) {}
}

#[tool]
fn alone() {}

#[environment]
struct NotABlock;

#[environment_card(name = "x")]
impl NotABlock {}

trait Trait {
    fn method(&self);
}

#[environment]
impl Trait for Outside {
    #[tool]
    fn method(&self) {}
}

fn main() {}
