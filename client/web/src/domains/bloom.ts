/** Texts by the bits of google/rappor's Bloom filter (shared/reports.md, "Bloom bits"). */

import type { Answer, Question, Value } from "../report.ts";
import { utf8 } from "../sha256.ts";
import { textOf, untext } from "./texts.ts";

export function words(answer: Answer, { domain, cell, integers, nothing, normal }: Question): Value {
  const text = textOf(answer, domain["characters_max"] as number, normal) ?? untext(nothing);
  return bloomBits(text, cell, integers.k, integers.h);
}

/** Return the bits that a text sets in a cell. */
export function bloomBits(text: string, cell: number, k: number, h: number): number[] {
  const bytes = utf8(text);
  const message = new Uint8Array(4 + bytes.length);
  new DataView(message.buffer).setUint32(0, cell);
  message.set(bytes, 4);
  return [...new Set(md5(message).subarray(0, h).map((byte) => byte % k))].sort((one, other) => one - other);
}

/** The first 32 bits of the fractions of |sin 1|, |sin 2| and so on: the standard's constants, by integers. */
const SINES = Array.from({ length: 64 }, (_, i) => {
  const angle = BigInt(i + 1);
  let [sum, term] = [0n, angle << 200n];
  for (let power = 1n; term; power += 2n) {
    sum += term;
    term = (-term * angle * angle) / ((power + 1n) * (power + 2n));
  }
  return Number(BigInt.asIntN(32, (sum < 0n ? -sum : sum) >> 168n));
});
const TURNS = [
  [7, 12, 17, 22],
  [5, 9, 14, 20],
  [4, 11, 16, 23],
  [6, 10, 15, 21],
];

/** Return the 16 bytes of MD5 (RFC 1321), which here is no more than google/rappor's public hash. */
function md5(message: Uint8Array): Uint8Array {
  const padded = new DataView(new ArrayBuffer(((message.length + 72) >> 6) << 6));
  new Uint8Array(padded.buffer).set(message);
  padded.setUint8(message.length, 0x80);
  padded.setUint32(padded.byteLength - 8, message.length * 8, true);
  const state = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476];
  for (let at = 0; at < padded.byteLength; at += 64) {
    let [a, b, c, d] = state as [number, number, number, number];
    for (let i = 0; i < 64; i++) {
      const round = i >> 4;
      const mixed = [(b & c) | (~b & d), (d & b) | (~d & c), b ^ c ^ d, c ^ (b | ~d)][round]!;
      const word = ([1, 5, 3, 7][round]! * i + [0, 1, 5, 0][round]!) & 15;
      const sum = (a + mixed + SINES[i]! + padded.getInt32(at + 4 * word, true)) | 0;
      const turn = TURNS[round]![i & 3]!;
      [a, b, c, d] = [d, (b + ((sum << turn) | (sum >>> (32 - turn)))) | 0, b, c];
    }
    [a, b, c, d].forEach((word, i) => (state[i] = (state[i]! + word) | 0));
  }
  const digest = new DataView(new ArrayBuffer(16));
  state.forEach((word, i) => digest.setInt32(4 * i, word, true));
  return new Uint8Array(digest.buffer);
}
