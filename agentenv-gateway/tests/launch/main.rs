//! Servers as processes of this machine, and whole instances of them.

#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, not the functions that they share"
)]

mod private;
mod process;
mod processes;
mod up;
