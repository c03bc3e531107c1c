/**
 * The changes of terms that ask the person again. A page loads this where its registry's terms are not those that the
 * person agreed to, or where it wants to say what is asked.
 *
 * They are asked again where a term is replaced (another question, kind or set of answers; fresh noise for a memo, or a
 * memo for fresh noise) or widened. Less of anything asks nothing. The rules are those of every device of dither:
 * client/consent.md.
 */

import type { DeviceTerms, Terms } from "./registry.ts";

/** The most that an R(200), in ten-thousandths, rises without being asked for. */
const LINKED_RISE_MAX = 500;
/** The devices among which R(200) says how many could be recognised. */
const DEVICES = 200;
const SENSITIVITIES = ["low", "medium", "high"];

/** The phrase for a registry that newly means what a browser deletes. */
export const EVICTED = "in a browser all of it begins anew when what this site has kept is deleted";

/** Return what a metric's terms ask beyond those that were agreed to, a phrase each. */
export function asksOf(now: Terms, agreed: Terms | undefined): string[] {
  if (!agreed) return [`it is new, and may cost ${shown(now.lifetime)}`];
  const asks: string[] = [];
  const ask = (holds: boolean, phrase: string) => void (holds && asks.push(phrase));
  const rises = (term: "report" | "permanent" | "lifetime", words: string) => {
    const before = agreed[term] || (term == "permanent" ? now[term] : 0);
    ask(now[term] > before, `its epsilon ${words} rises from ${shown(before)} to ${shown(now[term])}`);
  };
  const isMemo = now.permanent > 0;
  const wasMemo = agreed.permanent > 0;
  ask(now.question != agreed.question, `its question becomes "${now.question}"`);
  ask(now.kind != agreed.kind, `its kind changes from ${agreed.kind} to ${now.kind}`);
  ask(now.values != "" && now.values != agreed.values, "its possible answers change");
  ask(wasMemo && !isMemo, "its memoized answers become fresh ones");
  ask(isMemo && !wasMemo, "its fresh answers become memoized ones, whose noise is a lasting mark");
  ask(
    SENSITIVITIES.indexOf(now.sensitivity) > SENSITIVITIES.indexOf(agreed.sensitivity),
    `its sensitivity rises from ${agreed.sensitivity} to ${now.sensitivity}`,
  );
  rises("report", "of a report");
  rises("permanent", "of a permanent answer");
  rises("lifetime", "for life");
  ask(
    isMemo == wasMemo && now.charges > agreed.charges,
    `its number of ${isMemo ? "different answers" : "reports"} rises from ${agreed.charges} to ${now.charges}`,
  );
  ask(now.period_days < agreed.period_days, `its period shortens from ${agreed.period_days}d to ${now.period_days}d`);
  ask(now.expires > agreed.expires, `its expiry is extended from ${agreed.expires} to ${now.expires}`);
  ask(agreed.presence == "hidden" && now.presence != "hidden", "whether it answers is no longer hidden");
  ask(
    now.cells > agreed.cells,
    agreed.cells
      ? `the cohorts that it shows rise from ${agreed.cells} to ${now.cells}`
      : `it shows which of ${now.cells} cohorts the device is in`,
  );
  ask(now.linked > agreed.linked + LINKED_RISE_MAX, links(now.linked, agreed.linked));
  return asks;
}

/** Return what is asked for the whole device beyond what was agreed to, a phrase each. */
export function deviceAsks(now: DeviceTerms, agreed: DeviceTerms): string[] {
  const rise = `the device's epsilon rises from ${shown(agreed.epsilon)} to ${shown(now.epsilon)}`;
  const evicted = now.evicted && !agreed.evicted;
  return [...(now.epsilon > agreed.epsilon ? [rise] : []), ...linkAsks(now, agreed), ...(evicted ? [EVICTED] : [])];
}

/** Return whether more of a person's reports can be joined than was agreed to, in at most one phrase. */
export function linkAsks(now: DeviceTerms, agreed: DeviceTerms): string[] {
  if (now.linked > agreed.linked + LINKED_RISE_MAX)
    return [`with all metrics together, ${links(now.linked, agreed.linked)}`];
  if (now.linkable && !agreed.linkable)
    return [`it is now meant that reports can be joined: ${links(now.linked, agreed.linked)}`];
  return [];
}

function links(linked: number, agreed: number): string {
  const people = (share: number) => Math.ceil((share * DEVICES) / 10_000);
  const before = agreed ? `, not ${people(agreed)}` : "";
  return `of ${DEVICES} people with the same answers about ${people(linked)} could be recognised${before}`;
}

/** Return an epsilon with all its digits: a rise by a millionth is asked for, too. */
function shown(micro: number): string {
  return `${micro / 1e6}`;
}
