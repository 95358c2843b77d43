//! Ten agents of three roles on one office, over MCP, with the harness changing their tools on the way.

use anyhow::Result;
use serde_json::{Value, json};

use crate::office::{Children, Office, Session};

/// An agent, its call, and whether the call goes through.
type Step = (usize, &'static str, Value, bool);

const ASSISTANT: [&str; 3] = ["email_search", "send", "contacts_lookup"];
const REVIEWER: [&str; 2] = ["email_search", "contacts_lookup"];
const INTERN: [&str; 1] = ["contacts_lookup"];

fn role(agent: usize) -> &'static str {
    match agent {
        1..=4 => "assistant",
        5..=7 => "reviewer",
        _ => "intern",
    }
}

fn mail(to: &str, subject: &str, body: &str) -> Value {
    json!({"to": to, "subject": subject, "body": body})
}

/// The tools of the story that a session lists, in order.
async fn listed(session: &Session) -> Result<Vec<String>> {
    let mut names = session.names().await?;
    names.retain(|name| ASSISTANT.contains(&name.as_str()));
    Ok(names)
}

async fn walk(sessions: &[Session], steps: &[Step]) -> Result<()> {
    for (agent, tool, arguments, goes_through) in steps {
        let result = sessions[agent - 1].call(tool, arguments.clone()).await?;
        if *goes_through {
            assert_eq!(result["isError"], false, "agent {agent}: {tool}: {result}");
        } else {
            let text = format!("Tool '{tool}' is disabled for role '{}'", role(*agent));
            assert_eq!((&result["isError"], &result["content"][0]["text"]), (&json!(true), &json!(text)));
        }
    }
    Ok(())
}

#[tokio::test]
async fn ten_agents_walk() -> Result<()> {
    for children in [Children::InProcess, Children::Remote] {
        let office = Office::open(children).await?;
        let disable = async |role: &str, tools: Value| -> Result<()> {
            let want = json!({"role": role, "disabled": tools, "allowed": []});
            assert_eq!(
                office.post("/tools/disable", json!({"role": role, "tools": tools})).await?,
                (200, want)
            );
            Ok(())
        };
        disable("reviewer", json!(["send"])).await?;
        disable("intern", json!(["email_search", "send"])).await?;
        let mut sessions = Vec::new();
        for agent in 1..=10 {
            sessions.push(office.mcp(Some(role(agent))).await?);
        }
        for (agent, tools) in [(1, &ASSISTANT[..]), (5, &REVIEWER[..]), (8, &INTERN[..])] {
            assert_eq!(listed(&sessions[agent - 1]).await?, tools);
        }
        let (search, lookup) = (|q: &str| json!({"query": q}), |name: &str| json!({"name": name}));
        walk(
            &sessions,
            &[
                (1, "email_search", search("Q3"), true),
                (2, "contacts_lookup", lookup("Priya"), true),
                (3, "send", mail("dana@example.com", "Q3 numbers", "Attached."), true),
                (4, "email_search", search("offsite"), true),
                (5, "email_search", search("Q3"), true),
                (6, "contacts_lookup", lookup("Dana"), true),
                (7, "email_search", search("budget"), true),
                (8, "contacts_lookup", lookup("Omar"), true),
                (9, "contacts_lookup", lookup("Sam"), true),
                (10, "contacts_lookup", lookup("Priya"), true),
                (1, "send", mail("priya.shah@example.com", "Q3 review", "Thursday at 10?"), true),
                (3, "contacts_lookup", lookup("Omar"), true),
                (5, "contacts_lookup", lookup("Sam"), true),
                (6, "send", mail("dana@example.com", "Approved", "Looks good."), false),
                (9, "email_search", search("Sam"), false),
                (10, "contacts_lookup", lookup("Dana"), true),
            ],
        )
        .await?;
        disable("assistant", json!(["contacts_lookup"])).await?;
        walk(&sessions, &[(2, "contacts_lookup", lookup("Sam"), false)]).await?;
        for (agent, tools) in [(2, &ASSISTANT[..2]), (6, &REVIEWER[..]), (9, &INTERN[..])] {
            assert_eq!(listed(&sessions[agent - 1]).await?, tools);
        }
        walk(
            &sessions,
            &[
                (2, "email_search", search("Sam"), true),
                (2, "send", mail("sam.lee@example.com", "Offsite dates", "Do the 14th and 15th work?"), true),
            ],
        )
        .await?;
        let events = office.events().await?;
        let calls = events.iter().filter(|event| event["event_type"] == "tool_call").count();
        assert_eq!((calls, events.len()), (16, 32), "refused calls leave no event");
    }
    Ok(())
}
