//! A tool that holds across an await what only its own thread may have.

use std::rc::Rc;

use agentenv_protocol::prelude::*;

#[environment_card(name = "not_send")]
struct NotSend;

#[environment]
impl NotSend {
    #[tool]
    async fn tool(&self) {
        let held = Rc::new(1);
        std::future::ready(()).await;
        drop(held);
    }
}

fn main() {}
