//! Names of tools.

use agentenv_protocol::prelude::*;

#[environment_card(name = " ")]
struct Names;

#[environment]
impl Names {
    #[tool(name = "{env}_search")]
    fn search(&self) {}

    #[tool(name = "{environment_name}_{x}")]
    fn second(&self) {}

    #[tool(name = "{open")]
    fn open(&self) {}

    #[tool(name = "with blank")]
    fn blank(&self) {}

    #[tool(name = "")]
    fn empty(&self) {}
}

fn main() {}
