// The data that Python wrote into the page: see data.py, models.py, graphs.py and sliders.py.

/** @import {Graph, Numbers} from "../interpreter.js" */

/**
 * @typedef {{values: number[], at: number, marked: number[], constants: Object<string, Numbers[]>}} Slider
 * @typedef {Graph & {slug: string, dim: number, heads: number, width: number, axes: number,
 *   causal: boolean, seed: number, learns: boolean, options: Object<string, any>}} Program
 * @typedef {{holds: boolean | null, why: string}} Measured
 * @typedef {{tokens: number, operations: number, numbers: number, memory: number, grows: number}} Cost
 * @typedef {{key: string, short: string, title: string, year: number, link: string, bibtex: string}} Paper
 * @typedef {{prose: string, formula: string[][]}} Block
 * @typedef {{slug: string, name: string, family: string, acts_on: string[], axes: number,
 *   summary: string, text: Block[], paper: Paper | null, graph: Program, wider: Object<string, Program>, sliders: Object<string, Slider>, parameters: number,
 *   cost: Cost | null, causal: boolean, properties: Object<string, Measured>, command: string, shell: string,
 *   options: {name: string, default: any, type: string}[]}} Encoding
 * @typedef {{slower: number[], gain: number}} Extended
 * @typedef {{turned: number, dim: number, base: number, method: string, trained: number | null, declared: number | null,
 *   theta: Numbers, slower: number[], gain: number, unfinished: number, sentences: string[],
 *   extended: {factor: number, target: number, methods: Object<string, Extended>}[]}} Rotation
 * @typedef {{target: number, verdict: string, problems: string[], unknown: string[],
 *   advice: string[]}} Outlook
 * @typedef {{name: string, own: boolean, published: boolean, facts: string, embedding: string, context: number | null,
 *   trained: number | null, notes: string[], outlooks: Outlook[],
 *   layers: {layers: string, does: string, window: number | null, turning: string | null}[]}} Model
 * @typedef {{use: string, answer: string, because: string, basis: string, does: string, measured: string, unknown: string}} Use
 * @typedef {{model: string, base: number, trained: number, target: number, ways: {name: string, year: string, theta: number[]}[]}} Growth
 * @typedef {Object<number, number[]>} Curve by length, a number for each seed
 * @typedef {{study: string, trained: number, seeds: number, layers: number, width: number, steps: number, rates: number[],
 *   rows: {encoding: string, curve: Curve}[]}} Outcomes
 * @typedef {{growth: Growth, short: Outcomes, guide: Use[]}} Story
 * @typedef {{model: string, words: string[], width: number, of: number, share: number, scale: number, int8: string}} Vectors
 * @typedef {{schema: number, version: string, command: string, seed: number, dim: number,
 *   heads: number, families: Object<string, string>,
 *   properties: {name: string, label: string, meaning: string}[],
 *   encodings: Encoding[], first: string[], begin: string, story: Story, models: Model[],
 *   turnings: Object<string, Rotation>, words: Vectors | null, study: any, notes: string[], missing: string[]}} Data
 */

export const SCHEMA = 1;

/** @param {string} json packed, see packing.py @returns {Data} the data of the page */
export function readData(json) {
  const { lists, page } = JSON.parse(json);
  /** @type {any[]} */
  const whole = [];
  /** @param {any} value @returns {any} the value with a list in place of each reference to it */
  function unpacked(value) {
    if (value === null || typeof value !== "object") return value;
    if (Object.hasOwn(value, "$list")) return whole[value.$list];
    for (const [key, inner] of Object.entries(value)) value[key] = unpacked(inner);
    return value;
  }
  for (const list of lists) whole.push(unpacked(list));
  const data = unpacked(page);
  if (data.schema !== SCHEMA) throw new Error(`the data of this page are of schema ${data.schema}, not ${SCHEMA}.`);
  return data;
}
