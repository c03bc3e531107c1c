/** The check that a compiled registry is whole (shared/compiled.md). */

import type { CompiledRegistry } from "./registry.ts";

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
 * plans name, by which each text has a code.
 */
export async function isWhole(registry: CompiledRegistry): Promise<boolean> {
  const { digest, ...rest } = registry;
  let whole = digest == (await digestOf(rest));
  for (const { plan, alphabet } of registry.metrics) {
    const named = plan.domain["alphabet"];
    if (named) whole &&= named == (await digestOf(alphabet)) && (await import("./domains/coded.ts")).isCode(alphabet!);
  }
  return whole;
}

async function digestOf(document: unknown): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(canonical(document)));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
