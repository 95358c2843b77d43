//! The world reacts: a lookup that unlocks a tool, and what comes due as the virtual hours pass, over real ports.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::office::{Children, Office};

async fn trigger(office: &Office, id: &str) -> Result<Value> {
    let state = office.get("/triggers/state").await?;
    let triggers = state["triggers"].as_array().context("no triggers")?;
    triggers.iter().find(|trigger| trigger["id"] == id).cloned().with_context(|| format!("no trigger {id}"))
}

#[tokio::test]
async fn a_lookup_unlocks_send_and_two_hours_later_dana_chases() -> Result<()> {
    for children in [Children::InProcess, Children::Remote] {
        let office = Office::open(children).await?;
        office
            .seed("contacts", json!({"contacts": [{"name": "Sam Lee", "email": "sam.lee@example.com"}]}))
            .await?;
        office.post("/tools/disable", json!({"role": "default", "tools": ["send"]})).await?;
        let morning = json!({"virtual_time": "2026-10-05T09:00:00Z", "virtual_seconds_per_real_second": 0});
        let arm = office.http.put(format!("{}/clock/set-time", office.url)).body(morning.to_string());
        assert_eq!(arm.send().await?.status(), 200);
        let (status, registered) = office
            .post(
                "/triggers/register",
                json!({"triggers": [
                    {
                        "id": "unlock-send",
                        "when": {"type": "action", "tool": "contacts_lookup", "where": {"args.name": {"regex": "Sam"}}},
                        "actions": [{"type": "permission", "action": "enable", "role": "default", "tools": ["send"]}],
                        "barrier": {"at": "provoking_call"},
                    },
                    {
                        "id": "dana-chases",
                        "when": {"type": "time", "at": "PT2H"},
                        "actions": [{"type": "tool", "tool": "deliver", "args": {
                            "sender": "dana@example.com", "subject": "Q3 numbers", "body": "Did they go out?",
                        }}],
                    },
                ]}),
            )
            .await?;
        assert_eq!((status, &registered["added"]), (200, &json!(["unlock-send", "dana-chases"])));

        let mail = json!({"to": "sam.lee@example.com", "subject": "Q3", "body": "Attached."});
        let refused = (403, json!("Tool 'send' is disabled for role 'default'"));
        assert_eq!(office.step(None, "send", mail.clone()).await?, refused);
        let found = office.step(None, "contacts_lookup", json!({"name": "Sam"})).await?.1;
        assert_eq!(found["contacts"][0]["email"], "sam.lee@example.com");
        assert_eq!(office.step(None, "send", mail).await?, (200, json!({"sent": 1})));
        assert_eq!(trigger(&office, "unlock-send").await?["status"], "fired");

        let (_, advanced) = office.post("/clock/advance", json!({"by": "PT1H59M59S"})).await?;
        assert_eq!(advanced["virtual_time"], "2026-10-05T10:59:59Z", "{advanced}");
        assert_eq!(trigger(&office, "dana-chases").await?["status"], "armed");
        office.post("/clock/advance", json!({"by": "PT1S"})).await?;
        assert_eq!(trigger(&office, "dana-chases").await?["status"], "fired");
        let inbox = office.step(None, "email_search", json!({"query": "Q3"})).await?.1;
        assert_eq!(inbox["emails"][0]["from"], "dana@example.com");

        let events = office.events().await?;
        let fired: Vec<_> = events.iter().filter(|e| e["event_type"] == "trigger_fired").collect();
        assert_eq!(fired.len(), 2);
        assert_eq!(fired[1]["virtual_time"], "2026-10-05T11:00:00Z");
        let internal =
            events.iter().find(|e| e["event_type"] == "internal_tool_call").context("no call of its own")?;
        assert_eq!((&internal["tool"], &internal["ok"]), (&json!("deliver"), &json!(true)));
    }
    Ok(())
}

#[tokio::test]
async fn whoever_is_added_is_welcomed() -> Result<()> {
    let office = Office::open(Children::InProcess).await?;
    let welcome = json!({"triggers": [{
        "id": "welcome",
        "when": {"type": "action", "tool": "contacts_add", "where": {"args.email": {"regex": "@example\\.com$"}}, "repeat": true},
        "actions": [{"type": "tool", "tool": "send", "args": {
            "to": "${args.email}", "subject": "Welcome, ${args.name}", "body": "You are in the office contacts.",
        }}],
        "barrier": {"at": "provoking_call"},
    }]});
    assert_eq!(office.post("/triggers/register", welcome).await?.0, 200);
    for (name, email) in
        [("Priya", "priya@example.com"), ("Eve", "eve@elsewhere.net"), ("Omar", "omar@example.com")]
    {
        office.step(None, "contacts_add", json!({"name": name, "email": email})).await?;
    }
    let (_, state) = office
        .post("/svc/mcp-email/agentenv", json!({"jsonrpc": "2.0", "id": 1, "method": "data/get"}))
        .await?;
    let sent = state["result"]["parts"][0]["data"]["sent"].as_array().context("nothing sent")?;
    let subjects: Vec<_> = sent.iter().map(|mail| &mail["subject"]).collect();
    assert_eq!(subjects, ["Welcome, Priya", "Welcome, Omar"]);
    let why = office.get("/triggers/explain?id=welcome").await?;
    assert_eq!(why["id"], "welcome", "{why}");
    Ok(())
}
