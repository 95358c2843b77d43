//! Which tools there are, whose they are, and how they are listed. Who may see them is `roles`'; how the children's lists
//! come in is the instance's.

use std::collections::{BTreeMap, HashMap};

use agentenv_protocol::json::{Members, ObjectWriter, RawJson};
use agentenv_protocol::mcp::META_HIDDEN;
use serde_json::value::RawValue;

/// The name under which the gateway's own tools are listed in `/state` (contract 4.4).
pub const GATEWAY: &str = "gateway";

/// One tool of one child.
#[derive(Debug, Clone)]
pub struct CatalogTool {
    /// Its name.
    pub name: String,
    /// The index of the child that serves it.
    pub child: usize,
    /// Off until a rule names it (contract 2.3).
    pub hidden_by_default: bool,
    /// Marked as changing nothing.
    pub read_only: bool,
    /// The entry in `tools/list`, as the child lists it.
    pub listing: RawJson,
    /// The entry in `/step` and `/state`: `{"name","description","parameters"}`.
    pub flat: RawJson,
}

impl CatalogTool {
    /// Reads what the gateway must know of a tool off its listing.
    pub fn new(name: String, child: usize, listing: RawJson) -> Self {
        let members = Members::of(listing.as_str()).unwrap_or_default();
        let is_true = |object: &str, key: &str| {
            let object = members.get(object).and_then(|o| Members::of(o.get()).ok()).unwrap_or_default();
            object.get(key).is_some_and(|value| value.get() == "true")
        };
        let hidden_by_default = is_true("_meta", META_HIDDEN);
        let read_only = is_true("annotations", "readOnlyHint");
        let text = |key: &str, default: &'static str| members.get(key).map_or(default, RawValue::get);
        let flat = ObjectWriter::with_capacity(listing.as_str().len())
            .field("name", &name)
            .raw("description", text("description", "\"\""))
            .raw("parameters", text("inputSchema", "{}"))
            .finish();
        let flat = RawJson::object(flat);
        Self { name, child, hidden_by_default, read_only, listing, flat }
    }
}

/// What is known of one child's tools.
#[derive(Debug, Clone)]
pub enum ChildTools {
    /// Its list.
    Known(Vec<(String, RawJson)>),
    /// Why there is none.
    Unknown(String),
}

/// Every child's tools at one moment.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<CatalogTool>,
    by_name: HashMap<String, usize>,
    clashes: BTreeMap<String, Vec<String>>,
    missing: BTreeMap<String, String>,
}

impl Catalog {
    /// Puts the children's lists together, in their order. `own` names the tools that the gateway itself always serves.
    pub fn new<'a>(children: impl IntoIterator<Item = (&'a str, &'a ChildTools)>, own: &[&str]) -> Self {
        let mut catalog = Self::default();
        let mut sources: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in own {
            sources.entry((*name).to_owned()).or_default().push(GATEWAY.to_owned());
        }
        for (child, (child_name, tools)) in children.into_iter().enumerate() {
            match tools {
                ChildTools::Unknown(reason) => {
                    catalog.missing.insert(child_name.to_owned(), reason.clone());
                }
                ChildTools::Known(tools) => {
                    for (name, listing) in tools {
                        sources.entry(name.clone()).or_default().push(child_name.to_owned());
                        catalog.tools.push(CatalogTool::new(name.clone(), child, listing.clone()));
                    }
                }
            }
        }
        catalog.clashes = sources.into_iter().filter(|(_, from)| from.len() > 1).collect();
        if catalog.clashes.is_empty() {
            catalog.by_name =
                catalog.tools.iter().enumerate().map(|(at, tool)| (tool.name.clone(), at)).collect();
        }
        catalog
    }

    /// The tool of a name; none at all while two sources serve one name (contract 3.1).
    pub fn find(&self, name: &str) -> Option<&CatalogTool> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// Whether a child lists a tool of this name, served or not.
    pub fn serves(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// The tools that are served, in the order of the list.
    pub fn served(&self) -> impl Iterator<Item = &CatalogTool> {
        self.tools.iter().filter(|_| self.clashes.is_empty())
    }

    /// One child's tools, served or not.
    pub fn of_child(&self, child: usize) -> impl Iterator<Item = &CatalogTool> {
        self.tools.iter().filter(move |tool| tool.child == child)
    }

    /// Names that several sources serve, and which these are.
    pub fn clashes(&self) -> &BTreeMap<String, Vec<String>> {
        &self.clashes
    }

    /// Children whose tools are not known, and why.
    pub fn missing(&self) -> &BTreeMap<String, String> {
        &self.missing
    }

    /// Why not every child's tools can be served; `None` where they are.
    pub fn fault(&self) -> Option<String> {
        if !self.clashes.is_empty() {
            let clashes: Vec<_> = self
                .clashes
                .iter()
                .map(|(tool, from)| format!("'{tool}' by {}", from.join(" and ")))
                .collect();
            return Some(format!("tool names clash: {}", clashes.join(", ")));
        }
        if !self.missing.is_empty() {
            let missing: Vec<_> =
                self.missing.iter().map(|(child, why)| format!("{child} ({why})")).collect();
            return Some(format!("the tools of {} are not known", missing.join(", ")));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> ChildTools {
        let entry = |name: &&str| {
            let listing =
                RawJson::of(&serde_json::json!({"name": name, "inputSchema": {"type": "object"}})).unwrap();
            ((*name).to_owned(), listing)
        };
        ChildTools::Known(names.iter().map(entry).collect())
    }

    #[test]
    fn reads_what_it_must_know() {
        let listing = r#"{"name":"deliver","description":"d","inputSchema":{"x":1.0},
            "annotations":{"readOnlyHint":true},"_meta":{"agentenv.io/hiddenByDefault":true}}"#;
        let listing = RawJson::object(listing.to_owned().into());
        let tool = CatalogTool::new("deliver".into(), 0, listing);
        assert!(tool.hidden_by_default && tool.read_only);
        assert_eq!(tool.flat.as_str(), r#"{"name":"deliver","description":"d","parameters":{"x":1.0}}"#);
    }

    #[test]
    fn keeps_the_childrens_order() {
        let (a, b) = (listed(&["z", "y"]), listed(&["a"]));
        let catalog = Catalog::new([("one", &a), ("two", &b)], &[]);
        assert_eq!(catalog.served().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["z", "y", "a"]);
        assert_eq!(catalog.find("a").unwrap().child, 1);
        assert_eq!(catalog.fault(), None);
    }

    #[test]
    fn a_clash_takes_every_tool_away() {
        let (a, b) = (listed(&["x", "y"]), listed(&["x"]));
        let catalog = Catalog::new([("one", &a), ("two", &b)], &[]);
        assert!(catalog.find("y").is_none() && catalog.served().next().is_none());
        assert_eq!(catalog.clashes()["x"], ["one", "two"]);
        let fault = catalog.fault().unwrap();
        assert!(fault.contains("'x'") && fault.contains("one and two"), "{fault}");
        let twice = listed(&["x", "x"]);
        assert_eq!(Catalog::new([("one", &twice)], &[]).clashes()["x"], ["one", "one"]);
        assert_eq!(Catalog::new([("one", &b)], &["x"]).clashes()["x"], [GATEWAY, "one"]);
    }

    #[test]
    fn a_missing_child_leaves_the_others() {
        let (a, b) = (listed(&["x"]), ChildTools::Unknown("down".into()));
        let catalog = Catalog::new([("one", &a), ("two", &b)], &[]);
        assert!(catalog.find("x").is_some());
        assert_eq!(catalog.missing()["two"], "down");
    }
}
