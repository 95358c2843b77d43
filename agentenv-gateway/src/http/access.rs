//! Agents and harness apart: the control token, the role tokens, and the role that a request has.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentenv_protocol::mcp::{self, RoleFault};
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use base64::Engine;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use sha2::{Digest, Sha256};

use super::Http;
use super::errors::error;
use crate::call::DEFAULT_ROLE;

/// What is asked of callers; nothing unless said. Tokens are kept as digests, so that none is ever printed, and comparing
/// takes the same time wherever they differ.
#[derive(Clone, Default)]
pub struct Access {
    control: Option<[u8; 32]>,
    roles: Arc<BTreeMap<[u8; 32], String>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let roles: Vec<_> = self.roles.values().collect();
        f.debug_struct("Access").field("control", &self.control.is_some()).field("roles", &roles).finish()
    }
}

/// Why a request is turned away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// Its role header names no role.
    #[error(transparent)]
    Role(#[from] RoleFault),
    /// It carries no token that is known.
    #[error("unauthorized")]
    Unauthorized,
}

impl AccessError {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Role(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
        }
    }
}

impl Access {
    /// Asks for this token, as Bearer or as the password of Basic, on every route that is the harness's.
    #[must_use]
    pub fn with_control_token(mut self, token: &str) -> Self {
        self.control = Some(digest(token));
        self
    }

    /// Asks for a bearer token on every route that is an agent's, which then decides the role, whatever the header says.
    #[must_use]
    pub fn with_role_tokens<'a>(
        mut self,
        tokens: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Self {
        self.roles =
            Arc::new(tokens.into_iter().map(|(role, token)| (digest(token), role.clone())).collect());
        self
    }

    /// The role of a request to an agent's route.
    ///
    /// # Errors
    /// [`AccessError`]
    pub fn role(&self, headers: &HeaderMap) -> Result<String, AccessError> {
        if self.roles.is_empty() {
            return Ok(mcp::role(headers)?.unwrap_or(DEFAULT_ROLE).to_owned());
        }
        let token = token(headers).map(|token| digest(&token));
        token.and_then(|token| self.roles.get(&token)).cloned().ok_or(AccessError::Unauthorized)
    }

    /// The role of a request to a route of the harness, which may name any: it has shown the control token where one is asked.
    ///
    /// # Errors
    /// [`AccessError::Role`]
    pub fn harness_role(&self, headers: &HeaderMap) -> Result<String, AccessError> {
        let known = token(headers).and_then(|token| self.roles.get(&digest(&token)).cloned());
        match known {
            Some(role) => Ok(role),
            None => Ok(mcp::role(headers)?.unwrap_or(DEFAULT_ROLE).to_owned()),
        }
    }

    /// Whether agents must show by a token what role they have.
    pub(super) fn asks_roles(&self) -> bool {
        !self.roles.is_empty()
    }

    /// Whether the harness's routes ask for a token at all.
    pub(super) fn asks_control(&self) -> bool {
        self.control.is_some()
    }

    /// Whether a request may use the harness's routes.
    fn is_harness(&self, headers: &HeaderMap) -> bool {
        self.control.is_none_or(|control| token(headers).is_some_and(|token| digest(&token) == control))
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// A Bearer token, or the password of Basic.
fn token(headers: &HeaderMap) -> Option<String> {
    let (scheme, rest) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(rest.trim()).ok()?;
    String::from_utf8(bytes).ok()?.split_once(':').map(|(_, password)| password.to_owned())
}

/// Lets only the harness by.
pub(super) async fn harness_only(
    State(http): State<Arc<Http>>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    if http.access.is_harness(request.headers()) {
        return next.run(request).await;
    }
    let mut response = error(StatusCode::UNAUTHORIZED, "unauthorized");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer, Basic"));
    response
}

/// Keeps out what a browser sends for a page of elsewhere: no body of these routes needs a content type that a browser would
/// ask about first. Websites are pages themselves, and `/mcp` sees to it itself (contract 2.3).
pub(super) async fn no_page_of_elsewhere(
    State(http): State<Arc<Http>>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    if mcp::origin_is_allowed(request.headers(), &http.allowed_origins) {
        return next.run(request).await;
    }
    error(StatusCode::FORBIDDEN, "the Origin is not allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn the_control_token() {
        let access = Access::default().with_control_token("s3cret");
        let basic = base64::engine::general_purpose::STANDARD.encode("harness:s3cret");
        assert!(access.is_harness(&with(header::AUTHORIZATION, "Bearer s3cret")));
        assert!(access.is_harness(&with(header::AUTHORIZATION, &format!("basic {basic}"))));
        for wrong in ["Bearer s3cre", "Bearer s3cretx", "s3cret", "Bearer", "Digest s3cret", "Basic !!"] {
            assert!(!access.is_harness(&with(header::AUTHORIZATION, wrong)), "{wrong}");
        }
        assert!(!access.is_harness(&HeaderMap::new()));
        assert!(Access::default().is_harness(&HeaderMap::new()));
        assert!(!format!("{access:?}").contains("s3cret"));
    }

    #[test]
    fn a_role_token_decides_the_role() {
        let tokens = BTreeMap::from([("intern".to_owned(), "t1".to_owned())]);
        let access = Access::default().with_role_tokens(&tokens);
        let mut headers = with(header::AUTHORIZATION, "Bearer t1");
        headers.insert(mcp::ROLE_HEADER, HeaderValue::from_static("manager"));
        assert_eq!(access.role(&headers), Ok("intern".to_owned()));
        assert_eq!(access.role(&with(mcp::ROLE_HEADER, "intern")), Err(AccessError::Unauthorized));
        assert_eq!(Access::default().role(&with(mcp::ROLE_HEADER, " x ")), Ok("x".to_owned()));
        assert_eq!(Access::default().role(&HeaderMap::new()), Ok(DEFAULT_ROLE.to_owned()));
    }
}
