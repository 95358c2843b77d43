"use strict";
/* npm `@modelcontextprotocol/sdk` (1.x): a Client over streamable HTTP, in the session era. */
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { LoggingMessageNotificationSchema } = require("@modelcontextprotocol/sdk/types.js");
const { Checks, assert, run, target, usual } = require("./checks.cjs");

run(async () => {
  const to = target();
  const checks = new Checks();
  const client = new Client({ name: "sdk", version: "1" });
  const logs = [];
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => void logs.push(params));
  const transport = new StreamableHTTPClientTransport(new URL(to.mcp), {
    requestInit: { headers: { "AgentEnv-Role": "assistant" } },
  });
  await client.connect(transport);
  await checks.check("opens a session", () => {
    assert.ok(transport.sessionId);
    assert.equal(transport.protocolVersion, "2025-11-25");
    assert.equal(client.getServerVersion().name, to.name);
  });
  await usual(checks, to, {
    tools: async () => (await client.listTools()).tools,
    call: (name, args, onprogress) => client.callTool({ name, arguments: args }, undefined, { onprogress }),
  });
  await checks.check("ping", () => client.ping());
  if (to.name === "everything") {
    await checks.check("log messages", async () => {
      await client.setLoggingLevel("debug");
      await client.callTool({ name: "test_tool_with_logging", arguments: {} });
      assert.equal(logs.length, 3);
    });
  }
  await checks.check("ends its session", async () => {
    await transport.terminateSession();
    await client.close();
  });
  checks.end();
});
