/** The entrance: `start()`, and the types of what it returns. Importing it does nothing. */

import { registryIn, withoutWaiting } from "./registry.ts";
import { BrowserStorage, MemoryStorage, type Storage } from "./storage.ts";
import { type Answers, type Handles, Telemetry } from "./telemetry.ts";

export type { Silence } from "./device.ts";
export type { CompiledRegistry } from "./registry.ts";
export type { FlushResult, MetricStatus, Status } from "./status.ts";
export type { Answers, Handle, Handles, Preview, Sentence, Telemetry } from "./telemetry.ts";

// The package's file for pages is built without `process`.
declare const process: { env?: Record<string, string>; versions?: { node?: string } } | undefined;
const isNode = typeof process != "undefined" && !!process.versions?.node;

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
    throw new TypeError("consent must be true, false or undefined");
  }
  const registry = registryIn(options.registry);
  const warn = (message: string) => console.warn(`dither: ${message}`);
  const inMemory = options.storage == MEMORY || (!globalThis.indexedDB && isNode);
  const name = `dither:${options.storage ?? registry.app}${development ? ":development" : ""}`;
  const { endpoint, key } = options;
  if (development) warn("telemetry is in development: nothing reaches an aggregator beyond this machine");
  const storage: Storage = inMemory ? new MemoryStorage() : new BrowserStorage(name);
  return new Telemetry<M>({
    registry: development ? withoutWaiting(registry) : registry,
    checks: registry,
    route: { endpoint, key, development, simple: !isNode, fetch: globalThis.fetch },
    storage,
    shared: inMemory ? undefined : name,
    consent,
    silent: forbiddenHere(inMemory, options.forbidden),
    public: options.public,
    development,
    persist,
    now: Date.now,
    warn,
  }) as Telemetry<M> & Handles<M>;
}

/**
 * Return what forbids to record, keep or send on this page, whatever the person chose, in a word; "" if nothing does.
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
  if (globalPrivacyControl) return "gpc";
  if (doNotTrack == "1" || doNotTrack == "yes") return "dnt";
  if (inFrameOfAnotherSite()) return "frame";
  if (typeof process != "undefined" && isNode) return forbiddenByEnvironment(process.env ?? {});
  if (onPage) return onPage;
  if (onPage === undefined && !isPage()) return "worker";
  if (isSecureContext === false) return "insecure";
  const keeps = inMemory || (indexedDB && navigator?.locks && globalThis.BroadcastChannel);
  return keeps ? "" : "no-storage";
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
