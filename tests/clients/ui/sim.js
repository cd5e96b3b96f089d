// What the scripted provider noticed, and how to wait for it. Nothing here knows a client.

const { SIM_URL } = process.env;

// How long the provider may take to notice that nobody listens any more, and how often that is asked.
const ABORT_MS_MAX = 5000;
const ABORT_POLL_MS = 20;
// Numbers of tokens for one file of tests, which is one process.
const CASES_MAX = 100;
let asked = 0;

/** A number of tokens that no other case asks for, of no other file and release: nobody waits for that many. */
export const neverAsked = () => 10_000 + CASES_MAX * (process.pid % 50_000) + asked++;

/** What the provider recorded of the one request for `model`, once it has seen it aborted. */
export async function abortedRequest(model) {
  let records = [];
  for (let waited = 0; waited < ABORT_MS_MAX; waited += ABORT_POLL_MS) {
    const stats = await (await fetch(`${SIM_URL}/stats`)).json();
    records = stats.records.filter((request) => request.model === model);
    if (records.at(-1)?.ended === "aborted") {
      if (records.length !== 1) throw new Error(`asked more than once: ${JSON.stringify(records)}`);
      return records[0];
    }
    await new Promise((resolve) => setTimeout(resolve, ABORT_POLL_MS));
  }
  throw new Error(`the provider still works for ${model}: ${JSON.stringify(records)}`);
}
