/**
 * Days and periods, the day that a device takes for today, and its way back from a false future.
 *
 * A device knows whole UTC days only, counted from 1 January 1970. A period of k days starts on the days divisible by
 * k, so it starts on the same day for everybody. A day is reached when a public period was used on it, or a report was
 * charged. While the clock reads more than a day earlier, nothing is recorded; client/device.md, "A clock that strays".
 */

import type { CompiledMetric } from "./registry.ts";

export const DAY_MS = 86_400_000;
/** For so many days of its clock a device that is behind says nothing; and after everything was forgotten. */
export const SILENT_DAYS = 30;
const YEAR_DAYS = 365;
/** For so long after a metric expires an aggregator takes its reports: one that leaves later is not made. */
const GRACE_DAYS = 7;
/** A metric's used days are kept as so many spans at most: then those of the shortest gap become one. */
const SPANS_MAX = 32;

/** Uniform randomness: an integer below `n`, drawn for what the name says. */
export type Draw = (what: string, n: number | bigint) => bigint;
/** The device's clock and the aggregator's agree, and an attempt has ended, within so long a time of each other. */
const AGREES_MS = 60_000;
/** Days from the first and before the last. */
export type Span = [first: number, until: number];

/** The days that the storage keeps. */
export interface KeptDays {
  firstDay?: number | undefined;
  lastDay?: number | undefined;
  behindSince?: number | undefined;
  forgottenUntil?: number | undefined;
  /** How far the aggregator's clock is ahead of the device's, by its latest receipt. */
  ahead?: number | undefined;
}

/** Return the first day of the period that `day` is in. */
export function periodStart(metric: CompiledMetric, day: number): number {
  return day - (day % metric.terms.period_days);
}

/** Return the first day after the period that `day` is in. */
export function periodEnd(metric: CompiledMetric, day: number): number {
  return periodStart(metric, day) + metric.terms.period_days;
}

function expiryDay(metric: CompiledMetric): number {
  return Date.parse(metric.terms.expires) / DAY_MS;
}

/** Return the first day on which a metric is silent because it expires; a hidden one, whose report would be late. */
export function silentFrom(metric: CompiledMetric, today: number): number {
  const expires = expiryDay(metric);
  const late = metric.terms.presence == "hidden" && periodEnd(metric, today) >= expires + GRACE_DAYS;
  return late ? Math.min(expires, today) : expires;
}

/** Return the first days of the periods of the year before a metric expires. */
export function periodsOf(metric: CompiledMetric): number[] {
  const last = expiryDay(metric) - 1;
  const periods = [];
  for (let day = periodStart(metric, last - YEAR_DAYS + 1); day <= last; day += metric.terms.period_days)
    periods.push(day);
  return periods;
}

/** Tell whether the device answers in each of its periods while it may, with nothing to draw. */
export function answersAlways(metric: CompiledMetric): boolean {
  return metric.schedule == "early" || metric.terms.charges >= periodsOf(metric).length;
}

/**
 * Return the first days of the periods that are drawn for a metric, in the order of the draw.
 *
 * The whole year is drawn from, whenever the device came, so that a device of a month has answered in as many of its
 * days as one of a year. Nothing drawn depends on an answer.
 */
export function drawPeriods(metric: CompiledMetric, draw: Draw): number[] {
  const candidates = periodsOf(metric);
  const count = Math.min(metric.terms.charges, candidates.length);
  return Array.from({ length: count }, () => candidates.splice(Number(draw("schedule", candidates.length)), 1)[0]!);
}

/** Return a metric's used days with those of one more period. */
export function withSpan(spans: readonly Span[], first: number, until: number): Span[] {
  const kept = spans.map(([start, end]): Span => [start, end]);
  let [gap, place] = [1, 0];
  for (let index = 1; index < kept.length; index++) {
    const between = kept[index]![0] - kept[index - 1]![1];
    if (!place || between < gap) [gap, place] = [between, index];
  }
  if (place && (gap <= 0 || kept.length >= SPANS_MAX)) {
    const [merged] = kept.splice(place, 1);
    kept[place - 1]![1] = Math.max(kept[place - 1]![1], merged![1]);
  }
  const same = kept.find(([start]) => start == first);
  if (same) same[1] = Math.max(same[1], until);
  else kept.push([first, until]);
  return kept.sort((a, b) => a[0] - b[0]);
}

/** The days of a device: what its clock reads, and what its storage keeps of days. */
export class Days {
  readonly #kept: KeptDays;
  readonly now: number;
  /** The day by the clock alone. */
  readonly clockDay: number;

  constructor(kept: KeptDays, now: number) {
    this.#kept = kept;
    this.now = now;
    this.clockDay = Math.floor(now / DAY_MS);
  }

  /** The day by the clock, or the latest day that was reached if the clock went back behind it. */
  get today(): number {
    return Math.max(this.clockDay, this.#kept.lastDay ?? 0);
  }

  /** Keep that today a period was used, or a report charged. */
  reach(): void {
    this.#kept.lastDay = this.today;
  }

  /** Take note whether the clock is behind, and fall back when it was for long enough. */
  notice(): void {
    const kept = this.#kept;
    if (!this.#isBehind()) {
      delete kept.behindSince;
      return;
    }
    const since = this.#behindSince();
    if (this.clockDay < since + SILENT_DAYS) {
      kept.behindSince = since;
      return;
    }
    delete kept.behindSince;
    this.#fallBack();
    if (this.#forgotAhead()) delete kept.forgottenUntil;
    if (kept.lastDay === undefined) kept.firstDay = Math.min(since, kept.firstDay ?? 0);
  }

  /** Keep how far a receipt's Date is ahead of the clock; fall back at once if they agree within a day. */
  agree(date: number | undefined): void {
    if (date === undefined) return;
    const ahead = date - this.now;
    if (Math.abs(ahead) > AGREES_MS / 2) this.#kept.ahead = ahead;
    else delete this.#kept.ahead;
    if (Math.abs(ahead) <= DAY_MS) this.#fallBack();
  }

  /** The first and the last day that it may be for the aggregator, which counts by its own: two around its midnight. */
  get ofAggregator(): [first: number, last: number] {
    const now = this.now + (this.#kept.ahead ?? 0);
    return [Math.floor((now - AGREES_MS) / DAY_MS), Math.floor((now + AGREES_MS) / DAY_MS)];
  }

  /** Until when the aggregator's last day stays what it is, by the device's clock. */
  get untilNextOfAggregator(): number {
    return this.now + DAY_MS - ((this.now + (this.#kept.ahead ?? 0) + AGREES_MS) % DAY_MS);
  }

  #fallBack(): void {
    if (this.#kept.lastDay !== undefined) this.#kept.lastDay = Math.min(this.#kept.lastDay, this.clockDay);
  }

  #isBehind(): boolean {
    const { firstDay, lastDay } = this.#kept;
    return Math.max(this.today, lastDay === undefined ? (firstDay ?? 0) : 0) > this.clockDay + 1 || this.#forgotAhead();
  }

  /** The first day on which the clock was found behind: today, unless that was kept. */
  #behindSince(): number {
    return Math.min(this.clockDay, this.#kept.behindSince ?? this.clockDay);
  }

  /** The first day on which a device that is behind may speak again. */
  get behindUntil(): number {
    return Math.min(this.today - 1, this.#behindSince() + SILENT_DAYS);
  }

  /** Return the first day on which a new device speaks that is quiet for so many days. */
  quietUntil(days: number): number {
    const { firstDay = 0, lastDay } = this.#kept;
    if (lastDay !== undefined && lastDay < firstDay) return 0; // it was quiet before that day came
    return (firstDay <= this.today ? firstDay : this.#behindSince()) + days;
  }

  /** Keep that everything was forgotten today: a device that is behind begins its silence anew. */
  beginSilence(): void {
    this.#kept.forgottenUntil = this.today + SILENT_DAYS;
    delete this.#kept.behindSince;
  }

  /** The first day on which a device speaks again after everything was forgotten. */
  get forgottenUntil(): number {
    return this.#forgotAhead() ? this.#behindSince() + SILENT_DAYS : (this.#kept.forgottenUntil ?? 0);
  }

  #forgotAhead(): boolean {
    return (this.#kept.forgottenUntil ?? 0) > this.clockDay + SILENT_DAYS + 1;
  }
}
