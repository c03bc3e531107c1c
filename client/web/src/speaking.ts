/** What speaks for a person who has agreed: it takes answers by the device's rules. A page loads it then. */

import { Coins, systemCoins } from "./coins.ts";
import type * as Consent from "./consent.ts";
import type { Draw } from "./days.ts";
import { Device, type Ground, type Look, type Made, type State } from "./device.ts";
import { type CompiledMetric, isHidden } from "./registry.ts";
import { cellOf, load, makeReport, NOTHING } from "./report.ts";
import type { Sender } from "./sending.ts";
import { Gone } from "./storage.ts";
import { messageOf, type Telemetry } from "./telemetry.ts";
import type { Uploads } from "./uploads.ts";
import { isWhole } from "./whole.ts";

/** Return randomness of the system's for what a device draws beside its reports. */
export function systemDraw(): Draw {
  const coins = systemCoins();
  return (_, n) => coins.below(n);
}

/** Takes answers of one page, and has them sent. */
export class Speaking {
  readonly #telemetry: Telemetry;
  readonly #coins: Coins = systemCoins();
  readonly #draw: Draw;
  /** What a device may do: with uploads once something waits, and to be seen once an app looks. */
  rules = Device;
  /** What compares terms, once that is needed. */
  consent: typeof Consent | undefined;
  sender: Sender | undefined;
  /** The place of the device's value in the public column. */
  #place = 0;

  constructor(telemetry: Telemetry) {
    this.#telemetry = telemetry;
    this.#draw = telemetry._settings.draw ?? systemDraw();
  }

  /** Tell whether the app's registry and its public value can work; turn telemetry off if not. */
  async works(): Promise<boolean> {
    const { registry, checks, public: value } = this.#telemetry._settings;
    if (checks && !(await isWhole(checks).catch(() => false)))
      await this.#turnOff("registry was damaged or changed by hand: compile metrics.toml again");
    if (value || registry.public) {
      const { placeOf } = await import("./kinds.ts");
      await this.orOff(() => (this.#place = placeOf(value, registry)));
    }
    return !this.#telemetry._settings.silent;
  }

  /** Say no more. No look comes, so that nothing else would hide which periods were answered. */
  async #turnOff(why: string): Promise<void> {
    const { _settings: settings } = this.#telemetry;
    if (settings.silent) return;
    settings.silent = why;
    settings.warn(`telemetry is off: ${why}`);
    this.#telemetry._silence();
    await this.step((device) => device.endPeriods()).catch(() => {});
  }

  /** Return a value; turn telemetry off where there is none: what the app has set cannot work. */
  async orOff<T>(value: () => T): Promise<T | undefined> {
    try {
      return value();
    } catch (error) {
      return void (await this.#turnOff(messageOf(error)));
    }
  }

  /** Begin to take answers. */
  async begin(): Promise<void> {
    const telemetry = this.#telemetry;
    const { registry, consent, persist, warn } = telemetry._settings;
    await this.step(
      (device) => {
        device.begin(consent);
        device.tryKey();
      },
      true,
      true,
    );
    if (await this.asks()) this.consent = await import("./consent.ts");
    // Before any answer: nothing that is fetched depends on one.
    for (const parts of await Promise.allSettled(registry.metrics.map(load)))
      if (parts.status == "rejected") warn(`a metric cannot be recorded: ${messageOf(parts.reason)}`);
    telemetry._speaks = !telemetry._closed && !telemetry._refused;
    if (!telemetry._speaks) return;
    await this.wake();
    if (persist) globalThis.navigator?.storage?.persist?.().catch(() => {});
  }

  /** Tell whether the registry's terms are others than those that were agreed to: they may ask for more. */
  async asks(): Promise<boolean> {
    return (await this.peek((device) => device.asksOther)) ?? true;
  }

  /** Look. If something waits, or a hidden period is to be closed, begin to send. */
  async wake(): Promise<void> {
    const waits = await this.peek((device) => device.waiting);
    if (waits || this.#telemetry._settings.registry.metrics.some(isHidden)) {
      // Where that cannot be loaded, the next visit sends what waits.
      await this.sends().then(
        (sender) => sender?.armNow(),
        () => {},
      );
    }
    if (this.#telemetry._speaks) await this.look();
  }

  /** Load what sends, and begin with it: this page, if no other one of the app does. */
  async sends(): Promise<Sender | undefined> {
    const telemetry = this.#telemetry;
    const { Sender, Uploads } = await import("./sending.ts");
    if (this.rules == Device) this.rules = Uploads;
    const host = { look: () => this.look(), step: this.step.bind(this) };
    this.sender ??= await this.orOff(() => new Sender(telemetry._settings, host));
    if (telemetry._speaks && !telemetry._away && !telemetry._closing) await this.sender?.start();
    return this.sender;
  }

  /** Send what an answer has made at its moment. Where that cannot be loaded, the next answer or visit tries again. */
  sendsSoon(): void {
    this.sends().then(
      (sender) => sender?.soon(),
      () => {},
    );
  }

  /** Take a step of the device in one transaction. */
  async step<T, D extends Device = Uploads>(step: (device: D) => T, strict = false, create = false): Promise<T> {
    const { storage } = this.#telemetry._settings;
    const taken = storage.change((state) => step(this.#device(state) as D), { strict, create });
    return taken.catch((error: unknown) => {
      if (error instanceof Gone) this.#telemetry._silence(); // the person has cleared it: a new device asks anew
      throw error;
    });
  }

  /** Look at the device, and change nothing; undefined where nothing is kept. */
  async peek<T, D extends Device = Uploads>(look: (device: D, state: State) => T): Promise<T | undefined> {
    const { storage } = this.#telemetry._settings;
    const seen = await storage.peek((state) => ({ value: look(this.#device(state) as D, state) }));
    if (!seen) this.#telemetry._silence();
    return seen?.value;
  }

  /** Return the device of a state. A step asks of it only what is loaded by then: `rules`. */
  #device(state: State): Device {
    const { registry, shared, now } = this.#telemetry._settings;
    const quiet = shared === undefined ? 0 : registry.quiet_days;
    return new this.rules(registry, quiet, this.#draw, state, now(), this.consent);
  }

  /** Take an answer; return "", or why it is not taken. */
  async take(metric: CompiledMetric, answer: unknown): Promise<string> {
    let ground = await this.peek((device) => device.ground(metric));
    if (ground == "waiting" && !isHidden(metric)) {
      await this.sends(); // what is in the slot may leave first
      ground = await this.peek((device) => device.ground(metric));
    }
    if (!ground) throw new Gone();
    if (typeof ground == "string") return ground;
    const made = await this.#make(metric, answer, ground);
    return this.step((device) => device.record(metric, made), true); // strict: it may charge what was in the slot
  }

  /** Make a report, outside of any transaction: one of the storage's ends where something else is waited for. */
  async #make(metric: CompiledMetric, answer: unknown, { secret, cohort, cell: given }: Ground): Promise<Made> {
    const coins = this.#coins;
    const cell = given ?? (await cellOf(metric, cohort, this.#place, coins));
    if (!metric.memo_key) return { secret, cell, report: await makeReport(metric, cell, answer, coins) };
    const { classOf, memoOf, reportOfClass } = await import("./memo.ts");
    const memo = memoOf(secret);
    const wanted = await classOf(metric, cell, answer, memo);
    const answered = (await this.peek((device) => device.classFor(metric, wanted))) ?? wanted;
    return { secret, cell, class: answered, report: await reportOfClass(metric, cell, answered, coins, memo) };
  }

  /** Open and close the periods of hidden metrics. Say what waits, if what sends is loaded: it alone asks for that. */
  async look(): Promise<Look> {
    const nothings = new Map<CompiledMetric, Made>();
    for (const [metric, ground] of (await this.peek((device) => device.unopened())) ?? []) {
      await this.#make(metric, NOTHING, ground).then(
        (made) => nothings.set(metric, made),
        () => {},
      );
    }
    return this.step((device) => device.look(nothings));
  }
}
