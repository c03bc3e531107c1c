/** The state of telemetry that an app can see, loaded where it asks. Nothing here is sent. */

import type { Decision, Device, Silence, State } from "./device.ts";
import type { CompiledMetric, CompiledRegistry } from "./registry.ts";

/** Whether a metric takes an answer now. */
export interface MetricStatus {
  /** Why it does not, in a word of client/device.md such as "answered", or "unloaded"; "" if it does. */
  silent: Silence | "";
  /** The first UTC day on which that may be over, as YYYY-MM-DD; undefined if it is not over by itself. */
  until: string | undefined;
}

/** The state of telemetry, for a settings page or a bug report. */
export interface Status {
  /** Why nothing is recorded or sent at all; "" while something is. */
  silent: string;
  /** Reports that wait to be sent. */
  waiting: number;
  /** Epsilon charged so far, by metric. */
  spent: Record<string, number>;
  /** Reports accepted; answers and reports not sent, by reason. */
  counts: Record<string, number>;
  /** Terms beyond what the person agreed to, by metric, and by "" for all: silent until `setConsent(true)`. */
  asks: Record<string, string[]>;
  /** Metrics that the person refuses. */
  refused: string[];
  metrics: Record<string, MetricStatus>;
  /** The outcome of the last attempt to send, and the moment of the next one. */
  sending: { outcome: string; last: Date | undefined; next: Date | undefined; heldUntil: Date | undefined };
  development: boolean;
  /** Whether to ask the person: they have not chosen yet, or not agreed to all that the registry asks. */
  ask: boolean;
}

/** What the telemetry object knows beside its device. */
export interface Told {
  /** Why nothing is recorded or sent at all; "" while something is. */
  silent: string;
  /** The word for that, for each metric. */
  word: Silence;
  /** Answers that were not taken in this page, by reason. */
  noted: Readonly<Record<string, number>>;
  /** The metrics whose modules are here. */
  loaded: ReadonlySet<CompiledMetric>;
  development: boolean;
}

/** Return the status of a device, or of none where nothing was ever kept. */
export function statusOf(registry: CompiledRegistry, told: Told, device?: Device, state?: State): Status {
  const { silent, word, noted, loaded, development } = told;
  const rows = Object.entries(state?.metrics ?? {});
  const counts = { ...noted };
  for (const [reason, count] of Object.entries(state?.counts ?? {})) counts[reason] = count + (counts[reason] ?? 0);
  const asks = device && state?.agreed ? device.asks() : {};
  const decide = (metric: CompiledMetric): Decision => {
    const decision = device && !silent ? device.nothingLeaves(metric) : { silent: word };
    return !loaded.has(metric) && ["", "unopened"].includes(decision.silent) ? { silent: "unloaded" } : decision;
  };
  const [next, heldUntil] = device?.next ?? [0, 0];
  return {
    silent,
    waiting: device?.waiting ?? 0,
    spent: Object.fromEntries(rows.filter(([, row]) => row.spent).map(([name, row]) => [name, row.spent / 1e6])),
    counts,
    asks,
    refused: rows.filter(([, row]) => row.refused).map(([name]) => name),
    metrics: Object.fromEntries(registry.metrics.map((metric) => [metric.plan.metric, metricStatus(decide(metric))])),
    sending: {
      outcome: device?.outcome ?? "",
      last: moment(state?.outcomeAt),
      next: moment(next),
      heldUntil: moment(heldUntil),
    },
    development,
    ask: word == "not-agreed" || (word != "refused" && Object.keys(asks).length > 0),
  };
}

/** Return why a flush has sent nothing, by metric: of a hidden one the same whether it was answered or not. */
export function nothingSent(registry: CompiledRegistry, metrics: Status["metrics"]): string {
  const parts = registry.metrics.map(({ plan, terms }) => {
    const { silent, until } = metrics[plan.metric]!;
    const isOpen = ["", "answered", "unopened", "waiting"].includes(silent);
    const why = terms.presence == "hidden" && isOpen ? "hidden" : silent || "nothing was recorded";
    return `${plan.metric}: ${why}${until && why != "hidden" ? ` until ${until}` : ""}`;
  });
  return `nothing to send: ${parts.join("; ")}`;
}

function metricStatus({ silent, until }: Decision): MetricStatus {
  return { silent, until: until ? new Date(until * 86_400_000).toISOString().slice(0, 10) : undefined };
}

function moment(ms: number | undefined): Date | undefined {
  return ms ? new Date(ms) : undefined;
}
