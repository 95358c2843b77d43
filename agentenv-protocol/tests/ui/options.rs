//! Options that are unknown, repeated, or of the wrong kind.

use agentenv_protocol::prelude::*;

#[environment_card(nam = "x", tool_access, tool_access, extension(description = "no uri"), extension = "x")]
struct Options {
    #[data(x)]
    state: Data<Value>,
}

#[environment(fast)]
impl Options {
    #[tool(read_onl, name = "a", name = "b")]
    fn unknown(&self) {}

    #[tool(name = 5, read_only = "yes", title("x"), meta = "{}", input_schema, output_schema)]
    fn kinds(&self) {}

    #[tool = "x"]
    fn equals(&self) {}

    #[tool(name =)]
    fn nothing(&self) {}

    #[extension(method = "FETCH", path = "relative", op = "a b")]
    fn extension(&self) {}

    #[extension(uri = "urn:x:a/v1", path = "/{x}", params = [1])]
    fn path(&self) {}

    #[reset_data(now)]
    fn reset(&self) {}

    #[tool]
    fn argument(&self, #[arg(defualt = 5)] a: u8, #[arg(default = 1, default = 2)] b: u8) {
        let _ = (a, b);
    }

    #[add_data]
    fn add(&self) {}

    #[get_data]
    fn get(&self) {}

    #[before_call]
    fn hook(&self) {}

    #[on_start]
    fn start(&self, x: u8) {
        let _ = x;
    }
}

fn main() {}
