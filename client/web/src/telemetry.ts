/** The telemetry object that an app holds. Nothing that goes wrong here reaches the app. */

import type { Draw } from "./days.ts";
import type { Look, State } from "./device.ts";
import { type CompiledMetric, type CompiledRegistry, isHidden, type TermsSentence } from "./registry.ts";
import type { Speaking } from "./speaking.ts";
import type * as Looking from "./status.ts";
import type { FlushResult, Status } from "./status.ts";
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
  /** The registry as it was given, to be held against its digest. */
  checks?: CompiledRegistry;
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
  /** Where what is drawn beside reports comes from: by default the system. */
  draw?: Draw | undefined;
  warn: (message: string) => void;
  /** Told of each answer and why it was not taken: for a test double. */
  note?: (metric: string, answer: unknown, silent: string) => void;
}

/** An app's telemetry. Made by `start()`. What only speaks once the person has agreed is loaded then. */
export class Telemetry<M extends Answers = Record<string, unknown>> {
  /** @internal */
  readonly _settings: Settings;
  readonly #metrics: ReadonlyMap<string, CompiledMetric>;
  #loading: Promise<Speaking> | undefined;
  #speaking: Speaking | undefined;
  /** @internal */
  readonly _noted: Record<string, number> = {};
  readonly #unknown = new Set<string>();
  readonly #listeners: [EventTarget, string, (event: Event) => void][] = [];
  /** @internal */
  _queue: Promise<unknown>;
  #queued = 0;
  /** @internal Whether answers are taken: the person has agreed. */
  _speaks = false;
  /** @internal The page went away, and may come back. */
  _away = false;
  /** @internal No answer is taken any more; those before are still being kept. */
  _closing = false;
  /** @internal */
  _closed = false;
  /** @internal A refusal that the storage did not take: it holds in this page. */
  _refused = false;
  /** @internal */
  _fault = "";
  #caughtUp = -Infinity;

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
    const { settings } = { settings: this._settings };
    const waits = ({ uploads, metrics }: State) =>
      uploads.length > 0 || Object.values(metrics).some(({ slot }) => slot);
    if (settings.silent) {
      // No look comes: until the next start nothing else would hide which periods were answered.
      const kept = await settings.storage.peek(waits).catch(() => false);
      if (kept) await this.#step((device) => device.endPeriods()).catch(() => {});
      return;
    }
    await this._catchUp();
    if (this._speaks) return;
    const isRefused = (state: State) => (state.consent ?? settings.consent) === false;
    if (await settings.storage.peek((state) => isRefused(state) && waits(state)))
      await this.#step((device) => device.drop("refused"), true).catch(() => {});
    settings.storage.close();
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
    if ((kept?.consent ?? settings.consent) !== true) return;
    const speaking = await this._load();
    if (await speaking.works()) await speaking.begin();
  }

  /** @internal Load the rules of a device: of when something is said, and what it costs. */
  _load(): Promise<Speaking> {
    return (this.#loading ??= import("./speaking.ts").then(
      ({ Speaking }) => (this.#speaking = new Speaking(this as Telemetry)),
      (error) => {
        this.#loading = undefined; // it is tried again
        throw error;
      },
    ));
  }

  async #step<T>(step: (device: Uploads) => T, strict = false, create = false): Promise<T> {
    return (await this._load()).step(step, strict, create);
  }

  /** @internal Say no more: the person has not agreed, or no longer. */
  _silence(): void {
    this._speaks = false;
    this.#speaking?.sender?.stop();
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
      this._away = true;
      const sender = this.#speaking?.sender;
      sender?.pageGoesAway();
      // A page that holds neither lock nor database may be shown again as it was.
      sender?.stop();
      this._settings.storage.close();
    });
    listen(globalThis, "pageshow", (event) => {
      if (!(event as PageTransitionEvent).persisted) return;
      this._away = false;
      if (this._speaks) void this._then(async () => (await this._load()).wake());
    });
    listen(document, "visibilitychange", () => document.visibilityState == "hidden" && this.#speaking?.sender?.hides());
  }

  /** Stop, without waiting for the network. The next start sends what waits. Resolves when all answers are kept. */
  async close(): Promise<void> {
    this._closing = true;
    for (const [target, type, listener] of this.#listeners) target.removeEventListener(type, listener);
    this.#speaking?.sender?.stop();
    await this._queue;
    this._closed = true;
    this._silence();
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

  /** Open and close the periods of hidden metrics, and say what waits. */
  protected async look(): Promise<Look> {
    return (await this._load()).look();
  }

  #note(reason: string): void {
    this._noted[reason] = (this._noted[reason] ?? 0) + 1;
  }

  // Recording.

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
      if (this._closing || this._settings.silent) return;
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
    const silent = await this.#take(metric, answer).catch((error: unknown): string =>
      error instanceof Gone ? "not-agreed" : "failed",
    );
    this._settings.note?.(metric.plan.metric, answer, silent);
    if (hidden) return;
    if (silent) this.#note(silent);
    else this.#speaking?.sendsSoon();
  }

  async #take(metric: CompiledMetric, answer: unknown): Promise<string> {
    if (!this._speaks && !isHidden(metric)) await this._catchUp(CATCH_UP_EVERY_MS);
    return this._speaks ? (await this._load()).take(metric, answer) : "not-agreed";
  }

  // Sending and looking.

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

  /**
   * Tell whether to ask the person: they have not chosen yet, or not agreed to all that the registry asks. The same as
   * `status().ask`, for which nothing more is loaded where the person has not agreed, or to the same terms.
   */
  async ask(): Promise<boolean> {
    const { settings } = { settings: this._settings };
    const asks = await this._then(async () => {
      await this._catchUp().catch((error: unknown) => this._fail(error));
      if (settings.silent || this._closed || this._fault || this._refused) return false;
      const kept = await settings.storage.peek(({ consent }) => ({ consent }));
      const choice = kept?.consent ?? settings.consent;
      if (!this._speaks) settings.storage.close();
      return choice && this._speaks ? (await this._load()).asks() : choice !== false;
    });
    return (asks ?? false) && (!this._speaks || (await this.status()).ask);
  }

  /** Look by what is loaded for that; where it cannot be loaded, return what is known `without`. */
  #looking<T>(look: (looking: typeof Looking) => Promise<T>, without: (why: string) => T): Promise<T> {
    return Promise.all([import("./status.ts"), import("./consent.ts"), this._load()]).then(
      ([looking, consent, speaking]) => {
        speaking.consent = consent;
        return look(looking);
      },
      (error) => without(`modules of dither-web cannot be loaded here: ${messageOf(error)}`),
    );
  }

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
        this._silence();
      }
    }
    const kept = await this._then(() => (given ? this.#agree(metric) : this.#refuse(metric)));
    if (!this._speaks) settings.storage.close();
    return kept ?? false;
  }

  async #agree(metric: string | undefined): Promise<boolean> {
    if (this._settings.silent) return false;
    const speaking = await this._load();
    if (!(await speaking.works())) return false;
    await speaking.step((device) => device.agree(metric), true, true);
    if (metric !== undefined) return true;
    this._refused = false;
    this._fault = "";
    if (!this._closed) await speaking.begin();
    return true;
  }

  /** Keep that the person refuses: by itself first, so that it holds even where nothing more can be loaded. */
  async #refuse(metric: string | undefined): Promise<boolean> {
    let known = true;
    if (metric === undefined) {
      const refuse = (state: State) => {
        state.consent = false;
        return Object.keys(state.metrics).length > 0;
      };
      known = await this._settings.storage.change(refuse, { strict: true, create: true });
      this._refused = false;
    }
    this._fault = "";
    if (known) {
      await this.#step((device) => device.refuse(metric), true, true).catch((error: unknown) => {
        if (metric !== undefined) throw error; // else it is kept, and the next visit drops what waits
      });
    }
    return true;
  }

  /** Erase what this device knows of the person's answers, keep what was spent, and be silent for 30 days. */
  async forget(): Promise<void> {
    this.#takeBack();
    await this._then(() => this.#step((device) => device.forget(), true));
  }

  /** Let nothing leave that was armed, here or by another page: the person takes it back. */
  #takeBack(): void {
    const { shared } = this._settings;
    if (this.#speaking?.sender?.takeBack() || shared === undefined) return;
    const channel = new BroadcastChannel(shared);
    channel.postMessage(TAKEN_BACK);
    channel.close();
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
