/** The cells of a plan that has several, and the public column. A page loads this where its registry has them. */

import type { Coins } from "./coins.ts";
import type { CompiledMetric, CompiledRegistry, Part } from "./registry.ts";

/**
 * Draw the cell of a report before its answer is looked at; undefined in a plan with one cell, which names none.
 *
 * `cohort` is the device's number below 128, and `publicIndex` the place of its value of the public column.
 */
export function drawCell(
  { plan }: CompiledMetric,
  cohort: number,
  publicIndex: number,
  coins: Coins,
): number | undefined {
  const { drawn, parts, public: values } = plan.cells;
  const each = parts.reduce((sum, part) => sum + part.cells, 0);
  if (each * (values ?? 1) === 1) return undefined;
  if (drawn === "device") return cohort % each;
  let left = Number(coins.below(parts.reduce((sum, part) => sum + part.cells * part.weight, 0)));
  let cell = values ? publicIndex * each : 0;
  for (const { cells, weight } of parts) {
    if (left < cells * weight) return cell + Math.floor(left / weight);
    left -= cells * weight;
    cell += cells;
  }
  throw new Error("there is no such cell");
}

/** Return the part of a cell. */
export function partOf({ plan }: CompiledMetric, cell: number): Part {
  let place = cell % plan.cells.parts.reduce((sum, part) => sum + part.cells, 0);
  return plan.cells.parts.find((part) => (place -= part.cells) < 0)!;
}

/** Return the place of the device's public value; throw for one that the registry does not have. */
export function placeOf(value: Readonly<Record<string, string>> | undefined, { public: column }: CompiledRegistry): number {
  if (!column) {
    if (value) throw new TypeError("the registry has no public column: leave public out");
    return 0;
  }
  const place = column.values.indexOf(`${value?.[column.name]}`.normalize());
  if (place < 0) throw new TypeError(`public must have ${column.name}: one of ${column.values.join(", ")}`);
  return place;
}
