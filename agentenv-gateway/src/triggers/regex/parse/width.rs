//! How many characters a piece of a pattern matches: a look-behind must match a fixed number.

use super::super::ast::Node;
use super::{Parser, UNBOUNDED, Width};

impl Parser {
    pub(super) fn width(&self, node: &Node) -> Width {
        match node {
            Node::Empty | Node::Edge(_) | Node::Look { .. } => (0, 0),
            Node::Set(_) | Node::Any { .. } => (1, 1),
            Node::Group(_, node) | Node::Atomic(node) => self.width(node),
            Node::Repeat { node, min, max, .. } => {
                let (least, most) = self.width(node);
                (least.saturating_mul(*min), most.saturating_mul(max.unwrap_or(UNBOUNDED)))
            }
            Node::Concat(nodes) => nodes
                .iter()
                .map(|node| self.width(node))
                .fold((0, 0), |sum, width| (sum.0.saturating_add(width.0), sum.1.saturating_add(width.1))),
            Node::Alt(nodes) => nodes
                .iter()
                .map(|node| self.width(node))
                .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
                .unwrap_or_default(),
            Node::Backref { group, .. } => {
                self.widths.get(group - 1).copied().flatten().unwrap_or((0, UNBOUNDED))
            }
            Node::Conditional { yes, no, .. } => {
                let (yes, no) = (self.width(yes), self.width(no));
                (yes.0.min(no.0), yes.1.max(no.1))
            }
        }
    }
}
