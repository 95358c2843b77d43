//! Tool access of an environment's own (contract 2.6): its rules and what changes them.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::EnvRuntime;
use crate::access::{Access, AccessRules, RoleView, TooManyRoles, ToolSet};

/// The rules of one environment.
#[derive(Debug, Default)]
pub(super) struct ToolAccess {
    rules: ArcSwap<AccessRules>,
    writer: Mutex<()>,
}

impl ToolAccess {
    pub(super) fn rules(&self) -> Arc<AccessRules> {
        self.rules.load_full()
    }

    fn apply(&self, access: Access, role: &str, tools: &ToolSet) -> Result<RoleView, TooManyRoles> {
        let _one_at_a_time = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rules = AccessRules::clone(&self.rules.load());
        let view = rules.apply(access, role, tools)?;
        self.rules.store(Arc::new(rules));
        Ok(view)
    }
}

impl EnvRuntime {
    /// Whether the environment opted in to tool access of its own: its list of tools then depends on the role.
    pub fn has_tool_access(&self) -> bool {
        self.0.access.is_some()
    }

    /// Writes a rule (contract 4.1) and gives the role's own rules after it. Without tool access of its own nothing comes of it.
    ///
    /// # Errors
    /// [`TooManyRoles`], and nothing has changed.
    pub fn apply_access(
        &self,
        access: Access,
        role: &str,
        tools: &ToolSet,
    ) -> Result<RoleView, TooManyRoles> {
        self.0.access.as_ref().map_or_else(|| Ok(RoleView::default()), |own| own.apply(access, role, tools))
    }
}
