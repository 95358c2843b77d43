//! The weather, from the day on that the gateway's clock shows.

use std::collections::BTreeMap;

use agentenv_protocol::prelude::*;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Day {
    sky: String,
    celsius: f64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Weather {
    /// By city, then by date, such as 2026-10-05.
    cities: BTreeMap<String, BTreeMap<String, Day>>,
}

/// Whether to take an umbrella.
#[environment_card(name = "weather")]
#[derive(Default)]
struct WeatherEnv {
    #[data]
    weather: Data<Weather>,
    #[component]
    clock: Clock,
}

#[environment]
impl WeatherEnv {
    /// Forecast a city's weather for today and the days after it.
    #[tool(name = "{environment_name}_forecast", read_only)]
    async fn forecast(&self, city: String, #[arg(default = 3)] days: usize) -> Result<Value, ToolError> {
        let now = self.clock.now().await.to_string();
        let today = now.get(..10).unwrap_or_default().to_owned();
        self.weather.read(|weather| {
            let unknown = || ToolError::new("no_city", format!("nothing is known of '{city}'"));
            let known = weather.cities.get(&city).ok_or_else(unknown)?;
            let days: BTreeMap<_, _> = known.range(today..).take(days).collect();
            Ok(json!({"city": city, "days": days}))
        })
    }
}
