//! Compose environment servers into one instance: roles, a virtual clock, triggers, a trajectory.

pub mod builder;
pub mod call;
pub mod catalog;
pub mod clock;
pub mod config;
pub mod database;
pub mod http;
pub mod instance;
pub mod launch;
pub mod metrics;
mod own;
pub mod pipeline;
pub mod roles;
pub mod startup;
pub mod store;
pub mod telemetry;
pub mod time;
pub mod trajectory;
pub mod triggers;
pub mod upstream;

pub use instance::Instance;
