/** A small app: one component that records an answer by the hook of client/web/tutorial.md. */

import { createElement, useState } from "react";
import { createRoot } from "react-dom/client";
import { telemetry } from "./telemetry.js";
import { useAnswer } from "./useAnswer.js";

function App() {
  const [theme, setTheme] = useState();
  useAnswer("color", theme);
  return createElement("button", { onClick: () => setTheme("red") }, theme ?? "red?");
}

globalThis.telemetry = telemetry;
createRoot(document.getElementById("root")).render(createElement(App));
