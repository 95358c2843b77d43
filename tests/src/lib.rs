//! Servers that the tests need, built with the SDK. The tests themselves are in `it`, and those with real peers in `peers`.

pub mod contacts;
pub mod echo;
pub mod email;
pub mod everything;
pub mod ledger;
