/** Telemetry as a page has it: IndexedDB beneath, other pages beside it, a server on loopback. */

import "fake-indexeddb/auto";
import assert from "node:assert/strict";
import { after, afterEach, beforeEach, test } from "node:test";
import { DAY_MS } from "../src/days.ts";
import type { State } from "../src/device.ts";
import { start } from "../src/index.ts";
import { type Alphabet, canonical, type CompiledMetric, type CompiledRegistry, type Script } from "../src/registry.ts";
import { load } from "../src/report.ts";
import { sha256, utf8 } from "../src/sha256.ts";
import { BrowserStorage, MemoryStorage } from "../src/storage.ts";
import { type Settings, systemDraw, Telemetry } from "../src/telemetry.ts";
import { startForTests } from "../src/testing.ts";
import { problem, ScriptedServer } from "./server.ts";
import { DAY, hex, isoDay, KEY, NOON, registryOf, waitUntil } from "./support.ts";

process.env.DITHER_TELEMETRY = "1";
const PLAIN = registryOf([{ name: "dark" }, { name: "other" }]);
const HIDDEN = registryOf([{ name: "ill", presence: "hidden" }]);
const server = await ScriptedServer.listen();
after(() => server.close());

let clock = NOON;
let opened: Telemetry[] = [];
let warnings: string[] = [];
let storages = 0;
let name = "";

beforeEach(() => {
  [clock, opened, warnings, name] = [NOON, [], [], `dither:test-${storages++}`];
  server.requests.length = server.script.length = 0;
});
afterEach(async () => {
  for (const telemetry of opened) await telemetry.close();
  for (const one of ["document", "addEventListener", "removeEventListener"]) Reflect.deleteProperty(globalThis, one);
});

/** Return the telemetry of a page. Pages of one test share a storage. */
function page(more: Partial<Settings> & { registry?: CompiledRegistry } = {}): Telemetry {
  const telemetry = new Telemetry({
    registry: PLAIN,
    route: { url: `${server.endpoint}/v1/reports`, key: KEY, simple: true, fetch },
    storage: new BrowserStorage(name),
    load,
    shared: name,
    consent: true,
    silent: "",
    place: 0,
    development: false,
    persist: false,
    now: () => clock,
    draw: systemDraw(),
    warn: (message) => warnings.push(message),
    ...more,
  });
  opened.push(telemetry);
  return telemetry;
}

const kept = () => new BrowserStorage(name).peek((state): State => state);
const databases = async () =>
  (await indexedDB.databases()).map((database) => database.name).filter((one) => one == name);

// From an answer to a receipt.

test("an answer leaves as a simple request, and its receipt ends it", async () => {
  const telemetry = page();
  telemetry.record("dark", true);
  assert.deepEqual(await telemetry.flush(), { sent: 1, waiting: 0, detail: "" });
  const [request] = server.requests;
  assert.equal(request!.headers["content-type"], "text/plain");
  assert.equal(request!.headers.authorization, undefined);
  assert.equal(request!.headers.cookie, undefined);
  assert.ok(
    request!.text.startsWith(`{"v":1,"key":"${KEY}","upload":"${request!.upload}","groups":[{"metric":"dark","plan":"`),
  );
  assert.equal(request!.text.length, 512);
  const status = await telemetry.status();
  assert.deepEqual(
    [status.silent, status.spent, status.counts, status.metrics.dark!.silent],
    ["", { dark: 1 }, { accepted: 1 }, "answered"],
  );
});

test("an answer leaves by itself at its moment", async () => {
  const telemetry = page({ draw: (what, n) => (what == "moment" ? 0n : systemDraw()(what, n)) });
  telemetry.record("dark", true);
  await waitUntil(() => server.requests.length > 0);
});

test("answers that came together leave together", async () => {
  const telemetry = page();
  telemetry.record("dark", true);
  telemetry.record("other", true);
  await telemetry.flush();
  assert.deepEqual(
    server.requests[0]!.groups.map(({ metric }) => metric),
    ["dark", "other"],
  );
});

test("nothing leaves before its moment", async () => {
  const telemetry = page({ draw: (what, n) => (what == "moment" ? BigInt(n) - 1n : systemDraw()(what, n)) });
  telemetry.record("dark", true);
  await waitUntil(async () => (await telemetry.status()).waiting == 1 && ((await kept())?.uploads.length ?? 0) == 1);
  assert.equal(server.requests.length, 0);
  const { next } = (await telemetry.status()).sending;
  assert.equal(next!.getTime(), NOON + 119_999);
});

test("a page in which nothing waits has no timer, but for hidden metrics", async (t) => {
  const timers = t.mock.method(globalThis, "setTimeout");
  const minutes = () => timers.mock.calls.filter((call) => call.arguments[1] == 60_000).length;
  const storage = new BrowserStorage(`${name}-hidden`);
  const plain = page();
  await plain.status();
  await plain.flush();
  assert.equal(minutes(), 0);
  await page({ registry: HIDDEN, storage, shared: `${name}-hidden` }).flush();
  await waitUntil(() => minutes() > 0);
});

test("a lost receipt is asked for by the same bytes", async () => {
  server.script.push("lost");
  const telemetry = page();
  telemetry.record("dark", true);
  const first = await telemetry.flush();
  assert.deepEqual([first.sent, first.waiting], [0, 1]);
  assert.equal(first.detail, "no answer (not reached, or it does not allow this page's origin)");
  clock += 7 * 3_600_000;
  assert.equal((await telemetry.flush()).sent, 1);
  assert.equal(server.requests[0]!.text, server.requests[1]!.text);
});

test("it is charged, by a strict transaction that is complete, before the first byte leaves", async (t) => {
  const durabilities: unknown[] = [];
  const { transaction } = IDBDatabase.prototype;
  t.mock.method(
    IDBDatabase.prototype,
    "transaction",
    function (this: IDBDatabase, ...args: Parameters<typeof transaction>): IDBTransaction {
      durabilities.push(args[2]?.durability);
      return Reflect.apply(transaction, this, args);
    },
  );
  const seen: unknown[] = [];
  const looks: typeof fetch = async (...args) => {
    const strict = durabilities.lastIndexOf("strict");
    const state = await kept();
    seen.push(state!.metrics.dark!.spent, state!.uploads.length, strict >= 0);
    return fetch(...args);
  };
  const telemetry = page({ route: { url: `${server.endpoint}/v1/reports`, key: KEY, simple: true, fetch: looks } });
  telemetry.record("dark", true);
  await telemetry.flush();
  assert.deepEqual(seen, [1_000_000, 1, true]);
});

// The host.

test("record never throws, whatever an answer is, and whatever the storage does", async () => {
  const hostile = {
    get size(): never {
      throw new Error("mine");
    },
  };
  const broken = new MemoryStorage();
  broken.peek = broken.change = (): Promise<never> => Promise.reject(new Error("the disk"));
  for (const telemetry of [page(), page({ storage: broken, shared: undefined })]) {
    for (const answer of [undefined, null, NaN, 1n, Symbol("s"), hostile, () => 1, [[[]]], new Proxy({}, {})])
      telemetry.record("dark", answer);
    telemetry.record("nothing of that name", true);
    await telemetry.status();
  }
  assert.deepEqual(warnings, [
    "the registry has no metric nothing of that name",
    "the registry has no metric nothing of that name",
  ]);
});

test("an answer is what it was when it was recorded", async () => {
  const telemetry = startForTests(PLAIN);
  const answer = ["a"];
  telemetry.record("dark", answer);
  answer.push("b");
  assert.deepEqual(await telemetry.recorded(), [{ metric: "dark", answer: ["a"], silent: "" }]);
});

test("answers beyond a thousand that wait for the storage are lost and counted", async () => {
  const telemetry = page();
  for (let n = 0; n < 1_100; n++) telemetry.record("dark", true);
  assert.equal((await telemetry.status()).counts.failed, 100);
});

test("what is recorded before close is kept, what comes after is not", async () => {
  const telemetry = page();
  telemetry.record("dark", true);
  const closing = telemetry.close();
  telemetry.record("other", true);
  await closing;
  assert.deepEqual(
    Object.entries((await kept())!.metrics).map(([metric, row]) => [metric, row.used.length]),
    [
      ["dark", 1],
      ["other", 0],
    ],
  );
  assert.equal((await telemetry.status()).silent, "closed");
});

test("a preview shows what is sent next, and charges nothing", async (t) => {
  const taken = new Promise<void>((end) => t.after(() => end()));
  await new Promise<void>((held) => void navigator.locks.request(name, () => (held(), taken))); // another page sends
  const telemetry = page();
  telemetry.record("dark", true);
  const { body, cost } = await telemetry.preview();
  assert.deepEqual([JSON.parse(body).groups[0].metric, cost], ["dark", { dark: 1 }]);
  assert.equal((await kept())!.metrics.dark!.spent, 0);
});

// Consent.

test("nothing is stored before the choice", async () => {
  const telemetry = page({ consent: undefined });
  telemetry.record("dark", true);
  const status = await telemetry.status();
  assert.deepEqual([status.ask, status.metrics.dark!.silent], [true, "not-agreed"]);
  assert.match(status.silent, /not asked/);
  assert.deepEqual(await telemetry.flush(), { sent: 0, waiting: 0, detail: status.silent });
  assert.deepEqual(await databases(), []);
});

test("a refusal is stored, and nothing else", async () => {
  const telemetry = page({ consent: undefined });
  assert.equal(await telemetry.setConsent(false), true);
  telemetry.record("dark", true);
  assert.equal((await telemetry.status()).silent, "the person refused");
  assert.deepEqual(await kept(), { v: 1, metrics: {}, uploads: [], counts: {}, consent: false, choices: 1 });
  assert.equal(
    (await page({ consent: true }).status()).silent,
    "the person refused",
    "it goes before what the app says",
  );
});

test("an agreement is kept, and reaches a page that is silent", async () => {
  const telemetry = page({ consent: undefined });
  const other = page({ consent: undefined });
  await other.status();
  assert.equal(await telemetry.setConsent(true), true);
  telemetry.record("dark", true);
  assert.equal((await telemetry.flush()).sent, 1);
  assert.equal((await other.status()).silent, "");
  assert.equal((await page({ consent: undefined }).status()).ask, false);
});

test("an agreement that is kept goes before what the app says", async () => {
  await page({ consent: undefined }).setConsent(true);
  const telemetry = page({ consent: false });
  telemetry.record("dark", true);
  assert.equal((await telemetry.status()).waiting, 1);
});

test("a refusal takes back what waits, in every page", async () => {
  const leader = page();
  leader.record("dark", true);
  await waitUntil(async () => (await kept())?.uploads.length == 1);
  await page().setConsent(false);
  await leader.flush();
  assert.deepEqual([server.requests.length, (await kept())!.uploads.length], [0, 0]);
  assert.equal((await leader.status()).silent, "the person refused");
});

test("a consent of false drops what waits", async () => {
  const first = page();
  first.record("dark", true);
  await first.close();
  await page({ consent: false }).status();
  assert.equal((await kept())!.metrics.dark!.slot, undefined);
});

test("a person who clears the site's data has a new device, which asks anew", async () => {
  const telemetry = page({ consent: undefined });
  await telemetry.setConsent(true);
  await new Promise((resolve) => (indexedDB.deleteDatabase(name).onsuccess = resolve));
  telemetry.record("dark", true);
  assert.equal((await telemetry.status()).ask, true);
  assert.deepEqual(await databases(), []);
});

test("only true and false are choices", async () => {
  const telemetry = page({ consent: undefined });
  assert.equal(await telemetry.setConsent("yes" as never), false);
  assert.equal(await telemetry.setConsent(true, "nothing of that name"), false);
  assert.throws(() => start({ registry: PLAIN, endpoint: server.endpoint, key: KEY, consent: 1 as never }), TypeError);
});

test("the terms are sentences, with their facts in place", () => {
  assert.equal(page().terms()[0]!.text, "At most 3 in {all}.");
});

test("to forget erases what the device knows, and the storage keeps what was spent", async () => {
  const telemetry = page();
  telemetry.record("dark", true);
  await telemetry.flush();
  await telemetry.forget();
  const state = (await kept())!;
  assert.deepEqual(
    [state.metrics.dark!.spent, state.uploads, (await telemetry.status()).metrics.other!.silent],
    [1_000_000, [], "forgotten"],
  );
});

// Hidden presence.

test("a start opens the period before any answer, and an answer causes no request and no moment", async () => {
  const states = [];
  for (const answers of [false, true]) {
    name = `dither:test-${storages++}`;
    const telemetry = page({ registry: HIDDEN, storage: new BrowserStorage(name), shared: name });
    if (answers) telemetry.record("ill", true);
    if (answers) telemetry.record("ill", true); // a dropped one is counted nowhere
    const { metrics, counts } = await telemetry.status();
    assert.deepEqual([metrics.ill!.silent, counts], [answers ? "answered" : "", {}]);
    assert.deepEqual(await telemetry.flush(), { sent: 0, waiting: 1, detail: "" });
    clock += DAY_MS;
    assert.equal((await telemetry.flush()).sent, 1);
    await telemetry.close();
    clock = NOON;
    const state = (await kept())!;
    states.push({
      ...state,
      secret: "",
      cohort: 0,
      metrics: { ill: { ...state.metrics.ill, slot: { ...state.metrics.ill!.slot, report: 0 } } },
    });
  }
  assert.equal(server.requests.length, 2);
  assert.deepEqual(states[0], states[1]);
});

// Pages beside each other.

test("one page sends for all, and when it ends the next one does", async () => {
  const [leader, second] = [page(), page()];
  await leader.status();
  second.record("dark", true);
  assert.equal((await second.flush()).waiting, 0, "the page that sends was told");
  assert.equal((await leader.status()).counts.accepted, 1);
  await leader.close();
  second.record("other", true);
  await waitUntil(async () => (await second.flush()).sent == 1);
  assert.equal(server.requests.length, 2);
});

test("pages that record at once take one answer of a period between them", async () => {
  const pages = [page(), page(), page(), page()];
  for (const telemetry of pages) telemetry.record("dark", true);
  const counts = await Promise.all(pages.map(async (telemetry) => (await telemetry.status()).counts.answered ?? 0));
  assert.equal(
    counts.reduce((sum, count) => sum + count),
    3,
  );
  assert.equal((await kept())!.metrics.dark!.used.length, 1);
});

test("an upload that a page may have sent as it went away is sent again as it was", async () => {
  const first = page({ draw: (what, n) => (what == "moment" ? BigInt(n) - 1n : systemDraw()(what, n)) });
  first.record("dark", true);
  await waitUntil(async () => (await kept())?.uploads.length == 1);
  const [armed] = (await kept())!.uploads;
  await first.close();
  const second = page();
  second.record("other", true);
  await second.flush();
  assert.deepEqual(
    server.requests.map(({ upload, groups }) => [upload == armed!.id, groups.length]),
    [
      [true, 1],
      [false, 1],
    ],
  );
});

// A page that goes away.

/** Let the rest of a test run as in a window, whose events it can cause. */
function inWindow(): { fire: (type: string, more?: object) => void; hide: () => void } {
  const [target, document] = [new EventTarget(), Object.assign(new EventTarget(), { visibilityState: "visible" })];
  const { addEventListener, removeEventListener } = target;
  Object.assign(globalThis, {
    document,
    addEventListener: addEventListener.bind(target),
    removeEventListener: removeEventListener.bind(target),
  });
  return {
    fire: (type, more = {}) => void target.dispatchEvent(Object.assign(new Event(type), more)),
    hide: () => {
      document.visibilityState = "hidden";
      document.dispatchEvent(new Event("visibilitychange"));
    },
  };
}

const LATE: Settings["draw"] = (what, n) => (what == "moment" ? BigInt(n) - 1n : systemDraw()(what, n));

test("a page that goes away sends what was armed, outliving it, and later the same bytes", async () => {
  const window = inWindow();
  const requests: RequestInit[] = [];
  const noted: typeof fetch = (url, init) => (requests.push(init!), fetch(url, init));
  const telemetry = page({
    draw: LATE,
    route: { url: `${server.endpoint}/v1/reports`, key: KEY, simple: true, fetch: noted },
  });
  telemetry.record("dark", true);
  window.fire("pagehide");
  assert.equal(requests.length, 0, "what is not on the disk yet does not leave");
  window.fire("pageshow", { persisted: true });
  await telemetry.status();
  window.hide();
  await waitUntil(async () => (await kept())?.uploads.length == 1 && (await telemetry.status()).waiting == 1);
  await waitUntil(() => {
    window.fire("pagehide"); // in the middle of a step of the storage nothing leaves
    window.fire("pageshow", { persisted: true });
    return server.requests.length > 0;
  });
  assert.deepEqual([requests[0]!.keepalive, requests[0]!.credentials, requests[0]!.redirect], [true, "omit", "error"]);
  assert.equal((await telemetry.flush()).sent, 1);
  assert.ok(server.requests.length > 1 && server.requests.every(({ text }) => text == server.requests[0]!.text));
});

test("a page that goes away sends nothing for a hidden answer, and nothing that failed before its time", async () => {
  const window = inWindow();
  const hidden = page({ registry: HIDDEN });
  hidden.record("ill", true);
  await hidden.status();
  window.fire("pagehide");
  await hidden.close();
  name = `dither:test-${storages++}`;
  server.script.push({ status: 503, body: problem("unavailable"), headers: { "Retry-After": "30" } });
  const failed = page({ storage: new BrowserStorage(name), shared: name });
  failed.record("dark", true);
  assert.equal((await failed.flush()).detail, "503 unavailable");
  await failed.status();
  window.fire("pagehide");
  await failed.close();
  assert.equal(server.requests.length, 1);
});

test("a flush says that what waits leaves on another day", async () => {
  const telemetry = page({ draw: LATE });
  telemetry.record("dark", true);
  await telemetry.status();
  clock += DAY_MS;
  assert.equal((await telemetry.flush()).sent, 1); // of the day before
  telemetry.record("dark", true);
  const { sent, waiting, detail } = await telemetry.flush();
  assert.deepEqual([sent, waiting], [0, 1]);
  assert.match(detail, /has left today: the next one waits for another day/);
  await telemetry.close();
});

test("a flush with nothing to send says why, of a hidden metric the same whatever was answered", async () => {
  const hidden = { name: "ill", presence: "hidden" as const };
  const telemetry = page({ registry: registryOf([{ name: "dark" }, { name: "other", charges: 1, period: 7 }, hidden]) });
  telemetry.record("other", true);
  assert.equal((await telemetry.flush()).sent, 1);
  await telemetry.setConsent(false, "dark");
  const other = `other: answered until ${isoDay(DAY + 7)}`;
  for (const answered of [false, true]) {
    if (answered) telemetry.record("ill", true);
    await telemetry.status();
    await new BrowserStorage(name).change((state) => void delete state.metrics["ill"]!.slot); // else it is what waits
    assert.deepEqual(await telemetry.flush(), {
      sent: 0,
      waiting: 0,
      detail: `nothing to send: dark: refused; ${other}; ill: hidden`,
    });
  }
  await telemetry.setConsent(true, "dark");
  assert.match((await telemetry.flush()).detail, /dark: nothing was recorded; other/);
  await telemetry.setConsent(false);
  assert.equal((await telemetry.flush()).detail, "the person refused");
});

test("a metric that this version does not know is named once, and the others go on", async () => {
  const [known, other] = PLAIN.metrics as [CompiledMetric, CompiledMetric];
  const unknown = { ...other, plan: { ...other.plan, kind: "smell" } };
  const telemetry = page({ registry: { ...PLAIN, metrics: [known, unknown] } });
  telemetry.record("dark", true);
  telemetry.record("other", true);
  assert.equal((await telemetry.flush()).sent, 1);
  assert.deepEqual(warnings, ["a metric cannot be recorded: other: unknown kind smell"]);
  assert.equal((await telemetry.status()).counts["unloaded"], 1);
});

/** A storage whose strict changes wait, before they begin or before they are known to be kept. */
class Gated extends BrowserStorage {
  wait: ((when: "before" | "after") => Promise<void> | undefined) | undefined;

  override async change<T>(change: (state: State) => T, how?: { strict?: boolean }): Promise<T> {
    const wait = how?.strict ? this.wait : undefined;
    await wait?.("before");
    const changed = await super.change(change, how);
    await wait?.("after");
    return changed;
  }
}

/** Let a page arm one report, record another, and go away while that is armed, too; return what left with it. */
async function leavesWhileArming(when: "before" | "after"): Promise<string[]> {
  const window = inWindow();
  const bodies: string[] = [];
  const noted: typeof fetch = (url, init) => (bodies.push(String(init!.body)), fetch(url, init));
  const route = { url: `${server.endpoint}/v1/reports`, key: KEY, simple: true, fetch: noted };
  const storage = new Gated(name);
  const telemetry = page({ draw: LATE, storage, route });
  telemetry.record("dark", true);
  await waitUntil(async () => (await kept())?.uploads.length == 1 && (await telemetry.status()).waiting == 1);
  telemetry.record("other", true); // which is to be armed, too
  await telemetry.status();
  let [waits, open] = [0, () => {}];
  const opens = new Promise<void>((resolve) => (open = resolve));
  storage.wait = (now) => (now == when ? (waits++, opens) : undefined);
  window.hide();
  await waitUntil(() => waits > 0);
  window.fire("pagehide");
  open();
  await telemetry.close();
  const { uploads } = (await kept())!;
  for (const { upload, groups } of bodies.map((body) => JSON.parse(body))) {
    assert.deepEqual(groups, uploads.find(({ id }) => id == upload)?.groups, "it is as it left");
  }
  return bodies;
}

test("a page that goes away before more is armed sends what was armed, which stays as it left", async () => {
  assert.equal((await leavesWhileArming("before")).length, 1);
});

test("a page that goes away sends nothing while what is armed becomes another upload", async () => {
  assert.equal((await leavesWhileArming("after")).length, 0);
});

test("a page that looks at what is armed, and finds nothing more, sends it as it goes away", async () => {
  const window = inWindow();
  const storage = new Gated(name);
  const telemetry = page({ draw: LATE, storage });
  telemetry.record("dark", true);
  await waitUntil(async () => (await kept())?.uploads.length == 1);
  let [waits, open] = [0, () => {}];
  const opens = new Promise<void>((resolve) => (open = resolve));
  storage.wait = (when) => (when == "after" ? (waits++, opens) : undefined); // of what begins from now on
  const another = new BroadcastChannel(name);
  another.postMessage(0); // something may wait: the page looks again
  await waitUntil(() => waits > 0);
  window.fire("pagehide");
  await waitUntil(() => server.requests.length == 1);
  open();
  another.close();
  await telemetry.close();
});

/** Let something happen while an attempt begins; return how many requests left. */
async function leavesWhileAttempting(happens: (telemetry: Telemetry) => unknown): Promise<number> {
  const storage = new Gated(name);
  let [waits, open] = [0, () => {}];
  const opens = new Promise<void>((resolve) => (open = resolve));
  storage.wait = async (when) => {
    if (when == "after" && (await kept())?.uploads[0]?.attempts && !waits++) await opens;
  };
  const telemetry = page({ storage, draw: LATE });
  telemetry.record("dark", true);
  const flushed = telemetry.flush();
  await waitUntil(() => waits > 0);
  const happened = happens(telemetry);
  open();
  await Promise.all([flushed, happened]);
  await telemetry.close();
  return server.requests.length;
}

test("a page that goes away while its attempt begins sends the upload once", async () => {
  const window = inWindow();
  const left = await leavesWhileAttempting(async () => {
    window.fire("pagehide");
    await waitUntil(() => server.requests.length > 0);
  });
  assert.equal(left, 1);
});

test("an upload that the person takes back while its attempt begins does not leave", async () => {
  assert.equal(await leavesWhileAttempting((telemetry) => telemetry.setConsent(false, "dark")), 0);
});

test("a page that goes away sends nothing that the person has just taken back", async () => {
  const window = inWindow();
  const takers: ((telemetry: Telemetry) => unknown)[] = [
    (telemetry) => telemetry.setConsent(false),
    (telemetry) => telemetry.setConsent(false, "dark"),
    (telemetry) => telemetry.forget(),
  ];
  for (const take of takers) {
    name = `dither:test-${storages++}`;
    const telemetry = page({ draw: LATE, storage: new BrowserStorage(name), shared: name });
    telemetry.record("dark", true);
    await waitUntil(async () => (await kept())?.uploads.length == 1);
    await telemetry.status();
    void take(telemetry);
    window.fire("pagehide");
    await telemetry.close();
  }
  assert.equal(server.requests.length, 0);
});

// Answers of a server.

test("a key that is refused stops sending until the next start, and says so", async () => {
  server.script.push({ status: 401, body: problem("key-wrong") });
  const telemetry = page();
  telemetry.record("dark", true);
  assert.deepEqual(await telemetry.flush(), { sent: 0, waiting: 1, detail: "401 key-wrong" });
  await telemetry.flush();
  assert.equal(server.requests.length, 1);
  assert.equal((await telemetry.status()).metrics.dark!.silent, "wrong-key");
  assert.deepEqual(warnings, ["telemetry stopped sending: 401 key-wrong"]);
  await telemetry.close();
  assert.equal((await page().flush()).sent, 1);
});

test("a server that asks to wait is left alone by flushes of all pages", async () => {
  server.script.push({ status: 429, body: problem("too-many"), headers: { "Retry-After": "61" } });
  const telemetry = page();
  telemetry.record("dark", true);
  await telemetry.flush();
  clock += 599_000;
  assert.deepEqual(await telemetry.flush(), { sent: 0, waiting: 1, detail: "429 too-many" });
  clock += 2_000;
  assert.equal((await telemetry.flush()).sent, 1);
});

test("an upload that is too large is halved when first sent, and dropped when it may have been stored", async () => {
  for (const [before, requests, counts] of [
    [[], 3, { accepted: 2 }],
    [["lost"], 2, { dropped: 2 }],
  ] as const) {
    name = `dither:test-${storages++}`;
    server.requests.length = 0;
    server.script.push(...before, { status: 413, body: problem("too-large") });
    const telemetry = page({ storage: new BrowserStorage(name), shared: name });
    telemetry.record("dark", true);
    telemetry.record("other", true);
    if (before.length) await telemetry.flush();
    clock += 3_600_000;
    await telemetry.flush();
    assert.deepEqual([server.requests.length, (await telemetry.status()).counts], [requests, counts]);
  }
});

test("a flush ends in time where a server does not answer", async () => {
  const never: typeof fetch = () => new Promise(() => {});
  const telemetry = page({ route: { url: server.endpoint, key: KEY, simple: true, fetch: never } });
  telemetry.record("dark", true);
  const began = performance.now();
  assert.equal((await telemetry.flush(0.3)).detail, "no answer yet");
  assert.ok(performance.now() - began < 2_000);
});

// The refusals of start(), and where it is silent.

/** Start with other globals than Node's; return why telemetry is silent. */
async function silentWith(
  globals: Record<string, unknown>,
  more: Partial<Parameters<typeof start>[0]> = {},
): Promise<string> {
  const before = Object.entries(globals).map(
    ([key]) => [key, Object.getOwnPropertyDescriptor(globalThis, key)] as const,
  );
  for (const [key, value] of Object.entries(globals))
    Object.defineProperty(globalThis, key, { value, configurable: true, writable: true });
  try {
    const telemetry = start({
      registry: PLAIN,
      endpoint: server.endpoint,
      key: KEY,
      consent: true,
      storage: name,
      ...more,
    });
    opened.push(telemetry);
    const { silent } = await telemetry.status();
    if (silent) assert.equal(await telemetry.setConsent(true), false, "an agreement is not kept then");
    return silent;
  } finally {
    for (const [key, descriptor] of before)
      descriptor ? Object.defineProperty(globalThis, key, descriptor) : Reflect.deleteProperty(globalThis, key);
  }
}

test("Do Not Track and Global Privacy Control go before everything, and nothing is stored", async () => {
  name = `off-${storages}`;
  assert.equal(await silentWith({ navigator: { globalPrivacyControl: true } }), "Global Privacy Control is set");
  assert.equal(await silentWith({ navigator: { doNotTrack: "1" } }), "Do Not Track is set");
  assert.deepEqual(
    (await indexedDB.databases()).filter((one) => one.name == `dither:${name}`),
    [],
  );
  process.env.DO_NOT_TRACK = "1";
  assert.equal(await silentWith({}), "DO_NOT_TRACK is set");
  delete process.env.DO_NOT_TRACK;
  assert.equal(await silentWith({}), "");
});

test("a page in a frame of another site is silent", async () => {
  const top = {
    get location(): never {
      throw new DOMException("Blocked a frame", "SecurityError");
    },
  };
  assert.equal(await silentWith({ top }), "the page is in a frame of another site");
});

test("the browser is asked to keep the storage where the app wants it, after consent", async () => {
  let asked = 0;
  Object.defineProperty(navigator, "storage", { value: { persist: async () => !!++asked }, configurable: true });
  await page().status();
  const telemetry = page({ consent: undefined, persist: true, storage: new BrowserStorage(`${name}-other`) });
  await telemetry.status();
  assert.equal(asked, 0);
  await telemetry.setConsent(true);
  await telemetry.status();
  assert.equal(asked, 1);
  Reflect.deleteProperty(navigator, "storage");
});

test("a storage that the browser refuses makes telemetry silent, and status says so", async () => {
  const refused = {
    open: () => {
      throw new DOMException("The operation is insecure.", "SecurityError");
    },
  };
  assert.match(await silentWith({ indexedDB: refused }), /cannot be used now: The operation is insecure/);
});

test("an address, a key, a public value that cannot work turn telemetry off and do not throw", async (t) => {
  t.mock.method(console, "warn", () => {});
  assert.match(await silentWith({}, { endpoint: "http://telemetry.example.org" }), /https/);
  assert.match(await silentWith({}, { endpoint: "nonsense" }), /endpoint/);
  assert.match(await silentWith({}, { key: 'a"b' }), /key/);
  assert.match(await silentWith({}, { public: { arm: "a" } }), /public/);
  assert.match(await silentWith({}, { endpoint: "https://telemetry.example.org", development: true }), /this machine/);
});

test("development warns, has no quiet days, and a storage of its own", async (t) => {
  const warn = t.mock.method(console, "warn", () => {});
  const registry = registryOf([{ schedule: "spread" }], { quiet: 1, app: `app-${storages++}` });
  const telemetry = start({ registry, endpoint: server.endpoint, key: KEY, consent: true, development: true });
  opened.push(telemetry);
  const status = await telemetry.status();
  assert.deepEqual([status.development, status.metrics.dark!.silent], [true, ""]);
  assert.match(`${warn.mock.calls[0]!.arguments[0]}`, /development/);
  assert.ok((await indexedDB.databases()).some((one) => one.name == `dither:${registry.app}:development`));
});

test("quiet days are for what is kept: in memory there are none", async () => {
  const registry = registryOf([{}], { quiet: 1 });
  assert.equal((await page({ registry }).status()).metrics.dark!.silent, "quiet");
  assert.equal(
    (await page({ registry, storage: new MemoryStorage(), shared: undefined }).status()).metrics.dark!.silent,
    "",
  );
});

test("a document that is no registry is refused, and one that was changed by hand turns telemetry off", async (t) => {
  t.mock.method(console, "warn", () => {});
  assert.throws(() => start({ registry: {}, endpoint: server.endpoint, key: KEY }), /dither metrics compile/);
  const measured = { ...PLAIN, metrics: PLAIN.metrics.map((metric) => ({ ...metric, measures: "returned" })) };
  assert.throws(() => start({ registry: measured, endpoint: server.endpoint, key: KEY }), /dark measures returned/);
  const unusual = registryOf([{ name: "constructor" }]);
  assert.throws(() => start({ registry: unusual, endpoint: server.endpoint, key: KEY }), /named constructor/);
  assert.match(await silentWith({}, { registry: { ...PLAIN, quiet_days: 9 } }), /changed by hand/);
  assert.equal(await silentWith({}, { registry: JSON.parse(JSON.stringify(PLAIN)) }), "");
});

test("an alphabet that is missing, is not the plan's, or codes no text turns telemetry off", async (t) => {
  t.mock.method(console, "warn", () => {});
  const script = { groups: ["ab", "c"], pieces: [], after: "cc", lengths: ["bbbb", "bbbb", "abcc"] };
  const full = { scripts: [script], choice: "aa" };
  const registryWith = (alphabet: Alphabet | undefined, named = alphabet): CompiledRegistry => {
    const { digest, ...rest } = PLAIN;
    const [{ plan, ...more }, ...others] = rest.metrics as [CompiledMetric, ...CompiledMetric[]];
    const domain = { ...plan.domain, alphabet: hex(sha256(utf8(canonical(named)))) };
    const metrics = [{ ...more, plan: { ...plan, domain }, ...(alphabet && { alphabet }) }, ...others];
    return { ...rest, metrics, digest: hex(sha256(utf8(canonical({ ...rest, metrics })))) };
  };
  assert.equal(await silentWith({}, { registry: registryWith(full) }), "");
  for (const row of ["````", "bbbc", "bbb", "aaaa"]) {
    const broken = { ...full, scripts: [{ ...script, lengths: ["bbbb", row, "abcc"] }] };
    assert.match(await silentWith({}, { registry: registryWith(broken) }), /compile metrics.toml again/, row);
  }
  for (const broken of [{ ...full, scripts: [] }, { ...full, choice: "aab" }]) {
    assert.match(await silentWith({}, { registry: registryWith(broken) }), /compile metrics.toml again/);
  }
  // Each would throw with an answer, or give two texts one code, if it were taken.
  const named = { ...script, words: ["abba caca"], after: "ccc", lengths: Array(3).fill("bbbcc") };
  assert.equal(await silentWith({}, { registry: registryWith({ ...full, scripts: [named] }) }), "");
  const changes: Record<string, unknown>[] = [
    ...["", "a", "a abba", "abba  caca", " abba caca", "abba caca cabb", "abba abba", "\u{1d4b3} abba"].map((words) => ({
      words: [words],
    })),
    ...["cc", "cccc", "ccd", "ccC", ["c", "c", "c"], 3].map((after) => ({ after })),
    ...[[["abba"]], [3], [null], null, 3, true, "", {}].map((words) => ({ words })),
    ...[["abc", "d"], ["ab", "a"], ["ab", ""], [["a", "b"], "c"], "ac"].map((groups) => ({ groups })),
    ...[["bbbcc"], [], ["bbbcc", "abcdd", ["b", "b", "b", "c", "c"]], "bbbcc"].map((lengths) => ({ lengths, after: "aaa" })),
  ];
  for (const change of changes) {
    const broken = { ...full, scripts: [{ ...named, ...change } as Script] };
    assert.match(await silentWith({}, { registry: registryWith(broken) }), /compile metrics.toml/, JSON.stringify(change));
  }
  const long = Array.from({ length: 17 }, (_, place) => String.fromCharCode(0x61 + place)).join("");
  for (const [count, refused] of [[14, false], [15, true]] as const) {
    const pieces = Array.from({ length: count }, (_, place) => `p${place}`);
    const row = `${long.slice(0, count + 2)}${long[count + 1]}`; // its longest codes have 16 bits, or 17
    const deep = { groups: ["ab"], pieces, after: "a".repeat(count + 1), lengths: [row, row] };
    const silent = await silentWith({}, { registry: registryWith({ ...full, scripts: [deep] }) });
    assert.equal(silent.includes("compile metrics.toml again"), refused);
  }
  const simple = { groups: ["xy"], pieces: [], after: "a", lengths: ["abb", "abb"] };
  for (const [other, refused] of [[{ ...simple, groups: ["b"] }, false], [{ groups: ["b"], pieces: ["bb"], after: "aa", lengths: ["bbbb", "bbbb"] }, true]] as const) {
    const several = { scripts: [simple, other], choice: "bbbb" };
    const silent = await silentWith({}, { registry: registryWith(several) });
    assert.equal(silent.includes("compile metrics.toml again"), refused);
  }
  const swapped = { ...full, scripts: [{ ...script, groups: ["ba", "c"] }] };
  assert.match(await silentWith({}, { registry: registryWith(swapped, full) }), /compile metrics.toml again/);
  assert.match(await silentWith({}, { registry: registryWith(undefined, full) }), /compile metrics.toml again/);
});

test("a storage of another app, or of a newer version, is left as it is", async () => {
  await page().status();
  await opened.pop()!.close();
  assert.match(
    (await page({ registry: registryOf([{}], { app: "another" }) }).status()).silent,
    /belongs to the app app/,
  );
  await new BrowserStorage(name).change((state) => void ((state as { v: number }).v = 2));
  assert.match((await page().status()).silent, /newer version/);
});

test("handles are there by name, beside the methods", async () => {
  const registry = registryOf([{ name: "dark" }, { name: "status" }], { app: `app-${storages++}` });
  const telemetry = start<{ dark: boolean }>({ registry, endpoint: server.endpoint, key: KEY, consent: true });
  opened.push(telemetry);
  telemetry.dark.record(true);
  assert.equal((await telemetry.status()).waiting, 1);
});

// The test double.

test("the test double shows what was recorded and why it was not taken, and travels", async () => {
  const telemetry = startForTests(registryOf([{ schedule: "spread" }], { quiet: 1 }));
  telemetry.record("dark", true);
  telemetry.record("dark", false);
  await telemetry.travel(1);
  telemetry.record("dark", true);
  assert.deepEqual(
    (await telemetry.recorded()).map(({ silent }) => silent),
    ["", "answered", ""],
  );
  assert.throws(() => telemetry.record("nothing", true), /no metric nothing/);
  assert.deepEqual(await startForTests(PLAIN, { consent: undefined }).recorded(), []);
});
