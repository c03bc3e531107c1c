/**
 * What other metrics need than flags and choices by generalised randomised response: domains and mechanisms, each a
 * module; cells, and the public column. A page loads this where its registry asks for it.
 */

import type { Coins } from "./coins.ts";
import { values } from "./domains/values.ts";
import { grr } from "./mechanisms/grr.ts";
import type { CompiledMetric, CompiledRegistry, Domain, Part } from "./registry.ts";
import type { Loaded, Mechanism, ValueOf } from "./report.ts";

const KINDS = ["flag", "choice", "choices", "text", "number", "words", "table"];

type Modules = Readonly<Record<string, () => Promise<unknown>>>;
const numbers = () => import("./domains/numbers.ts");
const texts = () => import("./domains/texts.ts");
const DOMAINS: Modules = {
  values: async () => ({ values }),
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
  grr: async () => ({ grr }),
  pgr: symbols,
  window: symbols,
  ss: sets,
  privset: sets,
  oue: sets,
  sue: sets,
  rappor: sets,
};

/** Fetch all that reports of a metric need. Throw for a kind, domain or mechanism that is not known. */
export async function fetchParts({ plan, memo_key }: CompiledMetric): Promise<Loaded> {
  if (!KINDS.includes(plan.kind)) throw new Error(`${plan.metric}: unknown kind ${plan.kind}`);
  const asked = [plan.domain, ...((plan.domain["domains"] as readonly Domain[] | undefined) ?? [])];
  const [domains, mechanisms] = await Promise.all([
    entries<ValueOf>(DOMAINS, asked.map((one) => one.domain)),
    entries<Mechanism>(MECHANISMS, plan.cells.parts.map((part) => part.mechanism)),
    memo_key && import("./memo.ts"),
  ]);
  // A list without a value beyond ASCII has none in a form that needs the table of Unicode 14.
  const wide = /[^\0-\x7f]/.test(JSON.stringify(plan.domain)) || "characters_max" in plan.domain;
  const normal = wide ? (await texts()).normal : (text: string) => text.normalize();
  return { domains, mechanisms, normal, drawCell, partOf };
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
export function partOf({ plan }: CompiledMetric, cell: number): Part {
  let place = cell % plan.cells.parts.reduce((sum, part) => sum + part.cells, 0);
  return plan.cells.parts.find((part) => (place -= part.cells) < 0)!;
}

/** Return the place of the device's public value; throw for one that the registry does not have. */
export function placeOf(
  value: Readonly<Record<string, string>> | undefined,
  { public: column }: CompiledRegistry,
): number {
  if (!column) {
    if (value) throw new TypeError("the registry has no public column: leave public out");
    return 0;
  }
  const place = column.values.indexOf(`${value?.[column.name]}`.normalize());
  if (place < 0) throw new TypeError(`public must have ${column.name}: one of ${column.values.join(", ")}`);
  return place;
}
