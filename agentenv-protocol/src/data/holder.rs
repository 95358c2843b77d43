//! A holder for state that is one serde value: reset, add and get come with it.

use std::cell::RefCell;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use futures_util::future::{BoxFuture, FutureExt, ready};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::merge::merge;
use super::part::Part;
use crate::environment::table::DataAnswer;
use crate::error::{Failure, describe};

/// What [`Data`] may hold: a value that serde reads and writes as a JSON object, and that has a `Default`.
#[diagnostic::on_unimplemented(
    message = "`Data` cannot hold `{Self}`",
    label = "cannot be read from and written as JSON, or has no default",
    note = "derive `serde::Serialize`, `serde::Deserialize` and `Default` for it"
)]
pub trait State: Serialize + DeserializeOwned + Default + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Default + Send + Sync + 'static> State for T {}

/// State that is one value. A field of an environment that holds it, marked `#[data]`, gives the environment its data plane
/// (contract 2.2):
///
/// - `data/reset` puts `T::default()` in its place,
/// - `data/add` merges each part (a data part, or the JSON in a file) into it: arrays are appended, objects merged member by
///   member, anything else replaced; the merged value must be a `T`, and until it is nothing changes. A member that `T` does not
///   have is refused, so that a misspelt one does not load an empty world,
/// - `data/get` gives it as one data part.
///
/// Where another rule is wanted, a method marked `#[add_data]` (or `#[reset_data]`, `#[get_data]`) goes before it.
///
/// ```
/// use agentenv_protocol::prelude::*;
///
/// #[derive(Default, Serialize, Deserialize)]
/// #[serde(default)]
/// struct Notes {
///     lines: Vec<String>,
/// }
///
/// #[environment_card(name = "notes")]
/// #[derive(Default)]
/// struct NotesEnv {
///     #[data]
///     notes: Data<Notes>,
/// }
///
/// #[environment]
/// impl NotesEnv {
///     /// Write a line.
///     #[tool]
///     fn write(&self, line: String) -> usize {
///         self.notes.write(|notes| {
///             notes.lines.push(line);
///             notes.lines.len()
///         })
///     }
/// }
/// ```
#[derive(Default)]
pub struct Data<T> {
    value: RwLock<T>,
}

thread_local! {
    /// The holders whose closures this thread is in.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// This thread's being in a holder's closure.
struct Inside(usize);

impl Inside {
    /// # Panics
    /// If the thread is in one of the same holder already: taking its lock again could wait for ever.
    fn enter(holder: usize) -> Self {
        let again = INSIDE.with_borrow_mut(|inside| {
            let again = inside.contains(&holder);
            inside.push(holder);
            again
        });
        let entered = Self(holder);
        assert!(!again, "`Data` was read or written inside one of its own closures");
        entered
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(|inside| {
            if let Some(last) = inside.iter().rposition(|holder| *holder == self.0) {
                inside.remove(last);
            }
        });
    }
}

impl<T> Data<T> {
    /// A holder that begins with a value. `data/reset` still puts `T::default()` in its place.
    pub const fn new(value: T) -> Self {
        Self { value: RwLock::new(value) }
    }

    /// Looks at the value. Other readers may look at the same time.
    ///
    /// # Panics
    /// If called inside another closure of the same holder.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let _inside = self.enter();
        look(&self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the value, with nobody else looking. A closure that panics leaves it as far as it had come.
    ///
    /// # Panics
    /// If called inside another closure of the same holder.
    pub fn write<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let _inside = self.enter();
        change(&mut self.value.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn enter(&self) -> Inside {
        Inside::enter(std::ptr::from_ref(self).addr())
    }
}

impl<T: fmt::Debug> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: State> Data<T> {
    pub(crate) fn operate_reset(&self) -> BoxFuture<'_, DataAnswer> {
        self.write(|value| *value = T::default());
        ready(DataAnswer(Ok(Vec::new()))).boxed()
    }

    pub(crate) fn operate_get(&self) -> BoxFuture<'_, DataAnswer> {
        let part = self.read(|value| Part::data(value)).map(|part| vec![part]);
        ready(DataAnswer(part.map_err(|error| Failure::Plain(format!("the state: {error}"))))).boxed()
    }

    pub(crate) fn operate_add(&self, parts: Vec<Part>) -> BoxFuture<'_, DataAnswer> {
        async move {
            let mut seeds = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                match part.parse::<Map<String, Value>>().await {
                    Ok(seed) => seeds.push(seed),
                    Err(error) => {
                        return DataAnswer(Err(Failure::Plain(format!(
                            "parts[{index}]: {}",
                            describe(&error)
                        ))));
                    }
                }
            }
            DataAnswer(self.add(seeds).map(|()| Vec::new()).map_err(Failure::Plain))
        }
        .boxed()
    }

    /// Merges the seeds into the value, or says why not and leaves it as it is.
    fn add(&self, seeds: Vec<Map<String, Value>>) -> Result<(), String> {
        self.write(|value| {
            let state = match serde_json::to_value(&*value) {
                Ok(Value::Object(state)) => state,
                Ok(_) => return Err("the state is not a JSON object".to_owned()),
                Err(error) => return Err(format!("the state cannot be written as JSON: {error}")),
            };
            *value = merged(&state, &seeds).map_err(|error| {
                // Which part it was is found out by leaving off the last ones, one by one.
                let at = (1..seeds.len()).find(|end| merged::<T>(&state, &seeds[..*end]).is_err());
                format!("parts[{}]: {error}", at.unwrap_or(seeds.len()) - 1)
            })?;
            Ok(())
        })
    }
}

/// The state with the seeds merged into it.
fn merged<T: DeserializeOwned>(
    state: &Map<String, Value>,
    seeds: &[Map<String, Value>],
) -> Result<T, String> {
    let mut merged = state.clone();
    for seed in seeds {
        merge(&mut merged, seed.clone());
    }
    let mut unknown = Vec::new();
    let value = serde_ignored::deserialize(Value::Object(merged), |path| {
        // Members that are written but not read (computed ones) come back with every copy of the state.
        if let serde_ignored::Path::Map { parent: serde_ignored::Path::Root, key } = path
            && !state.contains_key(&key)
        {
            unknown.push(format!("`{key}`"));
        }
    });
    let value = value.map_err(|error| error.to_string())?;
    if unknown.is_empty() { Ok(value) } else { Err(format!("the state has no {}", unknown.join(", "))) }
}
