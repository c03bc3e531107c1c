/**
 * Sending: which page of an app sends, when, and what an answer of a server means.
 *
 * The page that sends is the one that holds a Web Lock, for as long as it is shown. It arms what waits (makes an upload
 * of it, charged and on the disk), and sends that at its random moment within the visit, or when the page goes away: a
 * request that outlives its page, of what had been armed before. No request and no moment depends on an answer to a
 * metric whose presence is hidden.
 */

import { type Armed, bodyOf, type Device, type Look, type Outcome, type Upload } from "./device.ts";
import { DAY_MS } from "./days.ts";

/** Answers that came within so long a time are armed together. */
const ARM_AFTER_MS = 1_000;
/** The clock is compared so often, for new days and for a machine that was asleep. */
const LOOK_EVERY_MS = 60_000;
/** A request that outlives its page carries so much at most, with others of the page. */
const KEEPALIVE_MAX = 60_000;
const ATTEMPT_WITHIN_MS = 60_000;
const ANSWER_BYTES_MAX = 65_536;
const RETRY_AFTER_STEPS_MS = [60_000, 600_000, 3_600_000, 21_600_000, 86_400_000];
const DROP = [400, 409, 410, 411, 414, 415, 422, 431];
const REASONS = ["malformed", "unknown-metric", "unknown-plan", "retired", "expired", "bad-report"];
const PROBLEM = /^urn:dither:problem:([a-z][a-z-]{0,39})$/;
/** What pages say to the one that sends: something waits; what waited was taken back. */
const [WAITS, TAKEN_BACK] = [0, 1];
const NO_ANSWER_YET = "no answer yet";
const ANOTHER_DAY = "a report of the metric has left today: the next one waits for another day";
const ELSEWHERE = "another page of this app is sending";

/** The outcome for the reports that waited. */
export interface FlushResult {
  /** Reports that the aggregator has acknowledged. */
  sent: number;
  /** Reports that still wait. */
  waiting: number;
  /** Why not all was sent; "" if it was. */
  detail: string;
}

/** The way to one aggregator. */
export interface Route {
  url: string;
  key: string;
  /** Whether the key goes in the body: a page asks no leave for such a request. Else it goes in a header. */
  simple: boolean;
  fetch: typeof fetch;
}

/** What the sender asks of the telemetry object. */
export interface Situation {
  /** The name of the app's storage, which pages share; undefined in memory. */
  shared: string | undefined;
  route: Route;
  now: () => number;
  /** Take a step of the device in one transaction. */
  step: <T>(step: (device: Device) => T, strict?: boolean) => Promise<T>;
  /** Open and close periods. */
  look: () => Promise<Look>;
  warn: (message: string) => void;
}

/** Sends what a device has armed, one upload at a time. */
export class Sender {
  readonly #it: Situation;
  #leads = false;
  #endLead: (() => void) | undefined;
  #waitsForLead: AbortController | undefined;
  #channel: BroadcastChannel | undefined;
  #armed: Armed = {};
  /** How often the person took back what was armed, and how many of these are not written yet. */
  #takenBack = 0;
  #held = 0;
  #arming: ReturnType<typeof setTimeout> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  #on = false;
  #sent = 0;
  #detail = "";

  constructor(situation: Situation) {
    this.#it = situation;
  }

  // Which page sends.

  /** Begin: send if no other page does, else as soon as that one ends. Resolve when what waited is armed. */
  async start(): Promise<void> {
    if (this.#on) return;
    this.#on = true;
    const { shared } = this.#it;
    if (shared === undefined) this.#leads = true;
    else {
      this.#channel = new BroadcastChannel(shared);
      this.#channel.onmessage = ({ data }) => {
        if (data == TAKEN_BACK) this.#disarm(false);
        if (this.#leads) this.soon();
      };
      await new Promise<void>((known) => {
        const lead = (lock: Lock | null): Promise<void> | undefined => {
          known();
          if (!lock || !this.#on) return undefined;
          this.#leads = true;
          return new Promise((end) => (this.#endLead = end));
        };
        navigator.locks.request(shared, { ifAvailable: true }, lead).catch(() => known());
      });
      if (!this.#on) return; // it was stopped meanwhile
      if (!this.#leads) this.#queueForLead(shared);
    }
    await this.#inTurn(() => this.#arm());
    this.#tick(0);
  }

  #queueForLead(shared: string): void {
    const { signal } = (this.#waitsForLead = new AbortController());
    const lead = (): Promise<void> | undefined => {
      if (signal.aborted) return undefined;
      this.#leads = true;
      this.soon();
      return new Promise((end) => (this.#endLead = end));
    };
    navigator.locks.request(shared, { signal }, lead).catch(() => {});
  }

  /** End: another page may send. A request that is on its way goes on. */
  stop(): void {
    this.#on = this.#leads = false;
    clearTimeout(this.#arming);
    clearTimeout(this.#timer);
    this.#arming = undefined;
    this.#armed = {};
    this.#waitsForLead?.abort();
    this.#endLead?.();
    this.#endLead = undefined;
    this.#channel?.close();
    this.#channel = undefined;
  }

  // When.

  /** Arm what waits soon: an answer to a public metric was taken. */
  soon(): void {
    if (!this.#on) return;
    if (!this.#leads) this.#channel?.postMessage(WAITS);
    else this.#arming ??= timeout(() => this.armNow(), ARM_AFTER_MS);
  }

  /** Arm what waits now, as when the page is hidden: it may go away next. */
  armNow(): void {
    clearTimeout(this.#arming);
    this.#arming = undefined;
    if (this.#leads) this.#inTurn(() => this.#arm()).then(() => this.#tick(0));
  }

  #inTurn<T>(action: () => Promise<T>): Promise<T | undefined> {
    const turn = this.#turn.then(action).catch((error: unknown): undefined => {
      this.#detail = describe(error);
    });
    this.#turn = turn;
    return turn;
  }

  /** Arm at once what waits to be armed: the page may go away. An upload that is armed already stays so, and may leave with it. */
  hides(): void {
    if (this.#arming) this.armNow();
  }

  #tick(delay: number): void {
    clearTimeout(this.#timer);
    if (!this.#on || delay == Infinity) return;
    this.#timer = timeout(() => {
      void this.#inTurn(() => this.#look()).then((wait) => this.#tick(wait ?? LOOK_EVERY_MS));
    }, delay);
  }

  /** Arm what is due, look, send what it is time for, and return after how long to look again. */
  async #look(): Promise<number> {
    await this.#arm();
    const { due, idle, planned = Infinity, heldUntil } = await this.#it.look();
    if (idle) return Infinity;
    if (!this.#leads || !due) return LOOK_EVERY_MS;
    const when = Math.max(planned, heldUntil) - this.#it.now();
    if (when > 0) return Math.min(when, LOOK_EVERY_MS);
    return (await this.#send()) ? 0 : LOOK_EVERY_MS;
  }

  /** Arm what is due. An armed upload may leave with the page until the transaction makes another one of it. */
  async #arm(): Promise<void> {
    if (!this.#leads || this.#held) return;
    const arming = (device: Device): Armed => {
      if (!this.#leads || this.#held) return {}; // the page went away meanwhile, with what was armed, or it is taken back
      const armed = device.arm(this.#armed);
      if (armed.upload?.id != this.#armed.upload?.id) this.#armed = {};
      return armed;
    };
    const takenBack = this.#takenBack;
    const armed = await this.#it.step(arming, true);
    if (this.#leads && takenBack == this.#takenBack) this.#armed = armed;
  }

  /** Let nothing leave from this page until it is written that the person takes it back; others drop what they armed. */
  async takeBack(written: Promise<unknown>): Promise<void> {
    this.#held++;
    this.#disarm(true);
    await written.catch(() => {});
    this.#held--;
    this.#disarm(true); // another page may have armed it meanwhile
    this.soon();
  }

  #disarm(tell: boolean): void {
    this.#armed = {};
    this.#takenBack++;
    const { shared } = this.#it;
    if (!tell || shared === undefined) return;
    try {
      const channel = this.#channel ?? new BroadcastChannel(shared);
      channel.postMessage(TAKEN_BACK);
      if (channel != this.#channel) channel.close();
    } catch {
      // A browser that has or allows no channels: no page of it sends.
    }
  }

  // Sending.

  /** Send what is armed in a request that outlives the page, if it goes away. Nothing can be waited for. */
  pageGoesAway(): void {
    const { upload, until = 0 } = this.#armed;
    if (!upload || upload.failures || this.#it.now() >= until) return;
    const body = this.#body(upload);
    if (body.length <= KEEPALIVE_MAX) this.#request(body, null).catch(() => {});
  }

  #body(upload: Upload): string {
    const { key, simple } = this.#it.route;
    return bodyOf(upload, simple ? key : undefined);
  }

  #request(body: string, signal: AbortSignal | null): Promise<Response> {
    const { url, key, simple, fetch } = this.#it.route;
    return fetch(url, {
      method: "POST",
      body,
      signal,
      headers: simple
        ? { "Content-Type": "text/plain" }
        : { "Content-Type": "application/json", Accept: "application/json", Authorization: `Bearer ${key}` },
      keepalive: simple && body.length <= KEEPALIVE_MAX,
      credentials: "omit",
      redirect: "error",
      cache: "no-store",
      referrerPolicy: "no-referrer",
    });
  }

  /** Send what is armed, and act on the answer; return its step, or undefined where nothing was sent. */
  async #send(): Promise<Outcome["step"] | undefined> {
    const id = this.#armed.upload?.id;
    if (!id) return undefined;
    const upload = await this.#it.step((device) => device.attempt(id, this.#armed), true);
    if (!upload || this.#armed.upload?.id != id) return undefined; // it was taken back, or left with the page
    this.#armed = {};
    const outcome = await this.#outcome(upload);
    const { accepted, warn } = await this.#it.step((device) => device.settle(id, outcome), true);
    this.#sent += accepted;
    this.#detail = outcome.step == "accepted" && !outcome.rejected ? "" : outcome.detail;
    if (warn) this.#it.warn(`telemetry could not send for an hour: ${outcome.detail}`);
    if (outcome.step == "stopped") this.#it.warn(`telemetry stopped sending: ${outcome.detail}`);
    return outcome.step;
  }

  async #outcome(upload: Upload): Promise<Outcome> {
    try {
      const response = await this.#request(this.#body(upload), AbortSignal.timeout(ATTEMPT_WITHIN_MS));
      return readAnswer(response.status, response.headers, await read(response), upload.id, this.#it.now());
    } catch (error) {
      const name = error instanceof Error ? error.name : "Error";
      const unreachable = name == "TypeError"; // a browser does not say which of the two it was
      const why = unreachable ? "not reached, or it does not allow this page's origin" : name;
      return { step: "kept", detail: `no answer (${why})`, unreachable };
    }
  }

  /** Send what waits now; resolve when all of it is answered for, it stops, or `timeout` ms are up. */
  async flush(within: number): Promise<FlushResult> {
    const before = this.#sent;
    const until = performance.now() + within;
    this.#detail = "";
    const over = new Promise<boolean>((resolve) => timeout(() => resolve(false), within));
    const done = await Promise.race([over, this.#inTurn(() => this.#sendAll(until)).then(() => true)]);
    const waiting = await Promise.race([over.then(() => 0), this.#it.step((device) => device.waiting)]);
    return { sent: this.#sent - before, waiting, detail: this.#detail || (done ? "" : NO_ANSWER_YET) };
  }

  async #sendAll(until: number): Promise<void> {
    await this.#it.look();
    await this.#it.step((device) => device.planNow());
    while (this.#on && performance.now() < until) {
      if (!this.#leads) {
        this.#channel?.postMessage(WAITS);
        this.#detail = ELSEWHERE;
        if (!(await this.#it.look()).due) return void (this.#detail = "");
        await new Promise((resolve) => timeout(() => resolve(0), 250));
        continue;
      }
      const { due, heldUntil } = await this.#it.look();
      if (!due) {
        if (await this.#it.step((device) => device.anotherDay)) this.#detail ||= ANOTHER_DAY;
        return;
      }
      if (heldUntil > this.#it.now()) {
        this.#detail ||= await this.#it.step((device) => device.outcome);
        return;
      }
      const takenBack = this.#takenBack;
      await this.#arm();
      const step = await this.#send();
      if (!step && (this.#held || takenBack != this.#takenBack)) {
        await new Promise((resolve) => timeout(() => resolve(0), 50)); // the rest leaves when that is written
        continue;
      }
      if (!step || step == "stopped" || step == "kept") return;
    }
  }
}

/** Start a timer that keeps no program of Node's alive. */
export function timeout(action: () => void, delay: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(action, delay);
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

export function describe(error: unknown): string {
  return `failed (${error instanceof Error ? error.name : "Error"})`;
}

// Answers.

/** Return the text of an answer; "" of one that is too long to be ours. */
async function read(response: Response): Promise<string> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let [text, bytes] = ["", 0];
  for (;;) {
    const chunk = await reader?.read();
    if (!chunk || chunk.done) return text + decoder.decode();
    bytes += chunk.value.length;
    if (bytes > ANSWER_BYTES_MAX) {
      await reader!.cancel();
      return "";
    }
    text += decoder.decode(chunk.value, { stream: true });
  }
}

/**
 * Decide what an answer means for the upload `id`.
 *
 * Only a receipt that names the upload, or a problem document of ours, can end it: a captive portal's page, a proxy's
 * error or half an answer cannot.
 */
export function readAnswer(status: number, headers: Headers, text: string, id: string, now: number): Outcome {
  const answer = objectOf(text);
  const rejected = Array.isArray(answer.rejected)
    ? answer.rejected.filter((group) => group && typeof group == "object")
    : [];
  const reasons = REASONS.filter((reason) => rejected.some((group) => group.reason === reason)).join(", ");
  const retired = rejected
    .filter(({ reason, group }) => reason === "retired" && Number.isInteger(group))
    .map(({ group }) => group);
  if (status == 202 && answer.upload === id) {
    const counts = rejected.map(({ count }) => (Number.isInteger(count) && count > 0 ? count : 0));
    const refused = counts.reduce((sum: number, count: number) => sum + count, 0);
    const detail = `accepted${reasons && `, but not all: ${reasons}`}`;
    const date = readDate(headers.get("Date"));
    return { step: "accepted", detail, rejected: refused, retired, date };
  }
  const word = PROBLEM.exec(`${answer.type}`)?.[1];
  const detail = word ? `${status} ${word}` : `${status} without an answer of ours`;
  if (word && DROP.includes(status)) {
    const all = retired.length || detail != "410 retired" ? retired : (true as const);
    return {
      step: "dropped",
      detail: detail == "422 refused" && reasons ? `${detail}: ${reasons}` : detail,
      retired: all,
    };
  }
  if (word && status == 413) return { step: "too-large", detail };
  if (word && (status == 401 || status == 403)) return { step: "stopped", detail };
  return { step: "kept", detail, retryAfter: retryAfterOf(headers, now) };
}

function objectOf(text: string): Record<string, any> {
  try {
    const value: unknown = JSON.parse(text);
    return value && typeof value == "object" ? value : {};
  } catch {
    return {};
  }
}

/** Return the server's wish rounded up to 1 or 10 minutes, 1, 6 or 24 hours; 0 without one. */
function retryAfterOf(headers: Headers, now: number): number {
  const value = (headers.get("Retry-After") ?? "").trim();
  const moment = readDate(value);
  let wish: number;
  if (/^[0-9]+$/.test(value)) wish = Number(value) * 1000;
  else if (moment !== undefined) wish = moment - (readDate(headers.get("Date")) ?? now);
  else return 0;
  return RETRY_AFTER_STEPS_MS.find((step) => wish <= step) ?? DAY_MS;
}

/** Return a moment in one of HTTP's three forms; undefined for a text that is none. */
export function readDate(text: string | null): number | undefined {
  const value = (text ?? "").trim();
  if (!/^[A-Z][a-z]+,? [A-Za-z0-9: -]+$/.test(value)) return undefined;
  const moment = Date.parse(/GMT$/.test(value) ? value : `${value} GMT`);
  return Number.isNaN(moment) ? undefined : moment;
}
