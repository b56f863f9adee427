// Scenes: each asks, and shows what is so when somebody has guessed.

import { byOffset, remembered, rowsOf, stand, turningOf, vectorOf, walk } from "./compute.js";
import { BOTH, makeClocks, makeLegend } from "./clocks.js";
import { fresh, makeDials } from "./dials.js";
import { button, html, prose, slider } from "./dom.js";
import { CHANNEL_AXIS, QUERY_AXIS, heatMap, linePlot, theme } from "./draw.js";
import { WORD, addedScores, oneWord, pairAt } from "./layer.js";
import { colour } from "./scales.js";
import { FIRST, toHash } from "./state.js";
import { integer, percent, shown } from "./words.js";

/** @import {App} from "./app.js" */
/** @import {Grid} from "./compute.js" */
/** @import {Curve, Encoding, Outcomes} from "./data.js" */
/** @import {State} from "./state.js" */

/**
 * `told` is what is so, once somebody has guessed.
 * @typedef {{title: string, lead: string, notes: number[], element: HTMLElement, asks?: string,
 *   answers?: string[], right?: number, told?: (state: State) => string, update: (state: State) => void}} Scene
 */

/** @param {App} app @param {string} slug @returns {Encoding} */
function needed(app, slug) {
  const encoding = app.find(slug);
  if (!encoding) throw new Error(`the encoding “${slug}” is not in this page.`);
  return encoding;
}

/** @param {Float64Array} x @returns {number} */
const lengthOf = (x) => Math.hypot(...x);

/** @param {Grid} rows @param {number} i @returns {Float64Array} */
const row = (rows, i) => rows.values.slice(i * rows.columns, (i + 1) * rows.columns);

/** @param {Grid} rows @returns {number[]} how far each row is from the next */
const steps = (rows) => Array.from({ length: rows.rows - 1 }, (_, p) => {
  const [a, b] = [row(rows, p), row(rows, p + 1)];
  return lengthOf(a.map((x, c) => x - b[c]));
});

/** @param {App} app @returns {Scene} */
export function count(app) {
  const FARTHEST = 100;
  const integers = needed(app, "integer"), width = integers.graph.width, word = vectorOf(WORD, width);
  const at = slider({ name: "Position", low: 0, high: FARTHEST, shown: String, moved: (n) => app.set({ at: n }, "at") });
  const columns = ["the word", "its number", "together"].map((name) => {
    const canvas = html("canvas", { width: 1, height: width, "aria-hidden": true });
    return { canvas, element: html("div", { class: "column" }, html("span", {}, name), canvas) };
  });
  const element = html("div", {}, html("div", { class: "controls" }, at.element), html("div", { class: "sum" }, ...columns.map((one) => one.element)));
  const numberAt = (/** @type {number} */ place) => row(rowsOf(integers, stand([place]), {}), 0);
  return {
    title: "Count them", notes: [3, 4, 5], element,
    lead: `Tell attention where a word stands: write its number, 0, 1, 2 …, into every channel of “${WORD}”.`,
    asks: "From which position on is the number as large as the word?",
    answers: ["within the first ten", "near 100", "near 10,000"], right: 1,
    told(state) {
      const place = Math.min(state.at, FARTHEST), size = lengthOf(word), number = lengthOf(numberAt(place));
      const first = [...Array(FARTHEST).keys()].find((p) => lengthOf(numberAt(p)) >= size) ?? FARTHEST;
      return `“${WORD}” is ${shown(size)} long. From position ${first} on the number is as long; at ${place} it is ${shown(number)}, ${shown(number / size)} times the word: move the position, and the stripes of the word drown.`;
    },
    update(state) {
      const place = Math.min(state.at, FARTHEST), number = numberAt(place), both = word.map((x, c) => x + number[c]);
      at.set(place);
      const top = Math.max(2.5, place);
      const palette = { paper: theme("paper"), high: theme("heat-high"), low: theme("heat-low"), none: theme("heat-none") };
      [word, number, both].forEach((values, n) => {
        const image = new ImageData(1, width);
        colour(new Uint32Array(image.data.buffer), values, palette, true, top);
        columns[n].canvas.getContext("2d")?.putImageData(image, 0, 0);
      });
    },
  };
}

/** @param {App} app @returns {Scene} */
export function waves(app) {
  const N = 64, sinusoidal = needed(app, "sinusoidal");
  const map = heatMap(app.desk), plot = linePlot(app.desk);
  const rows = () => remembered(["waves"], () => rowsOf(sinusoidal, walk(N), {}));
  return {
    title: "Waves", notes: [6, 7, 8], element: html("div", { class: "figures" }, map.element, plot.element),
    lead: "Add waves instead, a slower one in each pair of channels: no number grows, and every place has its own pattern.",
    asks: "Go on by one word. How far does the pattern move?",
    answers: ["less and less", "as far at every place", "now little, now much"], right: 2,
    told() {
      const each = steps(rows());
      const scores = addedScores(sinusoidal, oneWord(N), { options: {}, head: 0, axis: 0 }), { mean, low, high } = byOffset(scores);
      const spread = Math.max(...high.map((top, n) => top - low[n])), gained = Math.max(...mean) - Math.min(...mean);
      return `By ${shown(each[0])} at every place. But the waves are added to the word, and projected with it: of equally far pairs one score differs from another by up to ${shown(spread)}, while distance moves their mean by ${shown(gained)}.`;
    },
    update(state) {
      const series = [sinusoidal, needed(app, "binary")].map((encoding) => ({
        name: encoding.name, xs: [...Array(N - 1).keys()], ys: steps(rowsOf(encoding, walk(N), {})),
      }));
      map.draw({ title: "What is added", about: "to a word at each position.", row: { ...QUERY_AXIS, label: "position" }, column: CHANNEL_AXIS, ...rows() }, { i: state.i, c: state.c });
      plot.draw({ title: "How far the pattern moves", about: "from each position to the next.", x: { label: "position", role: "query" }, y: { label: "distance" }, series }, { i: state.i });
    },
  };
}

/** @param {App} app @returns {Scene} */
export function turn(app) {
  const FURTHEST = 100, rope = needed(app, "rope"), clocks = makeClocks({ parts: true });
  const turning = turningOf(rope, {}, 0);
  if (turning) clocks.show(turning);
  const at = slider({ name: `Place of “${BOTH[0]}”`, low: 0, high: FURTHEST, shown: String, moved: (n) => app.set({ at: n }, "at") });
  const between = slider({ name: `“${BOTH[1]}” before it, in words`, low: 0, high: 32, shown: String, moved: (n) => app.set({ apart: n }, "apart") });
  const sum = html("p", { class: "verdict" });
  const places = (/** @type {State} */ state) => {
    const apart = Math.min(32, Math.max(0, state.apart));
    return { apart, place: Math.min(FURTHEST, Math.max(apart, state.at)) };
  };
  const pair = (/** @type {number} */ place, /** @type {number} */ apart) => pairAt(rope, BOTH, [place, place - apart], { options: {}, head: 0, axis: 0 });
  return {
    title: "Turn instead of add", notes: [9, 11],
    element: html("div", {}, html("div", { class: "controls" }, at.element, between.element, html("div", { class: "files" }, button("Move both by 37", () => {
      const { place } = places(app.now());
      app.set({ at: place + 37 > FURTHEST ? place - 37 : place + 37 });
    }))), sum, makeLegend(), clocks.element),
    lead: "RoPE adds nothing. Each pair of channels is a hand of a clock, turned on by each word that went before: fast hands, and slow ones.",
    asks: "Move both words 37 places on. What happens to their score?",
    answers: ["it falls", "it is any other", "it stays"], right: 3,
    told(state) {
      const { place, apart } = places(state), here = pair(place, apart).score, there = pair(place + 37, apart).score;
      return `${shown(here)} here, ${shown(there)} at 37 places on. Both hands turn on by as much, so that the angle between them stays. The score is the sum over all clocks: the bars below them.`;
    },
    update(state) {
      const { place, apart } = places(state), here = pair(place, apart);
      at.set(place);
      between.set(apart);
      if (turning) clocks.turn(turning, here);
      sum.replaceChildren(`“${BOTH[0]}” at ${place} for “${BOTH[1]}” at ${place - apart}: the clocks sum to `, html("em", {}, shown(here.score)), ".");
    },
  };
}

const WAYS = ["as trained", "PI", "NTK", "YaRN"];

/** @param {App} app @returns {Scene} */
export function grow(app) {
  const { model, base, trained, met, lengths } = app.data.story.growth;
  const length = slider({ name: "Length", low: 0, high: lengths.length - 1, shown: (n) => `${integer(lengths[n].target)} tokens`, moved: (n) => app.set({ wanted: lengths[n].target }, "wanted") });
  const ways = WAYS.map((name, way) => button(name, () => app.set({ way }), { "aria-pressed": false }));
  const dials = makeDials(), verdict = html("p", { class: "verdict", "aria-live": "polite" });
  const at = (/** @type {State} */ state) => {
    const n = lengths.findIndex(({ target }) => target >= state.wanted);
    return state.wanted && n >= 0 ? n : lengths.length - 1;
  };
  const last = lengths[lengths.length - 1];
  return {
    title: "The text grows", notes: [10, 12, 13],
    element: html("div", {}, html("div", { class: "controls" }, length.element, html("div", { class: "files", role: "group", "aria-label": "Extension" }, ...ways)), dials.element, verdict),
    lead: `RoPE tells places apart by the angles of its hands. ${model} (base ${integer(base)}) was trained on ${integer(trained)} tokens; you give it more. Blue: angles that training has shown. Orange: met for the first time.`,
    asks: `At ${integer(last.target)} tokens, how many of its ${met.length} hands point where training never did?`,
    answers: ["none", "about half", "all"], right: 2,
    told: () => `${fresh(last.ways[WAYS[0]].new)} of ${met.length}: the slow ones, which did not go round once. Move the length, and see what each extension mends, and what it costs.`,
    update(state) {
      const n = at(state), { target, ways: found } = lengths[n], name = WAYS[state.way], { new: shares, step } = found[name];
      length.set(n);
      ways.forEach((each, way) => each.setAttribute("aria-pressed", String(way === state.way)));
      dials.draw(met, shares);
      const usual = lengths[0].ways[WAYS[0]].step;
      const cost = usual / step > 1.001 ? ` Its price: from one word to the next the fastest hand turns ${shown(usual / step)} times less than in training, and neighbours are as much closer.`
        : state.way ? " Neighbours stay as far apart as in training on the fastest hand." : "";
      verdict.replaceChildren(html("em", {}, String(fresh(shares))), ` of ${met.length} hands meet angles at ${integer(target)} tokens that training never showed${state.way ? `, with ${name}` : ""}.${cost}`);
    },
  };
}

/** @param {number[]} all @returns {number} */
const average = (all) => all.reduce((sum, one) => sum + one, 0) / all.length;

/** @param {string} name @param {Curve} curve @returns {import("./draw.js").Series} its mean, and each seed */
function seedsOf(name, curve) {
  const lengths = Object.keys(curve).map(Number).sort((a, b) => a - b), each = lengths.map((length) => curve[length]);
  return { name, xs: lengths, ys: each.map(average), each };
}

/** @param {App} app @returns {Scene} */
export function short(app) {
  const { copied, read } = app.data.story.short, n = copied.trained, next = Object.keys(copied.rows[0].curve).map(Number).find((length) => length > n) ?? n;
  const named = (/** @type {Outcomes} */ of, /** @type {string} */ name) => of.rows.find((row) => row.encoding === name) ?? of.rows[0];
  const share = (/** @type {string} */ name, /** @type {number} */ length) => percent(average(named(copied, name).curve[length]));
  const rows = [...read.rows].sort((a, b) => Number(b.encoding === "RoPE") - Number(a.encoding === "RoPE"));
  const buttons = rows.map(({ encoding }, reader) => button(encoding, () => app.set({ reader }), { "aria-pressed": false }));
  const cliff = linePlot(app.desk), beside = linePlot(app.desk), verdict = html("p", { class: "verdict", "aria-live": "polite" });
  const how = (/** @type {Outcomes} */ { layers, width, steps, rates, seeds, study }) => `studies/${study}: ${layers} layers, ${width} channels, ${integer(steps)} steps at ${rates.length > 1 ? `rate ${Math.max(...rates)}, the largest of the ${rates.length} tried, for every row` : `one rate, ${rates[0]}`}, ${seeds} seeds`;
  const element = html("div", {},
    html("div", { class: "figures" }, cliff.element, beside.element),
    html("div", { class: "files", role: "group", "aria-label": "Encoding that reads letters" }, ...buttons), verdict,
    html("p", { class: "soft" }, `${how(copied)}. ${how(read)}; these look back 6 to 10 letters, so no encoding could have gained from more. ALiBi has two heads there; with four (studies/shape-text, rate 0.001, 1,500 steps) it needs ${app.data.story.alibi[0]} bits at ${2 * read.trained} letters. What larger models, other rates or longer training would change is not in them.`));
  return {
    title: `Trained on ${n}`, notes: [], element,
    lead: `Small models were trained to copy texts of up to ${n} words, in which words may repeat. Then the text is two words longer, and nothing else changes.`,
    asks: `Of the texts of ${next} words, how many does a model with RoPE copy without a mistake?`,
    answers: ["nearly all", "about half", "none"], right: 3,
    told: () => `${share("RoPE", next)} with each of ${copied.seeds} seeds, and ${share("RoPE", n)} of those of ${n} words. With sinusoidal rows it is ${share("Sinusoidal", next)}, with NoPE ${share("NoPE", next)}, ALiBi ${share("ALiBi", next)}, T5 ${share("T5", next)}; at ${next + 2} words no encoding copies more than ${percent(Math.max(...copied.rows.map((row) => average(row.curve[next + 2]))))}. The plan asks more than its seeds can decide, so that no order of encodings follows from it. Nor is it a law of RoPE: where no word repeats, with four times the batch and rate, a pilot of one seed copies longer texts (studies/use-of-length).`,
    update(state) {
      const row = rows[state.reader], longer = 2 * read.trained;
      buttons.forEach((each, reader) => each.setAttribute("aria-pressed", String(reader === state.reader)));
      cliff.draw({
        title: `Copied without a mistake, trained on up to ${n} words`, about: "a dot for each seed, a line through their means.", x: { label: "words" }, y: { label: "share of texts" },
        series: copied.rows.map((one) => seedsOf(one.encoding, one.curve)),
      }, {});
      const alone = row.cropped ?? row.curve;
      beside.draw({
        title: `Bits for the next letter, trained on ${read.trained}`, about: "fewer is better; a dot for each seed.", x: { label: "letters" }, y: { label: "bits a letter" },
        series: [seedsOf(`${row.encoding} reads all`, row.curve), seedsOf(`${row.encoding} is shown the last ${read.trained}`, alone)],
      }, {});
      const fewer = row.curve[longer].filter((bits, seed) => alone[longer][seed] < bits).length;
      verdict.replaceChildren(`At ${longer} letters ${row.encoding} needs ${average(row.curve[longer]).toFixed(3)} bits when it reads them all, ${average(alone[longer]).toFixed(3)} when it is shown the last ${read.trained}: `,
        html("em", {}, `${fewer} of ${read.seeds} seeds are better off with less`), ".");
    },
  };
}

/** @param {App} app @returns {Scene} */
export function take(app) {
  const rows = app.data.story.guide;
  const plain = (/** @type {string} */ text) => prose(text.replace(/\*/g, ""));
  const element = html("div", {},
    html("ul", { class: "uses" }, ...rows.map((one) => html("li", {}, html("h3", {}, one.use), html("p", {}, ...prose(one.answer)),
      html("details", {}, html("summary", {}, "Why", html("span", { class: "unseen" }, `: ${one.use}`)),
        html("p", {}, html("b", {}, "Because: "), one.because, " (", html("i", {}, one.basis), ")."),
        html("p", {}, html("b", {}, "Who does it: "), ...plain(one.does)), html("p", {}, html("b", {}, "Measured here: "), ...plain(one.measured)),
        html("p", {}, html("b", {}, "Not known: "), ...plain(one.unknown)))))),
    html("h3", {}, "Your model"),
    html("p", {}, html("code", {}, "posenc inspect model/ --target 131072"), " says what breaks in it at a length, and ", html("code", {}, "posenc explore model/"), " opens this page on it. ",
      html("a", { href: toHash({ ...FIRST, view: "context" }) }, "Models that are in this page"), "."));
  return {
    title: "Take one", notes: [14, 15], element,
    lead: "Each way of telling the order has limits of its own. Which one for what?",
    asks: "Tiny models read a novel, trained on 64 letters. How far back do they look?",
    answers: ["6 to 10 letters", "about 32", "all 64"], right: 1,
    told: () => "Within 64 letters their bits stop falling after 6 to 10, with every encoding. So none could have gained from a longer text: what was measured below is the harm that one does.",
    update() {},
  };
}
