/** The check of a registry's alphabets. A page loads it where its registry has one. */

import type { Alphabet } from "./registry.ts";

/** Tell whether each row of a table is a full code: of as many symbols as there are, no bits left. */
export function isCode({ scripts, choice }: Alphabet): boolean {
  const filled = (row: string, symbols: number): boolean =>
    row.length == symbols && [...row].reduce((sum, letter) => sum + 2 ** (0x60 - letter.charCodeAt(0)), 0) == 1;
  const choices = scripts.length > 1 ? scripts.length : 0;
  return (
    scripts.length > 0 &&
    filled(choice, choices + 2) &&
    scripts.every(({ groups, pieces, lengths }) =>
      lengths.every((row) => filled(row, groups.length + pieces.length + 2)),
    )
  );
}
