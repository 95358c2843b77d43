//! Public holidays. Which one is next depends on the gateway's clock.

use agentenv_protocol::prelude::*;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Holiday {
    /// A country's two letters.
    country: String,
    /// Such as 2026-12-25.
    date: String,
    name: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Holidays {
    holidays: Vec<Holiday>,
}

/// The days on which an office is closed.
#[environment_card(name = "holidays")]
#[derive(Default)]
struct HolidaysEnv {
    #[data]
    holidays: Data<Holidays>,
    #[component]
    clock: Clock,
}

#[environment]
impl HolidaysEnv {
    /// Find a country's next public holiday, which may be today.
    #[tool(name = "{environment_name}_next", read_only)]
    async fn next(
        &self,
        /// Two letters, such as DE.
        country: String,
    ) -> Result<Holiday, ToolError> {
        // Dates that are written so stand in the order of time.
        let now = self.clock.now().await.to_string();
        let next = self.holidays.read(|holidays| {
            let of_country =
                holidays.holidays.iter().filter(|day| day.country.eq_ignore_ascii_case(&country));
            of_country.filter(|day| now.get(..10) <= Some(&day.date)).min_by_key(|day| &day.date).cloned()
        });
        next.ok_or_else(|| ToolError::new("none_known", format!("no holiday of '{country}' is known")))
    }
}
