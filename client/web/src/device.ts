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
import { answersAlways, Days, DAY_MS, drawPeriods, periodEnd, periodStart, silentFrom, withSpan } from "./days.ts";
import type { Draw, KeptDays, Span } from "./days.ts";
import type { CompiledMetric, CompiledRegistry, DeviceTerms, Terms } from "./registry.ts";

/** A sent upload is given up a day before the aggregator forgets its id: a later copy could be counted twice. */
const GIVE_UP_MS = 6 * DAY_MS;
/** For so long a plan is silent that the aggregator refused as retired. */
const RETIRED_DAYS = 30;
const GROUPS_MAX = 50;
/** A request that outlives its page has at most 64 KiB: padded to a power of two, so half of that. */
const ROOM_MAX = 32_768;
/** The room of the longest symbol and cell, in digits: shorter ones are filled up, so that a length tells nothing. */
const SYMBOL_DIGITS = 7;
const CELL_DIGITS = 5;
const PADDED_MIN = 512;
/** A report leaves at a random moment of so long a time after it was made. */
const SEND_WITHIN_MS = 120_000;
const WARN_AFTER_MS = 3_600_000;

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
interface Row {
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
  /** How often what the person chose for it has changed. */
  choices?: number;
}

/** One group of an upload. */
interface Group {
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
  /** How often what the person chose for the whole app has changed. */
  choices?: number;
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

/** Return the state of a device that has kept nothing. */
export function emptyState(): State {
  return { v: 1, metrics: {}, uploads: [], counts: {} };
}

/** Under what an answer was given: it is taken under the same, or not at all. */
export interface Moment {
  /** Whether the person had agreed: by their choice or, where they never chose, by what the app says. */
  agreed: boolean;
  secret: string | undefined;
  choices: number;
  /** The choices for one metric, by name. */
  each: Readonly<Record<string, number>>;
}

/** Return the moment of answers that are given now. `said` is what the app says of consent. */
export function momentOf({ consent, secret, choices = 0, metrics }: State, said: boolean | undefined): Moment {
  const each = Object.entries(metrics).flatMap(([name, row]) => (row.choices ? [[name, row.choices]] : []));
  return { agreed: (consent ?? said) === true, secret, choices, each: Object.fromEntries(each) };
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
  | "unloaded"
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
  readonly #registry: CompiledRegistry;
  readonly #quietDays: number;
  readonly #draw: Draw;
  readonly #state: State;
  readonly #days: Days;
  readonly #now: number;
  readonly #consent: typeof Consent | undefined;

  /** Without `consent`, which compares terms, a metric is silent whose terms are not those that were agreed to. */
  constructor(
    registry: CompiledRegistry,
    quietDays: number,
    draw: Draw,
    state: State,
    now: number,
    consent?: typeof Consent,
  ) {
    this.#registry = registry;
    this.#quietDays = quietDays;
    this.#draw = draw;
    this.#state = state;
    this.#now = now;
    this.#consent = consent;
    this.#days = new Days(state, now);
  }

  #row(name: string): Row {
    return (this.#state.metrics[name] ??= {
      spent: 0,
      reserved: 0,
      terms: "",
      memo: "",
      classes: [],
      used: [],
      drawn: [],
    });
  }

  #count(outcome: string, reports = 1): void {
    if (reports) this.#state.counts[outcome] = (this.#state.counts[outcome] ?? 0) + reports;
  }

  // Beginning.

  /** Take note of what the registry has changed; draw what a new device needs. `consent` is an argument of the app. */
  begin(consent: boolean | undefined): void {
    const state = this.#state;
    if (state.app === undefined) [state.app, state.firstDay] = [this.#registry.app, this.#days.clockDay];
    if (consent && state.consent === undefined && !state.agreed) this.#agreeTerms();
    this.#days.notice();
    this.#ground();
    for (const { plan, digest } of this.#registry.metrics) {
      const row = state.metrics[plan.metric];
      if (row?.retired && row.retired[0] != digest) delete row.retired;
    }
    this.#prepareAll();
  }

  /** Let the key be tried again: the app's configuration may be another one at a start. */
  tryKey(): void {
    delete this.#state.keyRefused;
  }

  #prepareAll(): void {
    for (const metric of this.#registry.metrics) if (!this.#refusedOrNotAgreed(metric)) this.#prepare(metric);
  }

  /** Make the metric's row that of its present terms; draw its periods if they are new. */
  #prepare(metric: CompiledMetric): void {
    const { terms: asked, plan, memo_key: memo, schedule } = metric;
    const known = this.#state.metrics[plan.metric]?.terms;
    const row = this.#row(plan.metric);
    const terms = `${schedule} ${asked.charges} ${asked.period_days} ${asked.expires}`;
    if (row.terms == terms && row.memo == memo && row.reserved == asked.lifetime) return;
    let reserved = asked.lifetime;
    if (row.classes.length) {
      if (row.memo == memo) {
        // A reservation never shrinks, and grows only if the device's epsilon bears it.
        reserved = reserved > row.reserved && this.#fits(plan.metric, reserved) ? reserved : row.reserved;
      } else {
        // The memo cannot go on. What was not spent of its reservation would tell how many answers there were.
        row.spent = Math.max(row.spent, row.reserved);
        row.classes = [];
        if (row.slot) [row.slot.charge, row.slot.class] = [0, null];
      }
    }
    if (row.terms != terms) {
      const left = Math.floor(Math.max(0, asked.lifetime - row.spent) / costOf(metric));
      const present = periodStart(metric, this.#days.today);
      const drawn = answersAlways(metric) ? [] : drawPeriods(metric, this.#draw);
      // An upgrade keeps periods that have not begun, as many as reports remain: the draw's first are a fair choice.
      const begins = drawn.filter((day) => day > present || (!known && day == present));
      row.drawn = [...begins.slice(0, left), ...drawn.filter((day) => day < present)];
    }
    Object.assign(row, { terms, memo, reserved });
  }

  /** Return what a report is made of; draw the secret and the cohort if there is none. */
  #ground(): Ground {
    const state = this.#state;
    state.secret ??= this.#draw("secret", 1n << 256n)
      .toString(16)
      .padStart(64, "0");
    state.cohort ??= Number(this.#draw("cohort", 128));
    return { secret: state.secret, cohort: state.cohort };
  }

  // Why a metric is silent.

  #refusedOrNotAgreed(metric: CompiledMetric): Silence | "" {
    const row = this.#state.metrics[metric.plan.metric];
    if (this.#state.consent === false || row?.refused) return "refused";
    return this.#asks(metric).length ? "not-agreed" : "";
  }

  /** Return the metrics whose terms are not to the letter what was agreed to: what they ask is yet to be compared. */
  get otherTerms(): CompiledMetric[] {
    const agreed = (name: string) => JSON.stringify(this.#state.metrics[name]?.agreed);
    const other = this.#newlyEvicted;
    return this.#registry.metrics.filter(({ plan, terms }) => other || agreed(plan.metric) != JSON.stringify(terms));
  }

  #asks(metric: CompiledMetric): string[] {
    const agreed = this.#state.metrics[metric.plan.metric]?.agreed;
    const evicted = this.#newlyEvicted;
    if (!evicted && JSON.stringify(agreed) == JSON.stringify(metric.terms)) return [];
    if (!this.#consent) return ["its terms are not those that were agreed to"];
    const asks = this.#consent.asksOf(metric.terms, agreed);
    if (evicted && agreed) asks.push(this.#consent.EVICTED);
    const linksMore = agreed && metric.terms.linked > agreed.linked;
    return linksMore && !asks.length ? this.#consent.linkAsks(this.#whole, this.#agreedWhole) : asks;
  }

  get #whole(): DeviceTerms {
    return { ...this.#registry.terms, evicted: this.#registry.evicted ?? false };
  }

  get #newlyEvicted(): boolean {
    return !!this.#whole.evicted && !this.#agreedWhole.evicted;
  }

  get #agreedWhole(): DeviceTerms {
    return this.#state.agreed ?? { epsilon: 0, linked: 0, linkable: false };
  }

  /** Return why no report of a metric is made, or the next step towards one. The first reason that holds counts. */
  decide(metric: CompiledMetric): Decision {
    const [days, { today }] = [this.#days, this.#days];
    const choice = this.#refusedOrNotAgreed(metric);
    if (choice) return { silent: choice };
    if (today > days.clockDay + 1) return { silent: "clock-behind", until: days.behindUntil };
    if (today >= silentFrom(metric, today)) return { silent: "expired" };
    const quiet = days.quietUntil(this.#quietDays);
    if (today < quiet) return { silent: "quiet", until: quiet };
    if (today < days.forgottenUntil) return { silent: "forgotten", until: days.forgottenUntil };
    this.#prepare(metric);
    const row = this.#row(metric.plan.metric);
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
    const leaves = slot && slot.leaves <= today && this.#isFree(metric.plan.metric) && !this.#state.uploads.length;
    if (slot && !leaves) return { silent: "waiting" };
    return this.#bears(metric, row) ? { silent: "", step: slot ? "make room" : "fill" } : { silent: "spent" };
  }

  /** Return why an answer is not taken now: of a hidden metric none is, unless a look has opened the period. */
  taken(metric: CompiledMetric): Decision {
    const decision = this.decide(metric);
    return isHidden(metric) && decision.step && decision.step != "replace" ? { silent: "unopened" } : decision;
  }

  // The budget. It only grows, by the metric's name: nothing that changes takes a charge back.

  get #epsilon(): number {
    return Math.min(this.#registry.terms.epsilon, this.#agreedWhole.epsilon);
  }

  /** Tell whether one more answer of a metric fits. */
  #bears(metric: CompiledMetric, row: Row): boolean {
    if (metric.memo_key && row.classes.length) return true; // all its answers were reserved when it began
    const { lifetime } = metric.terms;
    if (!this.#fits(metric.plan.metric, lifetime)) return false;
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
  #fits(name: string, reservation: number): boolean {
    let others = 0;
    for (const [other, row] of Object.entries(this.#state.metrics)) {
      if (other != name && (row.spent || row.classes.length || row.slot)) others += Math.max(row.spent, row.reserved);
    }
    return others + reservation <= this.#epsilon;
  }

  /**
   * Return the class that a memoized metric answers with. After the last one that may be charged, that one is repeated:
   * silence would say that the answer has changed.
   */
  classFor(metric: CompiledMetric, key: string): string {
    const { classes: noted, reserved, slot } = this.#row(metric.plan.metric);
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
        ...this.#ground(),
        cell: step == "replace" ? (this.#row(metric.plan.metric).slot?.cell ?? undefined) : undefined,
      }
    );
  }

  /**
   * Take a report that was made of an answer; return "", or why it is not taken. The first of a period counts.
   *
   * None is taken whose moment is over: the person has chosen otherwise since, or this is another device.
   */
  record(metric: CompiledMetric, made: Made, moment?: Moment): Silence | "" {
    const { silent, step } = this.taken(metric);
    if (silent) return silent;
    if (moment && !this.#lasts(moment, metric.plan.metric)) return "not-agreed";
    if (made.secret != this.#state.secret) return "forgotten"; // everything was, since it was made
    if (made.class !== undefined && this.classFor(metric, made.class) != made.class) return "waiting";
    if (step == "replace") this.#replace(metric, made);
    else {
      this.#fill(metric, made);
      this.#days.reach();
      this.#plan();
    }
    return "";
  }

  /** Fill a metric's slot. What is in it from before leaves first. */
  #fill(metric: CompiledMetric, made: Made): void {
    if (this.#row(metric.plan.metric).slot) this.#build({});
    const row = this.#row(metric.plan.metric);
    const [first, until] = [periodStart(metric, this.#days.today), periodEnd(metric, this.#days.today)];
    const [leaves, open] = isHidden(metric) ? [until, true] : [0, false];
    row.slot = {
      plan: metric.digest,
      ...this.#paid(metric, made),
      cell: made.cell ?? null,
      report: made.report,
      leaves,
      open,
    };
    row.used = withSpan(row.used, first, until);
  }

  /** Let an answer take the place of a "none". Write nothing else, but the class that it costs. */
  #replace(metric: CompiledMetric, made: Made): void {
    const { slot } = this.#row(metric.plan.metric);
    if (!slot) return;
    slot.class = null;
    this.#forgetUnused(metric.plan.metric);
    Object.assign(slot, this.#paid(metric, made), { report: made.report, open: false });
  }

  /** Return what a report costs, and its class while that is to be charged; note a class that is new. */
  #paid(metric: CompiledMetric, made: Made): Pick<Slot, "charge" | "class"> {
    const charge = costOf(metric);
    if (made.class === undefined) return { charge, class: null };
    const { classes } = this.#row(metric.plan.metric);
    const known = classes.find(([key]) => key == made.class);
    if (known?.[1]) return { charge: 0, class: null };
    if (!known) classes.push([made.class, false]);
    return { charge, class: made.class };
  }

  #forgetUnused(name: string): void {
    const row = this.#row(name);
    row.classes = row.classes.filter(([key, charged]) => charged || row.slot?.class == key);
  }

  // Looking: opens and closes the periods of hidden metrics. Never caused by an answer.

  /** Return the hidden metrics whose period is to be opened by a "none", with what that is made of. */
  unopened(): [CompiledMetric, Ground][] {
    this.#days.notice();
    this.#closePeriods();
    const opening = this.#registry.metrics.filter((metric) => isHidden(metric) && this.#opens(metric));
    return opening.map((metric) => [metric, this.#ground()]);
  }

  #opens(metric: CompiledMetric): boolean {
    const { step } = this.decide(metric);
    return step == "fill" || step == "make room";
  }

  /** Look: close periods, open those whose "none" was made, and say what comes next. */
  look(nothings: ReadonlyMap<CompiledMetric, Made>): Look {
    const { state, now } = { state: this.#state, now: this.#now };
    this.#days.notice();
    this.#noticeClock();
    this.#ground();
    for (const upload of state.uploads) if (upload.seen < now - WARN_AFTER_MS) upload.seen = now;
    this.#closePeriods();
    for (const [metric, made] of nothings) {
      if (made.secret == state.secret && this.#opens(metric)) this.#fill(metric, made);
    }
    const due = this.#anythingDue;
    if (due) this.#plan();
    else [state.planned, state.plannedAt] = [undefined, undefined];
    const idle = !this.waiting && !this.#registry.metrics.some(isHidden);
    return { due, idle, planned: state.planned, heldUntil: this.#heldUntil };
  }

  /**
   * Make slots of periods that have closed like any other, whether they were answered or not. Drop those of periods
   * that are yet to begin: a look opened them in a false future.
   */
  #closePeriods(): void {
    const { today } = this.#days;
    for (const [name, row] of Object.entries(this.#state.metrics)) {
      const { slot } = row;
      if (!slot?.leaves) continue;
      if (slot.leaves <= today) [slot.leaves, slot.open] = [0, false];
      else if (!row.used.some(([first, until]) => first <= today && until >= slot.leaves))
        this.#dropSlot(name, "dropped");
    }
  }

  /** Let no answer replace the "none" of an open period: telemetry is off, and nobody looks. */
  endPeriods(): void {
    for (const { slot } of Object.values(this.#state.metrics)) if (slot) slot.open = false;
    this.#closePeriods();
  }

  /** Let what would last longer than it was made for be over, where the clock was set back. */
  #noticeClock(): void {
    const { uploads, heldUntil, outcomeAt = 0 } = this.#state;
    for (const upload of uploads) if (upload.seen > this.#now) upload.first = 0;
    const [, last] = this.#days.ofAggregator; // a day that is further ahead was another clock's
    for (const row of Object.values(this.#state.metrics)) if ((row.left ?? 0) > last) row.left = last + 1;
    if (heldUntil && this.#now < outcomeAt) this.#state.heldUntil = undefined;
  }

  // Sending.

  /** Plan an attempt at a random moment, if none is. */
  #plan(): void {
    const { planned, plannedAt = 0 } = this.#state;
    const now = this.#now;
    const delay = () => Number(this.#draw("moment", SEND_WITHIN_MS));
    if (planned === undefined) this.#planAt(now + delay());
    else if (now < plannedAt) this.#planAt(now + Math.min(delay(), planned - plannedAt));
  }

  #planAt(planned: number): void {
    Object.assign(this.#state, { planned, plannedAt: this.#now });
  }

  /** Send now: a flush is waited for. */
  planNow(): void {
    if (this.#anythingDue) this.#planAt(this.#now);
  }

  get #heldUntil(): number {
    const { heldUntil = 0, outcomeAt = 0 } = this.#state;
    return outcomeAt <= this.#now && this.#now < heldUntil ? heldUntil : 0;
  }

  /** Return the slots that may leave: of a metric one a day of the aggregator's, so that its reports are devices. */
  #due(): [string, Slot][] {
    const { today } = this.#days;
    return Object.entries(this.#state.metrics).flatMap(([name, { slot }]): [string, Slot][] =>
      slot && slot.leaves <= today && this.#isFree(name) ? [[name, slot]] : [],
    );
  }

  #isFree(name: string): boolean {
    return (this.#row(name).left ?? 0) < this.#days.ofAggregator[0];
  }

  /** The first upload that may leave today. */
  get #next(): Upload | undefined {
    return this.#state.uploads.find(({ groups }) => groups.every(({ metric }) => this.#isFree(metric)));
  }

  /** Whether a report waits because another one of its metric has left today. */
  get anotherDay(): boolean {
    const { metrics, uploads } = this.#state;
    const waits = Object.keys(metrics).filter((name) => (metrics[name]!.slot?.leaves ?? Infinity) <= this.#days.today);
    return (uploads.length > 0 && !this.#next) || waits.some((name) => !this.#isFree(name));
  }

  get #anythingDue(): boolean {
    return this.#state.uploads.length ? !!this.#next : this.#due().length > 0;
  }

  /**
   * Move what the slots hold into an upload, freeze its id and charge it: it may leave from now on.
   *
   * One upload at a time. One that certainly has not left takes in what was made since, under a new id. `known` is what
   * the page knew since it armed before. Return the upload that is to leave next, and what is known of it now.
   */
  arm(known: Armed = {}): Armed {
    const state = this.#state;
    if (state.consent === false || state.keyRefused) return {};
    this.#noticeClock();
    this.#closePeriods();
    this.#giveUp();
    return this.#build(known);
  }

  #build({ unsent }: Armed): Armed {
    const state = this.#state;
    const growing = state.uploads.find(({ id }) => id == unsent);
    const until = this.#days.untilNextOfAggregator;
    if (state.uploads.length && !growing) {
      const upload = this.#next;
      if (!upload) return {};
      upload.armed = true;
      return { upload, until };
    }
    const upload: Upload = growing ?? this.#newUpload();
    for (const [name, slot] of this.#due()) {
      const group: Group = { metric: name, plan: slot.plan, reports: [slot.report] };
      if (slot.cell !== null) group.cell = slot.cell;
      const groups = [...upload.groups, group];
      if (name in upload.costs || groups.length > GROUPS_MAX) continue;
      if (upload.groups.length && roomOf(groups) > ROOM_MAX) continue;
      const row = this.#row(name);
      delete row.slot;
      if (!this.#affords(name, slot)) {
        this.#count("spent");
        continue;
      }
      upload.groups = groups.sort((a, b) => (a.metric < b.metric ? -1 : 1)); // as on the wire: answers name places
      upload.costs[name] = this.#charge(row, slot);
      upload.id = "";
    }
    if (!upload.groups.length) return {};
    upload.id ||= this.#newId();
    if (!growing) state.uploads.push(upload);
    upload.armed = true;
    return { upload, until, unsent: upload.id };
  }

  #newUpload(): Upload {
    const now = this.#now;
    return { id: "", groups: [], costs: {}, first: now, seen: now, armed: false, attempts: 0, failures: 0 };
  }

  #newId(): string {
    let bits = this.#draw("upload", 1n << 128n) << 4n; // 22 digits of base64url are 132 bits
    let id = "";
    for (; id.length < 22; bits >>= 6n) id = BASE64URL[Number(bits & 63n)] + id;
    return id;
  }

  /** Tell whether a report may still be charged: this is where the budget refuses if all else fails. */
  #affords(name: string, { charge, class: key }: Slot): boolean {
    if (!charge || key !== null) return true; // refusing one of a memo would tell that its answer is new
    const asked = this.#registry.metrics.find(({ plan }) => plan.metric == name);
    const rows = Object.values(this.#state.metrics);
    const total = rows.reduce(
      (sum, row) => sum + (row.classes.length ? Math.max(row.spent, row.reserved) : row.spent),
      0,
    );
    return (!asked || this.#row(name).spent + charge <= asked.terms.lifetime) && total + charge <= this.#epsilon;
  }

  #charge(row: Row, { charge, class: key }: Slot): number {
    const known = row.classes.find(([other]) => other == key);
    const price = known?.[1] ? 0 : charge; // nothing where its class was charged meanwhile
    row.spent += price;
    if (known) known[1] = true;
    this.#days.reach();
    return price;
  }

  /**
   * Note that an upload leaves now, and return it; undefined if it must not: it was taken back or given up.
   *
   * A page that went away may have sent what it had armed, unless `known` says otherwise.
   */
  attempt(id: string, known: Armed): Upload | undefined {
    this.#noticeClock();
    this.#giveUp();
    const upload = this.#state.consent === false ? undefined : this.#state.uploads.find((one) => one.id == id);
    if (upload) {
      upload.attempts += known.unsent == id || upload.attempts ? 1 : 2;
      upload.seen = this.#now;
    }
    return upload;
  }

  #giveUp(): void {
    for (const { id, first } of [...this.#state.uploads]) {
      if (first < this.#now - GIVE_UP_MS) this.#dropUpload(id, "given-up");
    }
  }

  /** Act on the answer to an attempt; return how many reports were accepted, and whether it is time for a warning. */
  settle(id: string, outcome: Outcome): { accepted: number; warn: boolean } {
    const [state, now, { step, detail }] = [this.#state, this.#now, outcome];
    const upload = state.uploads.find((one) => one.id == id);
    let accepted = 0;
    Object.assign(state, { outcome: detail, outcomeAt: now });
    if (step == "kept") return { accepted, warn: this.#putOff(upload, outcome) };
    state.heldUntil = state.failing = undefined;
    if (step == "stopped") state.keyRefused = true;
    else if (upload && step == "too-large" && upload.attempts < 2 && upload.groups.length > 1) this.#split(upload);
    else {
      this.#days.agree(outcome.date);
      this.#closePeriods();
      this.#retire(upload, outcome.retired);
      if (step == "accepted") state.warned = undefined;
      accepted = this.#dropUpload(id, step == "accepted" ? step : "dropped", outcome);
      if (!this.#anythingDue) state.planned = state.plannedAt = undefined;
    }
    return { accepted, warn: false };
  }

  #putOff(upload: Upload | undefined, { detail, retryAfter = 0, unreachable }: Outcome): boolean {
    const [state, now] = [this.#state, this.#now];
    if (upload) upload.failures++;
    const most = Math.min(6 * 3_600_000, 60_000 * 2 ** Math.min((upload?.failures ?? 0) + 1, 20));
    const planned = now + retryAfter + Number(this.#draw("backoff", most));
    if (state.failing != detail || now < (state.failingSince ?? 0)) [state.failing, state.failingSince] = [detail, now];
    this.#planAt(planned);
    state.heldUntil = retryAfter ? now + retryAfter : unreachable ? planned : undefined;
    const warn = !state.warned && now - (state.failingSince ?? now) >= WARN_AFTER_MS;
    if (warn) state.warned = true;
    return warn;
  }

  /** Put two uploads of half the groups in the place of one that is too large. It cannot have been stored. */
  #split(upload: Upload): void {
    const middle = upload.groups.length >> 1;
    const halves = [upload.groups.slice(0, middle), upload.groups.slice(middle)].map((groups): Upload => {
      const costs = Object.fromEntries(groups.map(({ metric }) => [metric, upload.costs[metric] ?? 0]));
      return { ...this.#newUpload(), id: this.#newId(), groups, costs };
    });
    this.#state.uploads = this.#state.uploads.flatMap((one) => (one == upload ? halves : [one]));
  }

  #retire(upload: Upload | undefined, places: number[] | true | undefined): void {
    upload?.groups.forEach(({ metric, plan }, place) => {
      if (places !== true && !places?.includes(place)) return;
      const row = this.#row(metric);
      row.retired = [plan, this.#days.today + RETIRED_DAYS];
      if (row.slot?.plan == plan) this.#dropSlot(metric, "dropped");
    });
  }

  /** Forget an upload and count its reports; keep on which day its metrics may have been counted. */
  #dropUpload(id: string, word: string, { rejected = 0 }: Partial<Outcome> = {}): number {
    const upload = this.#state.uploads.find((one) => one.id == id);
    if (!upload) return 0;
    this.#state.uploads = this.#state.uploads.filter((one) => one != upload);
    // It may have come until now: also one that the aggregator calls a copy, for nobody knows when the first one came.
    for (const { metric } of upload.armed ? upload.groups : []) {
      const row = this.#row(metric);
      row.left = Math.max(this.#days.ofAggregator[1], row.left ?? 0);
    }
    const refused = Math.min(rejected, upload.groups.length);
    this.#count(word, upload.groups.length - refused);
    this.#count("dropped", refused);
    return upload.groups.length - refused;
  }

  #dropSlot(name: string, word: string): void {
    const row = this.#row(name);
    if (row.slot) this.#count(word);
    delete row.slot;
    this.#forgetUnused(name);
  }

  // The person's choices.

  #lasts({ agreed, secret, choices, each }: Moment, name: string): boolean {
    const now = momentOf(this.#state, agreed);
    return agreed && choices == now.choices && each[name] == now.each[name] && (secret ?? now.secret) == now.secret;
  }

  #agreeTerms(): void {
    this.#state.agreed = this.#whole;
    for (const { plan, terms } of this.#registry.metrics) this.#row(plan.metric).agreed = terms;
  }

  /** Choose. A change, for the app or for a metric, ends the moment of answers. Agreeing again is none. */
  #choose(choose: () => void, said?: boolean): void {
    const state = this.#state;
    const whole = () => JSON.stringify([state.consent ?? said, state.agreed]);
    const each = () =>
      Object.entries(state.metrics).map(([name, { agreed, refused }]) => [name, JSON.stringify([agreed, refused])]);
    const [before, rows] = [whole(), Object.fromEntries(each())];
    choose();
    if (whole() != before) state.choices = (state.choices ?? 0) + 1;
    else
      for (const [name, chosen] of each()) {
        const row = this.#row(name!);
        if (chosen != (rows[name!] ?? "[null,null]")) row.choices = (row.choices ?? 0) + 1;
      }
  }

  /** Keep that the person agrees to the registry's terms, or no longer refuses one metric. `said` is as in `momentOf`. */
  agree(metric?: string, said?: boolean): void {
    if (metric !== undefined) this.#choose(() => delete this.#row(metric).refused);
    else {
      this.#choose(() => {
        this.#agreeTerms();
        this.#state.consent = true;
      }, said);
      this.tryKey();
    }
    this.begin(undefined);
  }

  /** Keep that the person refuses, and drop what waits. Charges stay, and so does all that the device knows. */
  refuse(metric?: string): void {
    this.#choose(() => {
      if (metric !== undefined) this.#row(metric).refused = true;
      else this.#state.consent = false;
    });
    this.drop("refused", metric);
  }

  /**
   * Drop what waits of a metric, or everything. An upload that holds the metric goes with all that is in it: it is
   * frozen. A hidden metric's period stays over: opening it again would tell that it was not answered yet.
   */
  drop(word: string, metric?: string): void {
    for (const name of metric === undefined ? Object.keys(this.#state.metrics) : [metric]) this.#dropSlot(name, word);
    for (const { id, costs } of [...this.#state.uploads]) {
      if (metric === undefined || metric in costs) this.#dropUpload(id, word);
    }
  }

  /** Erase the secret, memos, cohort and what waits; keep what was spent; say nothing for 30 days. */
  forget(): void {
    for (const row of Object.values(this.#state.metrics)) {
      // All that a memo reserved counts as spent once a report of it was built: the rest would tell how many it had.
      if (row.classes.some(([, charged]) => charged)) row.spent = Math.max(row.spent, row.reserved);
      row.classes = [];
    }
    this.drop("forgotten");
    delete this.#state.secret;
    delete this.#state.cohort;
    this.#days.beginSilence();
  }

  // Looking at it, without changing anything.

  /** Return what each metric and the whole device asks beyond what was agreed to. */
  asks(): Record<string, string[]> {
    const found = this.#registry.metrics.map((metric): [string, string[]] => [metric.plan.metric, this.#asks(metric)]);
    const all: [string, string[]][] = [...found, ["", this.#consent?.deviceAsks(this.#whole, this.#agreedWhole) ?? []]];
    return Object.fromEntries(all.filter(([, asks]) => asks.length));
  }

  /** Return why a metric is silent, or why what it takes does not leave. */
  nothingLeaves(metric: CompiledMetric): Decision {
    const decision = this.taken(metric);
    const waits = ["", "answered", "unopened", "waiting"].includes(decision.silent);
    return waits && this.#state.keyRefused ? { silent: "wrong-key" } : decision;
  }

  /** What came of the latest attempt, in a few words. */
  get outcome(): string {
    return this.#state.outcome ?? "";
  }

  /** How many reports wait. */
  get waiting(): number {
    const { metrics, uploads } = this.#state;
    return (
      Object.values(metrics).filter(({ slot }) => slot).length +
      uploads.reduce((sum, { groups }) => sum + groups.length, 0)
    );
  }

  /** When the next attempt is, and until when not even a flush makes one; 0 where there is none. */
  get next(): [planned: number, heldUntil: number] {
    const { planned = 0, keyRefused } = this.#state;
    return [planned && !keyRefused ? Math.max(planned, this.#heldUntil) : 0, this.#heldUntil];
  }
}

const BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** Tell whether the presence of a metric's answers is hidden. */
export function isHidden(metric: CompiledMetric): boolean {
  return metric.terms.presence == "hidden";
}

/** Return what a report costs; of a memoized metric, what one answer costs with all its reports. */
export function costOf({ terms }: CompiledMetric): number {
  return terms.permanent || terms.report;
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
