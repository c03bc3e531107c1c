/**
 * Uploads: what a device makes of the reports that wait, what they are charged, and what an answer means for them. A
 * page loads this once something waits.
 *
 * `arm` moves what slots hold into an upload, freezes its id and charges it; `attempt` lets it leave; `settle` forgets
 * it.
 */

import { AGREES_MS, DAY_MS } from "./days.ts";
import {
  type Armed,
  Device,
  type Group,
  type Look,
  type Made,
  type Outcome,
  RETIRED_DAYS,
  type Row,
  type Slot,
  type Upload,
} from "./device.ts";
import { type CompiledMetric, isHidden } from "./registry.ts";

/** A sent upload is given up a day before the aggregator forgets its id: a later copy could be counted twice. */
const GIVE_UP_MS = 6 * DAY_MS;
const GROUPS_MAX = 50;
/** A request that outlives its page has at most 64 KiB: padded to a power of two, so half of that. */
const ROOM_MAX = 32_768;
/** The room of the longest symbol and cell, in digits: shorter ones are filled up, so that a length tells nothing. */
const SYMBOL_DIGITS = 7;
const CELL_DIGITS = 5;
const PADDED_MIN = 512;
const WARN_AFTER_MS = 3_600_000;
const BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** A device with all of its rules: those of uploads, too. */
export class Uploads extends Device {
  protected override _makeRoom(): void {
    this._build({});
  }

  /** Look as a device does, and say what comes next. */
  override look(nothings: ReadonlyMap<CompiledMetric, Made>): Look {
    const { state, now } = { state: this._state, now: this._now };
    this._noticeClock();
    for (const upload of state.uploads) if (upload.seen < now - WARN_AFTER_MS) upload.seen = now;
    super.look(nothings);
    const due = this._anythingDue;
    if (due) this._plan();
    else [state.planned, state.plannedAt] = [undefined, undefined];
    const idle = !this.waiting && !this._registry.metrics.some(isHidden);
    return { due, idle, planned: state.planned, heldUntil: this._heldUntil };
  }

  /** Let what would last longer than it was made for be over, where the clock was set back. */
  protected _noticeClock(): void {
    const { uploads, heldUntil, outcomeAt = 0 } = this._state;
    for (const upload of uploads) if (upload.seen > this._now) upload.first = 0;
    const [, last] = this._days.ofAggregator; // a day that is further ahead was another clock's
    for (const row of Object.values(this._state.metrics)) if ((row.left ?? 0) > last) row.left = last + 1;
    if (heldUntil && this._now < outcomeAt) this._state.heldUntil = undefined;
  }

  /** Return the slots that may leave: of a metric one a day of the aggregator's, so that its reports are devices. */
  protected _due(): [string, Slot][] {
    const { today } = this._days;
    return Object.entries(this._state.metrics).flatMap(([name, { slot }]): [string, Slot][] =>
      slot && slot.leaves <= today && this._isFree(name) ? [[name, slot]] : [],
    );
  }

  /** The first upload that may leave today. */
  protected get _next(): Upload | undefined {
    return this._state.uploads.find(({ groups }) => groups.every(({ metric }) => this._isFree(metric)));
  }

  protected get _anythingDue(): boolean {
    return this._state.uploads.length ? !!this._next : this._due().length > 0;
  }

  protected get _heldUntil(): number {
    const { heldUntil = 0, outcomeAt = 0 } = this._state;
    return outcomeAt <= this._now && this._now < heldUntil ? heldUntil : 0;
  }

  /** Until when the aggregator's last day stays what it is, by the device's clock. */
  protected get _untilNextDay(): number {
    return this._now + DAY_MS - ((this._now + (this._state.ahead ?? 0) + AGREES_MS) % DAY_MS);
  }

  /** Keep how far a receipt's Date is ahead of the clock; fall back at once if they agree within a day. */
  protected _agreeClocks(date: number | undefined): void {
    if (date === undefined) return;
    const ahead = date - this._now;
    if (Math.abs(ahead) > AGREES_MS / 2) this._state.ahead = ahead;
    else delete this._state.ahead;
    if (Math.abs(ahead) <= DAY_MS) this._days.fallBack();
  }

  /**
   * Move what the slots hold into an upload, freeze its id and charge it: it may leave from now on.
   *
   * One upload at a time. One that certainly has not left takes in what was made since, under a new id. `known` is what
   * the page knew since it armed before. Return the upload that is to leave next, and what is known of it now.
   */
  arm(known: Armed = {}): Armed {
    const state = this._state;
    if (state.consent === false || state.keyRefused) return {};
    this._noticeClock();
    this._closePeriods();
    this._giveUp();
    return this._build(known);
  }

  protected _build({ unsent }: Armed): Armed {
    const state = this._state;
    const growing = state.uploads.find(({ id }) => id == unsent);
    const until = this._untilNextDay;
    if (state.uploads.length && !growing) {
      const upload = this._next;
      if (!upload) return {};
      upload.armed = true;
      return { upload, until };
    }
    const upload: Upload = growing ?? this._newUpload();
    for (const [name, slot] of this._due()) {
      const group: Group = { metric: name, plan: slot.plan, reports: [slot.report] };
      if (slot.cell !== null) group.cell = slot.cell;
      const groups = [...upload.groups, group];
      if (name in upload.costs || groups.length > GROUPS_MAX) continue;
      if (upload.groups.length && roomOf(groups) > ROOM_MAX) continue;
      const row = this._row(name);
      delete row.slot;
      if (!this._affords(name, slot)) {
        this._count("spent");
        continue;
      }
      upload.groups = groups.sort((a, b) => (a.metric < b.metric ? -1 : 1)); // as on the wire: answers name places
      upload.costs[name] = this._charge(row, slot);
      upload.id = "";
    }
    if (!upload.groups.length) return {};
    upload.id ||= this._newId();
    if (!growing) state.uploads.push(upload);
    upload.armed = true;
    return { upload, until, unsent: upload.id };
  }

  protected _newUpload(): Upload {
    const now = this._now;
    return { id: "", groups: [], costs: {}, first: now, seen: now, armed: false, attempts: 0, failures: 0 };
  }

  protected _newId(): string {
    let bits = this._draw("upload", 1n << 128n) << 4n; // 22 digits of base64url are 132 bits
    let id = "";
    for (; id.length < 22; bits >>= 6n) id = BASE64URL[Number(bits & 63n)] + id;
    return id;
  }

  /** Tell whether a report may still be charged: this is where the budget refuses if all else fails. */
  protected _affords(name: string, { charge, class: key }: Slot): boolean {
    if (!charge || key !== null) return true; // refusing one of a memo would tell that its answer is new
    const asked = this._registry.metrics.find(({ plan }) => plan.metric == name);
    const rows = Object.values(this._state.metrics);
    const total = rows.reduce(
      (sum, row) => sum + (row.classes.length ? Math.max(row.spent, row.reserved) : row.spent),
      0,
    );
    return (!asked || this._row(name).spent + charge <= asked.terms.lifetime) && total + charge <= this._epsilon;
  }

  protected _charge(row: Row, { charge, class: key }: Slot): number {
    const known = row.classes.find(([other]) => other == key);
    const price = known?.[1] ? 0 : charge; // nothing where its class was charged meanwhile
    row.spent += price;
    if (known) known[1] = true;
    this._days.reach();
    return price;
  }

  /**
   * Note that an upload leaves now, and return it; undefined if it must not: it was taken back or given up.
   *
   * A page that went away may have sent what it had armed, unless `known` says otherwise.
   */
  attempt(id: string, known: Armed): Upload | undefined {
    this._noticeClock();
    this._giveUp();
    const upload = this._state.consent === false ? undefined : this._state.uploads.find((one) => one.id == id);
    if (upload) {
      upload.attempts += known.unsent == id || upload.attempts ? 1 : 2;
      upload.seen = this._now;
    }
    return upload;
  }

  protected _giveUp(): void {
    for (const { id, first } of [...this._state.uploads]) {
      if (first < this._now - GIVE_UP_MS) this._dropUpload(id, "given-up");
    }
  }

  /** Act on the answer to an attempt; return how many reports were accepted, and whether it is time for a warning. */
  settle(id: string, outcome: Outcome): { accepted: number; warn: boolean } {
    const [state, now, { step, detail }] = [this._state, this._now, outcome];
    const upload = state.uploads.find((one) => one.id == id);
    let accepted = 0;
    Object.assign(state, { outcome: detail, outcomeAt: now });
    if (step == "kept") return { accepted, warn: this._putOff(upload, outcome) };
    state.heldUntil = state.failing = undefined;
    if (step == "stopped") state.keyRefused = true;
    else if (upload && step == "too-large" && upload.attempts < 2 && upload.groups.length > 1) this._split(upload);
    else {
      this._agreeClocks(outcome.date);
      this._closePeriods();
      this._retire(upload, outcome.retired);
      if (step == "accepted") state.warned = undefined;
      accepted = this._dropUpload(id, step == "accepted" ? step : "dropped", outcome);
      if (!this._anythingDue) state.planned = state.plannedAt = undefined;
    }
    return { accepted, warn: false };
  }

  protected _putOff(upload: Upload | undefined, { detail, retryAfter = 0, unreachable }: Outcome): boolean {
    const [state, now] = [this._state, this._now];
    if (upload) upload.failures++;
    const most = Math.min(6 * 3_600_000, 60_000 * 2 ** Math.min((upload?.failures ?? 0) + 1, 20));
    const planned = now + retryAfter + Number(this._draw("backoff", most));
    if (state.failing != detail || now < (state.failingSince ?? 0)) [state.failing, state.failingSince] = [detail, now];
    this._planAt(planned);
    state.heldUntil = retryAfter ? now + retryAfter : unreachable ? planned : undefined;
    const warn = !state.warned && now - (state.failingSince ?? now) >= WARN_AFTER_MS;
    if (warn) state.warned = true;
    return warn;
  }

  /** Put two uploads of half the groups in the place of one that is too large. It cannot have been stored. */
  protected _split(upload: Upload): void {
    const middle = upload.groups.length >> 1;
    const halves = [upload.groups.slice(0, middle), upload.groups.slice(middle)].map((groups): Upload => {
      const costs = Object.fromEntries(groups.map(({ metric }) => [metric, upload.costs[metric] ?? 0]));
      return { ...this._newUpload(), id: this._newId(), groups, costs };
    });
    this._state.uploads = this._state.uploads.flatMap((one) => (one == upload ? halves : [one]));
  }

  protected _retire(upload: Upload | undefined, places: number[] | true | undefined): void {
    upload?.groups.forEach(({ metric, plan }, place) => {
      if (places !== true && !places?.includes(place)) return;
      const row = this._row(metric);
      row.retired = [plan, this._days.today + RETIRED_DAYS];
      if (row.slot?.plan == plan) this._dropSlot(metric, "dropped");
    });
  }
}

/** Return the bytes that groups need at most, beside the frame of an upload. */
function roomOf(groups: readonly Group[]): number {
  return groups.reduce((sum, group) => sum + JSON.stringify(group).length + 1 + slackOf(group), 400);
}

function slackOf({ reports, cell }: Group): number {
  const digits = (number: number, most: number) => most - `${number}`.length;
  const symbols = reports.reduce<number>(
    (sum, report) => sum + (typeof report == "number" ? digits(report, SYMBOL_DIGITS) : 0),
    0,
  );
  return symbols + (cell === undefined ? 0 : digits(cell, CELL_DIGITS));
}

/**
 * Return the body of an upload: the same bytes each time. A page puts the `key` into it (shared/wire.md).
 *
 * Padded with spaces to a power of two that would hold it if all its symbols and cells were as long as they can be.
 */
export function bodyOf({ id, groups }: Upload, key?: string): string {
  const body = JSON.stringify({ v: 1, key, upload: id, groups });
  const needed = groups.reduce((sum, group) => sum + slackOf(group), body.length);
  let size = PADDED_MIN;
  while (size < needed) size *= 2;
  return body.padEnd(size);
}

/** The way to one aggregator. */
export interface Route {
  endpoint: string;
  key: string;
  development: boolean;
  /** Whether the key goes in the body: a page asks no leave for such a request. Else it goes in a header. */
  simple: boolean;
  fetch: typeof fetch;
}

/** Return the address that uploads go to; throw for an endpoint, or a key, that cannot work. */
export function addressOf({ endpoint, key, development }: Route): string {
  let url: URL | undefined;
  try {
    url = new URL(endpoint);
  } catch {}
  const here = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url?.hostname ?? "");
  const safe = url?.protocol == "https:" || (url?.protocol == "http:" && here);
  if (!url || !safe || url.username || url.search || url.hash) {
    throw new TypeError("endpoint must be like https://telemetry.example.org; http is for this machine alone");
  }
  if (development && !here) throw new TypeError("endpoint must be on this machine in development");
  if (!/^[!#-[\]-~]{1,200}$/.test(key)) throw new TypeError("key must be the one that the aggregator printed");
  return `${url.href.replace(/\/+$/, "")}/v1/reports`;
}
