//! Dot paths into JSON: `a.b[0].c`, `contacts[*]` (contract 7.2).

use super::json::{Json, NULL};

/// A path; empty, it is the value itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
    /// `[*]`: the list.
    All,
}

impl Path {
    /// The value itself.
    pub(crate) const ROOT: Self = Self(Vec::new());

    /// Reads a path that begins with a key.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        for segment in text.split('.') {
            let key = segment.split_once('[').map_or(segment, |(key, _)| key);
            if key.is_empty() || !key.chars().all(|c| c.is_alphanumeric() || c == '_') {
                return Err(malformed(segment, text));
            }
            steps.push(Step::Key(key.to_owned()));
            let indices = segment.get(key.len()..).unwrap_or_default();
            read_indices(indices, &mut steps).ok_or_else(|| malformed(segment, text))?;
        }
        Ok(Self(steps))
    }

    /// Reads a path that may begin with an index, for results that are lists: `[0].name`.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub(crate) fn parse_from_root(text: &str) -> Result<Self, String> {
        if !text.starts_with('[') {
            return Self::parse(text);
        }
        let (head, tail) = text.split_once('.').map_or((text, None), |(head, tail)| (head, Some(tail)));
        let mut steps = Vec::new();
        read_indices(head, &mut steps).ok_or_else(|| malformed(head, text))?;
        steps.extend(tail.map(Self::parse).transpose()?.into_iter().flat_map(|path| path.0));
        Ok(Self(steps))
    }

    /// What stands there; null where there is nothing.
    pub(crate) fn find<'a>(&self, value: &'a Json) -> &'a Json {
        self.0.iter().fold(value, |value, step| match step {
            Step::Key(key) => value.get(key).unwrap_or(&NULL),
            Step::Index(index) => value.as_array().and_then(|items| items.get(*index)).unwrap_or(&NULL),
            Step::All => value,
        })
    }
}

fn malformed(segment: &str, text: &str) -> String {
    format!(
        "{segment:?} is not a path segment in {text:?}: expected names of letters, digits and _, with [n] or [*] after"
    )
}

/// Reads `[0][*]…`, all of it.
fn read_indices(mut text: &str, steps: &mut Vec<Step>) -> Option<()> {
    while !text.is_empty() {
        let (index, rest) = text.strip_prefix('[')?.split_once(']')?;
        steps.push(match index {
            "*" => Step::All,
            // An index too large to be a number is past the end of any list.
            digits if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Step::Index(digits.parse().unwrap_or(usize::MAX))
            }
            _ => return None,
        });
        text = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_paths_find() {
        let value =
            Json::parse(r#"{"a":{"b":[{"c":1},{"c":[2,3]}]},"é":true,"l":[[5]],"s":"text","n":null}"#)
                .unwrap();
        for (path, found) in [
            ("a.b[0].c", "1"),
            ("a.b[1].c[1]", "3"),
            ("a.b[01].c", "[2, 3]"),
            ("é", "true"),
            ("l[0][0]", "5"),
            ("l[*]", "[[5]]"),
            ("l[*][0]", "[5]"),
            ("a[*].b[0].c", "1"),
            ("a.b[*].c", "null"),
            ("a.b[2]", "null"),
            ("a.b[99999999999999999999999]", "null"),
            ("a.x.y.z", "null"),
            ("s[0]", "null"),
            ("s.length", "null"),
            ("a[0]", "null"),
            ("n.x", "null"),
        ] {
            assert_eq!(Path::parse(path).unwrap().find(&value).dumps(), found, "{path}");
        }
        assert_eq!(Path::ROOT.find(&value).dumps(), value.dumps());
        let list = Json::parse(r#"[{"a":7}]"#).unwrap();
        assert_eq!(Path::parse_from_root("[0].a").unwrap().find(&list).dumps(), "7");
        assert_eq!(Path::parse_from_root("[*]").unwrap().find(&list).dumps(), r#"[{"a": 7}]"#);
    }

    #[test]
    fn malformed_paths() {
        for path in [
            "", ".", "a.", ".a", "a..b", "a b", "a-b", "$x", "a[", "a]", "a[0", "a[x]", "a[-1]", "a[ 0 ]",
            "a[0]b", "[0]", "a.[0]", "a[]",
        ] {
            assert!(Path::parse(path).is_err(), "{path}");
        }
        for path in ["", "[0]a", "[0].", "[x]", "[0]..a", "[0"] {
            assert!(Path::parse_from_root(path).is_err(), "{path}");
        }
    }
}
