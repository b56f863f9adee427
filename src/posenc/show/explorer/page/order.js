// The view of a sentence: attention without and with an encoding, shuffled, with repeated words marked.

import { encodingChoice, instead, reason } from "./app.js";
import { adds, apart, headsOf, obstacle, shuffled } from "./compute.js";
import { button, choice, html, newId, slider, tick } from "./dom.js";
import { heatMap } from "./draw.js";
import { attention, changed, lexiconOf, twins } from "./layer.js";
import { largest } from "./scales.js";
import { FIRST, MOST_WORDS } from "./state.js";
import { integer, joined, percent, shown, tokensOf } from "./words.js";

/** @import {App, View} from "./app.js" */
/** @import {Encoding, Vectors} from "./data.js" */
/** @import {State} from "./state.js" */

/** @param {State} state @returns {{words: string[], order: number[]}} as typed, and how they stand */
export function standing(state) {
  const typed = tokensOf(state.text).slice(0, MOST_WORDS);
  const order = state.order.length === typed.length ? state.order : typed.map((_, n) => n);
  return { words: order.map((from) => typed[from]), order };
}

/** @param {State} state @param {number} n @returns {{i: number, j: number}} a pair of words, wherever the cursor was among more */
const cursor = ({ i, j }, n) => ({ i: i % (n || 1), j: j % (n || 1) });

const EXAMPLES = [ // sentences of texts on positions, some of them alone and later in a sentence
  FIRST.text, "the dog chased another dog", "the brown dog chased the black dog", "dog bites man",
  "a man threw a ball", "in the garden a man threw a ball",
  "the pig chased the dog", "once upon a time the pig chased the dog",
  "the big dog", "we saw the big dog",
];

/** @param {App} app @returns {View} */
export function orderView(app) {
  const picker = encodingChoice(app, (encoding) => !obstacle(encoding));
  const head = slider({ name: "Head", low: 0, high: 3, shown: String, moved: (at) => app.set({ head: at }, "head") });
  const causal = tick("Each word sees only those before it", (on) => app.set({ causal: on }));
  const lexicon = app.data.words && lexiconOf(app.data.words);
  const lexiconFor = (/** @type {State} */ state) => (state.seeded ? null : lexicon);
  const seeded = tick("Seeded vectors", (on) => app.set({ seeded: on }));
  seeded.element.hidden = !lexicon;
  const origin = html("p", { class: "soft note" });
  const id = newId();
  const field = html("input", { type: "text", id, maxlength: 300, autocomplete: "off", spellcheck: "false" });
  field.addEventListener("input", () => app.set({ text: field.value, order: [] }, "text"));
  const typed = html("div", { class: "control sentence" }, html("label", { for: id }, "Sentence"), field);
  const examples = choice({
    name: "Examples", chosen: (text) => (text ? app.set({ text, order: [] }) : field.focus()),
    groups: [["", [["", "your own sentence"], ...EXAMPLES.map((text) => /** @type {[string, string]} */ ([text, text]))]]],
  });
  const chips = html("ol", { class: "chips", "aria-label": "Words in their order" });
  let shuffles = 0;
  /** @param {number} step */
  function swap(step) {
    const state = app.now(), { order } = standing(state), { i: from } = cursor(state, order.length), to = from + step;
    if (from >= order.length || to < 0 || to >= order.length) return;
    const next = [...order];
    [next[from], next[to]] = [next[to], next[from]];
    app.set({ order: next, i: to });
    app.announce(`${standing(app.now()).words[to]} is now at ${to}`);
  }
  const earlier = button("Move word left", () => swap(-1)), later = button("Move word right", () => swap(1));
  const buttons = html("div", { class: "files" },
    button("Shuffle", () => {
      const { order } = standing(app.now());
      let next = order;
      for (let tries = 0; tries < 9 && next.join() === order.join() && order.length > 1; tries++) next = shuffled(order.length, ++shuffles);
      app.set({ order: next });
    }),
    button("As typed", () => app.set({ order: [] })), earlier, later);
  const claims = html("ul", { class: "claims" });
  const maps = [heatMap(app.desk), heatMap(app.desk)];
  const parts = Array.from({ length: 4 }, () => heatMap(app.desk));
  const pair = html("div", { class: "figures" }, ...maps.map((map) => map.element));
  const terms = html("div", { class: "figures four" }, ...parts.map((map) => map.element));
  const sum = html("p", { class: "readout sum" });
  const trouble = html("div");
  const below = html("section", {}, html("h3", {}, "The terms of the scores"), sum, terms);
  const element = html("div", {},
    html("h2", {}, "Does attention see the order?"),
    html("p", { class: "summary" }, "Attention compares words in pairs. Its output for a word is the same in every order, unless an encoding or a mask makes positions differ."),
    html("div", { class: "controls" }, picker.element, causal.element, seeded.element, head.element),
    html("div", { class: "controls" }, typed, examples.element, buttons), chips, trouble, claims, pair, below,
    origin);

  /** @param {{i?: number, j?: number}} place */
  function glow(place) {
    [...chips.children].forEach((chip, n) => {
      chip.classList.toggle("query", n === place.i);
      chip.classList.toggle("key", n === place.j);
    });
  }
  app.desk.lit(glow);

  /** @param {string[]} words @param {number} at */
  function tokens(words, at) {
    const twice = new Set(twins(words).flat());
    const focused = [...chips.querySelectorAll("button")].indexOf(/** @type {any} */ (document.activeElement));
    chips.replaceChildren(...words.map((word, n) => {
      const chip = button(word, () => app.set({ i: n }, "cursor"), { "aria-pressed": n === at });
      chip.addEventListener("pointerenter", () => app.desk.light({ i: n }));
      chip.addEventListener("focus", () => app.desk.light({ i: n }));
      return html("li", { class: twice.has(n) ? "twin" : "" }, chip, html("small", { "aria-hidden": true }, String(n)));
    }));
    if (focused >= 0) chips.querySelectorAll("button")[Math.min(at, words.length - 1)]?.focus();
  }

  /** @param {Encoding} encoding @param {State} state @param {string[]} words @param {number[]} order */
  function drawMaps(encoding, state, words, order) {
    const attended = attention(encoding, words, state, lexiconFor(state));
    const names = words;
    const place = cursor(state, words.length);
    const row = { label: "query", role: /** @type {const} */ ("query"), names };
    const column = { label: "key", role: /** @type {const} */ ("key"), names };
    const marks = /** @type {[number, number][]} */ (twins(words).flatMap((places) => places.flatMap((a) => places.filter((b) => b !== a).map((b) => [a, b]))));
    const most = Math.max(largest(attended.without.values), largest(attended.with.values));
    const weights = { row, column, signed: false, top: most, marks };
    const gives = (/** @type {Float64Array} */ all) => (/** @type {number} */ i, /** @type {number} */ j) =>
      `“${words[i]}” at ${i} gives “${words[j]}” at ${j} ${shown(100 * all[i * words.length + j])} %`;
    maps[0].draw({ title: "Without an encoding", about: "the attention weight of each word on each word.", ...weights, ...attended.without, said: gives(attended.without.values) }, place);
    maps[1].draw({ title: `With ${encoding.name}`, about: headsOf(encoding) > 1 ? `the same words, head ${state.head}.` : "the same words.", ...weights, ...attended.with, said: gives(attended.with.values) }, place);
    const top = Math.max(...attended.terms.map((term) => largest(term.grid.values)));
    parts.forEach((map, n) => {
      const term = attended.terms[n];
      map.element.hidden = !term;
      if (term) map.draw({ title: term.name, about: "", row, column, top, ...term.grid }, place);
    });
    const at = place.i * words.length + place.j;
    const numbers = attended.terms.map((term) => `${shown(term.grid.values[at])} (${term.name})`);
    sum.textContent = `Score of “${words[place.i]}” for “${words[place.j]}”: ${numbers.join(" + ")} = ${shown(attended.scores.values[at])}.`;
    claims.replaceChildren(...claimsOf(encoding, state, words, order, attended, lexiconFor(state)).map((text) => html("li", {}, text)));
  }

  return {
    element,
    update(state) {
      const encoding = app.first();
      const { words, order } = standing(state);
      picker.set(encoding.slug);
      head.range.max = String(headsOf(encoding) - 1); // before the value, which it bounds
      head.set(state.head);
      head.element.hidden = headsOf(encoding) < 2;
      causal.set(state.causal || encoding.graph.causal);
      causal.box.disabled = encoding.graph.causal;
      seeded.set(state.seeded);
      origin.textContent = originOf(words, state.seeded ? null : app.data.words);
      if (field.value !== state.text) field.value = state.text;
      examples.set(EXAMPLES.includes(state.text) ? state.text : "");
      const place = cursor(state, words.length);
      earlier.disabled = words.length < 2 || place.i === 0;
      later.disabled = words.length < 2 || place.i === words.length - 1;
      tokens(words, place.i);
      glow(place);
      const why = obstacle(encoding) || (words.length < 2 ? "Type two words or more: one word has no order." : "");
      trouble.replaceChildren(...(why ? [instead(why)] : []));
      for (const each of [pair, below, claims]) each.hidden = !!why;
      if (why) return;
      try {
        drawMaps(encoding, state, words, order);
      } catch (error) {
        for (const each of [pair, below, claims]) each.hidden = true;
        trouble.replaceChildren(instead(reason(error)));
      }
    },
  };
}

/** @param {string[]} words @param {Vectors | null} vectors of a model @returns {string} where the vectors of words come from */
function originOf(words, vectors) {
  const projected = "queries and keys are seeded projections of it, in one head";
  if (!vectors) return `Each word has a seeded vector, the same at every position; ${projected}. Nothing here is trained.`;
  const { model, width, of, share } = vectors, known = new Set(vectors.words);
  const unknown = [...new Set(words.filter((word) => !known.has(word)))];
  const some = unknown.length ? ` It has none for ${joined(unknown.map((word) => `“${word}”`))}: seeded here.` : "";
  return `Each word has its vector of ${model}, the same at every position: ${integer(of)} channels projected to ${width}, which keep ${percent(share)} of their squared length, in steps of 8 bits.${some} But ${projected}, and not trained.`;
}

/**
 * Describes the numbers in sentences.
 * @param {Encoding} encoding @param {State} state @param {string[]} words @param {number[]} order
 * @param {import("./layer.js").Attention} attended
 * @param {import("./layer.js").Lexicon | null} lexicon
 * @returns {string[]}
 */
function claimsOf(encoding, state, words, order, attended, lexicon) {
  const out = [];
  const typed = order.map((_, n) => words[order.indexOf(n)]);
  const NOTHING = 1e-9;
  const size = (/** @type {number} */ x) => `${shown(x)} in a channel at most`;
  if (order.some((from, to) => from !== to)) {
    const before = attention(encoding, typed, state, lexicon);
    const [without, withIt] = [changed(before.outWithout, attended.outWithout, order), changed(before.outWith, attended.outWith, order)];
    const effect = (/** @type {number} */ x) => (x < NOTHING ? "changed no word’s output" : `changed outputs, by ${size(x)}`);
    out.push(`Without an encoding the shuffle ${effect(without)}. With ${encoding.name} it ${effect(withIt)}.`);
  } else out.push("Shuffle the words: without an encoding and without a mask, the output of each word is the same as before.");
  const [first] = twins(words);
  if (first) {
    const [a, b] = first;
    const differ = (/** @type {import("./compute.js").Grid} */ grid) => {
      const most = apart(grid, a, grid, b);
      return most < NOTHING ? "get the same output" : `differ, by ${size(most)}`;
    };
    out.push(`“${words[a]}” is at ${joined(first.map(String))}. Without an encoding the first two ${differ(attended.outWithout)}. With ${encoding.name} they ${differ(attended.outWith)}.`);
  }
  if (state.causal || encoding.graph.causal) out.push("Each word sees only those before it. This alone makes repeated words differ, unless all words before them are equal.");
  if (adds(encoding)) out.push("Added positions enter every score three times: word · position, position · word, position · position.");
  return out;
}
