//! News: what is published later than the gateway's clock shows is not out yet.

use agentenv_protocol::prelude::*;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Article {
    topic: String,
    headline: String,
    published: DateTime,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct News {
    articles: Vec<Article>,
}

/// What the papers say.
#[environment_card(name = "news")]
#[derive(Default)]
struct NewsEnv {
    #[data]
    news: Data<News>,
    #[component]
    clock: Clock,
}

#[environment]
impl NewsEnv {
    /// Read the latest headlines, the newest first.
    #[tool(name = "{environment_name}_read", read_only)]
    async fn read(
        &self,
        /// Only this topic.
        topic: Option<String>,
        #[arg(default = 5)] limit: usize,
    ) -> Value {
        let now = self.clock.now().await;
        let out = |article: &&Article| {
            article.published <= now && topic.as_ref().is_none_or(|topic| article.topic == *topic)
        };
        let mut articles: Vec<Article> =
            self.news.read(|news| news.articles.iter().filter(out).cloned().collect());
        articles.sort_by_key(|article| std::cmp::Reverse(article.published));
        articles.truncate(limit);
        json!({"articles": articles})
    }
}
