"use strict";
/* The MCP Inspector's command line, npm `@modelcontextprotocol/inspector`: one process a call. */
const { execFile } = require("node:child_process");
const path = require("node:path");
const { Checks, assert, fresh, mailbox, names, run, target } = require("./checks.cjs");

const manifest = require.resolve("@modelcontextprotocol/inspector/package.json");
const program = path.join(path.dirname(manifest), require(manifest).bin["mcp-inspector"]);

run(async () => {
  const to = target();
  const checks = new Checks();
  const inspect = (...args) =>
    new Promise((resolve) => {
      const line = [program, "--cli", to.mcp, "--transport", "http", "--header", "AgentEnv-Role: assistant", ...args];
      execFile(process.execPath, line, { timeout: 60_000 }, (error, stdout, stderr) => {
        resolve({ status: error ? (error.code ?? 1) : 0, stdout, stderr });
      });
    });
  const answer = async (...args) => {
    const { status, stdout, stderr } = await inspect(...args);
    assert.equal(status, 0, `${stderr}${stdout}`);
    return JSON.parse(stdout);
  };
  await fresh(to);
  await checks.check("lists the tools", async () => {
    const { tools } = await answer("--method", "tools/list");
    assert.deepEqual(names(tools), to.tools.toSorted());
  });
  if (to.kind === "everything") {
    await checks.check("calls a tool", async () => {
      const { content } = await answer("--method", "tools/call", "--tool-name", "test_simple_text");
      assert.equal(content[0].text, "This is a simple text response for testing.");
    });
  } else {
    await checks.check("calls a tool", async () => {
      const given = ["to=sam@example.com", "subject=Hi", "body=Attached."];
      const result = await answer("--method", "tools/call", "--tool-name", "send", "--tool-arg", ...given);
      assert.deepEqual(result.structuredContent, { sent: 1 });
      assert.deepEqual((await mailbox(to)).sent, [{ to: "sam@example.com", subject: "Hi", body: "Attached." }]);
    });
    await checks.check("role reaches the tool", async () => {
      const result = await answer("--method", "tools/call", "--tool-name", "whoami");
      assert.equal(result.structuredContent.role, "assistant");
    });
    await checks.check("shows a tool's error", async () => {
      const { status, stdout } = await inspect("--method", "tools/call", "--tool-name", "fail", "--tool-arg", "how=coded");
      assert.notEqual(status, 0);
      assert.ok(stdout.includes("no_such_mailbox: mailbox x is gone"), stdout);
    });
  }
  checks.end();
});
