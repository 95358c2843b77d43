//! A mailbox with everything that the tests ask of a server: plain, hidden and failing tools, extensions, who is calling.

use agentenv_protocol::prelude::*;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Mailbox {
    inbox: Vec<Value>,
    sent: Vec<Value>,
}

/// A mailbox.
#[environment_card(name = "email")]
#[derive(Default)]
pub struct EmailEnv {
    #[data]
    mail: Data<Mailbox>,
}

#[environment]
impl EmailEnv {
    /// Find inbox emails whose subject or body contains the query.
    #[tool(name = "{environment_name}_search", read_only)]
    fn search(&self, query: String) -> Value {
        let query = query.to_lowercase();
        let text = |mail: &Value, key: &str| mail[key].as_str().unwrap_or_default().to_lowercase();
        let found =
            |mail: &&Value| format!("{} {}", text(mail, "subject"), text(mail, "body")).contains(&query);
        json!({"emails": self.mail.read(|mail| mail.inbox.iter().filter(found).cloned().collect::<Vec<_>>())})
    }

    /// Send an email.
    #[tool]
    fn send(&self, to: String, subject: String, body: String) -> Value {
        self.mail.write(|mail| {
            mail.sent.push(json!({"to": to, "subject": subject, "body": body}));
            json!({"sent": mail.sent.len()})
        })
    }

    /// Who is calling.
    #[tool]
    fn whoami(&self, ctx: &ToolContext) -> Value {
        json!({"role": ctx.caller.role, "session": ctx.caller.session})
    }

    /// Fail on purpose: "coded" with an error code, anything else with an exception.
    #[tool]
    fn fail(&self, how: String) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        match how.as_str() {
            "coded" => Err(ToolError::new("no_such_mailbox", "mailbox x is gone").with_hint("try y").into()),
            "panic" => panic!("boom"),
            _ => Err("boom".into()),
        }
    }

    /// Deliver a message into the inbox.
    #[tool(hidden_by_default)]
    fn deliver(&self, sender: String, subject: String, body: String) -> Value {
        self.mail.write(|mail| {
            mail.inbox.push(json!({"from": sender, "subject": subject, "body": body}));
            json!({"inbox": mail.inbox.len()})
        })
    }

    #[extension(uri = "urn:example:mailbox/v1", description = "Mailbox size limits.")]
    fn set_limit(&self, limit: i64, #[arg(default = "hard")] mode: String) -> Value {
        json!({"limit": limit, "mode": mode})
    }

    #[extension(uri = "urn:example:stats/v1", method = "GET")]
    fn stats(&self) -> Value {
        self.mail.read(|mail| json!({"inbox": mail.inbox.len(), "sent": mail.sent.len()}))
    }
}
