use super::*;

/// The faults of a text, one a line.
fn faults(text: &str) -> Vec<String> {
    let error = InstanceFile::parse(text, Path::new("/srv")).unwrap_err();
    error
        .to_string()
        .lines()
        .map(|line| line.trim_start_matches("instance.toml:").trim().to_owned())
        .collect()
}

#[test]
fn a_whole_file_is_read() {
    let file = InstanceFile::parse(
        r#"
        name = "company"
        host = "0.0.0.0"
        port = 18765
        agent_port = 18766
        control_token_file = "secrets/control"
        mode = "consistent"
        start_timeout = 2.5
        trajectory = "log/trajectory.jsonl"
        store_url = "postgresql://agentenv:s3cret@db/agentenv"

        [[server]]
        name = "email"
        command = ["python3", "email.py", "--fast"]
        folder = "email"
        port = 9001
        seed = ["mails.json", "/data/more.json"]
        environment = { LOG = "debug" }
        image = "email:1"

        [[server]]
        name = "maps"
        url = "http://maps:9000/base"
        store = true

        [[server]]
        name = "wiki"
        env = "wiki"

        [websites]
        mail = "http://127.0.0.1:8080"

        [roles.assistant]
        disable = "*"
        enable = ["email_search"]
        [roles."*"]
        disable = ["send"]

        [compose]
        gateway = "gateway:1"
        "#,
        Path::new("/srv"),
    )
    .unwrap();
    assert_eq!((file.name.as_str(), file.host.as_str()), ("company", "0.0.0.0"));
    assert_eq!((file.port, file.agent_port, file.mode), (Some(18765), Some(18766), Mode::Consistent));
    assert_eq!(file.start_timeout, Duration::from_millis(2500));
    assert_eq!(file.trajectory, Some(PathBuf::from("/srv/log/trajectory.jsonl")));
    assert_eq!(file.control_token_file, Some(PathBuf::from("/srv/secrets/control")));
    assert!(!file.needs_postgres());
    assert!(!format!("{file:?}").contains("s3cret"));

    let [email, maps, wiki] = &file.servers[..] else { panic!("{:?}", file.servers) };
    assert_eq!(email.place, Place::Command(["python3", "email.py", "--fast"].map(str::to_owned).to_vec()));
    assert_eq!((email.line, email.folder.as_path(), email.port), (12, Path::new("/srv/email"), Some(9001)));
    assert_eq!(email.seeds, ["/srv/mails.json", "/data/more.json"].map(PathBuf::from));
    assert_eq!(email.environment["LOG"], "debug");
    assert_eq!(maps.place, Place::Url("http://maps:9000/base".parse().unwrap()));
    assert!(maps.store && !wiki.store);
    assert_eq!(wiki.place, Place::Env("wiki".to_owned()));
    assert_eq!(file.websites[0].name, "mail");

    let rules = file.rules();
    assert!(rules.allows("assistant", "email_search", false));
    assert!(!rules.allows("assistant", "email_delete", false));
    assert!(!rules.allows("manager", "send", false));
    assert!(rules.allows("manager", "email_search", false));
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_its_line() {
    let text = r#"name = ""
prot = 1
port = 70000
mode = "fast"
store_url = "mysql://u:s3cret@h"
[[server]]
name = "email"
command = "python3 email.py"
sed = "x.json"
[[server]]
name = "email"
url = "ftp://x"
[[server]]
name = "a b"
[[server]]
command = []
env = "wiki"
[[server]]
name = "maps"
url = "http://maps"
port = 9
environment = { A = 1 }
[websites]
mail = "mail"
"a/b" = "http://x"
[roles.assistant]
disabled = ["x"]
enable = "send"
"#;
    assert_eq!(
        faults(text),
        [
            "1: name: is empty",
            "2: the file has an unknown key 'prot', perhaps 'port' was meant",
            "3: port: 70000 is not a port from 0 to 65535",
            "4: mode: 'fast' is neither 'performance' nor 'consistent'",
            "5: store_url: must begin with postgresql:// or postgres://",
            "8: command: expected a list of strings, the program and its arguments, found string",
            "9: server 'email' has an unknown key 'sed', perhaps 'seed' was meant",
            "10: the name 'email' is that of the server on line 6 too",
            "12: url: 'ftp://x' is not an http:// URL with a host",
            "13: a [[server]] must have one of 'command', 'url' and 'env', and has none",
            "14: name: 'a b' is empty, or has a character that a name cannot have",
            "15: a [[server]] has no 'name'",
            "15: a [[server]] must have one of 'command', 'url' and 'env', and has more than one",
            "16: command: names no program",
            "21: port: 'port' is for a server with a command",
            "22: A: expected a string, found integer",
            "22: environment: 'environment' is for a server with a command",
            "24: mail: 'mail' is not an http:// URL with a host",
            "25: 'a/b' is empty, or has a character that a name cannot have",
            "27: [roles.assistant] has an unknown key 'disabled', perhaps 'disable' was meant",
            "28: enable: expected a list of tools, or \"*\"",
        ]
    );
}

#[test]
fn what_is_no_toml_is_said_with_the_rest() {
    let said = faults("name = \"x\"\nname = \"y\"\nport = \nmode = \"fast\"\n[[server]]\nname = \"a\"\n");
    let lines: Vec<&str> = said.iter().filter_map(|fault| fault.split(':').next()).collect();
    assert_eq!(lines, ["2", "3", "4", "5"], "{said:?}");
    assert_eq!(said[0], "2: duplicate key 'name'");
}

#[test]
fn an_empty_file_says_what_it_lacks() {
    assert_eq!(faults(""), ["has no 'name'", "has no [[server]]"]);
    assert_eq!(
        faults("name = 1\nserver = 2"),
        ["1: name: expected a string, found integer", "2: server: is written [[server]]"]
    );
}

#[test]
fn ports_and_stores_that_cannot_be() {
    let text = r#"name = "x"
port = 9000
[[server]]
name = "a"
command = ["a"]
port = 9000
[[server]]
name = "b"
command = ["b"]
port = 0
[[server]]
name = "c"
url = "http://c"
store = true
"#;
    assert_eq!(
        faults(text),
        [
            "3: server 'a': port 9000 is port too",
            "11: server 'c' runs already, so its store cannot be started for it: give the file a 'store_url'",
        ]
    );
}

#[test]
fn files_and_environments_that_are_not_there_are_said_at_once() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    fs::write(folder.join("bad.json"), "{\"inbox\": [}").unwrap();
    fs::write(folder.join("good.json"), "{}").unwrap();
    let path = folder.join("instance.toml");
    let text = r#"name = "x"
store_url_file = "nowhere"
[[server]]
name = "a"
command = ["a"]
folder = "missing"
seed = ["good.json", "bad.json", "none.json"]
[[server]]
name = "b"
env = "nobody"
"#;
    fs::write(&path, text).unwrap();
    let error = InstanceFile::load(&path).unwrap_err();
    let said: Vec<(usize, &str)> =
        error.faults.iter().map(|fault| (fault.line, fault.message.as_str())).collect();
    let here = folder.display();
    let expected = [
        (2, format!("store_url_file: {here}/nowhere cannot be read: No such file or directory (os error 2)")),
        (3, format!("server 'a': {here}/missing is no folder")),
        (3, format!("server 'a': seed {here}/bad.json is not JSON: expected value at line 1 column 12")),
        (
            3,
            format!(
                "server 'a': seed {here}/none.json cannot be read: No such file or directory (os error 2)"
            ),
        ),
        (8, "server 'b': no environment 'nobody' with a Default is linked into this program".to_owned()),
    ];
    assert_eq!(said, expected.iter().map(|(line, text)| (*line, text.as_str())).collect::<Vec<_>>());
    assert!(error.to_string().starts_with(&format!("{}:2: ", path.display())));

    let nothing = InstanceFile::load(&folder.join("nothing.toml")).unwrap_err();
    assert!(nothing.to_string().contains("nothing.toml: cannot be read"), "{nothing}");
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "([a-z_]{1,8}|\\[\\[server\\]\\]|=|\"[a-z:/*]{0,6}\"|\\[|\\]|\\{|\\}|,|[0-9]{1,3}|\n|é|'){0,60}") {
        let _ = InstanceFile::parse(&text, Path::new("/srv"));
    }
}
