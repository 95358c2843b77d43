//! The database's web page: schemas, tables, rows and the changelog as plain HTML, without a script. What it shows is left
//! to `database`.

use std::borrow::Cow;
use std::fmt::Write as _;

use agentenv_protocol::environment::{BuildError, EnvRuntime};
use agentenv_protocol::json::Members;
use agentenv_protocol::mcp::server::EndpointOptions;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Database, DatabaseEnv, DatabaseError, Rows};

/// How many rows a page shows.
const ROWS_SHOWN: usize = 50;

/// How much of a value a table shows.
const VALUE_SHOWN: usize = 300;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#1c1e21}a{color:#0b57d0}\
    table{border-collapse:collapse;margin:1rem 0}th,td{border:1px solid #d0d4d9;padding:.3rem .6rem;text-align:left;\
    vertical-align:top;max-width:28rem;overflow-wrap:break-word}th{background:#f2f4f6;white-space:nowrap}td.null{color:#8a9099}\
    nav{margin-bottom:1rem}.fault{color:#b3261e}";

/// The routes under `/db`: the page itself, and the database's MCP server at `/db/mcp` with its card beside it. It is the
/// harness's; agents must not reach it.
///
/// # Errors
/// When the environment cannot be built, which is a fault of ours.
pub fn router(database: Database, options: EndpointOptions) -> Result<Router, BuildError> {
    let runtime = EnvRuntime::new(DatabaseEnv::new(database.clone()))?;
    let pages = Router::new()
        .route("/db", get(index))
        .route("/db/table/{schema}/{table}", get(table))
        .route("/db/changelog", get(changelog))
        .with_state(database);
    Ok(pages.nest("/db", agentenv_protocol::server::router(runtime, options)))
}

/// Where a page begins.
#[derive(Deserialize)]
struct From {
    /// How many rows to pass over.
    #[serde(default)]
    skip: usize,
    /// The id after which changes are shown.
    #[serde(default)]
    after_id: i64,
}

#[derive(Deserialize)]
struct Schemas {
    schemas: Vec<Schema>,
}

#[derive(Deserialize)]
struct Schema {
    name: String,
    tables: Vec<Table>,
}

#[derive(Deserialize)]
struct Table {
    name: String,
    kind: String,
    rows: Option<i64>,
}

async fn index(State(database): State<Database>) -> Response {
    let found = database.schemas().await;
    let schemas = match found.map(|found| serde_json::from_str::<Schemas>(found.get())) {
        Ok(Ok(found)) => found.schemas,
        Ok(Err(error)) => return fault(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        Err(error) => return refused(&error),
    };
    let mut body = String::from("<h1>Database</h1>");
    for Schema { name, tables } in &schemas {
        put(&mut body, format_args!("<h2>{}</h2>", Text(name)));
        if tables.is_empty() {
            body.push_str("<p>no tables</p>");
            continue;
        }
        body.push_str("<table><tr><th>table</th><th>kind</th><th>rows, about</th></tr>");
        for table in tables {
            let rows = table.rows.map(|rows| rows.to_string()).unwrap_or_default();
            let link = table_link(name, &table.name);
            put(
                &mut body,
                format_args!(
                    "<tr><td><a href=\"{link}\">{}</a></td><td>{}</td><td>{rows}</td></tr>",
                    Text(&table.name),
                    Text(&table.kind)
                ),
            );
        }
        body.push_str("</table>");
    }
    html(StatusCode::OK, "Database", &body)
}

async fn table(
    State(database): State<Database>,
    Path((schema, table)): Path<(String, String)>,
    Query(from): Query<From>,
) -> Response {
    match database.table_rows(&schema, &table, from.skip, ROWS_SHOWN).await {
        Ok(rows) => {
            let title = format!("{schema}.{table}");
            let next = from.skip + rows.rows.len();
            let link = format!("{}?skip={next}", table_link(&schema, &table));
            html(StatusCode::OK, &title, &listing(&title, &rows, &link))
        }
        Err(error) => refused(&error),
    }
}

async fn changelog(State(database): State<Database>, Query(from): Query<From>) -> Response {
    #[derive(Deserialize)]
    struct Row {
        id: i64,
    }
    match database.changelog(from.after_id, ROWS_SHOWN).await {
        Ok(rows) => {
            let last = rows.rows.last().and_then(|row| serde_json::from_str::<Row>(row.get()).ok());
            let link = format!("/db/changelog?after_id={}", last.map_or(from.after_id, |row| row.id));
            html(StatusCode::OK, "Changelog", &listing("Changelog", &rows, &link))
        }
        Err(error) => refused(&error),
    }
}

fn table_link(schema: &str, table: &str) -> String {
    let part = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    format!("/db/table/{}/{}", part(schema), part(table))
}

/// Rows as a table, with a link to the next when there are more.
fn listing(title: &str, rows: &Rows, next: &str) -> String {
    // The values stay as Postgres wrote them: not all of its JSON fits into numbers and texts of ours.
    let objects: Vec<Members<'_>> = rows.rows.iter().filter_map(|row| Members::of(row.get()).ok()).collect();
    let mut body = String::new();
    put(&mut body, format_args!("<h1>{}</h1>", Text(title)));
    let Some(first) = objects.first() else {
        body.push_str("<p>no rows</p>");
        return body;
    };
    body.push_str("<table><tr>");
    for (column, _) in first.iter() {
        put(&mut body, format_args!("<th>{}</th>", Text(column)));
    }
    body.push_str("</tr>");
    for row in &objects {
        body.push_str("<tr>");
        for (_, value) in row.iter() {
            cell(&mut body, value);
        }
        body.push_str("</tr>");
    }
    body.push_str("</table>");
    if rows.truncated {
        put(&mut body, format_args!("<p><a href=\"{}\">more rows</a></p>", Text(next)));
    }
    body
}

fn cell(body: &mut String, value: &RawValue) {
    let json = value.get();
    if json == "null" {
        body.push_str("<td class=\"null\">null</td>");
        return;
    }
    // A string as its text, unless it is none that UTF-8 can hold.
    let text = serde_json::from_str::<String>(json).map_or(Cow::Borrowed(json), Cow::Owned);
    match text.char_indices().nth(VALUE_SHOWN) {
        Some((end, _)) => put(body, format_args!("<td>{}…</td>", Text(text.get(..end).unwrap_or_default()))),
        None => put(body, format_args!("<td>{}</td>", Text(&text))),
    }
}

fn refused(error: &DatabaseError) -> Response {
    let status = match error {
        DatabaseError::NoTable { .. } => StatusCode::NOT_FOUND,
        DatabaseError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        DatabaseError::TooSlow(_) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    fault(status, &error.to_string())
}

fn fault(status: StatusCode, message: &str) -> Response {
    let mut body = String::new();
    put(&mut body, format_args!("<h1>Database</h1><p class=\"fault\">{}</p>", Text(message)));
    html(status, "Database", &body)
}

fn html(status: StatusCode, title: &str, body: &str) -> Response {
    let page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title><style>{STYLE}</style></head>\
         <body><nav><a href=\"/db\">Schemas</a> · <a href=\"/db/changelog\">Changelog</a></nav>{body}</body></html>",
        Text(title)
    );
    // What is shown is the servers' data: nothing of it may run, and nobody may frame it.
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(
                "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                 frame-ancestors 'none'",
            ),
        ),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, page).into_response()
}

/// Text that HTML shows as it is.
struct Text<'a>(&'a str);

impl std::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn put(body: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ = body.write_fmt(text);
}
