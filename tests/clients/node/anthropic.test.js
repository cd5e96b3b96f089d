// The official Anthropic SDK: nothing but `baseURL` and `apiKey` is ours.

import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";

import { FAULTS, GATEWAY, KEY, PROXIES, QUESTION, TOOL, abortedRequest, bunched, faulty } from "./stack.js";

const TOOLS = [{ name: TOOL.name, description: TOOL.description, input_schema: TOOL.schema }];

const client = (url = GATEWAY, apiKey = KEY) =>
  new Anthropic({ baseURL: url, apiKey, maxRetries: 0, timeout: 20_000 });

const ask = (model, options) => ({ model, messages: QUESTION, max_tokens: 4096, ...options });

const stream = (model, { url, ...options } = {}) =>
  client(url).messages.create(ask(model, { stream: true, ...options }));

/** Reads a stream, calling back for each piece of text; returns the type of the last event. */
async function read(events, onText) {
  let last = null;
  for await (const event of events) {
    last = event.type;
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") onText(event.delta.text);
  }
  return last;
}

test("streams text", async () => {
  const pieces = [];
  const last = await read(await stream("sim-ttft20-itl5-n30"), (text) => pieces.push(text));
  assert.equal(pieces.length, 30);
  assert.equal(last, "message_stop");
});

test("whole answer", async () => {
  const answer = await client().messages.create(ask("sim-ttft20-itl5-n30"));
  const pieces = [];
  await read(await stream("sim-ttft20-itl5-n30"), (text) => pieces.push(text));
  assert.equal(answer.content[0].text, pieces.join(""));
  assert.equal(answer.usage.output_tokens, 30);
});

test("streams tool calls", async () => {
  const message = await client().messages.stream(ask("sim-ttft20-itl5-tools2", { tools: TOOLS })).finalMessage();
  const calls = message.content.filter((block) => block.type === "tool_use");
  assert.equal(message.stop_reason, "tool_use");
  assert.deepEqual(calls.map((call) => call.name), [TOOL.name, TOOL.name]);
  for (const call of calls) assert.ok(Object.keys(call.input).length > 0);
});

test("leaving mid-stream stops the provider", async () => {
  const model = "sim-ttft20-itl10-n3031";
  let pieces = 0;
  for await (const event of await stream(model)) {
    if (event.type === "content_block_delta" && ++pieces === 5) break;
  }
  assert.equal((await abortedRequest(model)).tokens_after_abort, 0);
});

test("leaving a whole answer stops the provider", async () => {
  const model = "sim-ttft20-itl10-n3032";
  const create = client().messages.create(ask(model), { signal: AbortSignal.timeout(300) });
  await assert.rejects(create, Anthropic.APIUserAbortError);
  assert.equal((await abortedRequest(model)).tokens_after_abort, 0);
});

for (const [fault, { anthropic: expected }] of Object.entries(FAULTS)) {
  test(`fault ${fault}`, async () => {
    const pieces = [];
    let last = null;
    try {
      last = await read(await stream(faulty(fault)), (text) => pieces.push(text));
    } catch (error) {
      assert.ok(error instanceof Anthropic.APIError, `${error?.stack}`);
      assert.ok(!(error instanceof Anthropic.APIConnectionError), `${error?.stack}`);
      if (pieces.length > 0) assert.equal(expected, "broken", error.message);
      else assert.equal(expected, error.status, error.message);
      return;
    }
    assert.equal(expected, "whole", `ended without an error after ${pieces.length} pieces`);
    assert.ok(pieces.length >= 20 && last === "message_stop");
  });
}

test("a wrong key is refused", async () => {
  const create = client(GATEWAY, "ft-wrong").messages.create(ask("sim"));
  await assert.rejects(create, Anthropic.AuthenticationError);
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
