"use strict";
/* A browser, Debian's Chromium driven by npm `playwright-core`, on the state store's page at `/db`. The rows that it shows
 * are as hostile as data can be: none of it may run, load anything or go missing. */
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { chromium } = require("playwright-core");
const { Checks, assert, run, target } = require("./checks.cjs");

const ROWS = 120;
const SCHEMA = `<i>"a"/b\\c's`;
const TABLE = `<img src=x onerror=alert('table')>`;
const ODD_TABLE = `../?a=b&amp;#c%2F "+;ü🙂`;

/** The program of that name, as a shell would find it. */
const program = (name, ...folders) =>
  [...process.env.PATH.split(":"), ...folders].map((folder) => path.join(folder, name)).find((file) => fs.existsSync(file));

/** Markup that asks `canary` for something or says something as soon as it is taken for markup. */
const markup = (canary) => [
  `<script>alert('script'); fetch('${canary}/script')</script>`,
  `<img src="${canary}/img" onerror="alert('img')">`,
];

/** Values of the column `text`, and what a page shows of each, which is the same but for NULL and long ones. */
function texts(canary) {
  const long = "<b>é𝕏".repeat(1000);
  const same = [
    ...markup(canary),
    `"><svg onload="alert('svg')">`,
    `' onmouseover='alert("attribute")' x='`,
    `</td></tr></table></body><iframe src="${canary}/frame"></iframe>`,
    `<a href="javascript:alert('link')">more rows</a>`,
    `<meta http-equiv="refresh" content="0;url=${canary}/refresh">`,
    `<link rel="stylesheet" href="${canary}/link"><style>@import "${canary}/import"; td { background: url(${canary}/url) }</style>`,
    `<base href="${canary}/"><form action="${canary}/form"><input autofocus onfocus="alert('focus')"></form>`,
    "<!--", "--><![CDATA[", "<plaintext>", "<textarea>", "</title><noscript>", "{{7*7}} ${7*7}",
    "&lt;b&gt; &amp;amp; &#60; &nbsp",
    "Grüße 漢字 🙂 \u202eleft\u202c a\u0301 \u2028 \ufeff\u0001\u007f\u0085",
    "  two lines\n\tof text  ",
    "", "null",
  ];
  return [...same.map((text) => [text, text]), [long, `${[...long].slice(0, 300).join("")}…`], [null, "null"]];
}

/** SQL values of the column `other`, and what a page shows of each. */
const deep = (depth) => "[".repeat(depth) + "]".repeat(depth);
const OTHERS = [
  ["NULL", "null"],
  [`'{"x": "<script>alert(1)</script>", "y": [1, null]}'`, `{"x": "<script>alert(1)</script>", "y": [1, null]}`],
  [`'"</td>"'`, "</td>"],
  ["'0.10'", "0.10"],
  ["'12345678901234567890.123456789'", "12345678901234567890.123456789"],
  ["'1e400'", "1e400"],
  [`'${deep(140)}'`, deep(140)],
  [`'"\\ud800"'`, `"\\ud800"`],
];

const literal = (text) => (text === null ? "NULL" : `'${text.replaceAll("'", "''")}'`);
const name = (text) => `"${text.replaceAll('"', '""')}"`;

/** Puts rows into the store past every server, as SQL. */
function seed(to, canary) {
  const values = texts(canary).map(([text], n) => `(${n + 1}, ${literal(text)}, ${(OTHERS[n] ?? OTHERS[0])[0]}::json)`);
  const sql = `
    CREATE SCHEMA ${name(SCHEMA)};
    SET search_path = ${name(SCHEMA)};
    CREATE TABLE ${name(TABLE)} (id int PRIMARY KEY, text text, other json);
    INSERT INTO ${name(TABLE)} VALUES ${values};
    INSERT INTO ${name(TABLE)} SELECT n, 'row ' || n FROM generate_series(${values.length + 1}, ${ROWS}) AS n;
    CREATE TABLE ${name(ODD_TABLE)} (${name("<b>column</b>")} text);
    INSERT INTO ${name(ODD_TABLE)} VALUES ('found');
    CREATE TABLE empty ();
    INSERT INTO wiki.pages SELECT 'page ' || n, 'text ' || n FROM generate_series(1, ${ROWS}) AS n;`;
  const psql = program("psql", ...fs.globSync("/usr/lib/postgresql/*/bin"));
  assert.ok(psql, "there is no psql: it comes with Debian's postgresql");
  const env = { ...process.env, PGCLIENTENCODING: "UTF8" };
  execFileSync(psql, ["-XqAt", "-v", "ON_ERROR_STOP=1", to.store], { input: sql, env });
}

/** An agent that writes a page into the wiki. */
async function agent(to, title, text) {
  const client = new Client({ name: "page", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(to.mcp)));
  const result = await client.callTool({ name: "wiki_edit", arguments: { title, text } });
  await client.close();
  assert.ok(!result.isError, JSON.stringify(result));
}

/** A server that nobody should ask for anything: it counts who does. At `/` it has a page of its own. */
async function listen(pageOf) {
  const asked = [];
  const server = http.createServer((request, response) => {
    const known = ["/", "/favicon.ico"].includes(request.url);
    if (!known) asked.push(request.url);
    response.writeHead(known ? 200 : 404, { "content-type": "text/html" }).end(request.url === "/" ? pageOf(url) : "");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  return { url, asked };
}

/** The browser, without a way to anywhere but this machine. */
async function open() {
  const executablePath = program("chromium");
  assert.ok(executablePath, "there is no chromium: install Debian's package of that name");
  return chromium.launch({
    executablePath,
    chromiumSandbox: process.getuid() !== 0,
    args: ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--no-proxy-server"],
  });
}

/** A new tab, and what its pages say in dialogs, complain about and ask for. */
async function tab(browser) {
  const page = await browser.newPage();
  page.setDefaultTimeout(10_000);
  const seen = { dialogs: [], errors: [], requests: [] };
  page.on("dialog", (dialog) => {
    seen.dialogs.push(dialog.message());
    dialog.dismiss();
  });
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) seen.errors.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("request", (request) => seen.requests.push(request.url()));
  return { page, seen };
}

/** Waits until something holds. */
async function until(what, holds) {
  for (let n = 0; n < 100; n += 1) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`never: ${what}`);
}

run(async () => {
  const to = target();
  const checks = new Checks();
  const check = checks.check.bind(checks);
  const canary = await listen((url) => markup(url).join("\n"));
  const stranger = await listen(() => `<iframe src="${to.url}/db"></iframe>`);
  seed(to, canary.url);
  const [written] = markup(canary.url);
  await agent(to, written, written);
  let browser;
  await check("Chromium starts", async () => {
    browser = await open();
  });
  if (!browser) return checks.end();

  await check("this Chromium runs the rows' markup where nothing keeps it from it", async () => {
    const { page, seen } = await tab(browser);
    await page.goto(canary.url);
    await until("dialogs and requests", () => seen.dialogs.length >= 2 && canary.asked.length >= 2);
    await page.close();
    assert.deepEqual([seen.dialogs.sort(), canary.asked.sort()], [["img", "script"], ["/img", "/script"]]);
    canary.asked.length = 0;
  });
  const { page, seen } = await tab(browser);
  const rows = () => page.$$eval("tr", (rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));
  const heading = () => page.locator("h1").textContent();
  const link = (text) => page.getByRole("link", { name: text, exact: true });
  const follow = (text) => Promise.all([page.waitForEvent("load"), link(text).click()]);
  await check("lists schemas and tables by their names", async () => {
    const answer = await page.goto(`${to.url}/db`);
    assert.deepEqual([answer.status(), await heading()], [200, "Database"]);
    const schemas = await page.locator("h2").allTextContents();
    assert.ok(schemas.includes(SCHEMA) && schemas.includes("wiki"), String(schemas));
    const tables = await page.locator("td a").allTextContents();
    for (const table of [TABLE, ODD_TABLE, "empty", "pages"]) assert.ok(tables.includes(table), String(tables));
  });
  const shown = texts(canary.url);
  await check("a table's link leads to its rows, every value as text", async () => {
    await follow(TABLE);
    assert.equal(await heading(), `${SCHEMA}.${TABLE}`);
    const [columns, ...cells] = await rows();
    assert.deepEqual(columns, ["id", "text", "other"]);
    assert.deepEqual(cells.map(([id]) => Number(id)), Array.from({ length: 50 }, (_, n) => n + 1));
    assert.deepEqual(cells.slice(0, shown.length).map(([, text]) => text), shown.map(([, text]) => text));
    assert.deepEqual(cells.slice(0, OTHERS.length).map(([, , other]) => other), OTHERS.map(([, other]) => other));
  });
  await check("what is NULL looks different from the word", async () => {
    const cells = await page.$$eval("td:nth-child(2)", (cells) => cells.map((cell) => [cell.textContent, cell.className]));
    assert.deepEqual(cells.filter(([text]) => text === "null"), [["null", ""], ["null", "null"]]);
  });
  await check("'more rows' goes on to the last", async () => {
    for (const [first, last] of [[51, 100], [101, ROWS]]) {
      await follow("more rows");
      const ids = (await rows()).slice(1).map(([id]) => Number(id));
      assert.deepEqual([ids[0], ids.at(-1), ids.length], [first, last, last - first + 1]);
    }
    assert.equal(await link("more rows").count(), 0);
  });
  await check("a table's link works whatever the table is called", async () => {
    await follow("Schemas");
    await follow(ODD_TABLE);
    assert.deepEqual([await heading(), await rows()], [`${SCHEMA}.${ODD_TABLE}`, [["<b>column</b>"], ["found"]]]);
  });
  await check("an empty table says so", async () => {
    await follow("Schemas");
    await follow("empty");
    assert.equal(await page.locator("p").textContent(), "no rows");
  });
  await check("the changelog's link leads to the changes, and on to what the agent wrote", async () => {
    await follow("Changelog");
    assert.equal(await heading(), "Changelog");
    const changes = [];
    for (;;) {
      const [columns, ...cells] = await rows();
      changes.push(...cells.map((row) => Object.fromEntries(row.map((cell, n) => [columns[n], cell]))));
      if (!(await link("more rows").count())) break;
      await follow("more rows");
    }
    const pages = changes.filter((change) => change.schema_name === "wiki" && change.table_name === "pages");
    assert.equal(pages.length, ROWS + 1);
    assert.deepEqual([pages.at(-1).operation, pages.at(-1).row_id], ["INSERT", written]);
    const ids = changes.map(({ id }) => Number(id));
    assert.deepEqual(ids, [...new Set(ids)].sort((a, b) => a - b));
  });
  await check("nothing of it ran", () => assert.deepEqual([seen.dialogs, seen.errors], [[], []]));
  await check("nothing was asked for but the pages", () => {
    assert.deepEqual([seen.requests.filter((url) => !url.startsWith(`${to.url}/db`)), canary.asked], [[], []]);
  });
  await check("an unknown table is a page that says so, with status 404", async () => {
    for (const table of ["none", written]) {
      const answer = await page.goto(`${to.url}/db/table/wiki/${encodeURIComponent(table)}`);
      const said = await page.locator("p.fault").textContent();
      assert.deepEqual([answer.status(), said], [404, `there is no table "wiki"."${table}"`]);
      await follow("Schemas");
    }
  });
  await check("markup that got into the page would not run either", async () => {
    seen.errors.length = 0;
    const refused = await page.evaluate(async (parts) => {
      const refused = [];
      document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
      for (const part of parts) document.body.append(document.createRange().createContextualFragment(part));
      for (let n = 0; n < 100 && refused.length < 5; n += 1) await new Promise((resolve) => setTimeout(resolve, 20));
      return refused.sort();
    }, [...markup(canary.url), `<iframe src="${canary.url}"></iframe>`, `<base href="${canary.url}">`]);
    assert.deepEqual([seen.dialogs, canary.asked], [[], []]);
    assert.deepEqual(refused, ["base-uri", "frame-src", "img-src", "script-src-attr", "script-src-elem"]);
    assert.deepEqual(seen.errors.filter((text) => !text.includes("Content Security Policy")), []);
  });
  await check("no other page can frame it", async () => {
    const { page, seen } = await tab(browser);
    await page.goto(stranger.url);
    const [, inner] = page.frames();
    assert.equal(await inner.locator("h1", { hasText: "Database" }).count(), 0);
    assert.ok(seen.errors.some((text) => text.includes("frame-ancestors")), String(seen.errors));
  });
  await browser.close();
  checks.end();
});
