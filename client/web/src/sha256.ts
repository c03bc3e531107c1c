/**
 * SHA-256, and random bytes that are keyed by it. At once, without a promise: pages on plain HTTP have no
 * `crypto.subtle`. FIPS 180-4; RFC 2104.
 */

const PRIMES: bigint[] = [];
for (let one = 2n; PRIMES.length < 64; one++) if (PRIMES.every((prime) => one % prime)) PRIMES.push(one);
/** The first 32 bits of the fractions of cube roots and of square roots: the standard's constants, by integers. */
const ROUNDS = PRIMES.map((prime) => fraction(prime, 3));
const START = PRIMES.slice(0, 8).map((prime) => fraction(prime, 2));

function fraction(prime: bigint, power: number): number {
  const cut = prime << BigInt(32 * power);
  let root = 0n;
  for (let bit = 1n << 40n; bit; bit >>= 1n) if ((root + bit) ** BigInt(power) <= cut) root += bit;
  return Number(BigInt.asIntN(32, root));
}

/** Return the bytes of a text. */
export function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Return the 32 bytes of SHA-256. */
export function sha256(message: Uint8Array): Uint8Array {
  const padded = new DataView(new ArrayBuffer(((message.length + 72) >> 6) << 6));
  new Uint8Array(padded.buffer).set(message);
  padded.setUint8(message.length, 0x80);
  padded.setBigUint64(padded.byteLength - 8, BigInt(message.length) * 8n);
  const state = [...START];
  const words = new Int32Array(64);
  for (let at = 0; at < padded.byteLength; at += 64) {
    let [a, b, c, d, e, f, g, h] = state as [number, number, number, number, number, number, number, number];
    for (let i = 0; i < 64; i++) {
      if (i < 16) {
        words[i] = padded.getInt32(at + 4 * i);
      } else {
        const early = words[i - 15]!;
        const late = words[i - 2]!;
        words[i] =
          words[i - 16]! +
          words[i - 7]! +
          (turned(early, 7) ^ turned(early, 18) ^ (early >>> 3)) +
          (turned(late, 17) ^ turned(late, 19) ^ (late >>> 10));
      }
      const choice = (e & f) ^ (~e & g);
      const majority = (a & b) ^ (a & c) ^ (b & c);
      const first = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + choice + ROUNDS[i]! + words[i]!;
      const second = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + majority;
      h = g;
      g = f;
      f = e;
      e = (d + first) | 0;
      d = c;
      c = b;
      b = a;
      a = (first + second) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i] = (state[i]! + word) | 0));
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setInt32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

function turned(word: number, places: number): number {
  return (word >>> places) | (word << (32 - places));
}

/** Return the first 8 bytes of SHA-256, as an integer, big-endian. */
export function firstWord(message: Uint8Array): bigint {
  return new DataView(sha256(message).buffer).getBigUint64(0);
}

/**
 * Return what draws blocks of bytes that are a function of the context alone, and random to whoever lacks the key.
 *
 * HMAC-SHA-256 of the context, a line feed and a counter. The same context always gives the same bytes: this is how a
 * memo is drawn again instead of stored. The key has at most 64 bytes, and the context no line feed.
 */
export function keyedBlocks(key: Uint8Array, context: string): () => Uint8Array {
  let count = 0;
  return () => hmac(key, utf8(`${context}\n${count++}`));
}

/** Return the 32 bytes of HMAC-SHA-256. The key has at most 64 bytes. */
export function hmac(key: Uint8Array, message: Uint8Array): Uint8Array {
  const hashed = (mask: number, rest: Uint8Array): Uint8Array => {
    const all = new Uint8Array(64 + rest.length).fill(mask, 0, 64);
    key.forEach((byte, i) => (all[i] = byte ^ mask));
    all.set(rest, 64);
    return sha256(all);
  };
  return hashed(0x5c, hashed(0x36, message));
}
