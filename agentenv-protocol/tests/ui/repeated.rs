//! Two of a name in one block.

use agentenv_protocol::prelude::*;

#[environment_card(name = "repeated")]
struct Repeated {
    #[data]
    first: Data<Value>,
    #[data]
    second: Data<Value>,
}

#[environment]
impl Repeated {
    #[tool]
    fn send(&self) {}

    #[tool(name = "send")]
    fn other(&self) {}

    #[tool]
    fn parameters(&self, a: u8, #[arg(name = "a")] b: u8) {
        let _ = (a, b);
    }

    #[reset_data]
    fn reset(&self) {}

    #[reset_data]
    fn reset_again(&self) {}

    #[extension(uri = "urn:x:a/v1")]
    fn a(&self) {}

    #[extension(uri = "urn:x:a/v1")]
    fn a_again(&self) {}

    #[extension(uri = "urn:x:b/v1", op = "one")]
    fn b(&self) {}

    #[extension(uri = "urn:x:b/v1", op = "one")]
    fn b_again(&self) {}

    #[extension(uri = "urn:x:b/v1")]
    fn b_without(&self) {}

    #[tool]
    #[reset_data]
    fn both(&self) {}
}

fn main() {}
