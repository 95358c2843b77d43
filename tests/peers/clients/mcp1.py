"""PyPI `mcp` 1.x: a ClientSession over streamable HTTP, in the session era."""
import asyncio

from checks import Checks, equal, target, usual
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


class Session:
    def __init__(self, session):
        self.session = session

    async def tools(self):
        tools, cursor = [], None
        while True:
            page = await self.session.list_tools(cursor)
            tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            cursor = page.nextCursor
            if not cursor:
                return tools

    async def call(self, name, arguments, progress=None):
        async def report(done, total, _message):
            progress(done, total)

        result = await self.session.call_tool(name, arguments, progress_callback=report if progress else None)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main():
    to, check, logs = target(), Checks(), []

    async def keep(message):
        logs.append((message.level, message.data))

    async with streamablehttp_client(to["mcp"], headers={"AgentEnv-Role": "assistant"}) as (read, write, session_id):
        async with ClientSession(read, write, logging_callback=keep) as session:
            opened = await session.initialize()
            with check("opens a session"):
                equal(opened.protocolVersion, "2025-11-25")
                equal(opened.serverInfo.name, to["name"])
                assert session_id(), "no session id"
            await usual(check, to, Session(session), has_session=True)
            with check("ping"):
                await session.send_ping()
            if to["name"] == "everything":
                with check("log messages"):
                    await session.set_logging_level("debug")
                    await session.call_tool("test_tool_with_logging", {})
                    equal(len(logs), 3)
    check.end()


asyncio.run(main())
