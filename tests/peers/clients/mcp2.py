"""The newest PyPI `mcp`: its Client in the session era, in the stateless one, and left to find out which."""
import asyncio

import httpx2
from checks import Checks, equal, target, usual
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


class Session:
    def __init__(self, client):
        self.client = client

    async def tools(self):
        tools, cursor = [], None
        while True:
            page = await self.client.list_tools(cursor=cursor)
            tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                return tools

    async def call(self, name, arguments, progress=None):
        async def report(done, total, _message):
            progress(done, total)

        result = await self.client.call_tool(name, arguments, progress_callback=report if progress else None)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main():
    to, count = target(), 0
    for mode, version in (("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")):
        check = Checks(f"{mode}: ")
        modern = version == "2026-07-28"
        headers = {"AgentEnv-Role": "assistant", **({"AgentEnv-Session": "walk-1"} if modern else {})}
        logs = []

        async def keep(message, logs=logs):
            logs.append((message.level, message.data))

        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            transport = streamable_http_client(to["mcp"], http_client=http)
            async with Client(transport, mode=mode, logging_callback=keep, log_level="info" if modern else None) as client:
                with check("settles on a version"):
                    equal(client.protocol_version, version)
                await usual(check, to, Session(client), has_session=True)
                if modern and to["name"] == "everything":
                    with check("log messages, asked for"):
                        await client.call_tool("test_logging_tool", {})
                        assert logs and logs[0][0] == "info", logs
        count += check.count
    print(f"end {count}")


asyncio.run(main())
