/**
 * Texts: the form in which they are told apart, and their buckets by a public hash.
 *
 * The form is NFC of Unicode 14, whatever version the engine has (shared/wire.md, "Texts").
 * A character that Unicode 14 does not have stays as it is and parts the text. So does, here, any that Unicode 14 never
 * composes, reorders or folds: that changes nothing, and makes the table short.
 */

import type { Answer, Question, Value } from "../report.ts";
import { firstWord, utf8 } from "../sha256.ts";
import { RUNS } from "./runs.ts";

/** Finds the characters between those that part a text. */
const FORMED = new RegExp(`[${ranges()}]+`, "gu");
const WHITE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const VARIANTS = "\\u180b-\\u180d\\u180f\\ufe00-\\ufe0f\\u{e0100}-\\u{e01ef}";
/** The characters that nobody sees. */
const UNSEEN =
  "\\0-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f-\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e" +
  "\\u2060-\\u206f\\u2800\\u3164\\ud800-\\udfff\\ue000-\\uf8ff\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb" +
  "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}\\u{f0000}-\\u{10ffff}";
/** A character beyond ASCII that is seen and no white space. */
const WIDE = `[^\\0-\\x7f${WHITE}${UNSEEN}]`;
const VARIED = new RegExp(`(${WIDE})[${VARIANTS}]|([0-9#*])[\\ufe0e\\ufe0f]`, "gu");
const JOINED = new RegExp(`(${WIDE})[\\u200c\\u200d](?=${WIDE})`, "gu");
const HIDDEN = new RegExp(`[${UNSEEN}]`, "u");
const ENDS = new RegExp(`^[${WHITE}]+|[${WHITE}]+$`, "gu");

function ranges(): string {
  let at = 0;
  const ends = RUNS.split(" ").map((length) => (at += parseInt(length, 36)));
  // Runs to form and runs that part take turns, from 0 on.
  return [0, ...ends].map((end, i) => (i % 2 ? `-\\u{${(end - 1).toString(16)}}` : `\\u{${end.toString(16)}}`)).join("");
}

/** Return a text in NFC of Unicode 14. */
export function normal(text: string): string {
  return text.replace(FORMED, (part) => part.normalize());
}

/** Return a normal text without the difference of capitals, as Unicode 14 folds them. */
export function folded(text: string): string {
  return normal(text.replace(FORMED, (part) => Array.from(part, fold).join("")));
}

/** Return the full case folding of one character: it is of the case that both cases lead to, but for Cherokee's. */
function fold(character: string): string {
  if (/[\u0131\u13a0-\u13f5]/.test(character)) return character;
  if (/[\u13f8-\u13fd\uab70-\uabbf]/.test(character)) return character.toUpperCase();
  return character.toLowerCase().toUpperCase().toLowerCase();
}

/** Return a text without white space around it. */
export function trimmed(text: string): string {
  return text.replace(ENDS, "");
}

/** Return the text that an answer is, in its form; undefined of one that is none, too long, or not to be seen. */
export function textOf(answer: Answer, max: number, form: (text: string) => string): string | undefined {
  if (typeof answer !== "string" || answer.length > 8 * max || [...answer].length > 4 * max) return undefined;
  const text = form(answer.replace(/[\ud800-\udfff]/gu, "?"));
  return [...text].length <= max && isSeen(text) ? text : undefined;
}

/** Tell whether a text has no character that nobody sees, but for joiners and variation selectors in their places. */
export function isSeen(text: string): boolean {
  return !HIDDEN.test(text.replace(VARIED, "$1$2").replace(JOINED, "$1"));
}

// Buckets (shared/reports.md, "Buckets").

export function hashed(answer: Answer, { domain, cell, nothing, normal }: Question): Value {
  const text = textOf(answer, domain["characters_max"] as number, normal);
  const typed = text === undefined ? untext(nothing) : `text:${text}`;
  return bucketOf(firstWord(utf8(typed)), `dither text|${domain["salt"]}|${cell}`, domain["buckets"] as number);
}

/** Return the word for an answer that is no text. */
export function untext(nothing: boolean): string {
  return nothing ? "none" : "other";
}

/** Return the bucket of a number of 64 bits in a row. */
export function bucketOf(number: bigint, salt: string, buckets: number): number {
  return Number((BigInt.asUintN(64, multiplier(salt) * number) * BigInt(buckets)) >> 64n);
}

/** Return the odd number that a row multiplies by. */
export function multiplier(salt: string): bigint {
  return firstWord(utf8(salt)) | 1n;
}
