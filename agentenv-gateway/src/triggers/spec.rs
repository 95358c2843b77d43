//! A trigger as it was registered, checked and compiled (contract 7.2 to 7.6). Reading it from JSON is left to `parse`,
//! what happens to it to `engine`.

use std::sync::Arc;
use std::time::Duration;

use agentenv_protocol::access::{Access, ToolSet};
use serde_json::value::RawValue;

use super::executor::Executor;
use super::hours::Hours;
use super::json::{Json, NULL};
use super::path::Path;
use super::predicate::Test;
use super::regex::TooManySteps;
use super::schedule::{Gap, Times};
use super::template::Template;

/// A trigger.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) id: String,
    /// As it was sent, to tell whether another is the same.
    pub(crate) source: Json,
    pub(crate) when: When,
    pub(crate) actions: Vec<Action>,
    pub(crate) barrier: Option<BarrierSpec>,
    /// What `GET /triggers/state` shows as `when`.
    pub(crate) summary: Box<RawValue>,
    /// Whether its actions read the provoking call's arguments, and its result.
    pub(crate) reads: (bool, bool),
}

/// What it fires on.
#[derive(Debug)]
pub(crate) enum When {
    Action(CallWhen),
    State { check: Arc<Check>, roles: Option<Vec<String>> },
    Time { times: Times, unless: Option<CallWhen> },
    Website(WebsiteWhen),
}

impl When {
    /// Its `type`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Action(_) => "action",
            Self::State { .. } => "state",
            Self::Time { .. } => "time",
            Self::Website(_) => "website",
        }
    }

    /// Whether it fires on every match.
    pub(crate) fn repeats(&self) -> bool {
        match self {
            Self::Action(when) => when.repeat,
            Self::Website(when) => when.repeat,
            Self::State { .. } | Self::Time { .. } => false,
        }
    }
}

/// A tool call that matches.
#[derive(Debug)]
pub(crate) struct CallWhen {
    pub(crate) tool: String,
    pub(crate) tests: Where,
    pub(crate) repeat: bool,
    /// In place of `watch_roles`.
    pub(crate) roles: Option<Vec<String>>,
}

/// A website request that matches.
#[derive(Debug)]
pub(crate) struct WebsiteWhen {
    pub(crate) app: String,
    /// In capitals.
    pub(crate) method: Option<String>,
    pub(crate) path: Option<Test>,
    /// Without it, any status below 400.
    pub(crate) status: Option<Test>,
    pub(crate) tests: Where,
    pub(crate) repeat: bool,
    pub(crate) roles: Option<Vec<String>>,
}

/// Tests on arguments and results, all of which must pass.
#[derive(Debug, Default)]
pub(crate) struct Where(pub(crate) Vec<Condition>);

#[derive(Debug)]
pub(crate) struct Condition {
    /// Its name in reports: `where.` and the key as written.
    pub(crate) name: Arc<str>,
    pub(crate) subject: Subject,
    pub(crate) test: Test,
}

/// What a condition tests.
#[derive(Debug)]
pub(crate) enum Subject {
    /// The top-level argument of this name.
    Argument(String),
    Args(Path),
    Result(Path),
}

/// How tests came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Matches,
    /// The name of the test that failed.
    Differs(Arc<str>),
    /// A test that could not be evaluated, and why.
    Fault(Arc<str>, TooManySteps),
}

impl Where {
    /// Whether evaluating the tests may take a noticeable time.
    pub(crate) fn is_slow(&self) -> bool {
        self.0.iter().any(|condition| matches!(&condition.test, Test::Regex(pattern) if pattern.is_slow()))
    }

    /// Whether every test passes; they are evaluated in order, up to the first that does not.
    pub(crate) fn verdict<'a>(&self, args: impl Fn() -> &'a Json, result: impl Fn() -> &'a Json) -> Verdict {
        for condition in &self.0 {
            let value = match &condition.subject {
                Subject::Argument(name) => args().get(name).unwrap_or(&NULL),
                Subject::Args(path) => path.find(args()),
                Subject::Result(path) => path.find(result()),
            };
            match condition.test.passes(value) {
                Ok(true) => {}
                Ok(false) => return Verdict::Differs(Arc::clone(&condition.name)),
                Err(error) => return Verdict::Fault(Arc::clone(&condition.name), error),
            }
        }
        Verdict::Matches
    }
}

/// A check of the world: calls, and a test on what they find.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) steps: Vec<CheckStep>,
}

#[derive(Debug)]
pub(crate) struct CheckStep {
    pub(crate) tool: String,
    pub(crate) args: Template,
    /// Without it, the result's raw text.
    pub(crate) extract: Option<Extract>,
    pub(crate) bind: Option<String>,
    pub(crate) predicate: Option<Test>,
}

/// What to read from a result.
#[derive(Debug)]
pub(crate) struct Extract {
    pub(crate) path: Path,
    pub(crate) pick: Option<Pick>,
}

/// The first item of a list whose fields pass, or a field of it.
#[derive(Debug)]
pub(crate) struct Pick {
    pub(crate) fields: Vec<(String, Test)>,
    pub(crate) take: Option<String>,
}

impl Extract {
    /// What there is in a parsed result; null when nothing.
    pub(crate) fn find<'a>(&self, result: &'a Json) -> Result<&'a Json, TooManySteps> {
        let found = self.path.find(result);
        let Some(pick) = &self.pick else { return Ok(found) };
        for item in found.as_array().unwrap_or_default() {
            let mut fits = true;
            for (field, test) in &pick.fields {
                fits = fits && test.passes(field_of(item, field))?;
            }
            if fits {
                return Ok(pick.take.as_deref().map_or(item, |take| field_of(item, take)));
            }
        }
        Ok(&NULL)
    }
}

/// A member by its name, or by a path where there is none of that name.
fn field_of<'a>(item: &'a Json, field: &str) -> &'a Json {
    item.get(field).unwrap_or_else(|| Path::parse(field).map_or(&NULL, |path| path.find(item)))
}

/// Something that a trigger does.
#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) does: Does,
    /// Waited for before, in virtual time.
    pub(crate) delay: Option<Gap>,
    pub(crate) verify: Option<Arc<Check>>,
}

#[derive(Debug)]
pub(crate) enum Does {
    Permission {
        access: Access,
        role: String,
        tools: ToolSet,
        /// `tools` as written.
        listed: Box<RawValue>,
    },
    Tool {
        tool: String,
        args: Template,
        role: Option<String>,
    },
    Nl {
        instruction: String,
        /// The name of an executor; none is the one without a name.
        executor: Option<String>,
    },
}

/// How long the provoking call's answer may be held.
#[derive(Debug)]
pub(crate) struct BarrierSpec {
    pub(crate) timeout: Duration,
    /// As written.
    pub(crate) shown: Box<RawValue>,
}

/// An agent that carries out instructions.
#[derive(Debug)]
pub(crate) struct ExecutorSpec {
    /// As it was sent, to tell whether another is the same.
    pub(crate) source: Json,
    pub(crate) agent: Executor,
    pub(crate) hours: Option<Hours>,
}
