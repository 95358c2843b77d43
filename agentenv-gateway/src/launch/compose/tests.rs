use super::*;

fn file(text: &str) -> InstanceFile {
    InstanceFile::parse(text, Path::new("/srv")).unwrap()
}

const COMPANY: &str = r#"
    name = "Company $1"
    port = 8080
    mode = "consistent"
    trajectory = "trajectory.jsonl"
    control_token_file = "/srv/secrets/control"

    [[server]]
    name = "email"
    command = ["email"]
    image = "email:1.10"
    environment = { GREETING = "no $HOME" }

    [[server]]
    name = "wiki"
    env = "wiki"
    store = true

    [[server]]
    name = "maps"
    url = "http://maps.example:9000/base/"

    [websites]
    mail = "http://mail:80"

    [roles.assistant]
    disable = ["send"]

    [compose]
    program = "company:1"
"#;

#[test]
fn an_instance_with_a_store_becomes_its_topology() {
    let rendered = render(&file(COMPANY), "s3cret").unwrap();
    insta::assert_snapshot!(rendered.compose);
    assert!(!rendered.compose.contains("s3cret"), "secrets have files of their own");
    assert!(!format!("{rendered:?}").contains("s3cret"));
    let files: Vec<(&str, &str)> =
        rendered.files.iter().map(|(path, file)| (path.as_str(), file.text.trim())).collect();
    let store = "postgresql://agentenv:s3cret@servicedb:5432/agentenv";
    assert_eq!(
        files,
        [
            ("schemas.sql", "CREATE SCHEMA IF NOT EXISTS \"wiki\";"),
            ("secrets/db-mcp.env", format!("DATABASE_URL={store}").as_str()),
            ("secrets/gateway.env", format!("SERVICE_DB_URL={store}").as_str()),
            ("secrets/pgweb.env", format!("PGWEB_DATABASE_URL={store}?sslmode=disable").as_str()),
            ("secrets/postgres_password", "s3cret"),
            (
                "secrets/wiki.env",
                format!("DATABASE_URL={store}?options=-c%20search_path%3D%22wiki%22,public").as_str()
            ),
        ]
    );
}

#[test]
fn an_instance_without_a_store_has_none_of_its_services() {
    let text = "name = \"x\"\n[[server]]\nname = \"email\"\ncommand = [\"email\"]\nimage = \"email\"";
    let rendered = render(&file(text), "s3cret").unwrap();
    assert!(rendered.files.is_empty());
    for service in [POSTGRES, PGWEB, DATABASE, "secrets", "volumes"] {
        assert!(!rendered.compose.contains(service), "{}", rendered.compose);
    }
}

#[test]
fn a_store_elsewhere_is_used_and_not_started() {
    let text = "name = \"x\"\nstore_url = \"postgresql://u:s3cret@db.example/d\"\n[[server]]\nname = \"email\"\n\
                command = [\"email\"]\nimage = \"email\"\nstore = true";
    let rendered = render(&file(text), "other").unwrap();
    assert!(!rendered.compose.contains(POSTGRES) && rendered.compose.contains(PGWEB));
    assert_eq!(
        rendered.files["secrets/gateway.env"].text,
        "SERVICE_DB_URL=postgresql://u:s3cret@db.example/d\n"
    );
}

#[test]
fn what_containers_cannot_run_is_said_at_once() {
    let text = r#"name = "x"
[[server]]
name = "email"
command = ["email"]
[[server]]
name = "wiki"
env = "wiki"
[[server]]
name = "gateway"
command = ["x"]
image = "x"
[[server]]
name = "märz"
command = ["x"]
image = "x"
[[server]]
name = "maps"
url = "http://127.0.0.1:9000"
"#;
    let faults = render(&file(text), "").unwrap_err();
    assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [2, 5, 8, 12, 16], "{faults:?}");
}

#[test]
fn secrets_are_for_their_owner_alone_and_stay_as_they_are() {
    use std::os::unix::fs::PermissionsExt;

    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("made");
    let company = file(COMPANY);
    let drawn = password(&folder).unwrap();
    assert!(drawn.len() >= 32 && drawn != password(&folder).unwrap());
    render(&company, &drawn).unwrap().write(&folder).unwrap();
    assert_eq!(password(&folder).unwrap(), drawn);
    let secret = folder.join(PASSWORD_FILE);
    assert_eq!(fs::read_to_string(&secret).unwrap(), drawn);
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(folder.join("secrets")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(folder.join("compose.yaml").exists() && folder.join("schemas.sql").exists());
    fs::write(&secret, "\n").unwrap();
    assert_ne!(password(&folder).unwrap(), "");
}

#[test]
fn a_password_may_be_anything_that_stands_in_a_file() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("made");
    fs::create_dir_all(folder.join("secrets")).unwrap();
    fs::write(folder.join(PASSWORD_FILE), "p@ss/w\u{f6}rd$ #\n").unwrap();
    let kept = password(&folder).unwrap();
    assert_eq!(kept, "p@ss/w\u{f6}rd$ #");
    let rendered = render(&file(COMPANY), &kept).unwrap();
    assert_eq!(rendered.files[PASSWORD_FILE].text, kept);
    rendered.write(&folder).unwrap();
    assert_eq!(fs::read_to_string(folder.join(PASSWORD_FILE)).unwrap(), "p@ss/w\u{f6}rd$ #\n", "untouched");
    let addresses: Vec<_> = rendered.files.iter().filter(|(name, _)| name.ends_with(".env")).collect();
    assert!(!addresses.is_empty());
    for (name, RenderedFile { text, .. }) in addresses {
        assert!(text.contains(":p%40ss%2Fw%C3%B6rd%24%20%23@servicedb:"), "{name}: {text}");
    }
}

#[test]
fn words_that_yaml_would_take_for_something_else_are_quoted() {
    let value = json!({"no": "yes", "1": [null, true, {}, []], "plain-key": {"x": {"a\nb": 1.5}}});
    assert_eq!(
        yaml(&value),
        "\"no\": \"yes\"\n\"1\":\n  -\n  - true\n  - {}\n  - []\nplain-key:\n  \"x\":\n    \"a\\nb\": 1.5\n"
    );
}
