// Both official SDKs before an upstream that speaks the other dialect. The Python suites run whole for both
// routes; here stands what the Node SDKs assemble on their own.

import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

import { GATEWAY, KEY, QUESTION, TOOL } from "./stack.js";

const openai = new OpenAI({ baseURL: `${GATEWAY}/v1`, apiKey: KEY, maxRetries: 0, timeout: 20_000 });
const anthropic = new Anthropic({ baseURL: GATEWAY, apiKey: KEY, maxRetries: 0, timeout: 20_000 });

const FUNCTION = { name: TOOL.name, description: TOOL.description, parameters: TOOL.schema };

test("Chat Completions before Messages: two calls of a tool, streamed", async () => {
  const runner = openai.chat.completions.stream({
    model: "claude-sim-ttft20-itl5-tools2",
    messages: QUESTION,
    tools: [{ type: "function", function: FUNCTION }],
  });
  const answer = await runner.finalChatCompletion();
  const calls = answer.choices[0].message.tool_calls;
  assert.equal(calls.length, 2);
  for (const call of calls) assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
});

test("Responses before Messages: text and a call, streamed", async () => {
  const ask = (knobs) =>
    openai.responses.stream({
      model: `claude-sim-ttft20-itl5-${knobs}`,
      input: "Why is the first token slow?",
      tools: [{ type: "function", strict: false, ...FUNCTION }],
    });
  const text = await ask("n30").finalResponse();
  assert.ok(text.output_text.split(" ").length >= 30, text.output_text);
  assert.equal(text.usage.output_tokens, 30);
  const call = (await ask("tool1").finalResponse()).output.find((item) => item.type === "function_call");
  assert.equal(typeof JSON.parse(call.arguments).city, "string");
});

test("Responses before Messages: whole", async () => {
  const answer = await openai.responses.create({ model: "claude-sim-ttft20-n30", input: "Why?" });
  assert.equal(answer.status, "completed");
  assert.ok(answer.output_text.length > 0);
});

test("Responses before Messages: what breaks raises", async () => {
  const reading = async () => {
    const stream = await openai.responses.create({
      model: "claude-sim-ttft20-itl5-n20-faultcut@5",
      input: "Why?",
      stream: true,
    });
    for await (const event of stream) assert.notEqual(event.type, "response.completed");
  };
  await assert.rejects(reading());
});

test("Messages before Chat Completions: thinking, text and two calls, streamed", async () => {
  const tools = [{ name: TOOL.name, description: TOOL.description, input_schema: TOOL.schema }];
  const stream = anthropic.messages.stream({
    model: "open-sim-ttft20-itl5-reasoning4-tools2",
    max_tokens: 1000,
    messages: QUESTION,
    tools,
  });
  const message = await stream.finalMessage();
  const kinds = message.content.map((block) => block.type);
  assert.equal(kinds.filter((kind) => kind === "tool_use").length, 2, kinds.join());
  assert.equal(kinds[0], "thinking");
  for (const block of message.content.filter((block) => block.type === "tool_use")) {
    assert.equal(typeof block.input.city, "string");
  }
  assert.equal(message.stop_reason, "tool_use");
});
