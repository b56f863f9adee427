// The tour: claims that are often repeated, and a computation that tests each.

import { instead, reason } from "./app.js";
import { apart, byOffset, computed, dots, headsOf, normals, points, remembered, rowsOf, stand, turnedOf, walk } from "./compute.js";
import { button, html } from "./dom.js";
import { KEY_AXIS, QUERY_AXIS, heatMap, linePlot } from "./draw.js";
import { WORD, addedScores, attention, changed, interrupted, pairAt } from "./layer.js";
import { FIRST, toHash } from "./state.js";
import { integer, percent, shown, tokensOf } from "./words.js";
import { constants, values } from "../interpreter.js";

/** @import {App, View} from "./app.js" */
/** @import {Grid} from "./compute.js" */
/** @import {Encoding} from "./data.js" */
/** @import {Heat, Lines} from "./draw.js" */
/** @import {State} from "./state.js" */

/**
 * @typedef {{said: string, lines?: Lines, heat?: Heat, second?: Heat, open: Partial<State>}} Shown the result in words and figures
 * @typedef {{claim: string, needs: string[], show: (...encodings: Encoding[]) => Shown}} Stop
 */

const DOGS = tokensOf(FIRST.text);
const PLAIN = { options: {}, head: 0, axis: 0, causal: false };

/** @param {number} n @returns {number[]} 0, 1, … */
const upTo = (n) => Array.from({ length: n }, (_, index) => index);

/** @param {Grid} rows @param {number} i @returns {number} its length */
const lengthOf = (rows, i) => Math.hypot(...rows.values.subarray(i * rows.columns, (i + 1) * rows.columns));

/** @param {Grid} rows @param {number} i @param {number} j @returns {number} */
function distance(rows, i, j) {
  let sum = 0;
  for (let c = 0; c < rows.columns; c++) sum += (rows.values[i * rows.columns + c] - rows.values[j * rows.columns + c]) ** 2;
  return Math.sqrt(sum);
}

/** @param {Grid} scores @returns {number} the share of their variance that the offset alone decides */
export function decidedByOffset(scores) {
  const { offsets, mean } = byOffset(scores), n = scores.rows;
  const by = new Map(offsets.map((offset, at) => [offset, mean[at]]));
  const middle = scores.values.reduce((sum, score) => sum + score, 0) / scores.values.length;
  let [all, decided] = [0, 0];
  scores.values.forEach((score, at) => {
    all += (score - middle) ** 2;
    decided += ((by.get(Math.floor(at / n) - (at % n)) ?? 0) - middle) ** 2;
  });
  return decided / all;
}

/** @param {number} x @returns {number} the nearest number of bfloat16, which has 8 significant bits; of two, the even one */
export function bfloat16(x) {
  const bits = new Uint32Array(Float32Array.of(x).buffer), cut = 0x10000;
  bits[0] = Math.floor((bits[0] + cut / 2 - 1 + ((bits[0] >>> 16) & 1)) / cut) * cut;
  return new Float32Array(bits.buffer)[0];
}

/** @param {Encoding} rope @param {number} distance @param {(place: number) => number} [placed] @param {number} [from] @returns {number} the score of a word for the same word before it */
const againstItself = (rope, distance, placed = (place) => place, from = 0) =>
  pairAt(rope, [WORD, WORD], [placed(from + distance), placed(from)], PLAIN).score;

/** @param {Encoding} encoding @param {number} side @returns {Grid} scores of the patch in the middle of a square for each patch, all of ones, the mean over heads */
function ofThePatch(encoding, side) {
  const n = side * side, middle = n >> 1, heads = headsOf(encoding), out = new Float64Array(n);
  const pos = points(upTo(n).map((at) => [Math.floor(at / side), at % side])), ones = new Float64Array(n * encoding.graph.dim).fill(1);
  for (let head = 0; head < heads; head++) {
    const scores = values(computed(encoding, pos, {}, ["scores"], { q: ones, k: ones }, head).scores);
    for (let at = 0; at < n; at++) out[at] += scores[middle * n + at] / heads;
  }
  return { rows: side, columns: side, values: out };
}

/** @param {Grid} map @returns {number} how far it is from a sum of one number for each row and one for each column */
function notASum({ rows, columns, values: all }) {
  const at = (/** @type {number} */ i, /** @type {number} */ j) => all[i * columns + j], middle = rows >> 1;
  return Math.max(...all.map((value, n) => {
    const [i, j] = [Math.floor(n / columns), n % columns];
    return Math.abs(value - at(i, middle) - at(middle, j) + at(middle, middle));
  }));
}

/** @type {Stop[]} */
export const STOPS = [
  {
    claim: "Attention does not change when the words are shuffled.",
    needs: ["nope"],
    show(nope) {
      const order = [4, 2, 0, 5, 1, 3];
      const typed = attention(nope, DOGS, PLAIN), mixedUp = attention(nope, order.map((from) => DOGS[from]), PLAIN);
      const follows = changed(typed.outWith, mixedUp.outWith, order);
      const stays = Math.max(...upTo(DOGS.length).map((n) => apart(typed.outWith, n, mixedUp.outWith, n)));
      const words = order.map((from) => DOGS[from]);
      return {
        said: `The outputs move with their words. The output of each word is the same (${follows < 1e-9 ? "the difference is below 10⁻⁹" : shown(follows)}), but the output at each position changes by up to ${shown(stays)}: attention is equivariant, not invariant. Only a sum over all words would be the same.`,
        heat: { title: "Attention, shuffled", about: "no encoding: the same numbers as before, in other places.", row: { ...QUERY_AXIS, label: "query", names: words }, column: { ...KEY_AXIS, label: "key", names: words }, signed: false, ...mixedUp.with },
        open: { view: "order", names: ["nope"], order },
      };
    },
  },
  {
    claim: "Without positions, the same word gets the same output at every position.",
    needs: ["nope"],
    show(nope) {
      const twice = DOGS.flatMap((word, n) => (word === "dog" ? [n] : []));
      const of = (/** @type {boolean} */ causal) => attention(nope, DOGS, { ...PLAIN, causal });
      const differ = (/** @type {boolean} */ causal) => apart(of(causal).outWith, twice[0], of(causal).outWith, twice[1]);
      return {
        said: `Only without a causal mask. The two dogs differ by ${shown(differ(false))} when each word sees all words, and by up to ${shown(differ(true))} in a channel when each word sees only those before it. This is how language models without an encoding can learn positions.`,
        heat: { title: "Attention under a causal mask", about: "no encoding.", row: { ...QUERY_AXIS, label: "query", names: DOGS }, column: { ...KEY_AXIS, label: "key", names: DOGS }, signed: false, ...of(true).with },
        open: { view: "order", names: ["nope"], causal: true },
      };
    },
  },
  {
    claim: "One could simply add the position: 0, 1, 2, …",
    needs: ["integer", "sinusoidal"],
    show(integer, sinusoidal) {
      const n = 128, width = integer.graph.width, at = 100;
      const [plain, waves] = [rowsOf(integer, walk(n), {}), rowsOf(sinusoidal, walk(n), {})];
      const lengths = [...normals(3, 200 * width)].reduce((sum, x) => sum + x * x, 0);
      const word = Math.sqrt(lengths / 200);
      return {
        said: `Then the position is much larger than the word. A seeded word of ${width} channels has a length of about ${shown(word)}; the vector added at position ${at} has a length of ${shown(lengthOf(plain, at))}, ${shown(lengthOf(plain, at) / word)} times as much. Sinusoids have a length of ${shown(lengthOf(waves, at))} at every position.`,
        lines: { title: "Length of the added vector", about: "and of a word, which is about the same at all positions.", x: { label: "position", role: "query" }, y: { label: "length" },
          series: [{ name: "integers", xs: upTo(n), ys: upTo(n).map((p) => lengthOf(plain, p)) }, { name: "sinusoids", xs: upTo(n), ys: upTo(n).map((p) => lengthOf(waves, p)) }, { name: "a word", xs: upTo(n), ys: upTo(n).map(() => word) }] },
        open: { view: "encoding", names: ["integer"], n },
      };
    },
  },
  {
    claim: "Then divide the position by the length of the text.",
    needs: ["normalized"],
    show(normalized) {
      const [short, long] = [8, 32];
      const step = (/** @type {number} */ n) => rowsOf(normalized, walk(n), {}).values[normalized.graph.width];
      const values = (/** @type {number} */ n) => upTo(n).map((p) => rowsOf(normalized, walk(n), {}).values[p * normalized.graph.width]);
      return {
        said: `Then the code of a position depends on the length of the text. A step to the next word is ${shown(step(short))} in a text of ${short} words and ${shown(step(long))} in one of ${long}: a model that learns about neighbours in one text cannot use it in the other.`,
        lines: { title: "Code of each position", about: `in a text of ${short} words and in one of ${long}.`, x: { label: "position", role: "query" }, y: { label: "added value" },
          series: [{ name: `${long} words`, xs: upTo(long), ys: values(long) }, { name: `${short} words`, xs: upTo(short), ys: values(short) }] },
        open: { view: "encoding", names: ["normalized"], n: long },
      };
    },
  },
  {
    claim: "Binary numbers work as well: every position has its own.",
    needs: ["binary", "sinusoidal"],
    show(binary, sinusoidal) {
      const n = 65;
      const steps = (/** @type {Encoding} */ encoding) => {
        const rows = rowsOf(encoding, walk(n), {});
        return upTo(n - 1).map((p) => distance(rows, p, p + 1));
      };
      const [bits, waves] = [steps(binary), steps(sinusoidal)];
      const [least, most] = [Math.min(...bits), Math.max(...bits)];
      return {
        said: `They are unique, but they jump. From one position to the next the code moves by ${shown(least)} to ${shown(most)}, because between one and ${Math.round((most / least) ** 2)} bits flip (63 to 64). Sinusoids move by ${shown(waves[0])} at every step.`,
        lines: { title: "Change of the code", about: "from each position to the next.", x: { label: "position", role: "query" }, y: { label: "distance" },
          series: [{ name: "binary", xs: upTo(n - 1), ys: bits }, { name: "sinusoidal", xs: upTo(n - 1), ys: waves }] },
        open: { view: "compare", names: ["binary", "sinusoidal"], n: 64 },
      };
    },
  },
  {
    claim: "Sinusoids repeat after 62,832 = 2π · 10,000 tokens.",
    needs: ["sinusoidal"],
    show(sinusoidal) {
      const freqs = values(constants(sinusoidal.graph).freqs), far = 62832;
      const rows = rowsOf(sinusoidal, stand([0, 1, far]), {});
      const longest = (2 * Math.PI) / Math.min(...freqs);
      return {
        said: `They never repeat. At width ${sinusoidal.graph.width} the longest wavelength is ${integer(longest)}, because the slowest pair has 10,000 to the power of (d − 2)/d, not of 1. And 62,832 tokens later the other pairs have other angles: the distance of that code from the first is ${shown(distance(rows, 0, 2))}, and that of neighbours is ${shown(distance(rows, 0, 1))}.`,
        lines: { title: "Tokens in which each pair turns once", x: { label: "pair" }, y: { label: "tokens a turn", log: true }, rules: [{ y: far, name: "62,832" }],
          series: [{ name: "sinusoidal", xs: upTo(freqs.length), ys: [...freqs].map((theta) => (2 * Math.PI) / theta) }] },
        open: { view: "encoding", names: ["sinusoidal"] },
      };
    },
  },
  {
    claim: "The further apart two positions, the less similar their sinusoids.",
    needs: ["sinusoidal"],
    show(sinusoidal) {
      const n = 1001, rows = rowsOf(sinusoidal, walk(n), {});
      const dot = upTo(n).map((p) => {
        let sum = 0;
        for (let c = 0; c < rows.columns; c++) sum += rows.values[c] * rows.values[p * rows.columns + c];
        return sum;
      });
      const rises = upTo(n - 1).filter((p) => dot[p + 1] > dot[p]);
      return {
        said: `On the whole, not step by step. At width ${rows.columns} the similarity rises for the first time from distance ${rises[0]} to ${rises[0] + 1}, and in ${percent(rises.length / (n - 1))} of the first thousand steps. It is also the same forwards and backwards, so it does not show which of two words comes first.`,
        lines: { title: "Dot product with position 0", x: { label: "distance" }, y: { label: "dot product" }, series: [{ name: "sinusoidal", xs: upTo(n), ys: dot }] },
        open: { view: "encoding", names: ["sinusoidal"], n: 128 },
      };
    },
  },
  {
    claim: "Sinusoids give attention the distance between words.",
    needs: ["sinusoidal", "rope"],
    show(sinusoidal, rope) {
      const n = 64, width = sinusoidal.graph.width, dim = rope.graph.dim;
      const rows = rowsOf(sinusoidal, walk(n), {});
      /** @param {number} seed @returns {Float64Array} the rows, projected at random */
      const project = (seed) => {
        const matrix = normals(seed, width * width), out = new Float64Array(n * width);
        for (let p = 0; p < n; p++) {
          for (let c = 0; c < width; c++) {
            for (let o = 0; o < width; o++) out[p * width + o] += (rows.values[p * width + c] * matrix[c * width + o]) / Math.sqrt(width);
          }
        }
        return out;
      };
      const draws = upTo(40).map((draw) => {
        const [q, k] = [project(100 + 2 * draw), project(101 + 2 * draw)], scores = { rows: n, columns: n, values: new Float64Array(n * n) };
        for (let i = 0; i < n; i++) {
          for (let j = 0; j < n; j++) for (let c = 0; c < width; c++) scores.values[i * n + j] += (q[i * width + c] * k[j * width + c]) / Math.sqrt(width);
        }
        return scores;
      });
      const shares = draws.map(decidedByOffset).sort((a, b) => a - b);
      const [query, key] = [normals(23, dim), normals(24, dim)];
      const repeat = (/** @type {Float64Array} */ vector) => Float64Array.from({ length: n * dim }, (_, at) => vector[at % dim]);
      const turned = values(computed(rope, walk(n), {}, ["scores"], { q: repeat(query), k: repeat(key) }).scores);
      const raw = decidedByOffset(dots(rows)), kept = decidedByOffset({ rows: n, columns: n, values: turned });
      return {
        said: `Only before the projections. The distance determines ${percent(raw)} of the variance of the rows' dot products. After random projections to queries and keys it determines ${percent(shares[20])} of the scores (the median of ${shares.length} draws, which have ${percent(shares[0])} to ${percent(shares[39])}), and training has to find the rest. RoPE rotates after the projections: ${percent(kept)}.`,
        heat: { title: "Sinusoids, projected to queries and keys", about: "the first draw: if the distance decided, each diagonal would have one colour.", row: QUERY_AXIS, column: KEY_AXIS, ...draws[0] },
        open: { view: "compare", names: ["sinusoidal", "rope"] },
      };
    },
  },
  {
    claim: "RoPE makes scores fade with distance.",
    needs: ["rope"],
    show(rope) {
      const { dim } = rope.graph, n = 128, target = 77;
      const ones = new Float64Array(n * dim).fill(1);
      const alike = values(computed(rope, walk(n), {}, ["scores"], { q: ones, k: ones }).scores);
      const same = upTo(n).map((offset) => alike[offset * n]);
      const rises = upTo(n - 1).filter((p) => same[p + 1] > same[p]).length;
      const query = normals(25, dim);
      const key = turnedOf(rope, stand([target]), {}, 0, query).values; // rotated forwards, so that it matches at the target
      const q = Float64Array.from({ length: n * dim }, (_, at) => query[at % dim]), k = Float64Array.from({ length: n * dim }, (_, at) => key[at % dim]);
      const scores = values(computed(rope, walk(n), {}, ["scores"], { q, k }).scores);
      const gained = upTo(n).map((offset) => scores[offset * n]);
      const best = gained.indexOf(Math.max(...gained));
      return {
        said: `Not by itself. For equal vectors of ones the score falls on the whole, though with ${dim} channels ${percent(rises / (n - 1))} of the steps rise. For other words it goes up and down, and for any distance there is a key with its highest score there. The key below was made for ${target}, and its highest score is at ${best}.`,
        lines: { title: "Score against distance", x: { label: "query − key", role: "offset" }, y: { label: "score" },
          series: [{ name: `a key made for ${target}`, xs: upTo(n), ys: gained }, { name: "ones against ones", xs: upTo(n), ys: same }] },
        open: { view: "encoding", names: ["rope"], n },
      };
    },
  },
  {
    claim: "RoPE is a formula, so a model with it reads texts of any length.",
    needs: ["rope"],
    show(rope) {
      const freqs = [...values(constants(rope.graph).freqs)], trained = 4096, dim = 128, base = 10000;
      const waves = upTo(dim / 2).map((pair) => 2 * Math.PI * base ** ((2 * pair) / dim));
      const done = waves.filter((wave) => wave <= trained).length;
      return {
        said: `The formula has no limit, but training has. With ${dim} channels, base 10,000 and ${integer(trained)} tokens, as in Llama 2, ${2 * done} channels complete a turn in training. The other ${dim - 2 * done} meet angles beyond ${integer(trained)} that the model has never seen. On this page, with ${2 * freqs.length} channels, it is ${2 * freqs.filter((theta) => (2 * Math.PI) / theta <= trained).length} of ${2 * freqs.length}.`,
        lines: { title: "Tokens in which each pair turns once", about: `${dim} channels, base 10,000.`, x: { label: "pair" }, y: { label: "tokens a turn", log: true }, rules: [{ y: trained, name: `trained on ${integer(trained)}` }],
          series: [{ name: "wavelength", xs: upTo(dim / 2), ys: waves }] },
        open: { view: "context" },
      };
    },
  },
  {
    claim: "With half of the pairs for rows and half for columns, a patch sees the position of every other patch.",
    needs: ["axial-rope", "rope-mixed"],
    show(axial, mixed) {
      const side = 15, [cross, star] = [ofThePatch(axial, side), ofThePatch(mixed, side)];
      const figure = { row: { ...QUERY_AXIS, label: "row" }, column: { ...KEY_AXIS, label: "column" } };
      const summed = notASum(cross);
      return {
        said: `It sees a cross. In a picture of ${side} × ${side} equal patches, each score of the middle patch is a number for the row plus a number for the column (${summed < 1e-9 ? "to 10⁻⁹" : `except for ${shown(summed)}`}), so no diagonal can stand out. If each pair turns by row and column together, each head has a cross at its own angle, together a star, which differs from a sum of two numbers by up to ${shown(notASum(star))}.`,
        heat: { title: axial.name, about: "scores of the patch in the middle.", ...figure, ...cross },
        second: { title: mixed.name, about: "the same, the mean of its untrained heads.", ...figure, ...star },
        open: { view: "encoding", names: ["rope-mixed"] },
      };
    },
  },
  {
    claim: "Divide the positions (PI), and RoPE reads a longer text.",
    needs: ["rope"],
    show(rope) {
      const n = 33, factor = 16;
      const trained = upTo(n).map((distance) => againstItself(rope, distance)), divided = upTo(n).map((distance) => againstItself(rope, distance, (place) => place / factor));
      const fall = (/** @type {number[]} */ scores) => scores[0] - scores[1];
      return {
        said: `Then all angles occurred in training, but neighbours are harder to distinguish: the score of “${WORD}” for the “${WORD}” before it is ${shown(fall(trained))} below that for itself as trained, and ${shown(fall(divided))} with positions divided by ${factor}, ${shown(fall(trained) / fall(divided))} times less.`,
        lines: { title: `Score of “${WORD}” for “${WORD}”`, about: `positions as trained, and divided by ${factor}.`, x: { label: "distance" }, y: { label: "score" },
          series: [{ name: "as trained", xs: upTo(n), ys: trained }, { name: `PI, ${factor} times as long`, xs: upTo(n), ys: divided }] },
        open: { view: "story", scene: 4, seen: true, way: 1 },
      };
    },
  },
  {
    claim: "A position is a small number, so 16 bits are enough.",
    needs: ["rope"],
    show(rope) {
      const n = 385, start = 40_000, first = bfloat16(start);
      const same = upTo(start).filter((p) => p > start - 1000 && bfloat16(p) === first).length + upTo(1000).filter((p) => bfloat16(start + p) === first).length;
      const exact = upTo(n).map((distance) => againstItself(rope, distance, undefined, start));
      const rounded = upTo(n).map((distance) => againstItself(rope, distance, bfloat16, start));
      return {
        said: `Not in bfloat16, which has 8 significant bits: at ${integer(start)} its numbers are ${integer(bfloat16(start + 256) - first)} apart. ${same} words in a row have the same position, ${integer(first)}, and the same angle: the score of “${WORD}” for the one before it is ${shown(exact[1])}, but in bfloat16 ${shown(rounded[1])}, the score of a word for itself. posenc rejects positions in 16 bits.`,
        lines: { title: `Score of “${WORD}” for “${WORD}” at ${integer(start)}`, about: "exact positions, and positions rounded to bfloat16.", x: { label: "distance" }, y: { label: "score" },
          series: [{ name: "exact", xs: upTo(n), ys: exact }, { name: "bfloat16", xs: upTo(n), ys: rounded }] },
        open: { view: "rotation", names: ["rope"], at: 512 },
      };
    },
  },
  {
    claim: "With ALiBi a model can attend to any distance.",
    needs: ["alibi"],
    show(alibi) {
      const heads = alibi.graph.heads, least = 0.01;
      const added = (/** @type {number} */ head, /** @type {number[]} */ places) => values(computed(alibi, stand(places), {}, ["scores"], { q: new Float64Array(places.length * alibi.graph.dim) }, head).scores);
      const share = (/** @type {number} */ head, /** @type {number} */ distance) => Math.exp(added(head, [0, distance])[2]);
      const windows = upTo(heads).map((head) => {
        let [inside, outside] = [0, 1];
        while (share(head, outside) >= least) [inside, outside] = [outside, 2 * outside];
        while (outside - inside > 1) {
          const middle = (inside + outside) >> 1;
          if (share(head, middle) >= least) inside = middle;
          else outside = middle;
        }
        return inside;
      });
      const places = upTo(97).map((step) => 10 * step), n = places.length;
      return {
        said: `In practice each head has a window. A far key gets at most ${percent(least)} of the attention of an equal key at the query's own position, if it is farther than ${windows.slice(0, -1).map(integer).join(", ")} and ${integer(windows[heads - 1])} tokens in the ${heads} heads of this page. Only a key with a much higher score is seen from farther away.`,
        lines: { title: "Attention by distance", about: "to a key, relative to an equal key at distance 0.", x: { label: "distance" }, y: { label: "share" },
          series: upTo(heads).map((head) => ({ name: `head ${head}`, xs: places, ys: places.map((_, at) => Math.exp(added(head, places)[at * n])) })) },
        open: { view: "encoding", names: ["alibi"], n: 128 },
      };
    },
  },
  {
    claim: "Distance is the number of words between.",
    needs: ["fox", "alibi"],
    show(fox, alibi) {
      const cut = interrupted(DOGS), n = DOGS.length, last = (n - 1) * n;
      const each = (/** @type {Encoding} */ encoding) => [DOGS, cut.words].map((words) => addedScores(encoding, words, PLAIN).values);
      const [before, after] = each(fox), [still, unmoved] = each(alibi);
      const outside = (/** @type {number} */ at) => Math.floor(at / n) !== cut.at && at % n !== cut.at;
      const change = before.map((value, at) => (Number.isFinite(value) && outside(at) ? after[at] - value : -Infinity));
      return {
        said: `It can also depend on the words themselves. Replace “${DOGS[cut.at]}” by a full stop: FoX, in which each word closes a gate on earlier words, first adds ${shown(before[last])} to the score of the last word for the first, and then ${shown(after[last])}. ALiBi adds ${shown(still[last])} and ${shown(unmoved[last])}. FoX here is untrained; training decides which words close the gate.`,
        heat: { title: `“${DOGS[cut.at]}” becomes “.”`, about: "change of the number that FoX adds to each score.", row: { ...QUERY_AXIS, label: "query", names: DOGS }, column: { ...KEY_AXIS, label: "key", names: DOGS }, rows: n, columns: n, values: change },
        open: { view: "encoding", names: ["fox"] },
      };
    },
  },
];

/** @param {App} app @returns {View} */
export function tourView(app) {
  const count = html("p", { class: "soft stop-count" }), claim = html("h2", { tabindex: -1 }), said = html("p", { class: "said" });
  const map = heatMap(app.desk), other = heatMap(app.desk), plot = linePlot(app.desk), trouble = html("div");
  const further = html("a", {}, "Open it in its view");
  const go = (/** @type {number} */ to) => {
    if (to < 1 || to > STOPS.length) return;
    app.set({ stop: to });
    claim.focus({ preventScroll: true });
  };
  const back = button("Back", () => go(app.now().stop - 1)), next = button("Next", () => go(app.now().stop + 1), { class: "main" });
  const all = html("ol", { class: "stops" }, ...STOPS.map((stop, n) => html("li", {}, html("a", { "data-stop": n + 1 }, stop.claim))));
  const element = html("div", { class: "tour" }, count, claim,
    html("p", { class: "soft" }, "This claim is often repeated. The result of this page:"), said,
    html("div", { class: "controls" }, html("div", { class: "files" }, back, next), further, html("span", { class: "soft keys" }, "Space: next")),
    trouble, html("div", { class: "figures" }, map.element, other.element, plot.element), html("details", {}, html("summary", {}, `All ${STOPS.length} stops`), all));
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (!element.isConnected) return removeEventListener("keydown", press);
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key !== " " || target.closest("button, a, input, select, summary, [role=application]")) return;
    event.preventDefault();
    go(app.now().stop + (event.shiftKey ? -1 : 1));
  };
  addEventListener("keydown", press);

  return {
    element,
    update(state) {
      const stop = STOPS[state.stop - 1];
      count.textContent = `Stop ${state.stop} of ${STOPS.length}`;
      claim.textContent = `“${stop.claim}”`;
      back.disabled = state.stop === 1;
      next.disabled = state.stop === STOPS.length;
      for (const link of all.querySelectorAll("a")) {
        link.href = toHash({ ...state, stop: Number(link.dataset.stop) });
        link.toggleAttribute("aria-current", Number(link.dataset.stop) === state.stop);
      }
      trouble.replaceChildren();
      try {
        const needed = stop.needs.map((name) => {
          const encoding = app.find(name);
          if (!encoding) throw new Error(`the encoding “${name}” is not in this page.`);
          return encoding;
        });
        const shown = remembered(["tour", state.stop], () => stop.show(...needed));
        said.textContent = shown.said;
        further.href = toHash({ ...FIRST, embed: state.embed, ...shown.open });
        map.element.hidden = !shown.heat;
        other.element.hidden = !shown.second;
        plot.element.hidden = !shown.lines;
        if (shown.heat) map.draw(shown.heat, { i: state.i, j: state.j });
        if (shown.second) other.draw(shown.second, { i: state.i, j: state.j });
        if (shown.lines) plot.draw(shown.lines, { i: state.i, j: state.j });
      } catch (error) {
        trouble.append(instead(reason(error)));
      }
    },
  };
}
