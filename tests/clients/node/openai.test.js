// The official OpenAI SDK: nothing but `baseURL` and `apiKey` is ours.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

import { FAULTS, GATEWAY, KEY, PROXIES, QUESTION, TOOL, abortedRequest, bunched, faulty } from "./stack.js";

const TOOLS = [
  { type: "function", function: { name: TOOL.name, description: TOOL.description, parameters: TOOL.schema } },
];

const client = (url = GATEWAY, apiKey = KEY) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: 20_000 });

const stream = (model, { url, ...options } = {}) =>
  client(url).chat.completions.create({ model, messages: QUESTION, stream: true, ...options });

/** Reads a stream, calling back for each piece of text; returns the finish reason. */
async function read(chunks, onText) {
  let reason = null;
  for await (const chunk of chunks) {
    for (const choice of chunk.choices) {
      if (choice.delta.content) onText(choice.delta.content);
      reason = choice.finish_reason ?? reason;
    }
  }
  return reason;
}

test("streams text", async () => {
  const pieces = [];
  const reason = await read(await stream("sim-ttft20-itl5-n30"), (text) => pieces.push(text));
  assert.equal(pieces.length, 30);
  assert.ok(["stop", "length"].includes(reason));
});

test("usage comes when asked for", async () => {
  let usage = null;
  for await (const chunk of await stream("sim-ttft20-itl5-n12", { stream_options: { include_usage: true } })) {
    usage = chunk.usage ?? usage;
  }
  assert.equal(usage.completion_tokens, 12);
});

test("whole answer", async () => {
  const answer = await client().chat.completions.create({ model: "sim-ttft20-itl5-n30", messages: QUESTION });
  const pieces = [];
  await read(await stream("sim-ttft20-itl5-n30"), (text) => pieces.push(text));
  assert.equal(answer.choices[0].message.content, pieces.join(""));
});

test("streams tool calls", async () => {
  const calls = [];
  let reason = null;
  for await (const chunk of await stream("sim-ttft20-itl5-tools2", { tools: TOOLS })) {
    const [choice] = chunk.choices;
    reason = choice?.finish_reason ?? reason;
    for (const piece of choice?.delta.tool_calls ?? []) {
      const call = (calls[piece.index] ??= { name: "", args: "" });
      call.name += piece.function.name ?? "";
      call.args += piece.function.arguments ?? "";
    }
  }
  assert.equal(reason, "tool_calls");
  assert.deepEqual(calls.map((call) => call.name), [TOOL.name, TOOL.name]);
  for (const call of calls) assert.equal(typeof JSON.parse(call.args), "object");
});

test("the SDK's own helper assembles a tool call", async () => {
  const runner = client().chat.completions.stream({
    model: "sim-ttft20-itl5-tool1",
    messages: QUESTION,
    tools: TOOLS,
  });
  const answer = await runner.finalChatCompletion();
  assert.equal(typeof JSON.parse(answer.choices[0].message.tool_calls[0].function.arguments), "object");
});

test("leaving mid-stream stops the provider", async () => {
  const model = "sim-ttft20-itl10-n3021";
  let pieces = 0;
  for await (const chunk of await stream(model)) {
    if (chunk.choices[0]?.delta.content && ++pieces === 5) break;
  }
  assert.equal((await abortedRequest(model)).tokens_after_abort, 0);
});

test("leaving before the first token stops the provider", async () => {
  const model = "sim-ttft20000-n3022";
  const create = client().chat.completions.create(
    { model, messages: QUESTION, stream: true },
    { signal: AbortSignal.timeout(300) },
  );
  await assert.rejects(create, OpenAI.APIUserAbortError);
  assert.equal((await abortedRequest(model)).tokens_after_abort, 0);
});

for (const [fault, { openai: expected }] of Object.entries(FAULTS)) {
  test(`fault ${fault}`, async () => {
    const pieces = [];
    let reason = null;
    try {
      reason = await read(await stream(faulty(fault)), (text) => pieces.push(text));
    } catch (error) {
      assert.ok(error instanceof OpenAI.APIError, `${error?.stack}`);
      assert.ok(!(error instanceof OpenAI.APIConnectionError), `${error?.stack}`);
      if (pieces.length > 0) assert.equal(expected, "broken", error.message);
      else assert.equal(expected, error.status, error.message);
      return;
    }
    assert.equal(expected, "whole", `ended without an error after ${pieces.length} pieces`);
    assert.ok(pieces.length >= 20 && ["stop", "length"].includes(reason));
  });
}

test("a wrong key is refused", async () => {
  const create = client(GATEWAY, "ft-wrong").chat.completions.create({ model: "sim", messages: QUESTION });
  await assert.rejects(create, OpenAI.AuthenticationError);
});

for (const [buffering, url] of Object.entries(PROXIES)) {
  test(`tokens flow through nginx, proxy_buffering ${buffering}`, async () => {
    const arrivals = [];
    await read(await stream("sim-ttft20-itl20-n40", { url }), () => arrivals.push(performance.now()));
    assert.equal(arrivals.length, 40);
    assert.ok(arrivals.at(-1) - arrivals[0] > 0.5 * 39 * 20);
    assert.ok(bunched(arrivals) < 10, `${bunched(arrivals)} of 39 came together with the one before`);
  });
}
