//! Reading time triggers and gaps (contract 7.4, 7.9).

use super::super::json::Json;
use super::super::random::{MAX_SEED_DIGITS, Seed};
use super::super::schedule::{Gap, Moment, Start, Times, parse_duration};
use super::super::spec::When;
use super::Reader;
use super::fields::{Fields, Report};

impl Reader<'_, '_> {
    pub(super) fn times(&self, fields: &Fields<'_>, report: &mut Report) -> Option<When> {
        let known =
            ["type", "at", "after", "offset", "every", "seed", "count", "until", "unless", "repeat", "roles"];
        fields.only(&known, report);
        if fields.get("roles").is_some_and(|roles| !roles.is_null()) {
            report.fault(fields.at("roles"), "is for action, state and website triggers");
        }
        let start = read_start(fields, report);
        let every = fields.get("every").and_then(|every| read_every(every, fields, report));
        if fields.has("seed") && !matches!(fields.get("every"), Some(Json::Object(_))) {
            report.fault(fields.at("seed"), "is for a random every");
        }
        for name in ["count", "until"] {
            if fields.has(name) && !fields.has("every") {
                report.fault(fields.at(name), "needs every");
            }
        }
        let count = fields.get("count").and_then(|count| match count {
            Json::Int(count) if *count > 0 => u64::try_from(*count).ok(),
            Json::Big(digits) if !digits.starts_with('-') => Some(u64::MAX),
            _ => {
                report.fault(fields.at("count"), "must be a whole number above 0");
                None
            }
        });
        let until = fields.get("until").and_then(|until| read_moment(until, &fields.at("until"), report));
        let unless = fields.get("unless").filter(|unless| !unless.is_null()).and_then(|unless| {
            if fields.has("every") {
                report.fault(fields.at("unless"), "is for a trigger that fires once");
            }
            let unless = Fields::read(unless, &fields.at("unless"), report)?;
            unless.only(&["type", "tool", "where", "roles", "repeat"], report);
            self.call_when(&unless, report)
        });
        Some(When::Time { times: Times { start: start?, every, count, until }, unless })
    }
}

fn read_start(fields: &Fields<'_>, report: &mut Report) -> Option<Start> {
    if fields.has("offset") && !fields.has("after") {
        report.fault(fields.at("offset"), "needs after");
    }
    match (fields.get("at"), fields.get("after")) {
        (Some(_), Some(_)) => {
            report.fault(fields.place(), "takes at or after, not both");
            None
        }
        (Some(at), None) => read_moment(at, &fields.at("at"), report).map(Start::At),
        (None, Some(_)) => {
            let anchor = fields.text("after", report);
            let offset = read_duration(fields, "offset", report);
            Some(Start::After { anchor: anchor?.to_owned(), offset: offset? })
        }
        (None, None) if fields.has("every") => Some(Start::FirstGap),
        (None, None) => {
            report.fault(fields.place(), "needs at, after or every");
            None
        }
    }
}

fn read_moment(value: &Json, at: &str, report: &mut Report) -> Option<Moment> {
    let moment = value.as_str().ok_or_else(|| "must be an RFC 3339 time or a duration like PT15M".to_owned());
    moment.and_then(Moment::parse).map_err(|problem| report.fault(at, problem)).ok()
}

fn read_duration(fields: &Fields<'_>, name: &str, report: &mut Report) -> Option<i64> {
    let text =
        fields.get(name).and_then(Json::as_str).ok_or_else(|| "must be a duration like PT15M".to_owned());
    text.and_then(parse_duration).map_err(|problem| report.fault(fields.at(name), problem)).ok()
}

fn read_every(every: &Json, fields: &Fields<'_>, report: &mut Report) -> Option<Gap> {
    match every {
        Json::String(_) => read_fixed(fields, "every", report),
        Json::Object(_) => {
            let gap = Fields::read(every, &fields.at("every"), report)?;
            gap.only(&["dist", "mean"], report);
            read_random(&gap, fields, report)
        }
        _ => {
            report
                .fault(fields.at("every"), "must be a duration, or {\"dist\": \"exp\", \"mean\": duration}");
            None
        }
    }
}

/// An action's `delay`: a duration, or `{"dist":"exp","mean","seed"}`.
pub(super) fn read_delay(fields: &Fields<'_>, report: &mut Report) -> Option<Gap> {
    match fields.get("delay")? {
        Json::Null => None,
        Json::String(_) => read_fixed(fields, "delay", report),
        delay @ Json::Object(_) => {
            let gap = Fields::read(delay, &fields.at("delay"), report)?;
            gap.only(&["dist", "mean", "seed"], report);
            read_random(&gap, &gap, report)
        }
        _ => {
            report.fault(
                fields.at("delay"),
                "must be a duration, or {\"dist\": \"exp\", \"mean\": duration, \"seed\": integer}",
            );
            None
        }
    }
}

fn read_fixed(fields: &Fields<'_>, name: &str, report: &mut Report) -> Option<Gap> {
    let micros = read_duration(fields, name, report)?;
    if micros == 0 {
        report.fault(fields.at(name), "must be longer than nothing");
        return None;
    }
    Some(Gap::Fixed(micros))
}

/// `gap` holds the distribution, `seeded` the seed.
fn read_random(gap: &Fields<'_>, seeded: &Fields<'_>, report: &mut Report) -> Option<Gap> {
    if gap.get("dist").and_then(Json::as_str) != Some("exp") {
        report.fault(gap.at("dist"), "must be exp");
    }
    let mean = read_fixed(gap, "mean", report);
    let seed = match seeded.get("seed") {
        Some(Json::Int(seed)) => Seed::from_decimal(&seed.to_string()),
        Some(Json::Big(seed)) => Seed::from_decimal(seed),
        _ => None,
    };
    if seed.is_none() {
        report
            .fault(seeded.at("seed"), format_args!("must be an integer of at most {MAX_SEED_DIGITS} digits"));
    }
    let Some(Gap::Fixed(mean)) = mean else { return None };
    Some(Gap::Random { mean_seconds: mean as f64 / 1e6, seed: seed? })
}
