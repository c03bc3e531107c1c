/**
 * The compiled registry, as `dither metrics compile` writes it: its types.
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

/** Return the registry; throw for a document that is none. Whether it is whole is a further question. */
export function registryIn(document: unknown): CompiledRegistry {
  if ((document as CompiledRegistry)?.dither_registry !== 1) {
    throw new TypeError("registry must be the parsed metrics.json that `dither metrics compile` writes");
  }
  const measured = (document as CompiledRegistry).metrics?.find((metric) => metric.measures);
  if (measured) {
    throw new TypeError(`${measured.plan.metric} measures ${measured.measures}: a page cannot`);
  }
  return document as CompiledRegistry;
}

/** Return a registry whose metrics are answered from a new device's first period on. */
export function withoutWaiting(registry: CompiledRegistry): CompiledRegistry {
  const metrics = registry.metrics.map((metric) => ({ ...metric, schedule: "early" as const }));
  return { ...registry, quiet_days: 0, metrics };
}

/** Tell whether the presence of a metric's answers is hidden. */
export function isHidden(metric: CompiledMetric): boolean {
  return metric.terms.presence == "hidden";
}
