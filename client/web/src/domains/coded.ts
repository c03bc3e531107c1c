/** Words by a prefix of their code, or by the whole, hashed (shared/reports.md, "Words"). */

import type { Answer, Question, Value } from "../report.ts";
import { firstWord, sha256, utf8 } from "../sha256.ts";
import { LENGTHS, USUAL, ORDER } from "./letters.ts";
import { bucketOf, folded, multiplier, textOf, trimmed } from "./texts.ts";

const [END, ESC] = [95, 96];
const ROWS = 4;

export function coded(answer: Answer, { domain, cell, nothing, normal }: Question): Value {
  const form = (text: string): string => {
    const word = trimmed(normal(text));
    return domain["casefold"] ? folded(word) : word;
  };
  const text = textOf(answer, domain["characters_max"] as number, form);
  const typed = text === undefined ? Uint8Array.of(nothing ? 0xff : 0xfe) : utf8(text);
  const levels = domain["levels"] as readonly number[];
  const group = Math.floor(cell / ROWS);
  const number = group === levels.length ? firstWord(typed) : folding(prefixOf(typed, levels[group]!));
  return bucketOf(number, `dither words|${domain["salt"]}|${group}|${cell % ROWS}`, 1 << 17);
}

/** Return the 64 bits that stand for a prefix. */
function folding(prefix: bigint): bigint {
  return BigInt.asUintN(64, prefix + multiplier("dither words|fold") * (prefix >> 64n));
}

/** Return the first bits of a word's code, as an integer. */
function prefixOf(typed: Uint8Array, length: number): bigint {
  const bits: string[] = [];
  let before = END;
  for (const byte of typed) {
    const symbol = byte >= 0x20 && byte < 0x7f ? byte - 0x20 : ESC;
    bits.push(codeAfter(before)[symbol]!, symbol === ESC ? binary(byte, 8) : "");
    before = symbol;
  }
  bits.push(codeAfter(before)[END]!, ...Array.from(sha256(typed), (byte) => binary(byte, 8)));
  return BigInt(`0b${bits.join("").slice(0, length)}`);
}

/** Return the code of each symbol after another one, in bits: a canonical Huffman code. */
function codeAfter(symbol: number): string[] {
  const row = LENGTHS.split("\n")[symbol + 1]!;
  const lengths: number[] = [];
  for (let place = 0; place < ORDER.length; place++) {
    lengths[ORDER.charCodeAt(place) - 0x20] = row.charCodeAt(place) - 0x60 || USUAL;
  }
  const codes: string[] = [];
  let code = 0;
  for (let length = 1; length <= Math.max(...lengths); length++, code *= 2) {
    lengths.forEach((own, one) => {
      if (own === length) codes[one] = binary(code++, length);
    });
  }
  return codes;
}

function binary(number: number, length: number): string {
  return number.toString(2).padStart(length, "0");
}
