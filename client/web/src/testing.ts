/** The telemetry object of an app's tests: a device in memory, a clock that the test moves, nothing that leaves. */

import { registryIn, withoutWaiting } from "./registry.ts";
import { DAY_MS } from "./days.ts";
import { load } from "./report.ts";
import { MemoryStorage } from "./storage.ts";
import { type Answers, type Handles, systemDraw, Telemetry } from "./telemetry.ts";

/** One answer that the app recorded. */
export interface Recorded {
  metric: string;
  answer: unknown;
  /** Why it is not reported, such as "answered": not in this period again; "" if it is. */
  silent: string;
}

/** A telemetry object that shows what the app recorded. A `spread` metric answers from its first period here. */
export class TelemetryForTests<M extends Answers = Record<string, unknown>> extends Telemetry<M> {
  readonly #recorded: Recorded[];
  readonly #clock: { now: number };

  constructor(registry: unknown, consent: boolean | undefined) {
    const recorded: Recorded[] = [];
    const clock = { now: Math.floor(Date.now() / DAY_MS) * DAY_MS + DAY_MS / 2 }; // noon, so that a day is whole
    super({
      registry: withoutWaiting(registryIn(registry)),
      route: {
        url: "",
        key: "",
        simple: false,
        fetch: () => Promise.reject(new Error("the network is refused in tests")),
      },
      storage: new MemoryStorage(),
      load,
      shared: undefined,
      consent,
      silent: "",
      place: 0,
      development: false,
      persist: false,
      now: () => clock.now,
      draw: systemDraw(),
      warn: (message) => {
        throw new Error(message); // a metric that does not exist, a choice that is none
      },
      note: (metric, answer, silent) => recorded.push({ metric, answer, silent }),
    });
    this.#recorded = recorded;
    this.#clock = clock;
  }

  /** Return what the app recorded so far, in order. */
  async recorded(): Promise<Recorded[]> {
    await this.settled();
    return [...this.#recorded];
  }

  /** Move the clock by whole days: to a next period, or past `expires`. */
  async travel(days = 1): Promise<void> {
    await this.settled();
    this.#clock.now += days * DAY_MS;
    await this.look();
  }
}

/** Return telemetry for a test. Consent is given unless the test says otherwise: undefined is a person not asked. */
export function startForTests<M extends Answers = Record<string, unknown>>(
  registry: unknown,
  { consent }: { consent?: boolean | undefined } = { consent: true },
): TelemetryForTests<M> & Handles<M> {
  return new TelemetryForTests<M>(registry, consent) as TelemetryForTests<M> & Handles<M>;
}
