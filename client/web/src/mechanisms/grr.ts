/** Generalised randomised response (shared/reports.md, "The randomizers"). */

import type { Mechanism } from "../report.ts";

/** Tell the truth with a coin of T, else any other value. */
export const grr: Mechanism = {
  randomize({ d, threshold }, value, coins) {
    const truth = coins.coin(threshold);
    const other = Number(coins.below(d - 1));
    return truth ? (value as number) : other + Number(other >= (value as number));
  },
  any: ({ d }, coins) => Number(coins.below(d)),
  write: Number,
};
