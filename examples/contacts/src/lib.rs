//! An address book that an agent looks people up in.

use agentenv_protocol::prelude::*;

/// A person.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contact {
    /// The person's name.
    pub name: String,
    /// The person's address.
    pub email: String,
}

/// The whole state: what `data/add` takes and `data/get` gives.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AddressBook {
    /// Everybody.
    pub contacts: Vec<Contact>,
}

/// People and their addresses.
#[environment_card(name = "contacts")]
#[derive(Default)]
pub struct ContactsEnv {
    #[data]
    book: Data<AddressBook>,
}

impl ContactsEnv {
    /// An address book that begins with who is in it.
    pub fn new(book: AddressBook) -> Self {
        Self { book: Data::new(book) }
    }
}

/// Who was found.
#[derive(Serialize)]
pub struct Found {
    contacts: Vec<Contact>,
}

/// How many contacts there are.
#[derive(Serialize)]
pub struct Count {
    contacts: usize,
}

#[environment]
impl ContactsEnv {
    /// Find contacts by name.
    #[tool(name = "{environment_name}_lookup", read_only)]
    pub fn lookup(&self, name: String) -> Found {
        let name = name.to_lowercase();
        let matches = |contact: &&Contact| contact.name.to_lowercase().contains(&name);
        Found { contacts: self.book.read(|book| book.contacts.iter().filter(matches).cloned().collect()) }
    }

    /// Add a contact.
    #[tool(name = "{environment_name}_add")]
    pub fn add_contact(&self, name: String, email: String) -> Count {
        self.book.write(|book| {
            book.contacts.push(Contact { name, email });
            Count { contacts: book.contacts.len() }
        })
    }
}
