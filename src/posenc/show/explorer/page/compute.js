// Computations for the views: the graphs of the encodings, run on seeded vectors.

import { problem, read, run, tensor, values } from "../interpreter.js";

/** @import {Tensor} from "../interpreter.js" */
/** @import {Encoding, Slider} from "./data.js" */

// ---- seeded numbers

/** @param {string} text @returns {number} its 32-bit FNV-1a hash */
export function seedOf(text) {
  let hash = 0x811c9dc5;
  for (let n = 0; n < text.length; n++) hash = Math.imul(hash ^ text.charCodeAt(n), 0x01000193);
  return hash >>> 0;
}

/** @param {number} seed @returns {() => number} even numbers from 0 to 1: mulberry32 */
export function uniform(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** @param {number} seed @param {number} count @returns {Float64Array} standard normal numbers */
export function normals(seed, count) {
  const [next, out] = [uniform(seed), new Float64Array(count)];
  for (let n = 0; n < count; n += 2) {
    const [radius, angle] = [Math.sqrt(-2 * Math.log(1 - next())), 2 * Math.PI * next()];
    out[n] = radius * Math.cos(angle);
    if (n + 1 < count) out[n + 1] = radius * Math.sin(angle);
  }
  return out;
}

/** @param {string} word @param {number} width @param {number} [seed] */
export const vectorOf = (word, width, seed = 0) => normals(seedOf(word) ^ seed, width);

/** @param {number} count @param {number} seed @returns {number[]} the numbers below `count`, shuffled */
export function shuffled(count, seed) {
  const [next, order] = [uniform(seed), Array.from({ length: count }, (_, n) => n)];
  for (let n = count - 1; n > 0; n--) {
    const m = Math.floor(next() * (n + 1));
    [order[n], order[m]] = [order[m], order[n]];
  }
  return order;
}

const RECENT = 24; // results that are kept
/** @type {Map<string, any>} */
const recent = new Map();

/**
 * Returns the cached result for an equal key, so that moving the cursor computes nothing.
 * @template T
 * @param {any[]} key all values on which the result depends @param {() => T} compute
 * @returns {T} the same object each time
 */
export function remembered(key, compute) {
  const name = JSON.stringify(key);
  const result = recent.get(name) ?? compute();
  recent.delete(name);
  recent.set(name, result); // the latest is last
  if (recent.size > RECENT) recent.delete(recent.keys().next().value ?? "");
  return result;
}

// ---- kinds

/** @param {Encoding} encoding @param {string} output */
const makes = (encoding, output) => output in (encoding.graph.outputs ?? {});
/** @param {Encoding} encoding */
export const adds = (encoding) => makes(encoding, "embedded");
/** @param {Encoding} encoding */
export const turns = (encoding) => makes(encoding, "q");
/** @param {Encoding} encoding */
export const biases = (encoding) => makes(encoding, "bias");
/** @param {Encoding} encoding @returns {string} the reason why it cannot be shown, or "" */
export const obstacle = (encoding) => problem(encoding.graph);
/** @param {Encoding} encoding @returns {number} heads to compute: one, if all are equal */
export const headsOf = (encoding) => adds(encoding) ? 1 : Number(encoding.graph.inputs?.q?.[1] ?? 1);

/** @type {Map<string, Encoding>} */
const sizes = new Map();

/** @param {Encoding} encoding @returns {number[]} the channels of a head that there are graphs for */
export const dimsOf = (encoding) => [...Object.keys(encoding.wider ?? {}).map(Number), encoding.graph.dim].sort((a, b) => a - b);

/** @param {Encoding} encoding @param {number} dim @returns {Encoding} with `dim` channels in a head, without sliders; unchanged if it has no graph for them */
export function sized(encoding, dim) {
  const graph = (encoding.wider ?? {})[dim], slug = `${encoding.slug}, ${dim} channels`;
  if (!graph) return encoding;
  const made = sizes.get(slug) ?? { ...encoding, slug, graph, sliders: {} };
  sizes.set(slug, made);
  return made;
}

/** @param {string} text "0, 1, 10" @param {number} columns @returns {number[]} the channels in the text, or the first four */
export function channelsOf(text, columns) {
  const named = (text.match(/\d+/g) ?? []).map(Number).filter((channel) => channel < columns);
  return (named.length ? [...new Set(named)] : [0, 1, 10, 11]).filter((channel) => channel < columns).slice(0, MOST_CHANNELS);
}
const MOST_CHANNELS = 6;

// ---- inputs

/** @param {number} n @param {number} axes @param {number} axis @param {number} [start] @returns {Tensor} one axis advances */
export function walk(n, axes = 1, axis = 0, start = 0) {
  if (axes === 1) return tensor([n], Float64Array.from({ length: n }, (_, p) => start + p), "int64");
  const out = new Float64Array(n * axes);
  for (let p = 0; p < n; p++) out[p * axes + Math.min(axis, axes - 1)] = start + p;
  return tensor([n, axes], out, "int64");
}

/** @param {ArrayLike<number>} places @param {number} axes @param {number} [axis] @returns {Tensor} */
export function stand(places, axes = 1, axis = 0) {
  if (axes === 1) return tensor([places.length], Float64Array.from(places));
  const out = new Float64Array(places.length * axes);
  for (let p = 0; p < places.length; p++) out[p * axes + Math.min(axis, axes - 1)] = places[p];
  return tensor([places.length, axes], out);
}

/** @param {number[][]} places of each token, on each axis @returns {Tensor} */
export const points = (places) => tensor([places.length, places[0].length], Float64Array.from(places.flat()));

/** @param {Float64Array} vector @param {number} n @returns {Float64Array} the vector n times, one below the other */
export function repeated(vector, n) {
  const out = new Float64Array(vector.length * n);
  for (let p = 0; p < n; p++) out.set(vector, p * vector.length);
  return out;
}

/** @param {Float64Array} rows (token, channel) @param {number} heads @param {number} n @returns {Tensor} the same for each head */
function forHeads(rows, heads, n) {
  return tensor([1, heads, n, rows.length / n], heads > 1 ? repeated(rows, heads) : rows);
}

/** @param {Encoding} encoding @param {Object<string, number>} options @returns {Object<string, Tensor>} constants that a slider changes */
function movedConstants(encoding, options) {
  /** @type {Object<string, Tensor>} */
  const constants = {};
  for (const [name, slider] of Object.entries(slidersOf(encoding))) {
    const step = stepOf(slider, options[name]);
    if (step === slider.at) continue;
    for (const [constant, steps] of Object.entries(slider.constants)) constants[constant] = read(steps[step]);
  }
  return constants;
}

/** @param {Encoding} encoding @returns {Object<string, Slider>} */
export const slidersOf = (encoding) => encoding.sliders ?? {};

/** @param {Slider} slider @param {number | undefined} value @returns {number} the step that is nearest to it */
export function stepOf(slider, value) {
  if (value === undefined) return slider.at;
  let best = 0;
  slider.values.forEach((setting, step) => {
    if (Math.abs(setting - value) < Math.abs(slider.values[best] - value)) best = step;
  });
  return best;
}

// ---- pictures

/** @typedef {{rows: number, columns: number, values: Float64Array}} Grid row by row */

/** @param {Tensor} x (1, …, 1, n, m) @returns {Grid} */
function grid(x) {
  const [n, m] = x.shape.slice(-2);
  return { rows: n, columns: m, values: values(x) };
}

/**
 * @param {Encoding} encoding
 * @param {Tensor} pos
 * @param {Object<string, number>} options
 * @param {string[]} wanted
 * @param {{q?: Float64Array, k?: Float64Array, x?: Float64Array, hidden?: Float64Array}} [content] (token, channel)
 * @param {number} [head] beyond the last one: the first
 */
export function computed(encoding, pos, options, wanted, content = {}, head = 0) {
  const { dim, width, inputs } = encoding.graph;
  const n = pos.shape[0];
  const heads = Number(inputs.q?.[1] ?? 1);
  const q = content.q ?? repeated(normals(1, dim), n);
  /** @type {Object<string, Tensor>} */
  const tensors = { pos, ...movedConstants(encoding, options) };
  tensors.q = forHeads(q, heads, n);
  tensors.k = content.k ? forHeads(content.k, heads, n) : tensors.q;
  tensors.head = tensor([1], [head < heads ? head : 0], "int64");
  if (inputs.x) tensors.x = tensor([1, n, width], content.x ?? new Float64Array(n * width));
  if (inputs.hidden) tensors.hidden = tensor([1, n, width], content.hidden ?? repeated(normals(2, width), n));
  return run(encoding.graph, tensors, wanted);
}

/** @param {Encoding} encoding @param {Tensor} pos @param {Object<string, number>} options @returns {Grid} the row added at each position */
export const rowsOf = (encoding, pos, options) => grid(computed(encoding, pos, options, ["embedded"]).embedded);

/** @param {Encoding} encoding @param {Tensor} pos @param {Object<string, number>} options @param {number} head @param {Float64Array} [vector] */
export function turnedOf(encoding, pos, options, head, vector = new Float64Array(encoding.graph.dim).fill(1)) {
  const q = repeated(vector, pos.shape[0]);
  return grid(computed(encoding, pos, options, ["q"], { q }, head).q);
}

/** @param {Grid} rows @returns {Grid} dot product of each pair of rows, by √columns */
export function dots({ rows, columns, values: all }) {
  const out = new Float64Array(rows * rows);
  const scale = 1 / Math.sqrt(columns);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let c = 0; c < columns; c++) sum += all[i * columns + c] * all[j * columns + c];
      out[i * rows + j] = out[j * rows + i] = sum * scale;
    }
  }
  return { rows, columns: rows, values: out };
}

/** @typedef {{offsets: number[], mean: number[], low: number[], high: number[]}} ByOffset */

/** @param {Grid} scores @returns {ByOffset} over all pairs at each offset, query − key */
export function byOffset({ rows: n, values: all }) {
  /** @type {ByOffset} */
  const out = { offsets: [], mean: [], low: [], high: [] };
  for (let offset = 1 - n; offset < n; offset++) {
    let [sum, low, high, count] = [0, Infinity, -Infinity, 0];
    for (let i = Math.max(0, offset); i < Math.min(n, n + offset); i++) {
      const value = all[i * n + i - offset];
      if (value === -Infinity) continue;
      sum += value;
      count += 1;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (!count) continue;
    out.offsets.push(offset);
    out.mean.push(sum / count);
    out.low.push(low);
    out.high.push(high);
  }
  return out;
}

/** @param {Grid} scores @param {boolean} [causal] later keys are hidden @returns {Grid} the softmax of each row */
export function softmax({ rows: n, columns: m, values: all }, causal = false) {
  const out = new Float64Array(n * m);
  for (let i = 0; i < n; i++) {
    const end = causal ? Math.min(m, i + 1) : m;
    let most = -Infinity;
    for (let j = 0; j < end; j++) most = Math.max(most, all[i * m + j]);
    let sum = 0;
    for (let j = 0; j < end; j++) sum += out[i * m + j] = Math.exp(all[i * m + j] - most);
    for (let j = 0; j < end; j++) out[i * m + j] /= sum;
  }
  return { rows: n, columns: m, values: out };
}

/** @param {Grid} weights @param {Grid} x @returns {Grid} the output of attention for each token */
export function mixed(weights, x) {
  const out = new Float64Array(weights.rows * x.columns);
  for (let i = 0; i < weights.rows; i++) {
    for (let j = 0; j < x.rows; j++) {
      const share = weights.values[i * x.rows + j];
      if (!share) continue;
      for (let c = 0; c < x.columns; c++) out[i * x.columns + c] += share * x.values[j * x.columns + c];
    }
  }
  return { rows: weights.rows, columns: x.columns, values: out };
}

/** @param {Grid} a @param {number} i @param {Grid} b @param {number} j @returns {number} the largest difference of two rows */
export function apart(a, i, b, j) {
  let most = 0;
  for (let c = 0; c < a.columns; c++) {
    most = Math.max(most, Math.abs(a.values[i * a.columns + c] - b.values[j * b.columns + c]));
  }
  return most;
}

// ---- rotation

/**
 * Computes the angle of each pair of a query at each position.
 * @param {Encoding} encoding @param {Turning} turning @param {Tensor} pos @param {Object<string, number>} options
 * @returns {Grid} radians, −π to π
 */
export function anglesOf(encoding, { pairs }, pos, options) {
  const { dim } = encoding.graph, n = pos.shape[0];
  const vector = new Float64Array(dim);
  for (const [first] of pairs) vector[first] = 1;
  const q = values(computed(encoding, pos, options, ["q"], { q: repeated(vector, n) }).q);
  const out = new Float64Array(n * pairs.length);
  for (let p = 0; p < n; p++) {
    pairs.forEach(([a, b], at) => (out[p * pairs.length + at] = Math.atan2(q[p * dim + b], q[p * dim + a])));
  }
  return { rows: n, columns: pairs.length, values: out };
}

/** @typedef {{pairs: [number, number][], speeds: number[]}} Turning channels of each pair, and radians a position */

/**
 * Finds the pairs of channels that an encoding rotates, from its effect on each channel at positions 0 and 1.
 * @param {Encoding} encoding
 * @param {Object<string, number>} options
 * @param {number} axis
 * @returns {Turning | null} where it turns no pairs
 */
export function turningOf(encoding, options, axis) {
  if (!turns(encoding)) return null;
  const { dim, axes } = encoding.graph;
  const q = new Float64Array(dim * dim);
  for (let c = 0; c < dim; c++) q[c * dim + c] = 1; // token c holds channel c
  const at = (/** @type {number} */ place) =>
    grid(computed(encoding, stand(new Float64Array(dim).fill(place), axes, axis), options, ["q"], { q }).q).values;
  const [before, after] = [at(0), at(1)];
  const TINY = 1e-9;
  const partner = new Array(dim).fill(-1);
  for (let c = 0; c < dim; c++) {
    for (let o = 0; o < dim; o++) {
      if (o !== c && Math.abs(before[c * dim + o]) > TINY) return null; // turned at position 0 already
      if (o === c || Math.abs(after[c * dim + o]) < TINY) continue;
      if (partner[c] >= 0) return null;
      partner[c] = o;
    }
  }
  /** @type {Turning} */
  const turning = { pairs: [], speeds: [] };
  const half = partner.some((o, c) => o - c === dim / 2 && dim > 2);
  for (let p = 0; p < dim / 2; p++) {
    const [a, b] = half ? [p, p + dim / 2] : [2 * p, 2 * p + 1];
    if ((partner[a] >= 0 && partner[a] !== b) || (partner[b] >= 0 && partner[b] !== a)) return null;
    turning.pairs.push([a, b]);
    turning.speeds.push(Math.atan2(after[a * dim + b], after[a * dim + a]));
  }
  return turning;
}
