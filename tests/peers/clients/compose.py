"""What `render compose` writes, against the Compose specification's own JSON schema as PyPI `check-jsonschema` brings it, and
against what the schema cannot say: that whatever is named is defined, and that no secret's value stands in the file."""
import json
import pathlib
import re
import stat
import subprocess
import sys
import urllib.parse

from checks import Checks, equal, target
from ruamel.yaml import YAML

TOKEN, PASSWORD = "c0ntrol-t0ken", "st0re-pa$word#1"
GREETING = "no $HOME, no ${PATH}: yes\n# 'two' \"lines\"\t🙂"

# Each instance: whether `company` renders it, into which environments are linked, and its file.
INSTANCES = {
    "everything": (False, f"""
        name = "Office $1 'and' \\"more\\""
        host = "0.0.0.0"
        port = 8080
        agent_port = 18765
        mode = "consistent"
        start_timeout = 30.5
        trajectory = "log$s/calls.jsonl"
        control_token_file = "token$file"
        [[server]]
        name = "email"
        command = ["email"]
        image = "registry.example:5000/team/email:1.10@sha256:{"0" * 64}"
        environment = {{ GREETING = {json.dumps(GREETING, ensure_ascii=False)}, EMPTY = "", NUMBER = "1.10", yes = "no" }}
        [[server]]
        name = "no"
        command = ["no"]
        image = "no"
        store = true
        [[server]]
        name = "database"
        command = ["database"]
        image = "database:1"
        store = true
        [[server]]
        name = "maps"
        url = "http://maps.example:9000/base/"
        [websites]
        mail = "http://mail:80"
        [roles."*"]
        disable = ["email_send"]
        [roles.assistant]
        disable = "*"
        enable = ["email_search"]
        [compose]
        gateway = "gateway:2"
        postgres = "postgres:17"
        pgweb = "pgweb:1"
    """),
    "linked": (True, """
        name = "company"
        [[server]]
        name = "calendar"
        env = "calendar"
        [[server]]
        name = "wiki"
        env = "wiki"
        store = true
        [compose]
        program = "company:1"
    """),
    "a store elsewhere": (False, """
        name = "away"
        store_url_file = "store"
        [[server]]
        name = "wiki"
        command = ["wiki"]
        image = "wiki"
        store = true
    """),
    "small": (False, """
        name = "small"
        [[server]]
        name = "email"
        command = ["email"]
        image = "email"
    """),
}


def read(text, version):
    """A YAML text as one version of YAML has it. A key that comes twice is refused."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = version
    return yaml.load(text)


def judge(file):
    """What the schema says about a file: nothing when it fits."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "--color", "never", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr or f"exit status {done.returncode}"


def strings(value):
    """Every text in a value, keys too."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from strings(member)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def loose_ends(compose, folder):
    """Every reference to something that is not defined, and every definition that nothing refers to."""
    services, found, used = compose["services"], [], {"networks": set(), "secrets": set(), "volumes": set()}
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            if other not in services:
                found.append(f"{name} waits for {other}, which is no service")
            elif how["condition"] == "service_healthy" and "healthcheck" not in services[other]:
                found.append(f"{name} waits until {other} is healthy, which has no health check")
        sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
        files = [source for source in sources if source.startswith((".", "/"))] + service.get("env_file", [])
        found += [f"{name} names the file {file}, which is not there" for file in files if not (folder / file).exists()]
        used["volumes"].update(source for source in sources if not source.startswith((".", "/")))
        for kind in ("networks", "secrets"):
            used[kind].update(service.get(kind, []))
        found += [f"{name} reads the secret {path[13:]}, which it is not given" for path in strings(service.get("environment", {}))
                  if path.startswith("/run/secrets/") and path[13:] not in service.get("secrets", [])]
    for kind, names in used.items():
        found += [f"{kind}: {name} is used or defined, not both" for name in names ^ set(compose.get(kind) or {})]
    for name, secret in compose.get("secrets", {}).items():
        if not (folder / secret["file"].replace("$$", "$")).exists():
            found.append(f"the secret {name} has no file {secret['file']}")
    return found


def ports(compose):
    """What is published on the host, and of each service what its container listens on."""
    pairs = {name: [port.rsplit(":", 2)[1:] for port in service.get("ports", [])]
             for name, service in compose["services"].items()}
    return [host for of in pairs.values() for host, _ in of], {name: [inner for _, inner in of] for name, of in pairs.items()}


def env_files(compose, folder):
    """The variables that each service gets from files."""
    return {name: dict(line.split("=", 1) for path in service["env_file"] for line in (folder / path).read_text().splitlines())
            for name, service in compose["services"].items() if "env_file" in service}


def instance(to, base, name, linked, text):
    check, folder, out = Checks(f"{name}: "), base / name, base / name / "out"
    folder.mkdir()
    (folder / "token$file").write_text(TOKEN)
    (folder / "store").write_text(f"postgresql://keeper:{PASSWORD.replace('#', '%23')}@db.example:5433/shared?application_name=x")
    program = to["company" if linked else "gateway"]
    # Twice, the second time with another server that uses the store: what is there already must agree with it.
    for version in (text.replace("store = true", "store = false", 1), text):
        (folder / "instance.toml").write_text(version)
        command = [*program, "render", "compose", folder / "instance.toml", "--out", out]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    with check("renders"):
        assert done.returncode == 0, done.stderr
    file = out / "compose.yaml"
    if done.returncode != 0:
        return check.count
    written = file.read_text()
    compose = read(written, (1, 2))
    services = compose["services"]
    servers = [server for server in re.findall(r'\[\[server\]\]\s*name = "(\w+)"', text) if server != "maps"]
    with check("fits the specification's schema"):
        equal(judge(file), "")
    with check("reads the same as YAML 1.1 and 1.2"):
        equal(read(written, (1, 1)), compose)
    with check("whatever it names is defined, and the other way round"):
        equal(loose_ends(compose, out), [])
    with check("every server has a health check"):
        asked = [name for name, service in services.items() if service.get("healthcheck", {}).get("test")]
        equal(sorted({*servers, "gateway"} - set(asked)), [])
        times = [health[key] for health in (services[name]["healthcheck"] for name in asked) for key in ("interval", "timeout")]
        equal([time for time in times if not re.fullmatch(r"(\d+(us|ms|s|m|h))+", time)], [])
    with check("no secret's value stands in it, and none may be read by others"):
        secrets = {TOKEN, PASSWORD, urllib.parse.quote(PASSWORD, safe="$"), urllib.parse.quote(PASSWORD)}
        for path in (path for path in out.rglob("*") if path.is_file() and path.parent.name == "secrets"):
            equal(stat.S_IMODE(path.stat().st_mode), 0o600)
            secrets |= {path.read_text().strip(), path.read_text().strip().partition("=")[2]} - {""}
        shown = [path.name for path in (file, out / "schemas.sql") if path.exists()
                 for secret in secrets if secret in path.read_text()]
        equal(shown, [])
    with check("Compose puts no variables in"):
        equal([value for value in strings(compose) if "$" in value.replace("$$", "")], [])
        # It would in these too, and take quotes and comments out.
        texts = [value for of in env_files(compose, out).values() for value in of.values()]
        equal([text for text in texts if re.search(r"[$#'\"\\\s]", text)], [])
    with check("no port is taken twice"):
        published, inner = ports(compose)
        equal([sorted(of) for of in (published, *inner.values())], [sorted(set(of)) for of in (published, *inner.values())])
    with check("each server has its own address of the store"):
        for service, of in env_files(compose, out).items():
            address = urllib.parse.urlsplit(next(iter(of.values())))
            equal(urllib.parse.unquote(address.password), PASSWORD if name == "a store elsewhere" else
                  (out / "secrets/postgres_password").read_text())
            equal(f'search_path="{service}",public' in urllib.parse.unquote(address.query), service in servers)
    if name == "everything":
        with check("servers get their variables as they are written"):
            given = services["email"]["environment"]
            wanted = {"GREETING": GREETING.replace("$", "$$"), "EMPTY": "", "NUMBER": "1.10", "yes": "no"}
            equal({key: given.get(key) for key in wanted}, wanted)
        with check("a file that is wrong is refused"):
            broken = out / "broken.yaml"
            for right, wrong in (("healthcheck:", "healthchek:"), ("service_healthy", "service_healty"),
                                 ("retries: 90", "retries: [90]")):
                broken.write_text(written.replace(right, wrong, 1))
                assert right in written and judge(broken), f"{wrong} was taken"
            compose["services"]["gateway"]["depends_on"]["nobody"] = {"condition": "service_started"}
            del compose["networks"], services["email"]["healthcheck"]
            equal(len(loose_ends(compose, out)), 3)
    return check.count


def refusals(to, base):
    """What no Compose file can be made of is said."""
    check = Checks()
    for name, (port, agent_port), said in (("agent_port", ("", 18765), "port and agent_port are both 18765"),
                                           ("pgweb", (8080, 8081), "agent_port and pgweb are both 8081")):
        with check(f"two services at one port of the host are refused, {name}"):
            lines = [f"{key} = {value}" for key, value in (("port", port), ("agent_port", agent_port)) if value]
            file = base / f"{name}.toml"
            file.write_text("\n".join([*lines, INSTANCES["linked"][1]]))
            done = subprocess.run([*to["company"], "render", "compose", file, "--out", base / name], capture_output=True, text=True)
            assert done.returncode == 2 and said in done.stderr, done
    return check.count


def main():
    to, base = target(), pathlib.Path("rendered")
    base.mkdir()
    count = sum(instance(to, base, name, linked, text) for name, (linked, text) in INSTANCES.items())
    print(f"end {count + refusals(to, base)}")


main()
