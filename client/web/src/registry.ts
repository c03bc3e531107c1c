/**
 * The compiled registry, as `dither metrics compile` writes it: its types, and the check that it is whole.
 *
 * shared/compiled.md describes the document. Integers that may be above 2^53 are texts in it, so that JSON.parse rounds
 * none of them.
 */

/** Integers of a mechanism by their names, each as a text. */
export type Integers = Readonly<Record<string, string>>;

/** So many cells that are alike, with the mechanism of their reports. */
export interface Part {
  readonly mechanism: string;
  readonly parameters: Integers;
  readonly memo?: Integers;
  readonly cells: number;
  readonly weight: number;
}

/** The cells of a metric, and who draws them. */
export interface Cells {
  readonly drawn: "device" | "report";
  readonly public?: number;
  readonly parts: readonly Part[];
}

/** A metric's domain. Its fields depend on the form that `domain` names. */
export interface Domain {
  readonly domain: string;
  readonly [field: string]: unknown;
}

/** The plan by which a metric's reports are made and read. */
export interface Plan {
  readonly metric: string;
  readonly rev: number;
  readonly presence: "public" | "hidden";
  readonly kind: string;
  readonly domain: Domain;
  readonly cells: Cells;
}

/** The terms of one metric that a person agrees to. Costs are in micro-epsilon. */
export interface Terms {
  readonly question: string;
  readonly kind: string;
  readonly values: string;
  readonly sensitivity: "low" | "medium" | "high";
  readonly presence: "public" | "hidden";
  /** The cost of one report. */
  readonly report: number;
  /** The cost of one memoized answer with all its reports; 0 where every report has fresh noise. */
  readonly permanent: number;
  /** The most reports or, memoized, different answers, ever. */
  readonly charges: number;
  /** The most that the metric may cost, ever. */
  readonly lifetime: number;
  readonly period_days: number;
  readonly expires: string;
  readonly cells: number;
  readonly linked: number;
}

/** The table of one script (shared/reports.md, "Alphabets"). */
export interface Script {
  readonly groups: readonly string[];
  readonly pieces: readonly string[];
  /** More pieces, in groups of 2^k, with spaces between them. */
  readonly words?: readonly string[];
  readonly after: string;
  readonly lengths: readonly string[];
}

/** The code of words in other scripts than English. */
export interface Alphabet {
  readonly scripts: readonly Script[];
  readonly choice: string;
}

/** One metric of the registry. */
export interface CompiledMetric {
  readonly plan: Plan;
  readonly digest: string;
  readonly memo_key: string;
  readonly schedule: "spread" | "early";
  /** What a device answers of its own use: a registry with it is refused. */
  readonly measures?: string;
  /** The table that the plan names by its digest. */
  readonly alphabet?: Alphabet;
  readonly terms: Terms;
}

/** The terms of all metrics together. */
export interface DeviceTerms {
  readonly epsilon: number;
  readonly linked: number;
  readonly linkable: boolean;
  /** Whether it was meant that a browser may delete what is kept, and all of it begins anew. */
  readonly evicted?: boolean;
}

/** One sentence of the terms: English as a template, with the facts that stand in its braces. */
export interface TermsSentence {
  readonly metric: string;
  readonly template: string;
  readonly facts: Readonly<Record<string, string | number>>;
}

/** A registry with every choice made. */
export interface CompiledRegistry {
  readonly dither_registry: 1;
  readonly digest: string;
  readonly app: string;
  readonly quiet_days: number;
  readonly evicted?: boolean;
  readonly public: { readonly name: string; readonly values: readonly string[] } | null;
  readonly terms: DeviceTerms;
  readonly sentences: readonly TermsSentence[];
  readonly metrics: readonly CompiledMetric[];
}

/** Return a document as canonical JSON (shared/wire.md): sorted keys, no spaces, ASCII. Its numbers are integers. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical)}]`;
  if (value && typeof value == "object") {
    const entries = Object.entries(value).sort(([a], [b]) => byCodePoint(a, b));
    return `{${entries.map(([key, inner]) => `${canonical(key)}:${canonical(inner)}`)}}`;
  }
  if (typeof value == "number" && !Number.isSafeInteger(value)) throw new TypeError("a number is no integer");
  return JSON.stringify(value).replace(
    /[\x7f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function byCodePoint(a: string, b: string): number {
  const [left, right] = [[...a], [...b]];
  const place = left.findIndex((character, index) => character != right[index]);
  if (place < 0) return left.length - right.length;
  return left[place]!.codePointAt(0)! - (right[place]?.codePointAt(0) ?? -1);
}

/** Return the registry; throw for a document that is none. Whether it is whole is a further question. */
export function registryIn(document: unknown): CompiledRegistry {
  if ((document as CompiledRegistry)?.dither_registry !== 1) {
    throw new TypeError("registry must be what `dither metrics compile` writes, of version 1: the parsed metrics.json");
  }
  const { metrics } = document as CompiledRegistry;
  const name = metrics?.find(({ plan }) => plan?.metric in {})?.plan.metric; // what each object has already
  if (name) throw new TypeError(`a page cannot have a metric that is named ${name}: name it otherwise`);
  const measured = metrics?.find((metric) => metric.measures);
  if (measured) {
    throw new TypeError(`${measured.plan.metric} measures ${measured.measures}, which a page cannot: leave it out`);
  }
  return document as CompiledRegistry;
}

/**
 * Tell whether a document is what its digest says: not damaged, and not changed by hand; and its alphabets what its
 * plans name, by which each text has a code.
 */
export async function isWhole(registry: CompiledRegistry): Promise<boolean> {
  const { digest, ...rest } = registry;
  let whole = digest == (await digestOf(rest));
  for (const { plan, alphabet } of registry.metrics) {
    const named = plan.domain["alphabet"];
    if (named) whole &&= named == (await digestOf(alphabet)) && isCode(alphabet!);
  }
  return whole;
}

async function digestOf(document: unknown): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical(document)));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Tell whether each text has one code by a table: what a device in Python refuses of one is refused here, too. */
function isCode({ scripts, choice }: Alphabet): boolean {
  const several = scripts.length > 1;
  const filled = (row: string, symbols: number): boolean =>
    row.length == symbols &&
    /^[a-p]+$/.test(row) &&
    [...row].reduce((sum, letter) => sum + 2 ** (0x60 - letter.charCodeAt(0)), 0) == 1;
  return (
    scripts.length > 0 &&
    filled(text(choice), (several ? scripts.length : 0) + 2) &&
    scripts.every(({ groups, pieces, words = [], after, lengths }) => {
      const characters = texts(groups).map((group) => [...group]);
      const others = [...texts(pieces).map((piece) => [piece]), ...texts(words).map((some) => some.split(" "))];
      const symbols = [...characters, ...others];
      return (
        !(several && others.length) &&
        others.flat().every((piece) => [...piece].length > 1) &&
        new Set(symbols.flat()).size == symbols.flat().length &&
        symbols.every(({ length }) => Math.log2(length) % 1 == 0) &&
        text(after).length == symbols.length &&
        lengths.length > 1 &&
        [...after].every((letter) => letter >= "a" && letter.charCodeAt(0) - 0x61 < lengths.length) &&
        texts(lengths).every((row) => filled(row, symbols.length + 2))
      );
    })
  );
}

/** Return a text, or a list of texts; throw for what is none: letters in a list would do at first. */
function text(value: string): string {
  if (typeof value != "string") throw new TypeError("a table must have texts");
  return value;
}

function texts(values: readonly string[]): readonly string[] {
  if (!Array.isArray(values)) throw new TypeError("a table must have lists");
  return values.map(text);
}

/** Return a registry whose metrics are answered from a new device's first period on. */
export function withoutWaiting(registry: CompiledRegistry): CompiledRegistry {
  const metrics = registry.metrics.map((metric) => ({ ...metric, schedule: "early" as const }));
  return { ...registry, quiet_days: 0, metrics };
}
