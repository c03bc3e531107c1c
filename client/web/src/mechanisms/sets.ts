/**
 * Mechanisms whose report is a set: subset selection, PrivSet, OUE, SUE and RAPPOR (shared/reports.md, "The
 * randomizers"). On the wire it is a string of bits or, where that is shorter, its members (shared/wire.md, "Reports").
 *
 * Whatever the value, the same coins are drawn in the same order, so that the time they take tells nothing.
 */

import type { Coins } from "../coins.ts";
import type { Mechanism, Report, Value } from "../report.ts";

// Subsets of a weight.

/** Send a set of w values that holds the answer's with a coin of T, else one that does not. */
export const ss: Mechanism = {
  randomize({ d, weight, threshold }, value, coins) {
    const inside = coins.coin(threshold);
    const [beside, without] = [subset(d - 1, weight - 1, coins), subset(d - 1, weight, coins)];
    const others = (inside ? beside : without).map((one) => one + Number(one >= (value as number)));
    return ascending(inside ? [...others, value as number] : others);
  },
  any: ({ d, weight }, coins) => subset(d, weight, coins),
  write: (report, { d, weight }) => writeSubset(report, d, weight),
};

/** Send a set of w values and dummies that meets the answer's with a coin of T, else one that does not. */
export const privset: Mechanism = {
  randomize({ d, ticks, weight, threshold }, value, coins) {
    const size = d + ticks;
    const held = [...(value as readonly number[])];
    for (let dummy = d; held.length < ticks; dummy++) held.push(dummy);
    const others = [...Array(size).keys()].filter((one) => !held.includes(one));
    const meets = coins.coin(threshold);
    let rank = coins.below(choose(size, weight) - choose(d, weight));
    const without = subset(d, weight, coins);
    if (!meets) return without.map((place) => others[place]!);
    for (let common = 1; ; common++) {
      const rest = choose(d, weight - common);
      const sets = choose(ticks, common) * rest;
      if (rank < sets) {
        const shared = atRank(ticks, common, rank / rest).map((place) => held[place]!);
        return ascending([...shared, ...atRank(d, weight - common, rank % rest).map((place) => others[place]!)]);
      }
      rank -= sets;
    }
  },
  any: ({ d, ticks, weight }, coins) => subset(d + ticks, weight, coins),
  write: (report, { d, ticks, weight }) => writeSubset(report, d + ticks, weight),
};

/** Draw a set of `count` integers below `size`. */
function subset(size: number, count: number, coins: Coins): number[] {
  return atRank(size, count, coins.below(choose(size, count)));
}

/** Return the set of `count` integers below `size` that is at a place in lexicographic order. */
function atRank(size: number, count: number, rank: bigint): number[] {
  const chosen: number[] = [];
  let beginning = choose(size - 1, count - 1); // the sets that hold the next integer
  for (let one = 0; count > 0; one++) {
    const left = BigInt(size - one - 1);
    if (rank < beginning) {
      chosen.push(one);
      count--;
      beginning = left && (beginning * BigInt(count)) / left;
    } else {
      rank -= beginning;
      beginning = (beginning * (left - BigInt(count) + 1n)) / left;
    }
  }
  return chosen;
}

/** Return how many sets of `count` integers below `size` there are. */
function choose(size: number, count: number): bigint {
  let sets = BigInt(count >= 0);
  for (let one = 0; one < count; one++) sets = (sets * BigInt(size - one)) / BigInt(one + 1);
  return sets;
}

function ascending(members: number[]): number[] {
  return members.sort((one, other) => one - other);
}

function writeSubset(report: Report, size: number, weight: number): string {
  const width = size <= 1 << 8 ? 1 : size <= 1 << 16 ? 2 : 4;
  if (8 * width * weight >= size) return writeBits(report, size);
  const bytes = new Uint8Array(width * weight);
  (report as number[]).forEach((one, i) => {
    for (let byte = 0; byte < width; byte++) bytes[i * width + byte] = one >>> (8 * byte);
  });
  return base64url(bytes);
}

// Bits, each by a coin of its own.

/** Say each bit by a coin: of `threshold_p` where the answer holds it, else of `threshold_q`. */
export const oue: Mechanism = {
  randomize: ({ d, threshold_p, threshold_q }, value, coins) => bits(d, value, threshold_p, threshold_q, coins),
  repeat: ({ d }, { threshold_flip }, memo, coins) => bits(d, memo, SCALE - threshold_flip, threshold_flip, coins),
  write: (report, { d }) => writeBits(report, d),
};

export const sue = oue;

/** Flip each Bloom bit by a coin for the memo, and say the memo's bits by coins. */
export const rappor: Mechanism = {
  randomize: ({ k, threshold_prr }, value, coins) => bits(k, value, SCALE - threshold_prr, threshold_prr, coins),
  repeat: ({ k }, { threshold_irr_1, threshold_irr_0 }, memo, coins) =>
    bits(k, memo, threshold_irr_1, threshold_irr_0, coins),
  write: (report, { k }) => writeBits(report, k),
};

const SCALE = 1n << 64n;

/** Draw `count` bits: a coin of `one` for each that is held, of `zero` for each other; return those that are set. */
function bits(count: number, held: Value, one: bigint, zero: bigint, coins: Coins): number[] {
  const set = new Set(typeof held === "number" ? [held] : held);
  return [...Array(count).keys()].filter((bit) => coins.coin(set.has(bit) ? one : zero));
}

function writeBits(report: Report, size: number): string {
  const bytes = new Uint8Array((size + 7) >> 3);
  for (const bit of report as number[]) bytes[bit >> 3]! |= 1 << (bit & 7);
  return base64url(bytes);
}

function base64url(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replace(/[+/=]/g, (one) => ({ "+": "-", "/": "_" })[one] ?? "");
}
