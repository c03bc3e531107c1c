/**
 * From an answer to a report, by a metric's plan (shared/reports.md).
 *
 *     answer --domain--> value of its cell --mechanism--> report, or memo and then a report of it --> as on the wire
 *
 * Domains and mechanisms are modules that `load` fetches where a plan asks for them. It is called before any answer
 * comes, so that nothing that is fetched depends on one.
 */

import { bitsOf, Coins } from "./coins.ts";
import type { Alphabet, CompiledMetric, Domain, Part } from "./registry.ts";

/** Whatever a page says. All that its domain does not ask for is "other", or what stands for it. */
export type Answer = unknown;
/** The answer of a device with nothing to report, where presence is hidden. */
export const NOTHING: unique symbol = Symbol("nothing");

/** What memos are drawn from: 32 random bytes that never leave the device. */
export interface Memo {
  readonly secret: Uint8Array;
}

/** All that a mechanism sees of an answer: a symbol, a set in ascending order, or that it has no place. */
export type Value = number | readonly number[] | undefined;
/** What a mechanism sends: a symbol, or a set in ascending order. */
export type Report = number | readonly number[];

/** The integers of a mechanism, by their names in the plan. Those of other mechanisms are not there. */
export interface Integers {
  readonly d: number;
  readonly dimension: number;
  readonly h: number;
  readonly k: number;
  readonly order: number;
  readonly prime: number;
  readonly reach: number;
  readonly ticks: number;
  readonly weight: number;
  readonly threshold: bigint;
  readonly threshold_flip: bigint;
  readonly threshold_irr_0: bigint;
  readonly threshold_irr_1: bigint;
  readonly threshold_keep: bigint;
  readonly threshold_p: bigint;
  readonly threshold_prr: bigint;
  readonly threshold_q: bigint;
}

/** A mechanism. `integers` are those of the memo where there is one. */
export interface Mechanism {
  /** Draw the report of a value, or its memo. */
  randomize(integers: Integers, value: Value, coins: Coins): Report;
  /** Draw any report, each alike: a memo is kept by a coin, else replaced by one. */
  any?(integers: Integers, coins: Coins): Report;
  /** Draw a report of a memo, where that is done bit by bit. */
  repeat?(integers: Integers, parameters: Integers, memo: Report, coins: Coins): Report;
  /** Return a report as on the wire. */
  write(report: Report, integers: Integers): number | string;
}

/** A question to a domain: the value of an answer in a cell. */
export interface Question {
  readonly domain: Domain;
  /** The code of words; undefined for that of English. */
  readonly alphabet: Alphabet | undefined;
  readonly kind: string;
  readonly mechanism: string;
  readonly integers: Integers;
  readonly cell: number;
  readonly coins: Coins;
  /** Whether the device has nothing to report. */
  readonly nothing: boolean;
  /** What reads the answers of each domain, for one that is made of others. */
  readonly domains: Readonly<Record<string, ValueOf>>;
  /** The 64 bits of a device that tells whether its numbers are above. */
  readonly threshold: () => bigint;
  /** Bring a text into the form in which it is told apart. */
  readonly normal: (text: string) => string;
}

/** Return the value of an answer. What is read of an answer may throw whatever its own methods do. */
export type ValueOf = (answer: Answer, question: Question) => Value;

const KINDS = ["flag", "choice", "choices", "text", "number", "words", "table"];

type Modules = Readonly<Record<string, () => Promise<unknown>>>;
const numbers = () => import("./domains/numbers.ts");
const texts = () => import("./domains/texts.ts");
const DOMAINS: Modules = {
  values: () => import("./domains/values.ts"),
  buckets: numbers,
  range: numbers,
  thresholds: numbers,
  hashed: texts,
  words: () => import("./domains/bloom.ts"),
  coded: () => import("./domains/coded.ts"),
  columns: () => import("./domains/columns.ts"),
};
const symbols = () => import("./mechanisms/symbols.ts");
const sets = () => import("./mechanisms/sets.ts");
const MECHANISMS: Modules = {
  grr: symbols,
  pgr: symbols,
  window: symbols,
  ss: sets,
  privset: sets,
  oue: sets,
  sue: sets,
  rappor: sets,
};
const keyed = () => import("./sha256.ts");

interface Loaded {
  readonly domains: Readonly<Record<string, ValueOf>>;
  readonly mechanisms: Readonly<Record<string, Mechanism>>;
  readonly normal: (text: string) => string;
}

const loaded = new WeakMap<CompiledMetric, Promise<Loaded>>();

/** Fetch all that reports of a metric need. Throw for a kind, domain or mechanism that is not known. */
export async function load(metric: CompiledMetric): Promise<void> {
  await partsOf(metric);
}

function partsOf(metric: CompiledMetric): Promise<Loaded> {
  let parts = loaded.get(metric);
  if (!parts) {
    loaded.set(metric, (parts = fetchParts(metric)));
    parts.catch(() => loaded.delete(metric)); // a module that could not be fetched is tried again
  }
  return parts;
}

async function fetchParts({ plan, memo_key }: CompiledMetric): Promise<Loaded> {
  if (!KINDS.includes(plan.kind)) throw new Error(`${plan.metric}: unknown kind ${plan.kind}`);
  const asked = [plan.domain, ...((plan.domain["domains"] as readonly Domain[] | undefined) ?? [])];
  const [domains, mechanisms] = await Promise.all([
    entries<ValueOf>(DOMAINS, asked.map((one) => one.domain)),
    entries<Mechanism>(MECHANISMS, plan.cells.parts.map((part) => part.mechanism)),
    memo_key && keyed(),
  ]);
  // A list without a value beyond ASCII has none in a form that needs the table of Unicode 14.
  const wide = /[^\0-\x7f]/.test(JSON.stringify(plan.domain)) || "characters_max" in plan.domain;
  const normal = wide ? (await texts()).normal : (text: string) => text.normalize();
  return { domains, mechanisms, normal };
}

async function entries<T>(modules: Modules, names: readonly string[]): Promise<Record<string, T>> {
  const one = async (name: string): Promise<[string, T]> => {
    if (!Object.hasOwn(modules, name)) throw new Error(`unknown ${name}`);
    return [name, ((await modules[name]!()) as Record<string, T>)[name]!];
  };
  return Object.fromEntries(await Promise.all(names.map(one)));
}

/**
 * Draw the cell of a report before its answer is looked at; undefined in a plan with one cell, which names none.
 *
 * `cohort` is the device's number below 128, and `publicIndex` the place of its value of the public column.
 */
export function drawCell(
  { plan }: CompiledMetric,
  cohort: number,
  publicIndex: number,
  coins: Coins,
): number | undefined {
  const { drawn, parts, public: values } = plan.cells;
  const each = parts.reduce((sum, part) => sum + part.cells, 0);
  if (each * (values ?? 1) === 1) return undefined;
  if (drawn === "device") return cohort % each;
  let left = Number(coins.below(parts.reduce((sum, part) => sum + part.cells * part.weight, 0)));
  let cell = values ? publicIndex * each : 0;
  for (const { cells, weight } of parts) {
    if (left < cells * weight) return cell + Math.floor(left / weight);
    left -= cells * weight;
    cell += cells;
  }
  throw new Error("there is no such cell");
}

/** Return the part of a cell. */
function partOf({ plan }: CompiledMetric, cell: number): Part {
  let place = cell % plan.cells.parts.reduce((sum, part) => sum + part.cells, 0);
  return plan.cells.parts.find((part) => (place -= part.cells) < 0)!;
}

function integersOf(texts: Readonly<Record<string, string>>): Integers {
  const read = ([name, text]: [string, string]) => [name, /^threshold/.test(name) ? BigInt(text) : Number(text)];
  return Object.fromEntries(Object.entries(texts).map(read));
}

/** What the reports of a cell are made by. */
export interface Made {
  readonly name: string;
  readonly mechanism: Mechanism;
  /** The integers that say what a report looks like: those of the memo where there is one. */
  readonly integers: Integers;
  /** Those of the fresh noise. */
  readonly parameters: Integers;
}

/** @internal Return what the reports of a cell are made by. */
export async function madeBy(metric: CompiledMetric, cell: number): Promise<Made> {
  const { mechanism: name, parameters, memo } = partOf(metric, cell);
  const { mechanisms } = await partsOf(metric);
  const fresh = integersOf(parameters);
  return { name, mechanism: mechanisms[name]!, integers: memo ? integersOf(memo) : fresh, parameters: fresh };
}

/** @internal Return the value of an answer in a cell. `threshold` are the 64 bits that the device keeps. */
export async function valueIn(
  metric: CompiledMetric,
  cell: number,
  answer: Answer,
  coins: Coins,
  threshold: () => bigint,
): Promise<Value> {
  const { plan } = metric;
  const nothing = answer === NOTHING;
  if (nothing && plan.presence !== "hidden") throw new Error(`${plan.metric} is not hidden`);
  const { name: mechanism, integers } = await madeBy(metric, cell);
  const { domains, normal } = await partsOf(metric);
  const { domain, kind } = plan;
  const made = { mechanism, integers, cell, coins, nothing, domains, threshold, normal };
  const question: Question = { domain, alphabet: metric.alphabet, kind, ...made };
  const valueOf = domains[domain.domain]!;
  try {
    return valueOf(nothing ? undefined : answer, question);
  } catch {
    return valueOf(undefined, question); // an answer whose own methods throw: silence would be an answer
  }
}

/** Return a report of an answer, as on the wire; of a memoized metric a report of the answer's memo. */
export async function makeReport(
  metric: CompiledMetric,
  cell: number | undefined,
  answer: Answer,
  coins: Coins,
  memo: Memo,
): Promise<number | string> {
  if (metric.memo_key) return reportOfClass(metric, cell, await classOf(metric, cell, answer, memo), coins, memo);
  const { mechanism, integers } = await madeBy(metric, cell ?? 0);
  const value = await valueIn(metric, cell ?? 0, answer, coins, () => 0n);
  return mechanism.write(mechanism.randomize(integers, value, coins), integers);
}

/** Return what a memoized metric is charged for: all that the memo sees of an answer, as a text. */
export async function classOf(
  metric: CompiledMetric,
  cell: number | undefined,
  answer: Answer,
  memo: Memo,
): Promise<string> {
  const coins = await keyedCoins(memo, `${metric.memo_key} class`);
  return JSON.stringify(await valueIn(metric, cell ?? 0, answer, coins, () => coins.bits64()));
}

/** Return a report of the memo of a class, as on the wire. */
export async function reportOfClass(
  metric: CompiledMetric,
  cell: number | undefined,
  memoClass: string,
  coins: Coins,
  memo: Memo,
): Promise<number | string> {
  const made = await madeBy(metric, cell ?? 0);
  const lasting = await keyedCoins(memo, `${metric.memo_key} ${cell ?? 0} ${memoClass}`);
  const permanent = made.mechanism.randomize(made.integers, JSON.parse(memoClass) as Value, lasting);
  return made.mechanism.write(repeat(made, permanent, coins), made.integers);
}

/** @internal Draw a report of a memo. Any report is drawn beside it, whether it is kept or not. */
export function repeat({ mechanism, integers, parameters }: Made, memo: Report, coins: Coins): Report {
  if (mechanism.repeat) return mechanism.repeat(integers, parameters, memo, coins);
  const kept = coins.coin(parameters.threshold_keep);
  const other = mechanism.any!(integers, coins);
  return kept ? memo : other;
}

async function keyedCoins({ secret }: Memo, context: string): Promise<Coins> {
  return new Coins(bitsOf((await keyed()).keyedBlocks(secret, context)));
}
