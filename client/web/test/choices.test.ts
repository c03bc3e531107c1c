/**
 * Choices beside modules that hang, fail or come: whatever the order, a choice waits for none of them, the later of two
 * counts, and no answer leaves that was given under another choice than the one that counts when it is taken.
 */

import "fake-indexeddb/auto";
import assert from "node:assert/strict";
import { after, afterEach, test } from "node:test";
import { DAY_MS } from "../src/days.ts";
import { Device, type State } from "../src/device.ts";
import type { CompiledMetric, CompiledRegistry } from "../src/registry.ts";
import { load } from "../src/report.ts";
import { BrowserStorage } from "../src/storage.ts";
import { type Settings, systemDraw, Telemetry } from "../src/telemetry.ts";
import { ScriptedServer } from "./server.ts";
import { KEY, NOON, randomOf, registryOf, waitUntil } from "./support.ts";

const PLACES = [0, 1, 2, 3, 4, 5, 6, 7];
const OLD = registryOf(PLACES.map((place) => ({ name: `a${place}` })));
/** With metrics that a person who agreed to the one before is asked for. */
const NEW = registryOf([...PLACES, ...PLACES].map((place, i) => ({ name: `${i < PLACES.length ? "a" : "n"}${place}` })));
const HIDDEN = registryOf([{ name: "ill", presence: "hidden" }, { name: "dark" }]);
const server = await ScriptedServer.listen();
after(() => server.close());

/** A report leaves at the last moment at which it may. */
const LATE: Settings["draw"] = (what, n) => (what == "moment" ? BigInt(n) - 1n : systemDraw()(what, n));
let [clock, storages] = [NOON, 0];
let origins: Origin[] = [];

/** Modules that come when a test says so. */
class Modules {
  fetched: string[] = [];
  fails = "";
  come: () => void = () => {};
  readonly #came: Promise<void>;

  constructor(hang = true) {
    this.#came = hang ? new Promise((come) => (this.come = come)) : Promise.resolve();
  }

  load = async (metric: CompiledMetric): Promise<void> => {
    this.fetched.push(metric.plan.metric);
    await this.#came;
    if (this.fails == metric.plan.metric) throw new TypeError("Failed to fetch");
    await load(metric);
  };
}

/** A storage whose writes take a while. */
class SlowStorage extends BrowserStorage {
  override async change<T>(...[change, how]: Parameters<BrowserStorage["change"]>): Promise<T> {
    for (let turns = 0; turns < 3; turns++) await new Promise((turn) => setTimeout(turn));
    return super.change(change, how) as Promise<T>;
  }
}

/** One origin: its storage, and pages on it. */
class Origin {
  readonly name = `dither:choices-${storages++}`;
  pages: Telemetry[] = [];

  constructor() {
    origins.push(this);
  }

  page(more: Partial<Settings> & { registry?: CompiledRegistry } = {}): Telemetry {
    const telemetry = new Telemetry({
      registry: OLD,
      route: { url: `${server.endpoint}/v1/reports`, key: KEY, simple: true, fetch },
      storage: new BrowserStorage(this.name),
      load,
      shared: this.name,
      consent: undefined,
      silent: "",
      place: 0,
      development: false,
      persist: false,
      now: () => clock,
      draw: systemDraw(),
      warn: () => {},
      ...more,
    });
    this.pages.push(telemetry);
    return telemetry;
  }

  kept = () => new BrowserStorage(this.name).peek((state): State => state);

  async end(): Promise<void> {
    for (const telemetry of this.pages.splice(0)) await telemetry.close();
  }
}

afterEach(async () => {
  if (!origins.length) return; // a test of another file, in the same process: its own hook comes next
  for (const origin of origins.splice(0)) await origin.end();
  for (const one of ["document", "addEventListener", "removeEventListener"]) Reflect.deleteProperty(globalThis, one);
});

const TAKERS: ((telemetry: Telemetry) => Promise<unknown>)[] = [
  (telemetry) => telemetry.forget(),
  (telemetry) => telemetry.setConsent(false, "a0"),
  (telemetry) => telemetry.setConsent(false),
];

/** Let the pages that begin from now on be in a window; return what hides it. */
function inWindow(): () => void {
  const target = new EventTarget();
  Object.assign(globalThis, {
    document: Object.assign(new EventTarget(), { visibilityState: "visible" }),
    addEventListener: target.addEventListener.bind(target),
    removeEventListener: target.removeEventListener.bind(target),
  });
  return () => void target.dispatchEvent(new Event("pagehide"));
}

// Every order.

/** What was before this visit, and what the app says in it. */
const VISITS = {
  "not asked": { consent: undefined },
  "the app says yes": { consent: true },
  "the app said yes, and does not now": { consent: false, before: "said" },
  agreed: { consent: undefined, before: "agreed" },
  refused: { consent: true, before: "refused" },
  "agreed to less": { consent: undefined, before: "agreed to less" },
} as const;
type Visit = keyof typeof VISITS;
const EVENTS = ["yes", "no", "forget", "record", "other no", "other yes", "modules"] as const;
type Event = (typeof EVENTS)[number];

/**
 * What may leave and what is kept in the end, by the calls alone: an independent account of the rules.
 *
 * What may leave also must, where the modules came, but for answers that an explicit yes confirmed: they may be lost.
 */
function expected(visit: Visit, events: readonly Event[]) {
  const { consent: said, before = "" } = VISITS[visit] as { consent: boolean | undefined; before?: string };
  let chosen = { agreed: true, "agreed to less": true, refused: false }[before];
  let [kept, forgot, less] = [!!before || !!said, false, before == "agreed to less"];
  let may = new Set<string>();
  let must = new Set<string>();
  // What was taken before it was taken back may have been charged: it was ready to leave.
  const charged = new Set<string>();
  // A page that was told of no yes looks for one of another page's once a second.
  let own = (chosen ?? said) === true;
  events.forEach((event, place) => {
    if (events.slice(0, place).includes("modules")) may.forEach((name) => charged.add(name));
    if (event == "record" && !forgot && (chosen ?? said)) {
      for (const name of less ? [`a${place}`] : [`a${place}`, `n${place}`]) {
        may.add(name);
        if (own) must.add(name);
      }
    }
    if (event.endsWith("yes")) {
      if (chosen === false) may.clear();
      if (chosen !== true || less) must = new Set();
      [chosen, kept, less, own] = [true, true, false, own || event == "yes"];
    }
    if (event.endsWith("no")) {
      may = new Set();
      must = new Set();
      [chosen, kept, own] = [false, true, false];
    }
    if (event == "forget" && kept) forgot = true;
    if (event == "forget") [may, must] = [new Set(), new Set()];
  });
  may.forEach((name) => charged.add(name));
  return { chosen, may, must, charged, forgot };
}

interface How {
  inTurn: boolean;
  /** Milliseconds between two events: negative where the clock is set back. */
  step: () => number;
  slow: boolean;
}

/** Let events happen in a page, beside modules that hang until one of them; return what left, by then or later. */
async function happen(visit: Visit, events: readonly Event[], { inTurn, step, slow }: How) {
  const origin = new Origin();
  const { consent, before } = VISITS[visit] as { consent: boolean | undefined; before?: string };
  clock = NOON;
  server.requests.length = 0;
  const registry = before == "agreed to less" ? OLD : NEW;
  if (before == "said") await origin.page({ registry, consent: true }).status();
  else if (before) await origin.page({ registry }).setConsent(before != "refused");
  await origin.end();
  const modules = new Modules();
  const storage = new (slow ? SlowStorage : BrowserStorage)(origin.name);
  const other = origin.page({ registry: NEW });
  await other.status();
  const telemetry = origin.page({ registry: NEW, consent, load: modules.load, storage });
  // Where the app says yes for the first time, the device begins with the page.
  if (inTurn && consent && !before) await waitUntil(async () => !!(await origin.kept())?.agreed);
  const does: Record<Event, (place: number) => unknown> = {
    yes: () => telemetry.setConsent(true),
    no: () => telemetry.setConsent(false),
    forget: () => telemetry.forget(),
    record: (place) => ["a", "n"].forEach((name) => telemetry.record(`${name}${place}`, true)),
    "other no": () => other.setConsent(false),
    "other yes": () => other.setConsent(true),
    modules: () => modules.come(),
  };
  const done: unknown[] = [];
  for (const [place, event] of events.entries()) {
    clock += step();
    const doing = does[event](place);
    if (inTurn) await doing;
    done.push(doing);
    if (events[place + 1]?.startsWith("other")) {
      // Of what two pages do in one moment nobody knows which was first.
      await Promise.all(done);
      for (let turns = 0; turns < 5; turns++) await new Promise((turn) => setTimeout(turn));
    }
    if (event.startsWith("other")) await doing;
  }
  await Promise.all(done); // no choice waits for a module
  const state = await origin.kept();
  modules.come();
  await telemetry.status();
  await origin.end();
  clock = NOON + 60_000;
  const next = origin.page({ registry: NEW, consent });
  await next.status();
  await next.flush();
  await origin.end();
  const left = server.requests.flatMap(({ groups }) => groups.map(({ metric }) => metric)).sort();
  return { left, state, after: await origin.kept(), fetched: modules.fetched.length };
}

async function holds(visit: Visit, events: readonly Event[], how: How) {
  const { left, state, after, fetched } = await happen(visit, events, how);
  const { chosen, may, must, forgot, ...wanted } = expected(visit, events);
  const where = `${visit}: ${events.join(", ")}${how.inTurn ? ", in turn" : ""}${how.slow ? ", slow" : ""}`;
  assert.equal(state?.consent, chosen, where);
  for (const metric of left) assert.ok(may.has(metric), `${metric} left. ${where}`);
  const misses = [...must].filter((metric) => !left.includes(metric));
  if (how.inTurn) assert.deepEqual(misses, [], `${misses} did not leave. ${where}`);
  const charged = Object.entries(after?.metrics ?? {}).filter(([, row]) => row.spent);
  for (const [metric] of charged) assert.ok(wanted.charged.has(metric), `${metric} was charged. ${where}`);
  if (forgot && how.inTurn) assert.ok(after!.forgottenUntil, `it is silent for 30 days. ${where}`);
  assert.ok(fetched <= 2 * NEW.metrics.length, `${fetched} fetched. ${where}`);
}

const evenly: How = { inTurn: false, step: () => 1, slow: false };

test("in any order of three that differ, the later choice counts, and no answer of before it", async () => {
  let [order, orders] = [0, 0];
  for (const visit of Object.keys(VISITS) as Visit[])
    for (const first of EVENTS)
      for (const second of EVENTS)
        for (const third of EVENTS) {
          if (new Set([first, second, third]).size < 3 || ![first, second, third].includes("record")) continue;
          if (order++ % 3 && !process.env["SOAK_TESTS"]) continue; // all are a soak's
          orders++;
          await holds(visit, [first, second, third], evenly);
        }
  assert.ok(orders >= 180);
});

test("in any longer order, at once or in turn, with a clock that jumps and writes that take long", async () => {
  const random = randomOf(42);
  for (let run = 0; run < 120; run++) {
    const events = Array.from({ length: 3 + random(5) }, () => EVENTS[random(EVENTS.length)]!);
    const visit = (Object.keys(VISITS) as Visit[])[random(6)]!;
    const step = random(2) ? () => 1 : () => random(4_000) - 2_000;
    await holds(visit, events, { inTurn: !!random(2), step, slow: !random(4) });
  }
});

test("an answer of before a metric was refused does not count once it is agreed to again, in any page", async () => {
  for (const own of [true, false]) {
    clock = NOON;
    const [origin, modules] = [new Origin(), new Modules()];
    const other = origin.page({ consent: true });
    await other.status();
    const noted: unknown[] = [];
    const note: Settings["note"] = (metric, answer, silent) => noted.push([metric, answer, silent]);
    const telemetry = origin.page({ consent: true, load: modules.load, note });
    await waitUntil(() => modules.fetched.length > 0);
    telemetry.record("a0", "before");
    for (const given of [false, true]) await (own ? telemetry : other).setConsent(given, "a0");
    telemetry.record("a0", true);
    modules.come();
    await telemetry.status();
    assert.deepEqual(noted, [
      ["a0", "before", "not-agreed"],
      ["a0", true, ""],
    ]);
  }
});

test("to agree again changes nothing: answers that wait for modules count", async () => {
  const [origin, modules] = [new Origin(), new Modules()];
  await origin.page().setConsent(true);
  await origin.end();
  const telemetry = origin.page({ load: modules.load });
  telemetry.record("a0", true);
  assert.equal(await telemetry.setConsent(true), true);
  assert.equal(await telemetry.setConsent(true, "a0"), true);
  modules.come();
  assert.equal((await telemetry.status()).waiting, 1);
});

test("a choice about one metric, and a yes to what the app had said, lose no answer of others", async () => {
  for (const choose of [
    (telemetry: Telemetry) => telemetry.setConsent(false, "a0"),
    (telemetry: Telemetry) => telemetry.setConsent(true),
  ]) {
    const telemetry = new Origin().page({ consent: true });
    telemetry.record("a1", true);
    await choose(telemetry);
    const { counts, metrics } = await telemetry.status();
    assert.deepEqual([counts, metrics["a1"]!.silent], [{}, "answered"]);
  }
});

test("an answer of before anybody had agreed does not count by another page's yes, though its app had said so", async () => {
  const origin = new Origin();
  const storage = new BrowserStorage(origin.name);
  const peek = storage.peek.bind(storage);
  const telemetry = origin.page({ storage });
  await telemetry.status();
  const other = origin.page({ consent: true });
  await other.status();
  await new Promise((later) => setTimeout(later, 1_001)); // it looks for a choice once a second
  let peeks = 0;
  storage.peek = async (read) => {
    if (++peeks == 2) await other.setConsent(true); // after the moment was read, before the choice is looked for
    return peek(read);
  };
  telemetry.record("a0", true);
  const { counts, waiting } = await telemetry.status();
  assert.deepEqual([peeks > 2, counts, waiting], [true, { "not-agreed": 1 }, 0]);
});

test("what waits for modules is lost when the person forgets, however long ago that is", async () => {
  clock = NOON;
  const [origin, modules] = [new Origin(), new Modules()];
  const telemetry = origin.page({ consent: true, load: modules.load });
  telemetry.record("a0", true);
  await telemetry.forget();
  clock += 31 * DAY_MS;
  modules.come();
  const { waiting, counts } = await telemetry.status();
  assert.deepEqual([waiting, counts], [0, { "not-agreed": 1 }]);
});

test("what waits for modules is lost where the storage is another device's meanwhile", async () => {
  const [origin, modules] = [new Origin(), new Modules()];
  const other = origin.page();
  const choose = async (page: Telemetry) => {
    for (const given of [true, false, true]) await page.setConsent(given);
  };
  await choose(other);
  const telemetry = origin.page({ load: modules.load });
  telemetry.record("a0", true);
  await waitUntil(() => modules.fetched.length > 0);
  await new BrowserStorage(origin.name).change((state) => {
    for (const key of Object.keys(state)) if (key != "v") Reflect.deleteProperty(state, key);
    Object.assign(state, { metrics: {}, uploads: [], counts: {} });
  });
  await choose(origin.page());
  modules.come();
  assert.equal((await telemetry.status()).waiting, 0);
});

test("an answer to wider terms of its metric or of the device is not of those that were agreed to", async () => {
  const epsilon = registryOf([{ name: "a0" }], { evicted: true });
  for (const wider of [registryOf([{ name: "a0", report: 2_000_000 }]), epsilon]) {
    const [origin, modules] = [new Origin(), new Modules()];
    await origin.page({ registry: registryOf([{ name: "a0" }]) }).setConsent(true);
    await origin.end();
    const telemetry = origin.page({ registry: wider, load: modules.load });
    telemetry.record("a0", true);
    await waitUntil(() => modules.fetched.length > 0);
    assert.equal(await telemetry.setConsent(true), true);
    modules.come();
    assert.deepEqual((await telemetry.status()).counts, { "not-agreed": 1 });
  }
});

test("a refusal that could not be written ends what was before, though a yes comes after it", async () => {
  for (const take of TAKERS) {
    const [origin, modules] = [new Origin(), new Modules()];
    const storage = new BrowserStorage(origin.name);
    const change = storage.change.bind(storage);
    const telemetry = origin.page({ consent: true, load: modules.load, storage });
    telemetry.record("a0", true);
    await waitUntil(() => modules.fetched.length > 0);
    if (take == TAKERS.at(-1)) {
      modules.come(); // and the answer is kept
      assert.equal((await telemetry.status()).waiting, 1);
    }
    storage.change = () => Promise.reject(new DOMException("full", "QuotaExceededError"));
    await take(telemetry);
    storage.change = change;
    assert.equal(await telemetry.setConsent(true), true);
    modules.come();
    assert.equal((await telemetry.status()).waiting, 0);
  }
});

test("nothing leaves between a refusal or forget and its write", async () => {
  clock = NOON;
  for (const take of TAKERS) {
    server.requests.length = 0;
    const hide = inWindow();
    const origin = new Origin();
    const storage = new BrowserStorage(origin.name);
    const change = storage.change.bind(storage);
    const telemetry = origin.page({ consent: true, storage, draw: LATE });
    telemetry.record("a0", true);
    await telemetry.status();
    let write = () => {};
    const gate = new Promise<void>((writes) => (write = writes));
    const slow = change.bind(storage);
    storage.change = async (step, how) => (how?.strict && (await gate), slow(step, how));
    const taken = take(telemetry);
    storage.change = slow;
    const flushed = telemetry.flush(1);
    Object.assign(document, { visibilityState: "hidden" });
    document.dispatchEvent(new Event("visibilitychange"));
    await new Promise((soon) => setTimeout(soon, 20));
    hide();
    write();
    await taken;
    assert.equal((await flushed).waiting, 0, "a flush waits for choices");
    await origin.end();
    assert.deepEqual(server.requests, []);
  }
});

test("a flush goes on with the rest while a metric is refused, and looks know of choices before them", async () => {
  clock = NOON;
  server.requests.length = 0;
  const origin = new Origin();
  const storage = new SlowStorage(origin.name);
  const telemetry = origin.page({ consent: true, storage, draw: LATE });
  telemetry.record("a0", true);
  telemetry.record("a1", true);
  await telemetry.status();
  void telemetry.setConsent(true, "a2");
  void telemetry.setConsent(false, "a0");
  assert.deepEqual((await telemetry.preview()).cost, { a1: 1 });
  const { arm } = Device.prototype;
  let refused: Promise<boolean> | undefined;
  Device.prototype.arm = function (known) {
    refused ??= telemetry.setConsent(false, "a3"); // while the flush arms
    return Reflect.apply(arm, this, [known]);
  };
  const { waiting, detail } = await telemetry.flush(5).finally(() => (Device.prototype.arm = arm));
  assert.deepEqual([await refused, waiting, detail], [true, 0, ""]);
  assert.deepEqual(server.requests.flatMap(({ groups }) => groups.map(({ metric }) => metric)), ["a1"]);
  void telemetry.setConsent(false, "a4");
  assert.deepEqual((await telemetry.status()).refused, ["a0", "a3", "a4"]);
});

test("an answer on a page that is silent leaves no connection open", async (t) => {
  const origin = new Origin();
  await origin.page().setConsent(false);
  await origin.end();
  const storage = new BrowserStorage(origin.name);
  const telemetry = origin.page({ storage });
  telemetry.record("a0", true);
  await new Promise((later) => setTimeout(later, 50));
  const opened = t.mock.method(indexedDB, "open");
  await storage.peek(() => {});
  assert.equal(opened.mock.callCount(), 1);
});

test("a read that fails once makes a page that speaks neither deaf nor a liar", async () => {
  clock = NOON;
  const storage = new BrowserStorage("dither:reads");
  const origin = new Origin();
  const telemetry = origin.page({ consent: true, storage });
  await telemetry.status();
  const peek = storage.peek.bind(storage);
  storage.peek = () => Promise.reject(new DOMException("read", "AbortError"));
  assert.match((await telemetry.flush()).detail, /cannot be used now: read/);
  storage.peek = peek;
  telemetry.record("a0", true);
  assert.deepEqual([(await telemetry.flush()).detail, (await telemetry.status()).silent], ["", ""]);
});

test("a hidden answer beside a public one that begins telemetry is taken, too", async () => {
  clock = NOON;
  const origin = new Origin();
  const both = registryOf([{ name: "ill", presence: "hidden" }, { name: "dark" }]);
  const telemetry = origin.page({ registry: both });
  await telemetry.status();
  await origin.page({ registry: both }).setConsent(true);
  await new Promise((later) => setTimeout(later, 1_001)); // it looks for a choice once a second
  telemetry.record("dark", true);
  telemetry.record("ill", true);
  await telemetry.status();
  const { metrics } = (await origin.kept())!;
  assert.deepEqual([!!metrics["dark"]?.slot, metrics["ill"]?.slot?.open], [true, false]);
});

test("to refuse and to forget need no channel between pages, and say whether they were kept", async () => {
  const { BroadcastChannel } = globalThis;
  const origin = new Origin();
  const storage = new BrowserStorage(origin.name);
  const telemetry = origin.page({ silent: "this browser keeps nothing for the page", storage });
  await telemetry.status();
  Reflect.deleteProperty(globalThis, "BroadcastChannel");
  try {
    assert.deepEqual([await telemetry.forget(), await telemetry.setConsent(false), await telemetry.forget()], [true, true, true]);
    storage.change = () => Promise.reject(new DOMException("full", "QuotaExceededError"));
    assert.deepEqual([await telemetry.forget(), await telemetry.setConsent(false)], [false, false]);
  } finally {
    Object.assign(globalThis, { BroadcastChannel });
  }
});

test("after a kept refusal and a yes that is not, another page's yes counts here, too", async () => {
  const origin = new Origin();
  const storage = new BrowserStorage(origin.name);
  const change = storage.change.bind(storage);
  const telemetry = origin.page({ consent: true, storage });
  await telemetry.status();
  let changes = 0;
  storage.change = async (step, how) => {
    if (how?.create && ++changes == 2) throw new DOMException("full", "QuotaExceededError");
    return change(step, how);
  };
  assert.deepEqual(await Promise.all([telemetry.setConsent(false), telemetry.setConsent(true)]), [true, false]);
  await origin.page().setConsent(true);
  assert.equal((await telemetry.status()).silent, "");
});

test("a page that was not asked opens no storage for answers, and after a thousand in a visit goes on", async (t) => {
  const opened = t.mock.method(indexedDB, "open");
  const telemetry = new Origin().page({ registry: HIDDEN });
  await telemetry.status();
  const before = opened.mock.callCount();
  for (let times = 0; times < 300; times++) for (const name of ["ill", "dark"]) telemetry.record(name, true);
  await telemetry.preview();
  assert.equal(opened.mock.callCount() - before, 0);
  await telemetry.setConsent(true);
  for (let times = 0; times < 3; times++) {
    for (let each = 0; each < 400; each++) telemetry.record("dark", true);
    await telemetry.preview();
  }
  assert.equal((await telemetry.status()).counts["failed"], undefined);
});

test("a page that closes, and a test that looks, know of choices and answers that nobody waited for", async () => {
  const origin = new Origin();
  const storage = new SlowStorage(origin.name);
  const telemetry = origin.page({ storage });
  await telemetry.status();
  void telemetry.setConsent(true);
  telemetry.record("a0", true);
  await telemetry.close();
  const { consent, metrics } = (await origin.kept())!;
  assert.deepEqual([consent, !!metrics["a0"]?.slot], [true, true]);
});

// What cannot be fetched.

test("a module that cannot be fetched is fetched again at the next start, and for no answer", async () => {
  clock = NOON;
  server.requests.length = 0;
  for (const fails of ["ill", "dark"]) {
    const [origin, modules] = [new Origin(), new Modules(false)];
    modules.fails = fails;
    const telemetry = origin.page({ registry: HIDDEN, consent: true, load: modules.load });
    await telemetry.status();
    for (const metric of ["ill", "dark", "ill", "dark"]) telemetry.record(metric, true);
    await telemetry.flush();
    assert.deepEqual(modules.fetched, ["ill", "dark"], "once each, at the start");
    const { counts, metrics } = await telemetry.status();
    if (fails == "ill") assert.equal((await origin.kept())!.metrics["ill"]?.slot, undefined);
    assert.deepEqual([counts["unloaded"], metrics[fails]!.silent], [fails == "dark" ? 2 : undefined, "unloaded"]);
    await origin.end();
    modules.fails = "";
    const next = origin.page({ registry: HIDDEN, consent: true, load: modules.load });
    assert.deepEqual([(await next.status()).counts["unloaded"], modules.fetched.length], [undefined, 4]);
    next.record(fails, true);
    await next.flush();
    assert.equal((await next.status()).metrics[fails]!.silent, "answered");
  }
  const left = server.requests.flatMap(({ groups }) => groups.map(({ metric }) => metric));
  assert.deepEqual(left, ["dark", "dark"]);
});

test("a hidden answer fetches nothing where the person agreed in another page, and a public one does", async () => {
  clock = NOON;
  const [origin, modules] = [new Origin(), new Modules(false)];
  const [telemetry, other] = [origin.page({ registry: HIDDEN, load: modules.load }), origin.page({ registry: HIDDEN })];
  await telemetry.preview(); // it has begun
  await other.setConsent(true);
  await new Promise((later) => setTimeout(later, 1_001)); // it looks for a choice once a second
  for (const [metric, fetched] of [["ill", 0], ["dark", 2]] as const) {
    telemetry.record(metric, true);
    await telemetry.preview();
    assert.equal(modules.fetched.length, fetched);
  }
});

test("a thousand hidden answers that wait displace no public one", async () => {
  const [origin, modules] = [new Origin(), new Modules()];
  const telemetry = origin.page({ registry: HIDDEN, consent: true, load: modules.load });
  for (let times = 0; times < 1_100; times++) telemetry.record("ill", true);
  telemetry.record("dark", true);
  modules.come();
  const { counts, metrics } = await telemetry.status();
  assert.deepEqual([counts, metrics["dark"]!.silent], [{}, "answered"]);
});

test("a page that was refused while its modules hung holds neither lock nor periods when they come", async () => {
  const [origin, modules] = [new Origin(), new Modules()];
  const telemetry = origin.page({ registry: HIDDEN, consent: true, load: modules.load });
  await waitUntil(() => modules.fetched.length > 0);
  assert.equal(await telemetry.setConsent(false), true);
  modules.come();
  assert.equal((await telemetry.status()).silent, "the person refused");
  assert.equal((await navigator.locks.query()).held!.some((lock) => lock.name == origin.name), false);
});

test("a refusal holds though the storage takes only the agreement before it", async () => {
  const origin = new Origin();
  const storage = new BrowserStorage(origin.name);
  const change = storage.change.bind(storage);
  const telemetry = origin.page({ storage });
  await telemetry.status();
  let changes = 0;
  storage.change = async (step, how) => {
    if (how?.create && ++changes == 2) throw new DOMException("full", "QuotaExceededError");
    return change(step, how);
  };
  assert.deepEqual(await Promise.all([telemetry.setConsent(true), telemetry.setConsent(false)]), [true, false]);
  telemetry.record("a0", true);
  const { silent, waiting } = await telemetry.status();
  assert.deepEqual([silent, waiting], ["the person refused", 0]);
});

// What was armed.

test("what another page arms again before a choice is written does not leave with that page", async (t) => {
  clock = NOON;
  let left = 0;
  const never: typeof fetch = () => new Promise(() => void left++);
  const route = { url: server.endpoint, key: KEY, simple: true, fetch: never };
  const armed = t.mock.method(Device.prototype, "arm");
  for (const take of TAKERS) {
    const origin = new Origin();
    const storage = new BrowserStorage(origin.name);
    const change = storage.change.bind(storage);
    const other = origin.page({ consent: true, storage });
    await other.status();
    await other.close(); // it still takes choices
    const hide = inWindow();
    const leader = origin.page({ consent: true, draw: LATE, route });
    leader.record("a0", true);
    await waitUntil(async () => !!(await origin.kept())!.uploads[0]?.armed);
    let write = () => {};
    const gate = new Promise<void>((writes) => (write = writes));
    storage.change = async (step, how) => (await gate, change(step, how));
    const before = armed.mock.callCount();
    const chosen = take(other);
    await waitUntil(() => armed.mock.callCount() > before);
    await leader.status();
    write();
    await chosen;
    await leader.status();
    await new Promise((told) => setTimeout(told)); // a message between pages is a task
    hide();
    assert.equal(left, 0);
  }
});

test("what is armed while the person takes it back does not leave with the page", async () => {
  clock = NOON;
  server.requests.length = 0;
  for (const take of TAKERS) {
    const hide = inWindow();
    const origin = new Origin();
    const storage = new BrowserStorage(origin.name);
    const change = storage.change.bind(storage);
    let open: (() => void) | undefined;
    storage.change = async (step, how) => {
      const changed = await change(step, how);
      const isArmed = how?.strict && (await origin.kept())!.uploads.length > 0;
      if (isArmed && !open) await new Promise<void>((opens) => (open = opens)); // the page is not told yet
      return changed;
    };
    const telemetry = origin.page({ consent: true, storage });
    telemetry.record("a0", true);
    await waitUntil(() => !!open);
    await take(telemetry);
    open!();
    await telemetry.status();
    hide();
    assert.deepEqual((await origin.kept())!.uploads, []);
    await origin.end();
  }
  assert.equal(server.requests.length, 0);
});
