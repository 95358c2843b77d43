//! A server with every kind of answer that a tool can give, for MCP's own conformance suite.

use std::time::Duration;

use agentenv_protocol::prelude::*;

/// A red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// A sound of no length.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

/// Pauses between two notifications.
const PAUSE: Duration = Duration::from_millis(50);

/// Every kind of answer.
#[environment_card(name = "everything")]
#[derive(Default)]
pub struct EverythingEnv;

fn contact_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

#[environment]
impl EverythingEnv {
    /// Answers with text.
    #[tool]
    fn test_simple_text(&self) -> &'static str {
        "This is a simple text response for testing."
    }

    /// Answers with an image.
    #[tool]
    fn test_image_content(&self) -> Content {
        Content::image_base64(PNG, "image/png")
    }

    /// Answers with a sound.
    #[tool]
    fn test_audio_content(&self) -> Content {
        Content::audio_base64(WAV, "audio/wav")
    }

    /// Answers with a resource.
    #[tool]
    fn test_embedded_resource(&self) -> Content {
        Content::text_resource(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )
    }

    /// Answers with several kinds of content.
    #[tool]
    fn test_multiple_content_types(&self) -> Vec<Content> {
        vec![
            Content::text("Multiple content types test:"),
            Content::image_base64(PNG, "image/png"),
            Content::text_resource(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            ),
        ]
    }

    /// Fails.
    #[tool]
    fn test_error_handling(&self) -> Result<(), String> {
        Err("This tool intentionally returns an error for testing".into())
    }

    /// Says how far it has come.
    #[tool]
    async fn test_tool_with_progress(&self, ctx: &ToolContext) -> &'static str {
        for progress in [0.0, 50.0, 100.0] {
            ctx.progress(progress, Some(100.0), None);
            tokio::time::sleep(PAUSE).await;
        }
        "done"
    }

    /// Logs what it does.
    #[tool]
    async fn test_tool_with_logging(&self, ctx: &ToolContext) -> &'static str {
        for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
            ctx.log(LogLevel::Info, message);
            tokio::time::sleep(PAUSE).await;
        }
        "done"
    }

    /// Logs, for those who asked for it.
    #[tool]
    fn test_logging_tool(&self, ctx: &ToolContext) -> &'static str {
        ctx.log(LogLevel::Info, "a message");
        "done"
    }

    /// Needs a client that can sample.
    #[tool(requires_client_capability = "sampling")]
    fn test_missing_capability(&self) -> &'static str {
        "the client can sample"
    }

    /// Answers without asking anything.
    #[tool]
    fn test_streaming_elicitation(&self) -> &'static str {
        "nothing was asked"
    }

    /// Takes what its schema says.
    #[tool(input_schema = contact_schema)]
    fn json_schema_2020_12_tool(&self, ctx: &ToolContext) -> Value {
        serde_json::from_str(ctx.arguments.get()).unwrap_or_default()
    }
}
