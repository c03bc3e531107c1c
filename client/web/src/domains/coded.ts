/** Words by a prefix of their code, or by the whole, hashed (shared/reports.md, "Words"). */

import type { Alphabet, Script } from "../registry.ts";
import type { Answer, Question, Value } from "../report.ts";
import { firstWord, sha256, utf8 } from "../sha256.ts";
import { LENGTHS, USUAL, ORDER } from "./letters.ts";
import { bucketOf, folded, multiplier, textOf, trimmed } from "./texts.ts";

const [END, ESC] = [95, 96];
const ROWS = 4;

export function coded(answer: Answer, { domain, alphabet, cell, nothing, normal }: Question): Value {
  const form = (text: string): string => {
    const word = trimmed(normal(text));
    return domain["casefold"] ? folded(word) : word;
  };
  const text = textOf(answer, domain["characters_max"] as number, form);
  const typed = text === undefined ? Uint8Array.of(nothing ? 0xff : 0xfe) : utf8(text);
  const levels = domain["levels"] as readonly number[];
  const group = Math.floor(cell / ROWS);
  const number = group === levels.length ? firstWord(typed) : folding(prefixOf(typed, levels[group]!, alphabet));
  return bucketOf(number, `dither words|${domain["salt"]}|${group}|${cell % ROWS}`, 1 << 17);
}

/** Return the 64 bits that stand for a prefix. */
function folding(prefix: bigint): bigint {
  return BigInt.asUintN(64, prefix + multiplier("dither words|fold") * (prefix >> 64n));
}

/** Return the first bits of a word's code, as an integer. */
function prefixOf(typed: Uint8Array, length: number, alphabet: Alphabet | undefined): bigint {
  const bits = [alphabet ? inAlphabet(typed, alphabet) : inEnglish(typed)];
  bits.push(...Array.from(sha256(typed), (byte) => binary(byte, 8)));
  return BigInt(`0b${bits.join("").slice(0, length)}`);
}

function inEnglish(typed: Uint8Array): string {
  let bits = "";
  let before = END;
  for (const byte of typed) {
    const symbol = byte >= 0x20 && byte < 0x7f ? byte - 0x20 : ESC;
    bits += codeAfter(before)[symbol]! + (symbol === ESC ? binary(byte, 8) : "");
    before = symbol;
  }
  return bits + codeAfter(before)[END]!;
}

/** Return the code of each symbol after another one, in bits. */
function codeAfter(symbol: number): string[] {
  const row = LENGTHS.split("\n")[symbol + 1]!;
  const lengths: number[] = [];
  for (let place = 0; place < ORDER.length; place++) {
    lengths[ORDER.charCodeAt(place) - 0x20] = row.charCodeAt(place) - 0x60 || USUAL;
  }
  return codes(lengths);
}

function inAlphabet(typed: Uint8Array, { scripts, choice }: Alphabet): string {
  const others = scripts.length > 1 ? scripts : [];
  const choices = codes(lettersOf(choice));
  const text = typed[0]! >= 0xfe ? String.fromCharCode(0xdc00 + typed[0]!) : new TextDecoder("utf-8", { ignoreBOM: true }).decode(typed);
  const characters = [...text];
  let script = scripts[0]!;
  let at = symbolsOf(script);
  let state = 0; // 0 at the beginning, 1 after a character that no script has
  let choosing = others.length > 0;
  let bits = "";
  const coded = (symbol: number): string => codes(lettersOf(script.lengths[state]!))[symbol]!;
  for (let place = 0; place < characters.length; ) {
    const character = characters[place]!;
    if (choosing || !at(characters, place)) {
      if (!choosing) bits += coded(script.after.length + 1);
      choosing = false;
      const found = others.findIndex((one) => symbolsOf(one)([character], 0));
      if (found < 0) {
        const point = character.codePointAt(0)!;
        const wide = point > 0xffff;
        bits += choices[others.length + Number(wide)]! + (wide ? binary(point - 0x10000, 20) : binary(point, 16));
        state = 1;
        place++;
        continue;
      }
      bits += choices[found]!;
      [script, state] = [others[found]!, 0];
      at = symbolsOf(script);
    }
    const [symbol, more, taken] = at(characters, place)!;
    bits += coded(symbol) + more;
    state = script.after.charCodeAt(symbol) - 0x61;
    place += taken;
  }
  return bits + (choosing ? choices[0]! : "") + coded(script.after.length);
}

/** A symbol, the bits that tell a text in its group, and how many characters the text is. */
type Coding = readonly [number, string, number];

/** Gives the longest piece of a script, or else the character, at a place. */
type Symbols = (characters: readonly string[], place: number) => Coding | undefined;

/** What was made of each script: thousands of words take longer than the rest of an answer. */
const known = new WeakMap<Script, Symbols>();

function symbolsOf(script: Script): Symbols {
  const symbols = known.get(script) ?? symbolsIn(script);
  known.set(script, symbols);
  return symbols;
}

function symbolsIn({ groups, pieces, words = [] }: Script): Symbols {
  const texts = [...groups.map((group) => [...group]), ...pieces.map((piece) => [piece]), ...words.map((some) => some.split(" "))];
  const found = new Map<string, Coding>();
  let longest = 1;
  for (const [symbol, members] of texts.entries()) {
    for (const [number, text] of members.entries()) {
      const taken = [...text].length;
      longest = Math.max(longest, taken);
      found.set(text, [symbol, members.length > 1 ? binary(number, Math.log2(members.length)) : "", taken]);
    }
  }
  return (characters, place) => {
    for (let taken = longest; taken > 0; taken--) {
      const coding = found.get(characters.slice(place, place + taken).join(""));
      if (coding) return coding;
    }
    return undefined;
  };
}

function lettersOf(row: string): number[] {
  return Array.from(row, (letter) => letter.charCodeAt(0) - 0x60);
}

/** Return the canonical Huffman code of these lengths, in bits. */
function codes(lengths: readonly number[]): string[] {
  const found: string[] = [];
  let code = 0;
  for (let length = 1; length <= Math.max(...lengths); length++, code *= 2) {
    lengths.forEach((own, one) => {
      if (own === length) found[one] = binary(code++, length);
    });
  }
  return found;
}

function binary(number: number, length: number): string {
  return number.toString(2).padStart(length, "0");
}
