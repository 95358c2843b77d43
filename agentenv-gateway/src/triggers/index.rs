//! Which triggers a call or a request can matter to: an immutable table, looked up by tool or website, so that triggers
//! on other tools cost nothing. What a match leads to is left to `engine`.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::engine::Uid;
use super::json::Json;
use super::result::ResultText;
use super::spec::{CallWhen, Spec, Verdict, WebsiteWhen, When};
use super::website;
use super::world::{SeenCall, SeenRequest};

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Index {
    tools: HashMap<String, Vec<Candidate>>,
    /// State triggers, to which any call that may write matters.
    states: Vec<Candidate>,
    websites: HashMap<String, Vec<Candidate>>,
    watched: Vec<String>,
    /// Tools with patterns that may take a noticeable time.
    slow: HashSet<String>,
}

#[derive(Debug)]
struct Candidate {
    uid: Uid,
    spec: Arc<Spec>,
}

impl Candidate {
    /// The roles that count for it, when they are not the watched ones.
    fn roles(&self) -> Option<&Vec<String>> {
        match &self.spec.when {
            When::Action(when) | When::Time { unless: Some(when), .. } => when.roles.as_ref(),
            When::State { roles, .. } => roles.as_ref(),
            When::Website(when) => when.roles.as_ref(),
            When::Time { unless: None, .. } => None,
        }
    }
}

impl Index {
    /// The table of triggers that can still match.
    pub(crate) fn new<'a>(triggers: impl Iterator<Item = (Uid, &'a Arc<Spec>)>, watched: &[String]) -> Self {
        let mut index = Self { watched: watched.to_vec(), ..Self::default() };
        for (uid, spec) in triggers {
            let list = match &spec.when {
                When::Action(when) | When::Time { unless: Some(when), .. } => {
                    if when.tests.is_slow() {
                        index.slow.insert(when.tool.clone());
                    }
                    index.tools.entry(when.tool.clone()).or_default()
                }
                When::State { .. } => &mut index.states,
                When::Website(when) => index.websites.entry(when.app.clone()).or_default(),
                When::Time { unless: None, .. } => continue,
            };
            list.push(Candidate { uid, spec: Arc::clone(spec) });
        }
        for on_tool in index.tools.values_mut() {
            // A call cancels what waits for it not to come before it fires anything.
            on_tool.sort_by_key(|candidate| !matches!(candidate.spec.when, When::Time { .. }));
        }
        index
    }

    fn counts(&self, candidate: &Candidate, role: &str) -> bool {
        candidate.roles().unwrap_or(&self.watched).iter().any(|watched| watched == role)
    }

    /// Whether a call of the tool by the role can matter to anything.
    pub(crate) fn watches(&self, role: &str, tool: &str) -> bool {
        self.tools
            .get(tool)
            .into_iter()
            .flatten()
            .chain(&self.states)
            .any(|candidate| self.counts(candidate, role))
    }

    /// Whether a request to the website by the role can.
    pub(crate) fn watches_website(&self, role: &str, app: &str) -> bool {
        self.websites.get(app).into_iter().flatten().any(|candidate| self.counts(candidate, role))
    }

    /// Whether looking at a call of the tool may take a noticeable time.
    pub(crate) fn is_slow(&self, tool: &str) -> bool {
        self.slow.contains(tool)
    }

    /// How a successful call looks to each trigger on its tool, and which state triggers it prompts.
    pub(crate) fn look(&self, call: &SeenCall) -> (Vec<(Uid, Verdict)>, Vec<Uid>) {
        let parsed = Parsed::new(call.arguments.as_deref(), Some(&call.result));
        let on_tool = self.tools.get(&call.tool).into_iter().flatten();
        let looks = on_tool.filter(|candidate| self.counts(candidate, &call.role)).filter_map(|candidate| {
            let (When::Action(when) | When::Time { unless: Some(when), .. }) = &candidate.spec.when else {
                return None;
            };
            Some((candidate.uid, parsed.call(when)))
        });
        let looks = looks.collect();
        let states =
            self.states.iter().filter(|candidate| !call.read_only && self.counts(candidate, &call.role));
        (looks, states.map(|candidate| candidate.uid).collect())
    }

    /// How a request looks to each trigger on its website, and the arguments read from it.
    pub(crate) fn look_at_website(&self, request: &SeenRequest) -> (Vec<(Uid, Verdict)>, Json) {
        let args = website::arguments(request);
        let on_app = self.websites.get(&request.app).into_iter().flatten();
        let looks =
            on_app.filter(|candidate| self.counts(candidate, &request.role)).filter_map(|candidate| {
                let When::Website(when) = &candidate.spec.when else { return None };
                Some((candidate.uid, request_verdict(when, request, &args)))
            });
        (looks.collect(), args)
    }
}

/// A call's arguments and result, parsed when something looks at them.
pub(crate) struct Parsed<'a> {
    args_raw: Option<&'a RawValue>,
    result_raw: Option<&'a RawValue>,
    args: OnceCell<Json>,
    result: OnceCell<Json>,
}

impl<'a> Parsed<'a> {
    pub(crate) fn new(args_raw: Option<&'a RawValue>, result_raw: Option<&'a RawValue>) -> Self {
        Self { args_raw, result_raw, args: OnceCell::new(), result: OnceCell::new() }
    }

    pub(crate) fn args(&self) -> &Json {
        self.args.get_or_init(|| self.args_raw.and_then(|raw| Json::parse(raw.get())).unwrap_or(Json::Null))
    }

    pub(crate) fn result(&self) -> &Json {
        self.result.get_or_init(|| self.result_raw.map_or(Json::Null, |raw| ResultText::of(raw).json()))
    }

    fn call(&self, when: &CallWhen) -> Verdict {
        when.tests.verdict(|| self.args(), || self.result())
    }
}

fn request_verdict(when: &WebsiteWhen, request: &SeenRequest, args: &Json) -> Verdict {
    if when.method.as_ref().is_some_and(|method| !method.eq_ignore_ascii_case(&request.method)) {
        return Verdict::Differs("method".into());
    }
    let status = Json::Int(i64::from(request.status));
    if when.status.is_none() && request.status >= 400 {
        return Verdict::Differs("status".into());
    }
    let path = Json::String(request.path.clone());
    for (name, test, value) in [("path", &when.path, &path), ("status", &when.status, &status)] {
        match test.as_ref().map(|test| test.passes(value)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => return Verdict::Differs(name.into()),
            Some(Err(error)) => return Verdict::Fault(name.into(), error),
        }
    }
    when.tests.verdict(|| args, || &super::json::NULL)
}
