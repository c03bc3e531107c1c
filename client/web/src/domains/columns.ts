/** Several columns that are answered together, of which a cell tells some (shared/reports.md, "Tables"). */

import { type Answer, NOTHING, type Question, type Value } from "../report.ts";
import type { Domain } from "../registry.ts";
import { bucketOf, partOf } from "./numbers.ts";
import { indexIn } from "./values.ts";

export function columns(answer: Answer, question: Question): Value {
  const { names, domains, questions } = question.domain as unknown as {
    names: readonly string[];
    domains: readonly Domain[];
    questions: readonly (readonly number[])[];
  };
  let [place, size] = [0, 1];
  for (const column of questions[question.cell % questions.length]!) {
    const domain = domains[column]!;
    const own = answer === NOTHING ? undefined : (answer as Readonly<Record<string, Answer>> | null)?.[names[column]!];
    const symbols = symbolsOf(domain);
    place = place * symbols + symbolOf(domain, own, question);
    size *= symbols;
  }
  return answer === NOTHING ? size : scatter(place, size);
}

function symbolsOf(domain: Domain): number {
  if (domain.domain === "values") return (domain["values"] as readonly string[]).length;
  return domain.domain === "range" ? 3 : (domain["edges"] as readonly string[]).length + 2;
}

function symbolOf(domain: Domain, answer: Answer, { coins, normal }: Question): number {
  if (domain.domain === "values") return indexIn(domain["values"] as readonly string[], answer, normal);
  if (domain.domain === "buckets") return bucketOf(domain, answer);
  const part = partOf(domain, answer);
  const high = coins.coin(part ?? 0n);
  return part === undefined ? 2 : Number(high);
}

/** Return the value of a place in an order that is no order of answers: cubes modulo a prime. */
export function scatter(place: number, size: number): number {
  let prime = size;
  while (prime % 3 === 1 || !isPrime(prime)) prime++;
  let value = BigInt(size - 1 - place);
  do value = value ** 3n % BigInt(prime);
  while (value >= size);
  return Number(value);
}

function isPrime(number: number): boolean {
  for (let divisor = 2; divisor * divisor <= number; divisor++) if (number % divisor === 0) return false;
  return true;
}
