//! A store that dies under load, is not there yet, or does not answer: calls go on, ids are null meanwhile, and no row is
//! said to be another's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::*;

/// Much longer than the second that each of a call's two reads of the id may take (contract 8).
const LATE: Duration = Duration::from_secs(4);

/// Asks until it is so. Other processes take their time, so there is nothing to await.
async fn eventually(what: &str, mut ask: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let asking = async {
        while !ask().await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, asking).await.with_context(|| format!("never so: {what}"))?
}

/// The changelog's id, as `/state` says it.
async fn latest(office: &Office) -> Result<Option<i64>> {
    Ok(office.get("/state").await?["changelog_id"].as_i64())
}

fn signal(signal: &str, process: u32) -> Result<()> {
    let status = std::process::Command::new("kill").args([signal, &process.to_string()]).status()?;
    ensure!(status.success(), "cannot send {signal}");
    Ok(())
}

/// A Postgres that was killed, and is not started again before this is dropped.
struct Dead {
    guard: u32,
}

impl Dead {
    fn kill(postgres: &PrivatePostgres) -> Result<Self> {
        let server = postgres.process_id().context("no server")?;
        let status = std::fs::read_to_string(format!("/proc/{server}/status"))?;
        let guard = status.lines().find_map(|line| line.strip_prefix("PPid:")).context("no parent")?;
        let dead = Self { guard: guard.trim().parse()? };
        signal("-STOP", dead.guard)?;
        signal("-9", server)?;
        Ok(dead)
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        // A guard that is gone starts nothing again, which the test then finds.
        let _ = signal("-CONT", self.guard);
    }
}

/// What was seen of the calls that have no need of the database.
#[derive(Default)]
struct Seen {
    null: AtomicUsize,
    numbers: AtomicUsize,
}

impl Seen {
    /// Waits until so many more calls have been told null, or a number.
    async fn more(&self, of: impl Fn(&Self) -> &AtomicUsize) -> Result<()> {
        let enough = of(self).load(Ordering::Relaxed) + 100;
        eventually("100 more calls", async || Ok(of(self).load(Ordering::Relaxed) >= enough)).await
    }
}

/// Sends emails until told to end: how long each took, and what its id was.
async fn sends(
    office: Arc<Office>,
    seen: Arc<Seen>,
    end: CancellationToken,
) -> Result<Vec<(Duration, Option<i64>)>> {
    let mut answers = Vec::new();
    while !end.is_cancelled() {
        let began = Instant::now();
        let answer = step(&office, None, "send", json!({"to": "dana", "subject": "x", "body": "x"})).await?;
        ensure!(answer["isError"] != true, "{answer}");
        let id = answer["changelog_id"].as_i64();
        if id.is_some() { &seen.numbers } else { &seen.null }.fetch_add(1, Ordering::Relaxed);
        answers.push((began.elapsed(), id));
    }
    Ok(answers)
}

/// Writes notes until told to end, whatever comes of it.
async fn keeps_writing(office: Arc<Office>, name: &'static str, end: CancellationToken) -> Result<()> {
    for call in 0.. {
        if end.is_cancelled() {
            break;
        }
        step(&office, Some(name), &format!("{name}_write"), note(&format!("{name} {call}"), 1)).await?;
    }
    Ok(())
}

/// The window of the call that wrote a row.
fn window_of<'a>(windows: &'a [Window], row: &Value) -> Result<&'a Window> {
    let text = text_of(row)?;
    let own = windows.iter().find(|window| window.text.as_deref() == Some(text));
    own.with_context(|| format!("nobody wrote {row}"))
}

async fn killed_under_load(mode: Mode) -> Result<()> {
    let database = Database::start().await?;
    let names = ["alpha", "beta", "gamma"];
    let (office, _servers) = database.office(mode, &names).await?;
    // From here on null means that the id is unknown, and not that there is none.
    step(&office, None, "alpha_write", note("first", 1)).await?;
    let (office, end, seen) = (Arc::new(office), CancellationToken::new(), Arc::new(Seen::default()));
    let writers: Vec<_> =
        names.map(|name| tokio::spawn(keeps_writing(Arc::clone(&office), name, end.clone()))).into();
    let senders: Vec<_> =
        (0..3).map(|_| tokio::spawn(sends(Arc::clone(&office), Arc::clone(&seen), end.clone()))).collect();

    eventually("some writes", async || Ok(latest(&office).await? > Some(20))).await?;
    let dead = Dead::kill(&database.postgres)?;
    eventually("the store is known to be down", async || Ok(latest(&office).await?.is_none())).await?;
    seen.more(|seen| &seen.null).await?;
    let numbers = seen.numbers.load(Ordering::Relaxed);
    let began = Instant::now();
    let (status, answer) = {
        let response = office.http.get(format!("{}/changes", office.url)).send().await?;
        (response.status().as_u16(), response.text().await?)
    };
    assert_eq!((status, began.elapsed() < LATE), (503, true), "{answer}");
    assert!(answer.contains("the state store is not reachable"), "{answer}");
    seen.more(|seen| &seen.null).await?;
    assert_eq!(seen.numbers.load(Ordering::Relaxed), numbers, "a number from a store that is down");
    drop(dead);
    eventually("the store is back", async || Ok(latest(&office).await?.is_some())).await?;
    let back = latest(&office).await?;
    eventually("writes go on", async || Ok(latest(&office).await? > back)).await?;
    seen.more(|seen| &seen.numbers).await?;
    end.cancel();
    for writer in writers {
        writer.await??;
    }
    for sender in senders {
        let answers = sender.await??;
        let slowest = answers.iter().map(|(took, _)| *took).max().context("no calls")?;
        assert!(slowest < LATE, "a call took {slowest:?}");
        let ids: Vec<i64> = answers.iter().filter_map(|(_, id)| *id).collect();
        assert!(ids.is_sorted(), "an id went back: {ids:?}");
        assert!(ids.last() > back.as_ref(), "no id after the store came back");
    }

    let windows = windows(&office.events().await?)?;
    let mut named = 0;
    for row in changelog(&office).await? {
        let (own, actors) = (window_of(&windows, &row)?, actors(&row));
        let unknown = actors.is_empty();
        assert!(unknown || actors.contains(&own.event.as_str()), "{own:?} is not named by {row}");
        if mode == Mode::Consistent {
            let whole = own.text.as_deref() == Some("first") || own.before.is_some() && own.after.is_some();
            assert!(actors.len() <= 1 && unknown != whole, "{own:?}: {row}");
        }
        named += usize::from(!unknown);
    }
    assert!(named > 20, "only {named} rows name anybody");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load_it_takes_no_call_with_it() -> Result<()> {
    killed_under_load(Mode::Performance).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load_it_takes_no_call_with_it_in_turn() -> Result<()> {
    killed_under_load(Mode::Consistent).await
}

/// A call that ended well beside one whose end fell into the outage is not said to have written the other's row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_window_is_lost_is_nobody_elses() -> Result<()> {
    let database = Database::start().await?;
    let (office, servers) = database.office(Mode::Performance, &["writer", "beside", "across"]).await?;
    let office = Arc::new(office);
    step(&office, None, "writer_write", note("before", 1)).await?;
    let begin = |name: &'static str, rows: usize| {
        let office = Arc::clone(&office);
        let arguments = json!({"text": name, "rows": rows, "wait": true});
        tokio::spawn(async move { step(&office, None, &format!("{name}_write"), arguments).await })
    };
    let [writer, beside, across] = servers.as_slice() else { anyhow::bail!("no servers") };
    let (call_beside, call_across) = (begin("beside", 0), begin("across", 0));
    beside.gate.reached().await?;
    across.gate.reached().await?;
    let call = begin("writer", 1);
    writer.gate.reached().await?;
    beside.gate.open.add_permits(1);
    assert!(call_beside.await??["changelog_id"].is_number());

    let dead = Dead::kill(&database.postgres)?;
    eventually("the store is known to be down", async || Ok(latest(&office).await?.is_none())).await?;
    writer.gate.open.add_permits(1);
    let answer = call.await??;
    assert!(answer["isError"] != true && answer["changelog_id"].is_null(), "{answer}");
    drop(dead);
    eventually("the store is back", async || Ok(latest(&office).await?.is_some())).await?;
    across.gate.open.add_permits(1);
    assert!(call_across.await??["changelog_id"].is_number());

    let windows = windows(&office.events().await?)?;
    let rows = changelog(&office).await?;
    assert_eq!(rows.len(), 2);
    for row in &rows {
        let own = window_of(&windows, row)?;
        let named = actors(row);
        assert!(named.is_empty() || named.contains(&own.event.as_str()), "{own:?} is not named by {row}");
    }
    assert_eq!(actors(&rows[0]).len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_down_at_boot_is_taken_up_when_it_comes() -> Result<()> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let url = format!("postgresql://agentenv:known@127.0.0.1:{port}/agentenv");
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let of_notes = url.parse::<agentenv_gateway::store::StoreUrl>()?.for_schema("notes");
    let notes = notes("notes", &of_notes, &stop).await?;
    let office =
        Office::open_with(Children::Remote, |builder| builder.store(&url).remote("notes", &notes.url))
            .await?;
    let email = || step(&office, None, "send", json!({"to": "dana", "subject": "x", "body": "x"}));
    let answer = email().await?;
    assert!(answer["isError"] != true && answer["changelog_id"].is_null(), "{answer}");
    assert_eq!(step(&office, None, "notes_write", note("too early", 1)).await?["isError"], true);
    let changes = office.http.get(format!("{}/changes", office.url)).send().await?;
    assert_eq!(changes.status(), 503);

    // It draws a password of its own.
    let postgres = PrivatePostgres::start(Some(port)).await?;
    let owner = connect(postgres.url().expose()).await?;
    owner.batch_execute("ALTER ROLE agentenv PASSWORD 'known'").await?;
    let database = Database::of(postgres, url)?;
    database.schema("notes").await?;
    database.store.install("notes").await?;
    let mut written = 0;
    let mut id = Value::Null;
    eventually("ids appear", async || {
        written += 1;
        let answer = step(&office, None, "notes_write", note(&format!("note {written}"), 1)).await?;
        ensure!(answer["isError"] != true, "{answer}");
        id = answer["changelog_id"].clone();
        Ok(id.is_number())
    })
    .await?;
    assert_eq!(id, written);
    assert_eq!(email().await?["changelog_id"], written);
    let again = step(&office, None, "notes_write", note("at last", 1)).await?;
    assert_eq!(again["changelog_id"], written + 1);
    let (windows, rows) = (windows(&office.events().await?)?, changelog(&office).await?);
    let texts: Vec<_> = rows.iter().map(text_of).collect::<Result<_>>()?;
    let wanted = (1..=written).map(|note| format!("note {note}")).chain(["at last".to_owned()]);
    assert_eq!(texts, wanted.collect::<Vec<_>>());
    for row in &rows {
        let own = window_of(&windows, row)?;
        let whole = own.before.is_some() && own.after.is_some();
        // Null may also mean that the changelog was empty.
        let named = actors(row);
        assert!(named == [own.event.as_str()] || named.is_empty() && !whole, "{own:?}: {row}");
    }
    assert_eq!(actors(rows.last().context("no rows")?).len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_changelog_delays_calls_once() -> Result<()> {
    let database = Database::start().await?;
    let (office, _servers) = database.office(Mode::Performance, &["notes"]).await?;
    assert_eq!(step(&office, None, "notes_write", note("one", 1)).await?["changelog_id"], 1);
    let email = || step(&office, None, "send", json!({"to": "dana", "subject": "x", "body": "x"}));
    let locker = connect(&database.url).await?;
    locker.batch_execute("BEGIN; LOCK TABLE public._changelog IN ACCESS EXCLUSIVE MODE").await?;
    let began = Instant::now();
    let (one, two, three) = tokio::try_join!(email(), email(), email())?;
    assert!(began.elapsed() < LATE, "the first calls took {:?}", began.elapsed());
    for answer in [one, two, three] {
        assert!(answer["isError"] != true && answer["changelog_id"].is_null(), "{answer}");
    }
    // It is asked again, and whoever calls then does not wait for the answer.
    let watcher = connect(&database.url).await?;
    let sql = "SELECT max(pid) FROM pg_stat_activity
        WHERE application_name = 'agentenv-gateway' AND wait_event_type = 'Lock' AND pid <> $1";
    let (mut attempt, mut took) = (0, Vec::new());
    while took.len() < 2 {
        eventually("the store is asked again", async || {
            let row = watcher.query_one(sql, &[&attempt]).await?;
            Ok(row.get::<_, Option<i32>>(0).inspect(|pid| attempt = *pid).is_some())
        })
        .await?;
        let began = Instant::now();
        assert!(email().await?["changelog_id"].is_null());
        took.push(began.elapsed());
    }
    // An attempt lasts for a second, and one of them was met at its beginning.
    assert!(took.iter().min() < Some(&Duration::from_millis(500)), "later calls took {took:?}");
    locker.batch_execute("COMMIT").await?;
    eventually("ids are back", async || Ok(email().await?["changelog_id"] == 1)).await?;
    assert_eq!(step(&office, None, "notes_write", note("two", 1)).await?["changelog_id"], 2);
    Ok(())
}
