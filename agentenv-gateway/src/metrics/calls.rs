//! Tool calls by tool, role and outcome, and how long they took. Counting takes no memory once a pair was seen, and only
//! a lock that is shared.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::Histogram;

use super::{CallOutcome, MAX_NAME, MAX_PAIRS, MAX_ROLES, MAX_TOOLS, OTHER};

/// Upper bounds of the histogram, in seconds; the last is how long a call may take (contract 10).
const BUCKETS: [f64; 17] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0,
];

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Calls(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    tools: HashMap<Box<str>, Tool>,
    /// Those with a name of their own.
    roles: HashSet<Box<str>>,
    pairs: usize,
}

#[derive(Debug, Default)]
struct Tool {
    /// There once the tool's child was called.
    took: OnceLock<Histogram>,
    roles: HashMap<Box<str>, Counts>,
}

type Counts = [AtomicU64; CallOutcome::ALL.len()];

impl Calls {
    pub(super) fn count(&self, tool: &str, role: &str, outcome: CallOutcome, took: Duration) {
        let tool = if outcome == CallOutcome::UnknownTool { OTHER } else { tool };
        {
            let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
            // Most calls have been counted under their own names before.
            if table.count(tool, role, outcome, took) {
                return;
            }
            let (tool, role) = table.labels(tool, role);
            if table.count(tool, role, outcome, took) {
                return;
            }
        }
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (tool, role) = table.labels(tool, role);
        table.admit(tool, role);
        table.count(tool, role, outcome, took);
    }
}

impl Table {
    /// The names under which a call is counted.
    fn labels<'a>(&self, tool: &'a str, role: &'a str) -> (&'a str, &'a str) {
        let short = |name: &str| name.len() <= MAX_NAME;
        // One place is kept for the others.
        let tools = || self.tools.len() - usize::from(self.tools.contains_key(OTHER));
        let named = self.tools.contains_key(tool) || (short(tool) && tools() < MAX_TOOLS - 1);
        let tool = if named { tool } else { OTHER };
        let named = self.roles.contains(role) || (short(role) && self.roles.len() < MAX_ROLES - 1);
        let role = if named { role } else { OTHER };
        let known = self.tools.get(tool).is_some_and(|tool| tool.roles.contains_key(role));
        (tool, if known || self.pairs < MAX_PAIRS { role } else { OTHER })
    }

    /// Counts a call, if its names are there.
    fn count(&self, tool: &str, role: &str, outcome: CallOutcome, took: Duration) -> bool {
        let Some(tool) = self.tools.get(tool) else { return false };
        let Some(counts) = tool.roles.get(role) else { return false };
        counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
        if outcome.reached_child() {
            tool.took.get_or_init(|| Histogram::new(BUCKETS)).observe(took.as_secs_f64());
        }
        true
    }

    /// Makes room for a pair's counts.
    fn admit(&mut self, tool: &str, role: &str) {
        if role != OTHER && !self.roles.contains(role) {
            self.roles.insert(role.into());
        }
        let tool = self.tools.entry(tool.into()).or_default();
        if !tool.roles.contains_key(role) {
            tool.roles.insert(role.into(), Counts::default());
            self.pairs += 1;
        }
    }
}

impl Collector for Calls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let help = "Tool calls by tool, role and how they ended";
        let mut family = encoder.encode_descriptor("tool_calls", help, None, MetricType::Counter)?;
        for (tool, Tool { roles, .. }) in &table.tools {
            for (role, counts) in roles {
                for (outcome, count) in CallOutcome::ALL.into_iter().zip(counts) {
                    let count = count.load(Ordering::Relaxed);
                    if count > 0 {
                        let labels = [("tool", &**tool), ("role", role), ("outcome", outcome.label())];
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        let help = "How long children took to answer";
        let mut family =
            encoder.encode_descriptor("tool_call_duration_seconds", help, None, MetricType::Histogram)?;
        for (tool, Tool { took, .. }) in &table.tools {
            if let Some(took) = took.get() {
                took.encode(family.encode_family(&[("tool", &**tool)])?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn series(text: &str, name: &str) -> usize {
        text.lines().filter(|line| line.starts_with(name)).count()
    }

    #[test]
    fn the_outcomes_stand_where_they_are_counted() {
        for (at, outcome) in CallOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
    }

    #[test]
    fn calls_are_counted_and_timed() {
        let metrics = Metrics::new();
        for _ in 0..3 {
            metrics.call("send", "a", CallOutcome::Ok, 2 * MS);
        }
        metrics.call("send", "a", CallOutcome::ToolError, 700 * MS);
        metrics.call("send", "b", CallOutcome::Disabled, MS);
        metrics.call("no such tool", "b", CallOutcome::UnknownTool, MS);
        let text = metrics.render();
        for line in [
            "# TYPE agentenv_tool_calls_total counter",
            "agentenv_tool_calls_total{tool=\"send\",role=\"a\",outcome=\"ok\"} 3",
            "agentenv_tool_calls_total{tool=\"send\",role=\"a\",outcome=\"tool_error\"} 1",
            "agentenv_tool_calls_total{tool=\"send\",role=\"b\",outcome=\"disabled\"} 1",
            "agentenv_tool_calls_total{tool=\"other\",role=\"b\",outcome=\"unknown_tool\"} 1",
            "# TYPE agentenv_tool_call_duration_seconds histogram",
            "agentenv_tool_call_duration_seconds_bucket{tool=\"send\",le=\"0.0025\"} 3",
            "agentenv_tool_call_duration_seconds_bucket{tool=\"send\",le=\"1\"} 4",
            "agentenv_tool_call_duration_seconds_count{tool=\"send\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("no such tool"));
        assert_eq!(series(&text, "agentenv_tool_calls_total{"), 4);
    }

    #[test]
    fn names_from_outside_are_bounded() {
        let metrics = Metrics::new();
        metrics.call("send", "first", CallOutcome::Ok, MS);
        metrics.call("send", &"x".repeat(MAX_NAME + 1), CallOutcome::Ok, MS);
        for role in 0..10_000 {
            metrics.call("send", &role.to_string(), CallOutcome::Ok, MS);
        }
        let text = metrics.render();
        assert_eq!(series(&text, "agentenv_tool_calls_total{"), MAX_ROLES);
        let others = 10_001 - (MAX_ROLES - 2);
        let other =
            format!("agentenv_tool_calls_total{{tool=\"send\",role=\"other\",outcome=\"ok\"}} {others}\n");
        assert!(text.contains(&other), "{text}");
        for role in ["first", "x"] {
            for tool in 0..4_000 {
                metrics.call(&tool.to_string(), role, CallOutcome::Ok, MS);
            }
        }
        let text = metrics.render();
        assert_eq!(series(&text, "agentenv_tool_call_duration_seconds_count"), MAX_TOOLS);
        let mut calls = 0;
        for line in text.lines().filter(|line| line.starts_with("agentenv_tool_calls_total{")) {
            calls += line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap();
        }
        assert_eq!(calls, 18_002);
    }

    #[test]
    fn pairs_are_bounded() {
        let metrics = Metrics::new();
        for role in 0..MAX_ROLES {
            for tool in 0..500 {
                metrics.call(&tool.to_string(), &role.to_string(), CallOutcome::Ok, MS);
            }
        }
        let pairs = series(&metrics.render(), "agentenv_tool_calls_total{");
        assert!((MAX_PAIRS..=MAX_PAIRS + 500).contains(&pairs), "{pairs}");
    }

    #[test]
    fn every_call_is_counted_by_many_at_once() {
        let metrics = Metrics::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let metrics = &metrics;
                scope.spawn(move || {
                    for at in 0..1_000 {
                        metrics.call(
                            &(at % 7).to_string(),
                            &(at % 5 + thread).to_string(),
                            CallOutcome::Ok,
                            MS,
                        );
                    }
                });
            }
        });
        let text = metrics.render();
        let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        let of = |name| text.lines().filter(|line| line.starts_with(name)).map(count).sum::<u64>();
        assert_eq!(of("agentenv_tool_calls_total{"), 4_000);
        assert_eq!(of("agentenv_tool_call_duration_seconds_count"), 4_000);
    }
}
