/** Listed values: the place of an answer is its index (shared/reports.md, "The place of an answer"). */

import { type Answer, NOTHING, type Question, type Value } from "../report.ts";

/** A longer answer is no value in any form: a form of 200 characters was written in at most four times as many. */
const UNITS_MAX = 2 * 4 * 200;

export function values(answer: Answer, { domain, kind, integers, normal }: Question): Value {
  const listed = domain["values"] as readonly string[];
  if (kind === "flag") return answer === NOTHING ? listed.indexOf("none") : Number(answer === true);
  if (kind !== "choices") return indexIn(listed, answer, normal);
  const several: Iterable<Answer> = Array.isArray(answer) || answer instanceof Set ? answer : [answer];
  const held = new Set(Array.from(several, (one) => indexIn(listed, one, normal)));
  return [...held].sort((one, other) => one - other).slice(0, integers.ticks);
}

/** Return the index of an answer among listed values: of "other" if it is none of them. */
export function indexIn(listed: readonly string[], answer: Answer, normal: (text: string) => string): number {
  if (answer === NOTHING) return listed.indexOf("none");
  const found = typeof answer === "string" && answer.length <= UNITS_MAX ? listed.indexOf(normal(answer)) : -1;
  return found < 0 ? listed.indexOf("other") : found;
}
