//! Where the wiki's pages are: in the Postgres that `DATABASE_URL` names, or in memory. The tables are made by the migrations;
//! their schema is whichever the address has on its search path (contract 8).

use std::collections::BTreeMap;
use std::time::Duration;

use agentenv_protocol::prelude::*;
use anyhow::Context;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::types::Json;
use sqlx::{Error, SqlSafeStr, query, query_as};

use crate::{Page, Wiki};

/// What was changed in the tables from one release to the next: version, name, SQL.
const MIGRATIONS: [(i64, &str, &str); 1] = [(1, "pages", include_str!("../migrations/0001_pages.sql"))];

/// Most pages that a search finds.
const FOUND: usize = 20;

/// How long a call waits for a database that is away.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pages by title.
type ByTitle = BTreeMap<String, Page>;

/// A row: title, text, and when it was edited.
type Row = (String, String, Option<String>);

pub(crate) enum Pages {
    Postgres(PgPool),
    Memory(Data<Wiki>),
}

impl Pages {
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Data::default())
    }

    /// Connects, and brings the tables up to date.
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        let options: PgConnectOptions = url.parse().context("DATABASE_URL is not a Postgres address")?;
        let place = format!("DATABASE_URL: no connection to {}:{}", options.get_host(), options.get_port());
        let pool =
            PgPoolOptions::new().acquire_timeout(PATIENCE).connect_with(options).await.context(place)?;
        let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        };
        let migrator = Migrator::with_migrations(MIGRATIONS.map(migration).into());
        migrator.run(&pool).await.context("cannot migrate the database")?;
        Ok(Self::Postgres(pool))
    }

    pub(crate) async fn close(&self) {
        if let Self::Postgres(pool) = self {
            pool.close().await;
        }
    }

    pub(crate) async fn search(&self, query: &str) -> Result<ByTitle, Error> {
        let pool = match self {
            Self::Postgres(pool) => pool,
            Self::Memory(wiki) => {
                let query = query.to_lowercase();
                let found = |(title, page): &(&String, &Page)| {
                    format!("{title} {}", page.text).to_lowercase().contains(&query)
                };
                return Ok(wiki.read(|wiki| {
                    let found = wiki.pages.iter().filter(found).take(FOUND);
                    found.map(|(title, page)| (title.clone(), page.clone())).collect()
                }));
            }
        };
        // A database's own locale may know no letters but ASCII's.
        let sql = r#"SELECT title, text, edited_at::text FROM pages
            WHERE strpos(lower(title || ' ' || text COLLATE "und-x-icu"), lower($1 COLLATE "und-x-icu")) > 0
            ORDER BY title COLLATE "C" LIMIT $2"#;
        query_as(sql).bind(query).bind(FOUND as i64).fetch_all(pool).await.and_then(by_title)
    }

    /// Writes pages, in place of those of the same titles.
    pub(crate) async fn write(&self, wiki: &Wiki) -> Result<(), Error> {
        let pool = match self {
            Self::Postgres(pool) => pool,
            Self::Memory(held) => {
                held.write(|held| held.pages.extend(wiki.pages.clone()));
                return Ok(());
            }
        };
        // One statement whatever their number, so all of them or none.
        let sql = "INSERT INTO pages
            SELECT key, value->>'text', (value->>'edited_at')::timestamptz FROM jsonb_each($1)
            ON CONFLICT (title) DO UPDATE SET text = excluded.text, edited_at = excluded.edited_at";
        query(sql).bind(Json(&wiki.pages)).execute(pool).await.map(drop)
    }

    pub(crate) async fn all(&self) -> Result<ByTitle, Error> {
        match self {
            Self::Postgres(pool) => {
                let sql = "SELECT title, text, edited_at::text FROM pages";
                query_as(sql).fetch_all(pool).await.and_then(by_title)
            }
            Self::Memory(wiki) => Ok(wiki.read(|wiki| wiki.pages.clone())),
        }
    }

    pub(crate) async fn clear(&self) -> Result<(), Error> {
        match self {
            // However many there are, it takes the same time.
            Self::Postgres(pool) => query("TRUNCATE pages").execute(pool).await.map(drop),
            Self::Memory(wiki) => {
                wiki.write(|wiki| wiki.pages.clear());
                Ok(())
            }
        }
    }
}

fn by_title(rows: Vec<Row>) -> Result<ByTitle, Error> {
    let page = |(title, text, at): Row| {
        let edited_at = at.map(|at| at.parse()).transpose().map_err(Error::decode)?;
        Ok((title, Page { text, edited_at }))
    };
    rows.into_iter().map(page).collect()
}
