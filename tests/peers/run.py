#!/usr/bin/env python3
"""Runs clients that nobody here wrote against our servers and our gateway, and MCP's own conformance suite against
`fixture-everything`.

Build first: `cargo build --workspace --bins`. Each check is one line, and the last line is `N passed, N failed`.

    run.py                       everything, against target/debug
    run.py --profile release
    run.py --only mcp1           the peers whose name contains this
    run.py --gateway CMD         another command in place of one of ours
"""
import argparse
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import conformance

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
READY_SECONDS, PEER_SECONDS = 60, 240

EMAIL = ["email_search", "send", "whoami", "fail", "deliver"]
CONTACTS = ["contacts_lookup", "contacts_add", "slow"]
HIDDEN = {"deliver"}

# Each peer: its name, which runtime it needs, its script, and the targets it talks to.
PEERS = [
    ("mcp1", "framework", "mcp1.py", ["server", "gateway", "everything", "everything-through-gateway"]),
    ("mcp2", "mcp2", "mcp2.py", ["server", "gateway", "everything", "everything-through-gateway"]),
    ("agentenv", "framework", "agentenv.py", ["server", "gateway"]),
    ("sdk", "node", "sdk.cjs", ["server", "gateway", "everything", "everything-through-gateway"]),
    ("client", "node", "client.cjs", ["server", "gateway", "everything", "everything-through-gateway"]),
    ("inspector", "node", "inspector.cjs", ["server", "gateway", "everything"]),
    ("harness", "framework", "harness.py", ["gateway"]),
    ("page", "node", "page.cjs", ["store"]),
    ("compose", "compose", "compose.py", ["files"]),
]


class World:
    """The servers and gateways under test, each a process on a free port of its own."""

    def __init__(self, folder, args):
        self.folder, self.args, self.processes = folder, args, []
        self.url = {name: f"http://127.0.0.1:{free_port()}" for name in (
            "email", "contacts", "everything", "office", "solo", "studio")}

    def up(self):
        args = self.args
        for name in ("email", "contacts", "everything"):
            self.start(name, getattr(args, name), ENVIRONMENT_NAME=name)
        # One in front of two servers, one in front of one, and one in front of the server with every shape of answer.
        self.gateway(args, "office", "email", "contacts")
        self.gateway(args, "solo", "email")
        self.gateway(args, "studio", "everything")
        for name in self.url:
            self.wait(name)

    def gateway(self, args, name, *children):
        self.start(name, args.gateway, MCP_SERVER_NAME=name,
                   INTERNAL_MCP_SERVERS=",".join(f"{child}={self.url[child]}/mcp" for child in children),
                   REST_PROXY_URLS=",".join(f"mcp-{child}={self.url[child]}" for child in children),
                   GATEWAY_TRAJECTORY_FILE=f"{self.folder}/{name}.jsonl", GATEWAY_CLOCK_URL=f"{self.url[name]}/clock/time")

    def store(self):
        """An instance with a state store: the wiki, whose pages are in a Postgres that goes with it."""
        if "library" not in self.url:
            port = free_port()
            file = pathlib.Path(self.folder, "library.toml")
            command = ", ".join(json.dumps(word) for word in shlex.split(self.args.wiki))
            file.write_text(f'name = "library"\nport = {port}\n'
                            f'[[server]]\nname = "wiki"\nstore = true\ncommand = [{command}]\n')
            self.url["library"] = f"http://127.0.0.1:{port}"
            self.start("library", f"{self.args.gateway} up --json {shlex.quote(str(file))}")
            self.wait("library")
        for _ in range(100):  # it may answer before it has said where its store is
            for line in pathlib.Path(f"{self.folder}/library.log").read_text().splitlines():
                if line.startswith("{") and '"store_url"' in line:
                    return json.loads(line)["store_url"]
            time.sleep(0.05)
        raise RuntimeError(f"library did not say where its store is:\n{self.log('library')}")

    def start(self, name, command, **variables):
        host, port = self.url[name].removeprefix("http://").split(":")
        with open(f"{self.folder}/{name}.log", "w") as log:
            self.processes.append((name, subprocess.Popen(
                shlex.split(command), env={**os.environ, "MCP_HOST": host, "MCP_PORT": port, **variables},
                stdout=log, stderr=log, start_new_session=True)))

    def wait(self, name):
        # A gateway has the catalog on /state; a server need only answer.
        path = "/state" if name in ("office", "solo", "studio", "library") else "/mcp"
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            for other, process in self.processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{other} exited with {process.returncode}:\n{self.log(other)}")
            try:
                urllib.request.urlopen(self.url[name] + path, timeout=5).close()
                return
            except urllib.error.HTTPError as error:
                if path == "/mcp" and error.code < 500:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"{name} not up after {READY_SECONDS} s:\n{self.log(name)}")

    def log(self, name):
        return pathlib.Path(f"{self.folder}/{name}.log").read_text(errors="replace")[-3000:]

    def target(self, kind):
        """What a peer is told about the thing that it talks to."""
        if kind == "store":
            store = self.store()
            return {"kind": kind, "store": store, "url": self.url["library"], "mcp": f"{self.url['library']}/mcp"}
        if kind == "files":
            return {"kind": kind, "gateway": shlex.split(self.args.gateway), "company": shlex.split(self.args.company)}
        name = {"server": "email", "gateway": "office", "everything": "everything",
                "everything-through-gateway": "studio"}[kind]
        tools = {"email": EMAIL, "office": [tool for tool in EMAIL + CONTACTS if tool not in HIDDEN]}
        return {"kind": kind.removesuffix("-through-gateway"), "name": name, "url": self.url[name],
                "mcp": f"{self.url[name]}/mcp", "email": self.url["email"], "solo": self.url["solo"],
                "children": ["email", "contacts"], "tools": tools.get(name, conformance.TOOLS)}

    def stop(self):
        for _, process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for _, process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Tally:
    """Prints each check and counts."""

    def __init__(self):
        self.passed = self.failed = 0

    def add(self, where, good, text):
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        print(f"{'ok  ' if good else 'FAIL'} {where}: {text}", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def runtimes():
    """Installs what is missing, and tells where everything is."""
    lines = subprocess.run([HERE / "setup.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def run_peer(tally, tools, name, runtime, script, kind, world, folder):
    """One peer on one target: what it prints is counted, and what it should have printed and did not is a failure."""
    where = f"{name}, {kind}"
    try:
        command = [tools[runtime], HERE / "clients" / script, json.dumps(world.target(kind))]
    except RuntimeError as error:
        tally.add(where, False, str(error))
        return
    variables = {**os.environ, "NODE_PATH": tools["modules"], "XDG_STATE_HOME": f"{folder}/state", "HOME": folder,
                 "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=PEER_SECONDS)
    except subprocess.TimeoutExpired as late:
        tally.add(where, False, f"did not end within {PEER_SECONDS} s")
        print(late.stdout.decode() if late.stdout else "", late.stderr.decode() if late.stderr else "", sep="\n")
        return
    seen, ended = 0, None
    for line in done.stdout.splitlines():
        if line.startswith(("ok ", "FAIL ")):
            seen += 1
            tally.add(where, line.startswith("ok "), line.split(" ", 1)[1])
        elif line.startswith("end "):
            ended = int(line.split()[1])
    if done.returncode != 0 or ended != seen or not seen:
        tally.add(where, False, f"exit status {done.returncode} after {seen} checks\n{done.stderr.strip()[-3000:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="debug", help="which of cargo's folders holds our binaries")
    parser.add_argument("--only", default="", help="only the peers whose name contains this")
    for name in ("email", "contacts", "everything", "wiki", "company", "gateway"):
        parser.add_argument(f"--{name}", metavar="CMD", help="a command in place of ours")
    args = parser.parse_args()
    built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / args.profile
    for name, binary in (("email", "fixture-email"), ("contacts", "fixture-contacts"),
                         ("everything", "fixture-everything"), ("wiki", "wiki"), ("company", "company"),
                         ("gateway", "agentenv-gateway")):
        if not getattr(args, name):
            setattr(args, name, shlex.quote(str(built / binary)))
            if not (built / binary).exists():
                sys.exit(f"{built / binary} is not there: `cargo build --workspace --bins` first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    tools, tally = runtimes(), Tally()
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        world = World(folder, args)
        try:
            world.up()
            for name, runtime, script, kinds in PEERS:
                for kind in kinds:
                    if args.only in name:
                        run_peer(tally, tools, name, runtime, script, kind, world, folder)
            if args.only in "conformance":
                conformance.run(tally, tools, world.url["everything"] + "/mcp", folder)
        except RuntimeError as error:
            tally.add("set-up", False, str(error))
        finally:
            world.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(1 if tally.failed or not tally.passed else 0)


if __name__ == "__main__":
    main()
