//! Meeting rooms: a parameter that is a list of choices.

use agentenv_protocol::prelude::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Equipment {
    Screen,
    Whiteboard,
    VideoCamera,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Room {
    name: String,
    seats: u32,
    #[serde(default)]
    equipment: Vec<Equipment>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Building {
    rooms: Vec<Room>,
}

/// Where to meet.
#[environment_card(name = "rooms")]
#[derive(Default)]
struct RoomsEnv {
    #[data]
    building: Data<Building>,
}

#[environment]
impl RoomsEnv {
    /// Find rooms that are large enough and have what is needed, the smallest first.
    #[tool(name = "{environment_name}_find", read_only)]
    fn find(&self, seats: u32, #[arg(default)] equipment: Vec<Equipment>) -> Value {
        let fits = |room: &&Room| {
            room.seats >= seats && equipment.iter().all(|needed| room.equipment.contains(needed))
        };
        let mut rooms: Vec<Room> =
            self.building.read(|building| building.rooms.iter().filter(fits).cloned().collect());
        rooms.sort_by_key(|room| room.seats);
        json!({"rooms": rooms})
    }
}
