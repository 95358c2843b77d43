//! Listing a server's tools: every page, each tool as the text it is.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::error::{ClientError, Sent};
use super::link::Link;
use super::request::Outgoing;
use super::retry::Retries;
use super::{Inner, McpClient};
use crate::json::{Members, RawJson};

/// Most pages that a list of tools may have.
pub const PAGE_LIMIT: usize = 1_000;

/// A tool as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawTool {
    /// Its name.
    pub name: String,
    /// The whole entry, an object's text exactly as it came.
    pub raw: RawJson,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
    #[serde(rename = "nextCursor", default, borrow)]
    next: Option<&'a RawValue>,
}

impl McpClient {
    /// The server's tools in its own order, over all pages (contract 3.3).
    ///
    /// # Errors
    /// [`ClientError`]: the server cannot be reached or does not answer within the discovery time; what it answers is no list
    /// of tools, is larger than an answer may be, or never ends.
    pub async fn list_tools(&self) -> Result<Vec<RawTool>, ClientError> {
        let inner = &self.inner;
        let list = async {
            let mut retries = Retries::default();
            loop {
                let link = inner.link().await?;
                retries.check(&link)?;
                match inner.pages(&link).await {
                    Ok(tools) => return Ok(tools),
                    // Another session does not know the cursors of this one, so it begins anew.
                    Err(error) => inner.after(&link, error, &mut retries)?,
                }
            }
        };
        let late = || ClientError::timeout(Sent::Maybe, "the server did not list its tools in time");
        timeout(inner.options.discovery, list).await.unwrap_or_else(|_| Err(late()))
    }
}

impl Inner {
    async fn pages(&self, link: &Arc<Link>) -> Result<Vec<RawTool>, ClientError> {
        let bad = |message: String| ClientError::bad_answer(http::StatusCode::OK, message);
        let (mut tools, mut bytes, mut cursors) = (Vec::new(), 0, HashSet::new());
        let mut cursor: Option<String> = None;
        for _ in 0..PAGE_LIMIT {
            let params: &[_] = match &cursor {
                Some(cursor) => &[("cursor", cursor.as_str())],
                None => &[],
            };
            let answer = self.ask(link, &Outgoing::new("tools/list", params)).await;
            let result = answer.result?;
            self.links.saw(link, answer.instance.as_ref());
            bytes += result.bytes().len();
            if bytes > self.options.answer_limit {
                return Err(ClientError::too_large(self.options.answer_limit));
            }
            let page: Page<'_> = serde_json::from_str(result.as_str())
                .map_err(|error| bad(format!("the server's list of tools is none: {error}")))?;
            for tool in page.tools {
                let number = tools.len() + 1;
                let name = name(tool)
                    .ok_or_else(|| bad(format!("tool {number} of the server's list has no name")))?;
                tools.push(RawTool { name, raw: RawJson::within(result.bytes(), tool) });
            }
            match page.next.map(RawValue::get) {
                None | Some("null" | r#""""#) => return Ok(tools),
                Some(next) if next.starts_with('"') => {
                    if !cursors.insert(next.to_owned()) {
                        return Err(
                            bad("the server's list of tools never ends: a cursor comes again".into()),
                        );
                    }
                    cursor = Some(next.to_owned());
                }
                Some(_) => return Err(bad("the server's list of tools has a cursor that is no text".into())),
            }
        }
        Err(bad(format!("the server's list of tools has more than {PAGE_LIMIT} pages")))
    }
}

/// The name in a tool's entry.
fn name(tool: &RawValue) -> Option<String> {
    let members = Members::of(tool.get()).ok()?;
    members.text("name").filter(|name| !name.is_empty()).map(Cow::into_owned)
}
