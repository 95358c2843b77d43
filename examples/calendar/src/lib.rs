//! A calendar that an agent reads and books in. What is over and what is to come is decided by the gateway's clock.

use agentenv_protocol::prelude::*;

/// Something that takes time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// What it is.
    pub title: String,
    /// When it begins.
    pub start: DateTime,
    /// When it is over.
    pub end: DateTime,
}

/// The whole state: what `data/add` takes and `data/get` gives.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Agenda {
    /// Every event, in the order in which they were booked.
    pub events: Vec<Event>,
}

/// Meetings and the time that they take.
#[environment_card(name = "calendar")]
#[derive(Default)]
pub struct CalendarEnv {
    #[data]
    agenda: Data<Agenda>,
    /// `#[component]` gives the environment `urn:agentenv:clock/v1`: once synced, it tells the gateway's time.
    #[component]
    clock: Clock,
}

impl CalendarEnv {
    /// A calendar that begins with what is in it.
    pub fn new(agenda: Agenda) -> Self {
        Self { agenda: Data::new(agenda), clock: Clock::new() }
    }
}

#[environment]
impl CalendarEnv {
    /// List the events that are not over yet, the next one first.
    #[tool(name = "{environment_name}_list", read_only)]
    pub async fn list(
        &self,
        /// Leave out what begins later than this.
        until: Option<DateTime>,
    ) -> Agenda {
        let now = self.clock.now().await;
        let wanted = |event: &&Event| event.end > now && until.is_none_or(|until| event.start <= until);
        let mut events: Vec<_> =
            self.agenda.read(|agenda| agenda.events.iter().filter(wanted).cloned().collect());
        events.sort_by_key(|event: &Event| event.start);
        Agenda { events }
    }

    /// Book an event, if there is time for it.
    #[tool(name = "{environment_name}_book")]
    pub async fn book(&self, title: String, start: DateTime, end: DateTime) -> Result<Event, ToolError> {
        let now = self.clock.now().await;
        if start < now || end <= start {
            let message = format!("it is {now}: an event begins after that, and before it ends");
            return Err(ToolError::new("bad_time", message));
        }
        self.agenda.write(|agenda| {
            if let Some(other) = agenda.events.iter().find(|other| other.start < end && start < other.end) {
                let message = format!("'{}' is from {} to {}", other.title, other.start, other.end);
                return Err(ToolError::new("taken", message).with_hint("book after it"));
            }
            let event = Event { title, start, end };
            agenda.events.push(event.clone());
            Ok(event)
        })
    }
}
