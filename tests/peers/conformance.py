"""MCP's own conformance suite, npm `@modelcontextprotocol/conformance`, against `fixture-everything`.

Every scenario that the suite runs for a revision of the specification counts, scored by it or not. One that fails must be
in `expected-failures/REVISION.yml` with the reason on its line, and one that is there must fail: the file is in the
suite's own format, so it also works as its `--expected-failures`.
"""
import json
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
REVISIONS = ("2025-11-25", "2026-07-28")
SUITE_SECONDS = 300

# What `fixture-everything` lists, in its order.
TOOLS = ["test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource",
         "test_multiple_content_types", "test_error_handling", "test_tool_with_progress", "test_tool_with_logging",
         "test_logging_tool", "test_missing_capability", "test_streaming_elicitation", "json_schema_2020_12_tool"]


def expected_failures(revision):
    """The entries of a revision's file: a scenario, or `scenario:check`."""
    entries = set()
    for number, line in enumerate((HERE / "expected-failures" / f"{revision}.yml").read_text().splitlines(), 1):
        if line.startswith("  - "):
            entry = re.fullmatch(r"  - (\S+) +# \S.*", line)
            if not entry:
                raise RuntimeError(f"expected-failures/{revision}.yml:{number}: no reason given: {line.strip()}")
            entries.add(entry[1])
    return entries


def scenarios(suite, revision):
    """The names of the server scenarios that the suite has for a revision."""
    text = subprocess.run([*suite, "list", "--requirements", revision], check=True, stdout=subprocess.PIPE, text=True).stdout
    scored = text.split("Server scenarios", 1)[1].split("Client scenarios", 1)[0]
    return re.findall(r"^  - (\S+)$", scored, re.M) + re.findall(r"^    - (\S+) \[server\]$", text, re.M)


def run(tally, tools, url, folder):
    suite = [tools["node"], f"{tools['modules']}/@modelcontextprotocol/conformance/dist/index.js"]
    for revision in REVISIONS:
        results = pathlib.Path(folder, f"conformance-{revision}")
        done = subprocess.run([*suite, "server", "--url", url, "--requirements", revision, "--output-dir", results],
                              cwd=folder, capture_output=True, text=True, timeout=SUITE_SECONDS)
        checks = {re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", path.parent.name)[1]: json.loads(path.read_text())
                  for path in results.glob("*/checks.json")}
        expected = expected_failures(revision)
        judge(tally, f"conformance {revision}", scenarios(suite, revision), checks, expected)
        if not checks:
            print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")


def judge(tally, where, names, checks, expected):
    """One line a scenario; the reason for a failure that nobody expects is in it."""
    for name in names:
        if name not in checks:
            tally.add(where, False, f"{name} did not run")
            continue
        failures = {check["id"]: check.get("errorMessage") or "" for check in checks[name] if check["status"] == "FAILURE"}
        unexpected = {} if name in expected else {
            check: why for check, why in failures.items() if f"{name}:{check}" not in expected}
        stale = [entry for entry in expected if entry.partition(":")[0] == name
                 and not (failures if entry == name else entry.partition(":")[2] in failures)]
        if unexpected:
            tally.add(where, False, f"{name}: " + "; ".join(f"{check}: {why[:500]}" for check, why in unexpected.items()))
        elif stale:
            tally.add(where, False, f"{name} holds now: take {', '.join(stale)} out of the expected failures")
        else:
            tally.add(where, True, name + (" (fails, as expected)" if failures else ""))
    for entry in sorted(expected):
        if entry.partition(":")[0] not in names:
            tally.add(where, False, f"expected to fail, but there is no such scenario: {entry}")
