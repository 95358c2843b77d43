//! What a gateway counts, and the text that Prometheus scrapes. When it is counted is left to the pipeline; the route, and
//! reading what is only known when it is scraped, to `http`.
//!
//! Names come from outside: a role is what a header says. So they are bounded: past [`MAX_TOOLS`] tools, [`MAX_ROLES`]
//! roles or [`MAX_NAME`] bytes, what is counted is counted under [`OTHER`].

mod calls;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use self::calls::Calls;

/// The content type of [`Metrics::render`]'s text.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// The label of whatever is past a bound.
pub const OTHER: &str = "other";

/// Most tools that are counted by name.
pub const MAX_TOOLS: usize = 1_000;

/// Most roles that are counted by name: the first that call.
pub const MAX_ROLES: usize = 64;

/// Most pairs of a tool and a role that are counted by name; of one more, the role is [`OTHER`].
pub const MAX_PAIRS: usize = 5_000;

/// Most bytes of a name.
pub const MAX_NAME: usize = 128;

/// How a tool call ended (label `outcome`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// The child answered, and not with an error.
    Ok,
    /// The child answered with a tool error.
    ToolError,
    /// The child could not be called, or gave no answer that can be read.
    Failed,
    /// The child did not answer in time.
    TimedOut,
    /// The caller cancelled it.
    Cancelled,
    /// The tool is off for the role.
    Disabled,
    /// There is no such tool; counted under the tool [`OTHER`], since the name is the caller's.
    UnknownTool,
    /// The children's tools are not known.
    NotReady,
    /// The call could not be recorded, so it was not made.
    Unrecorded,
}

impl CallOutcome {
    const ALL: [Self; 9] = [
        Self::Ok,
        Self::ToolError,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::Disabled,
        Self::UnknownTool,
        Self::NotReady,
        Self::Unrecorded,
    ];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Disabled => "disabled",
            Self::UnknownTool => "unknown_tool",
            Self::NotReady => "not_ready",
            Self::Unrecorded => "unrecorded",
        }
    }

    /// Whether the child was asked, so that it took time.
    const fn reached_child(self) -> bool {
        !matches!(self, Self::Disabled | Self::UnknownTool | Self::NotReady | Self::Unrecorded)
    }
}

/// How a trajectory is, for [`Metrics::set_trajectory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrajectoryState {
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// Number of the last event; 0 when there is none.
    pub events: u64,
    /// Events that wait in memory for the disk.
    pub retained: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Whether calls can be recorded.
    pub writable: bool,
}

/// What one instance counts. A cheap handle: clones count together.
///
/// ```
/// use std::time::Duration;
///
/// use agentenv_gateway::metrics::{CallOutcome, Metrics};
///
/// let metrics = Metrics::new();
/// metrics.call("send", "assistant", CallOutcome::Ok, Duration::from_millis(3));
/// metrics.set_sessions(2);
/// let text = metrics.render();
/// assert!(text.contains(r#"agentenv_tool_calls_total{tool="send",role="assistant",outcome="ok"} 1"#));
/// assert!(text.contains("agentenv_open_sessions 2"));
/// ```
#[derive(Clone)]
pub struct Metrics {
    calls: Arc<Calls>,
    firings: Arc<Firings>,
    sessions: Gauge,
    children: Family<[(&'static str, String); 1], Gauge>,
    trajectory_bytes: Count,
    trajectory_events: Count,
    trajectory_retained: Count,
    trajectory_lost: Count,
    trajectory_writable: Gauge,
    registry: Arc<Registry>,
}

/// A gauge that counts what only grows, or nearly so.
type Count = Gauge<u64, AtomicU64>;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        let metrics = Self {
            calls: Arc::default(),
            firings: Arc::default(),
            sessions: Gauge::default(),
            children: Family::default(),
            trajectory_bytes: Count::default(),
            trajectory_events: Count::default(),
            trajectory_retained: Count::default(),
            trajectory_lost: Count::default(),
            trajectory_writable: Gauge::default(),
            registry: Arc::default(),
        };
        let mut registry = Registry::with_prefix("agentenv");
        registry.register_collector(Box::new(Arc::clone(&metrics.calls)));
        registry.register_collector(Box::new(Arc::clone(&metrics.firings)));
        registry.register("open_sessions", "MCP sessions that are open", metrics.sessions.clone());
        registry.register("child_up", "Whether a child can be called", metrics.children.clone());
        for (name, help, count) in [
            ("trajectory_size_bytes", "Size of the trajectory", &metrics.trajectory_bytes),
            ("trajectory_events", "Events in the trajectory", &metrics.trajectory_events),
            ("trajectory_retained_events", "Events that wait for the disk", &metrics.trajectory_retained),
            ("trajectory_lost_events", "Events that were lost", &metrics.trajectory_lost),
        ] {
            registry.register(name, help, count.clone());
        }
        let writable = metrics.trajectory_writable.clone();
        registry.register("trajectory_writable", "Whether calls can be recorded", writable);
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version that runs", version);
        Self { registry: Arc::new(registry), ..metrics }
    }

    /// Counts a tool call and how long its answer took. Takes no lock that anyone holds for long, and no memory once the
    /// tool and the role were seen.
    pub fn call(&self, tool: &str, role: &str, outcome: CallOutcome, took: Duration) {
        self.calls.count(tool, role, outcome, took);
    }

    /// How many MCP sessions are open now.
    pub fn set_sessions(&self, open: usize) {
        self.sessions.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// Whether a child can be called now. For children that are configured: there is a series for each name.
    pub fn set_child(&self, name: &str, up: bool) {
        self.children.get_or_create(&[("child", name.to_owned())]).set(i64::from(up));
    }

    /// How the trajectory is now.
    pub fn set_trajectory(&self, state: TrajectoryState) {
        self.trajectory_bytes.set(state.bytes);
        self.trajectory_events.set(state.events);
        self.trajectory_retained.set(state.retained);
        self.trajectory_lost.set(state.lost);
        self.trajectory_writable.set(i64::from(state.writable));
    }

    /// How many firings there have been, and how many of them failed.
    pub fn set_firings(&self, fired: u64, failed: u64) {
        self.firings.fired.store(fired, Ordering::Relaxed);
        self.firings.failed.store(failed, Ordering::Relaxed);
    }

    /// Everything, as Prometheus reads it ([`CONTENT_TYPE`]).
    pub fn render(&self) -> String {
        let mut text = String::new();
        if let Err(error) = prometheus_text::encode(&mut text, &self.registry) {
            // Part of it would be taken for all of it.
            tracing::error!(%error, "the metrics cannot be written");
            text.clear();
        }
        text
    }
}

/// Firings by how they ended.
#[derive(Debug, Default)]
struct Firings {
    fired: AtomicU64,
    failed: AtomicU64,
}

impl Collector for Firings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Firings of triggers, by how they ended";
        let mut family = encoder.encode_descriptor("trigger_firings", help, None, MetricType::Counter)?;
        for (outcome, count) in [("fired", &self.fired), ("failed", &self.failed)] {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            count.encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn what_is_set_is_shown_until_it_is_set_again() {
        let metrics = Metrics::new();
        metrics.set_sessions(3);
        metrics.set_child("email", true);
        metrics.set_child("a\"b\n\\", false);
        let full = TrajectoryState { bytes: 1 << 40, events: 7, retained: 2, ..Default::default() };
        metrics.set_trajectory(full);
        metrics.set_firings(5, 1);
        let lines = [
            "# TYPE agentenv_open_sessions gauge",
            "agentenv_open_sessions 3",
            "agentenv_child_up{child=\"email\"} 1",
            "agentenv_child_up{child=\"a\\\"b\\n\\\\\"} 0",
            "agentenv_trajectory_size_bytes 1099511627776",
            "agentenv_trajectory_events 7",
            "agentenv_trajectory_retained_events 2",
            "agentenv_trajectory_writable 0",
            "# TYPE agentenv_trigger_firings_total counter",
            "agentenv_trigger_firings_total{outcome=\"fired\"} 5",
            "agentenv_trigger_firings_total{outcome=\"failed\"} 1",
            concat!("agentenv_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        ];
        assert_has(&metrics.render(), &lines);
        metrics.set_sessions(4);
        metrics.clone().set_child("email", false);
        metrics.set_trajectory(TrajectoryState { writable: true, ..Default::default() });
        let lines = [
            "agentenv_open_sessions 4",
            "agentenv_child_up{child=\"email\"} 0",
            "agentenv_trajectory_writable 1",
        ];
        assert_has(&metrics.render(), &lines);
    }
}
