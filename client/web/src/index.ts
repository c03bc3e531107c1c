/** The entrance: `start()`, and the types of what it returns. Importing it does nothing. */

import { type CompiledRegistry, isWhole, registryIn, withoutWaiting } from "./registry.ts";
import { load } from "./report.ts";
import type { Route } from "./sending.ts";
import { BrowserStorage, MemoryStorage, type Storage } from "./storage.ts";
import { type Answers, type Handles, systemDraw, Telemetry } from "./telemetry.ts";

export type { Silence } from "./device.ts";
export type { CompiledRegistry } from "./registry.ts";
export type { FlushResult } from "./sending.ts";
export type { MetricStatus, Status } from "./status.ts";
export type { Answers, Handle, Handles, Preview, Sentence, Telemetry } from "./telemetry.ts";

/** The name of a storage that ends with the program. */
const MEMORY = ":memory:";

/** The arguments of `start()`. */
export interface Options {
  /** The compiled registry: the parsed `metrics.json`. */
  registry: unknown;
  /** The aggregator's https address; http only on loopback. */
  endpoint: string;
  /** The key that it takes reports with. */
  key: string;
  /** The person's answer if the app asked for it; it counts until `setConsent` is called. */
  consent?: boolean | undefined;
  /** The name of the storage, by default the app's; ":memory:" keeps nothing and has no quiet days. */
  storage?: string;
  /** The device's value of the registry's public column, { arm: "b" }. It must not come from an answer. */
  public?: Readonly<Record<string, string>>;
  /** For a developer's machine: no quiet days, no drawn periods, a storage of its own, the endpoint on loopback. */
  development?: boolean;
  /** Whether to ask the browser to keep the storage also when room is short. */
  persist?: boolean;
  /** In a worker: what `forbidden()` says on the page that began it. Without that a worker is silent. */
  forbidden?: string;
}

/**
 * Return the app's telemetry, and begin. Nothing is kept or sent before the person has agreed.
 *
 * Throws a TypeError for a `registry` that is none and a `consent` that is no choice. After that nothing throws into
 * the page, and `status()` says why it is silent: also where the registry was damaged or changed by hand.
 */
export function start<M extends Answers = Record<string, unknown>>(options: Options): Telemetry<M> & Handles<M> {
  const { consent, development = false, persist = false } = options;
  if (consent !== undefined && consent !== true && consent !== false) {
    throw new TypeError("consent must be true, false or undefined (not asked)");
  }
  const registry = registryIn(options.registry);
  const warn = (message: string) => console.warn(`dither: ${message}`);
  const inMemory = options.storage == MEMORY || (!globalThis.indexedDB && isNode);
  const name = `dither:${options.storage ?? registry.app}${development ? ":development" : ""}`;
  const route: Route = { url: "", key: options.key, simple: !isNode, fetch: globalThis.fetch };
  let [silent, place] = [forbiddenHere(inMemory, options.forbidden), 0];
  try {
    place = placeOf(options.public, registry);
    route.url = addressOf(options.endpoint, options.key, development);
  } catch (error) {
    silent ||= (error as Error).message;
    warn(`telemetry is off: ${silent}`);
  }
  if (development) warn("telemetry is in development: nothing reaches an aggregator beyond this machine");
  const storage: Storage = inMemory ? new MemoryStorage() : new BrowserStorage(name);
  return new Telemetry<M>({
    registry: development ? withoutWaiting(registry) : registry,
    whole: isWhole(registry),
    route,
    storage,
    load,
    shared: inMemory ? undefined : name,
    consent,
    silent,
    place,
    development,
    persist,
    now: Date.now,
    draw: systemDraw(),
    warn,
  }) as Telemetry<M> & Handles<M>;
}

const environment = (globalThis as { process?: { env?: Record<string, string>; versions?: { node?: string } } })
  .process;
const isNode = !!environment?.versions?.node;

/**
 * Return why nothing may be recorded, kept or sent on this page, whatever the person chose; "" if nothing forbids it.
 *
 * A page hands it to its workers, for their `start()`: they see neither Do Not Track nor the frame that a page is in.
 */
export function forbidden(): string {
  return forbiddenHere(false, "");
}

function forbiddenHere(inMemory: boolean, onPage: string | undefined): string {
  const { navigator, indexedDB, isSecureContext } = globalThis;
  const { doNotTrack, globalPrivacyControl } = (navigator ?? {}) as {
    doNotTrack?: string;
    globalPrivacyControl?: boolean;
  };
  if (globalPrivacyControl) return "Global Privacy Control is set";
  if (doNotTrack == "1" || doNotTrack == "yes") return "Do Not Track is set";
  if (inFrameOfAnotherSite()) return "the page is in a frame of another site";
  if (isNode) return forbiddenByEnvironment(environment?.env ?? {});
  if (onPage) return onPage;
  if (onPage === undefined && !isPage()) return "a worker is not told what forbids telemetry: start({ forbidden })";
  if (isSecureContext === false) return "the page is not secure: it must come by https, or from this machine";
  if (inMemory) return "";
  if (!indexedDB || !navigator?.locks || !globalThis.BroadcastChannel) return "this browser keeps nothing for the page";
  return "";
}

/** As in Python: `DO_NOT_TRACK`, `DITHER_TELEMETRY`, and CI, which is no person's device. */
function forbiddenByEnvironment(variables: Record<string, string>): string {
  const word = (name: string) => (variables[name] ?? "").trim().toLowerCase();
  const isSet = (name: string) => !/^(|0|false|no|off)$/.test(word(name));
  if (isSet("DO_NOT_TRACK")) return "DO_NOT_TRACK is set";
  const telemetry = word("DITHER_TELEMETRY");
  if (/^(1|true|yes|on)$/.test(telemetry)) return "";
  if (telemetry) return "DITHER_TELEMETRY refuses";
  return isSet("CI") ? "CI is set: this is no person's device (DITHER_TELEMETRY=1 overrules it)" : "";
}

function isPage(): boolean {
  return typeof document != "undefined";
}

function inFrameOfAnotherSite(): boolean {
  try {
    return globalThis.top?.location.href === undefined && isPage();
  } catch {
    return true;
  }
}

/** Return the address that uploads go to; throw for one, or a key, that cannot work. */
function addressOf(endpoint: string, key: string, development: boolean): string {
  const { protocol, hostname, username, search, hash, href } = parsed(endpoint);
  const here = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
  if (protocol != "https:" && !(protocol == "http:" && here)) {
    throw new TypeError("endpoint must be https beyond this machine");
  }
  if (username || search || hash) throw new TypeError("endpoint must be scheme, host, port and perhaps a path");
  if (development && !here)
    throw new TypeError("endpoint must be on this machine in development, like http://127.0.0.1:8080");
  if (!/^[!#-[\]-~]{1,200}$/.test(key))
    throw new TypeError("key must be the one that the aggregator printed: ASCII, without spaces");
  return `${href.replace(/\/+$/, "")}/v1/reports`;
}

function parsed(endpoint: string): URL {
  try {
    return new URL(endpoint);
  } catch {
    throw new TypeError("endpoint must be an address like https://telemetry.example.org");
  }
}

/** Return the place of the device's public value. */
function placeOf(value: Options["public"], { public: column }: CompiledRegistry): number {
  if (!column) {
    if (value) throw new TypeError("the registry has no public column: leave public out");
    return 0;
  }
  const place = column.values.indexOf(`${value?.[column.name]}`.normalize());
  if (place < 0) throw new TypeError(`public must have ${column.name}: one of ${column.values.join(", ")}`);
  return place;
}
