/** Listed values: the place of an answer is its index (shared/reports.md, "The place of an answer"). */

import type { Answer, Question, Value } from "../report.ts";

/** A longer answer is no value in any form: a form of 200 characters was written in at most four times as many. */
const UNITS_MAX = 2 * 4 * 200;

export function values(answer: Answer, { domain, kind, integers, nothing, normal }: Question): Value {
  const listed = domain["values"] as readonly string[];
  const index = (one: Answer): number => {
    if (nothing) return listed.indexOf("none");
    const found = typeof one === "string" && one.length <= UNITS_MAX ? listed.indexOf(normal(one)) : -1;
    return found < 0 ? listed.indexOf("other") : found;
  };
  if (kind === "flag") return nothing ? index(answer) : Number(answer === true);
  if (kind !== "choices") return index(answer);
  const several: Iterable<Answer> = Array.isArray(answer) || answer instanceof Set ? answer : [answer];
  const held = new Set(Array.from(several, index));
  return [...held].sort((one, other) => one - other).slice(0, integers.ticks);
}
