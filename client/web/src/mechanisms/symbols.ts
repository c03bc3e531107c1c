/**
 * Mechanisms whose report is a symbol: GRR, PGR and the window (shared/reports.md, "The randomizers").
 *
 * Whatever the value, the same coins are drawn in the same order, so that the time they take tells nothing.
 */

import type { Coins } from "../coins.ts";
import type { Integers, Mechanism } from "../report.ts";

/** Tell the truth with a coin of T, else any other value. */
export const grr: Mechanism = {
  randomize({ d, threshold }, value, coins) {
    const truth = coins.coin(threshold);
    const other = below(coins, d - 1);
    return truth ? (value as number) : other + Number(other >= (value as number));
  },
  any: ({ d }, coins) => below(coins, d),
  write: Number,
};

/** Send an output of the window around the place with a coin of T, else one of the others; any where there is none. */
export const window: Mechanism = {
  randomize({ d, reach, threshold }, value, coins) {
    const width = 2 * reach + 1;
    const inside = coins.coin(threshold);
    const near = below(coins, width);
    const far = below(coins, d - 1);
    const anywhere = below(coins, d + 2 * reach);
    if (value === undefined) return anywhere;
    return inside ? (value as number) + near : far + width * Number(far >= (value as number));
  },
  any: ({ d, reach }, coins) => below(coins, d + 2 * reach),
  write: Number,
};

/** Send a point on the hyperplane of the value's point with a coin of T, else one that is not on it. */
export const pgr: Mechanism = {
  randomize(integers, value, coins) {
    const { order, dimension, threshold } = integers;
    const others = power(order, dimension - 1);
    const on = coins.coin(threshold);
    const nonzero = 1 + below(coins, others - 1);
    const anything = below(coins, others);
    const point = pointOf(value as number, integers);
    const pivot = point.indexOf(1);
    const vector = digits(on ? nonzero : anything, order, dimension - 1);
    vector.splice(pivot, 0, 0);
    const product = vector.reduce((sum, one, place) => (sum + one * point[place]!) % order, 0);
    vector[pivot] = (Number(!on) + order - product) % order;
    return numberOf(vector, integers);
  },
  any: ({ order, dimension }, coins) => below(coins, points(order, dimension)),
  write: Number,
};

/** Return K, how many points there are. */
function points(order: number, dimension: number): number {
  return (power(order, dimension) - 1) / (order - 1);
}

/** Return the vector of the point of a number. Its place, in lexicographic order, is the cube of the number from K. */
export function pointOf(number: number, { order, dimension, prime }: Integers): number[] {
  const all = points(order, dimension);
  let place = walk(all - 1 - number, 3, prime, all);
  let free = 0; // points whose first 1 stands later come before
  for (let size = 1; place >= size; size *= order, free++) place -= size;
  return [...Array<number>(dimension - 1 - free).fill(0), 1, ...digits(place, order, free)];
}

/** Return the number of the point that a vector lies on, once it is scaled. */
export function numberOf(vector: readonly number[], { order, prime }: Integers): number {
  const first = vector.findIndex(Boolean);
  const scale = power(vector[first]!, order - 2, order); // its inverse: Fermat
  const rest = vector.slice(first + 1);
  const place = rest.reduce((rank, one) => rank * order + ((one * scale) % order), 0) + points(order, rest.length);
  const all = points(order, vector.length);
  return all - 1 - walk(place, (2 * prime - 1) / 3, prime, all); // the cube's inverse
}

/** Return a power modulo a prime, and raise it again while it is not below a bound. */
function walk(base: number, exponent: number, prime: number, bound: number): number {
  const raised = power(base, exponent, prime);
  return raised < bound ? raised : walk(raised, exponent, prime, bound);
}

/** Return base^exponent, or its rest: `**` need not be exact. Residues below 2^26 are. */
function power(base: number, exponent: number, modulus = Infinity): number {
  let result = 1;
  for (let left = exponent, square = base; left; left >>= 1, square = (square * square) % modulus) {
    if (left & 1) result = (result * square) % modulus;
  }
  return result;
}

/** Return the digits of a number to a base, the most significant first. */
function digits(number: number, base: number, count: number): number[] {
  const all = Array<number>(count);
  for (let place = count; place--; number = (number - all[place]!) / base) all[place] = number % base;
  return all;
}

function below(coins: Coins, size: number): number {
  return Number(coins.below(size));
}
