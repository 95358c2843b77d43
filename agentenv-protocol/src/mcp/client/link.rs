//! Which era a server speaks and which session is open with it: found once, kept, and found again when it is lost. One
//! attempt at a time, shared by all who wait for it. What is asked of the server then is left to `client`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{timeout, timeout_at};

use super::super::headers::MCP_SESSION;
use super::super::{SESSION_VERSIONS, STATELESS};
use super::error::{ClientError, ErrorKind, Sent};
use super::request::{self, Era, Outgoing};
use super::{Inner, Reconnected, deadline_in};
use crate::json::RawJson;

/// How long a caller waits for a server whose last attempt ended in silence, while one more attempt goes on.
const PATIENCE_WITH_THE_SILENT: Duration = Duration::from_secs(1);

/// What was found out about a server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) era: Era,
    pub(super) version: &'static str,
    /// The headers of every message.
    pub(super) headers: HeaderMap,
    /// The life of the server, where it names one.
    pub(super) instance: Option<HeaderValue>,
}

impl Link {
    /// The session's key, where the server gave one.
    pub(super) fn session(&self) -> Option<&HeaderValue> {
        self.headers.get(MCP_SESSION)
    }

    pub(super) fn is_session_era(&self) -> bool {
        matches!(self.era, Era::Session)
    }
}

/// Why a link was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) reason: &'static str,
    /// Whether the server may be another one, its state gone, even if it speaks as before.
    pub(super) grave: bool,
}

impl Loss {
    /// Whether what follows is to be told of as a reconnection. A server that names its lives says itself whether it is.
    fn tells(self, lost: &Link, found: &Link) -> bool {
        match (&lost.instance, &found.instance) {
            (Some(before), Some(now)) => before != now,
            _ => self.grave || lost.is_session_era() != found.is_session_era(),
        }
    }
}

type Flight = Shared<BoxFuture<'static, Result<Arc<Link>, ClientError>>>;

/// What a client knows of its server, over all its lives.
#[derive(Debug, Default)]
pub(super) struct Links {
    current: ArcSwapOption<Link>,
    /// A reconnection that nobody has been told of.
    news: ArcSwapOption<Reconnected>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The attempt under way.
    flight: Option<Flight>,
    /// The link that was lost, and why.
    lost: Option<(Arc<Link>, Loss)>,
    /// Whether the last attempt ended in silence rather than in a refusal.
    silent: bool,
}

impl Links {
    pub(super) fn current(&self) -> Option<Arc<Link>> {
        self.current.load_full()
    }

    /// What is to be told of a reconnection, once.
    pub(super) fn news(&self) -> Option<Reconnected> {
        self.news.load().as_ref()?;
        self.news.swap(None).map(Arc::unwrap_or_clone)
    }

    /// Gives a link up, unless somebody else has done so.
    pub(super) fn lose(&self, link: &Arc<Link>, loss: Loss) {
        let mut state = self.lock();
        if self.current.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            self.current.store(None);
            state.lost = Some((Arc::clone(link), loss));
        }
    }

    /// Takes note of the life that an answer names.
    pub(super) fn saw(&self, link: &Arc<Link>, instance: Option<&HeaderValue>) {
        if instance == link.instance.as_ref() {
            return;
        }
        let _state = self.lock();
        let is_current = self.current.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, link));
        if let (true, Some(instance)) = (is_current, instance) {
            self.current.store(Some(Arc::new(Link {
                era: link.era.clone(),
                version: link.version,
                headers: link.headers.clone(),
                instance: Some(instance.clone()),
            })));
            if link.instance.is_some() {
                self.news.store(Some(Arc::new(Reconnected { reason: "the server restarted" })));
            }
        }
    }

    /// Forgets everything; gives what was known last.
    pub(super) fn close(&self) -> Option<Arc<Link>> {
        self.lock().lost = None;
        self.current.swap(None)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The link, waiting for the attempt under way to find it, or beginning one.
    pub(super) async fn link(self: &Arc<Self>) -> Result<Arc<Link>, ClientError> {
        if let Some(link) = self.links.current() {
            return Ok(link);
        }
        let (flight, silent) = {
            let mut state = self.links.lock();
            if let Some(link) = self.links.current() {
                return Ok(link);
            }
            let flight = state.flight.get_or_insert_with(|| self.begin());
            (flight.clone(), state.silent)
        };
        if !silent {
            return flight.await;
        }
        let late = || ClientError::timeout(Sent::No, "the server does not answer; it is being tried again");
        timeout(PATIENCE_WITH_THE_SILENT, flight).await.unwrap_or_else(|_| Err(late()))
    }

    /// Begins an attempt, in a task of its own so that no caller's end cuts it short. It ends within the discovery time.
    fn begin(self: &Arc<Self>) -> Flight {
        let inner = Arc::clone(self);
        let task = tokio::spawn(async move {
            let found = inner.establish().await;
            inner.settle(found)
        });
        let inner = Arc::clone(self);
        let flight = async move {
            task.await.unwrap_or_else(|error| {
                // The runtime that it ran on is gone, and cannot say so itself.
                inner.links.lock().flight = None;
                let error = Box::<dyn std::error::Error + Send + Sync>::from(error);
                Err(ClientError::broke("connecting was cut short").with_sent(Sent::No).with_source(error))
            })
        };
        flight.boxed().shared()
    }

    /// Ends an attempt: what it found is there before anybody hears of it.
    fn settle(&self, found: Result<Link, ClientError>) -> Result<Arc<Link>, ClientError> {
        let mut state = self.links.lock();
        state.flight = None;
        state.silent = matches!(&found, Err(error) if error.is_silence());
        // Nothing of the caller's own request has been sent yet.
        let link = found.map_err(|error| error.with_sent(Sent::No))?;
        if let Some((lost, loss)) = state.lost.take()
            && loss.tells(&lost, &link)
        {
            tracing::info!(server = ?self.host_header, reason = loss.reason, "reconnected");
            self.links.news.store(Some(Arc::new(Reconnected { reason: loss.reason })));
        }
        let link = Arc::new(link);
        self.links.current.store(Some(Arc::clone(&link)));
        Ok(link)
    }

    async fn establish(&self) -> Result<Link, ClientError> {
        let deadline = deadline_in(self.options.discovery);
        // A server that swallows what it does not know leaves time for the other era.
        let discovered = match timeout(self.options.discovery / 3, self.discover()).await {
            Ok(Err(error)) if *error.kind() == ErrorKind::Unreachable => return Err(error),
            Ok(discovered) => discovered,
            Err(_) => Err(ClientError::timeout(Sent::Maybe, "no answer to server/discover")),
        };
        match discovered {
            Ok(Some(link)) => return Ok(link),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "not a stateless server"),
        }
        timeout_at(deadline, self.initialize()).await.unwrap_or_else(|_| {
            Err(ClientError::timeout(Sent::Maybe, "the server does not answer the attempt to open a session"))
        })
    }

    fn base_headers(&self, version: &'static str, session: Option<HeaderValue>) -> HeaderMap {
        request::base_headers(&self.options.headers, &self.host_header, version, session)
    }

    /// Asks for the stateless era. `None` where the server speaks others only.
    async fn discover(&self) -> Result<Option<Link>, ClientError> {
        let era = Era::stateless(&self.options.client_name, &self.options.client_version);
        let headers = self.base_headers(STATELESS, None);
        let link = Link { era, version: STATELESS, headers, instance: None };
        let answer = self.ask(&link, &Outgoing::new("server/discover", &[])).await;
        let versions = supported_versions(answer.result?.as_str());
        let found = versions.iter().any(|version| version == STATELESS);
        Ok(found.then_some(Link { instance: answer.instance, ..link }))
    }

    /// Opens a session.
    async fn initialize(&self) -> Result<Link, ClientError> {
        let newest = SESSION_VERSIONS[0];
        let text = |value: serde_json::Value| value.to_string();
        let (version, info) = (
            text(json!(newest)),
            text(json!({"name": self.options.client_name, "version": self.options.client_version})),
        );
        let params = [("protocolVersion", &*version), ("capabilities", "{}"), ("clientInfo", &*info)];
        let headers = self.base_headers(newest, None);
        let link = Link { era: Era::Session, version: newest, headers, instance: None };
        let answer = self.ask(&link, &Outgoing::new("initialize", &params)).await;
        let version = negotiated(&answer.result?)?;
        let headers = self.base_headers(version, answer.session);
        self.tell(&headers, request::notification("notifications/initialized", None)).await?;
        Ok(Link { era: Era::Session, version, headers, instance: answer.instance })
    }
}

/// The versions that a server names in its answer to `server/discover`.
fn supported_versions(result: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Discovered {
        #[serde(rename = "supportedVersions", default)]
        versions: Vec<String>,
    }
    serde_json::from_str(result).map_or_else(|_| Vec::new(), |discovered: Discovered| discovered.versions)
}

/// The version that a server chose for the session.
fn negotiated(result: &RawJson) -> Result<&'static str, ClientError> {
    #[derive(Deserialize)]
    struct Initialized {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    let bad = |message: String| ClientError::bad_answer(http::StatusCode::OK, message);
    let initialized: Initialized = serde_json::from_str(result.as_str())
        .map_err(|_| bad("the server opened a session without a protocol version".into()))?;
    let known = SESSION_VERSIONS.iter().find(|known| **known == initialized.version);
    known.copied().ok_or_else(|| {
        let named: String = initialized.version.chars().take(32).collect();
        bad(format!("the server speaks version '{named}' of the protocol, which this client does not"))
    })
}
