//! An address book that follows the gateway's clock and has a slow tool.

use std::time::Duration;

use agentenv_protocol::prelude::*;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct AddressBook {
    contacts: Vec<Value>,
}

/// An address book.
#[environment_card(name = "contacts")]
#[derive(Default)]
pub struct ContactsEnv {
    #[data]
    book: Data<AddressBook>,
    #[component]
    clock: agentenv_protocol::standard::Clock,
}

#[environment]
impl ContactsEnv {
    /// Find contacts by name.
    #[tool(read_only)]
    fn contacts_lookup(&self, name: String) -> Value {
        let name = name.to_lowercase();
        let found =
            |contact: &&Value| contact["name"].as_str().unwrap_or_default().to_lowercase().contains(&name);
        json!({"contacts": self.book.read(|book| book.contacts.iter().filter(found).cloned().collect::<Vec<_>>())})
    }

    /// Add a contact.
    #[tool]
    fn contacts_add(&self, name: String, email: String) -> Value {
        self.book.write(|book| {
            book.contacts.push(json!({"name": name, "email": email}));
            json!({"contacts": book.contacts.len()})
        })
    }

    /// Answer after a while.
    #[tool]
    async fn slow(&self, seconds: f64) -> Result<Value, ToolError> {
        let pause = Duration::try_from_secs_f64(seconds)
            .map_err(|error| ToolError::new("bad_seconds", format!("{seconds} s: {error}")))?;
        tokio::time::sleep(pause).await;
        Ok(json!({"slept": seconds}))
    }
}
