//! The engine as a whole, on paused time, against a made-up office.

mod action;
mod executor;
mod features;
mod office;
mod state;
mod timed;
