// The AI SDK's own client reads the streams that `crates/wire` renders. Each release is installed in a
// folder of its own, and this file beside it; `messages.json` says what the client then has in hand.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { DefaultChatTransport, readUIMessageStream } from "ai";

const STREAMS = process.env.FIRSTTOKEN_STREAMS;
const MESSAGES = JSON.parse(readFileSync(new URL("./messages.json", import.meta.url), "utf8"));

/** The stream as a server's answer, through the transport of `useChat`; its chunks go to `chunks`, too. */
async function open(bytes, chunks) {
  const transport = new DefaultChatTransport({ fetch: async () => new Response(bytes) });
  const stream = await transport.sendMessages({ chatId: "c", messages: [], trigger: "submit-message" });
  const watch = new TransformStream({
    transform(chunk, controller) {
      chunks.push(chunk);
      controller.enqueue(chunk);
    },
  });
  return stream.pipeThrough(watch);
}

/** The message that an application would show last, and the error that it would be told. */
async function read(bytes) {
  const [chunks, errors] = [[], []];
  let message = null;
  const stream = await open(bytes, chunks);
  for await (const state of readUIMessageStream({ stream, onError: (error) => errors.push(error.message) })) {
    message = state;
  }
  // Later releases number reasoning parts, and mark with undefined what is not there.
  message = JSON.parse(JSON.stringify(message));
  for (const part of message?.parts ?? []) delete part.id;
  return { message, errors, chunks };
}

test("every stream of ours is expected", () => {
  const rendered = readdirSync(STREAMS).filter((file) => file.endsWith(".sse") && !file.startsWith("foreign"));
  assert.deepEqual(rendered.map((file) => file.replace(".sse", "")).sort(), Object.keys(MESSAGES).sort());
});

for (const [name, expected] of Object.entries(MESSAGES)) {
  test(`reads ${name}`, async () => {
    const bytes = readFileSync(join(STREAMS, `${name}.sse`));
    const { message, errors, chunks } = await read(bytes);
    assert.deepEqual(errors, expected.errors ?? []);
    assert.deepEqual(message, expected.message ?? null);
    const frames = bytes.toString().split("\n").filter((line) => line.startsWith("data: {"));
    assert.deepEqual(chunks, frames.map((line) => JSON.parse(line.slice("data: ".length))));
  });
}
