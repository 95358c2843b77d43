//! A pattern as instructions for the backtracking matcher.

use super::ast::{Edge, Node};
use super::charset::Charset;

/// Most instructions of a program; a pattern that repeats more than fits is refused.
const MAX_PROGRAM: usize = 50_000;

/// One instruction. Those that match something go on with the next one; targets are places in the program.
#[derive(Debug)]
pub(super) enum Inst {
    Char(char),
    Set(Charset),
    Any,
    AnyButNewline,
    Edge(Edge),
    /// Tries the first target, then the second.
    Split(usize, usize),
    Jump(usize),
    /// A single-character instruction right after this one, as often as it goes; then goes on after that.
    Run {
        min: usize,
        max: Option<usize>,
        greedy: bool,
    },
    /// Stores the position in a slot: `2 * group` at its start, `2 * group + 1` at its end.
    Save(usize),
    /// Stores the position before a round of a loop.
    LoopStart(usize),
    /// Leaves the loop when its round matched nothing.
    LoopCheck {
        slot: usize,
        exit: usize,
    },
    /// What follows up to its `Done` is matched by itself; then goes on at `end`.
    Look {
        behind: Option<usize>,
        negated: bool,
        end: usize,
    },
    Atomic {
        end: usize,
    },
    Done,
    Backref {
        group: usize,
        ignore_case: bool,
    },
    /// Goes on if the group has matched, else at the target.
    IfGroup(usize, usize),
    Match,
}

/// The instructions, and how many slots they store into.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) insts: Vec<Inst>,
    pub(super) slots: usize,
}

/// Compiles a pattern with that many groups; the reason when it is too large.
pub(super) fn compile(node: &Node, groups: usize) -> Result<Program, String> {
    let mut program = Program { insts: Vec::new(), slots: 2 * (groups + 1) };
    program.node(node)?;
    program.push(Inst::Match)?;
    Ok(program)
}

impl Program {
    fn push(&mut self, inst: Inst) -> Result<usize, String> {
        if self.insts.len() >= MAX_PROGRAM {
            return Err("the pattern is too large".to_owned());
        }
        self.insts.push(inst);
        Ok(self.insts.len() - 1)
    }

    fn set(&mut self, at: usize, inst: Inst) {
        if let Some(slot) = self.insts.get_mut(at) {
            *slot = inst;
        }
    }

    /// Where the next instruction will stand.
    fn here(&self) -> usize {
        self.insts.len()
    }

    fn node(&mut self, node: &Node) -> Result<(), String> {
        match node {
            Node::Empty => {}
            Node::Set(_) | Node::Any { .. } => {
                let single = single(node)?.unwrap_or(Inst::Done);
                self.push(single)?;
            }
            Node::Edge(edge) => {
                self.push(Inst::Edge(*edge))?;
            }
            Node::Group(group, node) => {
                self.push(Inst::Save(2 * group))?;
                self.node(node)?;
                self.push(Inst::Save(2 * group + 1))?;
            }
            Node::Look { behind, negated, node } => {
                let look = self.push(Inst::Done)?;
                self.node(node)?;
                self.push(Inst::Done)?;
                self.set(look, Inst::Look { behind: *behind, negated: *negated, end: self.here() });
            }
            Node::Atomic(node) => {
                let atomic = self.push(Inst::Done)?;
                self.node(node)?;
                self.push(Inst::Done)?;
                self.set(atomic, Inst::Atomic { end: self.here() });
            }
            Node::Repeat { node, min, max, greedy } => self.repeat(node, *min, *max, *greedy)?,
            Node::Concat(nodes) => nodes.iter().try_for_each(|node| self.node(node))?,
            Node::Alt(nodes) => self.alternatives(nodes)?,
            Node::Backref { group, ignore_case } => {
                self.push(Inst::Backref { group: *group, ignore_case: *ignore_case })?;
            }
            Node::Conditional { group, yes, no } => {
                let test = self.push(Inst::Done)?;
                self.node(yes)?;
                let jump = self.push(Inst::Done)?;
                self.set(test, Inst::IfGroup(*group, self.here()));
                self.node(no)?;
                self.set(jump, Inst::Jump(self.here()));
            }
        }
        Ok(())
    }

    fn alternatives(&mut self, nodes: &[Node]) -> Result<(), String> {
        let mut jumps = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            if at + 1 == nodes.len() {
                self.node(node)?;
                break;
            }
            let split = self.push(Inst::Done)?;
            self.node(node)?;
            jumps.push(self.push(Inst::Done)?);
            self.set(split, Inst::Split(split + 1, self.here()));
        }
        for jump in jumps {
            self.set(jump, Inst::Jump(self.here()));
        }
        Ok(())
    }

    fn repeat(&mut self, node: &Node, min: usize, max: Option<usize>, greedy: bool) -> Result<(), String> {
        if let Some(single) = single(node)? {
            self.push(Inst::Run { min, max, greedy })?;
            self.push(single)?;
            return Ok(());
        }
        for _ in 0..min {
            self.node(node)?;
        }
        let Some(max) = max else { return self.star(node, greedy) };
        let mut splits = Vec::new();
        for _ in min..max {
            splits.push(self.push(Inst::Done)?);
            self.node(node)?;
        }
        for split in splits {
            let (inside, exit) = (split + 1, self.here());
            self.set(split, if greedy { Inst::Split(inside, exit) } else { Inst::Split(exit, inside) });
        }
        Ok(())
    }

    fn star(&mut self, node: &Node, greedy: bool) -> Result<(), String> {
        let slot = self.slots;
        self.slots += 1;
        let split = self.push(Inst::Done)?;
        self.push(Inst::LoopStart(slot))?;
        self.node(node)?;
        let check = self.push(Inst::Done)?;
        self.push(Inst::Jump(split))?;
        let (inside, exit) = (split + 1, self.here());
        self.set(check, Inst::LoopCheck { slot, exit });
        self.set(split, if greedy { Inst::Split(inside, exit) } else { Inst::Split(exit, inside) });
        Ok(())
    }
}

/// The instruction for a node that is always one character.
fn single(node: &Node) -> Result<Option<Inst>, String> {
    Ok(match node {
        Node::Set(set) => Some(match set.single() {
            Some(character) => Inst::Char(character),
            None => Inst::Set(Charset::new(set)?),
        }),
        Node::Any { newline: true } => Some(Inst::Any),
        Node::Any { newline: false } => Some(Inst::AnyButNewline),
        _ => None,
    })
}
