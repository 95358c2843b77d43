//! Receivers other than `&self`.

use std::sync::Arc;

use agentenv_protocol::prelude::*;

#[environment_card(name = "receiver")]
struct Receiver;

#[environment]
impl Receiver {
    #[tool]
    fn mutable(&mut self) {}

    #[tool]
    async fn taken(self) {}

    #[extension(uri = "urn:x:a/v1")]
    fn shared(self: Arc<Self>) {}

    #[reset_data]
    fn reset(&mut self) {}

    #[tool]
    unsafe fn dangerous(&self) {}

    #[tool]
    fn fine(&self) {}
}

fn main() {}
