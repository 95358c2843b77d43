"use strict";
/* How the JavaScript peers report, and what each MCP client among them asks of a target: the counterpart of checks.py. */
const assert = require("node:assert/strict");

const SEND_SCHEMA = {
  type: "object",
  properties: { to: { type: "string" }, subject: { type: "string" }, body: { type: "string" } },
  required: ["to", "subject", "body"],
};
const SEED = { inbox: [{ from: "dana@example.com", subject: "Lunch on Friday", body: "At noon?" }], sent: [] };
const CODED = { code: "no_such_mailbox", message: "mailbox x is gone", retryable: false, applied: "no", hint: "try y" };

/** What run.py says about the server or gateway to talk to. */
const target = () => JSON.parse(process.argv[2]);

/** Counts checks and prints one line each; `end` last, so that a peer that stops halfway is noticed. */
class Checks {
  constructor() {
    this.count = 0;
    this.prefix = "";
  }

  async check(name, body) {
    this.count += 1;
    try {
      await body();
      console.log(`ok ${this.prefix}${name}`);
    } catch (error) {
      console.log(`FAIL ${this.prefix}${name}: ${String(error.message ?? error).split(/\s+/).join(" ").slice(0, 600)}`);
    }
  }

  end() {
    console.log(`end ${this.count}`);
  }
}

/** One data-plane call straight to the email server, past the peer under test. */
async function dataPlane(to, method, params = {}) {
  const answer = await fetch(`${to.email}/agentenv`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  });
  const { result, error } = await answer.json();
  assert.ok(result, `${method}: ${JSON.stringify(error)}`);
  return result;
}

/** Puts the email server back to what every peer starts from. */
async function fresh(to) {
  if (to.kind === "everything") return;
  await dataPlane(to, "data/reset");
  await dataPlane(to, "data/add", { parts: [{ kind: "data", data: SEED }] });
}

/** What the email server holds. */
const mailbox = async (to) => (await dataPlane(to, "data/get")).parts[0].data;

/** The tools' names, sorted. */
const names = (tools) => tools.map((tool) => tool.name).sort();

/** The checks that every MCP client makes. `session` has `tools()` and `call(name, arguments, onProgress)`, both giving wire JSON. */
async function usual(checks, to, session) {
  const check = checks.check.bind(checks);
  await fresh(to);
  let tools = [];
  await check("lists the tools", async () => {
    tools = await session.tools();
    assert.deepEqual(names(tools), to.tools.toSorted());
  });
  await check("lists them in the same order again", async () => assert.deepEqual(await session.tools(), tools));
  if (to.kind === "everything") return content(check, session);
  const tool = (name) => tools.find((candidate) => candidate.name === name);
  await check("input schema", () => assert.deepEqual(tool("send").inputSchema, SEND_SCHEMA));
  await check("annotations", () => assert.equal(tool("email_search").annotations.readOnlyHint, true));
  await check("calls a tool", async () => {
    const result = await session.call("send", { to: "sam@example.com", subject: "Numbers", body: "Attached." });
    assert.deepEqual(result.structuredContent, { sent: 1 });
    assert.deepEqual(JSON.parse(result.content[0].text), { sent: 1 });
    assert.ok(!result.isError);
  });
  await check("reads what was seeded", async () => {
    const result = await session.call("email_search", { query: "LUNCH" });
    assert.deepEqual(result.structuredContent.emails, SEED.inbox);
  });
  await check("text that looks like JSON stays text", async () => {
    await session.call("send", { to: "sam@example.com", subject: "{}", body: "[1, 2]" });
    assert.deepEqual((await mailbox(to)).sent.at(-1), { to: "sam@example.com", subject: "{}", body: "[1, 2]" });
  });
  await check("coded error", async () => {
    const result = await session.call("fail", { how: "coded" });
    assert.deepEqual([result.isError, result.content[0].text], [true, "no_such_mailbox: mailbox x is gone"]);
    assert.deepEqual(result.structuredContent, CODED);
  });
  await check("plain error", async () => {
    const result = await session.call("fail", { how: "otherwise" });
    assert.ok(result.isError && result.content[0].text.includes("boom"), JSON.stringify(result));
  });
  await check("missing argument is a tool error that names it", async () => {
    const result = await session.call("email_search", {});
    assert.ok(result.isError && result.content[0].text.includes("query"), JSON.stringify(result));
  });
  await check("unknown tool is a tool error", async () => {
    const result = await session.call("no_such_tool", {});
    assert.deepEqual([result.isError, result.content[0].text], [true, "Unknown tool: no_such_tool"]);
  });
  await check("role and session reach the tool", async () => {
    const who = (await session.call("whoami", {})).structuredContent;
    assert.equal(who.role, "assistant");
    assert.ok(who.session, JSON.stringify(who));
  });
  await check("twenty calls at once", async () => {
    const calls = Array.from({ length: 20 }, (_, n) => session.call("email_search", { query: String(n) }));
    assert.deepEqual((await Promise.all(calls)).filter((result) => result.isError), []);
  });
}

/** The other shapes a result may have. */
async function content(check, session) {
  await check("text", async () => {
    const result = await session.call("test_simple_text", {});
    assert.equal(result.content[0].text, "This is a simple text response for testing.");
  });
  await check("image", async () => {
    const [block] = (await session.call("test_image_content", {})).content;
    assert.deepEqual([block.type, block.mimeType], ["image", "image/png"]);
    assert.equal(Buffer.from(block.data, "base64").subarray(1, 4).toString(), "PNG");
  });
  await check("embedded resource", async () => {
    const [block] = (await session.call("test_embedded_resource", {})).content;
    assert.deepEqual([block.type, block.resource.uri], ["resource", "test://embedded-resource"]);
  });
  await check("error", async () => {
    const result = await session.call("test_error_handling", {});
    assert.ok(result.isError && result.content[0].text.includes("intentionally"), JSON.stringify(result));
  });
  await check("progress", async () => {
    const seen = [];
    const result = await session.call("test_tool_with_progress", {}, ({ progress, total }) => seen.push([progress, total]));
    assert.ok(!result.isError, JSON.stringify(result));
    assert.deepEqual(seen, [[0, 100], [50, 100], [100, 100]]);
  });
}

/** Runs a peer's `main`; whatever escapes it ends the process without the `end` line. */
function run(main) {
  main().then(
    () => process.exit(0),
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}

module.exports = { Checks, SEED, assert, fresh, mailbox, names, run, target, usual };
