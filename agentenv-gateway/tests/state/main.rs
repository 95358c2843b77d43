//! The state store, on a real Postgres of this machine.

#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, not the functions that they share"
)]

mod changelog;
mod database;
mod ids;
mod pages;
mod server;
