//! A warehouse: what is taken is gone, and nobody can take what is not there.

use std::collections::BTreeMap;

use agentenv_protocol::prelude::*;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Stock {
    /// How many there are, by item.
    stock: BTreeMap<String, u64>,
}

/// What is on the shelves.
#[environment_card(name = "warehouse")]
#[derive(Default)]
struct WarehouseEnv {
    #[data]
    shelves: Data<Stock>,
}

#[environment]
impl WarehouseEnv {
    /// Count what is in stock, of items whose name contains a text.
    #[tool(name = "{environment_name}_stock", read_only)]
    fn stock(&self, #[arg(default)] item: String) -> Value {
        let named = |(name, _): &(&String, &u64)| name.contains(&item);
        self.shelves
            .read(|shelves| json!({"stock": shelves.stock.iter().filter(named).collect::<BTreeMap<_, _>>()}))
    }

    /// Take some of an item.
    #[tool(name = "{environment_name}_take")]
    fn take(&self, item: String, count: u64) -> Result<Value, ToolError> {
        // Looked at and taken in one step, so that two callers cannot both take the last one.
        self.shelves.write(|shelves| {
            let missing = || ToolError::new("out_of_stock", format!("there are not {count} of '{item}'"));
            let left = shelves.stock.get_mut(&item).filter(|left| **left >= count).ok_or_else(missing)?;
            *left -= count;
            Ok(json!({"left": left}))
        })
    }
}
