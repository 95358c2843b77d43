//! A server that notices when two of its calls run at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use agentenv_protocol::prelude::*;

/// One number, read and written in two steps.
#[environment_card(name = "ledger")]
#[derive(Default)]
pub struct LedgerEnv {
    total: AtomicUsize,
    running: AtomicUsize,
}

#[environment]
impl LedgerEnv {
    /// Add one, with a pause between reading and writing, and say what there is then and how many calls ran at once.
    #[tool(name = "{environment_name}_add")]
    async fn add_one(&self) -> Value {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let read = self.total.load(Ordering::SeqCst);
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.total.store(read + 1, Ordering::SeqCst);
        self.running.fetch_sub(1, Ordering::SeqCst);
        json!({"total": read + 1, "running": running})
    }

    /// Say what there is.
    #[tool(name = "{environment_name}_read", read_only)]
    fn read(&self) -> Value {
        json!({"total": self.total.load(Ordering::SeqCst)})
    }
}
