// Which dog? Words with the column that attention writes for each; they can be dragged and shuffled.

import { apart, shuffled } from "./compute.js";
import { button, html, svg } from "./dom.js";
import { theme } from "./draw.js";
import { attention, changed, twins } from "./layer.js";
import { colour, largest } from "./scales.js";
import { shown, tokensOf } from "./words.js";

/** @import {App} from "./app.js" */
/** @import {Attention} from "./layer.js" */
/** @import {State} from "./state.js" */

export const KINDS = [
  { name: "no positions", slug: "nope", causal: false },
  { name: "add waves", slug: "sinusoidal", causal: false },
  { name: "turn", slug: "rope", causal: false },
  { name: "lean on distance", slug: "alibi", causal: false },
  { name: "only look back", slug: "nope", causal: true },
];
const MOST = 8; // words that fit a telephone
const CHANNELS = 22; // of a column, of all that attention writes
const BETWEEN = 8; // pixels
const ARCS = 84, TOP = 90; // pixels above the words, and of that room
const SAME = 1e-9;

/** @param {number[]} order @param {number} from @param {number} to @returns {number[]} with one moved */
export function moved(order, from, to) {
  const next = [...order], [one] = next.splice(from, 1);
  next.splice(to, 0, one);
  return next;
}

/** @param {App} app */
export function dogs(app) {
  const kinds = KINDS.map(({ name }, kind) => button(name, () => app.set({ kind }), { "aria-pressed": false }));
  const arcs = svg("svg", { "aria-hidden": true, preserveAspectRatio: "none" });
  const stage = html("div", { class: "stage", role: "group", "aria-label": "Words, each with the column that attention writes for it" }, arcs);
  let shuffles = 0;
  const mix = button("Shuffle", () => {
    const before = orderOf(app.now());
    let next = before;
    while (next.join() === before.join() && before.length > 1) next = shuffled(before.length, ++shuffles);
    app.set({ order: next });
  });
  const verdict = html("p", { class: "verdict", "aria-live": "polite" });
  const element = html("div", {},
    html("div", { class: "files kinds", role: "group", "aria-label": "How attention learns the order" }, ...kinds), stage,
    html("div", { class: "files" }, mix, button("As typed", () => app.set({ order: [] })),
      html("span", { class: "soft" }, "Drag a word, or focus it and press ← or →. Arcs: where the word that you touch looks.")),
    verdict);
  /** @type {{box: HTMLElement, name: HTMLElement, canvas: HTMLCanvasElement}[]} */
  let boxes = [];
  let asked = 2, held = -1, typed = "";
  /** What is drawn. @type {{attended: Attention, words: string[], order: number[]} | null} */
  let last = null;

  const wordsOf = (/** @type {State} */ state) => tokensOf(state.text).slice(0, MOST);
  const orderOf = (/** @type {State} */ state) => {
    const count = wordsOf(state).length;
    return state.order.length === count ? state.order : Array.from({ length: count }, (_, n) => n);
  };
  const step = () => stage.clientWidth / Math.max(1, boxes.length);

  /** @param {number} n which word, as typed */
  function make(n) {
    const name = html("span"), canvas = html("canvas", { width: 1, height: CHANNELS, "aria-hidden": true });
    const box = html("div", { class: "word", tabindex: 0, role: "button" }, name, canvas);
    const touch = () => { asked = n; draw(); };
    box.addEventListener("focus", touch);
    box.addEventListener("pointerenter", touch);
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], order = orderOf(app.now()), at = order.indexOf(n);
      if (!by || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      if (order[at + by] !== undefined) app.set({ order: moved(order, at, at + by) });
    });
    box.addEventListener("pointerdown", (event) => {
      box.setPointerCapture(event.pointerId);
      const from = orderOf(app.now()).indexOf(n) * step() - event.clientX;
      const drag = (/** @type {PointerEvent} */ at) => {
        held = n;
        box.classList.add("held");
        const x = from + at.clientX, order = orderOf(app.now());
        box.style.transform = `translateX(${x}px)`;
        const to = Math.min(order.length - 1, Math.max(0, Math.round(x / step())));
        if (order[to] !== n) app.set({ order: moved(order, order.indexOf(n), to) }, "drag");
      };
      const drop = () => {
        held = -1;
        box.classList.remove("held");
        box.removeEventListener("pointermove", drag);
        draw();
      };
      box.addEventListener("pointermove", drag);
      for (const end of ["pointerup", "pointercancel"]) box.addEventListener(end, drop, { once: true });
    });
    return { box, name, canvas };
  }

  /** @param {HTMLCanvasElement} canvas @param {Float64Array} column @param {number} top */
  function paint(canvas, column, top) {
    const image = new ImageData(1, CHANNELS);
    const palette = { paper: theme("paper"), high: theme("heat-high"), low: theme("heat-low"), none: theme("heat-none") };
    colour(new Uint32Array(image.data.buffer), column, palette, true, top);
    canvas.getContext("2d")?.putImageData(image, 0, 0);
  }

  function draw() {
    if (!last) return;
    const { attended: { outWith, outWithout, with: weights }, order, words } = last;
    const standing = order.map((from) => words[from]), twice = new Set(twins(standing).flat());
    const top = 0.6 * largest(outWithout.values), wide = step();
    order.forEach((from, at) => {
      const { box, name, canvas } = boxes[from];
      box.style.width = `calc(${100 / order.length}% - ${BETWEEN}px)`; // of the stage, whose width on paper no script is told
      if (from !== held) box.style.transform = `translateX(calc(${at} * (100% + ${BETWEEN}px)))`;
      box.classList.toggle("twin", twice.has(at));
      name.textContent = words[from];
      const row = weights.values.subarray(at * order.length, (at + 1) * order.length), most = row.indexOf(Math.max(...row));
      box.setAttribute("aria-label", `${words[from]}, at ${at}: it looks most at ${standing[most]}, at ${most}`);
      paint(canvas, outWith.values.slice(at * outWith.columns, at * outWith.columns + CHANNELS), top);
    });
    arcs.setAttribute("viewBox", `0 0 ${stage.clientWidth || 1} ${TOP}`);
    const at = order.indexOf(Math.min(asked, order.length - 1));
    const middle = (/** @type {number} */ place) => (place + 0.5) * wide - BETWEEN / 2;
    arcs.replaceChildren(...order.flatMap((_, to) => {
      const share = weights.values[at * order.length + to], [x, y] = [middle(at), middle(to)];
      if (share < SAME) return [];
      const high = Math.min(ARCS, 14 + 0.3 * Math.abs(x - y));
      return [to === at
        ? svg("circle", { cx: x, cy: ARCS - 12, r: 10 * Math.sqrt(share), class: "look" })
        : svg("path", { d: `M${x} ${ARCS} C${x} ${ARCS - high} ${y} ${ARCS - high} ${y} ${ARCS}`, class: "look", "stroke-width": Math.max(0.5, 16 * share) })];
    }));
  }

  /** Draws without sliding: words slide when they change places, not when the page is opened or resized. */
  function settle() {
    stage.classList.add("settled");
    draw();
    void stage.offsetWidth; // the browser takes note of the places
    stage.classList.remove("settled");
  }

  new ResizeObserver(settle).observe(stage);

  /** @param {State} state @param {Attention} attended @param {Attention} before as typed @returns {string[]} what is said, and what of it stands out */
  function said(state, attended, before) {
    const order = orderOf(state), standing = order.map((from) => wordsOf(state)[from]);
    const [pair] = twins(standing), out = ["", "", "", ""];
    if (pair) {
      const differ = apart(attended.outWith, pair[0], attended.outWith, pair[1]), name = `two ${standing[pair[0]]}s`;
      [out[0], out[1]] = differ < SAME ? [`The ${name} get `, "the same column"] : [`The ${name} differ by `, shown(differ)];
    }
    if (order.some((from, at) => from !== at)) {
      const most = changed(before.outWith, attended.outWith, order);
      [out[2], out[3]] = most < SAME ? ["The columns moved with their words: ", "nothing changed"] : ["The shuffle changed a column by ", shown(most)];
    }
    return out;
  }

  return {
    title: "Which dog?",
    lead: "Attention reads words as a bag. Under each word is what attention writes for it. Drag a word, or shuffle: do the columns notice?",
    notes: [1, 2], element,
    /** @param {State} state */
    update(state) {
      const words = wordsOf(state), order = orderOf(state), { slug, causal } = KINDS[state.kind];
      const encoding = app.find(slug);
      if (!encoding) throw new Error(`the encoding “${slug}” is not in this page.`);
      kinds.forEach((each, kind) => each.setAttribute("aria-pressed", String(kind === state.kind)));
      const others = typed !== words.join(" ");
      if (others) {
        boxes = words.map((_, n) => make(n));
        stage.replaceChildren(arcs, ...boxes.map(({ box }) => box));
        typed = words.join(" ");
      }
      const layer = { options: {}, head: 0, axis: 0, causal };
      const attended = attention(encoding, order.map((from) => words[from]), layer);
      last = { attended, words, order };
      const [pair, much, shuffle, change] = said(state, attended, attention(encoding, words, layer));
      verdict.replaceChildren(pair, much && html("em", {}, much), much && ". ", shuffle, change && html("em", {}, change), change && ".");
      if (others) settle();
      else draw();
    },
  };
}
