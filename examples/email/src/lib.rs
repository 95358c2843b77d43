//! A mailbox that an agent searches and sends from.

use agentenv_protocol::prelude::*;

/// A message.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Email {
    /// Address of the sender.
    #[serde(default)]
    pub from: String,
    /// Address of the recipient.
    #[serde(default)]
    pub to: String,
    /// What it is about.
    pub subject: String,
    /// What it says.
    pub body: String,
}

/// The whole state: what `data/add` takes and `data/get` gives.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mailbox {
    /// What has come.
    pub inbox: Vec<Email>,
    /// What has been sent.
    pub sent: Vec<Email>,
}

/// A mailbox that an agent reads and writes.
#[environment_card(name = "email")]
#[derive(Default)]
pub struct EmailEnv {
    /// `#[data]` gives the environment its reset, add and get.
    #[data]
    mail: Data<Mailbox>,
}

impl EmailEnv {
    /// A mailbox that begins with what is in it.
    pub fn new(mail: Mailbox) -> Self {
        Self { mail: Data::new(mail) }
    }
}

/// What a search found.
#[derive(Serialize)]
pub struct Found {
    emails: Vec<Email>,
}

/// How many messages have been sent.
#[derive(Serialize)]
pub struct Sent {
    sent: usize,
}

#[environment]
impl EmailEnv {
    /// Find inbox emails whose subject or body contains the query.
    #[tool(name = "{environment_name}_search", read_only)]
    pub fn search(&self, query: String) -> Found {
        let query = query.to_lowercase();
        let says = |text: &String| text.to_lowercase().contains(&query);
        let matches = |email: &&Email| says(&email.subject) || says(&email.body);
        Found { emails: self.mail.read(|mail| mail.inbox.iter().filter(matches).cloned().collect()) }
    }

    /// Send an email.
    #[tool]
    pub fn send(
        &self,
        /// Address of the recipient.
        to: String,
        subject: String,
        body: String,
    ) -> Result<Sent, ToolError> {
        if !to.contains('@') {
            return Err(ToolError::new("bad_address", format!("'{to}' is not an email address")));
        }
        Ok(self.mail.write(|mail| {
            mail.sent.push(Email { from: "me@example.com".into(), to, subject, body });
            Sent { sent: mail.sent.len() }
        }))
    }
}
