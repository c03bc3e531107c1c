/**
 * Build the package into `dist/`, or with `--sizes` print what a page loads of it.
 *
 * A module of a kind or mechanism is a file of its own, which a page fetches only where its registry asks for it; so is
 * what sends, which it fetches once something waits.
 */

import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { build, type BuildOptions, type Metafile, type Plugin } from "esbuild";

/**
 * What loads later and needs some of the front, or of what speaks, needs all of it: so each of both is one file, and not
 * a file for each need.
 */
const whole: Plugin = {
  name: "whole",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /^needed:/ }, ({ path }) => ({ path: resolve("src", path.slice(7)) }));
    onLoad({ filter: /src\/(kinds|memo|sending|speaking|status|uploads)\.ts$/ }, ({ path }) => ({
      contents: `${readFileSync(path, "utf8")}\nimport "needed:index.ts"; import "needed:speaking.ts";`,
      loader: "ts",
    }));
  },
};

/** Short names for what begins with an underscore. Capitals are no metric's name, so that each metric has a handle. */
const uses: Record<string, number> = {};
for (const file of readdirSync("src").filter((name) => name.endsWith(".ts")))
  for (const name of readFileSync(`src/${file}`, "utf8").match(/\b_[a-z]\w*/g) ?? []) uses[name] = (uses[name] ?? 0) + 1;
const letter = (place: number) => String.fromCharCode(65 + place);
const mangleCache = Object.fromEntries(
  Object.keys(uses)
    .sort((a, b) => uses[b]! - uses[a]! || (a < b ? -1 : 1))
    .map((name, place) => [name, (place < 26 ? "" : letter(place / 26 - 1)) + letter(place % 26)]),
);

const bundled: BuildOptions & { metafile: true } = {
  outdir: "dist",
  bundle: true,
  minify: true,
  mangleProps: /^_[a-z]/,
  mangleCache,
  format: "esm",
  target: "es2022",
  chunkNames: "[name]-[hash]",
  sourcemap: true,
  sourcesContent: false,
  metafile: true,
  legalComments: "none",
  logOverride: { "ignored-bare-import": "silent" },
};

/** What a page has loaded: the entrances, beside index.js, of all that it asks for. */
const SPEAKS = /src\/speaking/;
const SENDS = /src\/sending/;
const KINDS = /domains\/|mechanisms\/|src\/(memo|kinds)/;
const SETS: readonly [name: string, ...entrances: RegExp[]][] = [
  ["start()"],
  ["flag and choice, recording", SPEAKS],
  ["flag and choice, sending", SPEAKS, SENDS],
  ["the same, and status()", SPEAKS, SENDS, /src\/(status|consent)/],
  ["all kinds, recording", SPEAKS, KINDS],
  ["all kinds, sending", SPEAKS, SENDS, KINDS],
  ["everything", /./],
];

/** Return the files that an entrance loads at once: it and all that it imports, one way or another. */
function loadedBy(file: string, outputs: Metafile["outputs"], found = new Set<string>()): Set<string> {
  if (found.has(file)) return found;
  found.add(file);
  for (const { path, kind } of outputs[file]!.imports) if (kind == "import-statement") loadedBy(path, outputs, found);
  return found;
}

/**
 * Let an entrance hold its code. What others need of it esbuild puts into a file beside it, of which the entrance is but
 * a sign: a page would load two files for one.
 */
function join(entrance: string, outputs: Metafile["outputs"]): void {
  const [file, { entryPoint }] = Object.entries(outputs).find(([, one]) => one.entryPoint == entrance)!;
  const sign = readFileSync(file, "utf8");
  const [, names, chunk] = /^import\{([^}]*)\}from"\.\/([^"]*)"/.exec(sign)!;
  const inChunk = new Map(names!.split(",").map((one) => one.split(" as ").reverse() as [string, string]));
  const exported = /export\{([^}]*)\};/.exec(sign)![1]!.split(",").map((one) => one.split(" as "));
  const added = exported.map(([own, name]) => [inChunk.get(own!) ?? own, name]);
  const code = readFileSync(`dist/${chunk}`, "utf8").replace(/export\{([^}]*)\};(?=\n)/, (_, held: string) => {
    const locals = new Map(held.split(",").map((one) => (one.includes(" as ") ? one.split(" as ").reverse() : [one, one]) as [string, string]));
    return `export{${held},${added.map(([own, name]) => `${locals.get(own!)} as ${name}`)}};`;
  });
  writeFileSync(file, code.replace(/chunk-\w+\.js\.map/, `${basename(file)}.map`));
  renameSync(`dist/${chunk}.map`, `${file}.map`);
  rmSync(`dist/${chunk}`);
  outputs[file] = { ...outputs[`dist/${chunk}`]!, entryPoint: entryPoint! };
  delete outputs[`dist/${chunk}`];
  for (const [other, output] of Object.entries(outputs)) {
    for (const one of output.imports) if (one.path == `dist/${chunk}`) one.path = file;
    if (!other.endsWith(".js")) continue;
    writeFileSync(other, readFileSync(other, "utf8").replaceAll(`"./${chunk}"`, `"./${basename(file)}"`));
  }
}

function sizes(outputs: Metafile["outputs"]): void {
  const modules = Object.keys(outputs).filter((file) => file.endsWith(".js"));
  const core = loadedBy("dist/index.js", outputs);
  const rows = SETS.map(([name, ...entrances]): [string, Set<string>] => {
    const loaded = new Set(core);
    for (const file of modules) {
      const { entryPoint } = outputs[file]!;
      if (entryPoint && entrances.some((one) => one.test(entryPoint))) loadedBy(file, outputs, loaded);
    }
    return [name, loaded];
  });
  for (const file of modules) {
    const source = outputs[file]!.entryPoint ?? Object.keys(outputs[file]!.inputs).join(" ");
    rows.push([`  ${source.replaceAll("src/", "").slice(0, 28)}`, new Set([file])]);
  }
  const bytes = (files: Iterable<string>, size: (file: string) => number) =>
    [...files].reduce((sum, file) => sum + size(file), 0);
  console.log(`${"loaded".padEnd(32)}${"files".padStart(6)}${"minified".padStart(10)}${"gzip".padStart(8)}`);
  for (const [name, files] of rows) {
    const minified = bytes(files, (file) => readFileSync(file).length);
    const zipped = bytes(files, (file) => gzipSync(readFileSync(file), { level: 9 }).length);
    console.log(
      `${name.padEnd(32)}${`${files.size}`.padStart(6)}${`${minified}`.padStart(10)}${`${zipped}`.padStart(8)}`,
    );
  }
}

rmSync("dist", { recursive: true, force: true });
const pages = { splitting: true, plugins: [whole], define: { process: "undefined" } };
const { metafile } = await build({ ...bundled, ...pages, entryPoints: ["src/index.ts"] });
for (const entrance of ["src/index.ts", "src/speaking.ts", "src/sending.ts", "src/domains/texts.ts"]) join(entrance, metafile.outputs);
// Apart, and each in one file: what pages load has no seam because of Node or of tests.
await build({ ...bundled, entryPoints: [{ in: "src/index.ts", out: "node" }] });
await build({ ...bundled, entryPoints: ["src/testing.ts"] });
if (process.argv.includes("--sizes")) sizes(metafile.outputs);
