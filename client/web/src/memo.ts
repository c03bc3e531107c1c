/**
 * Memoized metrics: the class of an answer, and reports of its memo (shared/reports.md). A page loads this at the start
 * where its registry has such a metric.
 */

import { bitsOf, Coins } from "./coins.ts";
import type { CompiledMetric } from "./registry.ts";
import { type Answer, type Made, madeBy, type Report, type Value, valueIn } from "./report.ts";
import { keyedBlocks } from "./sha256.ts";

/** What memos are drawn from: 32 random bytes that never leave the device. */
export interface Memo {
  readonly secret: Uint8Array;
}

/** Return what memos are drawn from by a secret in hex. */
export function memoOf(secret: string): Memo {
  return { secret: Uint8Array.from(secret.match(/../g)!, (byte) => parseInt(byte, 16)) };
}

/** Return what a memoized metric is charged for: all that the memo sees of an answer, as a text. */
export async function classOf(
  metric: CompiledMetric,
  cell: number | undefined,
  answer: Answer,
  memo: Memo,
): Promise<string> {
  const coins = keyedCoins(memo, `${metric.memo_key} class`);
  return JSON.stringify(await valueIn(metric, cell ?? 0, answer, coins, () => coins.bits64()));
}

/** Return a report of the memo of a class, as on the wire. */
export async function reportOfClass(
  metric: CompiledMetric,
  cell: number | undefined,
  memoClass: string,
  coins: Coins,
  memo: Memo,
): Promise<number | string> {
  const made = await madeBy(metric, cell ?? 0);
  const lasting = keyedCoins(memo, `${metric.memo_key} ${cell ?? 0} ${memoClass}`);
  const permanent = made.mechanism.randomize(made.integers, JSON.parse(memoClass) as Value, lasting);
  return made.mechanism.write(repeat(made, permanent, coins), made.integers);
}

/** @internal Draw a report of a memo. Any report is drawn beside it, whether it is kept or not. */
export function repeat({ mechanism, integers, parameters }: Made, memo: Report, coins: Coins): Report {
  if (mechanism.repeat) return mechanism.repeat(integers, parameters, memo, coins);
  const kept = coins.coin(parameters.threshold_keep);
  const other = mechanism.any!(integers, coins);
  return kept ? memo : other;
}

function keyedCoins({ secret }: Memo, context: string): Coins {
  return new Coins(bitsOf(keyedBlocks(secret, context)));
}
