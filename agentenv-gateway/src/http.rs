//! The gateway over HTTP: the only room of this crate that knows it. Each route reads its request, asks the instance, and
//! writes the answer.

mod access;
mod card;
mod control;
mod errors;
mod mcp;
pub mod proxy;
mod step;
pub(crate) mod svc;

use std::sync::Arc;

use agentenv_protocol::mcp::server::{Endpoint, EndpointOptions};
use agentenv_protocol::server::{ServeError, bind, serve_endpoint, stop_on_signal};
use axum::Router;
use axum::routing::{any, get, post, put};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use access::{Access, AccessError};

use crate::database::{self, Database, QUERY_TIME};
use crate::instance::Instance;
use mcp::{ChildService, GatewayService};

/// What the routes share.
pub(crate) struct Http {
    pub(crate) instance: Instance,
    pub(crate) access: Access,
    pub(crate) allowed_origins: Vec<String>,
    pub(crate) mcp: Arc<Endpoint<GatewayService>>,
    /// The endpoint of each child, for its own MCP endpoint under `/svc`.
    pub(crate) children: Vec<Arc<Endpoint<ChildService>>>,
    /// Cancelled when the server is told to stop: what would go on for ever ends then.
    pub(crate) stop: CancellationToken,
}

/// How an instance is served, where that is for its owner to say (design: agents and harness apart).
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    /// Who may use which routes.
    pub access: Access,
    /// Origins of browser pages that may call.
    pub allowed_origins: Vec<String>,
}

impl Instance {
    /// The routes of the gateway (contract 3 to 8), for a server of one's own.
    pub fn router(&self, options: ServeOptions) -> Router {
        routes(Http::new(self.clone(), options, self.0.stop.clone()))
    }

    /// Serves the instance at an address until SIGTERM or Ctrl-C, then ends it.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn serve(&self, address: &str) -> Result<(), ServeError> {
        let listener = bind(address).await?;
        self.serve_on(listener, ServeOptions::default(), stop_on_signal()?).await
    }

    /// Serves the instance on a listener until `stop` is cancelled, then ends it.
    ///
    /// # Errors
    /// The listener is none.
    pub async fn serve_on(
        &self,
        listener: TcpListener,
        options: ServeOptions,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let http = Http::new(self.clone(), options, stop.clone());
        let mcp = Arc::clone(&http.mcp);
        serve_endpoint(listener, mcp, routes(http), stop, self.0.tracker.clone()).await?;
        self.shut_down().await;
        Ok(())
    }

    /// Serves the harness's and the agents' routes on one listener and only the agents' on another, until `stop` is cancelled.
    ///
    /// # Errors
    /// A listener is none.
    pub async fn serve_apart(
        &self,
        listener: TcpListener,
        agents: TcpListener,
        options: ServeOptions,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let http = Http::new(self.clone(), options, stop.clone());
        let tracker = self.0.tracker.clone();
        let mcp = Arc::clone(&http.mcp);
        let (all, some) = (routes(Arc::clone(&http)), agent_routes(http));
        tokio::try_join!(
            serve_endpoint(listener, Arc::clone(&mcp), all, stop.clone(), tracker.clone()),
            serve_endpoint(agents, mcp, some, stop, tracker)
        )?;
        self.shut_down().await;
        Ok(())
    }
}

impl Http {
    fn new(instance: Instance, options: ServeOptions, stop: CancellationToken) -> Arc<Self> {
        let inner = &instance.0;
        let endpoint = EndpointOptions {
            allowed_origins: options.allowed_origins.clone(),
            tracker: inner.tracker.clone(),
            ..EndpointOptions::default()
        };
        let mcp = Endpoint::new(
            Arc::new(GatewayService { instance: instance.clone(), access: options.access.clone() }),
            endpoint.clone(),
        );
        let foreign = EndpointOptions { foreign_sessions: true, ..endpoint };
        let children = (0..inner.children.len())
            .map(|index| {
                let service =
                    ChildService { instance: instance.clone(), index, access: options.access.clone() };
                Endpoint::new(Arc::new(service), foreign.clone())
            })
            .collect();
        let ServeOptions { access, allowed_origins } = options;
        Arc::new(Self { access, allowed_origins, mcp, children, instance, stop })
    }
}

/// What an agent needs: the tools, the websites, the time.
fn agent_routes(http: Arc<Http>) -> Router {
    let pages = axum::middleware::from_fn_with_state(Arc::clone(&http), access::no_page_of_elsewhere);
    Router::new()
        .route("/mcp", any(mcp::serve))
        .route("/mcp/", any(mcp::serve))
        .route("/step", post(step::step).layer(pages))
        .route("/website/{*rest}", any(svc::serve))
        .route("/clock/time", get(control::clock_time))
        .route("/health", get(control::health))
        .route("/ready", get(control::ready))
        .fallback(errors::not_found)
        .with_state(http)
}

fn routes(http: Arc<Http>) -> Router {
    let harness = Router::new()
        .route("/agentenv", post(control::data_plane))
        .route("/tools/disable", post(control::disable))
        .route("/tools/enable", post(control::enable))
        .route("/state", get(control::state))
        .route("/trajectory", get(control::trajectory))
        .route("/clock/set-time", put(control::clock_arm))
        .route("/clock/state", get(control::clock_state))
        .route("/clock/clear", post(control::clock_clear))
        .route("/clock/advance", post(control::clock_advance))
        .route("/triggers/register", post(control::triggers_register))
        .route("/triggers/remove", post(control::triggers_remove))
        .route("/triggers/clear", post(control::triggers_clear))
        .route("/triggers/state", get(control::triggers_state))
        .route("/triggers/explain", get(control::triggers_explain))
        .route("/changes", get(control::changes))
        .route("/metrics", get(control::metrics))
        .route("/svc/{*rest}", any(svc::serve))
        .with_state(Arc::clone(&http))
        .merge(database_routes(&http))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&http), access::harness_only))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&http), access::no_page_of_elsewhere));
    let open = Router::new()
        .route("/.well-known/agent-env.json", get(card::card))
        .with_state(Arc::clone(&http))
        .merge(agent_routes(http));
    open.merge(harness)
}

/// The state store to look at, under `/db`; nothing without one.
fn database_routes(http: &Http) -> Router {
    let inner = &http.instance.0;
    let Some(store) = &inner.store else { return Router::new() };
    let database = Database::new(store.url().clone(), QUERY_TIME, &inner.background, &inner.stop);
    let options = EndpointOptions { tracker: inner.tracker.clone(), ..EndpointOptions::default() };
    database::router(database, options).unwrap_or_else(|error| {
        tracing::error!(%error, "the database cannot be shown");
        Router::new()
    })
}
