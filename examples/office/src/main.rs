//! An office: a mailbox and an address book behind one gateway, all in this process, with a few people and mails to begin
//! with. `MCP_HOST` and `MCP_PORT` say where.

use agentenv_gateway::Instance;
use agentenv_gateway::call::DEFAULT_ROLE;
use contacts::{AddressBook, Contact, ContactsEnv};
use email::{Email, EmailEnv, Mailbox};

fn people() -> AddressBook {
    let person = |name: &str, email: &str| Contact { name: name.into(), email: email.into() };
    AddressBook {
        contacts: vec![
            person("Sam Lee", "sam.lee@example.com"),
            person("Priya Shah", "priya.shah@example.com"),
            person("Dana Park", "dana@example.com"),
        ],
    }
}

fn mails() -> Mailbox {
    let mail = |from: &str, subject: &str, body: &str| Email {
        from: from.into(),
        to: "me@example.com".into(),
        subject: subject.into(),
        body: body.into(),
    };
    Mailbox {
        inbox: vec![
            mail("dana@example.com", "Q3 numbers", "Can you send Sam the Q3 numbers today?"),
            mail("priya.shah@example.com", "Offsite", "Do the 14th and 15th work for the offsite?"),
        ],
        sent: Vec::new(),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let office = Instance::builder("office")
        .env(EmailEnv::new(mails()))
        .env(ContactsEnv::new(people()))
        .build()
        .await?;

    let var = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let address = format!("{}:{}", var("MCP_HOST", "127.0.0.1"), var("MCP_PORT", "18765"));
    let listener = agentenv_protocol::server::bind(&address).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("The office is open.\n");
    println!("  MCP     {url}/mcp");
    println!("  card    {url}/.well-known/agent-env.json");
    println!("  tools   {}\n", office.tool_names(DEFAULT_ROLE).join(", "));
    println!("Connect any MCP client, for example\n");
    println!("  npx @modelcontextprotocol/inspector --cli {url}/mcp --transport http --method tools/list\n");
    println!("or call a tool over plain HTTP:\n");
    println!(
        "  curl -s {url}/step -d '{{\"action\":\"call_tool\",\"tool_name\":\"email_search\",\"arguments\":{{\"query\":\"Q3\"}}}}'\n"
    );
    println!("Ctrl-C ends it.");

    let stop = agentenv_protocol::server::stop_on_signal()?;
    Ok(office.serve_on(listener, Default::default(), stop).await?)
}
