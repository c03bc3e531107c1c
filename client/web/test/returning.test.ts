/**
 * Who is counted where people come back more or less often: devices with a quiet day, each visit of which answers. The
 * README has the figures.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { DAY_MS } from "../src/days.ts";
import { Bench, DAY, randomOf, registryOf } from "./support.ts";

const DAYS = 28;
/** On how many days of 420 people of each third come. */
const COME = [360, 60, 14];
const EACH = 667;
const PERIODS = [1, 7, 28];
const FIRST = Math.ceil(DAY / DAYS) * DAYS;
const REGISTRY = registryOf(
  PERIODS.map((period) => ({ name: `every ${period}`, period, charges: 300 })),
  { quiet: 1, epsilon: 1e12 },
);

test("the README says who is counted where some people come often, and others seldom", () => {
  const random = randomOf(7);
  const came = COME.map(() => 0);
  const reported = COME.map(() => 0);
  const reports = PERIODS.map(() => COME.map(() => 0));
  COME.forEach((often, third) => {
    for (let person = 0; person < EACH; person++) {
      const bench = new Bench(REGISTRY, false);
      let [visits, sent] = [0, 0];
      for (let day = FIRST; day < FIRST + DAYS; day++) {
        if (random(420) >= often) continue;
        bench.now = (day + 0.5) * DAY_MS;
        if (!visits++) bench.do((device) => device.begin(true));
        PERIODS.forEach((period, place) => {
          if (bench.record(`every ${period}`)) return;
          reports[place]![third]!++;
        });
        sent += bench.deliver();
      }
      came[third]! += Number(visits > 0);
      reported[third]! += Number(sent > 0);
    }
  });
  const row = (what: string, figures: number[]) => `| ${what} | ${figures.map((one) => `${one.toFixed(0)} %`).join(" | ")} |`;
  const shares = (counts: number[]) => counts.map((one) => (100 * one) / counts.reduce((sum, other) => sum + other));
  const rows = [
    row("of the people", shares(COME.map(() => EACH))),
    row("who came at all in 28 days", came.map((one) => (100 * one) / EACH)),
    row("who reported in them", reported.map((one) => (100 * one) / EACH)),
    ...PERIODS.map((period, place) => row(`of the reports, a period of ${period} d`, shares(reports[place]!))),
  ];
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  for (const one of rows) assert.ok(readme.includes(one), `README.md lacks one of\n${rows.join("\n")}`);
});
