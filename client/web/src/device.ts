/**
 * The device: what it keeps, and every rule of when it says something and what that costs.
 *
 * Each function here is one step within one transaction of the storage, and does all of it or nothing. The state holds
 * public facts, random bits and counts, with two exceptions: which classes of answers a memoized metric has given,
 * since each costs once, and whether a hidden metric's present period was answered. Life of a report: it is made by the
 * coins before the transaction, `record` puts it into its metric's slot, `arm` moves what slots hold into an upload,
 * freezes its id and charges it, `attempt` lets it leave, `settle` forgets it.
 *
 * The rules are those of the Python device (client/device.md). One differs: an upload is charged when it is made ready
 * to leave, because nothing can be waited for when a page goes away.
 */

import type * as Consent from "./consent.ts";
import { answersAlways, Days, drawPeriods, periodEnd, periodStart, silentFrom, withSpan } from "./days.ts";
import type { Draw, KeptDays, Span } from "./days.ts";
import { type CompiledMetric, type CompiledRegistry, type DeviceTerms, isHidden, type Terms } from "./registry.ts";

/** For so long a plan is silent that the aggregator refused as retired. */
export const RETIRED_DAYS = 30;

/** A report leaves at a random moment of so long a time after it was made. */
const SEND_WITHIN_MS = 120_000;

/** A class that a memoized metric has answered with, and whether it was charged. */
type Class = [key: string, charged: boolean];

/** Where a metric's one report waits. */
export interface Slot {
  plan: string;
  charge: number;
  /** The class, while it is to be charged: else the storage would tell the present answer. */
  class: string | null;
  cell: number | null;
  report: number | string;
  /** The day on which a hidden period has closed; 0 once it has. */
  leaves: number;
  /** Whether an answer may take the place of a hidden metric's "none". */
  open: boolean;
}

/** What is kept of one metric, by name: also of one that has left the registry. */
export interface Row {
  /** Micro-epsilon charged so far. */
  spent: number;
  /** Micro-epsilon that it may be charged in all. */
  reserved: number;
  /** The terms of its periods, and the memo's key, for which the row was prepared; "" before. */
  terms: string;
  memo: string;
  classes: Class[];
  used: Span[];
  drawn: number[];
  slot?: Slot;
  retired?: [plan: string, until: number];
  /** The aggregator's latest day on which a report of it may have come. */
  left?: number;
  agreed?: Terms;
  refused?: boolean;
}

/** One group of an upload. */
export interface Group {
  metric: string;
  plan: string;
  reports: (number | string)[];
  cell?: number;
}

/** An upload whose id and groups are frozen. */
export interface Upload {
  id: string;
  groups: Group[];
  /** What it was charged, by metric. */
  costs: Record<string, number>;
  /** When it may first have left; 0 where nobody knows how long ago that is. */
  first: number;
  /** What the clock read when it was last looked at. */
  seen: number;
  /** Whether it was armed: from then on a page that goes away sends it. */
  armed: boolean;
  attempts: number;
  failures: number;
}

/** The upload that is to leave next. */
export interface Armed {
  upload?: Upload;
  /** Its id, if it certainly has not left before. */
  unsent?: string | undefined;
  /** Until when it may leave without a further step: then the aggregator's day is another one. */
  until?: number;
}

/** All that a device keeps. */
export interface State extends KeptDays {
  v: 1;
  app?: string;
  /** The person's choice for the whole app. */
  consent?: boolean;
  agreed?: DeviceTerms;
  secret?: string;
  cohort?: number;
  metrics: Record<string, Row>;
  uploads: Upload[];
  counts: Record<string, number>;
  planned?: number | undefined;
  plannedAt?: number | undefined;
  heldUntil?: number | undefined;
  outcome?: string;
  outcomeAt?: number;
  failing?: string | undefined;
  failingSince?: number;
  warned?: boolean | undefined;
  keyRefused?: boolean | undefined;
}

/** Why a metric is silent, in a word of client/device.md. */
export type Silence =
  | "refused"
  | "not-agreed"
  | "clock-behind"
  | "expired"
  | "quiet"
  | "forgotten"
  | "retired"
  | "answered"
  | "unopened"
  | "unscheduled"
  | "waiting"
  | "spent"
  | "wrong-key"
  | "off";

/** Why a metric is silent and until which day, or the next step towards a report. */
export interface Decision {
  silent: Silence | "";
  until?: number | undefined;
  step?: "fill" | "make room" | "replace";
}

/** What a report is made of beside the answer, as the storage has it at the time. */
export interface Ground {
  secret: string;
  cohort: number;
  /** The cell of a "none" that an answer replaces. */
  cell?: number | undefined;
}

/** A report that the coins made, before the transaction that takes it or not. */
export interface Made {
  secret: string;
  cell: number | undefined;
  report: number | string;
  /** The class of a memoized answer. */
  class?: string | undefined;
}

/** The result of a look. */
export interface Look {
  due: boolean;
  /** Whether nothing waits and no period is to be opened or closed: no further look is needed. */
  idle: boolean;
  planned: number | undefined;
  heldUntil: number;
}

/** What an answer of a server means for the upload. */
export interface Outcome {
  /** The next step with the upload. */
  step: "accepted" | "dropped" | "stopped" | "kept" | "too-large";
  detail: string;
  /** Reports of groups that were refused. */
  rejected?: number;
  /** Places of groups whose plans are retired; true for all. */
  retired?: number[] | true;
  retryAfter?: number;
  /** Whether no answer came at all, so that a flush leaves it alone, too. */
  unreachable?: boolean;
  date?: number | undefined;
}

/** The rules of one app's device, for one moment and one state. Made anew within each transaction. */
export class Device {
  protected readonly _registry: CompiledRegistry;
  protected readonly _quietDays: number;
  protected readonly _draw: Draw;
  protected readonly _state: State;
  protected readonly _days: Days;
  protected readonly _now: number;
  protected readonly _consent: typeof Consent | undefined;

  /** Without `consent`, which compares terms, a metric is silent whose terms are not those that were agreed to. */
  constructor(
    registry: CompiledRegistry,
    quietDays: number,
    draw: Draw,
    state: State,
    now: number,
    consent?: typeof Consent,
  ) {
    this._registry = registry;
    this._quietDays = quietDays;
    this._draw = draw;
    this._state = state;
    this._now = now;
    this._consent = consent;
    this._days = new Days(state, now);
  }

  /** Move what waits into an upload. Where uploads.ts is not loaded, a slot that is full stays so. */
  protected _makeRoom?(): void;

  protected _row(name: string): Row {
    return (this._state.metrics[name] ??= {
      spent: 0,
      reserved: 0,
      terms: "",
      memo: "",
      classes: [],
      used: [],
      drawn: [],
    });
  }

  protected _count(outcome: string, reports = 1): void {
    if (reports) this._state.counts[outcome] = (this._state.counts[outcome] ?? 0) + reports;
  }

  // Beginning.

  /** Take note of what the registry has changed; draw what a new device needs. `consent` is an argument of the app. */
  begin(consent: boolean | undefined): void {
    const state = this._state;
    if (state.app === undefined) [state.app, state.firstDay] = [this._registry.app, this._days.clockDay];
    if (consent && state.consent === undefined && !state.agreed) this._agreeTerms();
    this._days.notice();
    this._ground();
    for (const { plan, digest } of this._registry.metrics) {
      const row = state.metrics[plan.metric];
      if (row?.retired && row.retired[0] != digest) delete row.retired;
    }
    this._prepareAll();
  }

  /** Let the key be tried again: the app's configuration may be another one at a start. */
  tryKey(): void {
    delete this._state.keyRefused;
  }

  protected _prepareAll(): void {
    for (const metric of this._registry.metrics) if (!this._refusedOrNotAgreed(metric)) this._prepare(metric);
  }

  /** Make the metric's row that of its present terms; draw its periods if they are new. */
  protected _prepare(metric: CompiledMetric): void {
    const { terms: asked, plan, memo_key: memo, schedule } = metric;
    const known = this._state.metrics[plan.metric]?.terms;
    const row = this._row(plan.metric);
    const terms = `${schedule} ${asked.charges} ${asked.period_days} ${asked.expires}`;
    if (row.terms == terms && row.memo == memo && row.reserved == asked.lifetime) return;
    let reserved = asked.lifetime;
    if (row.classes.length) {
      if (row.memo == memo) {
        // A reservation never shrinks, and grows only if the device's epsilon bears it.
        reserved = reserved > row.reserved && this._fits(plan.metric, reserved) ? reserved : row.reserved;
      } else {
        // The memo cannot go on. What was not spent of its reservation would tell how many answers there were.
        row.spent = Math.max(row.spent, row.reserved);
        row.classes = [];
        if (row.slot) [row.slot.charge, row.slot.class] = [0, null];
      }
    }
    if (row.terms != terms) {
      const left = Math.floor(Math.max(0, asked.lifetime - row.spent) / costOf(metric));
      const present = periodStart(metric, this._days.today);
      const drawn = answersAlways(metric) ? [] : drawPeriods(metric, this._draw);
      // An upgrade keeps periods that have not begun, as many as reports remain: the draw's first are a fair choice.
      const begins = drawn.filter((day) => day > present || (!known && day == present));
      row.drawn = [...begins.slice(0, left), ...drawn.filter((day) => day < present)];
    }
    Object.assign(row, { terms, memo, reserved });
  }

  /** Return what a report is made of; draw the secret and the cohort if there is none. */
  protected _ground(): Ground {
    const state = this._state;
    state.secret ??= this._draw("secret", 1n << 256n)
      .toString(16)
      .padStart(64, "0");
    state.cohort ??= Number(this._draw("cohort", 128));
    return { secret: state.secret, cohort: state.cohort };
  }

  // Why a metric is silent.

  protected _refusedOrNotAgreed(metric: CompiledMetric): Silence | "" {
    const row = this._state.metrics[metric.plan.metric];
    if (this._state.consent === false || row?.refused) return "refused";
    return this._asks(metric).length ? "not-agreed" : "";
  }

  /** Whether a term is not to the letter what was agreed to: what is asked is yet to be compared. */
  get asksOther(): boolean {
    const agreed = this._registry.metrics.map(({ plan }) => this._state.metrics[plan.metric]?.agreed);
    const asked = this._registry.metrics.map(({ terms }) => terms);
    return JSON.stringify([this._agreedWhole, ...agreed]) != JSON.stringify([this._whole, ...asked]);
  }

  protected _asks(metric: CompiledMetric): string[] {
    const agreed = this._state.metrics[metric.plan.metric]?.agreed;
    if (!this._newlyEvicted && JSON.stringify(agreed) == JSON.stringify(metric.terms)) return [];
    if (!this._consent) return ["?"];
    return this._consent.metricAsks(metric.terms, agreed, this._whole, this._agreedWhole);
  }

  protected get _whole(): DeviceTerms {
    return { ...this._registry.terms, evicted: this._registry.evicted ?? false };
  }

  protected get _newlyEvicted(): boolean {
    return !!this._whole.evicted && !this._agreedWhole.evicted;
  }

  protected get _agreedWhole(): DeviceTerms {
    return this._state.agreed ?? { epsilon: 0, linked: 0, linkable: false };
  }

  /** Return why no report of a metric is made, or the next step towards one. The first reason that holds counts. */
  decide(metric: CompiledMetric): Decision {
    const [days, { today }] = [this._days, this._days];
    const choice = this._refusedOrNotAgreed(metric);
    if (choice) return { silent: choice };
    if (today > days.clockDay + 1) return { silent: "clock-behind", until: days.behindUntil };
    if (today >= silentFrom(metric, today)) return { silent: "expired" };
    const quiet = days.quietUntil(this._quietDays);
    if (today < quiet) return { silent: "quiet", until: quiet };
    if (today < days.forgottenUntil) return { silent: "forgotten", until: days.forgottenUntil };
    this._prepare(metric);
    const row = this._row(metric.plan.metric);
    const { slot, retired } = row;
    // One that lies further ahead was set by another clock.
    if (retired?.[0] == metric.digest && today < retired[1] && retired[1] <= today + RETIRED_DAYS + 1) {
      return { silent: "retired", until: retired[1] };
    }
    const [start, end] = [periodStart(metric, today), periodEnd(metric, today)];
    const used = Math.max(
      0,
      ...row.used.filter(([first, until]) => until > today && first < end).map(([, until]) => until),
    );
    // A slot of another plan stays: what leaves, and when, would tell whether there was an answer since.
    if (slot?.open && today < slot.leaves && slot.leaves <= used && slot.plan == metric.digest) {
      return { silent: "", step: "replace" };
    }
    if (today < used) return { silent: "answered", until: used };
    if (!answersAlways(metric)) {
      const next = Math.min(...row.drawn.filter((day) => day >= start));
      if (next != start) return { silent: "unscheduled", until: next == Infinity ? undefined : next };
    }
    const free = this._makeRoom && this._isFree(metric.plan.metric) && !this._state.uploads.length;
    if (slot && (slot.leaves > today || !free)) return { silent: "waiting" };
    return this._bears(metric, row) ? { silent: "", step: slot ? "make room" : "fill" } : { silent: "spent" };
  }

  /** Return why an answer is not taken now: of a hidden metric none is, unless a look has opened the period. */
  taken(metric: CompiledMetric): Decision {
    const decision = this.decide(metric);
    return isHidden(metric) && decision.step && decision.step != "replace" ? { silent: "unopened" } : decision;
  }

  // The budget. It only grows, by the metric's name: nothing that changes takes a charge back.

  protected get _epsilon(): number {
    return Math.min(this._registry.terms.epsilon, this._agreedWhole.epsilon);
  }

  /** Tell whether one more answer of a metric fits. */
  protected _bears(metric: CompiledMetric, row: Row): boolean {
    if (metric.memo_key && row.classes.length) return true; // all its answers were reserved when it began
    const { lifetime } = metric.terms;
    if (!this._fits(metric.plan.metric, lifetime)) return false;
    // A memo begins with all of its answers left, or not at all.
    const committed = row.spent + (row.slot?.charge ?? 0);
    return committed + (metric.memo_key ? lifetime : costOf(metric)) <= lifetime;
  }

  /**
   * Tell whether the device's epsilon bears a metric's reservation beside what the others have begun to spend.
   *
   * Those count with all that they reserved, also where they have left the registry: how much of it was spent would
   * tell how many answers there were.
   */
  protected _fits(name: string, reservation: number): boolean {
    let others = 0;
    for (const [other, row] of Object.entries(this._state.metrics)) {
      if (other != name && (row.spent || row.classes.length || row.slot)) others += Math.max(row.spent, row.reserved);
    }
    return others + reservation <= this._epsilon;
  }

  /**
   * Return the class that a memoized metric answers with. After the last one that may be charged, that one is repeated:
   * silence would say that the answer has changed.
   */
  classFor(metric: CompiledMetric, key: string): string {
    const { classes: noted, reserved, slot } = this._row(metric.plan.metric);
    const goes = slot?.open && slot.class; // the "none" that the answer replaces
    const classes = noted.filter(([known, charged]) => charged || known != goes);
    const most = Math.min(metric.terms.charges, Math.floor(reserved / costOf(metric)));
    return classes.length < most || classes.some(([known]) => known == key) ? key : (classes.at(-1)?.[0] ?? key);
  }

  // Recording.

  /** Return what a report of a metric is made of now, or why there is none. */
  ground(metric: CompiledMetric): Ground | Silence {
    const { silent, step } = this.taken(metric);
    return (
      silent || {
        ...this._ground(),
        cell: step == "replace" ? (this._row(metric.plan.metric).slot?.cell ?? undefined) : undefined,
      }
    );
  }

  /** Take a report that was made of an answer; return "", or why it is not taken. The first of a period counts. */
  record(metric: CompiledMetric, made: Made): Silence | "" {
    const { silent, step } = this.taken(metric);
    if (silent) return silent;
    if (made.secret != this._state.secret) return "forgotten"; // everything was, since it was made
    if (made.class !== undefined && this.classFor(metric, made.class) != made.class) return "waiting";
    if (step == "replace") this._replace(metric, made);
    else {
      this._fill(metric, made);
      this._days.reach();
      this._plan();
    }
    return "";
  }

  /** Fill a metric's slot. What is in it from before leaves first. */
  protected _fill(metric: CompiledMetric, made: Made): void {
    if (this._row(metric.plan.metric).slot) this._makeRoom!();
    const row = this._row(metric.plan.metric);
    const [first, until] = [periodStart(metric, this._days.today), periodEnd(metric, this._days.today)];
    const [leaves, open] = isHidden(metric) ? [until, true] : [0, false];
    row.slot = {
      plan: metric.digest,
      ...this._paid(metric, made),
      cell: made.cell ?? null,
      report: made.report,
      leaves,
      open,
    };
    row.used = withSpan(row.used, first, until);
  }

  /** Let an answer take the place of a "none". Write nothing else, but the class that it costs. */
  protected _replace(metric: CompiledMetric, made: Made): void {
    const { slot } = this._row(metric.plan.metric);
    if (!slot) return;
    slot.class = null;
    this._forgetUnused(metric.plan.metric);
    Object.assign(slot, this._paid(metric, made), { report: made.report, open: false });
  }

  /** Return what a report costs, and its class while that is to be charged; note a class that is new. */
  protected _paid(metric: CompiledMetric, made: Made): Pick<Slot, "charge" | "class"> {
    const charge = costOf(metric);
    if (made.class === undefined) return { charge, class: null };
    const { classes } = this._row(metric.plan.metric);
    const known = classes.find(([key]) => key == made.class);
    if (known?.[1]) return { charge: 0, class: null };
    if (!known) classes.push([made.class, false]);
    return { charge, class: made.class };
  }

  protected _forgetUnused(name: string): void {
    const row = this._row(name);
    row.classes = row.classes.filter(([key, charged]) => charged || row.slot?.class == key);
  }

  // Looking: opens and closes the periods of hidden metrics. Never caused by an answer.

  /** Return the hidden metrics whose period is to be opened by a "none", with what that is made of. */
  unopened(): [CompiledMetric, Ground][] {
    this._days.notice();
    this._closePeriods();
    const opening = this._registry.metrics.filter((metric) => isHidden(metric) && this._opens(metric));
    return opening.map((metric) => [metric, this._ground()]);
  }

  protected _opens(metric: CompiledMetric): boolean {
    const { step } = this.decide(metric);
    return step == "fill" || step == "make room";
  }

  /** Look: close periods, and open those whose "none" was made. */
  look(nothings: ReadonlyMap<CompiledMetric, Made>): void {
    this._days.notice();
    this._ground();
    this._closePeriods();
    for (const [metric, made] of nothings) {
      if (made.secret == this._state.secret && this._opens(metric)) this._fill(metric, made);
    }
  }

  /**
   * Make slots of periods that have closed like any other, whether they were answered or not. Drop those of periods
   * that are yet to begin: a look opened them in a false future.
   */
  protected _closePeriods(): void {
    const { today } = this._days;
    for (const [name, row] of Object.entries(this._state.metrics)) {
      const { slot } = row;
      if (!slot?.leaves) continue;
      if (slot.leaves <= today) [slot.leaves, slot.open] = [0, false];
      else if (!row.used.some(([first, until]) => first <= today && until >= slot.leaves))
        this._dropSlot(name, "dropped");
    }
  }

  /** Let no answer replace the "none" of an open period: telemetry is off, and nobody looks. */
  endPeriods(): void {
    for (const { slot } of Object.values(this._state.metrics)) if (slot) slot.open = false;
    this._closePeriods();
  }

  // Sending.

  /** Plan an attempt at a random moment, if none is. */
  protected _plan(): void {
    const { planned, plannedAt = 0 } = this._state;
    const now = this._now;
    const delay = () => Number(this._draw("moment", SEND_WITHIN_MS));
    if (planned === undefined) this._planAt(now + delay());
    else if (now < plannedAt) this._planAt(now + Math.min(delay(), planned - plannedAt));
  }

  protected _planAt(planned: number): void {
    Object.assign(this._state, { planned, plannedAt: this._now });
  }

  protected _isFree(name: string): boolean {
    return (this._row(name).left ?? 0) < this._days.ofAggregator[0];
  }

  /** Forget an upload and count its reports; keep on which day its metrics may have been counted. */
  protected _dropUpload(id: string, word: string, { rejected = 0 }: Partial<Outcome> = {}): number {
    const upload = this._state.uploads.find((one) => one.id == id);
    if (!upload) return 0;
    this._state.uploads = this._state.uploads.filter((one) => one != upload);
    // It may have come until now: also one that the aggregator calls a copy, for nobody knows when the first one came.
    for (const { metric } of upload.armed ? upload.groups : []) {
      const row = this._row(metric);
      row.left = Math.max(this._days.ofAggregator[1], row.left ?? 0);
    }
    const refused = Math.min(rejected, upload.groups.length);
    this._count(word, upload.groups.length - refused);
    this._count("dropped", refused);
    return upload.groups.length - refused;
  }

  protected _dropSlot(name: string, word: string): void {
    const row = this._row(name);
    if (row.slot) this._count(word);
    delete row.slot;
    this._forgetUnused(name);
  }

  // The person's choices.

  protected _agreeTerms(): void {
    this._state.agreed = this._whole;
    for (const { plan, terms } of this._registry.metrics) this._row(plan.metric).agreed = terms;
  }

  /** Keep that the person agrees to the registry's terms, or no longer refuses one metric. */
  agree(metric?: string): void {
    if (metric !== undefined) delete this._row(metric).refused;
    else {
      if (this._state.consent === false) this.drop("refused"); // a refusal that was kept by itself
      this._agreeTerms();
      this._state.consent = true;
    }
    this.begin(undefined);
  }

  /** Keep that the person refuses, and drop what waits. Charges stay, and so does all that the device knows. */
  refuse(metric?: string): void {
    if (metric !== undefined) this._row(metric).refused = true;
    else this._state.consent = false;
    this.drop("refused", metric);
  }

  /**
   * Drop what waits of a metric, or everything. An upload that holds the metric goes with all that is in it: it is
   * frozen. A hidden metric's period stays over: opening it again would tell that it was not answered yet.
   */
  drop(word: string, metric?: string): void {
    for (const name of metric === undefined ? Object.keys(this._state.metrics) : [metric]) this._dropSlot(name, word);
    for (const { id, costs } of [...this._state.uploads]) {
      if (metric === undefined || metric in costs) this._dropUpload(id, word);
    }
  }

  /** Erase the secret, memos, cohort and what waits; keep what was spent; say nothing for 30 days. */
  forget(): void {
    for (const row of Object.values(this._state.metrics)) {
      // All that a memo reserved counts as spent once a report of it was built: the rest would tell how many it had.
      if (row.classes.some(([, charged]) => charged)) row.spent = Math.max(row.spent, row.reserved);
      row.classes = [];
    }
    this.drop("forgotten");
    delete this._state.secret;
    delete this._state.cohort;
    this._days.beginSilence();
  }

  /** How many reports wait. */
  get waiting(): number {
    const { metrics, uploads } = this._state;
    return (
      Object.values(metrics).filter(({ slot }) => slot).length +
      uploads.reduce((sum, { groups }) => sum + groups.length, 0)
    );
  }
}

/** Return what a report costs; of a memoized metric, what one answer costs with all its reports. */
export function costOf({ terms }: CompiledMetric): number {
  return terms.permanent || terms.report;
}
