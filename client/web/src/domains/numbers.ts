/**
 * Numbers, compared exactly as the fractions that they are (shared/reports.md, "The place of an answer").
 *
 *     buckets       how many edges are at most the number
 *     range         a point of a grid, which a coin chooses of the two beside it
 *     thresholds    whether it is above the device's threshold in the step of the cell
 */

import type { Domain } from "../registry.ts";
import type { Answer, Question, Value } from "../report.ts";

/** A number as numerator and denominator. */
type Fraction = readonly [bigint, bigint];

const SCALE = 1n << 64n;

export function buckets(answer: Answer, { domain, mechanism, nothing }: Question): Value {
  const [edges, number] = [edgesOf(domain), stepsOf(domain, answer)];
  if (number) return countBelow(edges, number);
  return mechanism === "window" ? undefined : edges.length + (nothing ? 2 : 1);
}

export function range(answer: Answer, { domain, kind, integers, coins }: Question): Value {
  const [[low, high], number] = [edgesOf(domain), stepsOf(domain, answer)];
  const part = number ? partBetween(number, low!, high!) : 0n;
  const scaled = part * BigInt(integers.d - 1);
  const point = Number(scaled / SCALE) + Number(coins.coin(scaled % SCALE));
  return number || kind !== "table" ? point : integers.d; // a column has "other" behind its points
}

export function thresholds(answer: Answer, { domain, cell, threshold }: Question): Value {
  const [edges, number] = [edgesOf(domain), stepsOf(domain, answer)];
  const step = number ? Math.min(Math.max(countBelow(edges, number) - 1, 0), edges.length - 2) : 0;
  const part = number ? partBetween(number, edges[step]!, edges[step + 1]!) : 0n;
  const above = threshold() < part;
  return Number(step === cell ? above : step > cell);
}

/** Return the part of a range below a number, out of 2^64. */
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
