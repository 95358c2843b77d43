//! Files: a tree of texts.

use std::collections::BTreeMap;

use agentenv_protocol::prelude::*;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Files {
    /// What each file says, by its path.
    files: BTreeMap<String, String>,
}

/// The shared drive.
#[environment_card(name = "files")]
#[derive(Default)]
struct FilesEnv {
    #[data]
    drive: Data<Files>,
}

/// What a path leads to.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Found {
    Text(String),
    Folder(Vec<String>),
}

/// A path without the slashes around it.
fn checked(path: &str) -> Result<&str, ToolError> {
    let path = path.trim_matches('/');
    let sound = path.is_empty() || !path.split('/').any(|name| ["", ".", ".."].contains(&name));
    sound.then_some(path).ok_or_else(|| ToolError::new("bad_path", format!("'{path}' is no plain path")))
}

#[environment]
impl FilesEnv {
    /// Read a file, or list the files below a folder.
    #[tool(name = "{environment_name}_read", read_only)]
    fn read(
        &self,
        /// Such as reports/2026/q3.md; without it, everything is listed.
        #[arg(default)]
        path: String,
    ) -> Result<Found, ToolError> {
        let path = checked(&path)?;
        self.drive.read(|drive| {
            if let Some(text) = drive.files.get(path) {
                return Ok(Found::Text(text.clone()));
            }
            let inside = |file: &&String| match file.strip_prefix(path) {
                Some(rest) => path.is_empty() || rest.starts_with('/'),
                None => false,
            };
            let files: Vec<String> = drive.files.keys().filter(inside).cloned().collect();
            if files.is_empty() && !path.is_empty() {
                return Err(ToolError::new("not_found", format!("there is nothing at '{path}'")));
            }
            Ok(Found::Folder(files))
        })
    }

    /// Write a file, in place of what it says now if it is there.
    #[tool(name = "{environment_name}_write", destructive, idempotent)]
    fn write(&self, path: String, text: String) -> Result<Value, ToolError> {
        let path = checked(&path)?;
        if path.is_empty() {
            return Err(ToolError::new("bad_path", "a file needs a name"));
        }
        let bytes = text.len();
        let replaced = self.drive.write(|drive| drive.files.insert(path.to_owned(), text)).is_some();
        Ok(json!({"path": path, "bytes": bytes, "replaced": replaced}))
    }
}
