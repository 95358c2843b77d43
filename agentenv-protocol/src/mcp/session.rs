//! The sessions of the session protocol: small entries in a bounded map that expire. What a session's calls do is left to
//! the service; nothing but the wire hangs on a session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long a session may lie unused before its entry goes.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// Most sessions at a time; one more is refused with 503 until one ends or expires.
pub const SESSION_LIMIT: usize = 16_384;

/// How seldom expired entries are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    /// What its callers are told apart by.
    pub(crate) key: Arc<str>,
    /// Whose it is, where callers show who they are.
    owner: Option<Box<str>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    used: Instant,
    log_level: Option<u8>,
    /// The calls under way that their caller may cancel, by the request id's text. Ids need not be unique.
    calls: Vec<(Arc<str>, CancellationToken)>,
}

impl Session {
    fn state<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a call that can be cancelled by its id.
    pub(crate) fn begin(&self, id: Arc<str>, cancel: &CancellationToken) {
        self.state(|s| s.calls.push((id, cancel.clone())));
    }

    /// Forgets one call of this id, and counts as use: a session does not expire under a long call's answer.
    pub(crate) fn end(&self, id: &str) {
        self.state(|s| {
            if let Some(at) = s.calls.iter().position(|(other, _)| **other == *id) {
                s.calls.swap_remove(at);
            }
            s.used = Instant::now();
        });
    }

    /// Cancels the calls of this id.
    pub(crate) fn cancel(&self, id: &str) {
        self.state(|s| {
            s.calls.iter().filter(|(other, _)| **other == *id).for_each(|(_, token)| token.cancel())
        });
    }

    /// The least severe level of log messages that the session asked for.
    pub(crate) fn log_level(&self) -> Option<u8> {
        self.state(|s| s.log_level)
    }

    pub(crate) fn set_log_level(&self, level: u8) {
        self.state(|s| s.log_level = Some(level));
    }

    fn expired(&self, now: Instant) -> bool {
        self.state(|s| s.expired(now))
    }

    /// Begins its idle time anew, unless it has expired.
    fn touch(&self, now: Instant) -> bool {
        self.state(|s| {
            let live = !s.expired(now);
            if live {
                s.used = now;
            }
            live
        })
    }
}

impl State {
    fn expired(&self, now: Instant) -> bool {
        self.calls.is_empty() && now.duration_since(self.used) >= SESSION_IDLE
    }
}

/// Every session of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_id: HashMap<Uuid, Arc<Session>>,
    swept: Option<Instant>,
}

impl Sessions {
    fn inner<T>(&self, with: impl FnOnce(&mut Inner) -> T) -> T {
        with(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens a session, unless there are too many. `key` makes its key of its id.
    pub(crate) fn open(&self, owner: Option<&str>, key: impl FnOnce(&str) -> Arc<str>) -> Option<Uuid> {
        let now = Instant::now();
        self.inner(|inner| {
            let due = inner.swept.is_none_or(|at| now.duration_since(at) >= SWEEP);
            if due || inner.by_id.len() >= SESSION_LIMIT {
                inner.swept = Some(now);
                inner.by_id.retain(|_, session| !session.expired(now));
                if inner.by_id.capacity() > 4 * inner.by_id.len() + 64 {
                    inner.by_id.shrink_to_fit();
                }
            }
            if inner.by_id.len() >= SESSION_LIMIT {
                return None;
            }
            let id = Uuid::new_v4();
            let state = State { used: now, log_level: None, calls: Vec::new() };
            let key = key(&id.to_string());
            let session = Session { key, owner: owner.map(Into::into), state: Mutex::new(state) };
            inner.by_id.insert(id, Arc::new(session));
            Some(id)
        })
    }

    /// The session of an id as a client wrote it, its idle time begun anew. Another's is as good as none.
    pub(crate) fn find(&self, id: &str, owner: Option<&str>) -> Option<Arc<Session>> {
        let id = Uuid::try_parse(id).ok()?;
        let now = Instant::now();
        self.inner(|inner| {
            let session = inner.by_id.get(&id).filter(|session| session.owner.as_deref() == owner)?;
            if session.touch(now) {
                return Some(Arc::clone(session));
            }
            inner.by_id.remove(&id);
            None
        })
    }

    /// Ends a session and cancels its calls. Whether there was one.
    pub(crate) fn close(&self, id: &str, owner: Option<&str>) -> bool {
        let Some(session) = self.find(id, owner) else { return false };
        if let Ok(id) = Uuid::try_parse(id) {
            self.inner(|inner| inner.by_id.remove(&id));
        }
        session.state(|s| s.calls.iter().for_each(|(_, token)| token.cancel()));
        true
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.inner(|inner| inner.by_id.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_sessions_go() {
        let sessions = Sessions::default();
        let ids: Vec<_> = (0..10_000).map(|_| sessions.open(None, |id| id.into()).unwrap()).collect();
        tokio::time::advance(SESSION_IDLE - Duration::from_secs(1)).await;
        assert!(sessions.find(&ids[0].to_string(), None).is_some());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(sessions.find(&ids[1].to_string(), None).is_none());
        sessions.open(None, |id| id.into()).unwrap();
        assert_eq!(sessions.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_keeps_its_session() {
        let sessions = Sessions::default();
        let id = sessions.open(None, |id| id.into()).unwrap().to_string();
        let session = sessions.find(&id, None).unwrap();
        session.begin("1".into(), &CancellationToken::new());
        tokio::time::advance(SESSION_IDLE * 2).await;
        session.end("1");
        assert!(sessions.find(&id, None).is_some());
    }

    #[tokio::test]
    async fn the_number_is_bounded() {
        let sessions = Sessions::default();
        for _ in 0..SESSION_LIMIT {
            sessions.open(None, |id| id.into()).unwrap();
        }
        assert!(sessions.open(None, |id| id.into()).is_none());
    }

    #[tokio::test]
    async fn cancels_by_id_and_at_the_end() {
        let sessions = Sessions::default();
        let id = sessions.open(None, |id| id.into()).unwrap().to_string();
        let session = sessions.find(&id, None).unwrap();
        let (a, b) = (CancellationToken::new(), CancellationToken::new());
        session.begin("1".into(), &a);
        session.begin("\"1\"".into(), &b);
        session.cancel("1");
        assert!(a.is_cancelled() && !b.is_cancelled());
        assert!(sessions.close(&id, None) && b.is_cancelled());
        assert!(!sessions.close(&id, None) && sessions.find(&id, None).is_none());
    }

    #[tokio::test]
    async fn anothers_session_is_none() {
        let sessions = Sessions::default();
        let id = sessions.open(Some("a"), |id| id.into()).unwrap().to_string();
        assert!(sessions.find(&id, None).is_none() && sessions.find(&id, Some("b")).is_none());
        assert!(!sessions.close(&id, Some("b")) && sessions.find(&id, Some("a")).is_some());
        assert!(sessions.close(&id, Some("a")));
    }
}
