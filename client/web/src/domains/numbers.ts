/**
 * Numbers, compared exactly as the fractions that they are (shared/reports.md, "The place of an answer").
 *
 *     buckets       how many edges are at most the number
 *     range         a point of a grid, which a coin chooses of the two beside it
 *     thresholds    whether it is above the device's threshold in the step of the cell
 */

import { type Answer, NOTHING, type Question, type Value } from "../report.ts";
import type { Domain } from "../registry.ts";

/** A number as numerator and denominator. */
type Fraction = readonly [bigint, bigint];

const SCALE = 1n << 64n;

export function buckets(answer: Answer, { domain, mechanism }: Question): Value {
  const place = bucketOf(domain, answer);
  return mechanism === "window" && place > edgesOf(domain).length ? undefined : place;
}

export function range(answer: Answer, { domain, integers, coins }: Question): Value {
  const part = partOf(domain, answer) ?? 0n;
  const scaled = part * BigInt(integers.d - 1);
  return Number(scaled / SCALE) + Number(coins.coin(scaled % SCALE));
}

export function thresholds(answer: Answer, { domain, cell, threshold }: Question): Value {
  const edges = edgesOf(domain);
  const number = stepsOf(domain, answer);
  const step = number ? Math.min(Math.max(countBelow(edges, number) - 1, 0), edges.length - 2) : 0;
  const part = number ? partBetween(number, edges[step]!, edges[step + 1]!) : 0n;
  const above = threshold() < part;
  return Number(step === cell ? above : step > cell);
}

/** Return the bucket of a number; "other" and "none" come after all buckets. */
export function bucketOf(domain: Domain, answer: Answer): number {
  const edges = edgesOf(domain);
  const number = stepsOf(domain, answer);
  return number ? countBelow(edges, number) : edges.length + (answer === NOTHING ? 2 : 1);
}

/** Return the part of the range below a number, out of 2^64; undefined of what is no number. */
export function partOf(domain: Domain, answer: Answer): bigint | undefined {
  const number = stepsOf(domain, answer);
  const [low, high] = edgesOf(domain);
  return number && partBetween(number, low!, high!);
}

function partBetween([numerator, denominator]: Fraction, low: bigint, high: bigint): bigint {
  const above = numerator - low * denominator;
  const part = above > 0n ? (above * SCALE) / ((high - low) * denominator) : 0n;
  return part < SCALE ? part : SCALE;
}

function countBelow(edges: readonly bigint[], [numerator, denominator]: Fraction): number {
  return edges.filter((edge) => edge * denominator <= numerator).length;
}

function edgesOf(domain: Domain): bigint[] {
  return (domain["edges"] as readonly string[]).map(BigInt);
}

/** Return a number in steps of 1 / 10^decimals; undefined of what is none. */
function stepsOf(domain: Domain, answer: Answer): Fraction | undefined {
  if (typeof answer !== "bigint" && (typeof answer !== "number" || Number.isNaN(answer))) return undefined;
  let number = answer === Infinity || answer === -Infinity ? Math.sign(answer) * 1e300 : answer; // beyond all edges
  let denominator = 1n;
  while (typeof number === "number" && !Number.isInteger(number)) {
    number *= 2; // exact: a float that is no integer is small
    denominator *= 2n;
  }
  return [BigInt(number) * 10n ** BigInt(domain["decimals"] as number), denominator];
}
