//! Reading a request's body up to a limit.

use std::pin::pin;
use std::time::Duration;

use axum::BoxError;
use bytes::Bytes;
use futures_util::FutureExt;
use http::StatusCode;
use http_body::Body;

use crate::pieces::{Ungathered, gather};

/// How long a body that is read whole may take.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(300);

/// A body that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyFault {
    /// It is larger than this many bytes.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// It was not there within [`BODY_TIMEOUT`].
    #[error("the body took longer than {} s", BODY_TIMEOUT.as_secs())]
    TooSlow,
    /// It broke off.
    #[error("the body could not be read: {0}")]
    Broken(String),
}

impl BodyFault {
    /// The HTTP status that says so.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// Reads a body of at most `limit` bytes. No more than that is ever held.
///
/// # Errors
/// [`BodyFault`]
pub async fn read_body<B>(body: B, limit: usize) -> Result<Bytes, BodyFault>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let mut body = pin!(body);
    let mut whole = pin!(gather(&mut body, limit));
    // Most bodies come with their heads, and a timer costs more than to read one.
    let read = match whole.as_mut().now_or_never() {
        Some(read) => Ok(read),
        None => tokio::time::timeout(BODY_TIMEOUT, whole).await,
    };
    match read {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(Ungathered::TooLarge)) => Err(BodyFault::TooLarge(limit)),
        Ok(Err(Ungathered::Broken(error))) => Err(BodyFault::Broken(error.into().to_string())),
        Err(_) => Err(BodyFault::TooSlow),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_has_its_time_and_its_size() {
        let pieces = |pause: u64| {
            Body::from_stream(futures_util::stream::unfold((), move |()| async move {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), ()))
            }))
        };
        assert_eq!(read_body(pieces(10), 1000).await, Err(BodyFault::TooSlow));
        assert_eq!(read_body(pieces(10), 20).await, Err(BodyFault::TooLarge(20)));
        assert_eq!(read_body(Body::from("four"), 4).await, Ok(Bytes::from_static(b"four")));
        assert_eq!(read_body(Body::from("four"), 3).await, Err(BodyFault::TooLarge(3)));
    }
}
