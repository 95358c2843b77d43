//! The address of a Postgres: parsed once, never shown with its password. What is done with it is left to `session`.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;
use tokio_postgres::config::SslMode;

/// What stays readable in the `options` parameter; everything else is percent-encoded.
const IN_OPTIONS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b',').remove(b'~');

/// The address of a Postgres, as `SERVICE_DB_URL` gives it (contract 3.1): `postgresql://user:password@host:port/db`.
///
/// `Debug` and `Display` leave out the password and the parameters, so that it may be logged.
///
/// ```
/// use agentenv_gateway::store::StoreUrl;
///
/// let url: StoreUrl = "postgresql://agentenv:s3cret@db:5432/agentenv".parse().unwrap();
/// assert_eq!(url.to_string(), "postgresql://agentenv@db:5432/agentenv");
/// assert_eq!(
///     url.for_schema("email"),
///     "postgresql://agentenv:s3cret@db:5432/agentenv?options=-c%20search_path%3D%22email%22,public"
/// );
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    config: tokio_postgres::Config,
}

/// Why an address cannot be one of a Postgres. Never holds the address, which may hold a password.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrlError {
    /// It does not begin with `postgresql://` or `postgres://`.
    #[error("must begin with postgresql:// or postgres://")]
    Scheme,
    /// It asks for an encrypted connection, which is not built in.
    #[error("sslmode=require is not supported: the store is reached over the instance's own network")]
    Tls,
    /// It does not parse.
    #[error("not a Postgres address: {0}")]
    Malformed(&'static str),
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if !text.starts_with("postgresql://") && !text.starts_with("postgres://") {
            return Err(StoreUrlError::Scheme);
        }
        // The parser's own words may quote the address, and with it the password.
        let config: tokio_postgres::Config = text
            .parse()
            .map_err(|_| StoreUrlError::Malformed("check its host, port, percent-encoding and parameters"))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(StoreUrlError::Malformed("it names no host"));
        }
        if config.get_ssl_mode() == SslMode::Require {
            return Err(StoreUrlError::Tls);
        }
        Ok(Self { text: text.to_owned(), config })
    }
}

impl StoreUrl {
    /// The address as it was given, password included: for a child's environment, never for a log.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The `DATABASE_URL` of the server that keeps its tables in `schema`: this address with a search path of that
    /// schema, then `public` (contract 8). Options that the address already holds are kept.
    pub fn for_schema(&self, schema: &str) -> String {
        let (base, query) = self.text.split_once('?').unwrap_or((&self.text, ""));
        let mut options = String::new();
        let mut url = format!("{base}?");
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            if let Some(value) = parameter.strip_prefix("options=") {
                options.push_str(&percent_decode_str(value).decode_utf8_lossy());
                options.push(' ');
            } else {
                url.push_str(parameter);
                url.push('&');
            }
        }
        options.push_str("-c search_path=");
        // The server splits options at blanks; a backslash keeps one.
        for character in format!("{},public", quoted(schema)).chars() {
            if character.is_whitespace() || character == '\\' {
                options.push('\\');
            }
            options.push(character);
        }
        url.push_str("options=");
        url.extend(utf8_percent_encode(&options, IN_OPTIONS));
        url
    }

    /// The same place as another user.
    pub(crate) fn as_user(&self, user: &str, password: &str) -> Result<Self, StoreUrlError> {
        let (base, query) =
            self.text.split_once('?').map_or((self.text.as_str(), None), |(base, query)| (base, Some(query)));
        let (scheme, rest) = base.split_once("://").unwrap_or(("postgresql", base));
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{scheme}://{user}:{password}@{place}{query}").parse()
    }

    /// Its password, if it holds one.
    pub(crate) fn password(&self) -> &[u8] {
        self.config.get_password().unwrap_or_default()
    }

    /// The settings with which a connection is opened.
    pub(super) fn config(&self) -> &tokio_postgres::Config {
        &self.config
    }
}

/// A name as a quoted SQL identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, _) = self.text.split_once('?').unwrap_or((&self.text, ""));
        let (scheme, rest) = base.split_once("://").unwrap_or(("postgresql", base));
        // A password may hold an unencoded '@' or '/', so the last '@' is the one that ends it.
        match rest.rsplit_once('@') {
            Some((credentials, place)) => {
                let user = credentials.split_once(':').map_or(credentials, |(user, _)| user);
                write!(f, "{scheme}://{user}@{place}")
            }
            None => write!(f, "{scheme}://{rest}"),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreUrl, StoreUrlError> {
        text.parse()
    }

    #[test]
    fn a_password_never_shows() {
        for address in [
            "postgresql://u:s3cret@h:5432/d",
            "postgres://u:s3cret@h/d?application_name=x",
            "postgresql://u:s3cret%40x@h/d",
            "postgresql://u:p@s3cret@h/d",
        ] {
            if let Ok(url) = parse(address) {
                assert!(!format!("{url} {url:?}").contains("s3cret"), "{url}");
            }
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for address in [
            "",
            "mysql://u:s3cret@h/d",
            "host=h password=s3cret",
            "postgresql://u:s3cret@h:port/d",
            "postgresql://u:s3cret@h/d?s3cret=1",
            "postgresql://u:s3cret@h/d?sslmode=require",
            "postgresql:///d",
        ] {
            let error = parse(address).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_schema_is_first_in_the_search_path_whatever_its_name() {
        let url = parse("postgresql://u:p@h/d?application_name=x&options=-c%20work_mem%3D4MB").unwrap();
        let child = url.for_schema(r#"my "own" \ one"#);
        assert_eq!(
            child,
            "postgresql://u:p@h/d?application_name=x&options=-c%20work_mem%3D4MB%20-c%20search_path%3D\
             %22my%5C%20%22%22own%22%22%5C%20%5C%5C%5C%20one%22,public"
        );
        assert!(parse(&child).is_ok());
    }
}
