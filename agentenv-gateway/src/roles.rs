//! Who may use which tool: the rules of `agentenv_protocol::access` behind an atomic pointer, so that calls read them
//! without a lock and a change replaces them whole.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use agentenv_protocol::access::{Access, AccessRules, RoleView, TooManyRoles, ToolSet};
use arc_swap::ArcSwap;

/// An instance's rules.
#[derive(Debug, Default)]
pub struct Roles {
    rules: ArcSwap<AccessRules>,
    writing: Mutex<()>,
}

impl Roles {
    /// Begins with these rules.
    pub fn new(rules: AccessRules) -> Self {
        Self { rules: ArcSwap::from_pointee(rules), writing: Mutex::new(()) }
    }

    /// The rules as they stand.
    pub fn read(&self) -> Arc<AccessRules> {
        self.rules.load_full()
    }

    /// Whether a role may use a tool.
    pub fn allows(&self, role: &str, tool: &str, hidden_by_default: bool) -> bool {
        self.rules.load().allows(role, tool, hidden_by_default)
    }

    /// Writes a rule for all of its tools at once and gives the role's own rules after it (contract 4.1).
    ///
    /// # Errors
    /// Too many roles have rules; nothing has changed.
    pub fn apply(&self, access: Access, role: &str, tools: &ToolSet) -> Result<RoleView, TooManyRoles> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rules = AccessRules::clone(&self.rules.load());
        let view = rules.apply(access, role, tools)?;
        self.rules.store(Arc::new(rules));
        Ok(view)
    }

    /// Every role's rules, as `/state` shows them.
    pub fn views(&self) -> BTreeMap<String, RoleView> {
        self.rules.load().views()
    }
}
