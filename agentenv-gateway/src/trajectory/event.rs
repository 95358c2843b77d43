//! What a line of the trajectory is made of: the kinds of events, their ids, and how an event becomes one line. Which
//! members each kind has is left to the stages that record them.

use std::fmt;
use std::io::Write as _;
use std::str::FromStr;

use agentenv_protocol::json::ObjectWriter;
use memchr::memchr2;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The kinds of events (contract 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A call that is about to reach its child.
    ToolCall,
    /// What the child answered.
    ToolCallResult,
    /// A call that got no result.
    ToolCallFailed,
    /// A child was connected to again, and may have lost its state.
    ChildReconnected,
    /// A trigger fired (contract 7.8).
    TriggerFired,
    /// A trigger's own tool call (contract 7.8).
    InternalToolCall,
    /// A barrier's time ran out before its firing was done (contract 7.6).
    TriggerBarrierTimeout,
    /// A proxied request that moved the changelog.
    HttpRequest,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::ToolCall,
        Self::ToolCallResult,
        Self::ToolCallFailed,
        Self::ChildReconnected,
        Self::TriggerFired,
        Self::InternalToolCall,
        Self::TriggerBarrierTimeout,
        Self::HttpRequest,
    ];

    /// The value of `event_type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolCall => "tool_call",
            Self::ToolCallResult => "tool_call_result",
            Self::ToolCallFailed => "tool_call_failed",
            Self::ChildReconnected => "child_reconnected",
            Self::TriggerFired => "trigger_fired",
            Self::InternalToolCall => "internal_tool_call",
            Self::TriggerBarrierTimeout => "trigger_barrier_timeout",
            Self::HttpRequest => "http_request",
        }
    }

    /// The kind that an `event_type` names.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// An event's place in the trajectory, from 1 on without gaps. Displays and serializes as it stands in `event_id`: `event_12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub(super) u64);

impl EventId {
    /// The number behind `event_`.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event_{}", self.0)
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is not an event id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an event id, which looks like event_12")]
pub struct NotAnEventId;

impl FromStr for EventId {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<Self, NotAnEventId> {
        let digits = text.strip_prefix("event_").ok_or(NotAnEventId)?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(NotAnEventId);
        }
        digits.parse().map(Self).map_err(|_| NotAnEventId)
    }
}

/// When an event was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// RFC 3339 with microseconds and `+00:00` (contract 5).
    pub timestamp_utc: String,
    /// The virtual time, while the clock is armed.
    pub virtual_time: Option<String>,
}

/// An event that has no id and no time yet: both are given when it is written.
#[derive(Debug, Clone)]
pub struct Event {
    kind: Kind,
    /// An object's text with every other member.
    members: String,
}

impl Event {
    /// An event of this kind with these members. `event_type`, `event_id`, `timestamp_utc` and `virtual_time` are not
    /// among them.
    pub fn new(kind: Kind, members: ObjectWriter) -> Self {
        Self { kind, members: members.finish_text() }
    }

    /// From an object that names its kind under `event_type`; `None` when it names none. What it holds under the names
    /// that the trajectory itself writes is dropped.
    pub fn from_object(mut object: Map<String, Value>) -> Option<Self> {
        let kind = Kind::named(object.get("event_type")?.as_str()?)?;
        for name in ["event_type", "event_id", "timestamp_utc", "virtual_time"] {
            object.shift_remove(name);
        }
        let members = serde_json::to_string(&object).ok()?;
        Some(Self { kind, members })
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Roughly how many bytes its line takes.
    pub(super) fn size(&self) -> usize {
        self.members.len() + 160
    }

    /// Appends the event's line, ended by a newline.
    pub(super) fn write_line(&self, id: u64, stamp: &Stamp, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{\"event_type\":\"");
        line.extend_from_slice(self.kind.as_str().as_bytes());
        line.extend_from_slice(b"\",\"event_id\":\"event_");
        // Writing to memory does not fail.
        let _ = write!(line, "{id}");
        line.extend_from_slice(b"\",\"timestamp_utc\":");
        write_text(&stamp.timestamp_utc, line);
        if let Some(virtual_time) = &stamp.virtual_time {
            line.extend_from_slice(b",\"virtual_time\":");
            write_text(virtual_time, line);
        }
        if self.members.len() > b"{}".len() {
            line.push(b',');
        }
        write_on_one_line(&self.members.as_bytes()[1..], line);
        line.push(b'\n');
    }
}

/// Writes a JSON string.
fn write_text(text: &str, line: &mut Vec<u8>) {
    if serde_json::to_writer(&mut *line, text).is_err() {
        line.extend_from_slice(b"\"\"");
    }
}

/// Copies a JSON text so that no reader takes it for more than one line. A line feed in it can only be white space
/// between tokens; U+0085, U+2028 and U+2029 can only stand inside strings, and are line ends to Python's `splitlines`
/// and to the clients built on it.
fn write_on_one_line(json: &[u8], line: &mut Vec<u8>) {
    let start = line.len();
    let mut rest = json;
    while let Some(at) = memchr2(0xC2, 0xE2, rest) {
        let (before, found) = rest.split_at(at);
        line.extend_from_slice(before);
        let (escaped, len): (&[u8], usize) = match found {
            [0xC2, 0x85, ..] => (b"\\u0085", 2),
            [0xE2, 0x80, 0xA8, ..] => (b"\\u2028", 3),
            [0xE2, 0x80, 0xA9, ..] => (b"\\u2029", 3),
            _ => (&found[..1], 1),
        };
        line.extend_from_slice(escaped);
        rest = &found[len..];
    }
    line.extend_from_slice(rest);
    let mut at = start;
    while let Some(found) = memchr2(b'\n', b'\r', &line[at..]) {
        line[at + found] = b' ';
        at += found + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp { timestamp_utc: "2026-01-02T03:04:05.000006+00:00".into(), virtual_time: None }
    }

    fn line(event: &Event, stamp: &Stamp) -> String {
        let mut line = Vec::new();
        event.write_line(7, stamp, &mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_line_begins_with_what_the_trajectory_gives() {
        let event = Event::new(Kind::ToolCall, ObjectWriter::with_capacity(0).field("role", "r"));
        assert_eq!(
            line(&event, &stamp()),
            "{\"event_type\":\"tool_call\",\"event_id\":\"event_7\",\
             \"timestamp_utc\":\"2026-01-02T03:04:05.000006+00:00\",\"role\":\"r\"}\n"
        );
        let armed = Stamp { virtual_time: Some("2026-10-05T09:00:00Z".into()), ..stamp() };
        assert_eq!(
            line(&Event::new(Kind::HttpRequest, ObjectWriter::with_capacity(0)), &armed),
            "{\"event_type\":\"http_request\",\"event_id\":\"event_7\",\
             \"timestamp_utc\":\"2026-01-02T03:04:05.000006+00:00\",\"virtual_time\":\"2026-10-05T09:00:00Z\"}\n"
        );
    }

    #[test]
    fn an_object_that_names_its_kind_is_an_event() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let event = Event::from_object(object(serde_json::json!({
            "event_id": "event_1", "event_type": "trigger_fired", "trigger_id": "t", "virtual_time": 1,
        })))
        .unwrap();
        assert_eq!(event.kind(), Kind::TriggerFired);
        assert_eq!(event.members, r#"{"trigger_id":"t"}"#);
        assert!(Event::from_object(object(serde_json::json!({"event_type": "other"}))).is_none());
        assert!(Event::from_object(object(serde_json::json!({"a": 1}))).is_none());
    }

    #[test]
    fn raw_texts_stay_on_one_line() {
        let raw = "{\n \"a\":\t\"\u{2028}é\u{85}â\u{2029}\u{2027}\\n\"\r\n}";
        let event = Event::new(Kind::ToolCallResult, ObjectWriter::with_capacity(0).raw("x", raw));
        let line = line(&event, &stamp());
        assert!(line.ends_with("\"x\":{  \"a\":\t\"\\u2028é\\u0085â\\u2029\u{2027}\\n\"  }}\n"), "{line}");
        assert_eq!(line.matches('\n').count(), 1);
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["x"], serde_json::from_str::<Value>(raw).unwrap());
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        assert_eq!("event_12".parse(), Ok(EventId(12)));
        assert_eq!(EventId(12).to_string(), "event_12");
        for text in ["", "event_", "event_+1", "event_1 ", "12", "event_99999999999999999999"] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_one_line_and_reads_back(text: String, number: f64) {
            let value = serde_json::json!({"a": {text.clone(): [text, number]}});
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let event = Event::new(Kind::ToolCallResult, ObjectWriter::with_capacity(0).raw("x", &pretty));
            let line = line(&event, &stamp());
            let body = line.strip_suffix('\n').unwrap();
            let line_ends = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
            proptest::prop_assert!(!body.contains(line_ends));
            let read: Value = serde_json::from_str(body).unwrap();
            proptest::prop_assert_eq!(&read["x"], &serde_json::from_str::<Value>(&pretty).unwrap());
        }
    }
}
