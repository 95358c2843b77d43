//! The gateway's own tools: `get_time` while the clock is armed, `list_website_urls` where there are websites (contract 3.3).

use agentenv_protocol::json::{ObjectWriter, RawJson};
use serde_json::json;
use serde_json::value::RawValue;

use crate::call::CallError;
use crate::catalog::CatalogTool;
use crate::clock::Clock;
use crate::instance::Inner;

/// The tool that tells the virtual time.
pub(crate) const GET_TIME: &str = "get_time";

/// The tool that tells the websites' URLs.
pub(crate) const LIST_WEBSITE_URLS: &str = "list_website_urls";

/// One of the gateway's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnTool {
    GetTime,
    ListWebsiteUrls,
}

impl Inner {
    /// The own tool of this name, if it is served just now. A child's tool of the same name goes first.
    pub(crate) fn own_tool(&self, name: &str) -> Option<OwnTool> {
        match name {
            GET_TIME if self.clock.now().is_some() && self.catalog.load().find(GET_TIME).is_none() => {
                Some(OwnTool::GetTime)
            }
            LIST_WEBSITE_URLS if !self.websites.is_empty() => Some(OwnTool::ListWebsiteUrls),
            _ => None,
        }
    }

    /// The own tools that are served just now.
    pub(crate) fn own_tools(&self) -> Vec<CatalogTool> {
        let tool = |name: &str, listing: RawJson| CatalogTool::new(name.to_owned(), usize::MAX, listing);
        let mut tools = Vec::new();
        if self.own_tool(GET_TIME).is_some() {
            tools.push(tool(GET_TIME, RawJson::from(Clock::get_time_listing())));
        }
        if self.own_tool(LIST_WEBSITE_URLS).is_some() {
            let listing = ObjectWriter::with_capacity(256)
                .field("name", LIST_WEBSITE_URLS)
                .field("description", "Lists the URLs of this environment's websites.")
                .field("inputSchema", &json!({"type": "object", "properties": {}}))
                .field("annotations", &json!({"readOnlyHint": true}));
            tools.push(tool(LIST_WEBSITE_URLS, RawJson::object(listing.finish())));
        }
        tools
    }

    /// Runs an own tool.
    ///
    /// # Errors
    /// The clock was cleared meanwhile.
    pub(crate) fn call_own(&self, tool: OwnTool, arguments: &RawValue) -> Result<RawJson, CallError> {
        match tool {
            OwnTool::GetTime => {
                let result = self.clock.get_time(Some(arguments)).map(RawJson::from);
                result.ok_or_else(|| CallError::UnknownTool(GET_TIME.to_owned()))
            }
            OwnTool::ListWebsiteUrls => {
                let urls: Vec<&str> = self.websites.iter().map(|site| site.url.as_str()).collect();
                let content: Vec<_> = urls.iter().map(|url| json!({"type": "text", "text": url})).collect();
                let result = ObjectWriter::with_capacity(256)
                    .field("content", &content)
                    .field("structuredContent", &json!({"result": urls}))
                    .field("isError", &false);
                Ok(RawJson::object(result.finish()))
            }
        }
    }
}
