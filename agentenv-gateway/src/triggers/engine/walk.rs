//! The engine under random walks: whatever is registered, removed, called, armed, cleared and reported, in whatever order,
//! nothing is lost, nothing fires for ever, and nothing that was removed does anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rand_mt::Mt;
use serde_json::value::to_raw_value;

use super::super::parse::{self, Names};
use super::super::spec::Verdict;
use super::super::world::ToolFacts;
use super::*;
use crate::triggers::json::Json;
use crate::triggers::world::SeenCall;

const TOOLS: [(&str, ToolFacts); 3] = [
    ("send", ToolFacts { read_only: false }),
    ("add", ToolFacts { read_only: false }),
    ("look", ToolFacts { read_only: true }),
];

/// Triggers of every kind; `{}` is an id.
const SPECS: [&str; 14] = [
    r#"{"type":"action","tool":"send","repeat":true}"#,
    r#"{"type":"action","tool":"send"}"#,
    r#"{"type":"action","tool":"add","repeat":true,"where":{"n":{"equals":1}}}"#,
    r#"{"type":"action","tool":"add","where":{"n":{"regex":"^[12]$"}},"roles":["boss"]}"#,
    r#"{"type":"state","check":{"tool":"look","predicate":{"exists":true}}}"#,
    r#"{"type":"time","at":"PT1H"}"#,
    r#"{"type":"time","at":"2026-10-05T12:00:00Z","unless":{"tool":"send"}}"#,
    r#"{"type":"time","every":"PT10M"}"#,
    r#"{"type":"time","every":"PT1S","count":3000}"#,
    r#"{"type":"time","every":{"dist":"exp","mean":"PT1H"},"seed":7,"count":5}"#,
    r#"{"type":"time","after":"t1","offset":"PT30M"}"#,
    r#"{"type":"time","after":"t2","offset":"PT0S","every":"PT20M","until":"P3D"}"#,
    r#"{"type":"time","after":"t3","offset":"PT5M","unless":{"tool":"add"}}"#,
    r#"{"type":"time","after":"t0","offset":"PT1H"}"#,
];

const ACTIONS: [&str; 6] = [
    r#"{"type":"permission","action":"enable","role":"x","tools":["send"]}"#,
    r#"{"type":"tool","tool":"send","args":{"to":"x"}}"#,
    r#"{"type":"tool","tool":"send","delay":"PT15M"}"#,
    r#"{"type":"tool","tool":"send","verify":{"tool":"look","predicate":{"exists":true}},"delay":{"dist":"exp","mean":"PT1H","seed":1}}"#,
    r#"{"type":"nl","instruction":"x"}"#,
    r#"{"type":"nl","instruction":"x","executor":"late","verify":{"tool":"look","predicate":{"exists":true}}}"#,
];

const EXECUTORS: &str = r#""executor":{"a2a_url":"http://h","role":"w"},
    "executors":{"late":{"a2a_url":"http://h","role":"w","hours":{"start":"11:00","end":"12:00"}}}"#;

struct Walk {
    random: Mt,
    engine: Engine,
    wall: i64,
    /// The clock: its start, what it shows, and its arming.
    clock: Option<ClockReading>,
    armings: u64,
    last_shown: VirtualTime,
    /// Jobs that were started and neither reported nor given up.
    jobs: BTreeMap<Job, Task>,
    held: BTreeSet<MatchId>,
    /// Matches taken in by each trigger.
    matches: HashMap<Uid, u64>,
    /// Everything that was commanded, for comparison.
    commanded: Vec<String>,
}

impl Walk {
    fn new(seed: u32) -> Self {
        Self {
            random: Mt::new(seed),
            engine: Engine::default(),
            wall: 1_800_000_000_000_000,
            clock: None,
            armings: 0,
            last_shown: VirtualTime::from_micros(0),
            jobs: BTreeMap::new(),
            held: BTreeSet::new(),
            matches: HashMap::new(),
            commanded: Vec::new(),
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random.next_u32() % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    fn now(&self) -> Now {
        let wall = Timestamp::from_microsecond(self.wall).unwrap();
        Now { wall, clock: self.clock, last_shown: self.last_shown }
    }

    fn step(&mut self) {
        self.wall += i64::from(self.below(1_000_000));
        match self.below(100) {
            0..14 => self.register(),
            14..20 => self.remove(),
            20 if self.below(40) == 0 => self.engine.clear(),
            20..38 => self.call(),
            38..82 => self.report(),
            82..97 => self.time_passes(),
            97 => self.arm(),
            98 if self.below(2) == 0 => {
                if let Some(clock) = self.clock.take() {
                    self.last_shown = clock.now;
                }
            }
            _ => {}
        }
        let now = self.now();
        self.engine.tick(&now, false);
        self.take_commands();
        self.check();
    }

    fn register(&mut self) {
        let id = format!("t{}", self.below(12));
        let when = self.pick(&SPECS);
        let barrier = if when.contains("\"action\"") && self.below(2) == 0 {
            r#","barrier":{"at":"provoking_call"}"#
        } else {
            ""
        };
        let actions: Vec<&str> = (0..self.below(3)).map(|_| self.pick(&ACTIONS)).collect();
        let trigger = format!(r#"{{"id":"{id}","when":{when},"actions":[{}]{barrier}}}"#, actions.join(","));
        let body = Json::parse(&format!(r#"{{"triggers":[{trigger}],{EXECUTORS}}}"#)).unwrap();
        let tool = |name: &str| TOOLS.iter().any(|(tool, _)| *tool == name);
        let known = self.engine.registered(&id).map(|spec| spec.source.clone());
        let names =
            Names { tool: Some(&tool), website: &|_| false, registered: &|_| known.as_ref(), own_tools: &[] };
        let read = parse::register(&body, self.engine.settings(), &names, || unreachable!());
        match read {
            Ok(registration) => {
                let now = self.now();
                self.engine.register(registration, &now);
            }
            Err(refused) => assert!(refused.contains("is used by a different trigger"), "{refused}"),
        }
    }

    fn remove(&mut self) {
        let ids = [format!("t{}", self.below(12)), format!("t{}", self.below(12))];
        let now = self.now();
        self.engine.remove(&ids, &now);
        for id in ids {
            assert!(self.engine.registered(&id).is_none());
        }
    }

    fn call(&mut self) {
        let (tool, facts) = self.pick(&TOOLS);
        let role = self.pick(&["default", "boss", "intern"]);
        let args = serde_json::json!({"n": self.below(3)});
        let result = serde_json::json!({"content": [{"type": "text", "text": "{}"}]});
        let call = SeenCall {
            role: role.to_owned(),
            tool: tool.to_owned(),
            arguments: Some(to_raw_value(&args).unwrap().into()),
            result: to_raw_value(&result).unwrap().into(),
            is_error: false,
            read_only: facts.read_only,
        };
        // The table may be made anew at any time, so make it now.
        self.engine.index_is_stale = true;
        let index = self.engine.take_index().unwrap();
        let (looks, states) = index.look(&call);
        for (uid, verdict) in &looks {
            let trigger = &self.engine.triggers[uid];
            let takes = trigger.standing == Standing::Armed
                && (trigger.firing.is_none() || trigger.spec.when.repeats());
            let fits = trigger.queue.len() < calls::MAX_QUEUED;
            if *verdict == Verdict::Matches && trigger.spec.when.kind() == "action" && takes && fits {
                *self.matches.entry(*uid).or_default() += 1;
            }
        }
        let now = self.now();
        self.held
            .extend(self.engine.called(&call, looks, &states, &now).into_iter().map(|held| held.released));
    }

    fn report(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let at = self.below(self.jobs.len() as u32) as usize;
        let job = *self.jobs.keys().nth(at).unwrap();
        let task = self.jobs.remove(&job).unwrap();
        let failed = self.below(8) == 0;
        let outcome = match task {
            Task::Check { .. } if failed => Outcome::Failed("x".to_owned()),
            Task::Check { .. } => {
                Outcome::Checked(if self.below(3) == 0 { Err("no".to_owned()) } else { Ok(()) })
            }
            Task::Record(_) => Outcome::Done { before: None, after: None },
            _ if failed => Outcome::Failed("x".to_owned()),
            _ => Outcome::Done { before: None, after: None },
        };
        let now = self.now();
        self.engine.report(job, outcome.clone(), &now);
        // A second report of it changes nothing.
        self.take_commands();
        let before = self.engine.log.events().count();
        self.engine.report(job, outcome, &now);
        assert!(self.engine.take_commands().is_empty());
        assert_eq!(self.engine.log.events().count(), before);
    }

    fn time_passes(&mut self) {
        let micros = i64::from(self.below(3_000)) * 1_000_000;
        if let Some(clock) = &mut self.clock {
            clock.now = clock.now.saturating_add(micros);
        }
    }

    fn arm(&mut self) {
        let base = VirtualTime::parse("2026-10-05T09:00:00Z").unwrap();
        let t0 = base.saturating_add(i64::from(self.below(48)) * 3_600_000_000);
        self.armings += 1;
        let before = self.clock.map(|clock| clock.now);
        self.clock = Some(ClockReading { now: t0, t0, generation: self.armings, before });
    }

    fn take_commands(&mut self) {
        for command in self.engine.take_commands() {
            self.commanded.push(format!("{command:?}"));
            match command {
                Command::Run { job, trigger_id, task } => {
                    assert!(
                        self.engine.registered(&trigger_id).is_some(),
                        "a job for {trigger_id}, which there is not"
                    );
                    // One begun and given up in one go is not under way.
                    assert!(self.jobs.insert(job, task).is_none());
                }
                Command::Abort(job) => {
                    self.jobs.remove(&job);
                }
                Command::Release(held) => {
                    assert!(self.held.remove(&held), "a call let go twice")
                }
            }
        }
    }

    fn check(&self) {
        let engine = &self.engine;
        assert!(
            self.jobs.keys().eq(engine.jobs.keys().collect::<BTreeSet<_>>()),
            "jobs that nobody does, or nobody knows"
        );
        assert_eq!(engine.awaited, engine.jobs.values().filter(|booked| booked.awaited).count());
        assert_eq!(engine.instructing, engine.jobs.values().filter(|booked| booked.instructs).count());
        let mut held = BTreeSet::new();
        for (id, firing) in &engine.firings {
            assert_eq!(engine.triggers[&firing.uid].firing, Some(*id), "a firing without its trigger");
            let waits = match firing.phase {
                Phase::Delayed(Wait::Until(until)) | Phase::OutOfHours(Some(until)) => {
                    let due = engine.due.contains(&(until, Wake::Firing(*id)));
                    assert!(due || engine.clock.is_none(), "a wait that nothing ends");
                    true
                }
                Phase::Delayed(Wait::Left(_)) => engine.clock.is_none(),
                Phase::OutOfHours(None) => true,
                _ => false,
            };
            assert!(firing.job.is_some() != waits, "a firing with nothing under way: {firing:?}");
            held.extend(firing.held);
        }
        let mut due = 0;
        for (uid, trigger) in &engine.triggers {
            held.extend(trigger.queue.iter().filter_map(|pending| pending.held));
            assert_eq!(engine.ids.get(&trigger.spec.id), Some(uid));
            assert!(trigger.firing.is_none_or(|firing| engine.firings.contains_key(&firing)));
            assert!(trigger.queue.is_empty() || trigger.firing.is_some(), "matches that wait for nothing");
            assert!(
                trigger.standing == Standing::Armed || (trigger.firing.is_none() && trigger.queue.is_empty())
            );
            if let Some(at) = trigger.times.due {
                due += 1;
                assert!(engine.due.contains(&(at, Wake::Mark(*uid))));
            }
            let timed =
                trigger.standing == Standing::Armed && trigger.firing.is_none() && engine.clock.is_some();
            if timed && trigger.times.marks.peek().is_some() {
                assert!(
                    trigger.times.due.is_some() || trigger.times.put_off.is_some(),
                    "a mark that nothing waits for"
                );
            }
            if trigger.spec.when.kind() == "action" {
                let taken = trigger.fire_count + trigger.failure_count;
                let open = trigger.queue.len() as u64 + u64::from(trigger.firing.is_some());
                assert_eq!(
                    taken + open,
                    self.matches.get(uid).copied().unwrap_or(0),
                    "a match lost or made up"
                );
            }
        }
        let marks = engine.due.iter().filter(|(_, wake)| matches!(wake, Wake::Mark(_))).count();
        assert_eq!(marks, due, "marks that no trigger knows of");
        assert_eq!(held, self.held, "calls held for nothing, or let go too early");
    }

    /// Everything is done and time goes on: then nothing may be left firing.
    fn come_to_rest(&mut self) {
        self.engine.remove(
            &(0..12)
                .map(|n| format!("t{n}"))
                .filter(|id| {
                    // These never come to rest.
                    self.engine.registered(id).is_some_and(|spec| spec.summary.get().contains("PT10M"))
                })
                .collect::<Vec<_>>(),
            &self.now(),
        );
        self.arm();
        for _ in 0..40_000 {
            let now = self.now();
            self.engine.tick(&now, true);
            self.take_commands();
            while let Some((job, task)) = self.jobs.pop_first() {
                let done = Outcome::Done { before: None, after: None };
                let outcome =
                    if matches!(task, Task::Check { .. }) { Outcome::Checked(Ok(())) } else { done };
                self.engine.report(job, outcome, &now);
                self.take_commands();
            }
            if self.engine.firings.is_empty() && self.engine.due.is_empty() && self.engine.later.is_empty() {
                break;
            }
            if let (Some(clock), Some((at, _))) = (&mut self.clock, self.engine.due.first()) {
                clock.now = clock.now.max(*at);
            }
        }
        self.check();
        assert!(self.engine.firings.is_empty(), "still firing: {:?}", self.engine.firings);
        assert!(self.held.is_empty());
    }
}

#[test]
fn a_hundred_thousand_steps() {
    for seed in 0..20 {
        let mut walk = Walk::new(seed);
        for _ in 0..5_000 {
            walk.step();
        }
        walk.come_to_rest();
    }
}

#[test]
fn the_same_events_make_the_same_log() {
    let walk = |seed| {
        let mut walk = Walk::new(seed);
        for _ in 0..3_000 {
            walk.step();
        }
        (walk.engine.state().get().to_owned(), walk.commanded)
    };
    for seed in 100..103 {
        let (first, second) = (walk(seed), walk(seed));
        assert_eq!(first.0, second.0);
        let differ = first.1.iter().zip(&second.1).find(|(a, b)| a != b);
        assert_eq!((differ, first.1.len()), (None, second.1.len()));
        assert!(first.1.len() > 500, "{} commands", first.1.len());
    }
}
