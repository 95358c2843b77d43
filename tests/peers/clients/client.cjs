"use strict";
/* npm `@modelcontextprotocol/client` (2.x): in the session era, in the stateless one, and left to find out which. */
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { Checks, assert, run, target, usual } = require("./checks.cjs");

const MODES = [
  { name: "legacy", mode: "legacy", era: "legacy" },
  { name: "auto", mode: "auto", era: "modern" },
  { name: "2026-07-28", mode: { pin: "2026-07-28" }, era: "modern" },
];

run(async () => {
  const to = target();
  const checks = new Checks();
  for (const { name, mode, era } of MODES) {
    checks.prefix = `${name}: `;
    const client = new Client({ name: "client", version: "1" }, { versionNegotiation: { mode } });
    const headers = { "AgentEnv-Role": "assistant", ...(era === "modern" && { "AgentEnv-Session": "walk-1" }) };
    const transport = new StreamableHTTPClientTransport(new URL(to.mcp), { requestInit: { headers } });
    await client.connect(transport);
    await checks.check("settles on an era", () => {
      assert.equal(client.getProtocolEra(), era);
      assert.equal(client.getNegotiatedProtocolVersion(), era === "modern" ? "2026-07-28" : "2025-11-25");
      assert.equal(client.getServerVersion().name, to.name);
    });
    await usual(checks, to, {
      tools: async () => (await client.listTools()).tools,
      call: (tool, args, onprogress) => client.callTool({ name: tool, arguments: args }, { onprogress }),
    });
    await client.close();
  }
  checks.end();
});
