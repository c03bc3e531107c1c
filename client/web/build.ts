/**
 * Build the package into `dist/`, or with `--sizes` print what a page loads of it.
 *
 * A module of a kind or mechanism is a file of its own, which a page fetches only where its registry asks for it.
 */

import { readFileSync, rmSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build, type BuildOptions, type Metafile } from "esbuild";

const bundled: BuildOptions & { metafile: true } = {
  outdir: "dist",
  bundle: true,
  splitting: true,
  minify: true,
  format: "esm",
  target: "es2022",
  chunkNames: "[name]-[hash]",
  sourcemap: true,
  sourcesContent: false,
  metafile: true,
  legalComments: "none",
};

/** The modules that a page loads for each set of kinds, beside those that all load. */
const SETS: Readonly<Record<string, RegExp>> = {
  "core with flag and choice": /domains\/values|mechanisms\/symbols/,
  "the same, and status()": /domains\/values|mechanisms\/symbols|src\/(status|consent)/,
  "all kinds": /domains\/|mechanisms\//,
};

/** Return the files that an entrance loads at once: it and all that it imports, one way or another. */
function loadedBy(file: string, outputs: Metafile["outputs"], found = new Set<string>()): Set<string> {
  if (found.has(file)) return found;
  found.add(file);
  for (const { path, kind } of outputs[file]!.imports) if (kind == "import-statement") loadedBy(path, outputs, found);
  return found;
}

function sizes(outputs: Metafile["outputs"]): void {
  const modules = Object.keys(outputs).filter((file) => file.endsWith(".js"));
  const core = loadedBy("dist/index.js", outputs);
  const rows: [string, Set<string>][] = [["core alone", core]];
  for (const [name, pattern] of Object.entries(SETS)) {
    const loaded = new Set(core);
    for (const file of modules) if (pattern.test(outputs[file]!.entryPoint ?? "")) loadedBy(file, outputs, loaded);
    rows.push([name, loaded]);
  }
  for (const file of modules)
    if (/domains\/|mechanisms\//.test(outputs[file]!.entryPoint ?? "")) {
      rows.push([`  ${outputs[file]!.entryPoint!.replace("src/", "")}`, new Set([file])]);
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
  const sources = Object.entries(outputs["dist/index.js"]!.inputs);
  for (const [source, { bytesInOutput }] of sources.sort(([, a], [, b]) => b.bytesInOutput - a.bytesInOutput)) {
    console.log(`  in the core: ${source.replace("src/", "")}`.padEnd(38) + `${bytesInOutput}`.padStart(10));
  }
}

rmSync("dist", { recursive: true, force: true });
const { metafile } = await build({ ...bundled, entryPoints: ["src/index.ts"] });
await build({ ...bundled, entryPoints: ["src/testing.ts"] }); // apart: what pages load has no seam because of tests
if (process.argv.includes("--sizes")) sizes(metafile.outputs);
