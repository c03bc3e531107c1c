/**
 * Plays the scenes of a device's life that every client is held against (tests/vectors/devices.json, client/device.md):
 * in Node here, and in browsers by tests/web/vectors.ts.
 *
 * Draws have names there, and are handed in where this device draws. It charges an upload when it is made ready to
 * leave: what is armed and has not left counts as not charged yet. A page cannot tell that there was no connection, so
 * the two scenes of that are another's.
 */

import { periodsOf } from "../src/days.ts";
import { bodyOf, isHidden, type Made } from "../src/device.ts";
import type { CompiledMetric, CompiledRegistry } from "../src/registry.ts";
import { readAnswer } from "../src/sending.ts";
import { Bench } from "./support.ts";

interface Draws {
  schedule?: Record<string, number[]>;
  cohort?: number;
  reports?: Record<string, { cell: number | null; value: unknown; report: number | string; repeats?: unknown }>;
  uploads?: string[];
  moment_s?: number;
  backoff_s?: number;
}

interface Step {
  at: number;
  do: "start" | "record" | "look" | "send" | "agree" | "refuse" | "forget";
  consent?: boolean | null;
  metric?: string;
  answer?: { status: number; headers: Record<string, string>; body: string } | "no answer" | "no connection";
  draws: Draws;
  then: { silent?: string; sent?: string | null; simple?: string; outcome?: string; state: Expected };
}

interface Expected {
  off?: true;
  silent: Record<string, [why: string, until: number | null]>;
  spent: Record<string, number>;
  waiting: number;
  counters: Record<string, number>;
  next: number | null;
  held_until: number | null;
}

interface Scene {
  name: string;
  registry: string;
  steps: Step[];
}

/** The document of tests/vectors/devices.json. */
export interface Scenes {
  key: string;
  registries: Record<string, { compiled: CompiledRegistry }>;
  scenes: Scene[];
}

/** Told of what came, and of what was to come: it says where they differ. */
export type Check = (what: string, came: unknown, expected: unknown) => void;

const ELSEWHERE = ["no connection", "an attempt without a connection begins no six days"];
const BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** A device that plays a scene. */
class Played extends Bench {
  noted: Record<string, number> = {};
  draws: Draws = {};
  ids: string[] = [];
  consent: boolean | undefined;
  candidates = new Map<string, number[]>();
  key: string;
  check: Check;

  constructor(registry: CompiledRegistry, key: string, check: Check) {
    super(registry, false);
    this.key = key;
    this.check = check;
    this.draw = (what, n) => this.named(what) % BigInt(n);
  }

  named(what: string): bigint {
    const { draws } = this;
    if (what == "cohort") return BigInt(draws.cohort ?? 0);
    if (what == "moment") return BigInt((draws.moment_s ?? 0) * 1_000);
    if (what == "backoff") return BigInt((draws.backoff_s ?? 0) * 1_000);
    if (what == "secret") return 1n;
    if (what == "upload")
      return [...this.ids.shift()!].reduce((bits, digit) => (bits << 6n) | BigInt(BASE64URL.indexOf(digit)), 0n) >> 4n;
    const [name, days] = Object.entries(draws.schedule!).find(([, left]) => left.length)!;
    const candidates = this.candidates.get(name) ?? periodsOf(this.metric(name));
    this.candidates.set(name, candidates);
    const place = candidates.indexOf(days.shift()!);
    candidates.splice(place, 1);
    return BigInt(place);
  }

  get off(): boolean {
    return (this.state.consent ?? this.consent) !== true;
  }

  of(metric: CompiledMetric): Made {
    const { cell, value, report, repeats } = this.draws.reports![metric.plan.metric]!;
    const wanted = metric.memo_key ? JSON.stringify(value) : undefined;
    const answered = wanted && this.do((device) => device.classFor(metric, wanted));
    if (repeats !== undefined) this.check("the class that is repeated", answered, JSON.stringify(repeats));
    return { secret: this.state.secret!, cell: cell ?? undefined, report, class: answered };
  }

  lookAround() {
    const opening = this.do((device) => device.unopened());
    return this.do((device) => device.look(new Map(opening.map(([metric]) => [metric, this.of(metric)]))));
  }

  play(step: Step): { silent?: string; sent?: string | null; simple?: string; outcome?: string } {
    this.now = step.at * 1_000;
    this.draws = step.draws;
    this.ids.push(...(step.draws.uploads ?? []));
    const metric = step.metric === undefined ? undefined : this.metric(step.metric);
    if (step.do == "start") {
      this.consent = step.consent ?? undefined;
      if (this.off) return {};
      this.do((device) => (device.begin(this.consent), device.tryKey()));
      this.lookAround();
    } else if (step.do == "agree") this.do((device) => device.agree(step.metric));
    else if (step.do == "refuse") this.do((device) => device.refuse(step.metric));
    else if (step.do == "forget") this.do((device) => device.forget());
    else if (step.do == "look") this.lookAround();
    else if (step.do == "record") return { silent: this.take(metric!) };
    else return this.attempt(step);
    return {};
  }

  take(metric: CompiledMetric): string {
    if (this.off) return "off";
    if (!isHidden(metric)) this.lookAround(); // a page looks each minute
    const ground = this.do((device) => device.ground(metric));
    const silent = typeof ground == "string" ? ground : this.do((device) => device.record(metric, this.of(metric)));
    if (silent && !isHidden(metric)) this.noted[silent] = (this.noted[silent] ?? 0) + 1;
    return silent;
  }

  attempt({ answer }: Step) {
    if (this.off) return {};
    const { due, heldUntil } = this.lookAround();
    const armed = due && heldUntil <= this.now ? this.do((device) => device.arm()) : {};
    const left = armed.upload && this.do((device) => device.attempt(armed.upload!.id, armed));
    if (!left) return { sent: null };
    const outcome =
      typeof answer == "object"
        ? readAnswer(answer.status, new Headers(answer.headers), answer.body, left.id, this.now)
        : { step: "kept" as const, detail: "no answer" };
    this.do((device) => device.settle(left.id, outcome));
    return { sent: bodyOf(left), simple: bodyOf(left, this.key), outcome: outcome.step };
  }

  seen(): Expected | { off: true } {
    if (this.off) return { off: true };
    return this.do((device) => {
      const silent: Expected["silent"] = {};
      for (const metric of this.registry.metrics) {
        const { silent: why, until } = device.nothingLeaves(metric);
        if (why) silent[metric.plan.metric] = [why, until ?? null];
      }
      const spent = Object.fromEntries(this.registry.metrics.map(({ plan }) => [plan.metric, this.spent(plan.metric)]));
      for (const { costs, attempts, armed } of this.state.uploads) {
        if (!attempts && armed) for (const [name, cost] of Object.entries(costs)) spent[name]! -= cost;
      }
      const counters = { ...this.state.counts };
      for (const [why, count] of Object.entries(this.noted)) counters[why] = count + (counters[why] ?? 0);
      const [next, held_until] = device.next.map((moment) => (moment ? moment / 1_000 : null));
      return { silent, spent, waiting: device.waiting, counters, next: next!, held_until: held_until! };
    });
  }
}

/** Return the scenes that are a page's, too. */
export function scenesOf({ scenes }: Scenes): Scene[] {
  return scenes.filter(({ name }) => !ELSEWHERE.includes(name));
}

/** Play a scene; check what each step does, and what is seen after it. */
export function playScene({ registries, key }: Scenes, { registry, steps }: Scene, check: Check): void {
  const played = new Played(registries[registry]!.compiled, key, check);
  steps.forEach((step, place) => {
    const done = played.play(step);
    const { state, ...then } = step.then;
    const where = `step ${place}, ${step.do}`;
    for (const [what, value] of Object.entries(done)) {
      if (what in then || value) check(`${where}: ${what}`, value, (then as Record<string, unknown>)[what]);
    }
    const seen = played.seen();
    // A moment that was planned for what waits no more is kept by one client, and dropped by another.
    const drawn = step.draws.moment_s !== undefined || step.draws.backoff_s !== undefined;
    if ("next" in seen && !drawn) seen.next = state.next;
    check(where, seen, state);
  });
}
