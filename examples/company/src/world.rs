//! What is going on in the company to begin with: a file of seeds for each server.

use agentenv_protocol::prelude::*;
use anyhow::Context;

macro_rules! seeds {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("../seeds/", $name, ".json")))),*] };
}

const SEEDS: [(&str, &str); 16] = seeds![
    "calendar" "chat" "contacts" "email" "exchange" "expenses" "files" "glossary" "holidays" "news" "payroll" "rooms"
    "tickets" "warehouse" "weather" "wiki"
];

/// What a server begins with in the sample world, as `data/add` takes it.
///
/// # Errors
/// There is no such server, or its file is at fault.
pub fn seed(name: &str) -> anyhow::Result<Part> {
    let (_, text) = SEEDS.iter().find(|(server, _)| *server == name).context("there is no seed")?;
    Ok(Part::data(&serde_json::from_str::<Value>(text)?)?)
}
