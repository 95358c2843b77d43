"""PyPI `agentenv-framework-protocol`: its own client and ToolSession, as the harness uses them."""
import asyncio
import json
import pathlib
import tempfile

from agentenv_protocol import DataPart, FilePart, client
from agentenv_protocol.types import FileWithUri
from agentenv_protocol.tool_client import ToolSession
from checks import SEED, Checks, equal, fresh, target

MAILBOX, STATS = "urn:example:mailbox/v1", "urn:example:stats/v1"


async def main():
    to, check = target(), Checks()
    fresh(to)
    card = await client.get_card(to["url"])
    email, base = (card, to["url"]) if to["kind"] == "server" else (client.find_child(card, "email"), to["url"])
    data = to["url"] + email["url"].removesuffix("/agentenv")
    with check("card"):
        equal((card["name"], client.mcp_path(card)), (to["name"], "/mcp"))
        equal(sorted(tool["name"] for tool in email["capabilities"]["tools"]),
              ["deliver", "email_search", "fail", "send", "whoami"])
        equal(email["capabilities"]["operations"], ["data/reset", "data/add", "data/get"])
        assert client.find_tool(email, "send") and client.find_extension(email, MAILBOX), email
    with check("reset, add, get"):
        await client.reset_data(data)
        equal((await client.get_data(data)).parts[0].data, {"inbox": [], "sent": []})
        await client.add_data(data, [DataPart(data=SEED)])
        equal((await client.get_data(data)).parts[0].data, SEED)
    with check("add from a file"), tempfile.TemporaryDirectory() as folder:
        seed = pathlib.Path(folder, "seed.json")
        seed.write_text(json.dumps(SEED))
        await client.reset_data(data)
        await client.add_data(data, [FilePart(file=FileWithUri(uri=f"file://{seed}"))])
        equal((await client.get_data(data)).parts[0].data, SEED)
    with check("extension over POST"):
        equal(await client.invoke_extension(base, email, MAILBOX, {"limit": 5}), {"limit": 5, "mode": "hard"})
    with check("extension over GET"):
        equal(await client.invoke_extension(base, email, STATS, method="stats"), {"inbox": 1, "sent": 0})
    with check("extension refuses unfit parameters"):
        try:
            await client.invoke_extension(base, email, MAILBOX, {"limit": "many"})
        except client.ExtensionCallError as error:
            equal((error.response.status_code, error.code, error.applied), (400, "invalid_params", "no"))
            assert "limit" in error.detail, error.detail
        else:
            raise AssertionError("accepted")
    async with ToolSession(mcp_url=to["mcp"], role="assistant") as session:
        with check("session: opens"):
            assert session.session_id and session.protocol_version, vars(session)
        with check("session: lists the tools"):
            equal(sorted(tool.name for tool in await session.list_tools()), sorted(to["tools"]))
        with check("session: calls a tool"):
            result = await session.call_tool("send", {"to": "a@example.com", "subject": "Hi", "body": "[1, 2]"})
            equal((json.loads(result.text), result.isError), ({"sent": 1}, False))
            equal((await client.get_data(data)).parts[0].data["sent"][0]["body"], "[1, 2]")
        with check("session: coded error"):
            result = await session.call_tool("fail", {"how": "coded"})
            equal((result.text, result.isError), ("no_such_mailbox: mailbox x is gone", True))
        with check("session: role"):
            equal(json.loads((await session.call_tool("whoami")).text)["role"], "assistant")
    check.end()


asyncio.run(main())
