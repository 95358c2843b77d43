//! What needs more than one crate or a real peer, over real ports.

mod access;
mod children;
mod consistent;
mod faults;
mod office;
mod process;
mod rmcp_peer;
mod roles;
mod shipping;
mod store;
mod stories;
