//! Parts: what the data plane loads and reads (contract 1 and 2.2), and [`Data`], a holder for state that is one value.
//! The JSON-RPC around them is left to `environment`.

mod holder;
mod merge;
mod part;
mod read;

pub use holder::{Data, State};
pub use part::{DataPart, FileContent, FilePart, JsonObject, NotAnObject, Part, TextPart};
pub use read::{MAX_FILE_BYTES, ReadError};
