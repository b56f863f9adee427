// One head of attention on words with seeded vectors, without an encoding and with it.

import { values } from "../interpreter.js";
import { adds, apart, biases, computed, mixed, normals, remembered, softmax, stand, vectorOf, walk } from "./compute.js";

/** @import {Tensor} from "../interpreter.js" */
/** @import {Grid} from "./compute.js" */
/** @import {Encoding, Vectors} from "./data.js" */
/** @import {State} from "./state.js" */

/**
 * @typedef {{name: string, grid: Grid}} Term a part of the scores
 * @typedef {{scores: Grid, without: Grid, with: Grid, terms: Term[],
 *   outWithout: Grid, outWith: Grid}} Attention
 */

/** @param {number} from @param {number} to @param {number} seed @returns {Grid} a seeded projection */
function projection(from, to, seed) {
  const scale = 1 / Math.sqrt(from);
  return { rows: from, columns: to, values: normals(seed, from * to).map((number) => number * scale) };
}

/** @param {Grid} a @param {Grid} b @returns {Grid} scores of rows against rows, by √channels */
function against(a, b) {
  const out = new Float64Array(a.rows * b.rows), scale = 1 / Math.sqrt(a.columns);
  for (let i = 0; i < a.rows; i++) {
    for (let j = 0; j < b.rows; j++) {
      let sum = 0;
      for (let c = 0; c < a.columns; c++) sum += a.values[i * a.columns + c] * b.values[j * a.columns + c];
      out[i * b.rows + j] = sum * scale;
    }
  }
  return { rows: a.rows, columns: b.rows, values: out };
}

/** @param {Grid} a @param {Grid} b @param {number} sign @returns {Grid} */
const plusGrid = (a, b, sign) => ({ ...a, values: a.values.map((value, n) => value + sign * b.values[n]) });

/** @typedef {{vectors: Map<string, Float64Array>, width: number}} Lexicon what a model's words are */

/** @param {Vectors} vectors @returns {Lexicon} */
export function lexiconOf({ words, width, scale, int8 }) {
  const steps = Int8Array.from(atob(int8), (byte) => byte.charCodeAt(0));
  const of = (/** @type {number} */ n) => Float64Array.from(steps.subarray(n * width, (n + 1) * width), (step) => step * scale);
  return { width, vectors: new Map(words.map((word, n) => [word, of(n)])) };
}

/** @param {string[]} words @param {number} width @param {Lexicon | null} lexicon @returns {Grid} their vectors: seeded, where the lexicon has none */
export function embedded(words, width, lexicon) {
  const rows = new Float64Array(words.length * width);
  const known = lexicon?.width === width ? lexicon.vectors : new Map();
  words.forEach((word, n) => rows.set(known.get(word) ?? vectorOf(word, width), n * width));
  return { rows: words.length, columns: width, values: rows };
}

/** @typedef {Pick<State, "options" | "head" | "axis">} Choice */

/**
 * Computes the query of one word and the key of another at two positions, as they enter the dot product.
 * @param {Encoding} encoding @param {[string, string]} words @param {[number, number]} places @param {Choice} state
 * @returns {{q: Float64Array, k: Float64Array, score: number}}
 */
export function pairAt(encoding, words, places, state) {
  const { dim, width, axes } = encoding.graph;
  const x = embedded(words, width, null);
  const [q, k] = [mixed(x, projection(width, dim, 11)), mixed(x, projection(width, dim, 12))];
  const out = computed(encoding, stand(places, axes, state.axis), state.options, ["q", "k", "scores"], { q: q.values, k: k.values, hidden: x.values });
  return { q: values(out.q).subarray(0, dim), k: values(out.k).subarray(dim, 2 * dim), score: values(out.scores)[1] };
}

/**
 * Computes the scores of words in their current order, and the terms of the scores.
 * @param {Encoding} encoding @param {string[]} words @param {Choice} state @param {Lexicon | null} [lexicon] none: all words are seeded
 * @param {Tensor} [pos] positions; one axis advances by default
 * @returns {{content: Grid, scores: Grid, terms: Term[], x: Grid, values: Grid}} `x` are the words; `values` are the words plus the added rows
 */
function scored(encoding, words, state, lexicon = null, pos = walk(words.length, encoding.graph.axes, state.axis)) {
  const { dim, width } = encoding.graph;
  const x = embedded(words, width, lexicon);
  const [toQ, toK] = [projection(width, dim, 11), projection(width, dim, 12)];
  const [q, k] = [mixed(x, toQ), mixed(x, toK)];
  const content = against(q, k);
  if (adds(encoding)) {
    const rows = computed(encoding, pos, state.options, ["embedded"]).embedded;
    const p = { rows: words.length, columns: width, values: values(rows) };
    const [pq, pk] = [mixed(p, toQ), mixed(p, toK)];
    const terms = [
      { name: "word · word", grid: content }, { name: "word · position", grid: against(q, pk) },
      { name: "position · word", grid: against(pq, k) }, { name: "position · position", grid: against(pq, pk) },
    ];
    const scores = terms.slice(1).reduce((sum, term) => plusGrid(sum, term.grid, 1), content);
    return { content, scores, terms, x, values: plusGrid(x, p, 1) };
  }
  const vectors = { q: q.values, k: k.values, hidden: x.values };
  const scores = { ...content, values: values(computed(encoding, pos, state.options, ["scores"], vectors, state.head).scores) };
  const terms = [{ name: "word · word", grid: content }];
  if (scores.values.some((v, n) => v !== content.values[n])) {
    terms.push({ name: biases(encoding) ? "what is added" : "what turning changes", grid: less(scores, content) });
  }
  return { content, scores, terms, x, values: x };
}

/** @param {Grid} a @param {Grid} b @returns {Grid} a − b; hidden values are hidden in the result */
const less = (a, b) => ({ ...a, values: a.values.map((value, n) => (Number.isFinite(value) ? value - b.values[n] : -Infinity)) });

/**
 * Computes the effect of an encoding on scores: scores with it minus scores of the same words without it.
 * @param {Encoding} encoding @param {string[]} words @param {Choice} state @param {Tensor} [pos] positions; one axis advances by default
 * @returns {Grid}
 */
export function addedScores(encoding, words, state, pos) {
  const { scores, content } = scored(encoding, words, state, null, pos);
  return less(scores, content);
}

export const WORD = "dog"; // the word at every position, in figures of one word with itself

/** @param {number} n @returns {string[]} */
export const oneWord = (n) => Array(n).fill(WORD);

/** @param {string[]} words three or more @returns {{at: number, words: string[]}} with a full stop for the word in the middle */
export function interrupted(words) {
  const at = words.length >> 1;
  return { at, words: words.map((word, n) => (n === at ? "." : word)) };
}

/** @param {Encoding} encoding @returns {boolean} true if a word between two others changes its addition to their score */
export function reads(encoding) {
  return remembered(["reads", encoding.slug], () => {
    const words = ["the", "old", "dog", "chased"], last = words.length * (words.length - 1);
    const state = { options: {}, head: 0, axis: 0 };
    const [before, after] = [words, interrupted(words).words].map((each) => addedScores(encoding, each, state).values[last]);
    return { moved: Math.abs(before - after) > 1e-9 };
  }).moved;
}

/**
 * @param {Encoding} encoding
 * @param {string[]} words in their current order
 * @param {Choice & {causal: boolean}} state
 * @param {Lexicon | null} [lexicon] none: all words are seeded
 * @param {Tensor} [pos] positions; one axis advances by default
 * @returns {Attention}
 */
export function attention(encoding, words, state, lexicon = null, pos) {
  const { content, scores, terms, x, values: valuesWith } = scored(encoding, words, state, lexicon, pos);
  const causal = state.causal || encoding.graph.causal;
  const [without, weights] = [softmax(content, causal), softmax(scores, causal)];
  return {
    scores, without, with: weights, terms,
    outWithout: mixed(without, x), outWith: mixed(weights, valuesWith),
  };
}

/** @param {string[]} words @returns {number[][]} positions of each repeated word */
export function twins(words) {
  /** @type {Map<string, number[]>} */
  const places = new Map();
  words.forEach((word, n) => places.set(word, [...(places.get(word) ?? []), n]));
  return [...places.values()].filter((each) => each.length > 1);
}

/**
 * Computes the largest change of any word's output when the order of the words changes.
 * @param {Grid} before in the order typed @param {Grid} after @param {number[]} order where each came from
 */
export const changed = (before, after, order) =>
  Math.max(...order.map((from, to) => apart(before, from, after, to)));
