/** Texts by the bucket of a public hash in the row of a cell (shared/reports.md, "Buckets"). */

import { type Answer, NOTHING, type Question, type Value } from "../report.ts";
import { firstWord, utf8 } from "../sha256.ts";
import { textOf } from "./unicode.ts";

export function hashed(answer: Answer, { domain, cell, normal }: Question): Value {
  const text = textOf(answer, domain["characters_max"] as number, normal);
  const typed = text === undefined ? untext(answer) : `text:${text}`;
  const salt = `dither text|${domain["salt"]}|${cell}`;
  return bucketOf(firstWord(utf8(typed)), salt, BigInt(domain["buckets"] as number));
}

/** Return the word for an answer that is no text. */
export function untext(answer: Answer): string {
  return answer === NOTHING ? "none" : "other";
}

/** Return the bucket of a number of 64 bits in a row. */
export function bucketOf(number: bigint, salt: string, buckets: bigint): number {
  return Number((BigInt.asUintN(64, multiplier(salt) * number) * buckets) >> 64n);
}

/** Return the odd number that a row multiplies by. */
export function multiplier(salt: string): bigint {
  return firstWord(utf8(salt)) | 1n;
}
