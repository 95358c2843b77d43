//! What the state store costs a call, and how fast its changes are read (issue 5).

use std::time::{Duration, Instant};

use agentenv_gateway::launch::postgres::{PostgresError, PrivatePostgres};
use agentenv_gateway::store::{LatestId, Store, StoreTimes};
use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};
use tokio_postgres::NoTls;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::behind;
use crate::bench::Bench;
use crate::http::request;
use crate::mcp::asked;
use crate::parts::{ID_READ, IdRead, STORE_URL};
use crate::process::{Program, free_address};
use crate::report::{Report, Target};
use crate::rounds::{compare, median};

/// How many rows the changelog has.
const ROWS: usize = 10_000;

/// How long the store may take to be connected to.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long reading ids may take.
const PART_LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    let started = Instant::now();
    let postgres = match PrivatePostgres::start(None).await {
        Ok(postgres) => postgres,
        Err(PostgresError::NotInstalled) => {
            report.missing("everything about the store", "there is no Postgres on this machine");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    report.row(
        "a private Postgres: time to start",
        started.elapsed().as_secs_f64(),
        " s",
        Target::AtMost(2.0),
        "",
    );
    let outcome = measure(bench, report, &postgres).await;
    postgres.stop().await;
    outcome
}

async fn measure(bench: &Bench, report: &mut Report, postgres: &PrivatePostgres) -> anyhow::Result<()> {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let _stopped = stop.clone().drop_guard();
    let store = Store::connect(postgres.url().clone(), StoreTimes::default(), &tasks, &stop);
    tokio::time::timeout(CONNECT_LIMIT, store.up()).await.context("connecting to the store")?;
    fill(&store).await?;
    let reading = Program::part(ID_READ)?.variable(STORE_URL, postgres.url().expose());
    let IdRead { median: read } = reading.start(bench.folder())?.found(PART_LIMIT).await?;

    let server = bench.email().await?;
    let children = [("email", server.address)];
    let program = bench.ours().await?.gateway().variable("SERVICE_DB_URL", postgres.url().expose());
    let with = bench.gateway_of(program, &children).await?;
    let without = bench.gateway(&children).await?;
    for callers in [1, 8] {
        let with = with.searches("our gateway with a store", callers).await?;
        let without = without.searches("our gateway without", callers).await?;
        let [with, without] = compare(bench.plan, [&with, &without]).await?;
        let absolute = format!("an id read {read:.0} µs; {}", behind(("with", &with), ("without", &without)));
        if callers == 1 {
            let beyond = (with.median() - 2.0 * read) / without.median();
            report.row(
                "a call with the store, less two id reads, over one without",
                beyond,
                "×",
                Target::AtMost(1.3),
                absolute,
            );
        } else {
            let over = with.rate_over(&without);
            report.row(
                format!("calls/s at {callers} with the store over without"),
                over,
                "×",
                Target::None,
                absolute,
            );
        }
    }

    let page = request("GET", &format!("/changes?after_id=0&limit={ROWS}"), &[], "");
    let load = with.load("/changes", vec![page], "has_more");
    let [pages] = compare(bench.plan, [&load]).await?;
    let absolute = format!("p99 {:.1} ms", pages.p99() / 1e3);
    report.row(
        format!("/changes of {ROWS} rows"),
        pages.median() / 1e3,
        " ms",
        Target::AtMost(100.0),
        absolute,
    );
    drop((with, without));
    resets(bench, report, &store).await
}

/// Resetting the wiki of the example, without the changelog and with it.
async fn resets(bench: &Bench, report: &mut Report, store: &Store) -> anyhow::Result<()> {
    let address = free_address()?;
    let url = store.prepare("wiki").await?;
    let program = bench.ours().await?.company(address).argument("wiki").variable("DATABASE_URL", url);
    let wiki = bench.start(program, address, "/ready").await?;
    let page = |n: usize| (format!("Page {n}"), json!({"text": "words ".repeat(20)}));
    let pages: Map<String, Value> = (0..ROWS).map(page).collect();
    let add = json!({"parts": [{"kind": "data", "data": {"pages": pages}}]});
    for logged in [false, true] {
        let mut took = Vec::new();
        for _ in 0..bench.plan.rounds.max(3) {
            asked(wiki.address, "data/add", &add).await?;
            if logged {
                store.install("wiki").await?;
            }
            let started = Instant::now();
            asked(wiki.address, "data/reset", &json!({})).await?;
            took.push(started.elapsed().as_secs_f64() * 1e3);
        }
        let what = if logged { " that are each logged as deleted" } else { "" };
        let slowest = took.iter().copied().fold(0.0, f64::max);
        report.row(
            format!("the wiki: reset of {ROWS} rows{what}"),
            median(took.into_iter()),
            " ms",
            Target::AtMost(100.0),
            format!("at most {slowest:.1} ms"),
        );
    }
    Ok(())
}

/// A table of a server's schema, and a row of the changelog for each of its rows.
async fn fill(store: &Store) -> anyhow::Result<()> {
    let url = store.prepare("email").await?;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    // It ends with the client.
    let connection = tokio::spawn(connection);
    client
        .batch_execute("CREATE TABLE mails (id int PRIMARY KEY, subject text NOT NULL, body text NOT NULL)")
        .await?;
    store.install("email").await?;
    let fill = format!(
        "INSERT INTO mails SELECT n, 'Mail ' || n, repeat('words ', 20) FROM generate_series(1, {ROWS}) n"
    );
    client.batch_execute(&fill).await?;
    drop(client);
    connection.await??;
    let rows = i64::try_from(ROWS)?;
    let id = store.latest_id().await;
    ensure!(matches!(id, LatestId::Known(id) if id >= rows), "the changelog's latest id is {id:?}");
    Ok(())
}
