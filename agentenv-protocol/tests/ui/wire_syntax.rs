//! Types of which it can be seen that they cannot cross the wire.

use std::borrow::Cow;

use agentenv_protocol::prelude::*;

#[environment_card(name = "wire")]
struct Wire;

#[environment]
impl Wire {
    #[tool]
    fn arguments(
        &self,
        a: impl Into<String>,
        b: &mut String,
        c: Box<dyn Fn()>,
        d: &dyn Send,
        e: fn() -> u8,
        f: *const u8,
        g: Option<&str>,
    ) {
        let _ = (a.into(), b, c, d, e, f, g);
    }

    #[tool]
    fn lifetime<'a>(&self, text: Cow<'a, str>) {
        let _ = text;
    }

    #[tool]
    fn generic<T: Into<String>>(&self, value: T) {
        let _ = value;
    }

    #[tool]
    fn answers(&self) -> *const u8 {
        std::ptr::null()
    }
}

fn main() {}
