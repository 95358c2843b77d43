//! JSON schemas as agents and their model APIs want them (contract 2.1): bare for plain types, everything written out in
//! place, no unions with null, enums as `enum`. Checking values against them is left to serde, in `arguments`.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::arguments::Param;

/// The schema of an object that is put together a property at a time, in order: a tool's or an extension's parameters.
#[derive(Debug)]
pub struct ObjectSchema {
    generator: SchemaGenerator,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl ObjectSchema {
    pub(crate) fn new() -> Self {
        let generator = generator(SchemaSettings::draft2020_12().for_deserialize());
        Self { generator, properties: Map::new(), required: Vec::new() }
    }

    /// Adds a parameter; it is required unless it has a default or its type a value for none (`Option`).
    pub fn add<T>(&mut self, param: &Param<T>) {
        let optional = param.default.is_some() || (param.absent)().is_some();
        let mut schema = (param.schema)(&mut self.generator).to_value();
        tidy(&mut schema);
        if optional {
            drop_null(&mut schema);
        } else {
            self.required.push(param.name.into());
        }
        if let Value::Bool(true) = schema {
            schema = json!({});
        }
        if let Value::Object(schema) = &mut schema {
            if let Some(description) = param.description {
                describe(schema, description);
            }
            let default = param.default.zip(param.default_json).and_then(|(default, json)| json(default));
            if let Some(default) = default.filter(|default| !default.is_null()) {
                schema.insert("default".to_owned(), default);
            }
        }
        self.properties.insert(param.name.to_owned(), schema);
    }

    pub(crate) fn finish(mut self) -> Value {
        let mut schema = json!({"type": "object", "properties": self.properties});
        if !self.required.is_empty() {
            schema["required"] = self.required.into();
        }
        add_definitions(&mut schema, &mut self.generator);
        schema
    }
}

/// The schema of what a tool returns.
pub fn output_schema<T: JsonSchema>() -> Value {
    let mut generator = generator(SchemaSettings::draft2020_12().for_serialize());
    let mut schema = generator.subschema_for::<T>().to_value();
    tidy(&mut schema);
    add_definitions(&mut schema, &mut generator);
    schema
}

/// What a value of the type has to be, in words.
pub(crate) fn expected<T: JsonSchema>() -> String {
    let mut schema =
        generator(SchemaSettings::draft2020_12().for_deserialize()).subschema_for::<T>().to_value();
    tidy(&mut schema);
    drop_null(&mut schema);
    if let Some(Value::Array(choices)) = schema.get("enum") {
        let choices: Vec<_> = choices.iter().map(Value::to_string).collect();
        return format!("one of {}", choices.join(", "));
    }
    match schema.get("type").and_then(Value::as_str) {
        Some(kind @ ("array" | "integer" | "object")) => format!("an {kind}"),
        Some(kind) => format!("a {kind}"),
        None => "a value".to_owned(),
    }
}

fn generator(settings: SchemaSettings) -> SchemaGenerator {
    settings
        .with(|settings| {
            settings.meta_schema = None;
            settings.inline_subschemas = true;
        })
        .into_generator()
}

/// A type that contains itself cannot be written out in place; what is left of such references goes under `$defs`.
fn add_definitions(schema: &mut Value, generator: &mut SchemaGenerator) {
    let mut definitions = generator.take_definitions(true);
    if definitions.is_empty() {
        return;
    }
    definitions.values_mut().for_each(tidy);
    schema["$defs"] = Value::Object(definitions);
}

/// Puts a schema and everything in it into the form that is served.
fn tidy(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    for (key, value) in object.iter_mut() {
        match key.as_str() {
            // Values, not schemas.
            "const" | "default" | "enum" | "examples" => {}
            "properties" | "patternProperties" | "$defs" => {
                value.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(tidy);
            }
            _ => match value {
                Value::Array(items) => items.iter_mut().for_each(tidy),
                _ => tidy(value),
            },
        }
    }
    bare_number(object);
    flatten_choices(object);
    let required = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for (_, property) in
            properties.iter_mut().filter(|(name, _)| !required.iter().any(|other| other == *name))
        {
            drop_null(property);
        }
    }
}

/// Removes what a number's width alone says of it: models do not know the formats, and the bounds of a machine word are noise.
fn bare_number(schema: &mut Map<String, Value>) {
    let Some(Value::String(format)) = schema.get("format") else { return };
    let (lowest, highest) = match format.as_str() {
        "int8" => (Some(i64::from(i8::MIN)), Some(i64::from(i8::MAX))),
        "int16" => (Some(i64::from(i16::MIN)), Some(i64::from(i16::MAX))),
        "uint8" => (Some(0), Some(i64::from(u8::MAX))),
        "uint16" => (Some(0), Some(i64::from(u16::MAX))),
        "uint" | "uint32" | "uint64" | "uint128" => (Some(0), None),
        "int" | "int32" | "int64" | "int128" | "float" | "double" => (None, None),
        _ => return,
    };
    schema.remove("format");
    for (key, width) in [("minimum", lowest), ("maximum", highest)] {
        if width.is_some() && schema.get(key).and_then(Value::as_i64) == width {
            schema.remove(key);
        }
    }
}

/// `oneOf` constants becomes `enum`; what was said of each choice goes into the description.
fn flatten_choices(schema: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = schema.get("oneOf").or_else(|| schema.get("anyOf")) else { return };
    let mut values = Vec::new();
    let mut said = Vec::new();
    for choice in choices {
        match (choice.get("const"), choice.get("enum")) {
            (Some(value @ Value::String(name)), _) => {
                values.push(value.clone());
                if let Some(Value::String(text)) = choice.get("description") {
                    said.push(format!("`{name}`: {text}"));
                }
            }
            (None, Some(Value::Array(names))) if names.iter().all(Value::is_string) => {
                values.extend(names.clone())
            }
            _ => return,
        }
    }
    schema.remove("oneOf");
    schema.remove("anyOf");
    schema.insert("type".to_owned(), "string".into());
    schema.insert("enum".to_owned(), values.into());
    if !said.is_empty() {
        let head = schema.get("description").and_then(Value::as_str).map(str::to_owned);
        let text = head.into_iter().chain(said).collect::<Vec<_>>().join("\n");
        schema.insert("description".to_owned(), text.into());
    }
}

/// Takes null out of what a value may be.
fn drop_null(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if let Some(Value::Array(kinds)) = object.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = kinds.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    for union in ["anyOf", "oneOf"] {
        let Some(Value::Array(choices)) = object.get_mut(union) else { continue };
        choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        if let [Value::Object(only)] = choices.as_slice() {
            // What stands beside the union was said of this place, so it wins over what the type says of itself.
            let only = only.clone();
            object.remove(union);
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
}

/// Describes a parameter. Its own description goes before what its type's choices say of themselves.
fn describe(schema: &mut Map<String, Value>, description: &str) {
    let choices =
        schema.contains_key("enum").then(|| schema.get("description").and_then(Value::as_str)).flatten();
    let choices = choices.into_iter().flat_map(str::lines).filter(|line| line.starts_with('`'));
    let text = std::iter::once(description).chain(choices).collect::<Vec<_>>().join("\n");
    schema.insert("description".to_owned(), text.into());
}
