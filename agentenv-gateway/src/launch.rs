//! Starting a whole instance on this machine: what an instance file says, its processes, its private Postgres, and the
//! Compose file that ships it. Serving the instance is left to the rest of the crate.

pub mod command;
pub mod compose;
pub mod file;
pub mod postgres;
pub mod process;
pub mod up;
