/**
 * Lives of devices at random: visits of several pages, answers, lost receipts, days away, and an end at any moment.
 *
 * Each step of the storage is whole or not at all, so that a page that is killed loses its memory alone: what it knew
 * of an upload that has not left. The server of these lives counts as the aggregator does.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { DAY_MS } from "../src/days.ts";
import { type Armed, bodyOf, type Upload } from "../src/device.ts";
import { Bench, KEY, randomOf, registryOf } from "./support.ts";

/** Eleven bugs were planted: a thousand lives show six of them, and so do the first 64. */
const LIVES = process.env["SOAK_TESTS"] ? 1_000 : 64;
const STEPS = 120;
const REGISTRY = registryOf([
  { name: "daily", charges: 20 },
  { name: "weekly", period: 7, charges: 3 },
  { name: "home", permanent: 2_000_000, charges: 2 },
  { name: "ill", presence: "hidden", charges: 20 },
]);

/** The aggregator: it counts an id once, on the day by its clock, and knows ids for seven days. */
class Counting {
  readonly bodies = new Map<string, { body: string; at: number }>();
  readonly counted = new Map<string, number>();
  readonly perDay = new Map<string, number>();

  take(body: string, now: number): boolean {
    const { upload, groups } = JSON.parse(body) as { upload: string; groups: Upload["groups"] };
    const known = this.bodies.get(upload);
    if (known) {
      assert.equal(body, known.body, "the same id has the same bytes");
      assert.ok(now - known.at < 7 * DAY_MS, "the aggregator still knows the id");
      return true;
    }
    this.bodies.set(upload, { body, at: now });
    for (const { metric } of groups) {
      const day = `${metric} ${Math.floor(now / DAY_MS)}`;
      this.counted.set(metric, (this.counted.get(metric) ?? 0) + 1);
      this.perDay.set(day, (this.perDay.get(day) ?? 0) + 1);
    }
    return false;
  }
}

/** Live one life; return its server, for what all lives together are to show. */
function live(seed: number): { server: Counting; taken: number; answers: number } {
  const random = randomOf(seed);
  const bench = new Bench(REGISTRY);
  const draws = randomOf(seed ^ 0x55555555);
  bench.draw = (what, n) =>
    (what == "upload" || what == "secret"
      ? BigInt(draws(1 << 30)) * BigInt(draws(1 << 30)) ** 3n
      : BigInt(draws(1 << 30))) % BigInt(n);
  const server = new Counting();
  let armed: Armed = {};
  let [taken, answers] = [0, 0];
  const arrives = (upload: Upload) => {
    for (const { metric } of upload.groups) assert.ok(bench.spent(metric) > 0, "it was charged before it left");
    return server.take(bodyOf(upload, KEY), bench.now);
  };
  const send = () => {
    const known = armed;
    armed = {};
    if (!known.upload) return;
    const left = bench.do((device) => device.attempt(known.upload!.id, known));
    if (!left || random(8) == 0) return; // killed before the first byte
    if (random(6) == 0) return void bench.do((device) => device.settle(left.id, { step: "kept", detail: "lost" }));
    arrives(left);
    if (random(4) == 0) return; // killed before the receipt
    const date = random(2) ? bench.now : undefined;
    bench.do((device) => device.settle(left.id, { step: "accepted", detail: "accepted", date }));
  };
  const steps: (() => void)[] = [
    () => void (answers++, bench.record("daily", 1) || taken++),
    () => void (answers++, bench.record("weekly", 1) || taken++),
    () => void (answers++, bench.record("home", 1, ["x", "y", "z"][random(3)]) || taken++),
    () => void bench.record("ill", 1),
    () => void bench.look(),
    () => void (armed = bench.do((device) => device.arm(armed))),
    send,
    () => {
      const { upload, until = 0 } = armed; // the page goes away
      if (upload && !upload.failures && bench.now < until && random(5)) arrives(upload);
      armed = {};
    },
    () => void (armed = {}), // the page is killed, or another one leads
    () => void (bench.now += random(3 * 3_600_000)),
    () => void (bench.now += random(DAY_MS)),
    () => void (random(4) || (bench.now += random(9 * DAY_MS))),
    () => void (random(30) || bench.do((device) => device.refuse()), bench.do((device) => device.agree())),
    () => void (random(60) || (bench.do((device) => device.forget()), (armed = {}))),
  ];
  for (let step = 0; step < STEPS; step++) {
    steps[random(steps.length)]!();
    const known = bench.state.uploads.some(({ id }) => id == armed.upload?.id);
    if (!known) armed = {}; // it was taken back, which pages are told
  }
  for (const { plan, terms } of REGISTRY.metrics)
    assert.ok(bench.spent(plan.metric) <= terms.lifetime, `${plan.metric}, ${seed}: no budget is exceeded`);
  for (const name of ["daily", "weekly", "ill"]) {
    const { terms } = bench.metric(name);
    assert.ok(
      (server.counted.get(name) ?? 0) * terms.report <= bench.spent(name),
      `${name}: all that was counted was charged`,
    );
  }
  for (const [day, count] of server.perDay) assert.equal(count, 1, `one report of a metric a day: ${day}`);
  return { server, taken, answers };
}

test("in many lives nothing is counted twice, no budget is exceeded, and no day has two reports", () => {
  let [counted, taken, answers] = [0, 0, 0];
  for (let seed = 1; seed <= LIVES; seed++) {
    const life = live(seed * 7_919);
    for (const count of life.server.counted.values()) counted += count;
    taken += life.taken;
    answers += life.answers;
  }
  assert.ok(taken > 4 * LIVES && counted > 3 * LIVES, `answers ${answers}, taken ${taken}, counted ${counted}`);
});
