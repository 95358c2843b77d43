//! Per-role tool rules (contract 4.1): the one implementation, used by the gateway and by servers that opt in. Where
//! the rules are kept and who may change them is left to the caller.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name that stands for every role, or for every tool.
pub const ANY: &str = "*";

/// Most roles with rules of their own; a rule for one more is refused.
pub const MAX_ROLES: usize = 10_000;

/// What a rule does to the tools it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// The role may see and call them.
    Enable,
    /// The role may not.
    Disable,
}

/// Which tools a rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolSet {
    /// Every tool (`"*"`, or a list that holds it).
    All,
    /// These.
    Named(Vec<String>),
}

impl ToolSet {
    /// From a list of names; one that holds `"*"` means every tool.
    pub fn from_names(names: Vec<String>) -> Self {
        if names.iter().any(|name| name == ANY) { Self::All } else { Self::Named(names) }
    }
}

/// A role's own rules, as `/state` and the answers to rule requests show them: both lists sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoleView {
    /// Tools that are off.
    pub disabled: Vec<String>,
    /// Tools that are on by a rule.
    pub allowed: Vec<String>,
}

/// Why the body of a request for a rule is none (contract 4.1). Its text is the answer's `error`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleFault {
    /// It is not JSON.
    #[error("Invalid JSON body")]
    NotJson,
    /// It is JSON, but no object.
    #[error("request body must be a JSON object")]
    NotAnObject,
    /// Its `role` is missing, blank or no string.
    #[error("Missing or invalid 'role' field")]
    Role,
    /// Its `tools` are neither a list of names nor `"*"`.
    #[error("'tools' must be a list of strings or the string '*'")]
    Tools,
}

/// Reads the body of a request for a rule: `{"role", "tools"}`. The role is trimmed, as callers' roles are.
///
/// # Errors
/// [`RuleFault`]
pub fn rule_of(body: &[u8]) -> Result<(String, ToolSet), RuleFault> {
    let text = crate::json::check(body).map_err(|_| RuleFault::NotJson)?;
    let body: Value = serde_json::from_str(text).map_err(|_| RuleFault::NotJson)?;
    let body = body.as_object().ok_or(RuleFault::NotAnObject)?;
    let role = body.get("role").and_then(Value::as_str).map(str::trim).filter(|role| !role.is_empty());
    let role = role.ok_or(RuleFault::Role)?.to_owned();
    let tools = match body.get("tools") {
        Some(Value::String(all)) if all == ANY => Some(ToolSet::All),
        Some(Value::Array(names)) => {
            let names = names.iter().map(|name| name.as_str().map(str::to_owned));
            names.collect::<Option<_>>().map(ToolSet::from_names)
        }
        _ => None,
    };
    Ok((role, tools.ok_or(RuleFault::Tools)?))
}

/// A rule for one more role than [`MAX_ROLES`].
#[derive(Debug, thiserror::Error)]
#[error("too many roles have rules of their own (at most {MAX_ROLES})")]
pub struct TooManyRoles;

/// Every role's rules. Values are small and meant to be replaced whole, so that readers need no lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRules {
    roles: BTreeMap<String, BTreeMap<String, Access>>,
}

impl AccessRules {
    /// No rules: every tool that is not hidden by default is on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether `role` may use `tool`. The first rule found decides: the role's for the tool, the role's for every tool,
    /// role `*`'s for the tool, role `*`'s for every tool. A tool that is hidden by default heeds only rules that name it.
    pub fn allows(&self, role: &str, tool: &str, hidden_by_default: bool) -> bool {
        if self.roles.is_empty() {
            return !hidden_by_default;
        }
        let find = |role: &str, tool: &str| self.roles.get(role).and_then(|rules| rules.get(tool)).copied();
        let every = |role: &str| if hidden_by_default { None } else { find(role, ANY) };
        find(role, tool)
            .or_else(|| every(role))
            .or_else(|| find(ANY, tool))
            .or_else(|| every(ANY))
            .map_or(!hidden_by_default, |access| access == Access::Enable)
    }

    /// Writes a rule and gives the role's own rules after it. A rule for role `*` is also written into every role that has
    /// rules; one for every tool replaces all of a role's rules; one for both replaces every rule of every role.
    ///
    /// # Errors
    /// [`TooManyRoles`], and nothing has changed.
    pub fn apply(&mut self, access: Access, role: &str, tools: &ToolSet) -> Result<RoleView, TooManyRoles> {
        if !self.roles.contains_key(role) && self.roles.len() >= MAX_ROLES {
            return Err(TooManyRoles);
        }
        if role == ANY && *tools == ToolSet::All {
            self.roles.clear();
        }
        self.roles.entry(role.to_owned()).or_default();
        for (name, rules) in &mut self.roles {
            if role != ANY && name != role {
                continue;
            }
            match tools {
                ToolSet::All => *rules = BTreeMap::from([(ANY.to_owned(), access)]),
                ToolSet::Named(names) => rules.extend(names.iter().map(|tool| (tool.clone(), access))),
            }
        }
        Ok(self.view(role))
    }

    /// A role's own rules; empty for a role that has none.
    pub fn view(&self, role: &str) -> RoleView {
        let mut view = RoleView::default();
        for (tool, access) in self.roles.get(role).into_iter().flatten() {
            match access {
                Access::Disable => view.disabled.push(tool.clone()),
                Access::Enable => view.allowed.push(tool.clone()),
            }
        }
        view
    }

    /// Every role that has rules, by name.
    pub fn views(&self) -> BTreeMap<String, RoleView> {
        self.roles.keys().map(|role| (role.clone(), self.view(role))).collect()
    }

    /// The rules that [`views`](Self::views) would show. A tool that stands in both lists of one role is off.
    pub fn from_views(views: &BTreeMap<String, RoleView>) -> Self {
        let rules = |view: &RoleView| {
            let allowed = view.allowed.iter().map(|tool| (tool.clone(), Access::Enable));
            allowed.chain(view.disabled.iter().map(|tool| (tool.clone(), Access::Disable))).collect()
        };
        Self { roles: views.iter().map(|(role, view)| (role.clone(), rules(view))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(sequence: &[(Access, &str, &str)]) -> AccessRules {
        let mut rules = AccessRules::new();
        for (access, role, tools) in sequence {
            let tools = ToolSet::from_names(tools.split(' ').map(str::to_owned).collect());
            rules.apply(*access, role, &tools).unwrap();
        }
        rules
    }

    #[test]
    fn the_first_rule_found_decides() {
        use Access::{Disable, Enable};
        let all = [(Enable, "r", "t"), (Disable, "*", "u v"), (Enable, "r", "u")];
        let rules = rules(&all);
        assert!(rules.allows("r", "t", false) && rules.allows("r", "u", false));
        assert!(
            !rules.allows("r", "v", false) && !rules.allows("s", "u", false) && rules.allows("s", "t", false)
        );
    }

    #[test]
    fn hidden_tools_heed_only_rules_that_name_them() {
        use Access::{Disable, Enable};
        assert!(!AccessRules::new().allows("r", "h", true));
        assert!(!rules(&[(Enable, "*", "*"), (Enable, "r", "*")]).allows("r", "h", true));
        assert!(rules(&[(Enable, "*", "h"), (Disable, "r", "*")]).allows("r", "h", true));
        assert!(!rules(&[(Enable, "*", "h"), (Disable, "r", "h")]).allows("r", "h", true));
    }

    #[test]
    fn wildcards_overwrite() {
        use Access::{Disable, Enable};
        let mut rules = rules(&[(Disable, "a", "x y"), (Enable, "b", "x"), (Disable, "*", "x")]);
        assert_eq!(rules.view("b").disabled, ["x"]);
        assert_eq!(rules.apply(Enable, "a", &ToolSet::All).unwrap().allowed, ["*"]);
        assert_eq!(rules.view("a"), RoleView { disabled: vec![], allowed: vec!["*".into()] });
        rules.apply(Disable, ANY, &ToolSet::All).unwrap();
        assert_eq!(rules.views().into_keys().collect::<Vec<_>>(), [ANY]);
        assert_eq!(AccessRules::from_views(&rules.views()), rules);
    }

    #[test]
    fn the_number_of_roles_is_bounded() {
        let mut rules = AccessRules::new();
        let tools = ToolSet::from_names(vec!["t".into()]);
        for role in 0..MAX_ROLES {
            rules.apply(Access::Disable, &role.to_string(), &tools).unwrap();
        }
        let before = rules.clone();
        assert!(rules.apply(Access::Disable, "one more", &tools).is_err());
        assert_eq!(rules, before);
        assert!(rules.apply(Access::Enable, "5", &tools).is_ok());
    }

    #[test]
    fn bodies() {
        assert_eq!(rule_of(br#"{"role":" r ","tools":["a","*"]}"#), Ok(("r".into(), ToolSet::All)));
        for (body, fault) in [
            ("{", RuleFault::NotJson),
            ("[]", RuleFault::NotAnObject),
            (r#"{"tools":"*"}"#, RuleFault::Role),
            (r#"{"role":"r","tools":[1]}"#, RuleFault::Tools),
        ] {
            assert_eq!(rule_of(body.as_bytes()), Err(fault), "{body}");
        }
    }
}
