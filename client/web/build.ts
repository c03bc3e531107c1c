/**
 * Build the package into `dist/`.
 *
 * A page loads `index.js` at its start, and more when it needs it: what speaks once the person has agreed, what sends
 * once something waits, a kind or mechanism where its registry asks for it.
 */

import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, resolve } from "node:path";
import { build, type BuildOptions, type Plugin } from "esbuild";

/**
 * Let what loads later and needs some of index.ts or speaking.ts need all of it. Else esbuild makes a file for each set
 * of needs, and a page loads several for one.
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
for (const file of readdirSync("src").filter((one) => one.endsWith(".ts"))) {
  const names = readFileSync(`src/${file}`, "utf8").match(/\b_[a-z]\w*/g) ?? [];
  for (const name of names) uses[name] = (uses[name] ?? 0) + 1;
}
const letter = (place: number) => String.fromCharCode(65 + place);
const mangleCache = Object.fromEntries(
  Object.keys(uses)
    .sort((a, b) => uses[b]! - uses[a]! || (a < b ? -1 : 1))
    .map((name, place) => [name, (place < 26 ? "" : letter(place / 26 - 1)) + letter(place % 26)]),
);

/** How each file is made. */
export const bundled: BuildOptions & { metafile: true } = {
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

/** Return the pairs of `{own as name, ...}` in an import or export. */
function pairsOf(names: string): [own: string, name: string][] {
  return names.split(",").map((one) => [one.split(" as ")[0]!, one.split(" as ").at(-1)!]);
}

/**
 * Let an entrance hold its code. What others need of it esbuild puts into a file beside it, which the entrance only
 * imports and exports: a page would load two files for one.
 */
function join(entrance: string): void {
  const [file, { entryPoint }] = Object.entries(outputs).find(([, one]) => one.entryPoint == entrance)!;
  const sign = readFileSync(file, "utf8");
  const [, imported, chunk, exported] = /^import\{(.*?)\}from"\.\/(.*?)".*export\{(.*?)\};/.exec(sign)!;
  const inChunk = new Map(pairsOf(imported!).map(([own, name]) => [name, own]));
  const code = readFileSync(`dist/${chunk}`, "utf8").replace(/export\{(.*?)\};(?=\n)/, (_, names: string) => {
    const locals = new Map(pairsOf(names).map(([own, name]) => [name, own]));
    const more = pairsOf(exported!).map(([own, name]) => `${locals.get(inChunk.get(own)!)} as ${name}`);
    return `export{${names},${more.join(",")}};`;
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

rmSync("dist", { recursive: true, force: true });
const pages = { splitting: true, plugins: [whole], define: { process: "undefined" } };
const { metafile } = await build({ ...bundled, ...pages, entryPoints: ["src/index.ts"] });
/** The files that pages load, for `sizes.ts`. */
export const { outputs } = metafile;
for (const entrance of ["src/index.ts", "src/speaking.ts", "src/sending.ts", "src/domains/texts.ts"]) join(entrance);
// Apart, and each in one file: what pages load has no seam because of Node or of tests.
await build({ ...bundled, entryPoints: [{ in: "src/index.ts", out: "node" }] });
await build({ ...bundled, entryPoints: ["src/testing.ts"] });
