//! Registrations that were sent again (`Idempotency-Key`): a request that was answered, and whose answer was lost, can be
//! repeated without registering its triggers twice.

use std::collections::VecDeque;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Most keys that are remembered.
const MAX_KEYS: usize = 256;

/// What was answered to which key.
#[derive(Debug, Default)]
pub(crate) struct Repeats(VecDeque<(String, [u8; 32], Value)>);

impl Repeats {
    /// The answer that a request with this key and body had; none for a key that is not remembered.
    ///
    /// # Errors
    /// The key was used with another body.
    pub(crate) fn find(&self, key: &str, body: &str) -> Result<Option<Value>, String> {
        match self.0.iter().find(|(known, ..)| known == key) {
            None => Ok(None),
            Some((_, digest, answer)) if *digest == digest_of(body) => Ok(Some(answer.clone())),
            Some(_) => Err(format!("Idempotency-Key {key:?} was used with a different request")),
        }
    }

    /// Remembers an answer.
    pub(crate) fn keep(&mut self, key: &str, body: &str, answer: &Value) {
        if self.0.len() >= MAX_KEYS {
            self.0.pop_front();
        }
        self.0.push_back((key.to_owned(), digest_of(body), answer.clone()));
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

fn digest_of(body: &str) -> [u8; 32] {
    Sha256::digest(body.as_bytes()).into()
}
