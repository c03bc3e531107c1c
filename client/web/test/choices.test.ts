/**
 * Choices beside modules that hang, fail or come: whatever the order, a refusal and `forget` wait for none of them, the
 * later of two choices counts, and no answer of before a refusal leaves.
 */

import "fake-indexeddb/auto";
import assert from "node:assert/strict";
import { after, afterEach, test } from "node:test";
import { Device, type State } from "../src/device.ts";
import type { CompiledMetric, CompiledRegistry } from "../src/registry.ts";
import { load, type Loaded } from "../src/report.ts";
import { BrowserStorage } from "../src/storage.ts";
import { type Settings, systemDraw, Telemetry } from "../src/telemetry.ts";
import { ScriptedServer } from "./server.ts";
import { KEY, NOON, randomOf, registryOf, waitUntil } from "./support.ts";

const NAMES = ["a0", "a1", "a2", "a3", "a4", "a5", "a6"];
const REGISTRY = registryOf(NAMES.map((name) => ({ name })));
const HIDDEN = registryOf([{ name: "ill", presence: "hidden" }, { name: "dark" }]);
const server = await ScriptedServer.listen();
after(() => server.close());

let clock = NOON;
let storages = 0;

/** Modules that come when a test says so. */
class Script {
  fetched: string[] = [];
  fails = "";
  come: () => void = () => {};
  readonly #came: Promise<void>;

  constructor(hang = true) {
    this.#came = hang ? new Promise((come) => (this.come = come)) : Promise.resolve();
  }

  load = async (metric: CompiledMetric): Promise<Loaded> => {
    this.fetched.push(metric.plan.metric);
    await this.#came;
    if (this.fails == metric.plan.metric) throw new TypeError("Failed to fetch");
    return load(metric);
  };
}

/** One origin: its storage, and pages on it. */
class Origin {
  readonly name = `dither:choices-${storages++}`;
  static readonly all: Origin[] = [];
  readonly pages: Telemetry[] = [];

  constructor() {
    Origin.all.push(this);
  }

  page(more: Partial<Settings> & { registry?: CompiledRegistry } = {}): Telemetry {
    const telemetry = new Telemetry({
      registry: REGISTRY,
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

  /** End all pages. What hangs in them is let go. */
  async end(): Promise<void> {
    for (const telemetry of this.pages.splice(0)) await telemetry.close();
  }
}

const VISITS = ["not asked", "the app says yes", "agreed before"] as const;
type Visit = (typeof VISITS)[number];
const EVENTS = ["yes", "no", "forget", "record", "other no", "other yes", "modules"] as const;
type Event = (typeof EVENTS)[number];

/** What may leave, must leave and is kept in the end, by the calls alone: the later choice counts. */
function expected(visit: Visit, events: readonly Event[]) {
  let consent: boolean | undefined = visit == "not asked" ? undefined : true;
  let chosen: boolean | undefined = visit == "agreed before" ? true : undefined;
  let [forgot, own] = [false, consent === true];
  let may: string[] = [];
  events.forEach((event, place) => {
    if (event == "record" && consent && !forgot) may.push(NAMES[place]!);
    if (event == "yes" || event == "other yes") consent = chosen = true;
    if (event == "no" || event == "other no") [consent, chosen, may] = [false, false, []];
    if (event == "forget") may = [];
    // Where nothing was kept there is nothing to forget, and no silence.
    if (event == "forget" && (consent || chosen !== undefined)) forgot = true;
    if (event == "yes") own = true;
    if (event == "no") own = false;
  });
  const others = events.some((event) => event.startsWith("other"));
  return { consent: chosen, may, must: others && (!own || visit == "the app says yes") ? [] : may, forgot: forgot && !others };
}

/** Let events happen in a page, in turn or all at once; return what left by then and at the next visit. */
async function happen(visit: Visit, events: readonly Event[], inTurn: boolean, ticks: number) {
  const origin = new Origin();
  clock = NOON;
  server.requests.length = 0;
  if (visit == "agreed before") {
    await origin.page().setConsent(true);
    await origin.end();
  }
  const consent = visit == "not asked" ? undefined : true;
  const other = origin.page({ load: new Script(false).load });
  await other.status();
  const script = new Script();
  const telemetry = origin.page({ consent, load: script.load });
  if (inTurn && consent) await waitUntil(() => script.fetched.length > 0);
  const does: Record<Event, (place: number) => unknown> = {
    yes: () => telemetry.setConsent(true),
    no: () => telemetry.setConsent(false),
    forget: () => telemetry.forget(),
    record: (place) => telemetry.record(NAMES[place]!, true),
    "other no": () => other.setConsent(false),
    "other yes": () => other.setConsent(true),
    modules: () => script.come(),
  };
  const done: unknown[] = [];
  for (const [place, event] of events.entries()) {
    clock += ticks;
    const doing = does[event](place);
    if (inTurn) await doing;
    done.push(doing);
  }
  await Promise.all(done); // no choice waits for a module
  const state = await origin.kept();
  // The page closes. What it has recorded meanwhile may be kept where its modules came, and is lost where they did not.
  const come = events.includes("modules");
  if (come) await telemetry.status();
  else void script.come();
  await origin.end();
  const next = origin.page({ consent });
  await next.status();
  await next.flush();
  await origin.end();
  const left = server.requests.flatMap(({ groups }) => groups.map(({ metric }) => metric)).sort();
  return { left, come, state, after: await origin.kept(), fetched: script.fetched.length };
}

async function holds(visit: Visit, events: readonly Event[], inTurn: boolean, ticks: number) {
  const { left, come, state, after, fetched } = await happen(visit, events, inTurn, ticks);
  const wanted = expected(visit, events);
  const where = `${visit}: ${events.join(", ")}${inTurn ? ", in turn" : ""}, ${ticks} ms apart`;
  assert.equal(state?.consent, wanted.consent, where);
  for (const metric of left) assert.ok(wanted.may.includes(metric), `${metric} left. ${where}`);
  if (come) assert.deepEqual(left, wanted.must.length ? wanted.may : left, `${left} left. ${where}`);
  const spent = Object.entries(after?.metrics ?? {}).filter(([, row]) => row.spent);
  for (const [metric] of spent) assert.ok(wanted.may.includes(metric), `${metric} was charged. ${where}`);
  if (wanted.forgot) assert.ok(after!.forgottenUntil, `it is silent for 30 days. ${where}`);
  assert.ok(fetched <= NAMES.length, `modules are fetched once. ${where}`);
}

test("in any order of three that differ, beside modules that come or hang, the later choice counts", async () => {
  const events = EVENTS.filter((event) => event != "other yes");
  for (const visit of VISITS)
    for (const first of events)
      for (const second of events)
        for (const third of events)
          if (new Set([first, second, third]).size == 3) await holds(visit, [first, second, third], false, 1);
});

test("in any longer order, at once or in turn", async () => {
  const random = randomOf(42);
  for (let run = 0; run < 80; run++) {
    const events = Array.from({ length: 4 + random(4) }, () => EVENTS[random(EVENTS.length)]!);
    await holds(VISITS[random(3)]!, events, !!random(2), 1);
  }
});

test("in one page the order of the calls counts where the clock stands still", async () => {
  const random = randomOf(7);
  const own = EVENTS.filter((event) => !event.startsWith("other"));
  for (let run = 0; run < 60; run++) {
    const events = Array.from({ length: 3 + random(5) }, () => own[random(own.length)]!);
    await holds(VISITS[random(3)]!, events, !!random(2), 0);
  }
});

test("an answer of before a metric was refused does not count once it is agreed to again, in any page", async () => {
  for (const own of [true, false]) {
    clock = NOON;
    const [origin, script] = [new Origin(), new Script()];
    const other = origin.page({ consent: true });
    await other.status();
    const noted: unknown[] = [];
    const note: Settings["note"] = (metric, answer, silent) => noted.push([metric, answer, silent]);
    const telemetry = origin.page({ consent: true, load: script.load, note });
    const chooses = own ? telemetry : other;
    telemetry.record("a0", "before");
    telemetry.record("a1", "before");
    for (const given of [false, true]) {
      clock += own ? 0 : 1;
      const chosen = chooses.setConsent(given, "a0");
      if (!own) await chosen;
    }
    telemetry.record("a0", "after");
    script.come();
    await telemetry.status();
    assert.deepEqual(noted, [
      ["a0", "before", "not-agreed"],
      ["a1", "before", ""],
      ["a0", "after", ""],
    ]);
    await origin.end();
  }
});

// What cannot be fetched.

test("a module that cannot be fetched is fetched again at the next start, and for no answer", async () => {
  clock = NOON;
  server.requests.length = 0;
  const [origin, script] = [new Origin(), new Script(false)];
  for (const fails of ["ill", "dark"]) {
    script.fails = fails;
    script.fetched = [];
    const telemetry = origin.page({ registry: HIDDEN, consent: true, load: script.load });
    await telemetry.status();
    for (const answered of [false, true]) {
      if (answered) for (const metric of ["ill", "dark", "ill", "dark"]) telemetry.record(metric, true);
      assert.equal((await telemetry.status()).metrics[fails]!.silent, "unloaded");
      await telemetry.flush();
      assert.deepEqual(script.fetched, ["ill", "dark"], "once each, at the start");
    }
    assert.equal((await telemetry.status()).counts["failed"], fails == "dark" ? 2 : undefined);
    await origin.end();
  }
  assert.deepEqual(server.requests.flatMap(({ groups }) => groups.map(({ metric }) => metric)), ["dark"]);
  script.fails = "";
  const telemetry = origin.page({ registry: HIDDEN, consent: true, load: script.load });
  assert.equal((await telemetry.status()).metrics["ill"]!.silent, "answered");
  await origin.end();
});

test("a page that closes while modules hang ends nevertheless, and what it was told to keep is kept", async () => {
  clock = NOON;
  const [origin, script] = [new Origin(), new Script()];
  const telemetry = origin.page({ consent: true, load: script.load });
  telemetry.record("a0", true);
  void telemetry.forget();
  void telemetry.setConsent(false);
  await telemetry.close();
  const state = (await origin.kept())!;
  assert.deepEqual([state.consent, !!state.forgottenUntil, state.uploads], [false, true, []]);
  const another = origin.page({ load: script.load });
  await another.setConsent(true);
  another.record("a0", true);
  await another.close();
  assert.equal((await origin.kept())!.consent, true);
});

// A page that goes away and comes back.

afterEach(async () => {
  for (const origin of Origin.all.splice(0)) await origin.end();
  for (const one of ["document", "addEventListener", "removeEventListener"]) Reflect.deleteProperty(globalThis, one);
});

/** Let the pages that begin from now on be in a window, whose events a test fires. */
function inWindow(): (type: string, more?: object) => void {
  const target = new EventTarget();
  const { addEventListener, removeEventListener } = target;
  Object.assign(globalThis, {
    document: Object.assign(new EventTarget(), { visibilityState: "visible" }),
    addEventListener: addEventListener.bind(target),
    removeEventListener: removeEventListener.bind(target),
  });
  return (type, more = {}) => void target.dispatchEvent(Object.assign(new Event(type), more));
}

const held = async (name: string) => (await navigator.locks.query()).held!.some((lock) => lock.name == name);

test("a refusal is kept though the page goes away in the same moment", async () => {
  const fire = inWindow();
  const [origin, script] = [new Origin(), new Script()];
  const telemetry = origin.page({ consent: true, load: script.load });
  await waitUntil(() => script.fetched.length > 0);
  fire("pagehide"); // lets go of the database
  const kept = telemetry.setConsent(false); // opens it again
  fire("pagehide");
  assert.equal(await kept, true);
  assert.equal((await origin.kept())!.consent, false);
  assert.equal((await telemetry.status()).silent, "the person refused", "nothing waits for the modules any more");
  script.come();
  await origin.end();
});

test("a page whose modules come after it went away holds nothing until it is shown again", async () => {
  const fire = inWindow();
  const [origin, script] = [new Origin(), new Script()];
  const telemetry = origin.page({ consent: true, load: script.load });
  telemetry.record("a0", true);
  await waitUntil(() => script.fetched.length > 0);
  fire("pagehide");
  script.come();
  assert.equal((await telemetry.status()).waiting, 1);
  assert.equal(await held(origin.name), false);
  fire("pageshow", { persisted: true });
  await telemetry.status();
  assert.equal(await held(origin.name), true);
  await origin.end();
  assert.equal(await held(origin.name), false);
});

test("a page that went away and came back while another one sends leaves the lead when it ends", async () => {
  const origin = new Origin();
  const first = origin.page({ consent: true });
  await first.status();
  const fire = inWindow(); // of the pages from now on
  const second = origin.page({ consent: true });
  await second.status();
  for (let times = 0; times < 5; times++) {
    fire("pagehide");
    fire("pageshow", { persisted: true });
    await Promise.resolve();
  }
  await second.status();
  await second.close();
  await first.close();
  const { held: holding, pending } = await navigator.locks.query();
  const left = [...holding!, ...pending!].filter(({ name }) => name == origin.name);
  assert.deepEqual(left, []);
});

test("a page that goes away as it begins to send holds nothing", async (t) => {
  const fire = inWindow();
  const origin = new Origin();
  const telemetry = origin.page({ consent: true });
  await telemetry.status();
  fire("pagehide");
  await waitUntil(async () => !(await held(origin.name)));
  const { request } = navigator.locks;
  t.mock.method(navigator.locks, "request", function (this: LockManager, ...args: unknown[]): Promise<unknown> {
    const asked: Promise<unknown> = Reflect.apply(request, this, args);
    fire("pagehide"); // the lock is asked for, and not had yet
    return asked;
  });
  fire("pageshow", { persisted: true });
  await telemetry.status();
  await navigator.locks.query();
  assert.equal(await held(origin.name), false);
});

test("what another page arms again before a refusal is written does not leave with it", async () => {
  clock = NOON;
  let left = 0;
  const never: typeof fetch = () => new Promise(() => void left++);
  const route = { url: server.endpoint, key: KEY, simple: true, fetch: never };
  const draw: Settings["draw"] = (what, n) => (what == "moment" ? BigInt(n) - 1n : systemDraw()(what, n));
  const origin = new Origin();
  const storage = new BrowserStorage(origin.name);
  const change = storage.change.bind(storage);
  const other = origin.page({ consent: true, storage });
  await other.status();
  await other.close(); // it still takes choices
  const fire = inWindow();
  const leader = origin.page({ consent: true, draw, route });
  leader.record("a0", true);
  await waitUntil(async () => (await origin.kept())?.uploads.length == 1);
  let [writes, armings] = [() => {}, 0];
  const gate = new Promise<void>((open) => (writes = open));
  storage.change = async (step, how) => (await gate, change(step, how));
  const { arm } = Device.prototype;
  Device.prototype.arm = function (...args) {
    armings++;
    return Reflect.apply(arm, this, args);
  };
  const chosen = other.setConsent(false, "a0");
  await waitUntil(() => armings > 0);
  await leader.status();
  writes();
  await chosen;
  await leader.status();
  Device.prototype.arm = arm;
  await new Promise((told) => setTimeout(told)); // a message between pages is a task
  fire("pagehide");
  assert.equal(left, 0);
});

test("what is armed while the person takes it back does not leave with the page", async () => {
  clock = NOON;
  server.requests.length = 0;
  const fire = inWindow();
  const takers: ((telemetry: Telemetry) => Promise<unknown>)[] = [
    (telemetry) => telemetry.forget(),
    (telemetry) => telemetry.setConsent(false, "a0"),
  ];
  for (const take of takers) {
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
    fire("pagehide");
    assert.deepEqual((await origin.kept())!.uploads, []);
    await origin.end();
  }
  assert.equal(server.requests.length, 0);
});
