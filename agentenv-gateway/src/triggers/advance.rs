//! Moves virtual time ahead (`POST /clock/advance`): from mark to mark, each fired at its instant and done before the next.

use std::sync::Arc;

use serde_json::{Value, json};

use super::driver::Driver;
use super::schedule::parse_duration;
use crate::clock::ClockRefusal;

/// Most marks that are fired before it stops early. Fewer where this is tested, for it is a number like any other.
const MAX_MARKS: usize = if cfg!(test) { 5_000 } else { 100_000 };

/// Moves time ahead by `{"by": duration}`.
pub(crate) async fn advance(driver: &Arc<Driver>, body: &Value) -> Result<Value, ClockRefusal> {
    let by = parse(body).map_err(ClockRefusal::Invalid)?;
    // An async lock, because whoever moves time waits for what falls due; a second one must wait for all of it.
    let _turn = driver.advancing.lock().await;
    let off = || ClockRefusal::Conflict("clock not armed".to_owned());
    let hold = driver.clock.hold().ok_or_else(off)?;
    let start = driver.clock.now().ok_or_else(off)?;
    let target =
        start.checked_add(by).ok_or_else(|| ClockRefusal::Invalid("by would pass year 9999".to_owned()))?;
    let gone =
        || ClockRefusal::Conflict("the clock was armed or cleared while it was being moved ahead".to_owned());
    // What calls have set off so far belongs to the time before.
    let before = driver.with(|engine, _| {
        engine.await_all();
        engine.marks()
    });
    let mut complete = true;
    loop {
        done(driver).await?;
        let ((due, later), marks) = driver.look(|engine, _| (engine.next_due(), engine.marks()));
        let Some(next) = due.filter(|due| *due <= target).or(later.map(|_| start)) else { break };
        if marks - before >= MAX_MARKS {
            complete = false;
            break;
        }
        if !hold.move_to(next) {
            return Err(gone());
        }
        driver.with(|engine, now| engine.tick(now, true));
    }
    if complete && !hold.move_to(target) {
        return Err(gone());
    }
    drop(hold);
    let mut state = driver.clock.state();
    state["fired"] = json!(driver.look(|engine, _| engine.marks()) - before);
    state["complete"] = json!(complete);
    Ok(state)
}

/// Waits until everything has been done that must be before the clock is moved on.
async fn done(driver: &Arc<Driver>) -> Result<(), ClockRefusal> {
    let mut awaited = driver.awaited.subscribe();
    tokio::select! {
        _ = awaited.wait_for(|awaited| *awaited == 0) => Ok(()),
        () = driver.ending() => Err(ClockRefusal::Conflict("the instance is being shut down".to_owned())),
    }
}

fn parse(body: &Value) -> Result<i64, String> {
    let Value::Object(body) = body else { return Err("request body must be a JSON object".to_owned()) };
    let Some(by) = body.get("by").and_then(Value::as_str) else {
        return Err("by must be a duration such as PT1H".to_owned());
    };
    parse_duration(by).map_err(|problem| format!("by: {problem}"))
}
