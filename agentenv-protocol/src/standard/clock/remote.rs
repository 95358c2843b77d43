//! Reading a gateway's clock over HTTP, and reckoning the time between two readings.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use crate::error::ToolError;
use crate::time::DateTime;

/// How long connecting to the gateway may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long reading its clock may take.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest answer that is read.
const MAX_ANSWER: usize = 64 * 1024;

/// Where the speed is reported, next to `/clock/time`.
const TIME_PATH: &str = "/clock/time";
const STATE_PATH: &str = "/clock/state";

/// A gateway's clock.
#[derive(Debug)]
pub(super) struct Remote {
    client: reqwest::Client,
    time: Url,
    state: Option<Url>,
    last: Mutex<Reading>,
    /// One reading at a time; who comes meanwhile shares it.
    reading: tokio::sync::Mutex<()>,
}

/// What the clock said.
#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    /// None while it is off.
    shown: Option<DateTime>,
    /// Virtual seconds for each real one; none where the gateway does not say, and then the reading is good for that moment.
    speed: Option<f64>,
}

#[derive(Deserialize)]
struct State {
    armed: bool,
    virtual_time: Option<DateTime>,
    virtual_seconds_per_real_second: Option<f64>,
}

#[derive(Deserialize)]
struct Time {
    virtual_time: DateTime,
}

impl Remote {
    /// A clock that has been read once.
    pub(super) async fn connect(url: &str) -> Result<Self, ToolError> {
        let unfit = |why: String| ToolError::new("invalid_params", format!("`env_get_time_url`: {why}"));
        let time = Url::parse(url).map_err(|error| unfit(error.to_string()))?;
        if !matches!(time.scheme(), "http" | "https") {
            return Err(unfit("not an http:// or https:// address".to_owned()));
        }
        let state = time.path().strip_suffix(TIME_PATH).map(|base| {
            let mut state = time.clone();
            state.set_path(&format!("{base}{STATE_PATH}"));
            state
        });
        let client = crate::http_client::build(|builder| {
            builder
                .connect_timeout(CONNECT_TIMEOUT)
                .timeout(READ_TIMEOUT)
                .redirect(reqwest::redirect::Policy::none())
        });
        let client = client.map_err(|error| unreachable(&error.to_string()))?;
        let never = Reading { at: Instant::now(), shown: None, speed: None };
        let remote =
            Self { client, time, state, last: Mutex::new(never), reading: tokio::sync::Mutex::new(()) };
        let reading = remote.read().await.map_err(|why| unreachable(&why))?;
        remote.keep(reading);
        Ok(remote)
    }

    pub(super) fn url(&self) -> &str {
        self.time.as_str()
    }

    /// The time it shows, from a reading that is not older than this; none while it is off.
    pub(super) async fn now(&self, max_age: Duration) -> Option<DateTime> {
        if let Some(time) = self.last().reckon(max_age) {
            return time;
        }
        let _one_at_a_time = self.reading.lock().await;
        if let Some(time) = self.last().reckon(max_age) {
            return time;
        }
        match self.read().await {
            Ok(reading) => {
                self.keep(reading);
                reading.extrapolate()
            }
            Err(why) => {
                tracing::warn!(
                    url = self.url(),
                    why,
                    "the gateway's clock cannot be read; going on from the last reading"
                );
                self.last().extrapolate()
            }
        }
    }

    fn last(&self) -> Reading {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, reading: Reading) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    }

    async fn read(&self) -> Result<Reading, String> {
        if let Some(url) = &self.state
            && let Ok((200, at, body)) = self.get(url).await
            && let Ok(state) = serde_json::from_slice::<State>(&body)
            && (!state.armed || state.virtual_time.is_some())
        {
            let shown = state.virtual_time.filter(|_| state.armed);
            let speed = if state.armed { state.virtual_seconds_per_real_second } else { Some(0.0) };
            return Ok(Reading { at, shown, speed });
        }
        match self.get(&self.time).await? {
            (200, at, body) => {
                let time: Time = serde_json::from_slice(&body)
                    .map_err(|error| format!("no time in its answer: {error}"))?;
                Ok(Reading { at, shown: Some(time.virtual_time), speed: None })
            }
            // Off, as contract 6 says it.
            (404, at, _) => Ok(Reading { at, shown: None, speed: Some(0.0) }),
            (status, _, _) => Err(format!("it answers {status}")),
        }
    }

    /// An answer's status and body, and when it was given.
    async fn get(&self, url: &Url) -> Result<(u16, Instant, Vec<u8>), String> {
        let failed = |error: reqwest::Error| crate::error::describe(&error.without_url());
        let asked = Instant::now();
        let mut answer = self.client.get(url.clone()).send().await.map_err(failed)?;
        // The gateway read its clock somewhere between: taken to be half way.
        let at = asked + asked.elapsed() / 2;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err("its answer is too long".to_owned());
            }
            body.extend_from_slice(&chunk);
        }
        Ok((answer.status().as_u16(), at, body))
    }
}

impl Reading {
    /// The time now, if the reading is still good for it.
    fn reckon(&self, max_age: Duration) -> Option<Option<DateTime>> {
        let good = self.speed.is_some() && self.at.elapsed() < max_age;
        good.then(|| self.extrapolate())
    }

    fn extrapolate(&self) -> Option<DateTime> {
        let gone = self.at.elapsed().as_secs_f64() * self.speed.unwrap_or(1.0);
        self.shown.map(|shown| shown.after_seconds(gone))
    }
}

fn unreachable(why: &str) -> ToolError {
    let message = format!("the gateway's clock cannot be read: {why}");
    ToolError::new("clock_unreachable", message).retryable().with_status(502)
}
