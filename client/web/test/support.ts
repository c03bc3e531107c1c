/** What the tests share: registries made by hand, a device with a clock. It runs in browsers, too. */

import { DAY_MS, type Draw } from "../src/days.ts";
import * as consent from "../src/consent.ts";
import { Device, emptyState, type Made, type State } from "../src/device.ts";
import { canonical, type CompiledMetric, type CompiledRegistry } from "../src/registry.ts";
import { sha256, utf8 } from "../src/sha256.ts";

/** Noon of a Thursday, which is divisible by 7 in days since 1970. */
export const DAY = 20_601;
export const NOON = (DAY + 0.5) * DAY_MS;
export const KEY = "k3y";

export const hex = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
export const isoDay = (day: number) => new Date(day * DAY_MS).toISOString().slice(0, 10);

export interface Asked {
  name?: string;
  kind?: "flag" | "choice";
  values?: string[];
  presence?: "public" | "hidden";
  report?: number;
  permanent?: number;
  charges?: number;
  period?: number;
  expires?: number;
  schedule?: "early" | "spread";
  rev?: number;
  linked?: number;
  question?: string;
}

/** Return a metric of generalised randomised response, as it is compiled. */
export function metricOf(asked: Asked = {}): CompiledMetric {
  const { name = "dark", kind = "flag", presence = "public", report = 1_000_000, permanent = 0 } = asked;
  const { charges = 3, period = 1, expires = DAY + 300, schedule = "early", rev = 1, linked = 0 } = asked;
  const listed = asked.values ?? ["a", "b", "c"];
  const none = presence == "hidden" ? ["none"] : [];
  const values = kind == "flag" ? ["no", "yes", ...none] : [...listed, "other", ...none];
  const d = `${values.length}`;
  const part = permanent
    ? {
        mechanism: "grr",
        parameters: { d, threshold_keep: "9223372036854775808" },
        memo: { d, threshold: "13835058055282163712" },
        cells: 1,
        weight: 1,
      }
    : { mechanism: "grr", parameters: { d, threshold: "13835058055282163712" }, cells: 1, weight: 1 };
  const plan = {
    metric: name,
    rev,
    presence,
    kind,
    domain: { domain: "values", values },
    cells: { drawn: "report" as const, parts: [part] },
  };
  const digest = hex(sha256(utf8(canonical(plan)))).slice(0, 16);
  const cost = permanent || report;
  const terms = {
    question: asked.question ?? "What?",
    kind,
    values: "v",
    sensitivity: "low" as const,
    presence,
    report,
    permanent,
    charges,
    lifetime: charges * cost,
    period_days: period,
    expires: isoDay(expires),
    cells: 0,
    linked,
  };
  const memo_key = permanent ? hex(sha256(utf8(canonical([name, plan.cells.parts, values])))) : "";
  return { plan, digest, memo_key, schedule, terms };
}

export interface Whole {
  quiet?: number;
  epsilon?: number;
  linked?: number;
  linkable?: boolean;
  evicted?: boolean;
  app?: string;
}

/** Return a compiled registry of metrics. */
export function registryOf(
  metrics: Asked[],
  { quiet = 0, epsilon = 100e6, linked = 0, linkable = false, evicted = false, app = "app" }: Whole = {},
): CompiledRegistry {
  const rest = {
    dither_registry: 1 as const,
    app,
    quiet_days: quiet,
    evicted,
    public: null,
    terms: { epsilon, linked, linkable },
    sentences: [{ metric: "", template: "At most {number} in {{all}}.", facts: { number: 3 } }],
    metrics: metrics.map(metricOf),
  };
  return { ...rest, digest: hex(sha256(utf8(canonical(rest)))) };
}

/** A device without telemetry around it: its state, its clock, and draws that count up. */
export class Bench {
  state: State = emptyState();
  now = NOON;
  registry: CompiledRegistry;
  drawn = 0n;
  draw: Draw = (_what, n) => (this.drawn += 7n) % BigInt(n);

  constructor(registry: CompiledRegistry, agrees = true) {
    this.registry = registry;
    if (agrees) this.do((device) => device.begin(true));
  }

  /** Take a step as the storage does: on a copy that replaces the state. */
  do<T>(step: (device: Device) => T): T {
    const state = JSON.parse(JSON.stringify(this.state)) as State;
    const result = step(new Device(this.registry, this.registry.quiet_days, this.draw, state, this.now, consent));
    this.state = state;
    return result;
  }

  /** Go on with another registry, as after an upgrade of the app. */
  upgrade(registry: CompiledRegistry, agrees = true): void {
    this.registry = registry;
    if (agrees) this.do((device) => device.agree());
    else this.do((device) => device.begin(undefined));
  }

  days(count: number): void {
    this.now += count * DAY_MS;
  }

  metric(name = "dark"): CompiledMetric {
    return this.registry.metrics.find(({ plan }) => plan.metric == name)!;
  }

  made(report: number, key?: string): Made {
    return { secret: this.state.secret!, cell: undefined, report, class: key };
  }

  record(name = "dark", report = 1, key?: string): string {
    return this.do((device) => {
      const ground = device.ground(this.metric(name));
      if (typeof ground == "string") return ground;
      const made = this.made(report, key === undefined ? undefined : device.classFor(this.metric(name), key));
      return device.record(this.metric(name), made);
    });
  }

  /** Look, and say `report` for each hidden metric. */
  look(report = 2) {
    const opening = this.do((device) => device.unopened());
    return this.do((device) =>
      device.look(
        new Map(opening.map(([metric]) => [metric, this.made(report, metric.memo_key ? "none" : undefined)])),
      ),
    );
  }

  /** Arm and attempt what is due; return the upload. */
  send() {
    const { upload } = this.do((device) => device.arm());
    return upload && this.do((device) => device.attempt(upload.id, { unsent: upload.id }));
  }

  /** Arm, attempt and have it accepted; return how many reports were. */
  deliver(date?: number): number {
    const upload = this.send();
    return upload
      ? this.do((device) => device.settle(upload.id, { step: "accepted", detail: "accepted", date }))
          .accepted
      : 0;
  }

  spent(name = "dark"): number {
    return this.state.metrics[name]?.spent ?? 0;
  }

  why(name = "dark"): string {
    return this.do((device) => device.taken(this.metric(name)).silent);
  }
}

/** Numbers that look random, the same for each seed (mulberry32). */
export function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Wait until a condition holds; throw after ten seconds. */
export async function waitUntil(holds: () => boolean | Promise<boolean>): Promise<void> {
  const until = performance.now() + 10_000;
  while (!(await holds())) {
    if (performance.now() > until) throw new Error(`it never held: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
