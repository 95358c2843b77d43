use serde_json::{Value, json};

use super::*;

fn read_with(body: &Value, settings: &Settings) -> Result<Registration, String> {
    let tool = |name: &str| ["send", "email_search", "contacts_add"].contains(&name);
    let names = Names {
        tool: Some(&tool),
        website: &|name| name == "shop",
        registered: &|_| None,
        own_tools: &["get_time"],
    };
    let mut made = 0;
    register(&Json::parse(&body.to_string()).unwrap(), settings, &names, || {
        made += 1;
        format!("trg_{made:012x}")
    })
}

fn read(body: &Value) -> Result<Registration, String> {
    read_with(body, &Settings::default())
}

fn executor() -> Value {
    json!({"a2a_url": "http://127.0.0.1:9", "role": "world"})
}

fn one(trigger: &Value) -> Result<Registration, String> {
    read(&json!({"triggers": [trigger], "executor": executor()}))
}

fn send() -> Value {
    json!({"type": "action", "tool": "send"})
}

fn when(when: Value) -> Value {
    json!({"id": "b", "when": when, "actions": []})
}

fn with(base: Value, more: Value) -> Value {
    let mut base = base;
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

fn time(more: Value) -> Value {
    when(with(json!({"type": "time"}), more))
}

fn action(action: Value) -> Value {
    json!({"id": "b", "when": send(), "actions": [action]})
}

fn args(text: &str) -> Value {
    action(json!({"type": "tool", "tool": "send", "args": {"to": text}}))
}

fn test(key: &str, test: Value) -> Value {
    when(with(send(), json!({"where": {key: test}})))
}

fn step(more: Value) -> Value {
    let step = with(json!({"tool": "email_search", "args": {}, "predicate": {"exists": true}}), more);
    when(json!({"type": "state", "check": {"steps": [step]}}))
}

fn site(more: Value) -> Value {
    when(with(json!({"type": "website", "app": "shop"}), more))
}

fn exp() -> Value {
    json!({"dist": "exp", "mean": "PT1H"})
}

#[test]
fn what_is_taken() {
    for trigger in [
        when(send()),
        json!({"when": send(), "actions": []}),
        json!({"id": null, "when": send(), "actions": [], "barrier": null}),
        test("to", json!({"regex": r"(?P<a>x)(?P=a)\Z"})),
        test("to", json!({"equals": null})),
        test("args.a[0].b[*]", json!({"exists": false})),
        test("result.é", json!({"equals": {"a": [1]}})),
        test("", json!({"exists": true})),
        test("a.b", json!({"exists": true})),
        when(with(send(), json!({"repeat": true, "roles": ["x"], "where": {}}))),
        when(with(send(), json!({"roles": null}))),
        step(json!({})),
        step(json!({"extract": ""})),
        step(json!({"extract": "[0].a"})),
        step(json!({"extract": {"path": "a", "match": {"b": {"equals": 1}}, "take": "c.d"}})),
        step(json!({"extract": {"path": ""}})),
        when(
            json!({"type": "state", "check": {"tool": "email_search", "predicate": {"exists": true}}, "roles": ["x"]}),
        ),
        when(json!({"type": "state", "check": {"steps": [
            {"tool": "email_search", "extract": "a", "bind": "n"},
            {"tool": "send", "args": {"to": "${n} ${n?}"}, "predicate": {"equals": 1}}]}})),
        time(json!({"at": "PT0S"})),
        time(json!({"at": "2026-10-05 09:00:00z"})),
        time(json!({"after": "b", "offset": "PT0S"})),
        time(json!({"after": "x", "offset": "PT1S", "every": "PT10M", "count": 2})),
        time(json!({"every": "PT0.000001S"})),
        time(json!({"every": exp(), "seed": -5, "at": "PT1H", "count": 2, "until": "PT5H"})),
        time(json!({"every": "PT1S", "until": "2026-10-05T09:00:00Z"})),
        time(
            json!({"at": "PT1H", "unless": {"tool": "send", "where": {"to": {"equals": "x"}}, "roles": ["x"]}}),
        ),
        time(json!({"after": "x", "offset": "PT1H", "unless": {"tool": "send"}})),
        time(json!({"at": "PT1H", "unless": null})),
        site(json!({})),
        site(
            json!({"method": "post", "path": {"regex": "^/a"}, "status": {"equals": 201}, "where": {"args.sku": {"equals": 5}}, "repeat": true}),
        ),
        with(site(json!({})), json!({"barrier": {"at": "provoking_call"}})),
        args("${args.to?} ${result.a[0].b} ${args} ${HOME}"),
        action(json!({"type": "tool", "tool": "send"})),
        action(json!({"type": "tool", "tool": "send", "as": "clerk", "delay": "PT1H"})),
        action(json!({"type": "tool", "tool": "send", "as": null, "delay": null})),
        action(json!({"type": "tool", "tool": "send", "delay": with(exp(), json!({"seed": 1}))})),
        action(
            json!({"type": "tool", "tool": "send", "verify": {"tool": "email_search", "args": {"q": "${args.to}"}, "predicate": {"exists": true}}}),
        ),
        action(json!({"type": "permission", "action": "enable", "role": "*", "tools": "*"})),
        action(
            json!({"type": "permission", "action": "disable", "role": "r", "tools": ["send", "get_time", "*"]}),
        ),
        action(json!({"type": "permission", "action": "disable", "role": "r", "tools": []})),
        action(json!({"type": "nl", "instruction": "Ask ${HOME} about ${args}."})),
        with(when(send()), json!({"barrier": {"at": "provoking_call", "timeout_seconds": 0.5}})),
        with(when(send()), json!({"barrier": {"at": "provoking_call", "timeout_seconds": null}})),
    ] {
        let taken = one(&trigger).unwrap_or_else(|error| panic!("{trigger}: {error}"));
        assert_eq!((taken.entries.len(), taken.warnings.len()), (1, 0), "{trigger}: {:?}", taken.warnings);
    }
}

#[test]
fn what_is_refused_and_where() {
    let tool = |more: Value| action(with(json!({"type": "tool", "tool": "send"}), more));
    let permission = |more: Value| {
        action(with(json!({"type": "permission", "action": "enable", "role": "r", "tools": "*"}), more))
    };
    for (trigger, at) in [
        (json!("b"), "must be an object"),
        (json!(7), "must be an object"),
        (json!({"id": "", "when": send(), "actions": []}), "id: "),
        (json!({"id": 5, "when": send(), "actions": []}), "id: "),
        (json!({"id": "b", "actions": []}), "when: "),
        (when(json!(null)), "when: "),
        (when(json!({})), "when.type: "),
        (when(json!({"type": "zip"})), "when.type: "),
        (when(json!({"type": "action"})), "when.tool: "),
        (when(json!({"type": "action", "tool": 5})), "when.tool: "),
        (when(json!({"type": "action", "tool": "nope"})), "when.tool: names the tool 'nope'"),
        (test("to", json!({})), "when.where.to: "),
        (test("to", json!("x")), "when.where.to: "),
        (test("to", json!(null)), "when.where.to: "),
        (test("to", json!({"gt": 1})), "when.where.to: "),
        (test("to", json!({"regex": "("})), "when.where.to.regex: "),
        (test("to", json!({"regex": 5})), "when.where.to.regex: must be a string"),
        (test("to", json!({"regex": null})), "when.where.to.regex: "),
        (test("to", json!({"regex": "x{2000000}"})), "when.where.to.regex: "),
        (test("to", json!({"regex": "a", "equals": "a"})), "when.where.to: "),
        (test("to", json!({"exists": "x"})), "when.where.to.exists: "),
        (test("args.a..b", json!({"exists": true})), "when.where.args.a..b: "),
        (test("args.", json!({"exists": true})), "when.where.args.: "),
        (test("result.a-b", json!({"exists": true})), "when.where.result.a-b: "),
        (when(with(send(), json!({"where": []}))), "when.where: "),
        (when(with(send(), json!({"where": null}))), "when.where: "),
        (when(with(send(), json!({"repeat": "yes"}))), "when.repeat: "),
        (when(with(send(), json!({"repeat": null}))), "when.repeat: "),
        (when(with(send(), json!({"roles": []}))), "when.roles: "),
        (when(with(send(), json!({"roles": "x"}))), "when.roles: "),
        (when(with(send(), json!({"roles": [5]}))), "when.roles: "),
        (when(with(send(), json!({"unless": {"tool": "send"}}))), "when.unless: "),
        (when(json!({"type": "state"})), "when.check: "),
        (when(json!({"type": "state", "check": 5})), "when.check: "),
        (when(json!({"type": "state", "check": {}})), "when.check: "),
        (when(json!({"type": "state", "check": {"steps": []}})), "when.check.steps: "),
        (when(json!({"type": "state", "check": {"steps": [5]}})), "when.check.steps[0]: "),
        (when(json!({"type": "state", "check": {"tool": "email_search"}})), "when.check.predicate: "),
        (
            when(
                json!({"type": "state", "repeat": true, "check": {"tool": "email_search", "predicate": {"exists": true}}}),
            ),
            "when.repeat: ",
        ),
        (step(json!({"tool": "nope"})), "when.check.steps[0].tool: "),
        (step(json!({"args": []})), "when.check.steps[0].args: "),
        (step(json!({"args": {"a": "${args.x}"}})), "when.check.steps[0].args: ${args.x} reads"),
        (step(json!({"args": {"a": "${"}})), "when.check.steps[0].args: "),
        (step(json!({"bind": 5})), "when.check.steps[0].bind: "),
        (step(json!({"predicate": {}})), "when.check.steps[0].predicate: "),
        (step(json!({"extract": 5})), "when.check.steps[0].extract: "),
        (step(json!({"extract": "a..b"})), "when.check.steps[0].extract: "),
        (step(json!({"extract": {"match": {}}})), "when.check.steps[0].extract: "),
        (step(json!({"extract": {"path": "a", "match": []}})), "when.check.steps[0].extract.match: "),
        (
            step(json!({"extract": {"path": "a", "match": {"x": "y"}}})),
            "when.check.steps[0].extract.match.x: ",
        ),
        (step(json!({"extract": {"path": "a", "take": 5}})), "when.check.steps[0].extract.take: "),
        (time(json!({})), "when: needs at, after or every"),
        (time(json!({"at": "PT1M", "after": "x", "offset": "PT1M"})), "when: takes at or after"),
        (time(json!({"at": "tomorrow"})), "when.at: "),
        (time(json!({"at": "P1M"})), "when.at: "),
        (time(json!({"at": 5})), "when.at: "),
        (time(json!({"at": null})), "when.at: "),
        (time(json!({"at": "PT1M", "offset": "PT1M"})), "when.offset: "),
        (time(json!({"at": "PT1M", "count": 2})), "when.count: "),
        (time(json!({"at": "PT1M", "until": "PT2M"})), "when.until: "),
        (time(json!({"at": "PT1M", "seed": 1})), "when.seed: "),
        (time(json!({"at": "PT1M", "roles": ["x"]})), "when.roles: "),
        (time(json!({"at": "PT1M", "repeat": true})), "when.repeat: "),
        (time(json!({"after": "x"})), "when.offset: "),
        (time(json!({"after": "", "offset": "PT1M"})), "when.after: "),
        (time(json!({"after": "x", "offset": "2026-10-05T09:00:00Z"})), "when.offset: "),
        (time(json!({"every": "PT0S"})), "when.every: "),
        (time(json!({"every": "PT0.0000001S"})), "when.every: "),
        (time(json!({"every": 5})), "when.every: "),
        (time(json!({"every": "PT1M", "count": 0})), "when.count: "),
        (time(json!({"every": "PT1M", "count": 1.0})), "when.count: "),
        (time(json!({"every": "PT1M", "count": null})), "when.count: "),
        (time(json!({"every": "PT1M", "until": 5})), "when.until: "),
        (time(json!({"every": "PT1M", "seed": 1})), "when.seed: "),
        (time(json!({"every": exp()})), "when.seed: "),
        (time(json!({"every": exp(), "seed": 1.5})), "when.seed: "),
        (time(json!({"every": exp(), "seed": true})), "when.seed: "),
        (time(json!({"every": {"dist": "norm", "mean": "PT1H"}, "seed": 1})), "when.every.dist: "),
        (time(json!({"every": {"dist": "exp", "mean": "PT0S"}, "seed": 1})), "when.every.mean: "),
        (time(json!({"every": {"dist": "exp"}, "seed": 1})), "when.every.mean: "),
        (time(json!({"every": "PT1M", "unless": {"tool": "send"}})), "when.unless: "),
        (time(json!({"at": "PT1M", "unless": {}})), "when.unless.tool: "),
        (time(json!({"at": "PT1M", "unless": []})), "when.unless: "),
        (
            time(json!({"at": "PT1M", "unless": {"tool": "send", "where": {"to": {}}}})),
            "when.unless.where.to: ",
        ),
        (site(json!({"app": "nope"})), "when.app: "),
        (site(json!({"app": 5})), "when.app: "),
        (site(json!({"method": ["GET"]})), "when.method: "),
        (site(json!({"path": "/a"})), "when.path: "),
        (site(json!({"status": 200})), "when.status: "),
        (site(json!({"where": {"result.a": {"exists": true}}})), "when.where.result.a: "),
        (json!({"id": "b", "when": send()}), "actions: "),
        (json!({"id": "b", "when": send(), "actions": {}}), "actions: "),
        (action(json!(5)), "actions[0]: "),
        (action(json!({"type": "zip"})), "actions[0].type: "),
        (action(json!({"type": "tool"})), "actions[0].tool: "),
        (tool(json!({"tool": "nope"})), "actions[0].tool: names the tool 'nope'"),
        (tool(json!({"args": null})), "actions[0].args: "),
        (tool(json!({"as": ""})), "actions[0].as: "),
        (tool(json!({"as": "*"})), "actions[0].as: "),
        (tool(json!({"as": "default"})), "actions[0].as: "),
        (tool(json!({"delay": "PT0S"})), "actions[0].delay: "),
        (tool(json!({"delay": 5})), "actions[0].delay: "),
        (tool(json!({"delay": exp()})), "actions[0].delay.seed: "),
        (tool(json!({"verify": null})), "actions[0].verify: "),
        (tool(json!({"verify": {}})), "actions[0].verify: "),
        (permission(json!({"action": "x"})), "actions[0].action: "),
        (permission(json!({"role": ""})), "actions[0].role: "),
        (permission(json!({"tools": "send"})), "actions[0].tools: "),
        (permission(json!({"tools": [5]})), "actions[0].tools: "),
        (permission(json!({"tools": ["nope"]})), "actions[0].tools: names the tool 'nope'"),
        (action(json!({"type": "nl", "instruction": ""})), "actions[0].instruction: "),
        (action(json!({"type": "nl", "instruction": "Mail ${args.to}"})), "actions[0].instruction: "),
        (action(json!({"type": "nl", "instruction": "${ result.x}"})), "actions[0].instruction: "),
        (action(json!({"type": "nl", "instruction": "x", "executor": "nope"})), "actions[0].executor: "),
        (action(json!({"type": "nl", "instruction": "x", "executor": 5})), "actions[0].executor: "),
        (args("${args.to"), "actions[0].args: "),
        (args("${other.to}"), "actions[0].args: "),
        (
            json!({"id": "b", "when": {"type": "time", "at": "PT1M"}, "actions": [{"type": "tool", "tool": "send", "args": {"to": "${args.to}"}}]}),
            "actions[0].args: ",
        ),
        (with(time(json!({"at": "PT1M"})), json!({"barrier": {"at": "provoking_call"}})), "barrier: "),
        (with(when(send()), json!({"barrier": {}})), "barrier.at: "),
        (with(when(send()), json!({"barrier": {"at": "later"}})), "barrier.at: "),
        (with(when(send()), json!({"barrier": {"at": "provoking_call", "extra": 1}})), "barrier.extra: "),
        (
            with(when(send()), json!({"barrier": {"at": "provoking_call", "timeout_seconds": 0}})),
            "barrier.timeout_seconds: ",
        ),
        (
            with(when(send()), json!({"barrier": {"at": "provoking_call", "timeout_seconds": "5"}})),
            "barrier.timeout_seconds: ",
        ),
        (
            with(when(send()), json!({"barrier": {"at": "provoking_call", "timeout_seconds": true}})),
            "barrier.timeout_seconds: ",
        ),
    ] {
        let good = json!({"id": "good", "when": send(), "actions": []});
        let refused =
            read(&json!({"triggers": [good, trigger], "executor": executor()})).map(|_| ()).unwrap_err();
        let label = if trigger["id"].as_str().is_some() {
            format!("triggers[1] '{}': {at}", trigger["id"].as_str().unwrap())
        } else {
            format!("triggers[1]: {at}")
        };
        assert!(refused.starts_with(&label), "{trigger}: {refused}, wanted {label}");
    }
}

#[test]
fn every_fault_is_listed() {
    let bad = json!({"id": "b", "when": {"type": "action", "tool": "nope", "repeat": 1, "where": {"to": {}}},
                     "actions": [{"type": "zip"}, {"type": "tool", "args": 5}], "barrier": {"at": "later"}});
    let worse = json!({"id": "c", "when": {"type": "time"}});
    let refused = read(&json!({"triggers": [bad, worse], "watch_roles": "x"})).map(|_| ()).unwrap_err();
    for fault in [
        "watch_roles: ",
        "triggers[0] 'b': when.tool: ",
        "when.repeat: ",
        "when.where.to: ",
        "actions[0].type: ",
        "actions[1].tool: ",
        "actions[1].args: ",
        "barrier.at: ",
        "triggers[1] 'c': when: needs",
        "actions: must be a list",
    ] {
        assert!(refused.contains(fault), "{fault} is not in {refused}");
    }
    let many: Vec<Value> = (0..1_000).map(|_| json!({})).collect();
    assert!(read(&json!({"triggers": many})).map(|_| ()).unwrap_err().len() < 20_000);
}

#[test]
fn bodies_and_ids() {
    for body in
        [json!([]), json!(5), json!(null), json!({}), json!({"triggers": {}}), json!({"triggers": null})]
    {
        assert!(read(&body).is_err(), "{body}");
    }
    assert!(read(&json!({"triggers": []})).unwrap().entries.is_empty());
    let twice = read(&json!({"triggers": [when(send()), when(send())]})).map(|_| ()).unwrap_err();
    assert!(twice.starts_with("triggers[1] 'b': id: is used twice"), "{twice}");
    let made = read(&json!({"triggers": [{"when": send(), "actions": []}]})).unwrap();
    assert_eq!(made.entries[0].id(), "trg_000000000001");
    for body in [json!({}), json!({"ids": "x"}), json!({"ids": [5]}), json!({"ids": [""]}), json!([])] {
        assert!(remove(&Json::parse(&body.to_string()).unwrap()).is_err(), "{body}");
    }
}

#[test]
fn settings_are_fixed_once() {
    let first = read(&json!({"triggers": [], "watch_roles": ["a", "b"], "executors": {"x": executor()}}))
        .unwrap()
        .settings;
    assert_eq!(
        (first.watched(), first.executor.is_some()),
        (["a".to_owned(), "b".to_owned()].as_slice(), false)
    );
    for (body, taken) in [
        (json!({"triggers": []}), true),
        (json!({"triggers": [], "watch_roles": null, "executor": null, "executors": null}), true),
        (json!({"triggers": [], "watch_roles": ["b", "a"]}), true),
        (json!({"triggers": [], "watch_roles": ["a"]}), false),
        (json!({"triggers": [], "watch_roles": ["a", "b", "c"]}), false),
        (json!({"triggers": [], "executors": {"x": executor()}}), true),
        (
            json!({"triggers": [], "executors": {"x": {"a2a_url": "http://127.0.0.1:8", "role": "world"}}}),
            false,
        ),
        (json!({"triggers": [], "executor": executor()}), true),
        (json!({"triggers": [], "executor": {"a2a_url": "http://127.0.0.1:9", "role": "a"}}), false),
    ] {
        assert_eq!(read_with(&body, &first).is_ok(), taken, "{body}");
    }
    assert_eq!(read(&json!({"triggers": []})).unwrap().settings.watched(), ["default".to_owned()]);
    assert!(read(&json!({"triggers": [], "watch_roles": []})).unwrap().settings.watched().is_empty());
    for roles in [json!("x"), json!([5]), json!([""]), json!({})] {
        assert!(read(&json!({"triggers": [], "watch_roles": roles})).is_err(), "{roles}");
    }
}

#[test]
fn executors() {
    let hours = |hours: Value| {
        with(executor(), json!({"hours": with(json!({"start": "09:00", "end": "17:00"}), hours)}))
    };
    for (executor, taken) in [
        (json!("x"), false),
        (json!({"role": "w"}), false),
        (json!({"a2a_url": "http://h:9"}), false),
        (json!({"a2a_url": "http://h:9", "role": "default"}), false),
        (json!({"a2a_url": "http://h:9", "role": ""}), false),
        (json!({"a2a_url": "https://h/p/", "role": "w"}), true),
        (with(executor(), json!({"timeout_seconds": null})), false),
        (with(executor(), json!({"timeout_seconds": 0.5})), true),
        (with(executor(), json!({"timeout_seconds": 1e300})), true),
        (with(executor(), json!({"timeout_seconds": 0})), false),
        (with(executor(), json!({"timeout_seconds": "5"})), false),
        (with(executor(), json!({"timeout_seconds": [1]})), false),
        (hours(json!({})), true),
        (hours(json!({"utc_offset": "+05:30", "days": ["mon", "mon"]})), true),
        (hours(json!({"time_zone": "Europe/Paris"})), true),
        (hours(json!({"start": "17:00", "end": "09:00"})), true),
        (hours(json!({"utc_offset": "Z"})), false),
        (hours(json!({"utc_offset": "+2:00"})), false),
        (hours(json!({"utc_offset": 2})), false),
        (hours(json!({"time_zone": "X/Y"})), false),
        (hours(json!({"time_zone": "Europe/Paris", "utc_offset": "+01:00"})), false),
        (hours(json!({"end": "09:00"})), false),
        (hours(json!({"end": "24:00"})), false),
        (hours(json!({"start": "9:00"})), false),
        (hours(json!({"start": "+9:00"})), false),
        (hours(json!({"days": []})), false),
        (hours(json!({"days": ["monday"]})), false),
        (hours(json!({"days": "mon"})), false),
        (with(self::executor(), json!({"hours": 5})), false),
    ] {
        let body = json!({"triggers": [], "executor": executor});
        assert_eq!(read(&body).is_ok(), taken, "{body}: {:?}", read(&body).err());
    }
    for url in [
        "ftp://x",
        "file:///etc/passwd",
        "gopher://x",
        "/relative",
        "http://",
        "h:9",
        "http://u:p@h",
        "http://u@h",
        "http://h?x=",
        "http://h#x",
        "http://[::1",
        "http://169.254.169.254",
        "http://[fe80::1]",
        "http://[::ffff:169.254.169.254]",
        "http://2852039166",
        "",
    ] {
        let body = json!({"triggers": [], "executor": {"a2a_url": url, "role": "w"}});
        assert!(read(&body).is_err(), "{url}");
    }
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let trigger = json!({"id": "b", "enabled": true, "when": with(send(), json!({"wher": {}, "roles": ["*", "world"], "where": {"result[0].a": {"exists": true}}})),
        "actions": [{"type": "tool", "tool": "send", "arg": 1, "verify": {"tool": "email_search", "args": {"q": "${x}"}, "predicate": {"exists": true, "not": 1}}}],
        "barrier": {"at": "provoking_call", "timeout_seconds": 1000}});
    let warnings =
        read(&json!({"triggers": [trigger], "executor": executor(), "trigger": 1})).unwrap().warnings;
    for warning in [
        "trigger: ",
        "triggers[0] 'b': enabled: ",
        "when.wher: ",
        "when.roles: names '*'",
        "when.roles: names 'world'",
        "when.where.result[0].a: names an argument",
        "actions[0].arg: ",
        "actions[0].verify.args: ${x} is bound by no earlier step",
        "actions[0].verify.predicate.not: ",
        "barrier.timeout_seconds: ",
    ] {
        assert!(warnings.iter().any(|found| found.contains(warning)), "{warning} is not in {warnings:#?}");
    }
}

#[test]
fn seeds_of_any_size() {
    for (seed, taken) in [
        ("1180591620717411303424", true),
        ("-1180591620717411303424", true),
        ("1e3", false),
        (&"9".repeat(5_000), false),
    ] {
        let body = format!(
            r#"{{"triggers":[{{"when":{{"type":"time","every":{{"dist":"exp","mean":"PT1H"}},"seed":{seed}}},"actions":[]}}]}}"#
        );
        let names = Names { tool: None, website: &|_| true, registered: &|_| None, own_tools: &[] };
        let read = register(&Json::parse(&body).unwrap(), &Settings::default(), &names, String::new);
        assert_eq!(read.is_ok(), taken, "{seed}");
    }
}

#[test]
fn summaries() {
    for (given, shown) in [
        (
            with(send(), json!({"repeat": true, "where": {"a": {"exists": true}}})),
            json!({"type": "action", "tool": "send", "repeat": true}),
        ),
        (
            json!({"type": "time", "every": exp(), "seed": 3, "count": 2}),
            json!({"type": "time", "every": exp(), "seed": 3, "count": 2}),
        ),
        (
            json!({"type": "state", "check": {"tool": "email_search", "predicate": {"exists": true}}}),
            json!({"type": "state"}),
        ),
    ] {
        let read = one(&when(given)).unwrap();
        let Entry::New(spec) = &read.entries[0] else { panic!("new") };
        assert_eq!(serde_json::from_str::<Value>(spec.summary.get()).unwrap(), shown);
    }
}

proptest::proptest! {
    #[test]
    fn reading_never_panics(text in r#"[\[\]{}":,a-z0-9$. -]{0,60}"#, key in "(id|when|actions|barrier|watch_roles|executor)") {
        let garbage = Json::parse(&text).unwrap_or(Json::String(text));
        let trigger = Json::Object(vec![(key.clone(), garbage.clone())]);
        let body = Json::Object(vec![("triggers".to_owned(), Json::Array(vec![trigger, garbage.clone()])), (key, garbage)]);
        let names = Names { tool: None, website: &|_| true, registered: &|_| None, own_tools: &[] };
        let _ = register(&body, &Settings::default(), &names, String::new);
    }
}
