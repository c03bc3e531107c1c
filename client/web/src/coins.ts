/**
 * Exact randomness: every coin is an integer compared with an integer, every uniform choice rejects.
 *
 * A probability is a threshold out of 2^64. No float and no remainder stands in for either (shared/reports.md, "Coins").
 */

/** Draws `count` uniform random bits, as an integer in [0, 2^count). */
export type Bits = (count: number) => bigint;

/** The random decisions that reports are made of. Tests hand in bits of their own. */
export class Coins {
  readonly bits: Bits;

  constructor(bits: Bits) {
    this.bits = bits;
  }

  /** Return 64 uniform bits. */
  bits64(): bigint {
    return this.bits(64);
  }

  /** Return true with probability exactly threshold / 2^64. */
  coin(threshold: bigint): boolean {
    return this.bits64() < threshold;
  }

  /** Return an integer in [0, size), each with probability exactly 1 / size. */
  below(size: number | bigint): bigint {
    const bound = BigInt(size);
    const count = bound > 1n ? (bound - 1n).toString(2).length : 0;
    for (;;) {
      const drawn = this.bits(count);
      if (drawn < bound) return drawn;
    }
  }
}

/** Return the coins of the operating system, which `crypto` hands out a kilobyte at a time. */
export function systemCoins(): Coins {
  return new Coins(bitsOf(() => crypto.getRandomValues(new Uint8Array(1024))));
}

/** Return what draws bits out of blocks of bytes. A byte is used once, and erased. */
export function bitsOf(block: () => Uint8Array): Bits {
  let bytes: Uint8Array = new Uint8Array(0);
  let at = 0;
  return (count) => {
    const excess = -count & 7;
    let drawn = 0n;
    for (let needed = (count + excess) / 8; needed > 0; needed--) {
      if (at === bytes.length) [bytes, at] = [block(), 0];
      drawn = (drawn << 8n) | BigInt(bytes[at]!);
      bytes[at++] = 0;
    }
    return drawn >> BigInt(excess);
  };
}
