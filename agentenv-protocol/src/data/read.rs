//! Reading a file part's content: inline bytes, a `file://` path, an `http(s)` address (contract 2.2). The size is bounded,
//! and so is the time.

use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt;

use super::part::{FileContent, Part};

/// Most bytes that are read of one file.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// How long a connection to a file's host may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long reading one file may take.
const READ_TIMEOUT: Duration = Duration::from_secs(300);

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// A part whose content could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The address is none, or of a kind that is not read.
    #[error("`{uri}` is not a file://, http:// or https:// address")]
    Address {
        /// The address.
        uri: String,
    },
    /// A local file could not be read.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A remote file could not be read.
    #[error("cannot fetch {uri}")]
    Http {
        /// Its address, without credentials.
        uri: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is more than [`MAX_FILE_BYTES`].
    #[error("{uri} is larger than {MAX_FILE_BYTES} bytes")]
    TooLarge {
        /// Which.
        uri: String,
    },
    /// It took longer than five minutes.
    #[error("reading {uri} took longer than {READ_TIMEOUT:?}")]
    TooSlow {
        /// Which.
        uri: String,
    },
    /// The content is not the JSON that was asked for.
    #[error("{what} does not fit")]
    Unfit {
        /// Which.
        what: String,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A text part where a value was asked for.
    #[error("a text part holds no value")]
    TextPart,
}

impl Part {
    /// The part's content: a file's bytes, wherever they are, a text's, or a data part's JSON.
    ///
    /// # Errors
    /// A file that is not there, too large ([`MAX_FILE_BYTES`]), or too slow.
    pub async fn read(&self) -> Result<Vec<u8>, ReadError> {
        match self {
            Self::Text(part) => Ok(part.text.clone().into_bytes()),
            Self::Data(part) => Ok(part.data.raw().get().as_bytes().to_vec()),
            Self::File(part) => match &part.content {
                FileContent::Bytes(bytes) => Ok(bytes.clone()),
                FileContent::Uri(uri) => {
                    let read = tokio::time::timeout(READ_TIMEOUT, fetch(uri));
                    read.await.unwrap_or_else(|_| Err(ReadError::TooSlow { uri: shown(uri) }))
                }
            },
        }
    }

    /// The part's content as a value: a data part's object, or the JSON in a file.
    ///
    /// # Errors
    /// As [`read`](Self::read), content that does not fit, and text parts.
    pub async fn parse<T: DeserializeOwned>(&self) -> Result<T, ReadError> {
        match self {
            Self::Text(_) => Err(ReadError::TextPart),
            Self::Data(part) => part
                .data
                .parse()
                .map_err(|source| ReadError::Unfit { what: "the part's data".to_owned(), source }),
            Self::File(part) => {
                let read;
                let bytes = match &part.content {
                    FileContent::Bytes(bytes) => bytes,
                    FileContent::Uri(_) => {
                        read = self.read().await?;
                        &read
                    }
                };
                let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
                serde_json::from_slice(bytes).map_err(|source| ReadError::Unfit { what: self.name(), source })
            }
        }
    }

    /// What to call the part in an error.
    fn name(&self) -> String {
        match self {
            Self::File(file) => match (&file.name, &file.content) {
                (Some(name), _) => name.clone(),
                (None, FileContent::Uri(uri)) => shown(uri),
                (None, FileContent::Bytes(_)) => "the file".to_owned(),
            },
            Self::Data(_) => "the part's data".to_owned(),
            Self::Text(_) => "the part's text".to_owned(),
        }
    }
}

/// An address without what may be secret in it.
fn shown(uri: &str) -> String {
    match url::Url::parse(uri) {
        Ok(mut url) => {
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.set_fragment(None);
            url.into()
        }
        Err(_) => uri.to_owned(),
    }
}

async fn fetch(uri: &str) -> Result<Vec<u8>, ReadError> {
    let address = || ReadError::Address { uri: shown(uri) };
    let url = url::Url::parse(uri).map_err(|_| address())?;
    match url.scheme() {
        "file" => read_file(uri, url.to_file_path().map_err(|()| address())?).await,
        "http" | "https" => read_http(uri, url).await,
        _ => Err(address()),
    }
}

async fn read_file(uri: &str, path: PathBuf) -> Result<Vec<u8>, ReadError> {
    let failed = |source| ReadError::File { path: path.clone(), source };
    // Asked before it is opened: opening a pipe that nobody writes to would wait.
    let metadata = tokio::fs::metadata(&path).await.map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(ReadError::TooLarge { uri: shown(uri) });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    let file = tokio::fs::File::open(&path).await.map_err(failed)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).await.map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ReadError::TooLarge { uri: shown(uri) });
    }
    Ok(bytes)
}

async fn read_http(uri: &str, url: url::Url) -> Result<Vec<u8>, ReadError> {
    let failed = |source| ReadError::Http { uri: shown(uri), source };
    let client = crate::http_client::build(|builder| {
        builder.connect_timeout(CONNECT_TIMEOUT).redirect(reqwest::redirect::Policy::limited(MAX_REDIRECTS))
    });
    let client = client.map_err(|error| failed(error.into()))?;
    let answer = client.get(url).send().await.and_then(reqwest::Response::error_for_status);
    let mut answer = answer.map_err(|error| failed(error.without_url().into()))?;
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| failed(error.without_url().into()))? {
        if bytes.len() as u64 + chunk.len() as u64 > MAX_FILE_BYTES {
            return Err(ReadError::TooLarge { uri: shown(uri) });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
