/** The telemetry object that an app holds. Nothing that goes wrong here reaches the app. */

import { systemCoins } from "./coins.ts";
import type * as Consent from "./consent.ts";
import type { Draw } from "./days.ts";
import { Device, type Ground, isHidden, type Look, type Made, type State } from "./device.ts";
import type { CompiledMetric, CompiledRegistry, TermsSentence } from "./registry.ts";
import { cellOf, load, makeReport, NOTHING } from "./report.ts";
import type { FlushResult, Sender } from "./sending.ts";
import type * as Looking from "./status.ts";
import type { Status } from "./status.ts";
import { Gone, type Storage } from "./storage.ts";
import type { Route, Uploads } from "./uploads.ts";

/** Answers that wait for the storage; more are lost. */
const QUEUE_MAX = 1_000;
/** An answer looks for a choice that was made in another page at most so often. */
const CATCH_UP_EVERY_MS = 1_000;
/** What a page says to the others that send: what waited was taken back. */
export const TAKEN_BACK = 1;

/** The answers of an app's metrics by name, for its types: `start<{ theme: "dark" | "light" }>(...)`. */
export type Answers = object;

/** One metric of the telemetry object. */
export interface Handle<A> {
  /** Randomize the answer and keep the report to send. Returns at once and never throws. */
  record(answer: A): void;
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
  /** The name that pages share; undefined in memory. */
  shared: string | undefined;
  consent: boolean | undefined;
  /** Why nothing may be recorded, kept or sent, whatever the person chose; "" if nothing forbids it. */
  silent: string;
  /** The device's value of the registry's public column. */
  public?: Readonly<Record<string, string>> | undefined;
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
  /** @internal */
  readonly _settings: Settings;
  readonly #metrics: ReadonlyMap<string, CompiledMetric>;
  /** @internal */
  _consent: typeof Consent | undefined;
  readonly #coins = systemCoins();
  /** @internal What a device may do: with uploads, once something waits. */
  _rules = Device;
  #sender: Sender | undefined;
  /** The page went away, and may come back. */
  #away = false;
  /** @internal */
  readonly _noted: Record<string, number> = {};
  readonly #unknown = new Set<string>();
  readonly #listeners: [EventTarget, string, (event: Event) => void][] = [];
  /** @internal */
  _queue: Promise<unknown>;
  #queued = 0;
  /** @internal */
  _speaks = false;
  /** No answer is taken any more; those before are still being kept. */
  #closing = false;
  /** @internal */
  _closed = false;
  /** @internal A refusal that the storage did not take: it holds in this page. */
  _refused = false;
  /** @internal */
  _fault = "";
  #caughtUp = -Infinity;
  /** The place of the device's value in the public column. */
  #place = 0;

  constructor(settings: Settings) {
    this._settings = settings;
    this.#metrics = new Map(settings.registry.metrics.map((metric) => [metric.plan.metric, metric]));
    for (const name of this.#metrics.keys()) {
      if (!(name in this))
        Object.defineProperty(this, name, { value: { record: (answer: unknown) => this.#enqueue(name, answer) } });
    }
    this._queue = this.#begin().catch((error: unknown) => this._fail(error));
    this.#listen();
  }

  // Beginning and ending.

  async #begin(): Promise<void> {
    const { storage, consent } = this._settings;
    const whole = await this._settings.whole?.catch(() => false);
    if (whole === false) this.#turnOff("registry was damaged or changed by hand: compile metrics.toml again");
    if (this._settings.silent) {
      // No look comes: until the next start nothing else would hide which periods were answered.
      await this.#step((device) => device.endPeriods()).catch(() => {});
      return;
    }
    await this._catchUp();
    if (consent === false && !this._speaks) await this.#step((device) => device.drop("refused"), true).catch(() => {});
    if (!this._speaks) storage.close();
  }

  #turnOff(why: string): void {
    if (this._settings.silent) return;
    this._settings.silent = why;
    this._settings.warn(`telemetry is off: ${why}`);
    this.#silence();
  }

  /** @internal Return a value; turn telemetry off where there is none: what the app has set cannot work. */
  _orOff<T>(value: () => T): T {
    try {
      return value();
    } catch (error) {
      this.#turnOff(messageOf(error));
      throw error;
    }
  }

  /** @internal Speak, if the person has agreed: in this page, in another one or, where they never chose, to the app. */
  async _catchUp(every = 0): Promise<void> {
    const { settings, now } = { settings: this._settings, now: performance.now() };
    if (this._speaks || this._closed || this._refused || settings.silent || now < this.#caughtUp + every) return;
    this.#caughtUp = now;
    const kept = await settings.storage.peek(({ app, consent }) => ({ app, consent }));
    const { app } = settings.registry;
    if (kept?.app !== undefined && kept.app != app) throw new Error(`the storage belongs to the app ${kept.app}`);
    this._fault = "";
    if ((kept?.consent ?? settings.consent) === true) await this.#speak();
  }

  async #speak(): Promise<void> {
    const { registry, consent, persist, public: value } = this._settings;
    if (value || registry.public) {
      const { placeOf } = await import("./cells.ts");
      this.#place = this._orOff(() => placeOf(value, registry));
    }
    await this.#step(
      (device) => {
        device.begin(consent);
        device.tryKey();
      },
      true,
      true,
    );
    if ((await this._peek((device) => device.otherTerms))?.length) this._consent = await import("./consent.ts");
    // Before any answer: nothing that is fetched depends on one.
    for (const parts of await Promise.allSettled(registry.metrics.map(load)))
      if (parts.status == "rejected") this._settings.warn(`a metric cannot be recorded: ${messageOf(parts.reason)}`);
    this._speaks = !this._closed && !this._refused;
    if (!this._speaks) return;
    await this.#wake();
    if (persist) globalThis.navigator?.storage?.persist?.().catch(() => {});
  }

  /** Look. If something waits, or a hidden period is to be closed, begin to send. */
  async #wake(): Promise<void> {
    const waits = await this._peek((device) => device.waiting);
    if (waits || this._settings.registry.metrics.some(isHidden)) await (await this._sends()).armNow();
    await this.look();
  }

  /** @internal Fetch what sends, and begin with it: this page, if no other one of the app does. */
  async _sends(): Promise<Sender> {
    const { Sender, Uploads } = await import("./sending.ts");
    this._rules = Uploads;
    const host = { look: () => this.look(), step: this.#step.bind(this) };
    this.#sender ??= this._orOff(() => new Sender(this._settings, host));
    if (this._speaks && !this.#away && !this.#closing) await this.#sender.start();
    return this.#sender;
  }

  /** Take a step of the device in one transaction. */
  async #step<T>(step: (device: Uploads) => T, strict = false, create = false): Promise<T> {
    const { storage } = this._settings;
    const taken = storage.change((state) => step(this.#device(state)), { strict, create });
    return taken.catch((error: unknown) => {
      if (error instanceof Gone) this.#silence(); // the person has cleared it: a new device asks anew
      throw error;
    });
  }

  /** @internal */
  async _peek<T>(look: (device: Uploads, state: State) => T): Promise<T | undefined> {
    const seen = await this._settings.storage.peek((state) => ({ value: look(this.#device(state), state) }));
    if (!seen) this.#silence();
    return seen?.value;
  }

  /** Return the device of a state. What it does with uploads is asked of it only once that is loaded. */
  #device(state: State): Uploads {
    const { registry, shared, draw, now } = this._settings;
    const quiet = shared === undefined ? 0 : registry.quiet_days;
    return new this._rules(registry, quiet, draw, state, now(), this._consent) as Uploads;
  }

  #silence(): void {
    this._speaks = false;
    this.#sender?.stop();
  }

  /** @internal */
  _fail(error: unknown): void {
    this._fault = `what this page keeps cannot be used now: ${messageOf(error)}`;
  }

  #listen(): void {
    if (typeof document == "undefined") return;
    const listen = (target: EventTarget, type: string, listener: (event: Event) => void) => {
      this.#listeners.push([target, type, listener]);
      target.addEventListener(type, listener);
    };
    listen(globalThis, "pagehide", () => {
      this.#away = true;
      this.#sender?.pageGoesAway();
      // A page that holds neither lock nor database may be shown again as it was.
      this.#sender?.stop();
      this._settings.storage.close();
    });
    listen(globalThis, "pageshow", (event) => {
      if (!(event as PageTransitionEvent).persisted) return;
      this.#away = false;
      if (this._speaks) void this._then(() => this.#wake());
    });
    listen(document, "visibilitychange", () => document.visibilityState == "hidden" && this.#sender?.hides());
  }

  /** Stop, without waiting for the network. The next start sends what waits. Resolves when all answers are kept. */
  async close(): Promise<void> {
    this.#closing = true;
    for (const [target, type, listener] of this.#listeners) target.removeEventListener(type, listener);
    this.#sender?.stop();
    await this._queue;
    this._closed = true;
    this.#silence();
    this._settings.storage.close();
  }

  /** @internal Do one thing after the other: answers are kept in the order in which they come. */
  _then<T>(action: () => Promise<T>): Promise<T | undefined> {
    const turn = this._queue.then(action).catch((error: unknown): undefined => {
      if (!(error instanceof Gone)) this.#note("failed");
    });
    this._queue = turn;
    return turn;
  }

  /** Resolve when all answers that were recorded so far are kept, or why not is known. */
  protected async settled(): Promise<void> {
    await this._queue;
  }

  #note(reason: string): void {
    this._noted[reason] = (this._noted[reason] ?? 0) + 1;
  }

  // Recording and sending.

  /** Randomize an answer and keep the report to send. Returns at once and never throws. */
  record<K extends keyof M & string>(name: K, answer: M[K]): void {
    this.#enqueue(name, answer);
  }

  #enqueue(name: string, answer: unknown): void {
    const metric = this.#metrics.get(name);
    if (!metric) {
      if (!this.#unknown.has(name)) this._settings.warn(`the registry has no metric ${name}`);
      this.#unknown.add(name);
      return;
    }
    try {
      if (this.#closing || this._settings.silent) return;
      else if (this.#queued >= QUEUE_MAX) this.#note("failed");
      else {
        const copy = copyOf(answer); // the app may go on to change what it gave
        this.#queued++;
        void this._then(() => this.#record(metric, copy)).finally(() => this.#queued--);
      }
    } catch {
      if (!isHidden(metric)) this.#note("failed");
    }
  }

  /** Record an answer. Of a hidden metric nothing is counted, and telemetry does not begin because of it. */
  async #record(metric: CompiledMetric, answer: unknown): Promise<void> {
    const hidden = isHidden(metric);
    const silent = await this.#take(metric, answer).catch((error: unknown): string => {
      if (error instanceof Gone) return "not-agreed";
      return "failed";
    });
    this._settings.note?.(metric.plan.metric, answer, silent);
    if (hidden) return;
    if (silent) this.#note(silent);
    else
      this._sends().then(
        (sender) => sender.soon(),
        () => {}, // the next answer, or the next visit, tries it again
      );
  }

  async #take(metric: CompiledMetric, answer: unknown): Promise<string> {
    if (!this._speaks && !isHidden(metric)) await this._catchUp(CATCH_UP_EVERY_MS);
    if (!this._speaks) return "not-agreed";
    let ground = await this._peek((device) => device.ground(metric));
    if (ground == "waiting" && !isHidden(metric)) {
      await this._sends(); // what is in the slot may leave first
      ground = await this._peek((device) => device.ground(metric));
    }
    if (!ground) throw new Gone();
    if (typeof ground == "string") return ground;
    const made = await this.#make(metric, answer, ground);
    return this.#step((device) => device.record(metric, made), true); // strict: it may charge what was in the slot
  }

  /** Make a report, outside of any transaction: one of the storage's ends where something else is waited for. */
  async #make(metric: CompiledMetric, answer: unknown, { secret, cohort, cell: given }: Ground): Promise<Made> {
    const coins = this.#coins;
    const cell = given ?? (await cellOf(metric, cohort, this.#place, coins));
    if (!metric.memo_key) return { secret, cell, report: await makeReport(metric, cell, answer, coins) };
    const { classOf, memoOf, reportOfClass } = await import("./memo.ts");
    const memo = memoOf(secret);
    const wanted = await classOf(metric, cell, answer, memo);
    const answered = (await this._peek((device) => device.classFor(metric, wanted))) ?? wanted;
    return { secret, cell, class: answered, report: await reportOfClass(metric, cell, answered, coins, memo) };
  }

  /** Open and close the periods of hidden metrics, and say what waits. */
  protected async look(): Promise<Look> {
    const nothings = new Map<CompiledMetric, Made>();
    for (const [metric, ground] of (await this._peek((device) => device.unopened())) ?? []) {
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
  flush(seconds = 10): Promise<FlushResult> {
    const without = (why: string) => ({ sent: 0, waiting: 0, detail: why });
    return this.#looking((looking) => looking.flush(this as Telemetry, seconds), without);
  }

  /** Return what this device has done, why each metric is silent if it is, and what became of sending. */
  status(): Promise<Status> {
    const { silent, development } = this._settings;
    const off = { silent: "off", until: undefined } as const;
    const without = (why: string): Status => ({
      silent: silent || why,
      waiting: 0,
      spent: {},
      counts: { ...this._noted },
      asks: {},
      refused: [],
      metrics: Object.fromEntries([...this.#metrics.keys()].map((name) => [name, off])),
      sending: { outcome: "", last: undefined, next: undefined, heldUntil: undefined },
      development,
      ask: false,
    });
    return this.#looking((looking) => looking.status(this as Telemetry), without);
  }

  /** Return the upload that is sent next and what it costs, without building or charging it. */
  preview(): Promise<Preview> {
    return this.#looking((looking) => looking.preview(this as Telemetry), () => ({ body: "", cost: {} }));
  }

  /** Look by what is loaded for that; where it cannot be loaded, return what is known `without`. */
  #looking<T>(look: (looking: typeof Looking) => Promise<T>, without: (why: string) => T): Promise<T> {
    const loaded = Promise.all([import("./status.ts"), import("./consent.ts")]);
    return loaded.then(
      ([looking, consent]) => {
        this._consent = consent;
        return look(looking);
      },
      (error) => without(`modules of dither-web cannot be loaded here: ${messageOf(error)}`),
    );
  }

  // The person's choices.

  /** Return what the person is asked to agree to, a short sentence each: for a dialog, before `setConsent`. */
  terms(): Sentence[] {
    return this._settings.registry.sentences.map((sentence) => ({
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
    const { settings } = { settings: this._settings };
    if ((given !== true && given !== false) || (metric !== undefined && !this.#metrics.has(metric))) {
      settings.warn("setConsent takes true or false, and a metric's name or none");
      return false;
    }
    if (!given) {
      this.#takeBack();
      if (metric === undefined) {
        this._refused = true;
        this.#silence();
      }
    }
    const kept = await this._then(async () => {
      if (given && settings.silent) return false;
      await this.#step((device) => (given ? device.agree(metric) : device.refuse(metric)), true, true);
      if (metric === undefined) this._refused = false;
      this._fault = "";
      if (given && metric === undefined && !this._closed) await this.#speak();
      return true;
    });
    if (!this._speaks) settings.storage.close();
    return kept ?? false;
  }

  /** Let nothing leave that was armed, here or by another page: the person takes it back. */
  #takeBack(): void {
    this.#sender?.takeBack();
    const { shared } = this._settings;
    if (shared === undefined) return;
    const channel = new BroadcastChannel(shared);
    channel.postMessage(TAKEN_BACK);
    channel.close();
  }

  /** Erase what this device knows of the person's answers, keep what was spent, and be silent for 30 days. */
  async forget(): Promise<void> {
    this.#takeBack();
    await this._then(() => this.#step((device) => device.forget(), true));
  }
}

/** Start a timer that keeps no program of Node's alive. */
export function timeout(action: () => void, delay: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(action, delay);
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

/** Return the name of an error: unlike its message it holds nothing of what was recorded. */
export function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : "Error";
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : "failed";
}

function copyOf(answer: unknown): unknown {
  if (Array.isArray(answer)) return [...(answer as unknown[])];
  if (answer instanceof Set) return [...(answer as Set<unknown>)];
  return answer && typeof answer == "object" ? { ...answer } : answer;
}
