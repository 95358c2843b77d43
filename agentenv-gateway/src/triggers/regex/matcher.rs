//! Runs a program over a text by backtracking, as Python's engine does, with a bound on the work.

use super::ast::{Edge, is_word};
use super::charset::same_letter;
use super::program::{Inst, Program};

/// Steps that every search may take, however short the text. A step looks at one character or one instruction.
const BASE_STEPS: usize = 1_000_000;

/// Steps more for each byte of text, so that a search which needs only a few looks at each place comes to its end.
const STEPS_PER_BYTE: usize = 16;

/// Steps that no search may exceed: a fraction of a second.
const MAX_STEPS: usize = 20_000_000;

/// Most things that a search remembers to come back to.
const MAX_STACK: usize = 1 << 20;

/// The search was given up because it took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pattern took too many steps on this text")]
pub(crate) struct TooManySteps;

/// Something to come back to.
enum Frame {
    /// Go on here instead.
    Branch { at: usize, position: usize },
    /// Give a slot its value back.
    Restore { slot: usize, value: Option<usize> },
    /// Give up the last character of a run that began at `least`.
    Shorter { at: usize, least: usize, position: usize },
    /// Take one more character, at most `left` of them, by the instruction before `at`.
    Longer { at: usize, position: usize, left: usize },
}

struct Matcher<'a> {
    program: &'a Program,
    text: &'a str,
    slots: Vec<Option<usize>>,
    stack: Vec<Frame>,
    steps: usize,
}

/// Whether the pattern matches anywhere in the text.
pub(super) fn search(program: &Program, text: &str) -> Result<bool, TooManySteps> {
    let steps = (BASE_STEPS + text.len().saturating_mul(STEPS_PER_BYTE)).min(MAX_STEPS);
    let slots = vec![None; program.slots];
    let mut matcher = Matcher { program, text, slots, stack: Vec::new(), steps };
    let first = match program.insts.first() {
        Some(Inst::Char(first)) => Some(*first),
        _ => None,
    };
    let anchored = matches!(program.insts.first(), Some(Inst::Edge(Edge::Start)));
    let mut start = Some(0);
    while let Some(mut position) = start {
        if let Some(first) = first {
            // Where the pattern begins with a letter, places without it need no look.
            match text.get(position..).and_then(|rest| rest.find(first)) {
                Some(offset) => position += offset,
                None => return Ok(false),
            }
        }
        matcher.slots.fill(None);
        matcher.stack.clear();
        if matcher.run(0, position)?.is_some() {
            return Ok(true);
        }
        start = if anchored { None } else { matcher.after(position) };
    }
    Ok(false)
}

impl Matcher<'_> {
    fn step(&mut self) -> Result<(), TooManySteps> {
        self.steps = self.steps.checked_sub(1).ok_or(TooManySteps)?;
        Ok(())
    }

    fn push(&mut self, frame: Frame) -> Result<(), TooManySteps> {
        if self.stack.len() >= MAX_STACK {
            return Err(TooManySteps);
        }
        self.stack.push(frame);
        Ok(())
    }

    fn next_char(&self, position: usize) -> Option<char> {
        self.text.get(position..)?.chars().next()
    }

    fn char_before(&self, position: usize) -> Option<char> {
        self.text.get(..position)?.chars().next_back()
    }

    /// The position one character on.
    fn after(&self, position: usize) -> Option<usize> {
        self.next_char(position).map(|c| position + c.len_utf8())
    }

    /// The position after one character that a single-character instruction takes.
    fn one(&self, at: usize, position: usize) -> Option<usize> {
        let next = self.next_char(position)?;
        let taken = match self.program.insts.get(at)? {
            Inst::Char(wanted) => *wanted == next,
            Inst::Set(set) => set.contains(next),
            Inst::Any => true,
            Inst::AnyButNewline => next != '\n',
            _ => false,
        };
        taken.then(|| position + next.len_utf8())
    }

    /// Runs from an instruction to `Match` or `Done`, and gives the position there; none when there is no way. What is to
    /// be tried otherwise stays on the stack.
    fn run(&mut self, mut at: usize, mut position: usize) -> Result<Option<usize>, TooManySteps> {
        let bottom = self.stack.len();
        loop {
            self.step()?;
            let Some(inst) = self.program.insts.get(at) else { return Ok(None) };
            let next = match inst {
                Inst::Match | Inst::Done => return Ok(Some(position)),
                Inst::Char(_) | Inst::Set(_) | Inst::Any | Inst::AnyButNewline => {
                    self.one(at, position).map(|position| (at + 1, position))
                }
                Inst::Edge(edge) => self.is_at(*edge, position).then_some((at + 1, position)),
                Inst::Jump(to) => Some((*to, position)),
                Inst::Split(first, second) => {
                    self.push(Frame::Branch { at: *second, position })?;
                    Some((*first, position))
                }
                Inst::Run { min, max, greedy } => self.run_of_one(at, position, *min, *max, *greedy)?,
                Inst::Save(slot) | Inst::LoopStart(slot) => {
                    self.save(*slot, Some(position))?;
                    Some((at + 1, position))
                }
                Inst::LoopCheck { slot, exit } => {
                    let empty = self.slots.get(*slot) == Some(&Some(position));
                    Some((if empty { *exit } else { at + 1 }, position))
                }
                Inst::Look { behind, negated, end } => {
                    let (negated, end) = (*negated, *end);
                    let from = behind.map_or(Some(position), |width| self.back(position, width));
                    let found = match from {
                        Some(from) => self.alone(at + 1, from, !negated)?.is_some(),
                        None => false,
                    };
                    (found != negated).then_some((end, position))
                }
                Inst::Atomic { end } => {
                    let end = *end;
                    self.alone(at + 1, position, true)?.map(|position| (end, position))
                }
                Inst::Backref { group, ignore_case } => {
                    self.again(*group, *ignore_case, position)?.map(|position| (at + 1, position))
                }
                Inst::IfGroup(group, otherwise) => {
                    let matched = self.slots.get(2 * group + 1).is_some_and(Option::is_some);
                    Some((if matched { at + 1 } else { *otherwise }, position))
                }
            };
            let next = match next {
                Some(next) => Some(next),
                None => self.come_back(bottom)?,
            };
            match next {
                Some(next) => (at, position) = next,
                None => return Ok(None),
            }
        }
    }

    /// Runs what stands by itself, after which nothing of it is tried in another way. What it captured is kept if
    /// `keep`, and can still be undone from outside.
    fn alone(&mut self, at: usize, position: usize, keep: bool) -> Result<Option<usize>, TooManySteps> {
        let bottom = self.stack.len();
        let found = self.run(at, position)?;
        let above = self.stack.split_off(bottom);
        for frame in above.into_iter().rev() {
            let Frame::Restore { slot, value } = frame else { continue };
            if keep && found.is_some() {
                self.stack.push(Frame::Restore { slot, value });
            } else if let Some(place) = self.slots.get_mut(slot) {
                *place = value;
            }
        }
        if let Some(kept) = self.stack.get_mut(bottom..) {
            kept.reverse();
        }
        Ok(found)
    }

    /// Undoes the latest choice above `bottom`, and says where to go on.
    fn come_back(&mut self, bottom: usize) -> Result<Option<(usize, usize)>, TooManySteps> {
        while self.stack.len() > bottom {
            self.step()?;
            match self.stack.pop() {
                Some(Frame::Branch { at, position }) => return Ok(Some((at, position))),
                Some(Frame::Restore { slot, value }) => {
                    if let Some(place) = self.slots.get_mut(slot) {
                        *place = value;
                    }
                }
                Some(Frame::Shorter { at, least, position }) => {
                    let Some(shorter) = self.back(position, 1).filter(|shorter| *shorter >= least) else {
                        continue;
                    };
                    self.push(Frame::Shorter { at, least, position: shorter })?;
                    return Ok(Some((at, shorter)));
                }
                Some(Frame::Longer { at, position, left }) => {
                    let Some(longer) = self.one(at - 1, position).filter(|_| left > 0) else { continue };
                    self.push(Frame::Longer { at, position: longer, left: left - 1 })?;
                    return Ok(Some((at, longer)));
                }
                None => {}
            }
        }
        Ok(None)
    }

    fn run_of_one(
        &mut self,
        at: usize,
        mut position: usize,
        min: usize,
        max: Option<usize>,
        greedy: bool,
    ) -> Result<Option<(usize, usize)>, TooManySteps> {
        let after = at + 2;
        let max = max.unwrap_or(usize::MAX);
        for _ in 0..min {
            self.step()?;
            match self.one(at + 1, position) {
                Some(next) => position = next,
                None => return Ok(None),
            }
        }
        if !greedy {
            self.push(Frame::Longer { at: after, position, left: max - min })?;
            return Ok(Some((after, position)));
        }
        let least = position;
        let mut taken = min;
        while taken < max {
            self.step()?;
            let Some(next) = self.one(at + 1, position) else { break };
            position = next;
            taken += 1;
        }
        if position > least {
            self.push(Frame::Shorter { at: after, least, position })?;
        }
        Ok(Some((after, position)))
    }

    fn save(&mut self, slot: usize, value: Option<usize>) -> Result<(), TooManySteps> {
        let Some(place) = self.slots.get_mut(slot) else { return Ok(()) };
        let before = std::mem::replace(place, value);
        self.push(Frame::Restore { slot, value: before })
    }

    /// The position a number of characters before.
    fn back(&self, position: usize, characters: usize) -> Option<usize> {
        let before = self.text.get(..position)?;
        match characters {
            0 => Some(position),
            _ => before.char_indices().rev().nth(characters - 1).map(|(at, _)| at),
        }
    }

    /// The position after what a group matched, if it stands here again.
    fn again(
        &mut self,
        group: usize,
        ignore_case: bool,
        position: usize,
    ) -> Result<Option<usize>, TooManySteps> {
        let slot = |at: usize| self.slots.get(at).copied().flatten();
        let (Some(from), Some(to)) = (slot(2 * group), slot(2 * group + 1)) else { return Ok(None) };
        let text = self.text;
        let (Some(wanted), Some(rest)) = (text.get(from..to), text.get(position..)) else { return Ok(None) };
        if !ignore_case {
            self.steps = self.steps.checked_sub(wanted.len()).ok_or(TooManySteps)?;
            return Ok(rest.starts_with(wanted).then(|| position + wanted.len()));
        }
        let mut end = position;
        let mut rest = rest.chars();
        for wanted in wanted.chars() {
            // A letter's other cases are looked up in a table that is made each time.
            self.steps =
                self.steps.checked_sub(if wanted.is_ascii() { 1 } else { 500 }).ok_or(TooManySteps)?;
            match rest.next() {
                Some(next) if same_letter(wanted, next) => end += next.len_utf8(),
                _ => return Ok(None),
            }
        }
        Ok(Some(end))
    }

    fn is_at(&self, edge: Edge, position: usize) -> bool {
        let rest = self.text.get(position..).unwrap_or_default();
        match edge {
            Edge::Start => position == 0,
            Edge::LineStart => position == 0 || self.char_before(position) == Some('\n'),
            Edge::End => rest.is_empty(),
            Edge::LastLineEnd => rest.is_empty() || rest == "\n",
            Edge::LineEnd => rest.is_empty() || rest.starts_with('\n'),
            Edge::Word | Edge::NotWord => {
                let word = |character: Option<char>| character.is_some_and(is_word);
                let edge_here = word(self.char_before(position)) != word(self.next_char(position));
                // In an empty text there is neither the one nor the other.
                if edge == Edge::Word { edge_here } else { !edge_here && !self.text.is_empty() }
            }
        }
    }
}
