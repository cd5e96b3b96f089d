// README's lines for the Node SDKs, pasted but for the address, against a gateway as a new user has it: it has no
// keys. Before an upstream of either dialect.

import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";

import { QUESTION } from "./stack.js";

const { FIRSTTOKEN_README, FIRSTTOKEN_KEYLESS_URL } = process.env;
const MODELS = ["open-sim-ttft20-itl5-n5", "claude-sim-ttft20-itl5-n5"];

/** The client that README's lines for this SDK make. */
async function pasted(sdk) {
  const blocks = [...readFileSync(FIRSTTOKEN_README, "utf8").matchAll(/```js\n(.*?)```/gs)].map((found) => found[1]);
  const lines = blocks.filter((block) => block.includes(`from "${sdk}"`));
  assert.equal(lines.length, 1);
  const here = lines[0].replace("http://127.0.0.1:8080", FIRSTTOKEN_KEYLESS_URL);
  assert.notEqual(here, lines[0]);
  // Node looks for packages beside the file.
  const file = new URL(`./pasted-${sdk.replace(/\W/g, "-")}.js`, import.meta.url);
  writeFileSync(file, `${here}\nexport { client };\n`);
  try {
    return (await import(file.href)).client;
  } finally {
    rmSync(file);
  }
}

test("OpenAI", async () => {
  const client = await pasted("openai");
  for (const model of MODELS) {
    let said = "";
    for await (const chunk of await client.chat.completions.create({ model, messages: QUESTION, stream: true })) {
      said += chunk.choices[0]?.delta.content ?? "";
    }
    assert.match(said, /^This is a simulated answer/);
  }
});

test("Anthropic", async () => {
  const client = await pasted("@anthropic-ai/sdk");
  for (const model of MODELS) {
    const stream = client.messages.stream({ model, max_tokens: 100, messages: QUESTION });
    assert.match(await stream.finalText(), /^This is a simulated answer/);
  }
});
