// The AI SDK's own client against the real binary at `/api/chat`: what an unmodified `useChat` has in hand,
// before an upstream of either dialect.

import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";

import { DefaultChatTransport, readUIMessageStream } from "ai";

import { abortedRequest, neverAsked } from "./sim.js";

const { FIRSTTOKEN_URL, FIRSTTOKEN_KEY, FIRSTTOKEN_KEYLESS_URL, FIRSTTOKEN_README } = process.env;
const QUESTION = [{ id: "m1", role: "user", parts: [{ type: "text", text: "Why is the first token slow?" }] }];
const TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const UPSTREAMS = { "Chat Completions": "open-", Messages: "claude-" };

function ask(body, { messages = QUESTION, abortSignal } = {}) {
  const transport = new DefaultChatTransport({
    api: `${FIRSTTOKEN_URL}/api/chat`,
    headers: { authorization: `Bearer ${FIRSTTOKEN_KEY}` },
    body,
  });
  return transport.sendMessages({ chatId: "c1", messages, trigger: "submit-message", abortSignal });
}

/** The message that an application would show last, and the errors that it would be told. */
async function read(stream) {
  const errors = [];
  let message = null;
  for await (const state of readUIMessageStream({ stream, onError: (error) => errors.push(error.message) })) {
    message = state;
  }
  return { message, errors };
}

const texts = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");

for (const [name, prefix] of Object.entries(UPSTREAMS)) {
  test(`streams text from ${name}`, async () => {
    const { message, errors } = await read(await ask({ model: `${prefix}sim-ttft20-itl5-n30` }));
    assert.deepEqual(errors, []);
    assert.equal(message.role, "assistant");
    assert.ok(texts(message).split(" ").length >= 30, texts(message));
    assert.equal(message.metadata.usage.outputTokens, 30);
    assert.ok(message.metadata.ttftMs > 0 && message.metadata.requestId.startsWith("req_"));
  });

  test(`streams reasoning and two tool calls from ${name}`, async () => {
    const model = `${prefix}sim-ttft20-itl5-reasoning4-tools2`;
    const { message, errors } = await read(await ask({ model, tools: [TOOL] }));
    assert.deepEqual(errors, []);
    const kinds = message.parts.map((part) => part.type);
    assert.ok(kinds.includes("reasoning"), kinds.join());
    const calls = message.parts.filter((part) => part.type === "tool-get_weather");
    assert.equal(calls.length, 2);
    assert.ok(calls.every((call) => call.state === "input-available" && typeof call.input.city === "string"));
  });

  test(`an error in the middle of ${name} is told, and what came stays`, async () => {
    const { message, errors } = await read(await ask({ model: `${prefix}sim-ttft20-itl5-n20-faultcut@5` }));
    assert.equal(errors.length, 1);
    assert.ok(texts(message).length > 0 && errors[0].length > 20, errors[0]);
  });

  test(`stopping stops ${name}`, async () => {
    const model = `sim-ttft20-itl10-n${neverAsked()}`;
    const abort = new AbortController();
    const reader = (await ask({ model: prefix + model }, { abortSignal: abort.signal })).getReader();
    // The first parts come before the provider is asked, and nobody stops what has not begun.
    for (let part = await reader.read(); part.value?.type !== "text-delta"; part = await reader.read()) {
      assert.ok(!part.done, "the answer ended before it was stopped");
    }
    abort.abort();
    assert.equal((await abortedRequest(model)).tokens_after_abort, 0);
  });
}

test("a refusal is one plain sentence", async () => {
  await assert.rejects(ask({ model: "no-such-model" }), (error) => {
    assert.match(error.message, /no-such-model/);
    assert.ok(!error.message.includes("{"), error.message);
    return true;
  });
});

test("a conversation with a tool's result goes on as the same message", async () => {
  const assistant = {
    id: "m2",
    role: "assistant",
    parts: [
      { type: "step-start" },
      {
        type: "tool-get_weather",
        toolCallId: "call_1",
        state: "output-available",
        input: { city: "Paris" },
        output: { sky: "clear" },
      },
    ],
  };
  const messages = [...QUESTION, assistant];
  const { message, errors } = await read(await ask({ model: "claude-sim-ttft20-itl5-n5", tools: [TOOL] }, { messages }));
  assert.deepEqual(errors, []);
  assert.equal(message.id, "m2");
});

test("README's lines, pasted but for the address, against a gateway without keys", async () => {
  const blocks = [...readFileSync(FIRSTTOKEN_README, "utf8").matchAll(/```js\n(.*?)```/gs)].map((found) => found[1]);
  const lines = blocks.find((block) => block.includes('from "ai"'));
  const here = lines.replace("http://127.0.0.1:8080", FIRSTTOKEN_KEYLESS_URL);
  assert.notEqual(here, lines);
  // Node looks for packages beside the file.
  const file = new URL("./pasted.js", import.meta.url);
  writeFileSync(file, `${here}\nexport { transport };\n`);
  const { transport } = await import(file.href).finally(() => rmSync(file));
  const stream = await transport.sendMessages({ chatId: "c1", messages: QUESTION, trigger: "submit-message" });
  const { message, errors } = await read(stream);
  assert.deepEqual(errors, []);
  assert.match(texts(message), /^This is a simulated answer/);
});
