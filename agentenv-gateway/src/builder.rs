//! Putting an instance together: its children, its settings, and waiting until every child answers. Every fault is reported
//! at once, before anything is started.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use agentenv_protocol::access::AccessRules;
use agentenv_protocol::environment::{BuildError, EnvRuntime, Environment};
use agentenv_protocol::server::DEFAULT_PORT;
use agentenv_protocol::standard::clock::TimeSource;
use agentenv_protocol::time::DateTime;
use arc_swap::ArcSwap;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::catalog::{Catalog, ChildTools};
use crate::clock::Clock;
use crate::config::{Config, Named, START_TIMEOUT, http_url};
use crate::http::proxy::RouteFaults;
use crate::http::svc::proxy_of;
use crate::instance::{Child, Inner, Instance, InstanceWorld, Mode, ServiceEntry, ServiceTarget};
use crate::metrics::Metrics;
use crate::roles::Roles;
use crate::startup;
use crate::store::{Store, StoreTimes, StoreUrl, Windows};
use crate::telemetry::Traces;
use crate::time::Time;
use crate::trajectory::{self, Trajectory};
use crate::triggers::{Triggers, World};
use crate::upstream::{Remote, Upstream};

/// Why an instance was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstanceError {
    /// What was asked for cannot be: one line for each fault.
    #[error("{}", .0.join("\n"))]
    Faults(Vec<String>),
    /// The trajectory cannot be written.
    #[error("the trajectory: {0}")]
    Trajectory(#[from] trajectory::OpenError),
    /// Children did not come up, or their tools cannot be listed: one line for each.
    #[error("{}", .0.join("\n"))]
    Children(Vec<String>),
}

/// The virtual clock, as an environment in this process reads it.
#[derive(Debug)]
struct VirtualNow(Clock);

impl TimeSource for VirtualNow {
    fn now(&self) -> Option<DateTime> {
        let now = jiff::Timestamp::from_microsecond(self.0.now()?.as_micros()).ok()?;
        Some(DateTime::from(now))
    }
}

/// Where a child is.
enum Place {
    InProcess(Box<EnvRuntime>),
    Remote(Box<Remote>),
}

/// Puts an [`Instance`] together.
///
/// ```no_run
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// use agentenv_gateway::Instance;
///
/// let office = Instance::builder("office").remote("wiki", "http://127.0.0.1:18766").build().await?;
/// office.serve("127.0.0.1:18765").await?;
/// # Ok(()) }
/// ```
#[must_use = "an instance is built by build()"]
pub struct InstanceBuilder {
    name: String,
    children: Vec<(String, Place)>,
    services: Vec<(String, ServiceTarget)>,
    websites: Vec<Named>,
    mode: Mode,
    rules: AccessRules,
    trajectory: trajectory::Options,
    store_url: Option<String>,
    installs_changelog: bool,
    clock_url: Option<String>,
    start_timeout: Duration,
    allow_missing: bool,
    time: Time,
    traces: Option<Traces>,
    faults: Vec<String>,
}

impl InstanceBuilder {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            children: Vec::new(),
            services: Vec::new(),
            websites: Vec::new(),
            mode: Mode::default(),
            rules: AccessRules::new(),
            trajectory: trajectory::Options::default(),
            store_url: None,
            installs_changelog: false,
            clock_url: None,
            start_timeout: START_TIMEOUT,
            allow_missing: false,
            time: Time::system(),
            traces: None,
            faults: Vec::new(),
        }
    }

    /// What the environment variables ask for (contract 3.1).
    pub fn from_config(config: &Config) -> Self {
        let mut builder = Self::new(config.name.clone())
            .mode(config.mode)
            .rules(config.rules.clone())
            .trajectory_fsync(config.trajectory_fsync)
            .start_timeout(config.start_timeout)
            .clock_url(config.clock_url.clone().unwrap_or_else(|| default_clock_url(config.port)));
        builder.allow_missing = config.allow_missing;
        builder.store_url.clone_from(&config.store_url);
        builder.trajectory.path.clone_from(&config.trajectory_file);
        builder.websites.clone_from(&config.websites);
        for Named { name, url } in &config.children {
            builder.child(name, url.clone());
        }
        for Named { name, url } in &config.services {
            builder.services.push((name.clone(), remote_service(url.clone())));
        }
        builder
    }

    /// Adds an environment that runs in this process, under its declared name, and under `/svc/mcp-<name>/`.
    pub fn env<E: Environment>(self, env: E) -> Self {
        let runtime = EnvRuntime::new(env);
        self.built(runtime)
    }

    /// [`env`](Self::env) under another name.
    pub fn env_named<E: Environment>(self, name: &str, env: E) -> Self {
        let runtime = EnvRuntime::named(env, name);
        self.built(runtime)
    }

    fn built(mut self, runtime: Result<EnvRuntime, BuildError>) -> Self {
        match runtime {
            Ok(runtime) => self.runtime(runtime),
            Err(error) => {
                self.faults.push(error.to_string());
                self
            }
        }
    }

    /// Adds an environment that is built already.
    pub fn runtime(mut self, runtime: EnvRuntime) -> Self {
        let name = runtime.name().to_owned();
        self.services.push((format!("mcp-{name}"), ServiceTarget::InProcess(runtime.clone())));
        self.children.push((name, Place::InProcess(Box::new(runtime))));
        self
    }

    /// Adds a server at a base URL: its MCP endpoint is below it at `mcp`, and it is found under `/svc/mcp-<name>/`.
    pub fn remote(mut self, name: &str, base: &str) -> Self {
        match http_url(base) {
            Some(base) => {
                let mut mcp = base.clone();
                mcp.set_path(&format!("{}/mcp", base.path().trim_end_matches('/')));
                self.services.push((format!("mcp-{name}"), remote_service(base)));
                self.child(name, mcp);
            }
            None => self.faults.push(not_a_url(name)),
        }
        self
    }

    fn child(&mut self, name: &str, mcp: Url) {
        match Remote::new(mcp) {
            Ok(remote) => self.children.push((name.to_owned(), Place::Remote(Box::new(remote)))),
            Err(fault) => self.faults.push(format!("{name}: {fault}")),
        }
    }

    /// Adds a website, found under `/website/<name>/`.
    pub fn website(mut self, name: &str, url: &str) -> Self {
        match http_url(url) {
            Some(url) => self.websites.push(Named { name: name.to_owned(), url }),
            None => self.faults.push(not_a_url(name)),
        }
        self
    }

    /// How calls of several callers run; [`Mode::Performance`] unless said.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The role rules to begin with.
    pub fn rules(mut self, rules: AccessRules) -> Self {
        self.rules = rules;
        self
    }

    /// The trajectory's file; without it, one of the instance's own that goes with it.
    pub fn trajectory_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.trajectory.path = Some(path.into());
        self
    }

    /// How often the trajectory is forced to the disk.
    pub fn trajectory_fsync(mut self, fsync: trajectory::Fsync) -> Self {
        self.trajectory.fsync = fsync;
        self
    }

    /// The state store's Postgres (contract 8).
    pub fn store(mut self, url: impl Into<String>) -> Self {
        self.store_url = Some(url.into());
        self
    }

    /// The store is this instance's own: after each `data/add` through the gateway, the changelog of the server's schema is
    /// installed (contract 8). Without this, whoever owns the store does so.
    pub fn installs_changelog(mut self) -> Self {
        self.installs_changelog = true;
        self
    }

    /// The URL at which children read the virtual clock.
    pub fn clock_url(mut self, url: impl Into<String>) -> Self {
        self.clock_url = Some(url.into());
        self
    }

    /// How long a child may take to come up.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Builds even if children do not come up: they are named by `/ready` and `/state`, and tried again.
    pub fn allow_missing(mut self) -> Self {
        self.allow_missing = true;
        self
    }

    /// Where the spans of tool calls go; nowhere unless said. They are sent when the program shuts [`Traces`] down.
    pub fn traces(mut self, traces: Option<Traces>) -> Self {
        self.traces = traces;
        self
    }

    /// The source of time, for tests on virtual time.
    pub fn time(mut self, time: Time) -> Self {
        self.time = time;
        self
    }

    /// Waits for the children, lists their tools, and gives the instance.
    ///
    /// # Errors
    /// [`InstanceError`]
    pub async fn build(mut self) -> Result<Instance, InstanceError> {
        self.check();
        let store_url = match self.store_url.take().map(|url| url.parse::<StoreUrl>()).transpose() {
            Ok(url) => url,
            Err(error) => {
                self.faults.push(format!("the state store's URL: {error}"));
                None
            }
        };
        let (tracker, background) = (TaskTracker::new(), TaskTracker::new());
        let stop = CancellationToken::new();
        let services = services(std::mem::take(&mut self.services), &self.children);
        let proxy = match proxy_of(&services, &self.websites, &tracker) {
            Ok(proxy) => Some(proxy),
            Err(RouteFaults(faults)) => {
                self.faults.extend(faults.iter().map(ToString::to_string));
                None
            }
        };
        let Some(proxy) = proxy.filter(|_| self.faults.is_empty()) else {
            return Err(InstanceError::Faults(self.faults));
        };
        let clock_url = self.clock_url.unwrap_or_else(|| default_clock_url(DEFAULT_PORT));
        let clock = Clock::new(self.time.clone(), clock_url);
        let stamp = {
            let (time, clock) = (self.time.clone(), clock.clone());
            Arc::new(move || trajectory::Stamp {
                timestamp_utc: crate::time::wall_text(time.wall()),
                virtual_time: clock.now().map(|now| now.to_string()),
            })
        };
        let trajectory = Trajectory::open(self.trajectory, stamp)?;
        let time_source: Arc<dyn TimeSource> = Arc::new(VirtualNow(clock.clone()));
        let store = store_url.map(|url| Store::connect(url, StoreTimes::default(), &background, &stop));
        let children: Vec<Child> = self
            .children
            .into_iter()
            .map(|(name, place)| {
                let upstream = match place {
                    Place::InProcess(runtime) => {
                        runtime.follow(&time_source);
                        Upstream::InProcess(*runtime)
                    }
                    Place::Remote(remote) => Upstream::Remote(*remote),
                };
                let tools = ArcSwap::from_pointee(ChildTools::Unknown("not asked yet".to_owned()));
                Child { name, upstream, tools }
            })
            .collect();
        let inner = Arc::new_cyclic(|weak: &Weak<Inner>| {
            let world: Arc<dyn World> = Arc::new(InstanceWorld(weak.clone()));
            Inner {
                name: self.name,
                children,
                services,
                websites: self.websites,
                proxy,
                catalog: ArcSwap::from_pointee(Catalog::default()),
                roles: Roles::new(self.rules),
                triggers: Triggers::new(Arc::downgrade(&world), clock.clone(), self.time),
                world,
                clock,
                trajectory,
                turn: (self.mode == Mode::Consistent).then(|| Semaphore::new(1)),
                store,
                installs_changelog: self.installs_changelog,
                windows: Windows::default(),
                metrics: Metrics::new(),
                traces: self.traces,
                tracker,
                background,
                stop,
            }
        });
        inner.rebuild_catalog();
        match startup::bring_up(&inner, self.start_timeout, self.allow_missing).await {
            Ok(()) => Ok(Instance(inner)),
            Err(faults) => {
                Instance(inner).shut_down().await;
                Err(InstanceError::Children(faults))
            }
        }
    }

    /// Names that are there twice.
    fn check(&mut self) {
        let twice = |what: &str, names: Vec<&str>| {
            let mut seen = BTreeSet::new();
            let again: BTreeSet<_> = names.into_iter().filter(|name| !seen.insert(*name)).collect();
            again.into_iter().map(|name| format!("the {what} '{name}' is there twice")).collect::<Vec<_>>()
        };
        // Of services and websites the proxy says so itself.
        self.faults.extend(twice("child", self.children.iter().map(|(name, _)| name.as_str()).collect()));
    }
}

/// The URL is not repeated: it may hold a password.
fn not_a_url(name: &str) -> String {
    format!("{name}: not an http:// URL with a host and no credentials")
}

fn default_clock_url(port: u16) -> String {
    format!("http://gateway:{port}/clock/time")
}

/// A service whose MCP endpoint is where servers have it, until a child says otherwise.
fn remote_service(base: Url) -> ServiceTarget {
    ServiceTarget::Remote { base, mcp: "mcp".to_owned() }
}

/// Which child each service is the server of: the one in this process, or the one whose MCP endpoint lies below its URL.
fn services(services: Vec<(String, ServiceTarget)>, children: &[(String, Place)]) -> Vec<ServiceEntry> {
    let by_name: BTreeMap<&str, usize> =
        children.iter().enumerate().map(|(index, (name, _))| (name.as_str(), index)).collect();
    let connect = |(key, target): (String, ServiceTarget)| match target {
        ServiceTarget::InProcess(runtime) => {
            let child = by_name.get(runtime.name()).copied();
            ServiceEntry { key, target: ServiceTarget::InProcess(runtime), child }
        }
        ServiceTarget::Remote { base, mcp } => {
            let below = children.iter().enumerate().find_map(|(index, (_, place))| match place {
                Place::Remote(remote) => path_below(remote.url(), &base).map(|path| (index, path.to_owned())),
                Place::InProcess(_) => None,
            });
            let (child, mcp) = match below {
                Some((index, path)) => (Some(index), path),
                None => (key.strip_prefix("mcp-").and_then(|name| by_name.get(name).copied()), mcp),
            };
            ServiceEntry { key, target: ServiceTarget::Remote { base, mcp }, child }
        }
    };
    services.into_iter().map(connect).collect()
}

/// The path of an MCP endpoint below a base URL, without its first slash.
fn path_below<'a>(endpoint: &'a Url, base: &Url) -> Option<&'a str> {
    let same = endpoint.origin() == base.origin();
    let rest = endpoint.path().strip_prefix(base.path().trim_end_matches('/')).filter(|_| same)?;
    rest.strip_prefix('/')
}
