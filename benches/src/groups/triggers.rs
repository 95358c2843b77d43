//! What armed triggers cost (issue 4).

use std::time::Duration;

use serde_json::{Value, json};

use super::behind;
use crate::bench::{Bench, CALLERS, Served};
use crate::mcp::{SEARCH, post};
use crate::report::{Report, Target};
use crate::rounds::{Figures, compare};

/// How long the gateway is watched at rest.
const REST: Duration = Duration::from_secs(10);

/// The tool that is not called.
const OTHER: &str = "send";

pub(super) async fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let server = bench.email().await?;
    let children = [("email", server.address)];
    let bare = bench.gateway(&children).await?;
    let gateway = bench.gateway(&children).await?;

    let action = |index: usize, tool: &str, tests: Value| {
        json!({"id": format!("{tool}-{index}"), "when": {"type": "action", "tool": tool, "where": tests},
            "actions": [permission()]})
    };
    let others = (0..1000)
        .map(|index| action(index, OTHER, json!({"args.to": {"regex": format!("^nobody{index}@")}})));
    register(&gateway, others.collect()).await?;
    let [with, without] = pair(bench, &gateway, &bare).await?;
    let cost = 1.0 - with.rate_over(&without);
    let absolute = behind(("with", &with), ("without", &without));
    report.row(
        "1,000 triggers on other tools: calls/s lost",
        cost * 100.0,
        " %",
        Target::AtMost(5.0),
        absolute,
    );

    let tests = |index: usize| match index % 2 {
        0 => json!({"args.query": {"regex": format!("^never{index}$")}}),
        _ => json!({"result.emails[0].subject": {"equals": format!("Never {index}")}}),
    };
    post(gateway.address, "POST", "/triggers/clear", &json!({})).await?;
    register(&gateway, (0..100).map(|index| action(index, SEARCH, tests(index))).collect()).await?;
    let [with, without] = pair(bench, &gateway, &bare).await?;
    let cost = 1.0 - with.rate_over(&without);
    let absolute = behind(("with", &with), ("without", &without));
    report.row(
        "100 triggers testing the called tool: calls/s lost",
        cost * 100.0,
        " %",
        Target::AtMost(30.0),
        absolute,
    );

    post(gateway.address, "POST", "/triggers/clear", &json!({})).await?;
    state_check(bench, report, &gateway, &bare).await?;

    post(gateway.address, "POST", "/triggers/clear", &json!({})).await?;
    for thousand in 0..10 {
        let timed = (0..1000).map(|index| {
            let number = thousand * 1000 + index;
            json!({"id": format!("time-{number}"), "when": {"type": "time", "at": format!("PT{}H", 1000 + number)},
                "actions": [permission()]})
        });
        register(&gateway, timed.collect()).await?;
    }
    post(gateway.address, "PUT", "/clock/set-time", &json!({"virtual_time": "2026-10-05T09:00:00Z"})).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = gateway.watched().cpu()?;
    tokio::time::sleep(REST).await;
    let spent = gateway.watched().cpu()?.saturating_sub(before);
    report.row(
        "10,000 time triggers at rest: share of a core",
        spent.as_secs_f64() / REST.as_secs_f64() * 100.0,
        " %",
        Target::AtMost(1.0),
        format!("{} ms in {} s, {:.1} MB resident", spent.as_millis(), REST.as_secs(), gateway.resident()?),
    );
    Ok(())
}

/// A check that searches after each mail that is sent, and never finds: it may cost what the search costs, and no more.
async fn state_check(
    bench: &Bench,
    report: &mut Report,
    gateway: &Served,
    bare: &Served,
) -> anyhow::Result<()> {
    let check = json!({"tool": SEARCH, "args": {"query": "never"}, "extract": "emails", "predicate": {"exists": true}});
    let trigger =
        json!({"id": "watch", "when": {"type": "state", "check": check}, "actions": [permission()]});
    register(gateway, vec![trigger]).await?;
    let mail = json!({"to": "sam@example.com", "subject": "Lunch", "body": "At noon."});
    let sends = async |served: &Served, name| {
        let requests = served.endpoint().calls(1, OTHER, &mail).await?;
        anyhow::Ok(served.load(name, requests, r#"\"sent\":"#))
    };
    let (with, sent) =
        (sends(gateway, "a mail sent and the check").await?, sends(bare, "a mail sent").await?);
    let searched = bare.searches("a search", 1).await?;
    let [with, sent, searched] = compare(bench.plan, [&with, &sent, &searched]).await?;
    report.row(
        "a state check: processor time of send and check over send and search",
        with.cpu() / (sent.cpu() + searched.cpu()),
        "×",
        Target::AtMost(1.0),
        format!("{:.1} µs over {:.1} and {:.1} µs in the gateway", with.cpu(), sent.cpu(), searched.cpu()),
    );
    Ok(())
}

fn permission() -> Value {
    json!({"type": "permission", "action": "disable", "role": "nobody", "tools": [OTHER]})
}

async fn register(gateway: &Served, triggers: Vec<Value>) -> anyhow::Result<()> {
    post(gateway.address, "POST", "/triggers/register", &json!({"triggers": triggers})).await?;
    Ok(())
}

async fn pair(bench: &Bench, with: &Served, without: &Served) -> anyhow::Result<[Figures; 2]> {
    let with = with.searches("our gateway with triggers", CALLERS).await?;
    let without = without.searches("our gateway without", CALLERS).await?;
    compare(bench.plan, [&with, &without]).await
}
