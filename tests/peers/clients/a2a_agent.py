"""A real A2A agent on PyPI `a2a-sdk` 0.3.x, for `nl` actions to be sent to: it plays someone in the office."""
import asyncio
import contextlib
import re

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TaskState, TextPart
from a2a.utils import new_task
from agentenv_protocol.tool_client import ToolSession


class Actor(AgentExecutor):
    """Does what it is told: "add NAME ADDRESS" to the contacts, "refuse", or the first "later"."""

    def __init__(self, mcp_url, role, tasks):
        self.mcp_url, self.role, self.tasks, self.heard, self.later = mcp_url, role, tasks, [], set()

    async def execute(self, context, event_queue):
        task = context.current_task or new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        said = context.get_user_input()
        self.heard.append((task.context_id, said))
        if "refuse" in said:
            await updater.failed(message=self.words(updater, "No."))
            return
        await updater.start_work()
        if "later" in said:
            # The answer to message/send then names a task that still works, and tasks/get has to be asked.
            work = asyncio.create_task(self.finish(task, said))
            self.later.add(work)
            work.add_done_callback(self.later.discard)
            return
        await self.act(said)
        await updater.complete(message=self.words(updater, "Done."))

    async def finish(self, task, said):
        await self.act(said)
        stored = await self.tasks.get(task.id)
        stored.status.state = TaskState.completed
        await self.tasks.save(stored)

    async def act(self, said):
        name, address = re.search(r"add (\S+) (\S+)", said).groups()
        async with ToolSession(mcp_url=self.mcp_url, role=self.role) as session:
            result = await session.call_tool("contacts_add", {"name": name, "email": address})
            assert not result.isError, result.text

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    @staticmethod
    def words(updater, text):
        return updater.new_agent_message([Part(root=TextPart(text=text))])


@contextlib.asynccontextmanager
async def serving(mcp_url, role):
    """The agent's URL, without its `/a2a`, and the actor behind it, for as long as the block runs."""
    tasks = InMemoryTaskStore()
    actor = Actor(mcp_url, role, tasks)
    card = AgentCard(name="Dana", description="Plays Dana.", url="/a2a", version="1", skills=[AgentSkill(
        id="act", name="act", description="Acts in the office.", tags=["office"])], capabilities=AgentCapabilities(),
        default_input_modes=["text"], default_output_modes=["text"])
    handler = DefaultRequestHandler(agent_executor=actor, task_store=tasks)
    app = A2AStarletteApplication(agent_card=card, http_handler=handler).build(rpc_url="/a2a")
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        assert not running.done(), "the agent did not start"
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", actor
    finally:
        server.should_exit = True
        await running
