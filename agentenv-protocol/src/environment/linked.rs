//! Every environment type that is linked into the program, so that one binary can serve any of them by name.

use super::{BuildError, CardHead, EnvRuntime};

/// An environment type of this program.
#[derive(Debug)]
pub struct LinkedEnv {
    #[doc(hidden)]
    pub head: CardHead,
    #[doc(hidden)]
    pub constructor: fn() -> Option<Constructor>,
}

/// Makes an environment under a name.
pub type Constructor = fn(&str) -> Result<EnvRuntime, BuildError>;

inventory::collect!(LinkedEnv);

impl LinkedEnv {
    /// The name that it declares, or its type's.
    pub fn name(&self) -> &'static str {
        self.head.name()
    }

    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        self.head.type_name
    }

    /// Makes one, if its type has a `Default`, under the name that it declares or another.
    ///
    /// # Errors
    /// As [`EnvRuntime::new`].
    pub fn build(&self, name: Option<&str>) -> Option<Result<EnvRuntime, BuildError>> {
        (self.constructor)().map(|construct| construct(name.unwrap_or(self.name())))
    }
}

/// Every environment type of this program that can be made by its name, which takes a `Default`, in the order of the names. A
/// library may bring types of its own that cannot: those are not the program's to serve.
pub fn linked() -> Vec<&'static LinkedEnv> {
    let mut all: Vec<_> =
        inventory::iter::<LinkedEnv>().filter(|env| (env.constructor)().is_some()).collect();
    all.sort_by_key(|env| (env.name(), env.type_name()));
    all
}

/// The environment type of this program that declares a name and can be made by it.
pub fn find_linked(name: &str) -> Option<&'static LinkedEnv> {
    linked().into_iter().find(|env| env.name() == name)
}
