//! The client for what is not hot: files, clocks. Which limits a use needs is left to it.

use reqwest::{Client, ClientBuilder};

/// A client over ring, set up by `configure`. On a machine without certificate authorities it still speaks plain HTTP.
///
/// # Errors
/// The settings cannot be.
pub fn build(configure: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, reqwest::Error> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been first; either way there is one now.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    // Nothing idle is kept: a connection belongs to the runtime that opened it, and that may be gone at the next use.
    let builder = || configure(Client::builder().pool_max_idle_per_host(0));
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}
