//! How a seed is merged into state: arrays are appended, objects merged member by member, anything else replaced.

use serde_json::{Map, Value};

pub(super) fn merge(state: &mut Map<String, Value>, seed: Map<String, Value>) {
    for (key, value) in seed {
        match (state.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (Some(Value::Array(old)), Value::Array(mut new)) => old.append(&mut new),
            (Some(old), new) => *old = new,
            (None, new) => drop(state.insert(key, new)),
        }
    }
}
