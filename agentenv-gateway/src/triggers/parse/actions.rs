//! Reading what a trigger does (contract 7.5).

use std::sync::Arc;

use agentenv_protocol::access::{ANY, Access, ToolSet};

use super::super::json::Json;
use super::super::spec::{Action, Does};
use super::super::template::{Provoking, Template};
use super::Reader;
use super::checks::read_args;
use super::fields::{Fields, Report};
use super::times::read_delay;

impl Action {
    /// Whether it reads the provoking call's arguments, and its result.
    pub(super) fn reads(&self) -> (bool, bool) {
        let own = match &self.does {
            Does::Tool { args, .. } => Some(args),
            _ => None,
        };
        let verify = self.verify.iter().flat_map(|check| check.steps.iter().map(|step| &step.args));
        own.into_iter()
            .chain(verify)
            .map(Template::reads)
            .fold((false, false), |a, b| (a.0 || b.0, a.1 || b.1))
    }
}

impl Reader<'_, '_> {
    pub(super) fn actions(
        &self,
        trigger: &Fields<'_>,
        provoking: Provoking,
        report: &mut Report,
    ) -> Option<Vec<Action>> {
        let Some(listed) = trigger.get("actions").and_then(Json::as_array) else {
            report.fault("actions", "must be a list");
            return None;
        };
        let mut actions = Vec::new();
        for (index, action) in listed.iter().enumerate() {
            let Some(fields) = Fields::read(action, &format!("actions[{index}]"), report) else { continue };
            actions.extend(self.action(&fields, provoking, report));
        }
        Some(actions)
    }

    fn action(&self, fields: &Fields<'_>, provoking: Provoking, report: &mut Report) -> Option<Action> {
        let (known, does): (&[&str], _) = match fields.get("type").and_then(Json::as_str) {
            Some("permission") => (&["action", "role", "tools"], self.permission(fields, report)),
            Some("tool") => (&["tool", "args", "as"], self.call(fields, provoking, report)),
            Some("nl") => (&["instruction", "executor"], self.instruct(fields, report)),
            _ => {
                report.fault(fields.at("type"), "must be one of permission, tool, nl");
                return None;
            }
        };
        fields.only(&[&["type", "delay", "verify"], known].concat(), report);
        let delay = read_delay(fields, report);
        let verify =
            fields.get("verify").and_then(|check| self.check(check, &fields.at("verify"), provoking, report));
        Some(Action { does: does?, delay, verify: verify.map(Arc::new) })
    }

    fn permission(&self, fields: &Fields<'_>, report: &mut Report) -> Option<Does> {
        let access = match fields.get("action").and_then(Json::as_str) {
            Some("enable") => Some(Access::Enable),
            Some("disable") => Some(Access::Disable),
            _ => {
                report.fault(fields.at("action"), "must be enable or disable");
                None
            }
        };
        let role = fields.text("role", report);
        let given = fields.get("tools");
        let tools = match given {
            Some(Json::String(all)) if all == ANY => Some(ToolSet::All),
            Some(Json::Array(names)) => names
                .iter()
                .map(|name| name.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .map(ToolSet::from_names),
            _ => None,
        };
        if tools.is_none() {
            report.fault(fields.at("tools"), "must be a list of tool names, or \"*\"");
        }
        if let Some(ToolSet::Named(names)) = &tools {
            for name in names.iter().filter(|name| !self.names.own_tools.contains(&name.as_str())) {
                self.check_tool(&fields.at("tools"), name, report);
            }
        }
        let listed = given?.to_raw();
        Some(Does::Permission { access: access?, role: role?.to_owned(), tools: tools?, listed })
    }

    fn call(&self, fields: &Fields<'_>, provoking: Provoking, report: &mut Report) -> Option<Does> {
        let tool = self.tool(fields, report);
        let args = read_args(fields, provoking, report);
        let role = match fields.get("as") {
            None | Some(Json::Null) => None,
            Some(Json::String(role)) if !role.is_empty() && role != "default" && role != ANY => {
                Some(role.clone())
            }
            Some(_) => {
                report.fault(fields.at("as"), "must be the name of a role other than default");
                None
            }
        };
        Some(Does::Tool { tool: tool?, args: args?, role })
    }

    fn instruct(&self, fields: &Fields<'_>, report: &mut Report) -> Option<Does> {
        let instruction = fields.text("instruction", report);
        if instruction.is_some_and(looks_templated) {
            let problem = "must not hold ${args.…} or ${result.…}: an instruction is handed over as it is";
            report.fault(fields.at("instruction"), problem);
        }
        let executor = match fields.get("executor") {
            None | Some(Json::Null) => Some(None),
            Some(Json::String(name)) => Some(Some(name.as_str())),
            Some(_) => None,
        };
        let known = executor.is_some_and(|name| self.settings.find_executor(name).is_some());
        match executor {
            _ if known => {}
            Some(None) => {
                report.fault(fields.place(), "needs an executor, which is registered with executor")
            }
            _ => report.fault(fields.at("executor"), "must be the name of a registered executor"),
        }
        let executor = executor?.map(str::to_owned);
        Some(Does::Nl { instruction: instruction?.to_owned(), executor })
    }
}

/// Whether an instruction holds what would be a placeholder elsewhere.
fn looks_templated(text: &str) -> bool {
    text.split("${").skip(1).any(|after| {
        let after = after.trim_start();
        after.starts_with("args.") || after.starts_with("result.")
    })
}
