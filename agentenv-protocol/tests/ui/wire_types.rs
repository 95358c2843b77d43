//! Types that cannot cross the wire.

use agentenv_protocol::prelude::*;

struct Opaque;

#[derive(Debug)]
struct NotAnError;

#[environment_card(name = "wire")]
struct Wire {
    #[data]
    state: Data<Opaque>,
}

#[environment]
impl Wire {
    #[tool]
    fn argument(&self, opaque: Opaque, list: Vec<Opaque>) {
        let _ = (opaque, list);
    }

    #[tool]
    fn answer(&self) -> Opaque {
        Opaque
    }

    #[tool]
    async fn ok(&self) -> Result<Opaque, ToolError> {
        Ok(Opaque)
    }

    #[tool]
    fn error(&self) -> Result<u8, NotAnError> {
        Err(NotAnError)
    }

    #[extension(uri = "urn:x:a/v1")]
    fn extension(&self, opaque: Opaque) -> Opaque {
        opaque
    }

    #[extension(uri = "urn:x:b/v1")]
    fn extension_error(&self) -> Result<(), NotAnError> {
        Err(NotAnError)
    }

    #[add_data]
    fn add(&self, seed: Opaque) {
        let _ = seed;
    }

    #[get_data]
    fn get(&self) -> Opaque {
        Opaque
    }
}

fn main() {}
