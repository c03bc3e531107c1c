/** The blog's page: asks once whether the reader agrees, and records whether they found what they looked for. */

import { start } from "./dither-web/dist/index.js";

const { endpoint, key } = document.documentElement.dataset;
const registry = await (await fetch("static/metrics.json")).json();
const telemetry = start({ registry, endpoint, key });

const dialog = document.querySelector("dialog");

function choose(agrees) {
  dialog.close();
  telemetry.setConsent(agrees);
}

document.querySelector("#agree").onclick = () => choose(true);
document.querySelector("#refuse").onclick = () => choose(false);
for (const button of document.querySelectorAll("button[value]")) {
  button.onclick = () => telemetry.found.record(button.value === "yes");
}

// Where Do Not Track or a private window silences it, nobody is asked.
if ((await telemetry.status()).ask) {
  for (const { text } of telemetry.terms()) {
    const item = document.createElement("li");
    item.textContent = text;
    dialog.querySelector("ul").append(item);
  }
  dialog.showModal();
}
