/** The telemetry object that an app holds. Nothing that goes wrong here reaches the app. */

import { systemCoins } from "./coins.ts";
import type * as Consent from "./consent.ts";
import type { Draw } from "./days.ts";
import { bodyOf, Device, emptyState, isHidden, momentOf } from "./device.ts";
import type { Ground, Look, Made, Moment, Silence, State } from "./device.ts";
import type { CompiledMetric, CompiledRegistry, TermsSentence } from "./registry.ts";
import { classOf, drawCell, makeReport, NOTHING, reportOfClass } from "./report.ts";
import { describe, type FlushResult, type Route, Sender, timeout } from "./sending.ts";
import type { Status } from "./status.ts";
import { Gone, type Storage } from "./storage.ts";

/** Answers that wait for the storage; more are lost. */
const QUEUE_MAX = 1_000;
/** An answer looks for a choice that was made in another page at most so often. */
const CATCH_UP_EVERY_MS = 1_000;
const NOT_ASKED = "the person was not asked yet: setConsent(true) when they agree";
const REFUSED = "the person refused";
const CLOSED = "closed";

/** The answers of an app's metrics by name, for its types: `start<{ theme: "dark" | "light" }>(...)`. */
export type Answers = object;

/** One metric of the telemetry object. */
export interface Handle<A> {
  /** Randomize the answer and keep the report to send. Returns at once and never throws. */
  record(answer: A): void;
}

/** What an answer was given with, which is compared when it is taken. */
interface Given {
  /** Undefined where nothing can be taken. */
  moment: Promise<Moment> | undefined;
  takenBack: number;
}

/** A handle for each metric. */
export type Handles<M extends Answers> = { readonly [K in keyof M]: Handle<M[K]> };

/** One sentence of the terms. Its text is English; `template` and `facts` are for a translation. */
export interface Sentence extends TermsSentence {
  readonly text: string;
}

/** The upload that is sent next. */
export interface Preview {
  /** Its body, but for the id if it is not built yet; "" if nothing is due. */
  body: string;
  /** The epsilon that it costs, by metric. */
  cost: Record<string, number>;
}

/** The arguments of `start()`, after the browser had its say. */
export interface Settings {
  registry: CompiledRegistry;
  /** Whether the registry is what its digest says. */
  whole?: Promise<boolean>;
  route: Route;
  storage: Storage;
  /** Fetch what makes a metric's reports: `load` of report.ts. */
  load: (metric: CompiledMetric) => Promise<void>;
  /** The name that pages share; undefined in memory. */
  shared: string | undefined;
  consent: boolean | undefined;
  /** Why nothing may be recorded, kept or sent, whatever the person chose; "" if nothing forbids it. */
  silent: string;
  /** The place of the device's value in the registry's public column. */
  place: number;
  development: boolean;
  persist: boolean;
  now: () => number;
  draw: Draw;
  warn: (message: string) => void;
  /** Told of each answer and why it was not taken: for a test double. */
  note?: (metric: string, answer: unknown, silent: string) => void;
}

/** Return randomness of the system's for what a device draws beside its reports. */
export function systemDraw(): Draw {
  const coins = systemCoins();
  return (_, n) => coins.below(n);
}

/** An app's telemetry. Made by `start()`. */
export class Telemetry<M extends Answers = Record<string, unknown>> {
  readonly #settings: Settings;
  readonly #metrics: ReadonlyMap<string, CompiledMetric>;
  /** The metrics whose modules are here. Others are silent: a fetch because of an answer would show that there is one. */
  readonly #loaded = new Set<CompiledMetric>();
  #consent: typeof Consent | undefined;
  readonly #coins = systemCoins();
  readonly #sender: Sender;
  readonly #noted: Record<string, number> = {};
  readonly #unknown = new Set<string>();
  readonly #listeners: [EventTarget, string, (event: Event) => void][] = [];
  /** Answers and what needs modules, one after the other. */
  #queue: Promise<unknown>;
  /** Choices and the moments of answers, one after the other: what needs the storage alone. */
  #choosing: Promise<unknown> = Promise.resolve();
  readonly #queued = new Map<CompiledMetric, number>();
  /** The moment that is being read, for all answers that come meanwhile. */
  #moment: Promise<Moment> | undefined;
  /** How often the person took back in this page what was before, by metric, and all by "". */
  readonly #takenBack = new Map<string, number>();
  /** How many things are under way after which the page may speak. */
  #starting = 0;
  #speaks = false;
  /** No answer is taken any more; those before are still being kept. */
  #closing = false;
  #closed = false;
  /** How often the person chose in this page, for the whole app. */
  #chosen = 0;
  /** The number of a refusal that the storage has not taken, which holds in this page; 0 if there is none. */
  #unkept = 0;
  #fault = "";
  #caughtUp = -Infinity;

  constructor(settings: Settings) {
    this.#settings = settings;
    const { registry, route, now, warn, shared } = settings;
    this.#metrics = new Map(registry.metrics.map((metric) => [metric.plan.metric, metric]));
    for (const name of this.#metrics.keys()) {
      if (!(name in this))
        Object.defineProperty(this, name, { value: { record: (answer: unknown) => this.#enqueue(name, answer) } });
    }
    this.#sender = new Sender({
      route,
      now,
      warn,
      shared,
      look: () => this.look(),
      step: (step, strict) => this.#step(step, strict),
    });
    this.#queue = this.#starts(() => this.#begin()).catch((error: unknown) => this.#fail(error));
    this.#listen();
  }

  // Beginning and ending.

  async #begin(): Promise<void> {
    const { storage, consent } = this.#settings;
    const agreed = await this.#atOnce(async () => {
      const whole = await this.#settings.whole?.catch(() => false);
      if (whole === false) this.#turnOff("registry was damaged or changed by hand: compile metrics.toml again");
      if (!this.#settings.silent) return this.#agreed();
      // No look comes: until the next start nothing else would hide which periods were answered.
      await this.#step((device) => device.endPeriods()).catch(() => {});
      return false;
    });
    if (agreed) await this.#speak();
    if (this.#settings.silent) return;
    if (consent === false && !this.#speaks) await this.#step((device) => device.drop("refused"), true).catch(() => {});
    if (!this.#speaks) storage.close();
  }

  #turnOff(why: string): void {
    if (this.#settings.silent) return;
    this.#settings.silent = why;
    this.#settings.warn(`telemetry is off: ${why}`);
  }

  /** Speak, if the person has agreed meanwhile. */
  async #catchUp(every = 0): Promise<void> {
    const now = performance.now();
    if (this.#speaks || this.#closed || this.#unkept || this.#settings.silent || now < this.#caughtUp + every) return;
    await this.#starts(async () => {
      if (await this.#atOnce(() => this.#agreed())) await this.#speak();
    });
  }

  /** Do something after which the page may speak: answers that come meanwhile wait for it. */
  async #starts<T>(action: () => Promise<T>): Promise<T> {
    this.#starting++;
    return action().finally(() => this.#starting--);
  }

  /** Return whether the person has agreed: in this page, in another one or, where they never chose, to the app. */
  async #agreed(): Promise<boolean> {
    const { storage, registry, consent } = this.#settings;
    this.#caughtUp = performance.now();
    const kept = await storage.peek((state) => ({ app: state.app, consent: state.consent }));
    if (kept?.app !== undefined && kept.app != registry.app)
      throw new Error(`the storage belongs to the app ${kept.app}`);
    this.#fault = "";
    if ((kept?.consent ?? consent) !== true) return false;
    const begin = (device: Device) => {
      device.begin(consent);
      device.tryKey();
    };
    await this.#step(begin, true, true);
    return true;
  }

  /** Fetch what the registry's metrics need, and begin to look and to send. */
  async #speak(): Promise<void> {
    const { registry, storage, consent, persist } = this.#settings;
    if ((await this.#peek((device) => device.otherTerms))?.length) this.#consent = await import("./consent.ts");
    await Promise.all(registry.metrics.map((metric) => this.#load(metric)));
    // The modules may have taken long, and a choice waits for none of them.
    const kept = await storage.peek((state) => state.consent ?? consent);
    this.#speaks = kept === true && !this.#closed && !this.#unkept;
    if (!this.#speaks) return;
    await this.#sender.start();
    await this.look();
    if (persist) globalThis.navigator?.storage?.persist?.().catch(() => {});
  }

  async #load(metric: CompiledMetric): Promise<void> {
    if (this.#loaded.has(metric)) return;
    await this.#settings.load(metric).then(
      () => this.#loaded.add(metric),
      (error: unknown) => this.#settings.warn(`a metric cannot be recorded: ${messageOf(error)}`),
    );
  }

  /** Take a step of the device in one transaction. */
  async #step<T>(step: (device: Device) => T, strict = false, create = false): Promise<T> {
    const { storage } = this.#settings;
    const taken = storage.change((state) => step(this.#device(state)), { strict, create });
    return taken.catch((error: unknown) => {
      if (error instanceof Gone) this.#silence(); // the person has cleared it: a new device asks anew
      throw error;
    });
  }

  async #peek<T>(look: (device: Device, state: State) => T): Promise<T | undefined> {
    const seen = await this.#settings.storage.peek((state) => ({ value: look(this.#device(state), state) }));
    if (!seen) this.#silence();
    return seen?.value;
  }

  #device(state: State): Device {
    const { registry, shared, draw, now } = this.#settings;
    return new Device(registry, shared === undefined ? 0 : registry.quiet_days, draw, state, now(), this.#consent);
  }

  #silence(): void {
    this.#speaks = false;
    this.#sender.stop();
  }

  #fail(error: unknown): void {
    this.#fault = `what this page keeps cannot be used now: ${messageOf(error)}`;
  }

  #listen(): void {
    if (typeof document == "undefined") return;
    const listen = (target: EventTarget, type: string, listener: (event: Event) => void) => {
      this.#listeners.push([target, type, listener]);
      target.addEventListener(type, listener);
    };
    listen(globalThis, "pagehide", () => {
      this.#sender.pageGoesAway();
      // A page that holds neither lock nor database may be shown again as it was.
      this.#sender.stop();
      this.#settings.storage.close();
    });
    listen(globalThis, "pageshow", (event) => {
      if (!(event as PageTransitionEvent).persisted || !this.#speaks) return;
      void this.#then(() => this.#sender.start().then(() => this.look()));
    });
    listen(document, "visibilitychange", () => document.visibilityState == "hidden" && this.#sender.hides());
  }

  /** Stop, without waiting for the network. The next start sends what waits. Resolves when all answers are kept. */
  async close(): Promise<void> {
    this.#closing = true;
    for (const [target, type, listener] of this.#listeners) target.removeEventListener(type, listener);
    this.#sender.stop();
    await this.settled();
    this.#closed = true;
    this.#silence();
    this.#settings.storage.close();
  }

  /** Do one thing after the other: answers are kept in the order in which they come. */
  #then<T>(action: () => Promise<T>): Promise<T | undefined> {
    const turn = this.#queue.then(action).catch((error: unknown): undefined => {
      if (!(error instanceof Gone)) this.#note("failed");
    });
    this.#queue = turn;
    return turn;
  }

  /** Do what needs the storage alone: it waits for no module. */
  #atOnce<T>(action: () => Promise<T>): Promise<T> {
    const turn = this.#choosing.then(action);
    this.#choosing = turn.catch(() => {});
    return turn;
  }

  /** Resolve when all answers that were recorded so far are kept, or why not is known. */
  protected async settled(): Promise<void> {
    await this.#choosing;
    await this.#queue;
  }

  #note(reason: string): void {
    this.#noted[reason] = (this.#noted[reason] ?? 0) + 1;
  }

  // Recording and sending.

  /** Randomize an answer and keep the report to send. Returns at once and never throws. */
  record<K extends keyof M & string>(name: K, answer: M[K]): void {
    this.#enqueue(name, answer);
  }

  #enqueue(name: string, answer: unknown): void {
    const metric = this.#metrics.get(name);
    if (!metric) {
      if (!this.#unknown.has(name)) this.#settings.warn(`the registry has no metric ${name}`);
      this.#unknown.add(name);
      return;
    }
    try {
      if (this.#closing || this.#settings.silent) return;
      const queued = this.#queued.get(metric) ?? 0;
      if (queued >= QUEUE_MAX) throw new Error("the storage takes too long");
      const copy = copyOf(answer); // the app may go on to change what it gave
      this.#queued.set(metric, queued + 1);
      const given = { moment: this.#hears(metric) ? this.#read() : undefined, takenBack: this.#backs(name) };
      const take = () => this.#then(() => this.#record(metric, copy, given));
      const asks = given.moment && !this.#speaks && !isHidden(metric); // the page may speak because of it
      void (asks ? this.#starts(take) : take()).finally(() => {
        this.#queued.set(metric, this.#queued.get(metric)! - 1);
        if (!this.#speaks && !this.#starting) this.#settings.storage.close();
      });
    } catch {
      if (!isHidden(metric)) this.#note("failed");
    }
  }

  /** Record an answer. Of a hidden metric nothing is counted, and telemetry does not begin because of it. */
  async #record(metric: CompiledMetric, answer: unknown, given: Given): Promise<void> {
    const hidden = isHidden(metric);
    const silent = await this.#take(metric, answer, given).catch((error: unknown): string => {
      if (error instanceof Gone) return "not-agreed";
      return "failed";
    });
    this.#settings.note?.(metric.plan.metric, answer, silent);
    if (hidden) return;
    if (silent) this.#note(silent);
    else this.#sender.soon();
  }

  /** Tell whether an answer may be taken at all: one that cannot begin telemetry asks the storage for nothing. */
  #hears(metric: CompiledMetric): boolean {
    const asks = !isHidden(metric) && performance.now() >= this.#caughtUp + CATCH_UP_EVERY_MS;
    return this.#speaks || this.#starting > 0 || asks;
  }

  /** Read the moment, in turn with the choices of this page: an answer counts under what it was given under, or not. */
  #read(): Promise<Moment> {
    const { storage, consent } = this.#settings;
    const reading = (this.#moment ??= this.#atOnce(async () => {
      try {
        return (await storage.peek((state) => momentOf(state, consent))) ?? momentOf(emptyState(), consent);
      } finally {
        if (this.#moment == reading) this.#moment = undefined;
      }
    }));
    return reading;
  }

  #backs(metric: string): number {
    return (this.#takenBack.get("") ?? 0) + (this.#takenBack.get(metric) ?? 0);
  }

  async #take(metric: CompiledMetric, answer: unknown, { moment: reading, takenBack }: Given): Promise<string> {
    const moment = await reading;
    if (!moment) return "not-agreed";
    if (!this.#speaks && !isHidden(metric)) await this.#catchUp(CATCH_UP_EVERY_MS);
    if (!this.#speaks) return "not-agreed";
    const ground = await this.#peek((device) => device.ground(metric));
    if (!ground) throw new Gone();
    if (typeof ground == "string") return ground;
    if (!this.#loaded.has(metric)) return "unloaded";
    const made = await this.#make(metric, answer, ground);
    const take = (device: Device) =>
      takenBack == this.#backs(metric.plan.metric) ? device.record(metric, made, moment) : "not-agreed";
    return this.#step(take, true); // strict: it may charge what was in the slot
  }

  /** Make a report, outside of any transaction: one of the storage's ends where something else is waited for. */
  async #make(metric: CompiledMetric, answer: unknown, { secret, cohort, cell: given }: Ground): Promise<Made> {
    const coins = this.#coins;
    const memo = { secret: Uint8Array.from(secret.match(/../g)!, (byte) => parseInt(byte, 16)) };
    const cell = given ?? drawCell(metric, cohort, this.#settings.place, coins);
    if (!metric.memo_key) return { secret, cell, report: await makeReport(metric, cell, answer, coins, memo) };
    const wanted = await classOf(metric, cell, answer, memo);
    const answered = (await this.#peek((device) => device.classFor(metric, wanted))) ?? wanted;
    return { secret, cell, class: answered, report: await reportOfClass(metric, cell, answered, coins, memo) };
  }

  /** Open and close the periods of hidden metrics, and say what waits. */
  protected async look(): Promise<Look> {
    const nothings = new Map<CompiledMetric, Made>();
    for (const [metric, ground] of (await this.#peek((device) => device.unopened())) ?? []) {
      if (!this.#loaded.has(metric)) continue;
      await this.#make(metric, NOTHING, ground).then(
        (made) => nothings.set(metric, made),
        () => {},
      );
    }
    return this.#step((device) => device.look(nothings));
  }

  /**
   * Send what waits now instead of at its random moment; wait for at most so many seconds.
   *
   * For tests, trials and short programs. An app need not call it.
   */
  async flush(seconds = 10): Promise<FlushResult> {
    const within = Math.min(Math.max(Number(seconds) || 0, 0), 3_600) * 1_000;
    const begun = this.#then(() => this.#choosing.then(() => this.#catchUp())).then(() => this.#whySilent());
    const detail = await this.#waitFor(
      within,
      begun.catch((error: unknown) => this.#fail(error) ?? this.#fault),
    );
    if (detail !== "") return { sent: 0, waiting: 0, detail: detail ?? "no answer yet" };
    const failed = (error: unknown): FlushResult => ({ sent: 0, waiting: 0, detail: describe(error) });
    const flushed = await this.#sender.flush(within).catch(failed);
    if (flushed.sent || flushed.waiting || flushed.detail) return flushed;
    return { ...flushed, detail: await this.#whyNothing() };
  }

  async #whyNothing(): Promise<string> {
    const { silent, metrics } = await this.status();
    return silent || (await import("./status.ts")).nothingSent(this.#settings.registry, metrics);
  }

  #waitFor<T>(within: number, promise: Promise<T>): Promise<T | undefined> {
    return Promise.race([
      promise,
      new Promise<undefined>((resolve) => timeout(() => resolve(undefined), within + 250)),
    ]);
  }

  // Looking.

  /** Return why nothing is recorded or sent at all; "" while something is. */
  async #whySilent(): Promise<string> {
    if (this.#settings.silent) return this.#settings.silent;
    if (this.#closed) return CLOSED;
    if (this.#fault && !this.#speaks) return this.#fault;
    const choice = this.#unkept ? false : ((await this.#peek((_, state) => state.consent)) ?? this.#settings.consent);
    if (choice === false) return REFUSED;
    return this.#speaks ? "" : NOT_ASKED;
  }

  /** Return what this device has done, why each metric is silent if it is, and what became of sending. */
  async status(): Promise<Status> {
    const { registry, silent: off, storage, development } = this.#settings;
    await this.#then(() => this.#choosing.then(() => this.#catchUp()).catch((error: unknown) => this.#fail(error)));
    const silent = await this.#whySilent().catch((error: unknown) => {
      this.#fail(error);
      return this.#fault;
    });
    const modules = await Promise.all([import("./status.ts"), import("./consent.ts")]).catch(messageOf);
    if (typeof modules == "string") return this.#statusWithout(modules);
    const [{ statusOf }, consent] = modules;
    this.#consent = consent;
    const word = { [NOT_ASKED]: "not-agreed", [REFUSED]: "refused" }[silent] as Silence | undefined;
    const told = { silent, word: word ?? "off", noted: this.#noted, loaded: this.#loaded, development } as const;
    const seen = off
      ? undefined
      : await this.#peek((device, state) => statusOf(registry, told, device, state)).catch(() => undefined);
    if (!this.#speaks) storage.close();
    return seen ?? statusOf(registry, told);
  }

  /** Return a status where the modules that tell more cannot be fetched. */
  #statusWithout(why: string): Status {
    const { silent, development } = this.#settings;
    const off = { silent: "off", until: undefined } as const;
    return {
      silent: silent || `modules of dither-web cannot be loaded here: ${why}`,
      waiting: 0,
      spent: {},
      counts: { ...this.#noted },
      asks: {},
      refused: [],
      metrics: Object.fromEntries([...this.#metrics.keys()].map((name) => [name, off])),
      sending: { outcome: "", last: undefined, next: undefined, heldUntil: undefined },
      development,
      ask: false,
    };
  }

  /** Return the upload that is sent next and what it costs, without building or charging it. */
  async preview(): Promise<Preview> {
    await this.settled();
    const { simple, key } = this.#settings.route;
    const upload = this.#speaks ? await this.#peek((device) => device.arm().upload).catch(() => undefined) : undefined;
    if (!upload) return { body: "", cost: {} };
    const cost = Object.fromEntries(Object.entries(upload.costs).map(([metric, micro]) => [metric, micro / 1e6]));
    return { body: bodyOf(upload, simple ? key : undefined), cost };
  }

  // The person's choices.

  /** Return what the person is asked to agree to, a short sentence each: for a dialog, before `setConsent`. */
  terms(): Sentence[] {
    return this.#settings.registry.sentences.map((sentence) => ({
      ...sentence,
      text: sentence.template.replace(/\{\{|\}\}|\{(\w+)\}/g, (brace: string, fact: string) =>
        fact ? `${sentence.facts[fact]}` : brace.charAt(0),
      ),
    }));
  }

  /**
   * Keep what the person chose: for the whole app, or for one `metric`. Resolve to whether it was kept.
   *
   * Agreeing is to the terms of this registry, and counts until a later one asks for more (`status().asks`). Refusing
   * drops what waits and holds at once; what was charged stays charged. Only true and false are choices.
   */
  async setConsent(given: boolean, metric?: string): Promise<boolean> {
    const { settings } = { settings: this.#settings };
    if ((given !== true && given !== false) || (metric !== undefined && !this.#metrics.has(metric))) {
      settings.warn("setConsent takes true or false, and the name of a metric or none: nothing has changed");
      return false;
    }
    const whole = metric === undefined;
    const chosen = whole ? ++this.#chosen : 0;
    if (!given && whole) {
      this.#unkept = chosen;
      this.#silence();
    }
    const choose = async () => {
      if (given && settings.silent) return false;
      const step = (device: Device) => {
        // With a yes, a refusal before it that the storage did not take: what was kept then does not leave.
        if (!given || (whole && this.#unkept && this.#unkept < chosen)) device.refuse(metric);
        if (given) device.agree(metric, settings.consent);
      };
      await this.#step(step, true, true);
      if (whole && (given ? chosen > this.#unkept : chosen == this.#unkept)) this.#unkept = 0;
      this.#fault = "";
      return true;
    };
    const kept = (given ? this.#atOnce(choose) : this.#takesBack(metric, choose)).catch(() => {
      this.#note("failed");
      return false;
    });
    this.#moment = undefined; // the next answer is under this choice
    if (given && whole) void this.#starts(() => this.#then(async () => (await kept) && !this.#closed && this.#speak()));
    await kept;
    if (!this.#speaks) settings.storage.close();
    return kept;
  }

  /**
   * Erase what this device knows of the person's answers, keep what was spent, and be silent for 30 days.
   *
   * Resolve to whether nothing of them is left.
   */
  async forget(): Promise<boolean> {
    const forgotten = this.#takesBack(undefined, () => this.#step((device) => device.forget(), true));
    return forgotten.then(
      () => true,
      (error: unknown) => {
        if (error instanceof Gone) return true; // nothing was ever kept
        this.#note("failed");
        return false;
      },
    );
  }

  /** Take back what was before, of a metric or all: from now on in this page, and in all pages when it is written. */
  #takesBack<T>(metric: string | undefined, write: () => Promise<T>): Promise<T> {
    this.#takenBack.set(metric ?? "", (this.#takenBack.get(metric ?? "") ?? 0) + 1);
    const written = this.#atOnce(write);
    void this.#sender.takeBack(written);
    return written;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : "failed";
}

function copyOf(answer: unknown): unknown {
  if (Array.isArray(answer)) return [...(answer as unknown[])];
  if (answer instanceof Set) return [...(answer as Set<unknown>)];
  return answer && typeof answer == "object" ? { ...answer } : answer;
}
