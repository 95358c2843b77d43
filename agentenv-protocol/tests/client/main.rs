//! The client sides against a server that does everything wrong: whatever it does, a call ends with a clear error, says
//! truthfully whether it can have run, and disturbs no other call.

#![expect(clippy::unwrap_used, reason = "a test's server fails the test by panicking")]

mod answers;
mod evil;
mod given_up;
mod harness;
mod links;
mod lists;
mod own_server;
mod reach;
mod streams;
