/**
 * The vectors, held against the web SDK: in Node by `node tests/web/vectors.ts`, and by `runVectors` in a browser.
 *
 * Of uploads what is written is held: reading them is the aggregator's.
 */

import type { CompiledMetric } from "../../client/web/src/registry.ts";
import { Coins, systemCoins } from "../../client/web/src/coins.ts";
import { bloomBits } from "../../client/web/src/domains/bloom.ts";
import { folded, isSeen, normal } from "../../client/web/src/domains/texts.ts";
import { numberOf, pointOf } from "../../client/web/src/mechanisms/symbols.ts";
import { drawCell, load, madeBy, makeReport, NOTHING, type Report, valueIn } from "../../client/web/src/report.ts";
import { sha256, utf8 } from "../../client/web/src/sha256.ts";
import { playScene, type Scenes, scenesOf } from "../../client/web/test/scenes.ts";

const MIDDLE = new Coins((count) => (count ? 1n << BigInt(count - 1) : 0n));
const MEMO = { secret: utf8("thirty-two bytes of a test's own") };
const PLANES = 0x20000;

/** The text of each file, by its name without `.json`. */
export type Vectors = Readonly<Record<string, string>>;
export interface Held {
  readonly count: number;
  readonly failures: readonly string[];
}

const RUNS = { plans, answers, points, rappor, texts, uploads, compiled, devices };

/** Hold files of vectors against the SDK: all of them, or those that are named. */
export async function runVectors(vectors: Vectors, names = Object.keys(RUNS)): Promise<Record<string, Held>> {
  const held: Record<string, Held> = {};
  for (const [name, run] of Object.entries(RUNS).filter(([one]) => names.includes(one))) {
    const failures: string[] = [];
    let count = 0;
    await run(vectors, (what, came, expected) => {
      count++;
      const [one, other] = [canonical(came), canonical(expected)];
      if (one !== other) failures.push(`${what}: got ${one}, needed ${other}`);
    });
    held[name] = { count, failures };
  }
  return held;
}

type Check = (what: string, came: unknown, expected: unknown) => void;

/** Parse JSON of which integers above 2^53 become bigints: `JSON.parse` alone would round them. */
function parse(text: string | undefined): any {
  const marked = text!.replace(/"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g, (one) => (one[0] === '"' ? one : `"\\u0000${one}"`));
  return JSON.parse(marked, (_, value) => (/^\0-?\d+$/.test(value) ? BigInt(value.slice(1)) : value));
}

/** Return canonical JSON (shared/wire.md). Bigints are numbers. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical)}]`;
  if (value && typeof value === "object") {
    const fields = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)); // keys are ASCII
    return `{${fields.map(([key, inner]) => `${canonical(key)}:${canonical(inner)}`)}}`;
  }
  if (typeof value === "bigint") return `${value}`;
  return JSON.stringify(value ?? null).replace(/[\x7f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function hash(document: unknown): string {
  return Array.from(sha256(utf8(canonical(document))), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return digest and memo key of a plan with numbers. */
function namesOf({ metric, rev, presence, kind, domain, cells, once_a_day }: any): [string, string] {
  const digest = hash({ cells, kind, once_a_day, presence, rev, domain: hash(domain) }).slice(0, 16);
  if (!cells.parts[0].memo) return [digest, ""];
  const memos = cells.parts.map((part: any) => [part.mechanism, part.memo, part.cells]);
  return [digest, hash({ cells: memos, domain: hash(domain), metric })];
}

function checkNames(check: Check, name: string, { digest, memo_key }: any, plan: any): void {
  check(`${name}: digest and memo's key`, namesOf(plan), [digest, memo_key]);
}

async function plans(vectors: Vectors, check: Check): Promise<void> {
  for (const vector of parse(vectors["plans"])) {
    checkNames(check, vector.name, vector, vector.plan);
    await load(vector);
  }
}

async function answers(vectors: Vectors, check: Check): Promise<void> {
  for (const vector of parse(vectors["answers"])) {
    checkNames(check, vector.name, vector, vector.plan);
    for (const asked of vector.answers) {
      const answer = asked.nothing ? NOTHING : asked.answer;
      const values = [];
      for (const cell of vector.cells) values.push(await valueIn(vector, cell, answer, MIDDLE, () => 1n << 63n));
      const expected = asked.values.map((value: unknown) => (typeof value === "boolean" ? Number(value) : value));
      check(`${vector.name}: ${asked.nothing ? "nothing" : canonical(answer)}`, values, expected);
    }
  }
}

async function points(vectors: Vectors, check: Check): Promise<void> {
  for (const { points: listed, ...space } of parse(vectors["points"])) {
    for (const [number, vector] of listed) {
      check(`point ${number} of ${canonical(space)}`, [pointOf(number, space), numberOf(vector, space)], [vector, number]);
    }
  }
}

async function rappor(vectors: Vectors, check: Check): Promise<void> {
  for (const { name, value, cohort, k, h, java, bits } of parse(vectors["rappor"]).bloom) {
    if (!java) check(name, bloomBits(value, cohort, k, h), [...new Set<number>(bits)].sort((one, other) => one - other));
  }
}

async function texts(vectors: Vectors, check: Check): Promise<void> {
  const { newer, forms } = parse(vectors["texts"]);
  for (const { text, normal: form, folded: fold, unseen } of forms) {
    check(`the forms of ${canonical(text)}`, [normal(text), folded(normal(text)), isSeen(text)], [form, fold, !unseen]);
  }
  for (const [first, last] of newer) {
    const wrong = [];
    for (let point = first; point <= (last < PLANES ? last : first); point++) {
      const parted = `e${String.fromCodePoint(point)}\u0301`;
      if (normal(parted) !== parted || folded(parted) !== parted) wrong.push(point);
    }
    check(`what Unicode 14 does not have from ${first.toString(16)} on`, wrong, []);
  }
}

async function uploads(vectors: Vectors, check: Check): Promise<void> {
  const known = [...parse(vectors["plans"]), ...parse(vectors["answers"])];
  for (const { name, body, groups } of parse(vectors["uploads"]).valid) {
    const written = parse(body).groups;
    for (const [place, [metric, cell, count, hex]] of groups.entries()) {
      const vector = known.find((one) => one.plan.metric === metric && one.digest === written[place].plan);
      const made = await madeBy(vector, cell);
      const width = hex.length / count;
      const reports = Array.from({ length: count }, (_, i) => hex.slice(i * width, (i + 1) * width));
      const came = reports.map((one) => made.mechanism.write(reportOf(one, made), made.integers));
      check(`${name}, group ${place}`, came, written[place].reports);
    }
  }
}

/** Return the report of bytes in hex, little-endian: a symbol, bits, or the members of a set. */
function reportOf(hex: string, { name, integers }: { name: string; integers: any }): Report {
  const bytes = hex.match(/../g)!.map((byte) => parseInt(byte, 16));
  if (/grr|pgr|window/.test(name)) return bytes.reduceRight((number, byte) => number * 256 + byte, 0);
  const size = integers.k ?? integers.d + (name === "privset" ? integers.ticks : 0);
  if (bytes.length === (size + 7) >> 3) return [...Array(size).keys()].filter((bit) => (bytes[bit >> 3]! >> (bit & 7)) & 1);
  const width = bytes.length / integers.weight;
  return [...Array(integers.weight).keys()].map((i) =>
    bytes.slice(i * width, (i + 1) * width).reduceRight((number, byte) => number * 256 + byte, 0),
  );
}

/** Hold the digests; and that a report of each metric is made, of any answer and as long as any other. */
async function compiled(vectors: Vectors, check: Check): Promise<void> {
  const { digest, ...document } = parse(vectors["compiled"]).compiled;
  check("the document's digest", hash(document), digest);
  const coins = systemCoins();
  for (const metric of document.metrics as (CompiledMetric & Record<string, unknown>)[]) {
    const name = metric.plan.metric;
    checkNames(check, name, metric, withNumbers(metric.plan));
    const lengths = new Set<number>();
    for (const answer of [true, "v0", ["v1", "v2"], 12.5, { crashed: "yes", size: 3 }, null, "Cafe\u0301"]) {
      const report = await makeReport(metric, drawCell(metric, 77, 1, coins), answer, coins, MEMO);
      lengths.add(typeof report === "string" ? report.length : 0);
    }
    check(`${name}: lengths of reports`, lengths.size, 1);
  }
}

async function devices(vectors: Vectors, check: Check): Promise<void> {
  const document = JSON.parse(vectors["devices"]!) as Scenes;
  for (const scene of scenesOf(document)) {
    playScene(document, scene, (what, came, expected) => check(`${scene.name}, ${what}`, came, expected));
  }
}

/** Return a plan of the compiled registry with numbers in place of texts: its digests are over these. */
function withNumbers(value: any, of = ""): any {
  if (Array.isArray(value)) return of === "edges" ? value.map(BigInt) : value.map((inner) => withNumbers(inner));
  if (!value || typeof value !== "object") return value;
  const integers = of === "parameters" || of === "memo";
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, integers ? BigInt(inner as string) : withNumbers(inner, key)]));
}

// In Node: print the result of the files that the command names, or of all.

const node = (globalThis as any).process;
if (node?.argv?.[1] && import.meta.url.endsWith(node.argv[1])) {
  const { readFileSync } = await import("node:fs");
  const read = (name: string) => readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), "utf-8");
  const asked = node.argv.slice(2);
  const texts = Object.fromEntries(Object.keys(RUNS).map((name) => [name, read(name)]));
  console.log(JSON.stringify(await runVectors(texts, asked.length ? asked : undefined)));
}
