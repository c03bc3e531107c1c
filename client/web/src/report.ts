/**
 * From an answer to a report, by a metric's plan (shared/reports.md).
 *
 *     answer --domain--> value of its cell --mechanism--> report, or memo and then a report of it --> as on the wire
 *
 * Domains and mechanisms are modules that `load` fetches where a plan asks for them. It is called before any answer
 * comes, so that nothing that is fetched depends on one.
 */

import type { Coins } from "./coins.ts";
import { values } from "./domains/values.ts";
import type * as Kinds from "./kinds.ts";
import { grr } from "./mechanisms/grr.ts";
import type { Alphabet, CompiledMetric, Domain, Part } from "./registry.ts";

/** Whatever a page says. All that its domain does not ask for is "other", or what stands for it. */
export type Answer = unknown;
/** The answer of a device with nothing to report, where presence is hidden. */
export const NOTHING: unique symbol = Symbol("nothing");

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

/** What reports of a metric are made with. */
export interface Loaded {
  readonly domains: Readonly<Record<string, ValueOf>>;
  readonly mechanisms: Readonly<Record<string, Mechanism>>;
  readonly normal: (text: string) => string;
  /** What draws and tells cells; not there in the plainest plans, which have one. */
  readonly drawCell?: typeof Kinds.drawCell;
  readonly partOf?: typeof Kinds.partOf;
}

const loaded = new WeakMap<CompiledMetric, Promise<Loaded>>();
const PLAIN: Loaded = {
  domains: { values },
  mechanisms: { grr },
  normal: (text) => text.normalize(),
};

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

/** A flag, or a choice of listed values in ASCII, by GRR with fresh noise needs nothing else. */
async function fetchParts(metric: CompiledMetric): Promise<Loaded> {
  const { kind, domain, cells } = metric.plan;
  const [{ mechanism, cells: each }, another] = cells.parts as [Part, ...Part[]];
  const named = `${kind} ${domain.domain} ${mechanism} ${each} ${cells.public} ${another} ${metric.memo_key}`;
  const isAscii = !/[^\0-\x7f]/.test(`${domain["values"]}`);
  const isPlain = isAscii && /^(flag|choice) values grr 1 undefined undefined $/.test(named);
  return isPlain ? PLAIN : (await import("./kinds.ts")).fetchParts(metric);
}

/** Return the cell of a report, drawn before its answer is looked at; undefined in a plan with one cell. */
export async function cellOf(
  metric: CompiledMetric,
  cohort: number,
  place: number,
  coins: Coins,
): Promise<number | undefined> {
  return (await partsOf(metric)).drawCell?.(metric, cohort, place, coins);
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
  const { mechanisms, partOf } = await partsOf(metric);
  const { mechanism: name, parameters, memo } = partOf?.(metric, cell) ?? metric.plan.cells.parts[0]!;
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

/** Return a report of an answer with fresh noise, as on the wire. */
export async function makeReport(
  metric: CompiledMetric,
  cell: number | undefined,
  answer: Answer,
  coins: Coins,
): Promise<number | string> {
  const { mechanism, integers } = await madeBy(metric, cell ?? 0);
  const value = await valueIn(metric, cell ?? 0, answer, coins, () => 0n);
  return mechanism.write(mechanism.randomize(integers, value, coins), integers);
}
