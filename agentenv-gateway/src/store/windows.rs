//! Who wrote which row: the windows of changelog ids between the reads before and after each call (contract 8).
//! Reading the ids is left to `link`, reading the rows to `changes`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::LatestId;

/// How many ranges of ids are told apart in which windows were lost; past that, the oldest two are one.
const LOSSES_KEPT: usize = 1_024;

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
///
/// A call of which an end is unknown has no window, and its rows may lie in those of calls beside it. So rows that it can
/// have written are nobody's: to name the others alone would be wrong.
#[derive(Debug)]
pub struct Windows {
    kept: Mutex<Kept>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Kept {
    windows: VecDeque<Window>,
    forgotten_to: i64,
    /// The highest id that was read.
    highest: i64,
    /// Where rows may be a lost window's, in ascending order and apart from each other.
    lost: VecDeque<Range>,
    /// The same for every row past this id, until an id is read that was asked for after the last loss.
    lost_after: Option<i64>,
    /// How often a window without an end was lost.
    losses: u64,
}

/// The ids `(after, to]`.
#[derive(Debug, Clone, Copy)]
struct Range {
    after: i64,
    to: i64,
}

impl Kept {
    fn lose(&mut self, mut range: Range) {
        if range.to <= range.after {
            return;
        }
        self.lost.retain(|other| {
            let apart = other.to < range.after || range.to < other.after;
            if !apart {
                range = Range { after: range.after.min(other.after), to: range.to.max(other.to) };
            }
            apart
        });
        self.lost.insert(self.lost.partition_point(|other| other.to < range.after), range);
        if self.lost.len() > LOSSES_KEPT
            && let Some(oldest) = self.lost.pop_front()
            && let Some(next) = self.lost.front_mut()
        {
            next.after = oldest.after;
        }
    }
}

/// When a read of the latest id began, as [`Windows::asking`] says.
#[derive(Debug, Clone, Copy)]
pub struct Asked(u64);

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

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before each read of the latest id, and [`heard`](Self::heard) after it.
    pub fn asking(&self) -> Asked {
        Asked(self.kept().losses)
    }

    /// Takes in what a read gave, and gives it back: [`LatestId::Since`] in place of [`LatestId::Unknown`].
    pub fn heard(&self, asked: Asked, id: LatestId) -> LatestId {
        let mut kept = self.kept();
        let LatestId::Known(id) = id else { return LatestId::Since(kept.highest) };
        kept.highest = kept.highest.max(id);
        if asked.0 == kept.losses
            && let Some(after) = kept.lost_after.take()
        {
            kept.lose(Range { after, to: id });
        }
        LatestId::Known(id)
    }

    /// Notes that `actor` acted between the two reads. A window of which one end is unknown could hold rows that others
    /// wrote, so it attributes nothing, and is [lost](Self::lose).
    pub fn record(&self, actor: Actor, before: LatestId, after: LatestId) {
        let (LatestId::Known(before), LatestId::Known(after)) = (before, after) else {
            return self.lose(before, after);
        };
        if after <= before {
            return;
        }
        let window = Window { before, after, actor: Arc::new(actor) };
        let mut kept = self.kept();
        if kept.windows.len() >= self.capacity
            && let Some(oldest) = kept.windows.pop_front()
        {
            kept.forgotten_to = kept.forgotten_to.max(oldest.after);
        }
        kept.windows.push_back(window);
    }

    /// Notes that someone acted between the two reads of whom nothing can be said: rows between them are nobody's. Of ends
    /// that nobody asked for, nothing follows.
    pub fn lose(&self, before: LatestId, after: LatestId) {
        let (LatestId::Known(before) | LatestId::Since(before)) = before else { return };
        let mut kept = self.kept();
        match after {
            LatestId::Known(to) => kept.lose(Range { after: before, to }),
            LatestId::Since(_) => {
                kept.lost_after = Some(kept.lost_after.map_or(before, |after| after.min(before)));
                kept.losses += 1;
            }
            LatestId::Unknown => {}
        }
    }

    /// The highest id that a forgotten window held: the actors of rows past it are complete. 0 while none was forgotten.
    pub fn complete_after(&self) -> i64 {
        self.kept().forgotten_to
    }

    /// A view of the windows that reach past `after_id`, from which the actors of rows are read in ascending order of id.
    pub(super) fn sweep(&self, after_id: i64) -> Sweep {
        let kept = self.kept();
        let mut lost: VecDeque<Range> =
            kept.lost.iter().filter(|range| range.to > after_id).copied().collect();
        lost.extend(kept.lost_after.map(|after| Range { after, to: i64::MAX }));
        let ahead = kept.windows.iter().filter(|window| window.after > after_id).cloned().collect::<Vec<_>>();
        drop(kept);
        Sweep::new(ahead, lost)
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
    /// Where rows are nobody's. Only the last, which has no end, may overlap others.
    lost: VecDeque<Range>,
}

impl Sweep {
    fn new(windows: Vec<Window>, lost: VecDeque<Range>) -> Self {
        let mut ahead: Vec<usize> = (0..windows.len()).collect();
        ahead.sort_by_key(|&index| Reverse(windows.get(index).map(|window| window.before)));
        Self { windows, ahead, open: Vec::new(), ends: BinaryHeap::new(), lost }
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
        while self.lost.front().is_some_and(|range| range.to < id) {
            self.lost.pop_front();
        }
        let nobodys =
            [self.lost.front(), self.lost.back()].into_iter().flatten().any(|range| range.after < id);
        let open = if nobodys { &[] } else { self.open.as_slice() };
        open.iter().map(|&index| &self.windows[index].actor)
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

    /// What a read that begins now gives.
    fn read(windows: &Windows, id: LatestId) -> LatestId {
        windows.heard(windows.asking(), id)
    }

    #[test]
    fn what_a_call_of_unknown_ends_may_have_written_is_nobodys() {
        use LatestId::{Known, Unknown};
        let windows = Windows::default();
        let across = read(&windows, Known(1));
        // It wrote 2, beside a call that wrote 3, and its end fell into an outage.
        let lost = read(&windows, Known(1));
        windows.record(call(1), Known(1), read(&windows, Known(3)));
        let too_early = windows.asking();
        windows.record(call(2), lost, read(&windows, Unknown));
        assert!(actors(&windows, &[1, 2, 3, 9]).iter().all(Vec::is_empty));
        // What was asked before the loss does not bound it: the call may have written since.
        assert_eq!(windows.heard(too_early, Known(3)), Known(3));
        windows.record(call(6), Known(3), Known(5));
        assert!(actors(&windows, &[3, 4]).iter().all(Vec::is_empty));
        // One that begins in the outage, and writes 5 after it.
        let began = read(&windows, Unknown);
        assert_eq!((began, began.value()), (LatestId::Since(3), None));
        let after = read(&windows, Known(4));
        windows.record(call(3), after, read(&windows, Known(6)));
        assert_eq!(actors(&windows, &[4, 5, 6]), [vec![], vec![6, 3], vec![3]]);
        windows.record(call(4), began, read(&windows, Known(5)));
        windows.record(call(5), across, read(&windows, Known(7)));
        assert_eq!(
            actors(&windows, &[1, 2, 3, 4, 5, 6, 7]),
            [vec![], vec![], vec![], vec![], vec![], vec![3, 5], vec![5]]
        );
    }

    #[test]
    fn a_call_that_never_ran_hides_nothing() {
        let windows = Windows::default();
        windows.record(call(1), LatestId::Known(0), LatestId::Known(2));
        windows.record(call(2), LatestId::Unknown, LatestId::Unknown);
        assert_eq!(actors(&windows, &[1, 2]), [vec![1], vec![1]]);
    }

    #[test]
    fn what_is_kept_of_losses_is_bounded() {
        let windows = Windows::default();
        for start in (0..3 * LOSSES_KEPT as i64).rev() {
            windows.lose(LatestId::Known(10 * start), LatestId::Known(10 * start + 2));
        }
        let kept = windows.kept();
        assert_eq!(kept.lost.len(), LOSSES_KEPT);
        assert!(kept.lost.iter().is_sorted_by_key(|range| range.after));
        assert_eq!(kept.lost.front().map(|range| range.after), Some(0));
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
            losses in proptest::collection::vec((0i64..40, 0i64..12), 0..3),
            open in proptest::option::of(0i64..60),
            start in 0i64..40,
        ) {
            let windows = Windows::default();
            for (index, &(before, length)) in ends.iter().enumerate() {
                windows.record(call(index), LatestId::Known(before), LatestId::Known(before + length));
            }
            for &(after, length) in &losses {
                windows.lose(LatestId::Since(after), LatestId::Known(after + length));
            }
            if let Some(after) = open {
                windows.lose(LatestId::Known(after), LatestId::Since(after));
            }
            let lost = |id: i64| {
                open.is_some_and(|after| after < id)
                    || losses.iter().any(|&(after, length)| after < id && id <= after + length)
            };
            let mut sweep = windows.sweep(start);
            for id in (start + 1..60).step_by(2) {
                let swept: Vec<usize> = sweep.actors(id).map(|actor| number(actor)).collect();
                let looked: Vec<usize> = (0..ends.len())
                    .filter(|&index| !lost(id) && ends[index].0 < id && id <= ends[index].0 + ends[index].1)
                    .collect();
                prop_assert_eq!(swept, looked);
            }
        }
    }
}
