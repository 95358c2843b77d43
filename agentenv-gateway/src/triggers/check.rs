//! Makes a check: its calls, one after another, and the tests on what they find (contract 7.3).

use std::sync::Arc;

use super::engine::{Outcome, Provoking};
use super::index::Parsed;
use super::json::Json;
use super::log::clip;
use super::result::ResultText;
use super::spec::Check;
use super::template::{Unfilled, Values};
use super::world::{InternalCall, World};

/// Makes a check on a trigger's account. An outcome of `Failed` is a check that could not be made; one that was made and
/// did not pass says where it stopped.
pub(crate) async fn run(
    world: &dyn World,
    check: &Check,
    provoking: &Provoking,
    trigger_id: &Arc<str>,
) -> Outcome {
    let (args, result) = {
        let parsed = Parsed::new(provoking.args.as_deref(), provoking.result.as_deref());
        (parsed.args().clone(), parsed.result().clone())
    };
    let mut values = Values { args: Some(&args), result: Some(&result), ..Values::default() };
    let not_passed = |reason: String| Outcome::Checked(Err(reason));
    for (index, step) in check.steps.iter().enumerate() {
        let arguments = match step.args.fill(&values) {
            Ok(arguments) => arguments.to_raw(),
            Err(missing @ Unfilled::Missing(_)) => {
                return not_passed(format!("steps[{index}].args: {missing}"));
            }
            Err(error) => return Outcome::Failed(format!("steps[{index}].args: {error}")),
        };
        let call = InternalCall {
            tool: step.tool.clone(),
            arguments,
            role: None,
            trigger_id: trigger_id.as_ref().to_owned(),
        };
        let answer = match world.call_tool(call).await.result {
            Ok(result) => ResultText::of(&result),
            Err(error) => {
                return Outcome::Failed(format!("steps[{index}]: {} was not answered: {error}", step.tool));
            }
        };
        if answer.is_error {
            let text = clip(&answer.text);
            return not_passed(format!("steps[{index}]: {} answered an error: {text}", step.tool));
        }
        let parsed;
        let whole;
        let found = match &step.extract {
            Some(extract) => {
                parsed = answer.json();
                extract.find(&parsed)
            }
            None => {
                whole = Json::String(answer.text);
                Ok(&whole)
            }
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => return Outcome::Failed(format!("steps[{index}].extract: {error}")),
        };
        match step.predicate.as_ref().map(|test| test.passes(found)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => return not_passed(format!("steps[{index}].predicate did not pass")),
            Some(Err(error)) => return Outcome::Failed(format!("steps[{index}].predicate: {error}")),
        }
        if let Some(name) = &step.bind {
            if !found.exists() {
                return not_passed(format!("steps[{index}].bind: there is nothing to bind to {name}"));
            }
            values.bound.insert(name.clone(), found.clone());
        }
    }
    Outcome::Checked(Ok(()))
}
