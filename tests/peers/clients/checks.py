"""How the Python peers report, and what each MCP client among them asks of a target.

A peer prints `ok NAME` or `FAIL NAME: WHY` a check and `end COUNT` last, so that one that stops halfway is noticed.
"""
import asyncio
import base64
import contextlib
import json
import os
import sys
import traceback
import urllib.request

SEND_SCHEMA = {"type": "object", "required": ["to", "subject", "body"],
               "properties": {"to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"}}}
SEED = {"inbox": [{"from": "dana@example.com", "subject": "Lunch on Friday", "body": "At noon?"}], "sent": []}
CODED = {"code": "no_such_mailbox", "message": "mailbox x is gone", "retryable": False, "applied": "no", "hint": "try y"}


def target():
    """What run.py says about the server or gateway to talk to."""
    return json.loads(sys.argv[1])


class Checks:
    """Counts checks and prints one line each."""

    def __init__(self, prefix=""):
        self.prefix, self.count = prefix, 0

    @contextlib.contextmanager
    def __call__(self, name):
        self.count += 1
        try:
            yield
        except Exception as error:  # a failed check must not stop the others
            why = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            print(f"FAIL {self.prefix}{name}: {' '.join(why.split())[:600]}", flush=True)
            if os.environ.get("PEERS_VERBOSE"):
                traceback.print_exc()
        else:
            print(f"ok {self.prefix}{name}", flush=True)

    def end(self):
        print(f"end {self.count}")


def equal(got, want):
    assert got == want, f"wanted {want!r}, got {got!r}"


def request(method, url, body=None):
    """One plain HTTP request with JSON both ways."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(call, timeout=30) as response:
        return json.loads(response.read())


def data_plane(to, method, params=None):
    """One data-plane call straight to the email server, past the peer under test."""
    answer = request("POST", f"{to['email']}/agentenv",
                     {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})
    assert "result" in answer, f"{method}: {answer}"
    return answer["result"]


def fresh(to):
    """Puts the email server back to what every peer starts from."""
    if to["kind"] != "everything":
        data_plane(to, "data/reset")
        data_plane(to, "data/add", {"parts": [{"kind": "data", "data": SEED}]})


def mailbox(to):
    """What the email server holds."""
    return data_plane(to, "data/get")["parts"][0]["data"]


async def usual(check, to, session, *, has_session):
    """The checks that every MCP client makes. `session` has `tools()` and `call(name, arguments)`, both giving wire JSON."""
    fresh(to)
    tools = {}
    listed = []
    with check("lists the tools"):
        listed = await session.tools()
        tools.update((tool["name"], tool) for tool in listed)
        equal(sorted(tool["name"] for tool in listed), sorted(to["tools"]))
    with check("lists them in the same order again"):
        equal(await session.tools(), listed)
    if to["kind"] == "everything":
        await content(check, session)
        return
    with check("input schema"):
        equal(tools["send"]["inputSchema"], SEND_SCHEMA)
    with check("annotations"):
        equal(tools["email_search"]["annotations"]["readOnlyHint"], True)
    with check("calls a tool"):
        result = await session.call("send", {"to": "sam@example.com", "subject": "Numbers", "body": "Attached."})
        equal(result.get("structuredContent"), {"sent": 1})
        equal(json.loads(result["content"][0]["text"]), {"sent": 1})
        assert not result.get("isError"), result
    with check("reads what was seeded"):
        result = await session.call("email_search", {"query": "LUNCH"})
        equal([mail["subject"] for mail in result["structuredContent"]["emails"]], ["Lunch on Friday"])
    with check("text that looks like JSON stays text"):
        await session.call("send", {"to": "sam@example.com", "subject": "{}", "body": "[1, 2]"})
        equal(mailbox(to)["sent"][-1], {"to": "sam@example.com", "subject": "{}", "body": "[1, 2]"})
    with check("coded error"):
        result = await session.call("fail", {"how": "coded"})
        equal((result.get("isError"), result["content"][0]["text"]), (True, "no_such_mailbox: mailbox x is gone"))
        equal(result["structuredContent"], CODED)
    with check("plain error"):
        result = await session.call("fail", {"how": "otherwise"})
        assert result.get("isError") and "boom" in result["content"][0]["text"], result
    with check("missing argument is a tool error that names it"):
        result = await session.call("email_search", {})
        assert result.get("isError") and "query" in result["content"][0]["text"], result
    with check("unknown tool is a tool error"):
        result = await session.call("no_such_tool", {})
        equal((result.get("isError"), result["content"][0]["text"]), (True, "Unknown tool: no_such_tool"))
    with check("role and session reach the tool"):
        who = (await session.call("whoami", {}))["structuredContent"]
        equal((who["role"], bool(who["session"])), ("assistant", has_session))
    with check("twenty calls at once"):
        results = await asyncio.gather(*(session.call("email_search", {"query": str(n)}) for n in range(20)))
        equal([bool(result.get("isError")) for result in results], [False] * 20)


async def content(check, session):
    """The other shapes a result may have."""
    with check("text"):
        result = await session.call("test_simple_text", {})
        equal(result["content"][0]["text"], "This is a simple text response for testing.")
    with check("image"):
        block = (await session.call("test_image_content", {}))["content"][0]
        equal((block["type"], block["mimeType"]), ("image", "image/png"))
        assert base64.b64decode(block["data"], validate=True).startswith(b"\x89PNG"), block
    with check("embedded resource"):
        block = (await session.call("test_embedded_resource", {}))["content"][0]
        equal((block["type"], block["resource"]["uri"]), ("resource", "test://embedded-resource"))
    with check("error"):
        result = await session.call("test_error_handling", {})
        assert result.get("isError") and "intentionally" in result["content"][0]["text"], result
    with check("progress"):
        seen = []
        result = await session.call("test_tool_with_progress", {}, progress=lambda done, total: seen.append((done, total)))
        assert not result.get("isError"), result
        equal(seen, [(0, 100), (50, 100), (100, 100)])
