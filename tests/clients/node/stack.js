// What `cargo xtask test` has started, as this suite sees it, and how to wait for what the simulated
// provider noticed. Nothing here knows an SDK.

import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

const { env } = process;

export const GATEWAY = env.FIRSTTOKEN_URL;
export const KEY = env.FIRSTTOKEN_KEY;
export const PROXIES = { on: env.NGINX_BUFFERED_URL, off: env.NGINX_UNBUFFERED_URL };
export const FAULTS = JSON.parse(readFileSync(new URL("../faults.json", import.meta.url), "utf8"));

export const QUESTION = [{ role: "user", content: "Why is the first token slow?" }];
export const TOOL = {
  name: "get_weather",
  description: "The weather of a city",
  schema: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city"],
  },
};

// How long the provider may take to notice that nobody listens any more, and how often that is asked.
const ABORT_MS_MAX = 5000;
const ABORT_POLL_MS = 20;

/** The model that answers quickly and then fails so. */
export const faulty = (fault) => `sim-ttft20-itl5-n20-fault${fault}`;

/** What the provider recorded of the one request for `model`, once it has seen it aborted. */
export async function abortedRequest(model) {
  let records = [];
  for (let waited = 0; waited < ABORT_MS_MAX; waited += ABORT_POLL_MS) {
    const stats = await (await fetch(`${env.SIM_URL}/stats`)).json();
    records = stats.records.filter((request) => request.model === model);
    if (records.at(-1)?.ended === "aborted") {
      if (records.length !== 1) throw new Error(`asked more than once: ${JSON.stringify(records)}`);
      return records[0];
    }
    await pause(ABORT_POLL_MS);
  }
  throw new Error(`the provider still works for ${model}: ${JSON.stringify(records)}`);
}

/** How many of the times follow the one before at once, as they do when something held them back. */
export const bunched = (times) => times.filter((time, i) => i > 0 && time - times[i - 1] < 1).length;
