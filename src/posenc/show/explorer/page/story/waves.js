// The scene "Waves": the pattern of each place, and its change from one place to the next.

import { needed } from "../app.js";
import { rowsOf, stand, walk } from "../compute.js";
import { html } from "../dom.js";
import { shown } from "../words.js";
import { addHandle, between, box, clamp, dot, heat, line, makePlate, write } from "./scene.js";

/** @import {App} from "../app.js" */
/** @import {Grid} from "../compute.js" */
/** @import {Moment, Scene} from "./scene.js" */

const PLACES = 48, FINE = 4, MOST = 5; // places, points drawn between two of them, and the most that is guessed
const DRAWN = [0, 6, 12, 18, 24, 30]; // channels

/** @param {Grid} rows @returns {number[]} how far each row is from the next */
const steps = ({ rows, columns, values }) => Array.from({ length: rows - 1 }, (_, p) =>
  Math.hypot(...Array.from({ length: columns }, (_, c) => values[(p + 1) * columns + c] - values[p * columns + c])));

/** @param {App} app @param {() => Moment} now @param {(guess: number) => void} guessed @param {() => void} check @returns {Scene} */
export function waves(app, now, guessed, check) {
  const sinusoidal = needed(app, "sinusoidal"), binary = needed(app, "binary");
  const fine = rowsOf(sinusoidal, stand(Array.from({ length: PLACES * FINE + 1 }, (_, n) => n / FINE)), {});
  const moves = steps(rowsOf(sinusoidal, walk(PLACES + 1), {})), jumps = steps(rowsOf(binary, walk(PLACES + 1), {}));
  const valueAt = (/** @type {number} */ n, /** @type {number} */ channel) => fine.values[n * fine.columns + channel];
  const plate = makePlate({ low: 270, tall: 620, below: 96 });
  const area = { x: (/** @type {number} */ p) => p, y: (/** @type {number} */ v) => v, wide: 1, waves: 1, top: 0, bottom: 1 };
  /** @param {Moment} moment */
  const placeOf = ({ state, seen, film }) => (seen && film < 1 ? Math.round(film * PLACES) : clamp(state.at, 0, PLACES));
  const scene = {
    name: "Waves", title: "Add waves", notes: [6, 7, 8], seconds: 2.4,
    lead: ["The first Transformer (2017) adds waves, a slower one in each pair of channels; six of them are drawn. None ever grows above 1. The dots at one place are the ", html("em", {}, "pattern"), " of that place."],
    question: "Go from place to place. Does the pattern change as much at every step?",
    guess: {
      label: "How far the pattern moves at the last place", low: 0, high: MOST, step: 0.1, first: 2.4,
      said: (/** @type {number} */ v) => (v > moves[0] + 0.25 ? "more and more" : v < moves[0] - 0.25 ? "less and less" : "always as much"),
      right: (/** @type {number} */ v) => Math.abs(v - moves[0]) <= 0.25,
    },
    ends: /** @type {[string, string]} */ (["place 0", `place ${PLACES}`]),
    leads: /** @type {[string, string]} */ (["But", "a sum hides its parts: attention has to find the place in the mix again. So do not add. Turn."]),
    formula: "PE(p, 2j) = sin(p θⱼ)    PE(p, 2j+1) = cos(p θⱼ)\nθⱼ = 10000^(−2j/d)\n|PE(p+1) − PE(p)|² = Σⱼ (2 − 2 cos θⱼ): no p in it",
    code: "posenc.Sinusoidal(512)",
    figure: plate.element,
    answer: () => ["It moves by ", html("em", {}, shown(moves[0])), " at every step, so neighbours differ equally everywhere. Binary numbers (orange) jump: 0111 becomes 1000."],
    /** @param {Moment} moment */
    draw(moment) {
      const { guess, touched, seen, film } = moment, at = placeOf(moment);
      plate.show(`Six waves, and their pattern at place ${at}${seen ? `; the pattern moves by ${shown(moves[0])} at every step` : ""}`, (w, h, narrow) => {
        const right = narrow ? 34 : 64, tall = (h - 140) * 0.68, row = tall / DRAWN.length, top = 24, bottom = h - 24, high = h - tall - 104;
        area.x = (p) => 8 + (p / PLACES) * (w - right - 16);
        area.y = (v) => bottom - (v / MOST) * high;
        Object.assign(area, { wide: w - right - 16, waves: tall, top, bottom });
        const { x, y } = area, out = [];
        DRAWN.forEach((channel, n) => {
          const middle = top + n * row + row / 2, value = valueAt(at * FINE, channel);
          out.push(
            line([[x(0), middle], [x(PLACES), middle]], { class: "grid" }),
            line(Array.from({ length: PLACES * FINE + 1 }, (_, p) => [x(p / FINE), middle - valueAt(p, channel) * row * 0.4]), { class: "lowline" }),
            dot(x(at), middle - value * row * 0.4, 5, { class: "ink" }), box(w - right + 10, middle - row / 2, right - 12, row + 0.6, { fill: heat(value) }));
        });
        out.push(line([[x(at), 20], [x(at), top + tall]], { class: "inkline" }), write(clamp(x(at), 30, w - 110), 14, `place ${at}`, { class: "n small middle" }), !narrow && write(w - right + 10, 14, "pattern", { class: "t small" }));
        out.push(write(8, bottom - high - 14, "how far the pattern moves to the next place", { class: "t" }), line([[x(0), bottom], [x(PLACES), bottom]], { class: "grid" }));
        if (seen) out.push(line(jumps.flatMap((jump, p) => [[x(p), y(jump)], [x(p + 1), y(jump)]]), { class: "highline thin", opacity: film }));
        if (!seen || touched) out.push(line([[x(0), y(moves[0])], [x(PLACES), y(guess)]], { class: "thought" }));
        if (seen) {
          const bend = (/** @type {number} */ p) => (touched ? between(between(moves[0], guess, p / PLACES), moves[Math.min(p, PLACES - 1)], film) : moves[Math.min(p, PLACES - 1)]);
          out.push(line(Array.from({ length: PLACES + 1 }, (_, p) => [x(p), y(bend(p))]), { class: "lowline thick" }), dot(x(at), y(bend(at)), 6, { class: "ink" }));
        }
        out.push(dot(x(0), y(moves[0]), 5, { class: "low" }), write(seen ? x(PLACES) + 10 : 18, y(moves[0]) + (seen ? 5 : -9), shown(moves[0]), { class: "n small lowtext" }));
        return out;
      });
    },
  };
  addHandle(plate, {
    ...scene.guess, value: () => now().guess, set: guessed, enter: check, open: () => !now().seen,
    place: () => [area.x(PLACES), area.y(now().guess)], from: (_, y) => (area.bottom - y) / ((area.bottom - area.y(MOST)) / MOST),
    zone: (x, y) => x > area.wide * 0.7 && y > area.y(MOST) - 8,
  });
  addHandle(plate, {
    label: "Place", low: 0, high: PLACES, step: 1, kind: "word", value: () => placeOf(now()), set: (at) => app.set({ at, ...(now().seen ? { film: 100 } : {}) }, "at"),
    said: (at) => `place ${at}`, open: () => true, place: () => [area.x(placeOf(now())), area.top + area.waves / 2, 28, area.waves],
    from: (x) => ((x - 8) / area.wide) * PLACES, zone: (x, y) => y < area.top + area.waves && x < area.wide + 16,
  });
  return scene;
}
