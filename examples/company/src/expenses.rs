//! Expenses: two roles, one of which must not do what the other may.

use agentenv_protocol::prelude::*;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Claim {
    by: String,
    what: String,
    cents: u64,
    #[serde(default)]
    approved_by: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Claims {
    claims: Vec<Claim>,
}

/// Money that people spent and want back.
#[environment_card(name = "expenses")]
#[derive(Default)]
struct ExpensesEnv {
    #[data]
    claims: Data<Claims>,
}

#[environment]
impl ExpensesEnv {
    /// Claim an expense. The answer is the claim's number.
    #[tool(name = "{environment_name}_submit")]
    fn submit(
        &self,
        ctx: &ToolContext,
        /// What the money was spent on.
        what: String,
        /// How much, in cents.
        cents: u64,
    ) -> Value {
        let by = ctx.caller.role_or_default().to_owned();
        self.claims.write(|claims| {
            claims.claims.push(Claim { by, what, cents, approved_by: None });
            json!({"claim": claims.claims.len()})
        })
    }

    /// Approve a claim of somebody else's.
    #[tool(name = "{environment_name}_approve", idempotent)]
    fn approve(&self, ctx: &ToolContext, claim: usize) -> Result<Claim, ToolError> {
        let role = ctx.caller.role_or_default();
        self.claims.write(|claims| {
            let unknown = || ToolError::new("no_claim", format!("there is no claim {claim}"));
            let found = claim.checked_sub(1).and_then(|place| claims.claims.get_mut(place));
            let found = found.ok_or_else(unknown)?;
            if found.by == role {
                return Err(ToolError::new("own_claim", "somebody else must approve it"));
            }
            found.approved_by.get_or_insert_with(|| role.to_owned());
            Ok(found.clone())
        })
    }
}
