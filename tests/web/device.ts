/**
 * The web SDK for tests in Python (tests/support/node.py): asked in lines of JSON, it asks back for each coin.
 *
 * Whoever asks decides each coin and each integer below a bound; `law` decides each in every way. The SDK's own
 * comparison is run all the same, on bits beside the threshold, on the side that was decided.
 */

import { readSync, writeSync } from "node:fs";

import type { CompiledMetric } from "../../client/web/src/registry.ts";
import { bitsOf, Coins, systemCoins } from "../../client/web/src/coins.ts";
import { folded, isSeen, normal, trimmed } from "../../client/web/src/domains/texts.ts";
import {
  classOf,
  drawCell,
  load,
  madeBy,
  makeReport,
  NOTHING,
  repeat,
  reportOfClass,
  type Report,
  valueIn,
} from "../../client/web/src/report.ts";
import { keyedBlocks } from "../../client/web/src/sha256.ts";

/** Coins that are asked for. */
class Asked extends Coins {
  next = 0n;

  constructor() {
    super(() => this.next);
  }

  override coin(threshold: bigint): boolean {
    this.next = decide("coin", threshold) === 1n ? threshold - 1n : threshold;
    return super.coin(threshold);
  }

  override below(size: number | bigint): bigint {
    this.next = decide("below", BigInt(size));
    return super.below(size);
  }
}

/** Return whether a coin of a threshold falls, or an integer below a bound. */
type Decide = (what: "coin" | "below", of: bigint) => bigint;
const askedFor: Decide = (what, of) => BigInt(ask({ [what]: `${of}` }));
let decide = askedFor;
const asked = new Asked();
const metrics: CompiledMetric[] = [];
const ALL = 1n << 64n;

/** Read an answer: an expression of JavaScript, in which NOTHING is the device with nothing to report. */
function read(expression: string): unknown {
  return new Function("NOTHING", `return (${expression});`)(NOTHING);
}

function coinsOf(system: unknown): Coins {
  return system ? systemCoins() : asked;
}

function secretOf(hex: string): { secret: Uint8Array } {
  return { secret: Uint8Array.from(Buffer.from(hex, "hex")) };
}

const calls: Record<string, (request: any) => unknown> = {
  /** Take a metric, and return its number. */
  async metric({ metric }) {
    await load(metric);
    return metrics.push(metric) - 1;
  },
  cell: ({ metric, cohort, place, system }) => drawCell(metrics[metric]!, cohort, place, coinsOf(system)) ?? null,
  value: async ({ metric, cell, answer, threshold }) =>
    (await valueIn(metrics[metric]!, cell, read(answer), asked, () => BigInt(threshold))) ?? null,
  report: ({ metric, cell, answer, secret, system }) =>
    makeReport(metrics[metric]!, cell, read(answer), coinsOf(system), secretOf(secret)),
  class: ({ metric, cell, answer, secret }) => classOf(metrics[metric]!, cell, read(answer), secretOf(secret)),
  "report of class": ({ metric, cell, class: of, secret }) =>
    reportOfClass(metrics[metric]!, cell, of, asked, secretOf(secret)),
  /** Draw the report or memo of a value; also as on the wire. */
  async draw({ metric, cell, value }) {
    const { mechanism, integers } = await madeBy(metrics[metric]!, cell);
    const report = mechanism.randomize(integers, value ?? undefined, asked);
    return [report, mechanism.write(report, integers)];
  },
  async repeat({ metric, cell, memo }) {
    const made = await madeBy(metrics[metric]!, cell);
    return made.mechanism.write(repeat(made, memo as Report, asked), made.integers);
  },
  /** Run another call once for every series of decisions; return the outcomes, each with its probability's fraction. */
  async law({ of, ...request }) {
    const law = new Map<string, bigint>();
    const pending: bigint[][] = [[]];
    for (let decisions = pending.pop(); decisions; decisions = pending.pop()) {
      const taken = [...decisions];
      let [place, numerator, denominator] = [0, 1n, 1n];
      decide = (what, bound) => {
        if (place === taken.length) {
          for (let other = 1n; other < (what === "coin" ? 2n : bound); other++) pending.push([...taken, other]);
          taken.push(0n);
        }
        const choice = taken[place++]!;
        numerator *= what === "below" ? 1n : choice ? bound : ALL - bound;
        denominator *= what === "below" ? bound : ALL;
        return choice;
      };
      const outcome = JSON.stringify([await calls[of]!(request), `${denominator}`]);
      law.set(outcome, (law.get(outcome) ?? 0n) + numerator);
    }
    return [...law].map(([outcome, numerator]) => [...JSON.parse(outcome), `${numerator}`]);
  },
  /** Draw integers by bits that are given: numbers of bits are held against those that are asked for. */
  below: ({ size, bits }) => `${tape(bits).below(size)}`,
  coin: ({ threshold, bits }) => tape(bits).coin(BigInt(threshold)),
  keyed({ secret, context, counts }) {
    const coins = new Coins(bitsOf(keyedBlocks(secretOf(secret).secret, context)));
    return counts.map((count: number) => `${coins.bits(count)}`);
  },
  system: ({ count, times }) => Array.from({ length: times }, () => `${systemCoins().bits(count)}`),
  texts: ({ texts }) =>
    texts.map((text: string) => [normal(text), folded(trimmed(normal(text))), isSeen(normal(text))]),
};

function tape(bits: [number, string][]): Coins {
  return new Coins((count) => {
    const [expected, drawn] = bits.shift()!;
    if (count !== expected) throw new Error(`${count} bits are drawn, needed ${expected}`);
    return BigInt(drawn);
  });
}

// Lines. They are read at once, for a coin cannot wait.

let unread = Buffer.alloc(0);
const chunk = Buffer.alloc(1 << 16);

function line(): string | undefined {
  while (!unread.includes(10)) {
    const count = readSync(0, chunk);
    if (!count) return undefined;
    unread = Buffer.concat([unread, chunk.subarray(0, count)]);
  }
  const end = unread.indexOf(10);
  const text = unread.toString("utf-8", 0, end);
  unread = unread.subarray(end + 1);
  return text;
}

function say(document: unknown): void {
  const bytes = Buffer.from(`${JSON.stringify(document)}\n`);
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

function ask(question: unknown): string {
  say(question);
  return line()!;
}

for (let request = line(); request !== undefined; request = line()) {
  const { become, call, ...rest } = JSON.parse(request);
  if (become) {
    say({}); // nothing else is sent before, so that the copy reads all other lines
    await import(become);
    process.exit();
  }
  decide = askedFor;
  try {
    say({ result: await calls[call]!(rest) });
  } catch (error) {
    say({ error: `${error}` });
  }
}
