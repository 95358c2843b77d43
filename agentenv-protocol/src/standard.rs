//! Ready-made components: what many environments want, each in one field marked `#[component]`.
//!
//! ```
//! use agentenv_protocol::prelude::*;
//! use agentenv_protocol::standard::{Clock, ForcedErrors};
//!
//! #[environment_card(name = "calendar")]
//! #[derive(Default)]
//! struct CalendarEnv {
//!     #[component]
//!     clock: Clock,
//!     #[component]
//!     errors: ForcedErrors,
//! }
//!
//! #[environment]
//! impl CalendarEnv {
//!     /// What day it is.
//!     #[tool(read_only)]
//!     async fn today(&self) -> DateTime {
//!         self.clock.now().await
//!     }
//! }
//! ```

pub mod clock;
pub mod forced_errors;

pub use clock::Clock;
pub use forced_errors::ForcedErrors;
