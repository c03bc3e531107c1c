/**
 * Visitors in Node, each a device in memory that records a colour, sends it to an aggregator and ends.
 *
 *     node tests/web/visitors.ts '{"registry": {...}, "endpoint": "...", "key": "...", "truth": {"red": 20}}'
 *
 * Prints how many reports were acknowledged.
 */

import { start } from "../../client/web/src/index.ts";

const AT_ONCE = 8;
const { truth, ...options } = JSON.parse(process.argv[2]!) as {
  registry: unknown;
  endpoint: string;
  key: string;
  truth: Record<string, number>;
};
const colours = Object.entries(truth).flatMap(([colour, visitors]) => Array<string>(visitors).fill(colour));
let sent = 0;

async function visit(): Promise<void> {
  for (let colour = colours.pop(); colour !== undefined; colour = colours.pop()) {
    const telemetry = start<{ color: string }>({ ...options, consent: true });
    telemetry.color.record(colour);
    await telemetry.flush(60);
    sent += (await telemetry.status()).counts.accepted ?? 0; // with what its random moment sent before
    await telemetry.close();
  }
}

await Promise.all(Array.from({ length: AT_ONCE }, visit));
console.log(sent);
