//! Reads a pattern as Python's `re` does, and refuses what it refuses. Patterns of this engine's users were written for
//! Python; a pattern that another engine would read differently must not change its meaning silently.

mod escapes;
mod width;

use std::collections::HashMap;

use super::ast::{Edge, Node, Set};

/// Deepest nesting of groups.
const MAX_NESTING: usize = 100;

/// A parsed pattern.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) node: Node,
    /// How many numbered groups there are.
    pub(super) groups: usize,
}

/// Parses a pattern.
pub(super) fn parse(pattern: &str) -> Result<Parsed, String> {
    // `(?x)` changes how the text before it is read, too, so a pattern that turns it on is read anew.
    let mut flags = Flags::default();
    loop {
        let mut parser = Parser { chars: pattern.chars().collect(), flags, ..Parser::default() };
        match parser.whole() {
            Ok(node) => return Ok(Parsed { node, groups: parser.widths.len() }),
            Err(Stop::Verbose) => flags.verbose = true,
            Err(Stop::Fault(fault)) => return Err(fault),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
    verbose: bool,
}

enum Stop {
    /// The pattern turns verbose mode on for all of it.
    Verbose,
    Fault(String),
}

impl From<String> for Stop {
    fn from(fault: String) -> Self {
        Self::Fault(fault)
    }
}

impl From<&str> for Stop {
    fn from(fault: &str) -> Self {
        Self::Fault(fault.to_owned())
    }
}

type Read<T> = Result<T, Stop>;

/// Least and most characters that something matches.
type Width = (usize, usize);

const UNBOUNDED: usize = usize::MAX;

#[derive(Default)]
struct Parser {
    chars: Vec<char>,
    at: usize,
    flags: Flags,
    nesting: usize,
    names: HashMap<String, usize>,
    /// Each group's width, none while it is open.
    widths: Vec<Option<Width>>,
    /// The highest group that a conditional names by number.
    conditional_on: usize,
    /// How many groups there were when the outermost look-behind began.
    behind_from: Option<usize>,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    fn take(&mut self, wanted: char) -> bool {
        let taken = self.peek() == Some(wanted);
        self.at += usize::from(taken);
        taken
    }

    /// Takes what is before `end`, and `end`.
    fn until(&mut self, end: char, what: &str) -> Read<String> {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|c| *c == end).ok_or_else(|| format!("unterminated {what}"))?;
        self.at += length + 1;
        Ok(rest.iter().take(length).collect())
    }

    fn whole(&mut self) -> Read<Node> {
        let node = self.alternatives()?;
        if self.peek().is_some() {
            return Err("unbalanced parenthesis".into());
        }
        if self.conditional_on > self.widths.len() {
            return Err(format!("there is no group {}", self.conditional_on).into());
        }
        Ok(node)
    }

    fn alternatives(&mut self) -> Read<Node> {
        let mut branches = vec![self.sequence(self.nesting == 0)?];
        while self.take('|') {
            branches.push(self.sequence(false)?);
        }
        Ok(if branches.len() == 1 { branches.swap_remove(0) } else { Node::Alt(branches) })
    }

    /// Reads up to `|`, `)` or the end. `first`: flags for the whole pattern may still come.
    fn sequence(&mut self, first: bool) -> Read<Node> {
        let mut items: Vec<Node> = Vec::new();
        while let Some(next) = self.peek().filter(|next| !matches!(next, '|' | ')')) {
            self.at += 1;
            if self.flags.verbose && self.skip_verbose(next) {
                continue;
            }
            let item = match next {
                '*' | '+' | '?' => {
                    self.repeat(items.pop(), (usize::from(next == '+'), (next == '?').then_some(1)))?
                }
                '{' => match self.bounds()? {
                    Some(bounds) => self.repeat(items.pop(), bounds)?,
                    None => Node::Set(Set::one('{', self.flags.ignore_case)),
                },
                '.' => Node::Any { newline: self.flags.dot_all },
                '^' => Node::Edge(if self.flags.multi_line { Edge::LineStart } else { Edge::Start }),
                '$' => Node::Edge(if self.flags.multi_line { Edge::LineEnd } else { Edge::LastLineEnd }),
                '[' => self.set()?,
                '\\' => self.escape()?,
                '(' => match self.group(first && items.is_empty())? {
                    Some(node) => node,
                    None => continue,
                },
                other => Node::Set(Set::one(other, self.flags.ignore_case)),
            };
            items.push(item);
        }
        Ok(match items.len() {
            0 => Node::Empty,
            1 => items.swap_remove(0),
            _ => Node::Concat(items),
        })
    }

    /// Skips what does not count in verbose mode, of which `next` was the first.
    fn skip_verbose(&mut self, next: char) -> bool {
        if next == '#' {
            while self.next().is_some_and(|c| c != '\n') {}
        }
        matches!(next, '#' | ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
    }

    /// The inside of `{m,n}`; none when it is not that, and the brace is a brace.
    fn bounds(&mut self) -> Read<Option<(usize, Option<usize>)>> {
        let start = self.at;
        if self.peek() == Some('}') {
            return Ok(None);
        }
        let low = self.digits();
        let high = if self.take(',') { self.digits() } else { low.clone() };
        if !self.take('}') {
            self.at = start;
            return Ok(None);
        }
        let number = |digits: &str| match digits {
            "" => Ok(None),
            digits => {
                digits.parse::<u32>().map(|n| Some(n as usize)).map_err(|_| "a repetition is too large")
            }
        };
        let (min, max) = (number(&low)?.unwrap_or(0), number(&high)?);
        if max.is_some_and(|max| max < min) {
            return Err("a repetition's least is more than its most".into());
        }
        Ok(Some((min, max)))
    }

    fn digits(&mut self) -> String {
        let mut digits = String::new();
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            digits.push(digit);
            self.at += 1;
        }
        digits
    }

    fn repeat(&mut self, item: Option<Node>, (min, max): (usize, Option<usize>)) -> Read<Node> {
        let node = match item {
            None | Some(Node::Edge(_)) => return Err("there is nothing to repeat".into()),
            Some(Node::Empty) => Node::Empty,
            Some(Node::Repeat { .. }) => return Err("a repetition cannot be repeated".into()),
            Some(Node::Atomic(inner)) if matches!(*inner, Node::Repeat { .. }) => {
                return Err("a repetition cannot be repeated".into());
            }
            Some(item) => item,
        };
        let greedy = !self.take('?');
        let repeat = Node::Repeat { node: Box::new(node), min, max, greedy };
        Ok(if greedy && self.take('+') { Node::Atomic(Box::new(repeat)) } else { repeat })
    }

    /// What follows `(`; none for a comment or for flags.
    fn group(&mut self, flags_may_come: bool) -> Read<Option<Node>> {
        if !self.take('?') {
            return self.capture(None).map(Some);
        }
        match self.next().ok_or("unexpected end of pattern")? {
            ':' => self.inside(self.flags).map(Some),
            '#' => self.until(')', "comment").map(|_| None),
            '=' => self.look(None, false).map(Some),
            '!' => self.look(None, true).map(Some),
            '>' => Ok(Some(Node::Atomic(Box::new(self.inside(self.flags)?)))),
            '<' => match self.next() {
                Some(sign @ ('=' | '!')) => self.look_behind(sign == '!').map(Some),
                _ => Err("unknown extension (?<: a named group is written (?P<name>…)".into()),
            },
            'P' => match self.next() {
                Some('<') => {
                    let name = self.until('>', "group name")?;
                    check_name(&name)?;
                    if self.names.contains_key(&name) {
                        return Err(format!("group name {name:?} is used twice").into());
                    }
                    self.capture(Some(name)).map(Some)
                }
                Some('=') => {
                    let name = self.until(')', "group name")?;
                    let group =
                        *self.names.get(&name).ok_or_else(|| format!("unknown group name {name:?}"))?;
                    self.backref(group).map(Some)
                }
                _ => Err("unknown extension (?P".into()),
            },
            '(' => self.conditional().map(Some),
            _ => {
                self.at -= 1;
                self.flag_group(flags_may_come)
            }
        }
    }

    fn capture(&mut self, name: Option<String>) -> Read<Node> {
        self.widths.push(None);
        let group = self.widths.len();
        if let Some(name) = name {
            self.names.insert(name, group);
        }
        let node = self.inside(self.flags)?;
        let width = self.width(&node);
        if let Some(slot) = self.widths.get_mut(group - 1) {
            *slot = Some(width);
        }
        Ok(Node::Group(group, Box::new(node)))
    }

    fn deeper(&mut self) -> Read<()> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(format!("groups are nested more than {MAX_NESTING} deep").into());
        }
        Ok(())
    }

    /// The rest of a group, with its `)`.
    fn inside(&mut self, flags: Flags) -> Read<Node> {
        let outer = std::mem::replace(&mut self.flags, flags);
        self.deeper()?;
        let node = self.alternatives()?;
        self.nesting -= 1;
        self.flags = outer;
        if !self.take(')') {
            return Err("missing ), unterminated group".into());
        }
        // A group is one thing to repeat, even when what is in it is not.
        Ok(match node {
            Node::Edge(_) | Node::Repeat { .. } | Node::Atomic(_) => Node::Concat(vec![node]),
            node => node,
        })
    }

    fn look(&mut self, behind: Option<usize>, negated: bool) -> Read<Node> {
        let node = Box::new(self.inside(self.flags)?);
        Ok(Node::Look { behind, negated, node })
    }

    fn look_behind(&mut self, negated: bool) -> Read<Node> {
        let outermost = self.behind_from.is_none();
        self.behind_from.get_or_insert(self.widths.len());
        let node = Box::new(self.inside(self.flags)?);
        if outermost {
            self.behind_from = None;
        }
        let (least, most) = self.width(&node);
        if least != most {
            return Err("a look-behind must match a fixed number of characters".into());
        }
        Ok(Node::Look { behind: Some(least), negated, node })
    }

    fn backref(&mut self, group: usize) -> Read<Node> {
        if self.widths.get(group.wrapping_sub(1)).is_none_or(Option::is_none) {
            return Err(format!("a reference to group {group}, which is not closed before it").into());
        }
        self.check_behind(group)?;
        Ok(Node::Backref { group, ignore_case: self.flags.ignore_case })
    }

    fn check_behind(&self, group: usize) -> Read<()> {
        match self.behind_from {
            Some(from) if group > from => Err("a reference to a group of the same look-behind".into()),
            _ => Ok(()),
        }
    }

    fn conditional(&mut self) -> Read<Node> {
        let name = self.until(')', "group name")?;
        let group = if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
            name.parse().ok().filter(|group| *group > 0).ok_or_else(|| format!("there is no group {name}"))?
        } else {
            *self.names.get(&name).ok_or_else(|| format!("unknown group name {name:?}"))?
        };
        self.conditional_on = self.conditional_on.max(group);
        self.check_behind(group)?;
        self.deeper()?;
        let yes = self.sequence(false)?;
        let no = if self.take('|') { self.sequence(false)? } else { Node::Empty };
        self.nesting -= 1;
        match self.next() {
            Some(')') => {}
            Some('|') => return Err("a conditional has more than two branches".into()),
            _ => return Err("missing ), unterminated group".into()),
        }
        Ok(Node::Conditional { group, yes: Box::new(yes), no: Box::new(no) })
    }

    /// `(?flags)`, `(?flags:…)`, `(?flags-flags:…)`.
    fn flag_group(&mut self, flags_may_come: bool) -> Read<Option<Node>> {
        let (mut flags, mut off, mut seen) = (self.flags, false, Vec::new());
        let end = loop {
            let next = self.next().ok_or("missing -, : or )")?;
            let flag = match next {
                ':' | ')' => break next,
                '-' if !off => {
                    off = true;
                    continue;
                }
                'i' => &mut flags.ignore_case,
                'm' => &mut flags.multi_line,
                's' => &mut flags.dot_all,
                'x' => &mut flags.verbose,
                'u' if !off => continue,
                'a' | 'L' => return Err(format!("the flag {next:?} is not supported").into()),
                _ => return Err(format!("unknown extension or flag (?{next}").into()),
            };
            *flag = !off;
            if seen.contains(&(next, !off)) {
                return Err(format!("the flag {next:?} is turned on and off").into());
            }
            seen.push((next, off));
        };
        if off && !seen.iter().any(|(_, off)| *off) {
            return Err("missing flag after -".into());
        }
        if end == ':' {
            return self.inside(flags).map(Some);
        }
        if off || !flags_may_come {
            return Err("flags for the whole pattern must stand at its start".into());
        }
        if flags.verbose && !self.flags.verbose {
            return Err(Stop::Verbose);
        }
        self.flags = flags;
        Ok(None)
    }
}

fn check_name(name: &str) -> Read<()> {
    let starts = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    let fits = starts && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if fits { Ok(()) } else { Err(format!("bad group name {name:?}").into()) }
}
