//! The `get_time` tool, which agents have while the clock is armed (contract 6).

use jiff::tz::TimeZone;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Clock, local_text};

/// The tool's name.
pub const GET_TIME: &str = "get_time";

/// What an agent must know. It must not be told that the time is made up, or it may stop taking it seriously.
const DESCRIPTION: &str = "Tells the current date and time here. The clock of the machine you run on is not this \
environment's clock and will disagree with it, and so will any date you assume: take the time from this tool only. Work \
out from current_time (UTC) every date you pass to another tool and every expression like \"today\", \"this week\" or \
\"overdue\". Time passes while you work, so call it again before each step that depends on it. Pass time_zone to also get \
the local time that a person there would read off a wall clock.";

const TIME_ZONE_DESCRIPTION: &str = "An IANA time zone name, such as \"Europe/Paris\" or \"America/New_York\"; adds \
time_zone and local_time to the answer.";

impl Clock {
    /// The tool as `tools/list` shows it.
    pub fn get_time_listing() -> Box<RawValue> {
        raw(&json!({
            "name": GET_TIME,
            "description": DESCRIPTION,
            "inputSchema": {
                "type": "object",
                "properties": {"time_zone": {"type": "string", "description": TIME_ZONE_DESCRIPTION}},
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": true},
        }))
    }

    /// Answers a call of the tool with a `CallToolResult`: `{"current_time"}`, and for a `time_zone` also `time_zone` and
    /// `local_time`; an unknown zone is a tool error. `None` while the clock is off, when there is no such tool.
    pub fn get_time(&self, arguments: Option<&RawValue>) -> Option<Box<RawValue>> {
        let now = self.now()?.whole_second();
        let arguments = arguments.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        let zone = arguments
            .as_ref()
            .and_then(|arguments| arguments.get("time_zone"))
            .filter(|zone| !zone.is_null());
        let mut answer = json!({"current_time": now});
        if let Some(name) = zone {
            let Some((name, zone)) = name.as_str().and_then(|name| Some((name, find_zone(name)?))) else {
                let text =
                    format!("unknown time zone {name}: pass an IANA name such as \"America/New_York\"");
                return Some(raw(&json!({"content": [{"type": "text", "text": text}], "isError": true})));
            };
            let (civil, offset) = now.in_zone(&zone);
            answer["time_zone"] = json!(name);
            answer["local_time"] = json!(local_text(civil, offset));
        }
        Some(raw(&json!({
            "content": [{"type": "text", "text": answer.to_string()}],
            "structuredContent": answer,
            "isError": false,
        })))
    }
}

/// A zone by its IANA name, spelled exactly as IANA does. The database is built in, so that answers do not depend on
/// the machine.
pub(crate) fn find_zone(name: &str) -> Option<TimeZone> {
    // "Factory" is IANA's name for a machine whose zone nobody has set.
    let zone = TimeZone::get(name).ok().filter(|_| name != "Factory")?;
    (zone.iana_name() == Some(name)).then_some(zone)
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
