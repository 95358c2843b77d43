//! Exchange rates: an environment that is only read.

use std::collections::BTreeMap;

use agentenv_protocol::prelude::*;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Rates {
    /// What a euro is worth, by currency.
    per_euro: BTreeMap<String, f64>,
}

/// Money of one kind in money of another.
#[environment_card(name = "exchange")]
#[derive(Default)]
struct ExchangeEnv {
    #[data]
    rates: Data<Rates>,
}

impl Rates {
    fn of(&self, currency: &str) -> Result<f64, ToolError> {
        let rate = if currency == "EUR" { Some(1.0) } else { self.per_euro.get(currency).copied() };
        rate.filter(|rate| rate.is_finite() && *rate > 0.0)
            .ok_or_else(|| ToolError::new("no_rate", format!("there is no rate for '{currency}'")))
    }
}

#[environment]
impl ExchangeEnv {
    /// Convert an amount of money from one currency to another.
    #[tool(name = "{environment_name}_convert", read_only)]
    fn convert(
        &self,
        amount: f64,
        /// Its currency, such as EUR.
        from: String,
        /// The other currency.
        to: String,
    ) -> Result<Value, ToolError> {
        let [from, to] = [from, to].map(|currency| currency.to_uppercase());
        let [from, there] = self.rates.read(|rates| [rates.of(&from), rates.of(&to)]);
        let amount = amount / from? * there?;
        Ok(json!({"amount": (amount * 100.0).round() / 100.0, "currency": to}))
    }
}
