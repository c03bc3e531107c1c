/** Several columns that are answered together, of which a cell tells some (shared/reports.md, "Tables"). */

import type { Domain } from "../registry.ts";
import type { Answer, Question, Value } from "../report.ts";

export function columns(answer: Answer, question: Question): Value {
  const { names, domains, questions } = question.domain as unknown as {
    names: readonly string[];
    domains: readonly Domain[];
    questions: readonly (readonly number[])[];
  };
  const answers = answer as Readonly<Record<string, Answer>> | null | undefined;
  let [place, size] = [0, 1];
  for (const column of questions[question.cell % questions.length]!) {
    const [symbol, symbols] = symbolIn(domains[column]!, answers?.[names[column]!], question);
    place = place * symbols + symbol;
    size *= symbols;
  }
  return question.nothing ? size : place;
}

/** Return the symbol of an answer in a column, and how many symbols this has; the last one is "other". */
function symbolIn(domain: Domain, answer: Answer, question: Question): [number, number] {
  const integers = { ...question.integers, d: 2 }; // a range is a grid of its two ends
  const symbol = question.domains[domain.domain]!(answer, { ...question, domain, integers, nothing: false });
  const { values, edges } = domain as unknown as { values?: readonly string[]; edges: readonly string[] };
  return [symbol as number, values ? values.length : domain.domain === "range" ? 3 : edges.length + 2];
}
