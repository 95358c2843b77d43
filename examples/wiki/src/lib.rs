//! A wiki that an agent searches and edits. Its pages are in Postgres: the SQL is in `pages`.

mod pages;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use agentenv_protocol::prelude::*;

use pages::Pages;

/// A page. Its title is its key.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// What it says.
    pub text: String,
    /// When it was last edited, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<DateTime>,
}

/// The whole state: what `data/add` takes and `data/get` gives.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wiki {
    /// Every page, by its title.
    pub pages: BTreeMap<String, Page>,
}

/// Where `DATABASE_URL` says that the pages are (contract 2.7). A wiki keeps them in memory without it.
pub fn database_url() -> Option<String> {
    std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty())
}

/// What everybody knows, written down.
#[environment_card(name = "wiki")]
#[derive(Default)]
pub struct WikiEnv {
    database: Option<String>,
    /// Opened at the start, unless they are in memory.
    pages: OnceLock<Pages>,
    #[component]
    clock: Clock,
}

impl WikiEnv {
    /// A wiki whose pages are in this Postgres, whatever `DATABASE_URL` says.
    pub fn in_database(url: impl Into<String>) -> Self {
        Self { database: Some(url.into()), ..Self::default() }
    }

    /// A wiki that is gone with its process, whatever `DATABASE_URL` says.
    pub fn in_memory() -> Self {
        Self { pages: Pages::in_memory().into(), ..Self::default() }
    }

    fn pages(&self) -> Result<&Pages, ToolError> {
        self.pages.get().ok_or_else(|| ToolError::new("not_open", "the wiki has not started yet").retryable())
    }
}

#[environment]
impl WikiEnv {
    /// Find pages whose title or text contains the query: at most twenty, by title.
    #[tool(name = "{environment_name}_search", read_only)]
    async fn search(&self, query: String) -> anyhow::Result<Wiki> {
        Ok(Wiki { pages: self.pages()?.search(&query).await? })
    }

    /// Write a page, in place of what it says now if there is one of that title.
    #[tool(name = "{environment_name}_edit", idempotent)]
    async fn edit(&self, title: String, text: String) -> anyhow::Result<Page> {
        if title.trim().is_empty() || title.len() > 200 {
            return Err(ToolError::new("bad_title", "a title has between 1 and 200 bytes").into());
        }
        let page = Page { text, edited_at: Some(self.clock.now().await) };
        self.pages()?.write(&Wiki { pages: BTreeMap::from([(title, page.clone())]) }).await?;
        Ok(page)
    }

    /// Until this is done the server is not ready, and if it fails it does not start.
    #[on_start]
    async fn open(&self) -> anyhow::Result<()> {
        if self.pages.get().is_none() {
            let pages = match self.database.clone().or_else(database_url) {
                Some(url) => Pages::open(&url).await?,
                None => Pages::in_memory(),
            };
            self.pages.get_or_init(|| pages);
        }
        Ok(())
    }

    /// After the last call.
    #[on_stop]
    async fn close(&self) {
        if let Some(pages) = self.pages.get() {
            pages.close().await;
        }
    }

    #[reset_data]
    async fn reset(&self) -> anyhow::Result<()> {
        Ok(self.pages()?.clear().await?)
    }

    /// All parts of a request, or none.
    #[add_data]
    async fn add(&self, seeds: Vec<Wiki>) -> anyhow::Result<()> {
        let pages = seeds.into_iter().flat_map(|seed| seed.pages).collect();
        Ok(self.pages()?.write(&Wiki { pages }).await?)
    }

    #[get_data]
    async fn state(&self) -> anyhow::Result<Wiki> {
        Ok(Wiki { pages: self.pages()?.all().await? })
    }
}
