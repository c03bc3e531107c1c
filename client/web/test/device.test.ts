/**
 * The device's rules, a step at a time: days, periods, budgets, memos, hidden presence, uploads, choices.
 *
 * Those that both SDKs have are played by the scenes of `tests/vectors/devices.json`, and are not here again.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { DAY_MS } from "../src/days.ts";
import { bodyOf, type Outcome } from "../src/device.ts";
import { Bench, DAY, isoDay, KEY, NOON, registryOf } from "./support.ts";

const HOUR = 3_600_000;
const outcome = (step: Outcome["step"], more: Partial<Outcome> = {}): Outcome => ({ step, detail: step, ...more });

// When a metric is silent.

test("an answer that is not taken writes nothing", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  const before = JSON.stringify(bench.state);
  assert.equal(bench.record(), "answered");
  assert.equal(JSON.stringify(bench.state), before);
});

test("a metric is silent from the day on which it expires", () => {
  const bench = new Bench(registryOf([{ expires: DAY + 1 }]));
  assert.equal(bench.record(), "");
  bench.deliver();
  bench.days(1);
  assert.equal(bench.record(), "expired");
});

test("a hidden metric is silent in a period whose report would come after the grace", () => {
  const bench = new Bench(registryOf([{ presence: "hidden", period: 70, expires: DAY + 5 }]));
  assert.equal(bench.why(), "expired");
});

test("periods are drawn from the whole year before a metric expires", () => {
  let inTime = 0;
  for (let seed = 0; seed < 40; seed++) {
    const bench = new Bench(registryOf([{ schedule: "spread", charges: 5, expires: DAY + 100 }]), false);
    bench.drawn = BigInt(seed) * 1_000_003n;
    bench.do((device) => device.begin(true));
    const { drawn } = bench.state.metrics.dark!;
    assert.ok(drawn.length <= 5 && drawn.every((day) => day > DAY + 100 - 366 && day < DAY + 100));
    inTime += drawn.filter((day) => day >= DAY).length;
  }
  assert.ok(inTime > 20 && inTime < 100, `of 200 periods about 55 lie ahead, got ${inTime}`);
});

test("a period that was not drawn is unscheduled, and says when the next is", () => {
  const bench = new Bench(registryOf([{ schedule: "spread", charges: 5 }]));
  bench.state.metrics.dark!.drawn = [DAY + 4, DAY - 3];
  assert.equal(bench.record(), "unscheduled");
  assert.equal(bench.do((device) => device.decide(bench.metric())).until, DAY + 4);
  bench.days(4);
  assert.equal(bench.record(), "");
});

test("an upgrade keeps only periods that have not begun, as many as reports remain", () => {
  const bench = new Bench(registryOf([{ schedule: "spread", charges: 5 }]));
  bench.state.metrics.dark!.spent = 3_000_000;
  bench.upgrade(registryOf([{ schedule: "spread", charges: 5, period: 2 }]));
  const { drawn } = bench.state.metrics.dark!;
  assert.ok(drawn.filter((day) => day > DAY).length <= 2);
  assert.ok(!drawn.includes(DAY - (DAY % 2)), "the present one was decided under the old terms");
});

// The budget.

test("no sum of all metrics passes what the person agreed to", () => {
  const bench = new Bench(registryOf([{ name: "a" }, { name: "b" }], { epsilon: 5e6 }));
  assert.equal(bench.record("a"), "");
  assert.equal(bench.record("b"), "spent", "three of a and three of b would be six");
});

test("neither another rev nor a longer expiry nor leaving the registry refreshes a budget", () => {
  const bench = new Bench(registryOf([{ charges: 1 }]));
  bench.record();
  bench.deliver();
  bench.days(1);
  bench.upgrade(registryOf([{ name: "other" }]));
  bench.upgrade(registryOf([{ charges: 1, rev: 2, expires: DAY + 360 }]));
  assert.equal(bench.record(), "spent");
});

test("a slot whose budget was spent meanwhile does not leave", () => {
  const bench = new Bench(registryOf([{ charges: 1 }]));
  bench.record();
  bench.state.metrics.dark!.spent = 1_000_000;
  assert.equal(bench.send(), undefined);
  assert.equal(bench.state.counts.spent, 1);
});

// Memos.

const MEMO = { name: "home", permanent: 2_000_000, charges: 2 };

test("after the last answer that is reserved, that one is repeated", () => {
  const bench = new Bench(registryOf([MEMO]));
  for (const key of ["x", "y", "z"]) {
    assert.equal(bench.record("home", 1, key), "");
    bench.deliver();
    bench.days(1);
  }
  assert.deepEqual(bench.state.metrics.home!.classes, [
    ["x", true],
    ["y", true],
  ]);
  assert.equal(
    bench.do((device) => device.classFor(bench.metric("home"), "z")),
    "y",
  );
  assert.equal(
    bench.do((device) => device.classFor(bench.metric("home"), "x")),
    "x",
    "one that was charged is free",
  );
  assert.equal(bench.spent("home"), 4_000_000);
});

test("an answer that makes room for itself leaves the class in the slot charged", () => {
  const bench = new Bench(registryOf([MEMO]));
  for (const key of ["x", "y", "z"]) {
    assert.equal(bench.record("home", 1, key), "");
    if (key == "x") bench.deliver();
    bench.days(1);
  }
  assert.deepEqual(bench.state.metrics.home!.classes, [
    ["x", true],
    ["y", true],
  ]);
});

test("a memo that cannot go on counts with all that it reserved", () => {
  const bench = new Bench(registryOf([MEMO]));
  bench.record("home", 1, "x");
  bench.deliver();
  bench.days(1);
  bench.upgrade(registryOf([{ ...MEMO, values: ["a", "b"], kind: "choice", rev: 2 }]));
  assert.equal(bench.spent("home"), 4_000_000);
  assert.equal(bench.record("home", 1, "x"), "spent");
});

test("the storage tells which classes were charged, and not which one was the latest", () => {
  const bench = new Bench(registryOf([MEMO]));
  bench.record("home", 1, "x");
  bench.deliver();
  bench.days(1);
  bench.record("home", 1, "x");
  assert.equal(bench.state.metrics.home!.slot!.class, null);
});

test("a none that an answer replaces leaves no class behind, and takes no answer's place", () => {
  const bench = new Bench(registryOf([{ ...MEMO, presence: "hidden", charges: 1 }]));
  bench.look();
  assert.deepEqual(bench.state.metrics.home!.classes, [["none", false]]);
  assert.equal(bench.record("home", 1, "x"), "");
  assert.deepEqual(bench.state.metrics.home!.classes, [["x", false]]);
});

// Hidden presence.

const HIDDEN = { name: "ill", presence: "hidden" as const };

test("an answer to a hidden metric only ever replaces a none that a look has opened", () => {
  const bench = new Bench(registryOf([HIDDEN]));
  const before = JSON.stringify(bench.state);
  assert.equal(bench.record("ill"), "unopened");
  assert.equal(JSON.stringify(bench.state), before, "it opens no period and is counted nowhere");
  bench.look();
  assert.equal(bench.record("ill", 1), "");
  assert.equal(bench.state.metrics.ill!.slot!.report, 1);
  assert.equal(bench.record("ill", 0), "answered");
});

test("a hidden period leaves when it has closed, and then the same is kept with and without an answer", () => {
  const kept = [false, true].map((answers) => {
    const bench = new Bench(registryOf([HIDDEN, { name: "dark" }]));
    bench.look(1);
    if (answers) assert.equal(bench.record("ill", 1), "");
    assert.equal(bench.send(), undefined, "nothing is due before the period has closed");
    assert.equal(bench.do((device) => device.look(new Map())).planned, undefined, "and nothing is planned");
    bench.days(1);
    bench.do((device) => device.look(new Map()));
    const closed = JSON.stringify(bench.state);
    const upload = bench.send()!;
    bench.look(1);
    assert.equal(bench.why("ill"), "", "the next period is open, though the report before waits");
    assert.deepEqual(
      upload.groups.map(({ reports }) => reports),
      [[1]],
    );
    return [closed, JSON.stringify(bench.state)];
  });
  assert.deepEqual(kept[0], kept[1]);
});

test("a look in a false future drops the none of a period that is yet to begin", () => {
  const bench = new Bench(registryOf([HIDDEN]));
  bench.days(40);
  bench.look();
  bench.days(-40);
  bench.look();
  assert.equal(bench.state.metrics.ill!.slot!.leaves, DAY + 1);
  assert.equal(bench.state.counts.dropped, 1);
});

test("where nobody looks, no answer replaces a none, and it leaves as late as it would", () => {
  const bench = new Bench(registryOf([HIDDEN]));
  bench.look();
  bench.do((device) => device.endPeriods());
  assert.equal(bench.record("ill"), "answered");
  assert.equal(bench.state.metrics.ill!.slot!.leaves, DAY + 1);
});

// Uploads.

test("the moment is drawn within two minutes and kept", () => {
  const bench = new Bench(registryOf([{}, { name: "other" }]));
  bench.record();
  const { planned } = bench.state;
  assert.ok(planned! >= NOON && planned! < NOON + 120_000);
  bench.now += 1_000;
  bench.record("other");
  assert.equal(bench.look().planned, planned);
});

test("an upload that certainly has not left takes in what was made since, under a new id", () => {
  const bench = new Bench(registryOf([{}, { name: "other" }]));
  bench.record();
  const { upload, ...known } = bench.do((device) => device.arm());
  bench.record("other");
  const grown = bench.do((device) => device.arm(known));
  assert.deepEqual(
    grown.upload!.groups.map(({ metric }) => metric),
    ["dark", "other"],
  );
  assert.notEqual(grown.upload!.id, upload!.id);
  assert.equal(bench.state.uploads.length, 1);
  assert.equal(bench.spent(), 1_000_000, "charged once");
});

test("an upload that has not left takes in no second report of a metric", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  const { upload, ...known } = bench.do((device) => device.arm());
  bench.days(1);
  assert.equal(bench.record(), "");
  assert.equal(bench.do((device) => device.arm(known)).upload!.id, upload!.id);
  assert.equal(bench.state.metrics.dark!.slot!.report, 1);
});

test("a body begins with the key and is padded to a power of two that hides how long symbols and cells are", () => {
  const upload = {
    id: "AAECAwQFBgcICQoLDA0ODw",
    costs: {},
    first: 0,
    seen: 0,
    armed: true,
    attempts: 0,
    failures: 0,
  };
  const body = (report: number, cell: number) =>
    bodyOf({ ...upload, groups: [{ metric: "m", plan: "0123456789abcdef", reports: [report], cell }] }, KEY);
  assert.ok(
    body(1, 0).startsWith(
      '{"v":1,"key":"k3y","upload":"AAECAwQFBgcICQoLDA0ODw","groups":[{"metric":"m","plan":"0123456789abcdef","reports":[1],"cell":0}]}',
    ),
  );
  assert.equal(body(1, 0).length, 512);
  const groups = (report: number) =>
    Array.from({ length: 8 }, (_, n) => ({ metric: `m${n}`, plan: "0123456789abcdef", reports: [report] }));
  assert.equal(
    bodyOf({ ...upload, groups: groups(1) }).length,
    bodyOf({ ...upload, groups: groups(1_000_000) }).length,
  );
});

test("a body is at most what a request that outlives its page may have; the rest waits", () => {
  const bench = new Bench(
    registryOf(
      Array.from({ length: 40 }, (_, n) => ({ name: `m${n}` })),
      { epsilon: 999e6 },
    ),
  );
  for (let n = 0; n < 40; n++) bench.record(`m${n}`, 1);
  for (const row of Object.values(bench.state.metrics)) row.slot!.report = "A".repeat(1_500);
  const upload = bench.send()!;
  assert.ok(upload.groups.length > 10 && upload.groups.length < 40);
  assert.ok(bodyOf(upload, "k".repeat(200)).length <= 60_000);
});

test("an id is 128 bits as base64url, whose last character has four zero bits", () => {
  const bench = new Bench(registryOf([{}]));
  bench.draw = (what, n) => (what == "upload" ? 0x000102030405060708090a0b0c0d0e0fn : 0n) % BigInt(n);
  bench.record();
  assert.equal(bench.send()!.id, "AAECAwQFBgcICQoLDA0ODw");
});

test("a metric has no two reports on one day", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  const first = bench.do((device) => device.arm()).upload!; // it may have left with its page
  bench.days(1);
  bench.record();
  bench.do((device) => device.attempt(first.id, {}));
  bench.do((device) => device.settle(first.id, outcome("accepted")));
  assert.equal(bench.send(), undefined, "the first one was counted today");
  bench.days(1);
  assert.equal(bench.deliver(), 1);
});

test("a copy costs the day on which the device hears of it", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  const first = bench.do((device) => device.arm()).upload!;
  bench.days(1);
  bench.record();
  bench.do((device) => device.attempt(first.id, {}));
  bench.do((device) => device.settle(first.id, outcome("accepted"))); // of a moment ago, perhaps
  assert.equal(bench.send(), undefined);
  bench.days(1);
  assert.equal(bench.deliver(), 1);
});

test("a copy of what a page may have sent today costs today", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  const { id } = bench.do((device) => device.arm()).upload!;
  bench.days(1);
  bench.record();
  bench.do((device) => device.arm()); // by a page that went away, and may have sent it
  bench.do((device) => device.attempt(id, device.arm()));
  bench.do((device) => device.settle(id, outcome("accepted")));
  assert.equal(bench.send(), undefined);
});

test("a report that was counted after the server's midnight has that day", () => {
  const bench = new Bench(registryOf([{}]));
  bench.now = (DAY + 1) * DAY_MS - 1_000;
  bench.record();
  bench.deliver((DAY + 1) * DAY_MS + 1_000);
  bench.now += HOUR;
  bench.record();
  assert.equal(bench.send(), undefined);
});

test("the aggregator's day counts, as far as its latest receipt was ahead of the clock", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  bench.deliver(NOON + 14 * HOUR); // for the aggregator it is two in the morning of the next day
  bench.days(1);
  bench.record();
  assert.equal(bench.deliver(), 1, "and now it is the day after");
  bench.now += 11 * HOUR;
  bench.now += 2 * HOUR; // one in the morning here, three in the afternoon there
  bench.record();
  assert.equal(bench.send(), undefined);
});

test("an upload that was taken back does not leave", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  const { id } = bench.do((device) => device.arm()).upload!;
  bench.do((device) => device.refuse("dark"));
  assert.equal(
    bench.do((device) => device.attempt(id, { unsent: id })),
    undefined,
  );
});

// Answers of a server.

test("a plan that was refused as retired is silent for thirty days, or until there is another", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  const { id } = bench.send()!;
  bench.do((device) => device.settle(id, outcome("dropped", { retired: [0] })));
  bench.days(1);
  assert.equal(bench.record(), "retired");
  bench.days(28);
  assert.equal(bench.record(), "retired");
  bench.days(1);
  assert.equal(bench.record(), "");
  bench.do((device) => device.settle(bench.state.uploads[0]?.id ?? "", outcome("dropped")));
  bench.state.metrics.dark!.retired = [bench.metric().digest, DAY + 50];
  bench.days(1);
  assert.equal(bench.why(), "retired");
  bench.upgrade(registryOf([{ rev: 2 }]));
  assert.equal(bench.why(), "");
  bench.upgrade(registryOf([{}]));
  assert.equal(bench.why(), "", "it was replaced meanwhile");
});

test("a wait that a server asks for holds flushes, too, unless the clock was set back", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  const { id } = bench.send()!;
  bench.do((device) => device.settle(id, outcome("kept", { retryAfter: HOUR })));
  const look = bench.look();
  assert.equal(look.heldUntil, NOON + HOUR);
  assert.ok(look.planned! >= NOON + HOUR && look.planned! <= NOON + HOUR + 240_000);
  bench.now -= 60_000;
  assert.equal(bench.look().heldUntil, 0);
});

test("there is one warning after an hour of failures of one kind", () => {
  const bench = new Bench(registryOf([{}]));
  bench.record();
  const { id } = bench.send()!;
  const warned = [0, 30, 61, 120].map((minute) => {
    bench.now = NOON + minute * 60_000;
    return bench.do((device) => device.settle(id, outcome("kept"))).warn;
  });
  assert.deepEqual(warned, [false, false, true, false]);
});

// A clock that strays.

test("no period is used twice, whichever way the clock goes", () => {
  const bench = new Bench(registryOf([{ charges: 9 }]));
  bench.record();
  bench.deliver();
  bench.days(1);
  bench.record();
  bench.deliver();
  bench.days(-1);
  assert.equal(bench.record(), "answered");
});

test("days that were used are kept as at most 32 spans", () => {
  const bench = new Bench(registryOf([{ charges: 99 }]));
  for (let period = 0; period < 50; period++) {
    assert.equal(bench.record(), "");
    bench.deliver();
    bench.days(2);
  }
  assert.equal(bench.state.metrics.dark!.used.length, 32);
});

// The person's choices.

test("terms that widen ask again, and other metrics go on", () => {
  const bench = new Bench(registryOf([{ name: "a" }, { name: "b" }]));
  const wider = registryOf([{ name: "a", charges: 4 }, { name: "b" }, { name: "c" }]);
  bench.upgrade(wider, false);
  assert.deepEqual(
    ["a", "b", "c"].map((name) => bench.why(name)),
    ["not-agreed", "", "not-agreed"],
  );
  assert.deepEqual(
    bench.do((device) => device.asks()),
    {
      a: ["its epsilon for life rises from 3 to 4", "its number of reports rises from 3 to 4"],
      c: ["it is new, and may cost 3"],
    },
  );
  bench.do((device) => device.agree());
  assert.equal(bench.why("c"), "");
});

test("less of anything asks nothing", () => {
  const bench = new Bench(registryOf([{ linked: 900 }], { linked: 900 }));
  const less = {
    charges: 2,
    report: 500_000,
    period: 2,
    expires: DAY + 200,
    rev: 2,
    presence: "hidden" as const,
    linked: 1_400,
  };
  bench.upgrade(registryOf([less], { linked: 1_400 }), false);
  assert.deepEqual(
    bench.do((device) => device.asks()),
    {},
  );
});

test("each term that is replaced or widened asks, by its own phrase", () => {
  const before = { presence: "hidden" as const, linked: 100 };
  const bench = new Bench(registryOf([before], { epsilon: 9e6 }));
  for (const [change, phrase] of [
    [{ question: "Why?" }, 'its question becomes "Why?"'],
    [{ kind: "choice" }, "its kind changes from flag to choice"],
    [{ report: 1_500_000, charges: 2 }, "its epsilon of a report rises from 1 to 1.5"],
    [{ permanent: 1_000_000 }, "its fresh answers become memoized ones, whose noise is a lasting mark"],
    [{ expires: DAY + 301 }, `its expiry is extended from ${isoDay(DAY + 300)} to ${isoDay(DAY + 301)}`],
    [{ presence: "public" }, "whether it answers is no longer hidden"],
    [{ linked: 601 }, "of 200 people with the same answers about 13 could be recognised, not 2"],
  ] as const) {
    bench.registry = registryOf([{ ...before, ...change }], { epsilon: 9e6 });
    const asks = bench.do((device) => device.asks()).dark ?? [];
    assert.ok(asks.includes(phrase), `${phrase}: ${asks}`);
  }
  bench.registry = registryOf([before], { epsilon: 9.5e6, linkable: true });
  assert.equal(bench.do((device) => device.asks())[""]!.length, 2);
});

test("a registry that newly means what a browser deletes asks again, for all", () => {
  const bench = new Bench(registryOf([{}]));
  const evicted = registryOf([{}], { evicted: true });
  bench.upgrade(evicted, false);
  assert.equal(bench.why(), "not-agreed");
  const asks = bench.do((device) => device.asks());
  assert.deepEqual(
    [asks[""], asks.dark].map((phrases) => phrases!.length),
    [1, 1],
  );
  bench.upgrade(evicted);
  assert.deepEqual([bench.why(), bench.do((device) => device.asks())], ["", {}]);
});

test("a consent of the app's agrees once, at the first start", () => {
  const bench = new Bench(registryOf([{}]));
  bench.registry = registryOf([{}, { name: "new" }]);
  bench.do((device) => device.begin(true));
  assert.equal(bench.why("new"), "not-agreed");
});

test("a refusal before anything was agreed keeps nothing but itself", () => {
  const bench = new Bench(registryOf([{}]), false);
  bench.do((device) => device.refuse());
  assert.deepEqual(bench.state, { v: 1, metrics: {}, uploads: [], counts: {}, consent: false, choices: 1 });
});

test("to forget erases all but what was spent, and is silent for thirty days", () => {
  const bench = new Bench(registryOf([MEMO, { name: "dark" }]));
  bench.record("home", 1, "x");
  bench.deliver();
  bench.record("dark");
  const { secret } = bench.state;
  bench.do((device) => device.forget());
  const { state } = bench;
  assert.deepEqual(
    [state.secret, state.cohort, state.uploads, state.metrics.home!.classes],
    [undefined, undefined, [], []],
  );
  assert.equal(bench.spent("home"), 4_000_000, "the rest of a memo would tell how many answers it had");
  bench.days(29);
  bench.look();
  assert.equal(bench.record("dark"), "forgotten");
  bench.days(1);
  assert.equal(bench.record("dark"), "");
  assert.notEqual(bench.state.secret, secret);
});

test("a report that was made before everything was forgotten is not taken", () => {
  const bench = new Bench(registryOf([{}]));
  const made = bench.made(1);
  bench.do((device) => device.forget());
  bench.days(31);
  bench.look();
  assert.equal(
    bench.do((device) => device.record(bench.metric(), made)),
    "forgotten",
  );
});
