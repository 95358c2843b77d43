//! A help desk's tickets: opened, listed, closed.

use agentenv_protocol::prelude::*;

/// How soon it has to be done.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ticket {
    id: u64,
    title: String,
    #[serde(default)]
    priority: Priority,
    /// How it was solved, once it is closed.
    #[serde(default)]
    solution: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Desk {
    tickets: Vec<Ticket>,
}

/// What does not work, and who waits for it.
#[environment_card(name = "tickets")]
#[derive(Default)]
struct TicketsEnv {
    #[data]
    desk: Data<Desk>,
}

#[environment]
impl TicketsEnv {
    /// List the tickets that are open.
    #[tool(name = "{environment_name}_list", read_only)]
    fn list(&self) -> Value {
        let open = |ticket: &&Ticket| ticket.solution.is_none();
        self.desk.read(|desk| json!({"tickets": desk.tickets.iter().filter(open).collect::<Vec<_>>()}))
    }

    /// Open a ticket.
    #[tool(name = "{environment_name}_open")]
    fn open(&self, title: String, #[arg(default)] priority: Priority) -> Ticket {
        self.desk.write(|desk| {
            let last = desk.tickets.iter().map(|ticket| ticket.id).max().unwrap_or_default();
            let ticket = Ticket { id: last.saturating_add(1), title, priority, solution: None };
            desk.tickets.push(ticket.clone());
            ticket
        })
    }

    /// Close a ticket.
    #[tool(name = "{environment_name}_close")]
    fn close(
        &self,
        id: u64,
        /// What was done about it.
        solution: String,
    ) -> Result<Ticket, ToolError> {
        self.desk.write(|desk| {
            let open = desk.tickets.iter_mut().find(|ticket| ticket.id == id && ticket.solution.is_none());
            let open = open.ok_or_else(|| ToolError::new("not_open", format!("no ticket {id} is open")))?;
            open.solution = Some(solution);
            Ok(open.clone())
        })
    }
}
