//! Who wrote which row: the windows of changelog ids between the reads before and after each call (contract 8).
//! Reading the ids is left to `link`, reading the rows to `changes`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::LatestId;

/// How many windows are kept unless [`Windows::with_capacity`] says otherwise.
pub const WINDOWS_KEPT: usize = 131_072;

/// Who may have written a row: the call, trigger action or proxied request whose window holds it (contract 8).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Actor {
    /// A tool call, by its `tool_call` event.
    ToolCall {
        /// The id of the `tool_call` event.
        event_id: String,
        /// The tool's name.
        tool: String,
        /// The caller's role.
        role: String,
        /// The firings that an executor was acting for (contract 5).
        #[serde(skip_serializing_if = "Option::is_none")]
        caused_by: Option<serde_json::Value>,
        /// Whether the call failed: it may have written before it did.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        failed: bool,
    },
    /// A trigger's tool action, by its `internal_tool_call` event.
    TriggerAction {
        /// The id of the `internal_tool_call` event.
        event_id: String,
        /// The trigger's id.
        trigger_id: String,
        /// Which of the trigger's actions it was, from 0.
        action_index: usize,
        /// The tool's name.
        tool: String,
        /// The role it was called as, if one was named.
        role: Option<String>,
    },
    /// A proxied write, by its `http_request` event.
    Request {
        /// The id of the `http_request` event.
        event_id: String,
        /// What was asked.
        request: WrittenRequest,
        /// The caller's role.
        role: String,
        /// The firings that an executor was acting for (contract 5).
        #[serde(skip_serializing_if = "Option::is_none")]
        caused_by: Option<serde_json::Value>,
    },
}

/// A proxied request that moved the changelog (contract 5, `http_request`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrittenRequest {
    /// `svc` or `website`.
    pub route: String,
    /// The key that the route named.
    pub service: String,
    /// The HTTP method.
    pub method: String,
    /// The path behind the key, with its leading slash.
    pub path: String,
    /// The status that the upstream answered, if it did.
    pub status: Option<u16>,
}

/// The windows of the calls that wrote something, in the order in which the calls ended.
///
/// Bounded: a call whose ids are equal wrote nothing and takes no room, and past the capacity the oldest window is
/// forgotten. Rows that a forgotten window may have held keep the actors that are still known; [`Windows::complete_after`]
/// says from which id on nothing was forgotten. A window is about 200 bytes, so [`WINDOWS_KEPT`] of them are 25 MB.
#[derive(Debug)]
pub struct Windows {
    kept: Mutex<Kept>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Kept {
    windows: VecDeque<Window>,
    forgotten_to: i64,
}

#[derive(Debug, Clone)]
struct Window {
    before: i64,
    after: i64,
    actor: Arc<Actor>,
}

impl Default for Windows {
    fn default() -> Self {
        Self::with_capacity(WINDOWS_KEPT)
    }
}

impl Windows {
    /// Windows of which at most `capacity` are kept.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { kept: Mutex::default(), capacity: capacity.max(1) }
    }

    /// Notes that `actor` acted between the two reads. A window of which one end is unknown could hold rows that others
    /// wrote, so it attributes nothing.
    pub fn record(&self, actor: Actor, before: LatestId, after: LatestId) {
        let (LatestId::Known(before), LatestId::Known(after)) = (before, after) else { return };
        if after <= before {
            return;
        }
        let window = Window { before, after, actor: Arc::new(actor) };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.windows.len() >= self.capacity
            && let Some(oldest) = kept.windows.pop_front()
        {
            kept.forgotten_to = kept.forgotten_to.max(oldest.after);
        }
        kept.windows.push_back(window);
    }

    /// The highest id that a forgotten window held: the actors of rows past it are complete. 0 while none was forgotten.
    pub fn complete_after(&self) -> i64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).forgotten_to
    }

    /// A view of the windows that reach past `after_id`, from which the actors of rows are read in ascending order of id.
    pub(super) fn sweep(&self, after_id: i64) -> Sweep {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = kept.windows.iter().filter(|window| window.after > after_id).cloned().collect::<Vec<_>>();
        drop(kept);
        Sweep::new(ahead)
    }
}

/// Goes through rows in ascending order of id, holding the windows that are open at each.
pub(super) struct Sweep {
    windows: Vec<Window>,
    /// Indices of the windows that have not begun, the next one last.
    ahead: Vec<usize>,
    /// The windows that have begun and not ended; indices are in the order in which the calls ended.
    open: Vec<usize>,
    ends: BinaryHeap<Reverse<(i64, usize)>>,
}

impl Sweep {
    fn new(windows: Vec<Window>) -> Self {
        let mut ahead: Vec<usize> = (0..windows.len()).collect();
        ahead.sort_by_key(|&index| Reverse(windows.get(index).map(|window| window.before)));
        Self { windows, ahead, open: Vec::new(), ends: BinaryHeap::new() }
    }

    /// The actors of the row `id`, in the order in which they ended. Ids must be given in ascending order.
    pub(super) fn actors(&mut self, id: i64) -> impl ExactSizeIterator<Item = &Arc<Actor>> {
        while let Some(window) = self.ahead.last().and_then(|&index| self.windows.get(index))
            && window.before < id
        {
            let after = window.after;
            if let Some(index) = self.ahead.pop()
                && after >= id
            {
                let place = self.open.partition_point(|&other| other < index);
                self.open.insert(place, index);
                self.ends.push(Reverse((after, index)));
            }
        }
        while let Some(&Reverse((after, index))) = self.ends.peek()
            && after < id
        {
            self.ends.pop();
            if let Ok(place) = self.open.binary_search(&index) {
                self.open.remove(place);
            }
        }
        self.open.iter().map(|&index| &self.windows[index].actor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(number: usize) -> Actor {
        Actor::ToolCall {
            event_id: format!("event_{number}"),
            tool: "send".to_owned(),
            role: "default".to_owned(),
            caused_by: None,
            failed: false,
        }
    }

    fn number(actor: &Actor) -> usize {
        match actor {
            Actor::ToolCall { event_id, .. } => event_id.trim_start_matches("event_").parse().unwrap(),
            other => panic!("unexpected {other:?}"),
        }
    }

    fn actors(windows: &Windows, ids: &[i64]) -> Vec<Vec<usize>> {
        let mut sweep = windows.sweep(0);
        ids.iter().map(|&id| sweep.actors(id).map(|actor| number(actor)).collect()).collect()
    }

    #[test]
    fn a_row_belongs_to_the_windows_that_hold_it_in_the_order_they_ended() {
        let windows = Windows::default();
        windows.record(call(1), LatestId::Known(2), LatestId::Known(4));
        windows.record(call(2), LatestId::Known(0), LatestId::Known(4));
        windows.record(call(3), LatestId::Known(4), LatestId::Known(5));
        assert_eq!(
            actors(&windows, &[1, 2, 3, 4, 5, 6]),
            [vec![2], vec![2], vec![1, 2], vec![1, 2], vec![3], vec![]]
        );
    }

    #[test]
    fn an_unknown_end_attributes_nothing() {
        let windows = Windows::default();
        windows.record(call(1), LatestId::Unknown, LatestId::Known(4));
        windows.record(call(2), LatestId::Known(0), LatestId::Unknown);
        windows.record(call(3), LatestId::Known(4), LatestId::Known(4));
        assert!(actors(&windows, &[1, 4]).iter().all(Vec::is_empty));
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_was_forgotten_is_said() {
        let windows = Windows::with_capacity(2);
        for end in 1..=4 {
            windows.record(call(end), LatestId::Known(end as i64 - 1), LatestId::Known(end as i64));
        }
        assert_eq!(actors(&windows, &[1, 2, 3, 4]), [vec![], vec![], vec![3], vec![4]]);
        assert_eq!(windows.complete_after(), 2);
    }

    #[test]
    fn an_actor_is_written_as_the_wire_has_it() {
        let actor = Actor::Request {
            event_id: "event_7".to_owned(),
            request: WrittenRequest {
                route: "svc".to_owned(),
                service: "mcp-email".to_owned(),
                method: "POST".to_owned(),
                path: "/agentenv".to_owned(),
                status: Some(200),
            },
            role: "default".to_owned(),
            caused_by: None,
        };
        assert_eq!(
            serde_json::to_string(&actor).unwrap(),
            r#"{"kind":"request","event_id":"event_7","request":{"route":"svc","service":"mcp-email","method":"POST","path":"/agentenv","status":200},"role":"default"}"#
        );
    }

    proptest! {
        #[test]
        fn the_sweep_agrees_with_looking_at_every_window(
            ends in proptest::collection::vec((0i64..40, 0i64..12), 0..40),
            start in 0i64..40,
        ) {
            let windows = Windows::default();
            for (index, &(before, length)) in ends.iter().enumerate() {
                windows.record(call(index), LatestId::Known(before), LatestId::Known(before + length));
            }
            let mut sweep = windows.sweep(start);
            for id in (start + 1..60).step_by(2) {
                let swept: Vec<usize> = sweep.actors(id).map(|actor| number(actor)).collect();
                let looked: Vec<usize> = (0..ends.len())
                    .filter(|&index| ends[index].0 < id && id <= ends[index].0 + ends[index].1)
                    .collect();
                prop_assert_eq!(swept, looked);
            }
        }
    }
}
