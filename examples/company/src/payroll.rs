//! Salaries, and a hook that keeps a record of who looked.

use std::collections::BTreeMap;

use agentenv_protocol::prelude::*;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Payroll {
    /// Cents a year, by name.
    salaries: BTreeMap<String, u64>,
    /// The roles that looked, in order.
    looked: Vec<String>,
}

/// What people earn.
#[environment_card(name = "payroll")]
#[derive(Default)]
struct PayrollEnv {
    #[data]
    payroll: Data<Payroll>,
}

#[environment]
impl PayrollEnv {
    /// Look up what somebody earns, in cents a year.
    #[tool(name = "{environment_name}_salary", read_only)]
    fn salary(&self, name: String) -> Result<Value, ToolError> {
        let cents = self.payroll.read(|payroll| payroll.salaries.get(&name).copied());
        let cents =
            cents.ok_or_else(|| ToolError::new("nobody", format!("'{name}' is not on the payroll")))?;
        Ok(json!({"cents_a_year": cents}))
    }

    /// Sees every call before its tool does, and could answer in its place.
    #[before_call]
    fn record(&self, ctx: &ToolContext) -> Option<Value> {
        self.payroll.write(|payroll| payroll.looked.push(ctx.caller.role_or_default().to_owned()));
        None
    }
}
