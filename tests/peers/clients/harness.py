"""The harness steps of PyPI `agentenv-framework`, as published, on a running gateway, and a real A2A agent as the executor
of `nl` actions. The framework thinks that it deployed the gateway: its records are in its own local store, in a temporary
folder."""
import asyncio
import json
import urllib.request

from a2a_agent import serving
from agent_env.artifact.artifacts.docker_image import DockerImageArtifact
from agent_env.artifact.store import get_artifact_store
from agent_env.env.env import DeployedGatewayEnv
from agent_env.env.envs.mcp_server import MCPServerEnv
from agent_env.env.envs.multi_env import MultiEnv
from agent_env.task_step.context import DeployedAgent, TaskStepContext
from agent_env.task_step.task_steps.apply_server_config import ApplyServerConfigError, ApplyServerConfigStep
from agent_env.task_step.task_steps.env_card_validator import VerifyCoreEnvironmentProtocolStep, VerifyEnvironmentCardStep
from agent_env.task_step.task_steps.modify_env_tool_access import ModifyEnvToolAccessStep
from agent_env.task_step.task_steps.register_env_triggers import RegisterEnvTriggersStep
from agent_env.task_step.task_steps.sync_env_clock import SyncEnvClockTaskStep
from agentenv_protocol import client
from agentenv_protocol.tool_client import ToolSession
from checks import Checks, equal, fresh, mailbox, request, target

MORNING = "2026-10-05T09:00:00Z"


async def deployed(env, url):
    """The record that a deploy would have left."""
    return DeployedGatewayEnv(env_id=env.id, env_version=env.version, gateway_url=url, sandbox_id="peers",
                              environment_card_url=f"{url}/.well-known/agent-env.json",
                              environment_card=await client.get_card(url))


async def main():
    to, check = target(), Checks()
    image = get_artifact_store().put_document(
        DockerImageArtifact(id="image", version=0, description="Never pulled.", image_name="none"))
    servers = {name: MCPServerEnv.put(id=name, docker_image_artifact=image, environment_name=name)
               for name in to["children"]}
    office_env = MultiEnv.put(id="office", mcp_server_envs=list(servers.values()), name="office")
    office, solo = await deployed(office_env, to["url"]), await deployed(servers["email"], to["solo"])

    async def run(step, *agents):
        context = TaskStepContext(deployed_envs=[office, solo], deployed_agents=list(agents))
        await step.execute(context)
        return context.metadata

    def reset():
        fresh(to)
        for path in ("/triggers/clear", "/clock/clear"):
            request("POST", to["url"] + path)
        request("POST", f"{to['url']}/tools/enable", {"role": "*", "tools": "*"})
        request("POST", f"{to['url']}/svc/mcp-contacts/agentenv", {"jsonrpc": "2.0", "id": 1, "method": "data/reset"})

    reset()
    await access(check, to, run)
    await config(check, to, run)
    await verification(check, to, run)
    await clock(check, to, run)
    reset()
    async with serving(to["mcp"], "world") as (url, actor):
        await triggers(check, to, run, reset, actor, DeployedAgent(
            agent_name="dana", api_url=url, a2a_url=url, role="world"))
    reset()
    check.end()


async def access(check, to, run):
    async def allowed():
        async with ToolSession(mcp_url=to["mcp"], role="assistant") as session:
            names = [tool.name for tool in await session.list_tools()]
            return "send" in names, (await session.call_tool("send", {"to": "a", "subject": "b", "body": "c"})).text

    def step(action):
        return ModifyEnvToolAccessStep("access", None, "office", action, "assistant", ["send"])

    with check("modify_env_tool_access disables"):
        metadata = await run(step("disable"))
        equal(metadata["tool_access_changes"][0]["role_state_after"], {"disabled": ["send"], "allowed": []})
        equal(await allowed(), (False, "Tool 'send' is disabled for role 'assistant'"))
    with check("modify_env_tool_access enables"):
        metadata = await run(step("enable"))
        equal(metadata["tool_access_changes"][0]["role_state_after"], {"disabled": [], "allowed": ["send"]})
        equal((await allowed())[0], True)


async def config(check, to, run):
    uri = "urn:example:mailbox/v1"

    def step(service, args, **options):
        return ApplyServerConfigStep("config", None, "office", [{"service": service, "uri": uri, "args": args}], **options)

    with check("apply_server_config on one server"):
        changes = (await run(step("email", {"limit": 3, "mode": "soft"})))["server_config_changes"]
        equal([change["result"] for change in changes], [{"limit": 3, "mode": "soft"}])
    with check("apply_server_config on every server"):
        metadata = await run(step("*", {"limit": 3}, tolerate_unadvertised=True))
        equal([change["service"] for change in metadata["server_config_changes"]], ["email"])
        equal([(skip["service"], skip["reason"]) for skip in metadata["server_config_skipped"]],
              [(name, "extension_not_advertised") for name in to["children"] if name != "email"])
    with check("apply_server_config with unfit arguments"):
        try:
            await run(step("email", {"limit": "many"}))
        except ApplyServerConfigError as error:
            assert "HTTP 400" in str(error) and "limit" in str(error), error
        else:
            raise AssertionError("applied")
    with check("apply_server_config where the server does not offer it"):
        try:
            await run(step("contacts", {"limit": 3}))
        except ApplyServerConfigError as error:
            assert "not advertised" in str(error), error
        else:
            raise AssertionError("applied")


async def verification(check, to, run):
    for env, children, name_check in (
            ("office", to["children"], None),
            ("email", ["email"], {"registered_name": "email", "served_card_names": ["email"], "matches": True})):
        with check(f"verify_env_card, {env}"):
            found = (await run(VerifyEnvironmentCardStep("card", None, env)))["verifications"]["environment_card"]
            verdict = found["validated_environment_card"]
            equal({name: field["present"] for name, field in verdict["required_fields"].items()},
                  dict.fromkeys(["name", "protocolVersion", "url", "preferredTransport", "capabilities"], True))
            equal([child["name"] for child in found["environment_card"]["children_environments"]], children)
            equal(verdict["name_check"], name_check)
            assert {f"urn:agentenv:{name}/v1" for name in (
                "disable-tool", "enable-tool", "triggers", "clock", "trajectory", "step", "state")} <= set(verdict["extensions"])
    for env, supported in (("office", None), ("email", True)):
        with check(f"verify_env_core_protocol, {env}"):
            step = VerifyCoreEnvironmentProtocolStep("protocol", None, env)
            found = (await run(step))["verifications"]["env_core_protocol"]
            equal(found, {f"data/{operation}": {"supported": supported} for operation in ("reset", "add", "get")})


async def clock(check, to, run):
    with check("sync_env_clock"):
        step = SyncEnvClockTaskStep("clock", None, "office", MORNING, 60)
        done = (await run(step))["clock_configurations"][0]
        equal([server["service"] for server in done["synced"]], ["contacts"])
        assert done["synced"][0]["result"]["now"].startswith("2026-10-05T09:0"), done
        equal([(server["service"], server["reason"]) for server in done["skipped"]],
              [(name, "not_advertised") for name in to["children"] if name != "contacts"])
    with check("sync_env_clock with a time that is none"):
        try:
            await run(SyncEnvClockTaskStep("clock", None, "office", "next Monday"))
        except RuntimeError as error:
            assert "HTTP 400" in str(error), error
        else:
            raise AssertionError("armed")


async def triggers(check, to, run, reset, actor, dana):
    def state(tid):
        found = request("GET", f"{to['url']}/triggers/state")
        kinds = [event["kind"] for event in found["events"] if event.get("trigger_id") == tid]
        return next(trigger["status"] for trigger in found["triggers"] if trigger["id"] == tid), kinds

    async def send(**arguments):
        async with ToolSession(mcp_url=to["mcp"], role="default") as session:
            return await session.call_tool("send", {"to": "sam@example.com", "subject": "s", "body": "b", **arguments})

    async def known(name):
        async with ToolSession(mcp_url=to["mcp"], role="default") as session:
            return (await session.call_tool("contacts_lookup", {"name": name})).text

    async def until(tid, kind):
        for _ in range(200):
            if kind in state(tid)[1]:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"no {kind}: {state(tid)}")

    def on_send(tid, subject, action, **options):
        return {"id": tid, "when": {"type": "action", "tool": "send", "where": {"subject": {"equals": subject}}},
                "actions": [action], **options}

    with check("register_env_triggers: a permission"):
        unlock = {"id": "unlock", "barrier": {"at": "provoking_call"},
                  "when": {"type": "action", "tool": "contacts_lookup", "where": {"args.name": {"regex": "Sam"}}},
                  "actions": [{"type": "permission", "action": "disable", "role": "default", "tools": ["send"]}]}
        metadata = await run(RegisterEnvTriggersStep("triggers", None, "office", [unlock], watch_roles=["default"]))
        equal(metadata["env_trigger_registrations"][0]["added"], ["unlock"])
        await known("Sam")
        equal((await send()).text, "Tool 'send' is disabled for role 'default'")
        equal(state("unlock")[0], "fired")
    reset()
    with check("register_env_triggers: waits for a time"):
        await run(SyncEnvClockTaskStep("clock", None, "office", MORNING, 3600))
        noon = {"id": "noon", "when": {"type": "time", "at": "PT1H"},
                "actions": [{"type": "tool", "tool": "deliver",
                             "args": {"sender": "dana@example.com", "subject": "Well?", "body": "Any news?"}}]}
        step = RegisterEnvTriggersStep("triggers", None, "office", [noon], await_fired=["noon"], await_timeout_seconds=60)
        equal((await run(step))["env_trigger_registrations"][0]["awaited"], {"noon": "fired"})
        equal(mailbox(to)["inbox"][-1]["subject"], "Well?")
    reset()
    with check("register_env_triggers: refused"):
        try:
            await run(RegisterEnvTriggersStep("triggers", None, "office", [{"id": "odd", "when": {"type": "moon"}}]))
        except RuntimeError as error:
            assert "HTTP 400" in str(error) and "odd" in str(error), error
        else:
            raise AssertionError("registered")
    with check("nl action: a real A2A agent acts before the answer is out"):
        step = RegisterEnvTriggersStep("triggers", None, "office", [
            on_send("now", "now", {"type": "nl", "instruction": "Please add Kim kim@example.com"},
                    barrier={"at": "provoking_call"}),
            on_send("no", "no", {"type": "nl", "instruction": "Please refuse"}),
            on_send("slowly", "slowly", {"type": "nl", "instruction": "Please, later, add Lee lee@example.com"}),
        ], watch_roles=["default"], executor_agent_name="dana", executor_timeout_seconds=30)
        equal((await run(step, dana))["env_trigger_registrations"][0]["added"], ["now", "no", "slowly"])
        await send(subject="now")
        assert "kim@example.com" in await known("Kim"), "the agent did not act, or the answer did not wait for it"
        equal(state("now")[0], "fired")
        equal([context for context, _ in actor.heard], ["trigger-now"])
        assert "Please add Kim kim@example.com" in actor.heard[0][1], actor.heard
    with check("nl action: the agent's own call is recorded with what caused it"):
        lines = await asyncio.to_thread(trajectory, to["url"])
        added = [e for e in lines if e["event_type"] == "tool_call" and e["tool_call"]["function_name"] == "contacts_add"]
        equal([(event["role"], bool(event.get("caused_by"))) for event in added], [("world", True)])
    with check("nl action: the agent fails"):
        await send(subject="no")
        await until("no", "action_failed")
        equal(state("no")[0], "armed")
    with check("nl action: the agent answers later"):
        await send(subject="slowly")
        await until("slowly", "fired")
        assert "lee@example.com" in await known("Lee"), "the agent did not act"


def trajectory(url):
    with urllib.request.urlopen(f"{url}/trajectory", timeout=30) as response:
        return [json.loads(line) for line in response.read().splitlines()]


asyncio.run(main())
