/**
 * What a person takes back of all that a device keeps. It is loaded at the start: a refusal, and to forget, wait for no
 * code that is loaded later.
 *
 * Each function changes the state at once, within one transaction of the storage.
 */

import type { KeptDays } from "./days.ts";
import type { Row, State } from "./device.ts";

export const DAY_MS = 86_400_000;
/** For so many days of its clock a device that is behind says nothing; and after everything was forgotten. */
export const SILENT_DAYS = 30;
/** The device's clock and the aggregator's agree, and an attempt has ended, within so long a time of each other. */
export const AGREES_MS = 60_000;

/** Return the day by the clock, or the latest day that was reached if the clock went back behind it. */
export function todayOf({ lastDay = 0 }: KeptDays, now: number): number {
  return Math.max(Math.floor(now / DAY_MS), lastDay);
}

/** Return the last day that it may be for the aggregator, which counts by its own. */
export function lastDayOf({ ahead = 0 }: KeptDays, now: number): number {
  return Math.floor((now + ahead + AGREES_MS) / DAY_MS);
}

/** Return the row of a metric; make it where there is none. */
export function rowOf({ metrics }: State, name: string): Row {
  return (metrics[name] ??= { spent: 0, reserved: 0, terms: "", memo: "", classes: [], used: [], drawn: [] });
}

export function count({ counts }: State, outcome: string, reports = 1): void {
  if (reports) counts[outcome] = (counts[outcome] ?? 0) + reports;
}

/** How many reports wait. */
export function waitingOf({ metrics, uploads }: State): number {
  return (
    Object.values(metrics).filter(({ slot }) => slot).length +
    uploads.reduce((sum, { groups }) => sum + groups.length, 0)
  );
}

export function forgetUnused(row: Row): void {
  row.classes = row.classes.filter(([key, charged]) => charged || row.slot?.class == key);
}

export function dropSlot(state: State, name: string, word: string): void {
  const row = rowOf(state, name);
  if (row.slot) count(state, word);
  delete row.slot;
  forgetUnused(row);
}

/** Forget an upload and count its reports; keep on which day its metrics may have been counted. */
export function dropUpload(state: State, now: number, id: string, word: string, rejected = 0): number {
  const upload = state.uploads.find((one) => one.id == id);
  if (!upload) return 0;
  state.uploads = state.uploads.filter((one) => one != upload);
  // It may have come until now: also one that the aggregator calls a copy, for nobody knows when the first one came.
  for (const { metric } of upload.armed ? upload.groups : []) {
    const row = rowOf(state, metric);
    row.left = Math.max(lastDayOf(state, now), row.left ?? 0);
  }
  const refused = Math.min(rejected, upload.groups.length);
  count(state, word, upload.groups.length - refused);
  count(state, "dropped", refused);
  return upload.groups.length - refused;
}

/**
 * Drop what waits of a metric, or everything. An upload that holds the metric goes with all that is in it: it is
 * frozen. A hidden metric's period stays over: opening it again would tell that it was not answered yet.
 */
export function drop(state: State, now: number, word: string, metric?: string): void {
  for (const name of metric === undefined ? Object.keys(state.metrics) : [metric]) dropSlot(state, name, word);
  for (const { id, costs } of [...state.uploads]) {
    if (metric === undefined || metric in costs) dropUpload(state, now, id, word);
  }
}

/** Keep that the person refuses, and drop what waits. Charges stay, and so does all that the device knows. */
export function refuse(state: State, now: number, metric?: string): void {
  if (metric !== undefined) rowOf(state, metric).refused = true;
  else state.consent = false;
  drop(state, now, "refused", metric);
}

/** Erase the secret, memos, cohort and what waits; keep what was spent; say nothing for 30 days. */
export function forget(state: State, now: number): void {
  for (const row of Object.values(state.metrics)) {
    // All that a memo reserved counts as spent once a report of it was built: the rest would tell how many it had.
    if (row.classes.some(([, charged]) => charged)) row.spent = Math.max(row.spent, row.reserved);
    row.classes = [];
  }
  drop(state, now, "forgotten");
  delete state.secret;
  delete state.cohort;
  beginSilence(state, now);
}

/** Keep that everything was forgotten today: a device that is behind begins its silence anew. */
function beginSilence(kept: KeptDays, now: number): void {
  kept.forgottenUntil = todayOf(kept, now) + SILENT_DAYS;
  delete kept.behindSince;
}

/** Let no answer replace the "none" of an open period: telemetry is off, and nobody looks. */
export function endPeriods({ metrics }: State): void {
  for (const { slot } of Object.values(metrics)) if (slot) slot.open = false;
}
