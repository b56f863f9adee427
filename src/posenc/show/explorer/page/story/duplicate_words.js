// The scene "Which dog?": words above the outputs of attention; words can be dragged and shuffled.

import { needed } from "../app.js";
import { normals, remembered, shuffled } from "../compute.js";
import { button, html, svg } from "../dom.js";
import { attention, twins } from "../layer.js";
import { largest } from "../scales.js";
import { FIRST } from "../state.js";
import { tokensOf } from "../words.js";
import { addHandle, between, box, dot, heat, makePlate, whole, write } from "./scene.js";

/** @import {App} from "../app.js" */
/** @import {Grid} from "../compute.js" */
/** @import {State} from "../state.js" */
/** @import {Moment, Scene} from "./scene.js" */

const KINDS = [
  { name: "no positions", year: "", slug: "nope", causal: false },
  { name: "sinusoids", year: "2017", slug: "sinusoidal", causal: false },
  { name: "RoPE", year: "2021", slug: "rope", causal: false },
  { name: "ALiBi", year: "2021", slug: "alibi", causal: false },
  { name: "causal mask alone", year: "NoPE, 2022", slug: "nope", causal: true },
];
const MOST = 8; // words that fit a phone
const CHANNELS = 22; // channels in a column, the first of the output
const BETWEEN = 8; // pixels
const ARCS = 84, TOP = 90; // pixels above the words, and of that room
const SAME = 1e-9;

/** @param {number[]} order @param {number} from @param {number} to @returns {number[]} with one moved */
export function moved(order, from, to) {
  const next = [...order], [one] = next.splice(from, 1);
  next.splice(to, 0, one);
  return next;
}

/** @param {ArrayLike<number>} x */
const lengthOf = (x) => Math.hypot(...Array.from(x));

/** @param {Grid} grid @param {number} n */
const rowOf = (grid, n) => grid.values.slice(n * grid.columns, (n + 1) * grid.columns);

/** @param {Float64Array} a @param {Float64Array} b @returns {number} 0 for equal columns, about 1 for columns that have nothing in common */
export const differ = (a, b) => lengthOf(a.map((x, c) => x - b[c])) / Math.hypot(lengthOf(a), lengthOf(b));

/** @param {Float64Array} a @param {number} share @returns {Float64Array} a column as long as `a` that differs from it by this share */
function unlike(a, share) {
  const chance = normals(77, a.length), along = a.reduce((sum, x, c) => sum + x * chance[c], 0) / lengthOf(a) ** 2;
  const across = chance.map((x, c) => x - along * a[c]), cosine = 1 - share * share, sine = (Math.sqrt(1 - cosine * cosine) * lengthOf(a)) / lengthOf(across);
  return a.map((x, c) => cosine * x + sine * across[c]);
}

/** @param {string} word @returns {string} */
const two = (word) => (word === "dog" ? "two dogs" : `two words “${word}”`);

/** @param {App} app @param {() => Moment} now @param {(guess: number) => void} guessed @param {() => void} check @returns {Scene} */
export function duplicateWords(app, now, guessed, check) {
  const kinds = KINDS.map(({ name, year }, kind) => {
    const each = button(`${name} `, () => app.set({ kind, seen: true, film: 100 }), { "aria-pressed": false });
    if (year) each.append(html("small", {}, year));
    return each;
  });
  const arcs = svg("svg", { "aria-hidden": true, preserveAspectRatio: "none" });
  const stage = html("div", { class: "stage", role: "group", "aria-label": "Words, each with the column that attention writes for it" }, arcs);
  const meter = makePlate({ low: 12, tall: 58, below: 900 });
  const own = html("input", { type: "text", class: "own", maxlength: 60, spellcheck: false, "aria-label": "Your own sentence", placeholder: "your own sentence" });
  own.addEventListener("input", () => app.set({ text: own.value, order: [], seen: true, film: 100 }, "text"));
  let shuffles = 0;
  const mix = button("Shuffle", () => {
    const before = orderOf(app.now());
    let next = before;
    while (next.join() === before.join() && before.length > 1) next = shuffled(before.length, ++shuffles);
    app.set({ order: next, seen: true, film: 100 });
  });
  const typed = button("As typed", () => app.set({ order: [] }));
  const figure = html("div", {}, html("p", { class: "t keys" }, "Drag a word, or focus it and press ← or →. The arcs show where the touched word looks."), stage, meter.element,
    html("div", { class: "row kinds", role: "group", "aria-label": "How attention gets the order" }, ...kinds),
    html("div", { class: "row kinds" }, mix, typed, html("label", { class: "soft sentence" }, "Your words: ", own)));
  /** @type {{box: HTMLElement, name: HTMLElement, cells: SVGRectElement[]}[]} */
  let boxes = [];
  let asked = 2, held = -1, drawn = "";
  /** @type {{columns: Float64Array[], weights: Grid, words: string[], order: number[], top: number} | null} what is drawn */
  let last = null;

  const wordsOf = (/** @type {State} */ state) => tokensOf(state.text).slice(0, MOST);
  const orderOf = (/** @type {State} */ state) => {
    const count = wordsOf(state).length;
    return state.order.length === count ? state.order : Array.from({ length: count }, (_, n) => n);
  };
  const step = () => stage.clientWidth / Math.max(1, boxes.length);
  /** @param {State} state @param {number[]} order */
  function written(state, order) {
    const { slug, causal } = KINDS[state.kind], words = wordsOf(state), standing = order.map((from) => words[from]);
    return remembered(["dogs", state.kind, standing], () => attention(needed(app, slug), standing, { options: {}, head: 0, axis: 0, causal }));
  }
  /** @param {State} state @returns {{standing: string[], pair: number[] | undefined, apart: number, change: number, mixed: boolean}} */
  function compared(state) {
    const order = orderOf(state), words = wordsOf(state), standing = order.map((from) => words[from]), [pair] = twins(standing);
    const { outWith } = written(state, order), before = written(state, order.map((_, n) => n)).outWith;
    return {
      standing, pair, apart: pair ? differ(rowOf(outWith, pair[0]), rowOf(outWith, pair[1])) : 0,
      change: Math.max(0, ...order.map((from, at) => differ(rowOf(before, from), rowOf(outWith, at)))), mixed: order.some((from, at) => from !== at),
    };
  }

  /** @param {number} n which word, as typed */
  function make(n) {
    const name = html("span"), cells = Array.from({ length: CHANNELS }, (_, c) => svg("rect", { y: c, width: 1, height: 1.04 }));
    const column = svg("svg", { viewBox: `0 0 1 ${CHANNELS}`, preserveAspectRatio: "none", class: "cells", "aria-hidden": true }, ...cells);
    const box = html("div", { class: "word", tabindex: 0, role: "button" }, name, column);
    const touch = () => { asked = n; paint(); };
    box.addEventListener("focus", touch);
    box.addEventListener("pointerenter", touch);
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], order = orderOf(app.now()), at = order.indexOf(n);
      if (!by || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      if (order[at + by] !== undefined) app.set({ order: moved(order, at, at + by), seen: true, film: 100 });
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
        if (order[to] !== n) app.set({ order: moved(order, order.indexOf(n), to), seen: true, film: 100 }, "drag");
      };
      const drop = () => {
        held = -1;
        box.classList.remove("held");
        box.removeEventListener("pointermove", drag);
        paint();
      };
      box.addEventListener("pointermove", drag);
      for (const end of ["pointerup", "pointercancel"]) box.addEventListener(end, drop, { once: true });
    });
    return { box, name, cells };
  }

  function paint() {
    if (!last) return;
    const { columns, weights, order, words, top } = last;
    const standing = order.map((from) => words[from]), twice = new Set(twins(standing)[0]), wide = step();
    order.forEach((from, at) => {
      const { box, name, cells } = boxes[from];
      box.style.width = `calc(${100 / order.length}% - ${BETWEEN}px)`; // relative to the stage, because no script learns its width on paper
      if (from !== held) box.style.transform = `translateX(calc(${at} * (100% + ${BETWEEN}px)))`;
      box.classList.toggle("twin", twice.has(at));
      name.textContent = words[from];
      const row = weights.values.subarray(at * order.length, (at + 1) * order.length), most = row.indexOf(Math.max(...row));
      box.setAttribute("aria-label", `${words[from]}, at ${at}: it looks most at ${standing[most]}, at ${most}`);
      cells.forEach((cell, c) => { cell.style.fill = heat(columns[at][c] / top); });
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
    paint();
    void stage.offsetWidth; // the browser takes note of the places
    stage.classList.remove("settled");
  }
  new ResizeObserver(settle).observe(stage);

  const bar = { left: 14, wide: 1, y: 1 };
  const free = (/** @type {State} */ state) => state.kind > 0 || orderOf(state).some((from, at) => from !== at) || state.text !== FIRST.text;
  const scene = {
    name: "Which dog?", title: "Which dog?", notes: [1, 2], seconds: 2,
    lead: ["In a chatbot each word looks at all other words and collects what it finds. This is ", html("em", {}, "attention"), ". The column under a word is the result for this word: ",
      html("em", { class: "high" }, "orange"), " above zero, ", html("em", { class: "low" }, "blue"), " below."],
    question: "Two dogs in two places. How different are their columns?",
    guess: {
      label: "How different are the columns of the two dogs?", low: 0, high: 1, step: 0.05, first: 0.5,
      said: (/** @type {number} */ v) => (v < 0.03 ? "the same" : `${whole(v)} different`), right: (/** @type {number} */ v) => v <= 0.06,
    },
    ends: /** @type {[string, string]} */ (["your guess", "the truth"]),
    leads: /** @type {[string, string]} */ (["So", "we must add the position of each word. The simplest way: count."]),
    formula: "out = softmax(Q Kᵀ / √d) V\nNothing here depends on the order of the rows. “Different” is |a − b| / √(|a|² + |b|²): 0 for equal columns, 1 for columns at right angles.",
    code: 'posenc.SelfAttention(512, heads=8, encoding="nope")\n# or "sinusoidal", "rope", "alibi"',
    figure, free,
    /** @param {Moment} moment */
    answer({ state }) {
      const { standing, pair, apart, change, mixed } = compared(state), { name, year } = KINDS[state.kind], out = [];
      if (!pair) out.push("No word is repeated here.");
      else if (apart < SAME) out.push(`The ${two(standing[pair[0]])} get `, html("em", {}, "exactly the same column"), ".");
      else out.push(`With ${name}${year ? ` (${year})` : ""} the ${two(standing[pair[0]])} differ by `, html("em", {}, whole(apart)), ".");
      if (mixed) out.push(...(change < SAME ? [" Shuffled: the columns move with their words, and ", html("em", {}, "nothing changes"), "."] : [" Shuffled: a column changes by up to ", html("em", {}, whole(change)), "."]));
      else if (pair && apart < SAME) out.push(" To attention a sentence is a bag of words. Now shuffle it, or add positions.");
      return out;
    },
    /** @param {Moment} moment */
    draw({ state, guess, touched, seen, film }) {
      const words = wordsOf(state), order = orderOf(state), others = drawn !== words.join(" ");
      kinds.forEach((each, kind) => each.setAttribute("aria-pressed", String(kind === state.kind)));
      if (document.activeElement !== own) own.value = state.text;
      typed.hidden = !order.some((from, at) => from !== at);
      if (others) {
        boxes = words.map((_, n) => make(n));
        stage.replaceChildren(arcs, ...boxes.map(({ box }) => box));
        drawn = words.join(" ");
      }
      const attended = written(state, order), { pair, apart, standing } = compared(state);
      /** @type {Float64Array[]} */
      const columns = order.map((_, at) => rowOf(attended.outWith, at));
      // Until the guess is checked, the second of the two columns is drawn as the reader guesses it.
      const guessing = pair && !free(state) && (!seen || film < 1), value = guessing ? between(guess, apart, seen ? film : 0) : apart;
      if (guessing) columns[pair[1]] = unlike(columns[pair[0]], value);
      last = { columns, weights: attended.with, words, order, top: 0.6 * largest(attended.outWithout.values) };
      if (others) settle();
      else paint();
      meter.show(pair ? `The ${two(standing[pair[0]])}: ${whole(value)} different` : "No word is repeated here", (w, h, narrow) => {
        Object.assign(bar, { wide: w - 28, y: h - 14 });
        const at = (/** @type {number} */ share) => bar.left + share * bar.wide;
        if (!pair) return [write(w / 2, bar.y, "no word is repeated here", { class: "t middle" })];
        return [
          box(bar.left, bar.y - 4, bar.wide, 8, { rx: 4, class: "unmet" }), value > 0.002 && box(bar.left, bar.y - 4, value * bar.wide, 8, { rx: 4, class: "ink" }),
          write(bar.left, bar.y - 17, "the same", { class: "t small" }), write(w - 14, bar.y - 17, narrow ? "unrelated" : "nothing in common", { class: "t small end" }),
          write(w / 2, bar.y - 17, narrow ? (value < 0.003 ? "0 %" : whole(value)) : `the ${two(standing[pair[0]])}: ${value < 0.003 ? "the same" : `${whole(value)} different`}`, { class: "n small middle" }),
          seen && dot(at(value), bar.y, 8, { class: "ink" }), seen && touched && !free(state) && dot(at(guess), bar.y, 8, { class: "thought" }),
        ];
      });
    },
  };
  addHandle(meter, {
    ...scene.guess, value: () => now().guess, set: guessed, enter: check, open: () => !now().seen && !free(now().state),
    place: () => [bar.left + now().guess * bar.wide, bar.y], from: (x) => (x - bar.left) / bar.wide, zone: () => true,
  });
  return scene;
}
