/** The scenes of every device, played on this one in Node. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { playScene, type Scenes, scenesOf } from "./scenes.ts";

const vectors = JSON.parse(
  readFileSync(new URL("../../../tests/vectors/devices.json", import.meta.url), "utf8"),
) as Scenes;

for (const scene of scenesOf(vectors)) {
  test(`scene: ${scene.name}`, () =>
    playScene(vectors, scene, (what, came, expected) => assert.deepEqual(came, expected, what)));
}
