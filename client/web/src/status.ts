/** What an app can see of telemetry, and a flush, loaded where it asks. */

import type { Decision, Silence, State } from "./device.ts";
import type { CompiledMetric, CompiledRegistry } from "./registry.ts";
import { addressOf, bodyOf, type Sender, Uploads, WAITS } from "./sending.ts";
import type { Speaking } from "./speaking.ts";
import { nameOf, type Preview, type Telemetry, timeout } from "./telemetry.ts";

const NO_ANSWER_YET = "no answer yet";
const ANOTHER_DAY = "a report of the metric has left today: the next one waits for another day";
const ELSEWHERE = "another page of this app is sending";
const NOT_ASKED = "the person was not asked yet: setConsent(true) when they agree";
const REFUSED = "the person refused";
/** The sentences for what forbids telemetry on a page. */
const FORBIDS: Readonly<Record<string, string>> = {
  gpc: "Global Privacy Control is set",
  dnt: "Do Not Track is set",
  frame: "the page is in a frame of another site",
  worker: "a worker is not told what forbids telemetry: start({ forbidden })",
  insecure: "the page is not secure: it must come by https, or from this machine",
  "no-storage": "this browser keeps nothing for the page",
};

/** The outcome for the reports that waited. */
export interface FlushResult {
  /** Reports that the aggregator has acknowledged. */
  sent: number;
  /** Reports that still wait. */
  waiting: number;
  /** Why not all was sent; "" if it was. */
  detail: string;
}

/** Whether a metric takes an answer now. */
export interface MetricStatus {
  /** Why it does not, in a word of client/device.md, such as "answered"; "" if it does. */
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
interface Told {
  /** Why nothing is recorded or sent at all; "" while something is. */
  silent: string;
  /** The word for that, for each metric. */
  word: Silence;
  /** Answers that were not taken in this page, by reason. */
  noted: Readonly<Record<string, number>>;
  development: boolean;
}

/** A device whose state can be seen. */
export class Shown extends Uploads {
  /** Send now: a flush is waited for. */
  planNow(): void {
    if (this._anythingDue) this._planAt(this._now);
  }

  /** Whether a report waits because another one of its metric has left today. */
  get anotherDay(): boolean {
    const { metrics, uploads } = this._state;
    const waits = Object.keys(metrics).filter((name) => (metrics[name]!.slot?.leaves ?? Infinity) <= this._days.today);
    return (uploads.length > 0 && !this._next) || waits.some((name) => !this._isFree(name));
  }

  /** Return what each metric and the whole device asks beyond what was agreed to. */
  asks(): Record<string, string[]> {
    const found = this._registry.metrics.map((metric): [string, string[]] => [metric.plan.metric, this._asks(metric)]);
    const all: [string, string[]][] = [...found, ["", this._consent?.deviceAsks(this._whole, this._agreedWhole) ?? []]];
    return Object.fromEntries(all.filter(([, asks]) => asks.length));
  }

  /** Return why a metric is silent, or why what it takes does not leave. */
  nothingLeaves(metric: CompiledMetric): Decision {
    const decision = this.taken(metric);
    const waits = ["", "answered", "unopened", "waiting"].includes(decision.silent);
    return waits && this._state.keyRefused ? { silent: "wrong-key" } : decision;
  }

  /** What came of the latest attempt, in a few words. */
  get outcome(): string {
    return this._state.outcome ?? "";
  }

  /** When the next attempt is, and until when not even a flush makes one; 0 where there is none. */
  get next(): [planned: number, heldUntil: number] {
    const { planned = 0, keyRefused } = this._state;
    return [planned && !keyRefused ? Math.max(planned, this._heldUntil) : 0, this._heldUntil];
  }
}

/** Return `Telemetry.status()`. */
export async function status(telemetry: Telemetry): Promise<Status> {
  const { registry, storage, development } = telemetry._settings;
  const speaking = await telemetry._load();
  speaking.rules = Shown;
  await telemetry._then(() => telemetry._catchUp().catch((error: unknown) => telemetry._fail(error)));
  const { silent: off } = telemetry._settings;
  const silent = await whySilent(telemetry, speaking).catch((error: unknown) => {
    telemetry._fail(error);
    return telemetry._fault;
  });
  const word = { [NOT_ASKED]: "not-agreed", [REFUSED]: "refused" }[silent] as Silence | undefined;
  const told = { silent, word: word ?? "off", noted: telemetry._noted, development } as const;
  const seen = off
    ? undefined
    : await speaking.peek((device: Shown, state) => statusOf(registry, told, device, state)).catch(() => undefined);
  if (!telemetry._speaks) storage.close();
  return seen ?? statusOf(registry, told);
}

/** Return why nothing is recorded or sent at all; "" while something is. */
async function whySilent(telemetry: Telemetry, speaking: Speaking): Promise<string> {
  const { _settings: settings } = telemetry;
  if (!settings.silent) await speaking.orOff(() => addressOf(settings.route));
  if (settings.silent) return FORBIDS[settings.silent] ?? settings.silent;
  if (telemetry._closed) return "closed";
  if (telemetry._fault) return telemetry._fault;
  const kept = await speaking.peek((_, state) => state.consent);
  const choice = telemetry._refused ? false : (kept ?? settings.consent);
  if (choice === false) return REFUSED;
  return telemetry._speaks ? "" : NOT_ASKED;
}

/** Return `Telemetry.flush()`. */
export async function flush(telemetry: Telemetry, seconds: number): Promise<FlushResult> {
  const within = Math.min(Math.max(Number(seconds) || 0, 0), 3_600) * 1_000;
  const speaking = await telemetry._load();
  speaking.rules = Shown;
  const asked = telemetry._then(() => telemetry._catchUp()).then(() => whySilent(telemetry, speaking));
  const late = new Promise<undefined>((resolve) => timeout(() => resolve(undefined), within + 250));
  const silent = await Promise.race([asked, late]);
  if (silent !== "") return { sent: 0, waiting: 0, detail: silent ?? NO_ANSWER_YET };
  const failed = (error: unknown): FlushResult => ({ sent: 0, waiting: 0, detail: `failed (${nameOf(error)})` });
  const flushed = await speaking
    .sends()
    .then((sender) => sendNow(sender!, telemetry, speaking, within))
    .catch(failed);
  if (flushed.sent || flushed.waiting || flushed.detail) return flushed;
  const seen = await status(telemetry);
  return { ...flushed, detail: seen.silent || nothingSent(telemetry._settings.registry, seen.metrics) };
}

/** Send what waits now; resolve when all of it is answered for, it stops, or so many ms are up. */
async function sendNow(
  sender: Sender,
  telemetry: Telemetry,
  speaking: Speaking,
  within: number,
): Promise<FlushResult> {
  const before = sender._sent;
  const until = performance.now() + within;
  sender._detail = "";
  const over = new Promise<boolean>((resolve) => timeout(() => resolve(false), within));
  const sending = sender._inTurn(() => sendAll(sender, telemetry, speaking, until));
  const done = await Promise.race([over, sending.then(() => true)]);
  const waiting = await Promise.race([over.then(() => 0), speaking.step((device) => device.waiting)]);
  return { sent: sender._sent - before, waiting, detail: sender._detail || (done ? "" : NO_ANSWER_YET) };
}

async function sendAll(
  sender: Sender,
  telemetry: Telemetry,
  speaking: Speaking,
  until: number,
): Promise<void> {
  await speaking.look();
  await speaking.step((device: Shown) => device.planNow());
  while (sender._on && performance.now() < until) {
    if (!sender._leads) {
      sender._channel?.postMessage(WAITS);
      sender._detail = ELSEWHERE;
      if (!(await speaking.look()).due) return void (sender._detail = "");
      await new Promise((resolve) => timeout(() => resolve(0), 250));
      continue;
    }
    const { due, heldUntil } = await speaking.look();
    if (!due) {
      if (await speaking.step((device: Shown) => device.anotherDay)) sender._detail ||= ANOTHER_DAY;
      return;
    }
    if (heldUntil > telemetry._settings.now()) {
      sender._detail ||= await speaking.step((device: Shown) => device.outcome);
      return;
    }
    await sender._arm();
    const step = await sender._send();
    if (!step || step == "stopped" || step == "kept") return;
  }
}

/** Return `Telemetry.preview()`. */
export async function preview(telemetry: Telemetry): Promise<Preview> {
  await telemetry._queue;
  const speaking = await telemetry._load();
  speaking.rules = Shown;
  const { simple, key } = telemetry._settings.route;
  const seen = telemetry._speaks ? speaking.peek((device) => device.arm().upload) : undefined;
  const upload = await seen?.catch(() => undefined);
  if (!upload) return { body: "", cost: {} };
  const cost = Object.fromEntries(Object.entries(upload.costs).map(([metric, micro]) => [metric, micro / 1e6]));
  return { body: bodyOf(upload, simple ? key : undefined), cost };
}

/** Return the status of a device, or of none where nothing was ever kept. */
function statusOf(registry: CompiledRegistry, told: Told, device?: Shown, state?: State): Status {
  const { silent, word, noted, development } = told;
  const rows = Object.entries(state?.metrics ?? {});
  const counts = { ...noted };
  for (const [reason, count] of Object.entries(state?.counts ?? {})) counts[reason] = count + (counts[reason] ?? 0);
  const asks = device && state?.agreed ? device.asks() : {};
  const decide = (metric: CompiledMetric): Decision =>
    device && !silent ? device.nothingLeaves(metric) : { silent: word };
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
function nothingSent(registry: CompiledRegistry, metrics: Status["metrics"]): string {
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
