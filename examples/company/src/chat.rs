//! Channels. Who posts is who calls, and when is what the gateway's clock says.

use std::collections::BTreeMap;

use agentenv_protocol::prelude::*;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Message {
    from: String,
    text: String,
    at: DateTime,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Chat {
    channels: BTreeMap<String, Vec<Message>>,
}

/// Where people talk.
#[environment_card(name = "chat")]
#[derive(Default)]
struct ChatEnv {
    #[data]
    chat: Data<Chat>,
    #[component]
    clock: Clock,
}

fn no_channel(channel: &str, chat: &Chat) -> ToolError {
    let known: Vec<_> = chat.channels.keys().map(String::as_str).collect();
    ToolError::new("no_channel", format!("there is no channel '{channel}'"))
        .with_hint(format!("there are: {}", known.join(", ")))
}

#[environment]
impl ChatEnv {
    /// Read the last messages of a channel, in the order in which they were posted.
    #[tool(name = "{environment_name}_read", read_only)]
    fn read(&self, channel: String, #[arg(default = 20)] limit: usize) -> Result<Value, ToolError> {
        self.chat.read(|chat| {
            let messages = chat.channels.get(&channel).ok_or_else(|| no_channel(&channel, chat))?;
            let last = &messages[messages.len().saturating_sub(limit)..];
            Ok(json!({"messages": last}))
        })
    }

    /// Post a message in a channel.
    #[tool(name = "{environment_name}_post")]
    async fn post(&self, ctx: &ToolContext, channel: String, text: String) -> Result<Message, ToolError> {
        let from = ctx.caller.role_or_default().to_owned();
        let message = Message { from, text, at: self.clock.now().await };
        self.chat.write(|chat| match chat.channels.get_mut(&channel) {
            Some(messages) => {
                messages.push(message.clone());
                Ok(message)
            }
            None => Err(no_channel(&channel, chat)),
        })
    }
}
