//! What the engine did, in order and bounded (contract 7.7).

use std::collections::VecDeque;

use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::clock::VirtualTime;
use crate::time::wall_text;

/// Events kept from the beginning.
pub(crate) const HEAD: usize = 1_000;

/// Events kept from the end.
pub(crate) const TAIL: usize = 9_000;

/// Longest text of an event's detail, in characters.
const MAX_DETAIL: usize = 2_000;

/// The first and the last events; what is between is counted only.
#[derive(Debug, Default)]
pub(crate) struct Log {
    seq: u64,
    head: Vec<Box<RawValue>>,
    tail: VecDeque<Box<RawValue>>,
    dropped: u64,
}

impl Log {
    /// Adds an event; `more` are its fields beyond those that every event has.
    pub(crate) fn add(
        &mut self,
        wall: Timestamp,
        virtual_time: Option<VirtualTime>,
        kind: &str,
        trigger_id: &str,
        more: Value,
    ) {
        self.seq += 1;
        let mut event = Map::new();
        event.insert("seq".to_owned(), self.seq.into());
        event.insert("ts".to_owned(), wall_text(wall).into());
        if let Some(at) = virtual_time {
            event.insert("virtual_time".to_owned(), at.to_string().into());
        }
        event.insert("kind".to_owned(), kind.into());
        event.insert("trigger_id".to_owned(), trigger_id.into());
        if let Value::Object(more) = more {
            event.extend(more);
        }
        let Ok(event) = serde_json::value::to_raw_value(&event) else { return };
        if self.head.len() < HEAD {
            self.head.push(event);
            return;
        }
        if self.tail.len() >= TAIL {
            self.tail.pop_front();
            self.dropped += 1;
        }
        self.tail.push_back(event);
    }

    /// The events that are kept, in order.
    pub(crate) fn events(&self) -> impl Iterator<Item = &RawValue> {
        self.head.iter().chain(&self.tail).map(AsRef::as_ref)
    }

    /// How many are not.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// A text that fits into an event.
pub(crate) fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_and_the_last_are_kept() {
        let mut log = Log::default();
        for n in 0..12_345 {
            log.add(Timestamp::UNIX_EPOCH, None, "fired", "t", json!({"n": n}));
        }
        let seqs: Vec<u64> = log
            .events()
            .map(|event| serde_json::from_str::<Value>(event.get()).unwrap()["seq"].as_u64().unwrap())
            .collect();
        assert_eq!(seqs.len(), HEAD + TAIL);
        assert_eq!(log.dropped(), 2_345);
        assert!(seqs[..HEAD].iter().copied().eq(1..=1_000));
        assert!(seqs[HEAD..].iter().copied().eq(3_346..=12_345));
    }

    #[test]
    fn an_event_is_written_in_order() {
        let mut log = Log::default();
        let at = VirtualTime::parse("2026-10-05T09:00:00Z").unwrap();
        log.add(Timestamp::UNIX_EPOCH, Some(at), "anchored", "t", json!({"anchor": "a"}));
        assert_eq!(
            log.events().next().unwrap().get(),
            r#"{"seq":1,"ts":"1970-01-01T00:00:00.000000+00:00","virtual_time":"2026-10-05T09:00:00Z","kind":"anchored","trigger_id":"t","anchor":"a"}"#
        );
    }

    #[test]
    fn long_details_are_cut() {
        assert_eq!(clip(&"é".repeat(MAX_DETAIL)).chars().count(), MAX_DETAIL);
        assert_eq!(clip(&"é".repeat(MAX_DETAIL + 1)), format!("{}…", "é".repeat(MAX_DETAIL)));
    }
}
