//! What may be tried again, and what a failure says of the link: the one place where both are decided (contract 3.3).

use std::sync::Arc;

use http::StatusCode;

use super::super::SESSION_VERSIONS;
use super::Inner;
use super::error::{ClientError, ErrorKind, Sent};
use super::link::{Link, Loss};
use crate::rpc;

/// What has been tried again for one request: each at most once.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// On another connection.
    connection: bool,
    /// In another session, or another era.
    link: bool,
    /// A refusal that another era might not give, and the version that was spoken.
    refusal: Option<(ClientError, &'static str)>,
}

impl Inner {
    /// Decides what follows a failure: `Ok` to try again over what [`Inner::link`] gives then.
    ///
    /// A request is tried again only if it provably was not acted on: no byte of it left, or the server said that it does not
    /// know the session, or the protocol, that it came in.
    ///
    /// # Errors
    /// The failure, where it is the request's last word.
    pub(super) fn after(
        &self,
        link: &Arc<Link>,
        error: ClientError,
        retries: &mut Retries,
    ) -> Result<(), ClientError> {
        let mut once = |done: fn(&mut Retries) -> &mut bool| !std::mem::replace(done(retries), true);
        if *error.kind() == ErrorKind::Unreachable {
            self.links.lose(link, Loss { reason: "the server could not be reached", grave: true });
            // Silence has taken its time already.
            return if !error.is_silence() && once(|r| &mut r.connection) { Ok(()) } else { Err(error) };
        }
        if error.sent() == Sent::No {
            return if once(|r| &mut r.connection) { Ok(()) } else { Err(error) };
        }
        if forgot_session(link, &error) {
            self.links.lose(link, Loss { reason: "the server forgot the session", grave: true });
            return if once(|r| &mut r.link) { Ok(()) } else { Err(error.with_sent(Sent::No)) };
        }
        if *error.kind() == ErrorKind::Broke && link.session().is_none() {
            // Nothing else will tell whether the server is the same.
            self.links.lose(link, Loss { reason: "the connection broke", grave: true });
        }
        if is_of_another_era(link, &error) && once(|r| &mut r.link) {
            self.links
                .lose(link, Loss { reason: "the server speaks another protocol version", grave: false });
            retries.refusal = Some((error, link.version));
            return Ok(());
        }
        Err(error)
    }
}

impl Retries {
    /// Whether a link is worth the next attempt.
    ///
    /// # Errors
    /// The refusal that the last attempt got, where this link would only get it again.
    pub(super) fn check(&mut self, link: &Link) -> Result<(), ClientError> {
        match self.refusal.take() {
            Some((refusal, version)) if version == link.version => Err(refusal),
            _ => Ok(()),
        }
    }
}

/// Whether the server does not know the session. Some say so with 400 rather than 404.
fn forgot_session(link: &Link, error: &ClientError) -> bool {
    link.session().is_some()
        && match error.status() {
            Some(StatusCode::NOT_FOUND) => true,
            Some(StatusCode::BAD_REQUEST) => {
                error.rpc().is_some_and(|rpc| rpc.message.to_ascii_lowercase().contains("session"))
            }
            _ => false,
        }
}

/// Whether the server refused a message for the protocol that it is in, as one that was exchanged for another does.
fn is_of_another_era(link: &Link, error: &ClientError) -> bool {
    let refused = matches!(
        error.status(),
        Some(
            StatusCode::BAD_REQUEST
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::NOT_ACCEPTABLE
        )
    );
    let about_the_request = error.rpc().is_some_and(|error| {
        matches!(
            error.code,
            rpc::INVALID_PARAMS | rpc::HEADER_MISMATCH | rpc::PARSE_ERROR | rpc::MISSING_CLIENT_CAPABILITY
        )
    });
    let has_eras = link.session().is_none() || !SESSION_VERSIONS.contains(&link.version);
    refused && has_eras && !about_the_request
}
