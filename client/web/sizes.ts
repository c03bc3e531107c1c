/** Build the package, and print what a page loads of it, and what each rule costs there. README.md has both tables. */

import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { bundled, outputs } from "./build.ts";

const SPEAKS = /src\/speaking/;
const SENDS = /src\/sending/;
const KINDS = /domains\/|mechanisms\/|src\/(memo|kinds)/;
/** What a page has loaded: beside index.js the files of these sources, and all that they import. */
const SETS: readonly [name: string, ...sources: RegExp[]][] = [
  ["start()"],
  ["flag and choice, recording", SPEAKS],
  ["flag and choice, sending", SPEAKS, SENDS],
  ["all kinds, recording", SPEAKS, KINDS],
  ["all kinds, sending", SPEAKS, SENDS, KINDS],
  ["all kinds, and status()", SPEAKS, SENDS, KINDS, /src\/(status|consent)/],
];
/** Rules by the file and function that they are in. The first that fits counts. */
const RULES: readonly [name: string, where: RegExp][] = [
  ["coins, listed answers, GRR", /coins|values|grr/],
  ["from an answer to a report", /report\.ts/],
  ["the registry found whole", /whole|registry/],
  ["the storage", /storage/],
  ["what a browser forbids, options", /index\.ts/],
  ["hidden presence", /(unopened|_opens|_replace|_closePeriods|endPeriods|taken|\.look)$/],
  ["memoized answers", /(classFor|_paid|_forgetUnused)$/],
  ["budgets", /(_bears|_fits|_epsilon|_affords|_charge|costOf)$/],
  ["a clock that strays", /Days\b|_noticeClock$/],
  ["periods and their draw", /days\.ts|(_prepare|_prepareAll|begin|_ground|decide)$/],
  ["consent and refusal", /(asks\w*|_asks|terms|agree|_agree\w+|setConsent|_catchUp|takeBack|\w*[wW]hole|\w+Evicted)$/],
  ["what refusing and forgetting drop", /(refuse|\w*[rR]efusedOr\w+|drop|_drop\w+|forget)$/],
  ["a moment within the visit", /(_plan|_planAt|planNow|_heldUntil|_putOff|tick|hides|soon|armNow|pageGoesAway)$/],
  ["one page that sends", /Sender\.#?(start|queueForLead|stop|inTurn|constructor)$/],
  ["uploads: frozen, charged, padded", /uploads/],
  ["requests, and what answers mean", /sending/],
  ["the queue, handles, pages that come and go", /telemetry|speaking/],
  ["other rules", /./],
];
const FUNCTION =
  /^(?:export )?(?:async )?(?:function|class) (\w+)|^ {2}(?:[a-z]+ )*(#?\w+)(<.*?>)?\(.*[{(,]$/;
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const zipped = (code: string) => gzipSync(code, { level: 9 }).length;

/** Return the files that a page loads with one: it and all that it imports at once. */
function loadedBy(file: string, found = new Set<string>()): Set<string> {
  if (found.has(file)) return found;
  found.add(file);
  for (const { path, kind } of outputs[file]!.imports) if (kind == "import-statement") loadedBy(path, found);
  return found;
}

function filesOf(sources: readonly RegExp[]): string[] {
  const found = loadedBy("dist/index.js");
  for (const [file, { entryPoint }] of Object.entries(outputs))
    if (entryPoint && sources.some((source) => source.test(entryPoint))) loadedBy(file, found);
  return [...found];
}

/** Return the function in which each line of a source is. */
function functionsOf(source: string): string[] {
  let [inClass, inFunction] = ["", ""];
  return readFileSync(source, "utf8")
    .split("\n")
    .map((line) => {
      const [, own, method] = FUNCTION.exec(line) ?? [];
      if (own) inClass = inFunction = own;
      else if (method) inFunction = `${inClass}.${method}`;
      return `${source} ${inFunction}`;
    });
}

/** Return a file's code in pieces, each with the source's file and function that it comes from. */
function piecesOf(file: string): [code: string, where: string][] {
  const map = JSON.parse(readFileSync(`${file}.map`, "utf8")) as { sources: string[]; mappings: string };
  const functions = map.sources.map((source) => functionsOf(source.replace("../", "")));
  const pieces: [string, string][] = [];
  let [source, line] = [0, 0];
  const lines = readFileSync(file, "utf8").split("\n");
  map.mappings.split(";").forEach((mappings, place) => {
    let [at, where] = [0, ""];
    for (const mapping of mappings.split(",").filter(Boolean)) {
      const [columns, ofSource, ofLine] = numbersOf(mapping) as [number, number?, number?];
      pieces.push([lines[place]!.slice(at, at + columns), where]);
      at += columns;
      [source, line] = [source + (ofSource ?? 0), line + (ofLine ?? 0)];
      where = ofSource === undefined ? "" : functions[source]![line]!;
    }
    pieces.push([lines[place]!.slice(at), where]);
  });
  return pieces;
}

/** Return the numbers of a mapping of a source map, which are in base 32, the least digits first. */
function numbersOf(mapping: string): number[] {
  const numbers: number[] = [];
  let [number, shift] = [0, 0];
  for (const digit of mapping) {
    const bits = DIGITS.indexOf(digit);
    number |= (bits & 31) << shift;
    shift += 5;
    if (bits & 32) continue;
    numbers.push(number & 1 ? -(number >> 1) : number >> 1);
    [number, shift] = [0, 0];
  }
  return numbers;
}

const print = (name: string, ...figures: (number | string)[]) =>
  console.log(name.padEnd(46) + figures.map((figure) => `${figure}`.padStart(10)).join(""));
const sum = (files: readonly string[], size: (code: string) => number) =>
  files.reduce((all, code) => all + size(code), 0);

print("a page that has loaded", "files", "minified", "gzip");
for (const [name, ...sources] of SETS) {
  const files = filesOf(sources);
  const code = files.map((file) => readFileSync(file, "utf8"));
  print(name, files.length, sum(code, (one) => one.length), sum(code, zipped));
}
// A bundler that parts nothing makes one file of it.
const later = ["kinds", "memo", "status", "consent", "domains/coded"].map((name) => `./${name}.ts`);
const one = { entryPoints: ["src/index.ts"], define: { process: "undefined" }, external: later };
const { outputFiles } = await build({ ...bundled, ...one, sourcemap: false, write: false });
print("flag and choice, sending, in one file", 1, outputFiles[0]!.contents.length, zipped(outputFiles[0]!.text));
print("");
print("a rule of flag and choice, sending", "minified", "gzip*");
const pieces = filesOf([SPEAKS, SENDS]).map(piecesOf);
for (const [name] of RULES) {
  const isOf = ([, where]: [string, string]) => where != "" && RULES.find(([, one]) => one.test(where))![0] == name;
  const without = pieces.map((file) => [file, file.filter((piece) => !isOf(piece))] as const);
  const joined = (file: readonly [string, string][]) => file.map(([code]) => code).join("");
  print(
    name,
    without.reduce((all, [file, rest]) => all + joined(file).length - joined(rest).length, 0),
    without.reduce((all, [file, rest]) => all + zipped(joined(file)) - zipped(joined(rest)), 0),
  );
}
print("* so much less it would be without");
print("");
print("each file", "minified", "gzip");
for (const [file, { entryPoint, inputs }] of Object.entries(outputs).filter(([name]) => name.endsWith(".js"))) {
  const code = readFileSync(file, "utf8");
  print(`  ${(entryPoint ?? Object.keys(inputs)[0]!).replace("src/", "")}`, code.length, zipped(code));
}
