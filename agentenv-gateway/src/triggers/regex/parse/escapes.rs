//! Sets of characters, and what follows a backslash.

use super::super::ast::{Edge, Node, Set, SetItem};
use super::{Parser, Read};

impl Parser {
    pub(super) fn set(&mut self) -> Read<Node> {
        let mut set = Set { ignore_case: self.flags.ignore_case, negated: self.take('^'), items: Vec::new() };
        let mut first = true;
        loop {
            let next = self.next().ok_or("unterminated character set")?;
            if next == ']' && !first {
                return Ok(Node::Set(set));
            }
            first = false;
            let low = self.set_item(next)?;
            if self.peek() != Some('-') || self.chars.get(self.at + 1) == Some(&']') {
                set.items.push(low);
                continue;
            }
            self.at += 1;
            let next = self.next().ok_or("unterminated character set")?;
            let high = self.set_item(next)?;
            match (low, high) {
                (SetItem::Range(from, _), SetItem::Range(to, _)) if from <= to => {
                    set.items.push(SetItem::Range(from, to));
                }
                _ => return Err("bad character range in a set".into()),
            }
        }
    }

    fn set_item(&mut self, next: char) -> Read<SetItem> {
        if next != '\\' {
            return Ok(SetItem::Range(next, next));
        }
        let code = self.next().ok_or("bad escape at the end of the pattern")?;
        if let Some(item) = class(code) {
            return Ok(item);
        }
        let character = match code {
            'b' => '\u{8}',
            '0'..='7' => self.octal(code, 2)?,
            _ => self.character(code)?,
        };
        Ok(SetItem::Range(character, character))
    }

    /// What follows a backslash outside a set.
    pub(super) fn escape(&mut self) -> Read<Node> {
        let code = self.next().ok_or("bad escape at the end of the pattern")?;
        if let Some(item) = class(code) {
            return Ok(Node::Set(Set { items: vec![item], ..Set::default() }));
        }
        let character = match code {
            'A' => return Ok(Node::Edge(Edge::Start)),
            'Z' => return Ok(Node::Edge(Edge::End)),
            'b' => return Ok(Node::Edge(Edge::Word)),
            'B' => return Ok(Node::Edge(Edge::NotWord)),
            '0' => self.octal('0', 2)?,
            '1'..='9' => {
                let octal = |at: usize| self.chars.get(at).is_some_and(|c| matches!(c, '0'..='7'));
                if code < '8' && octal(self.at) && octal(self.at + 1) {
                    self.octal(code, 2)?
                } else {
                    let mut group = code as usize - '0' as usize;
                    if let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
                        self.at += 1;
                        group = group * 10 + digit as usize;
                    }
                    return self.backref(group);
                }
            }
            _ => self.character(code)?,
        };
        Ok(Node::Set(Set::one(character, self.flags.ignore_case)))
    }

    /// An octal escape that begins with `first` and has up to `more` digits after it.
    fn octal(&mut self, first: char, more: usize) -> Read<char> {
        let mut value = first.to_digit(8).unwrap_or(0);
        for _ in 0..more {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else { break };
            value = value * 8 + digit;
            self.at += 1;
        }
        char::from_u32(value).filter(|_| value <= 0o377).ok_or_else(|| "an octal escape is over \\377".into())
    }

    /// An escape that stands for one character, in a set or not.
    fn character(&mut self, code: char) -> Read<char> {
        Ok(match code {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' => self.hex(2)?,
            'u' => self.hex(4)?,
            'U' => self.hex(8)?,
            'N' => return Err("characters by name (\\N{…}) are not supported".into()),
            other if other.is_ascii_alphanumeric() => return Err(format!("bad escape \\{other}").into()),
            other => other,
        })
    }

    fn hex(&mut self, digits: usize) -> Read<char> {
        let mut value = 0;
        for _ in 0..digits {
            let digit = self.next().and_then(|c| c.to_digit(16)).ok_or("incomplete hexadecimal escape")?;
            value = value * 16 + digit;
        }
        char::from_u32(value).ok_or_else(|| format!("there is no character {value:x}").into())
    }
}

/// `\w`, `\D` and the like.
fn class(code: char) -> Option<SetItem> {
    Some(match code {
        'w' | 'W' => SetItem::Word(code == 'w'),
        'd' | 'D' => SetItem::Digit(code == 'd'),
        's' | 'S' => SetItem::Space(code == 's'),
        _ => return None,
    })
}
