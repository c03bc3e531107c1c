// Optional: a crosshair on charts, by pointer and by arrow keys, and a button that copies the page's address.
// Every number it shows is in the page without it. A mark is an element with a <title>, whose words are shown as text.
"use strict";

const GAP = 10; // pixels between a mark and the box that says its words
const STEPS = {
  ArrowRight: (at) => at + 1,
  ArrowDown: (at) => at + 1,
  ArrowLeft: (at) => at - 1,
  ArrowUp: (at) => at - 1,
  Home: () => 0,
  End: () => Infinity,
};

const crosshair = drawn("g", { class: "crosshair" });
const vertical = crosshair.appendChild(drawn("line", { y1: 0, y2: "100%" }));
const horizontal = crosshair.appendChild(drawn("line", { x1: 0, x2: "100%" }));
const box = crosshair.appendChild(drawn("foreignObject", {}));
const words = box.appendChild(made("div", { class: "words-of-mark" }));
const heard = made("p", { class: "heard", "aria-live": "polite" });
let shown = null; // the chart that has the crosshair

function made(name, attributes) {
  return given(document.createElement(name), attributes);
}

function drawn(name, attributes) {
  return given(document.createElementNS("http://www.w3.org/2000/svg", name), attributes);
}

function given(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function hide() {
  crosshair.remove();
  heard.textContent = "";
  if (shown) shown.at = -1;
  shown = null;
}

// A chart's place for the crosshair. Places across are in percent and places down in pixels, as the server drew them:
// the lines stay on their mark when the window changes its width.
class Chart {
  constructor(plot) {
    this.plot = plot;
    this.svg = plot.querySelector("svg");
    this.inRows = plot.dataset.marks === "rows"; // a mark a row, or else a mark a column
    this.marks = [...plot.querySelectorAll("title")].map(placed);
    this.marks.sort((a, b) => (this.inRows ? a.y - b.y : a.x - b.x || a.y - b.y));
    this.at = -1;
  }

  listen() {
    // An application gets its arrow keys from screen readers too, which keep those of an image for themselves.
    const label = this.svg.getAttribute("aria-label");
    given(this.plot, {
      tabindex: 0,
      role: "application",
      "aria-label": `${label}. Arrow keys, Home and End read its marks, Escape hides the crosshair.`,
    });
    this.plot.addEventListener("keydown", (event) => this.step(event));
    this.plot.addEventListener("pointerdown", (event) => this.follow(event));
    this.plot.addEventListener("pointermove", (event) => this.follow(event));
    this.plot.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") hide(); // a finger that was lifted still wants to read
    });
    this.plot.addEventListener("blur", hide);
  }

  step(event) {
    const to = STEPS[event.key];
    if (!to || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.show(Math.min(Math.max(to(this.at), 0), this.marks.length - 1));
    words.scrollIntoView({ block: "nearest" });
    horizontal.scrollIntoView({ block: "nearest" });
    heard.textContent = words.textContent;
  }

  follow(event) {
    const frame = this.svg.getBoundingClientRect();
    const x = (100 * (event.clientX - frame.left)) / frame.width;
    const y = event.clientY - frame.top;
    // The row or column decides; the other direction only between marks of the same one.
    const weights = this.inRows ? [1, 1000] : [1000, 1];
    const far = this.marks.map((mark) => weights[0] * Math.abs(mark.x - x) + weights[1] * Math.abs(mark.y - y));
    this.show(far.indexOf(Math.min(...far)));
  }

  show(at) {
    if (shown && shown !== this) hide();
    shown = this;
    this.at = at;
    const mark = this.marks[at];
    given(vertical, { x1: `${mark.x}%`, x2: `${mark.x}%` });
    given(horizontal, { y1: mark.y, y2: mark.y });
    words.textContent = mark.says;
    if (crosshair.parentNode !== this.svg) this.svg.append(crosshair);
    this.placeBox(mark);
  }

  // Put the box beside the mark, and within the chart's width.
  placeBox(mark) {
    const frame = this.svg.getBoundingClientRect();
    given(box, { x: 0, y: 0, width: frame.width, height: 1 }); // all the width there is, to measure the words
    const width = words.offsetWidth + 1;
    const height = words.offsetHeight + 1;
    const x = (mark.x * frame.width) / 100;
    const left = x + GAP + width <= frame.width ? x + GAP : x - GAP - width;
    const above = mark.y - GAP - height;
    const top = mark.y + GAP + height > frame.height && above >= 0 ? above : mark.y + GAP;
    given(box, { x: Math.max(0, Math.min(left, frame.width - width)), y: top, width, height });
  }
}

// Return a mark's words and the place of its dot, or of the middle of its bar's top.
function placed(title) {
  const mark = title.parentNode;
  const shape = mark.querySelector("circle") ?? mark;
  const length = (name) => shape[name].baseVal.valueInSpecifiedUnits;
  const round = shape instanceof SVGCircleElement;
  const x = round ? length("cx") : length("x") + length("width") / 2;
  const inset = shape.ownerSVGElement.y.baseVal.value; // a histogram's bars are in an svg below its axis
  return { says: title.textContent, x, y: inset + length(round ? "cy" : "y") };
}

// The button that copies this view's address; where a page may not use the clipboard, it shows the address selected.
function copying() {
  const place = made("span", { class: "copying" });
  const button = place.appendChild(made("button", { type: "button" }));
  const said = place.appendChild(made("span", { "aria-live": "polite" }));
  const field = made("input", { readonly: "", "aria-label": "address of this view" });
  button.textContent = "Copy a link to this view";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href); // there is no clipboard on http, except on localhost
      field.remove();
      said.textContent = "Copied.";
    } catch {
      field.value = location.href;
      place.append(field);
      field.select();
      said.textContent = "The address is selected: copy it.";
    }
  });
  return place;
}

const main = document.querySelector("main");
main.append(heard);
(document.querySelector("form.controls") ?? main).append(copying());
for (const plot of document.querySelectorAll("[data-marks]")) {
  const chart = new Chart(plot);
  if (chart.marks.length) chart.listen();
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
});
window.addEventListener("resize", () => {
  if (shown) shown.show(shown.at);
});

// A page that waits for a part of it asks again, unless somebody is at its form.
const refresh = Number(document.body.dataset.refresh);
let typed = false;
document.addEventListener("input", () => (typed = true));
if (refresh) {
  setInterval(() => {
    if (!typed && !document.hidden && !main.querySelector("form :focus")) location.reload();
  }, 1000 * refresh);
}

// Buttons below a question complete the word before the caret.
function completing(field) {
  const words = [...document.querySelectorAll("[data-words]")].flatMap((each) => JSON.parse(each.dataset.words));
  const offers = made("div", { class: "offers" });
  field.after(offers);
  field.addEventListener("input", () => {
    const at = field.selectionStart;
    const [begun] = field.value.slice(0, at).match(/"[^"\n]*$|[\w.]*$/);
    const fits = (word) => begun && word.toLowerCase().startsWith(begun.toLowerCase());
    const buttons = words.filter(fits).slice(0, 8).map((word) => {
      const button = made("button", { type: "button" });
      button.textContent = word;
      button.onclick = () => {
        field.setRangeText(word, at - begun.length, at, "end");
        offers.replaceChildren();
        field.focus();
      };
      return button;
    });
    offers.replaceChildren(...buttons);
  });
}
document.querySelectorAll(".asking textarea").forEach(completing);
