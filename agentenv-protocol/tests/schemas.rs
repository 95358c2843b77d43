//! The schemas that an environment's card and listings show (contract 2.1).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};

use agentenv_protocol::prelude::*;
use agentenv_protocol::testing::TestEnv;

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Plain {
    #[default]
    FirstOne,
    Other,
}

/// How loud.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Described {
    /// Nobody hears.
    Low,
    High,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Address {
    /// Name of the street.
    street: String,
    number: u16,
    zip: Option<String>,
    #[serde(default)]
    floor: i8,
    loudness: Option<Described>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Tree {
    name: String,
    children: Vec<Tree>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Bounded {
    #[schemars(range(min = 1, max = 5))]
    stars: u8,
    #[schemars(length(max = 10))]
    title: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Report {
    count: u64,
    note: Option<String>,
}

#[environment_card(name = "schemas")]
struct SchemaEnv;

#[environment]
impl SchemaEnv {
    #[tool]
    fn none(&self) {}

    #[tool]
    fn plain(&self, s: String, i: i64, u: u32, small: u8, f: f64, b: bool) {
        let _ = (s, i, u, small, f, b);
    }

    #[tool]
    fn optional(
        &self,
        text: Option<String>,
        /// When.
        at: Option<DateTime>,
        plain: Option<Plain>,
        home: Option<Address>,
        anything: Option<Value>,
        #[arg(default = 5)] limit: u32,
        #[arg(default)] kind: Plain,
        #[arg(default = "x", name = "from")] sender: String,
    ) {
        let _ = (text, at, plain, home, anything, limit, kind, sender);
    }

    #[tool]
    fn nested(
        &self,
        home: Address,
        homes: Vec<Address>,
        by_name: BTreeMap<String, i64>,
        any: HashMap<String, Value>,
    ) {
        let _ = (home, homes, by_name, any);
    }

    #[tool]
    fn choices(
        &self,
        plain: Plain,
        /// The volume.
        described: Described,
        anything: Value,
    ) {
        let _ = (plain, described, anything);
    }

    #[tool]
    fn recursive(&self, tree: Tree) {
        let _ = tree;
    }

    #[tool]
    fn bounded(&self, bounded: Bounded) {
        let _ = bounded;
    }

    #[tool]
    fn references(&self, text: &str, list: &[i64], home: &Address, r#type: &str) {
        let _ = (text, list, home, r#type);
    }

    #[tool(output_schema)]
    fn report(&self) -> Result<Report, String> {
        Ok(Report { count: 1, note: None })
    }
}

fn schema(tool: &str) -> Value {
    TestEnv::new(SchemaEnv).card().tool(tool).unwrap().input_schema.clone()
}

#[test]
fn plain_parameters_have_the_bare_schema() {
    assert_eq!(schema("none").to_string(), r#"{"type":"object","properties":{}}"#);
    assert_eq!(
        schema("plain").to_string(),
        concat!(
            r#"{"type":"object","properties":{"s":{"type":"string"},"i":{"type":"integer"},"u":{"type":"integer"},"#,
            r#""small":{"type":"integer"},"f":{"type":"number"},"b":{"type":"boolean"}},"#,
            r#""required":["s","i","u","small","f","b"]}"#
        )
    );
}

#[test]
fn optional_parameters_are_of_their_own_type_and_not_required() {
    let schema = schema("optional");
    assert_eq!(schema.get("required"), None);
    let properties = &schema["properties"];
    assert_eq!(properties["text"], json!({"type": "string"}));
    assert_eq!(properties["at"], json!({"type": "string", "format": "date-time", "description": "When."}));
    assert_eq!(properties["plain"], json!({"type": "string", "enum": ["first_one", "other"]}));
    assert_eq!(properties["home"]["type"], "object");
    assert_eq!(properties["anything"], json!({}));
    assert_eq!(properties["limit"], json!({"type": "integer", "default": 5}));
    assert_eq!(
        properties["kind"],
        json!({"type": "string", "enum": ["first_one", "other"], "default": "first_one"})
    );
    assert_eq!(properties["from"], json!({"type": "string", "default": "x"}));
    let names: Vec<_> = properties.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["text", "at", "plain", "home", "anything", "limit", "kind", "from"]);
}

#[test]
fn nested_types_are_written_out_in_place() {
    let schema = schema("nested");
    let address = json!({
        "type": "object",
        "properties": {
            "street": {"type": "string", "description": "Name of the street."},
            "number": {"type": "integer"},
            "zip": {"type": "string"},
            "floor": {"type": "integer", "default": 0},
            "loudness": {
                "type": "string",
                "enum": ["low", "high"],
                "description": "How loud.\n`low`: Nobody hears.",
            },
        },
        "required": ["street", "number"],
    });
    let sorted = |value: &Value| {
        let mut value = value.clone();
        if let Some(Value::Array(choices)) = value.pointer_mut("/properties/loudness/enum") {
            choices.sort_by_key(Value::to_string);
        }
        value
    };
    assert_eq!(sorted(&schema["properties"]["home"]), sorted(&address));
    assert_eq!(sorted(&schema["properties"]["homes"]["items"]), sorted(&address));
    assert_eq!(
        schema["properties"]["by_name"],
        json!({"type": "object", "additionalProperties": {"type": "integer"}})
    );
    assert_eq!(schema["properties"]["any"], json!({"type": "object", "additionalProperties": true}));
    assert!(!schema.to_string().contains("$ref"));
}

#[test]
fn enums_are_enums_and_keep_what_is_said_of_their_choices() {
    let schema = schema("choices");
    let properties = &schema["properties"];
    assert_eq!(properties["plain"], json!({"type": "string", "enum": ["first_one", "other"]}));
    assert_eq!(properties["described"]["description"], "The volume.\n`low`: Nobody hears.");
    assert_eq!(properties["described"]["enum"].as_array().unwrap().len(), 2);
    assert_eq!(properties["anything"], json!({}));
}

#[test]
fn a_type_in_itself_is_a_definition() {
    let schema = schema("recursive");
    let reference = schema
        .pointer("/properties/tree/properties/children/items/$ref")
        .or_else(|| schema.pointer("/properties/tree/$ref"));
    let name = reference.unwrap().as_str().unwrap().strip_prefix("#/$defs/").unwrap();
    assert_eq!(schema["$defs"][name]["type"], "object");
    assert_eq!(schema["$defs"][name]["properties"]["name"], json!({"type": "string"}));
}

#[test]
fn what_an_author_says_of_a_type_stays() {
    let schema = schema("bounded");
    let properties = &schema["properties"]["bounded"]["properties"];
    assert_eq!(properties["stars"], json!({"type": "integer", "minimum": 1, "maximum": 5}));
    assert_eq!(properties["title"], json!({"type": "string", "maxLength": 10}));
}

#[test]
fn references_are_of_what_they_refer_to() {
    let schema = schema("references");
    assert_eq!(schema["required"], json!(["text", "list", "home", "type"]));
    assert_eq!(schema["properties"]["list"], json!({"type": "array", "items": {"type": "integer"}}));
}

#[test]
fn an_output_schema_is_listed_and_not_on_the_card() {
    let env = TestEnv::new(SchemaEnv);
    let tool = env.runtime().tools().iter().find(|tool| tool.name == "report").unwrap();
    let listing: Value = serde_json::from_str(tool.raw.get()).unwrap();
    let schema = json!({
        "type": "object",
        "properties": {"count": {"type": "integer"}, "note": {"type": ["string", "null"]}},
        "required": ["count", "note"],
    });
    assert_eq!(listing["outputSchema"], schema);
    let on_card = serde_json::to_value(env.card().tool("report").unwrap()).unwrap();
    assert_eq!(
        on_card.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["name", "description", "inputSchema"]
    );
}
