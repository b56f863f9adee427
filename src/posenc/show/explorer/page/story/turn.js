// The scene "Turn": the hands of a query and a key on eight clocks, which add up to the score.

import { needed } from "../app.js";
import { angleOf, partOf } from "../clocks.js";
import { turningOf } from "../compute.js";
import { html, svg } from "../dom.js";
import { pairAt } from "../layer.js";
import { integer, shown } from "../words.js";
import { addHandle, between, box, clamp, dot, line, makePlate, write } from "./scene.js";

/** @import {App} from "../app.js" */
/** @import {Moment, Scene} from "./scene.js" */

/** The query and the key. @type {[string, string]} */
const BOTH = ["dog", "old"];
const ON = 37, FARTHEST = 64; // how far both words move, and the last place
const FROM = 12, APART = 3;

/** @param {number} x @returns {string} "+0.12" */
const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(2)}`;

/** @param {number} x @returns {string} "−0.60" */
const two = (x) => x.toFixed(2).replace("-", "−");

/** @param {App} app @param {() => Moment} now @param {(guess: number) => void} guessed @param {() => void} check @returns {Scene} */
export function turn(app, now, guessed, check) {
  const rope = needed(app, "rope"), turning = turningOf(rope, {}, 0);
  if (!turning) throw new Error("RoPE turns no pairs in this page.");
  const at = (/** @type {number} */ query, /** @type {number} */ key) => pairAt(rope, BOTH, [query, key], { options: {}, head: 0, axis: 0 });
  const first = at(FROM, FROM - APART), most = Math.max(...turning.pairs.flatMap(([a, b]) => [first.q, first.k].map((v) => Math.hypot(v[a], v[b]))));
  /** @param {Moment} moment @returns {{query: number, key: number, free: boolean}} */
  const places = ({ state, seen, film }) => {
    const free = seen && (state.at !== FROM || state.apart !== APART);
    const query = free ? clamp(state.at, 0, FARTHEST) : FROM + (seen ? ON * film : 0);
    return { query, key: free ? clamp(state.at - state.apart, 0, FARTHEST) : query - APART, free };
  };
  const sums = turning.pairs.map((_, j) => turning.pairs.slice(0, j + 1).reduce((sum, one) => sum + partOf(first.q, first.k, one), 0));
  const scale = Math.max(1, ...sums.map(Math.abs)), plate = makePlate({ low: 330, tall: 660, below: 96 });
  const area = { x: (/** @type {number} */ p) => p, wide: 1, road: 1, bar: 1, zero: 1, unit: 1 };
  const scene = {
    name: "Turn", title: "So do not add. Turn.", notes: [9, 11], seconds: 2.4,
    lead: ["RoPE (2021) adds nothing. It cuts a word’s values into pairs and makes each pair the ", html("em", {}, "hand of a clock"), ". Each place turns the hands on: fast clocks, slow clocks."],
    question: `Both words move ${ON} places on. What happens to their score?`,
    guess: {
      label: "Score after both words have moved", low: -Math.ceil(10 * scale) / 10, high: Math.ceil(10 * scale) / 10, step: 0.1, first: 0,
      said: (/** @type {number} */ v) => (Math.abs(v - first.score) <= 0.12 ? `it stays (${two(v)})` : `it ${v < first.score ? "falls" : "rises"} to ${two(v)}`),
      right: (/** @type {number} */ v) => Math.abs(v - first.score) <= 0.12,
    },
    ends: /** @type {[string, string]} */ ([`at ${FROM}`, `at ${FROM + ON}`]),
    leads: /** @type {[string, string]} */ (["But", "what if the text gets longer than any the model was trained on?"]),
    formula: "⟨R(p) q, R(r) k⟩ = ⟨R(p − r) q, k⟩\nR(p) turns pair j by p θⱼ,  θⱼ = 10000^(−2j/d)",
    code: 'posenc.SelfAttention(512, heads=8, encoding="rope")',
    figure: plate.element,
    free: (/** @type {import("../state.js").State} */ state) => state.at !== FROM || state.apart !== APART,
    /** @param {Moment} moment */
    answer(moment) {
      const { query, key, free } = places(moment), { score } = at(query, key), gap = query - key;
      if (!free) return ["It stays at ", html("em", {}, two(first.score)), ". Both hands of a clock turn by the same angle, so the angle between them stays: only the ", html("em", {}, "distance"), " counts. Now drag one of the two words."];
      if (gap === APART) return [`Still ${APART} apart: `, html("em", {}, two(score)), ", at all positions."];
      return [`Now “${BOTH[0]}” is ${integer(Math.abs(gap))} ${gap < 0 ? "before" : "after"} “${BOTH[1]}”. The angles between the hands have changed, and the score is `, html("em", {}, two(score)), "."];
    },
    /** @param {Moment} moment */
    draw(moment) {
      const { guess, touched, seen, film } = moment, { query, key, free } = places(moment), pair = at(query, key);
      const parts = turning.pairs.map((one) => partOf(pair.q, pair.k, one));
      plate.show(`Eight clocks with the hands of ${BOTH[0]} at ${Math.round(query)} and ${BOTH[1]} at ${Math.round(key)}; the clocks add up to a score of ${two(pair.score)}`, (w, h, narrow) => {
        const road = narrow ? 18 : 22, x = (/** @type {number} */ p) => 34 + (p / FARTHEST) * (w - 68);
        const foot = narrow ? 128 : clamp(h * 0.31, 160, 215), top = road + 36, cell = w / 4, rows = (h - foot - top) / 2;
        const radius = Math.min(cell / 2 - (narrow ? 7 : 14), (rows - (narrow ? 18 : 26)) / 2);
        const out = [line([[x(0), road], [x(FARTHEST), road]], { class: "grid thick" })];
        for (let p = 0; p <= FARTHEST; p += 8) out.push(line([[x(p), road - 4], [x(p), road + 4]], { class: "grid" }), write(x(p), road + 28, p, { class: "t small middle" }));
        out.push(line([[x(key), road], [x(query), road]], { class: "inkline thick" }));
        for (const [place, name, kind, side] of /** @type {[number, string, string, number][]} */ ([[key, BOTH[1], "high", -1], [query, BOTH[0], "low", 1]])) {
          const wide = 16 + 8.4 * name.length, from = x(place) + (side < 0 ? 4 - wide : -4);
          out.push(box(from, road - 13, wide, 26, { rx: 7, class: kind }), write(from + wide / 2, road + 5, name, { class: `n small middle on${kind}` }));
        }
        turning.pairs.forEach((one, j) => {
          const cx = ((j % 4) + 0.5) * cell, cy = top + (j >> 2) * rows + radius + 4, period = (2 * Math.PI) / Math.abs(turning.speeds[j]);
          const hand = (/** @type {Float64Array} */ v, /** @type {string} */ kind) => {
            const angle = angleOf(v, one), long = (radius * 0.92 * Math.hypot(v[one[0]], v[one[1]])) / most;
            return svg("line", { x1: cx.toFixed(1), y1: cy.toFixed(1), x2: (cx + long * Math.cos(angle)).toFixed(1), y2: (cy - long * Math.sin(angle)).toFixed(1), class: `hand ${kind}` });
          };
          const [a, b] = [angleOf(pair.q, one), angleOf(pair.k, one)], gap = Math.atan2(Math.sin(a - b), Math.cos(a - b)), r = radius * 0.45;
          const clock = svg("g", {}, svg("title", {}, `Clock ${j + 1}: one turn in ${shown(period)} places; it adds ${signed(parts[j])}`),
            dot(cx, cy, radius, { class: "dial" }),
            svg("path", { class: "wedge", d: `M${cx} ${cy}L${cx + r * Math.cos(b)} ${cy - r * Math.sin(b)}A${r} ${r} 0 0 ${gap > 0 ? 0 : 1} ${cx + r * Math.cos(a)} ${cy - r * Math.sin(a)}Z` }),
            hand(pair.k, "key"), hand(pair.q, "query"), dot(cx, cy, 3.5, { class: "ink" }));
          out.push(clock, write(cx, cy + radius + (narrow ? 14 : 18), `${j || narrow ? "" : "one turn in "}${period < 10 ? shown(period, 2) : integer(period)}${j || narrow ? "" : " places"}`, { class: "t small middle" }));
        });
        // A bar for each clock begins where the one before it ended, so that the last one ends at the score.
        const unit = (foot - 66) / (2 * scale), zero = h - 26 - (foot - 66) / 2, right = w * 0.3, part = (w - right) / parts.length;
        out.push(line([[0, zero], [w, zero]], { class: "grid" }), write(2, h - foot + 14, narrow ? "each clock adds its part" : "each clock adds its part: hands alike, up; hands opposite, down", { class: "t small" }), write(w - right + 12, h - foot + 14, "score", { class: "t small" }));
        let sum = 0;
        parts.forEach((value, j) => {
          const from = zero - sum * unit, left = j * part + part * 0.16;
          sum += value;
          out.push(box(left, from, part * 0.68, -value * unit, { rx: 2, class: "soft" }), line([[left, zero - sum * unit], [left + part, zero - sum * unit]], { class: "softline" }));
          if (!narrow) out.push(write(left + part * 0.34, Math.min(from, zero - sum * unit) - 5, signed(value), { class: "t small middle" }));
        });
        const wide = Math.min(76, right * 0.36), before = w - right + 12, after = w - wide - (narrow ? 4 : 26);
        const height = (/** @type {number} */ value) => (value < 0 ? zero - value * unit + 18 : zero - value * unit - 7);
        out.push(box(before, zero, wide, -first.score * unit, { rx: 3, class: "ink" }), write(before + wide / 2, height(first.score), two(first.score), { class: "n middle" }));
        const reached = free ? pair.score : between(touched ? guess : pair.score, pair.score, Math.min(1, 4 * film));
        if (seen) out.push(box(after, zero, wide, -reached * unit, { rx: 3, class: "low" }), write(after + wide / 2, height(reached), two(reached), { class: "n middle" }));
        if (!seen || (touched && !free)) out.push(box(after, zero, wide, -guess * unit, { rx: 3, class: "thought" }));
        if (!seen) out.push(write(after + wide / 2, zero - guess * unit - 22, touched ? two(guess) : "?", { class: "n middle" }));
        out.push(write(before + wide / 2, h - 3, `at ${FROM}`, { class: "t small middle" }), write(after + wide / 2, h - 3, free ? `at ${Math.round(query)}` : `at ${FROM + ON}`, { class: "t small middle" }));
        Object.assign(area, { x, wide: w - 68, road, bar: after + wide / 2, zero, unit });
        return out;
      });
    },
  };
  addHandle(plate, {
    ...scene.guess, value: () => now().guess, set: guessed, enter: check, open: () => !now().seen,
    place: () => [area.bar, area.zero - now().guess * area.unit], from: (_, y) => (area.zero - y) / area.unit,
    zone: (x, y) => x > area.bar - 44 && Math.abs(y - area.zero) < scale * area.unit + 10,
  });
  const ends = /** @type {[string, number][]} */ ([[BOTH[0], 1], [BOTH[1], -1]]);
  ends.forEach(([name, side], n) => addHandle(plate, {
    label: `Place of ${name}`, low: 0, high: FARTHEST, step: 1, kind: "word", open: () => true,
    value: () => Math.round(n ? places(now()).key : places(now()).query), said: (p) => `at ${p}`,
    set(place) {
      const { query, key } = places(now()), [q, k] = [Math.round(n ? query : place), Math.round(n ? place : key)];
      app.set({ seen: true, film: 100, at: q, apart: q - k }, "at");
    },
    place: () => [area.x(n ? places(now()).key : places(now()).query) + side * 18, area.road, 48, 36], from: (x) => ((x - side * 18 - 34) / area.wide) * FARTHEST,
  }));
  return scene;
}
