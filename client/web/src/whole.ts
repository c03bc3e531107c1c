/** The checks of what an app has set: its compiled registry is whole (shared/compiled.md), its route can work. */

import type { CompiledRegistry } from "./registry.ts";
import { late } from "./telemetry.ts";

/**
 * Return a document as canonical JSON (shared/wire.md): sorted keys, no spaces, ASCII. Its numbers are integers, and
 * its keys ASCII names.
 */
export function canonical(document: unknown): string {
  const sorted = (_key: string, value: unknown) =>
    value && typeof value == "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  return JSON.stringify(document, sorted).replace(
    /[\x7f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/**
 * Tell whether a document is what its digest says: not damaged, and not changed by hand; and its alphabets what its
 * plans name, by which each text has a code. Where what reads those cannot be loaded, reject by that.
 */
export async function isWhole(registry: CompiledRegistry): Promise<boolean> {
  const { digest, ...rest } = registry;
  if (digest != (await digestOf(rest))) return false;
  for (const { plan, alphabet } of registry.metrics) {
    const named = plan.domain["alphabet"];
    if (!named) continue;
    if (!alphabet || named != (await digestOf(alphabet))) return false;
    const { isCode } = await late(import("./domains/coded.ts"));
    if (!isCode(alphabet)) return false;
  }
  return true;
}

async function digestOf(document: unknown): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical(document)));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the place of the device's public value; throw for one that the registry does not have. */
export function placeOf(
  value: Readonly<Record<string, string>> | undefined,
  { public: column }: CompiledRegistry,
): number {
  if (!column) {
    if (value) throw new TypeError("the registry has no public column: leave public out");
    return 0;
  }
  const place = column.values.indexOf(`${value?.[column.name]}`.normalize());
  if (place < 0) throw new TypeError(`public must have ${column.name}: one of ${column.values.join(", ")}`);
  return place;
}

/** The way to one aggregator. */
export interface Route {
  endpoint: string;
  key: string;
  development: boolean;
  /** Whether the key goes in the body: a page asks no leave for such a request. Else it goes in a header. */
  simple: boolean;
  fetch: typeof fetch;
}

/** Return the address that uploads go to; throw for an endpoint, or a key, that cannot work. */
export function addressOf({ endpoint, key, development }: Route): string {
  let url: URL | undefined;
  try {
    url = new URL(endpoint);
  } catch {}
  const here = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url?.hostname ?? "");
  const safe = url?.protocol == "https:" || (url?.protocol == "http:" && here);
  if (!url || !safe || url.username || url.search || url.hash) {
    throw new TypeError("endpoint must be like https://telemetry.example.org; http is for this machine alone");
  }
  if (development && !here) throw new TypeError("endpoint must be on this machine in development");
  if (!/^[!#-[\]-~]{1,200}$/.test(key)) throw new TypeError("key must be the one that the aggregator printed");
  return `${url.href.replace(/\/+$/, "")}/v1/reports`;
}
