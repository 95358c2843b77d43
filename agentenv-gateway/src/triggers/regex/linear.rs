//! Writes a pattern for the `regex` crate, which matches in linear time, where it has everything the pattern needs.

use std::fmt::Write as _;

use super::ast::{Edge, Node};

/// What a pattern asks of the linear engine.
pub(super) struct Linear {
    pub(super) pattern: String,
    /// It has `\b` or `\B`, which mean the same to both engines only within ASCII.
    pub(super) ascii_only: bool,
}

/// The pattern in the `regex` crate's syntax; none when it needs look-around, references or atomic groups.
pub(super) fn write(node: &Node) -> Option<Linear> {
    let mut linear = Linear { pattern: String::new(), ascii_only: false };
    linear.node(node, true)?;
    Some(linear)
}

impl Linear {
    /// `last`: nothing comes after this node, and it is not repeated.
    fn node(&mut self, node: &Node, last: bool) -> Option<()> {
        match node {
            Node::Empty => self.pattern.push_str("(?:)"),
            Node::Set(set) => set.write(&mut self.pattern),
            Node::Any { newline } => self.pattern.push_str(if *newline { "(?s:.)" } else { "." }),
            Node::Edge(edge) => self.edge(*edge, last)?,
            // Only whether there is a match is asked, so that groups need not capture.
            Node::Group(_, node) => self.grouped(node, last)?,
            Node::Repeat { node, min, max, greedy } => {
                self.grouped(node, false)?;
                let _ = match max {
                    Some(max) => write!(self.pattern, "{{{min},{max}}}"),
                    None => write!(self.pattern, "{{{min},}}"),
                };
                self.pattern.push_str(if *greedy { "" } else { "?" });
            }
            Node::Concat(nodes) => {
                for (at, node) in nodes.iter().enumerate() {
                    self.grouped(node, last && at + 1 == nodes.len())?;
                }
            }
            Node::Alt(nodes) => {
                for (at, node) in nodes.iter().enumerate() {
                    self.pattern.push_str(if at > 0 { "|" } else { "" });
                    self.grouped(node, last)?;
                }
            }
            Node::Look { .. } | Node::Atomic(_) | Node::Backref { .. } | Node::Conditional { .. } => {
                return None;
            }
        }
        Some(())
    }

    fn grouped(&mut self, node: &Node, last: bool) -> Option<()> {
        if matches!(node, Node::Set(_) | Node::Any { .. } | Node::Edge(_) | Node::Empty) {
            return self.node(node, last);
        }
        self.pattern.push_str("(?:");
        self.node(node, last)?;
        self.pattern.push(')');
        Some(())
    }

    fn edge(&mut self, edge: Edge, last: bool) -> Option<()> {
        self.pattern.push_str(match edge {
            Edge::Start => r"\A",
            Edge::LineStart => "(?m:^)",
            Edge::End => r"\z",
            // Taking the newline in is as good as looking ahead to it when nothing comes after.
            Edge::LastLineEnd if last => r"\n?\z",
            Edge::LastLineEnd => return None,
            Edge::LineEnd => "(?m:$)",
            Edge::Word | Edge::NotWord => {
                self.ascii_only = true;
                if edge == Edge::Word { r"\b" } else { r"\B" }
            }
        });
        Some(())
    }
}
