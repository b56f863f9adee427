// The scene "Count them": the number of a word is added to its vector, and becomes larger than it.

import { needed } from "../app.js";
import { rowsOf, stand, vectorOf } from "../compute.js";
import { html } from "../dom.js";
import { WORD } from "../layer.js";
import { integer, shown } from "../words.js";
import { addHandle, between, box, clamp, eased, line, makePlate, whole, write } from "./scene.js";

/** @import {App} from "../app.js" */
/** @import {Moment, Scene} from "./scene.js" */

const LAST = 12, SHOWN = 32; // the last place, and how many of the channels a column has

/** @param {App} app @param {() => Moment} now @param {(guess: number) => void} guessed @param {() => void} check @returns {Scene} */
export function count(app, now, guessed, check) {
  const integers = needed(app, "integer"), width = integers.graph.width, word = vectorOf(WORD, width);
  const numbers = rowsOf(integers, stand([...Array(LAST + 1).keys()]), {});
  const rows = Array.from({ length: LAST + 1 }, (_, p) => numbers.values.slice(p * width, (p + 1) * width));
  const size = Math.hypot(...word), sizes = rows.map((row) => Math.hypot(...row));
  /** How much of the mix is the word: by lengths of vectors. */
  const shares = sizes.map((number) => size / (size + number));
  const plate = makePlate({ low: 250, tall: 640, below: 96 });
  const place = { x: 0, bottom: 1, tall: 1, wide: 1 };
  const scene = {
    name: "Count them", title: "Count them", notes: [3, 4, 5], seconds: 2.2,
    lead: ["Word 0, word 1, word 2 … Add a word’s number to each of its ", String(width), " values, which are about ±1. ",
      html("em", { class: "low" }, "Blue"), " is the word, ", html("em", { class: "high" }, "orange"), " its number."],
    question: `At place ${LAST}, how much of the mix is still “${WORD}”?`,
    guess: { label: `Share of ${WORD} at place ${LAST}`, low: 0, high: 1, step: 0.02, first: 0.6, said: whole, right: (/** @type {number} */ v) => Math.abs(v - shares[LAST]) <= 0.07 },
    ends: /** @type {[string, string]} */ (["your guess", "the truth"]),
    leads: /** @type {[string, string]} */ (["But", "a wave never grows: it goes up and down, and stays as small as the word."]),
    formula: `x′ = x + p · (1, 1, …, 1)\n“${WORD}” has length ${shown(size)}; p · (1, …, 1) has length ${shown(sizes[1])} p.`,
    code: 'posenc.create("integer", dim=16, heads=4)\n# the same in one line\nx = x + torch.arange(n)[:, None]',
    figure: plate.element,
    answer: () => ["At place ", String(LAST), " only ", html("em", {}, whole(shares[LAST])), ` is still “${WORD}”: the number is ${integer(sizes[LAST] / size)} times as long as the word. The number drowns the word.`],
    /** @param {Moment} moment */
    draw: ({ guess, touched, seen, film }) => plate.show(`“${WORD}” at places 0 to ${LAST}${seen ? `: ${shares.map(whole).join(", ")} of the mix is the word` : ""}`, (w, h, narrow) => {
      const left = narrow ? 0 : 62, right = narrow ? 2 : 34, step = (w - left - right) / (LAST + 1), wide = step - (narrow ? 4 : 9);
      const top = 26, columns = (h - 70) * 0.52, bottom = h - 26, tall = bottom - top - columns - 46;
      Object.assign(place, { x: left + LAST * step + wide / 2, bottom, tall, wide });
      /** @type {(SVGElement | false)[]} */
      const out = [write(left, 14, `“${WORD}” at each place`, { class: "t" }), write(left, top + columns + 30, `how much of it is still “${WORD}”`, { class: "t" })];
      rows.forEach((row, p) => {
        const x = left + p * step, guessedShare = between(1, guess, p / LAST);
        const local = eased(clamp((film * (LAST + 3) - p) / 3, 0, 1)), begun = touched ? guessedShare : 1;
        const share = seen ? between(begun, shares[p], local) : begun;
        // Each channel is drawn in a blue of its value; the number covers as much of it as of the bar below.
        for (let c = 0; c < SHOWN; c++) {
          const blue = `color-mix(in srgb, var(--blue) ${clamp(50 + 42 * word[c], 5, 100).toFixed(0)}%, var(--grid))`;
          out.push(box(x, top + (c * columns) / SHOWN, wide, columns / SHOWN + 0.6, { fill: `color-mix(in srgb, ${blue} ${(100 * share).toFixed(1)}%, var(--vermilion))` }));
        }
        out.push(box(x, bottom - tall, wide, tall, { rx: 4, class: "panel" }));
        const known = seen || touched || p === 0, isLast = p === LAST;
        if (known) out.push(box(x, bottom, wide, -share * tall, { rx: 3, class: "low", opacity: seen || p === 0 ? 1 : 0.45 }));
        if (seen && share < 0.995) out.push(box(x, bottom - share * tall, wide, -(1 - share) * tall, { rx: 3, class: "high", opacity: 0.9 }));
        if (!known && !isLast) out.push(write(x + wide / 2, bottom - tall / 2, "?", { class: "t middle" }));
        if (isLast && !seen) out.push(box(x, bottom, wide, -guess * tall, { rx: 3, class: "thought" }), write(x + wide / 2, bottom - guess * tall - 20, touched ? whole(guess) : "?", { class: "n middle" }));
        if (isLast && seen && touched) out.push(line([[x - 4, bottom - guess * tall], [x + wide + 4, bottom - guess * tall]], { class: "thought" }), !narrow && write(x + wide + 6, bottom - guess * tall + 4, "you", { class: "t small" }));
        if (seen && (local > 0.5 || p === 0) && (isLast || wide > 34)) {
          const inside = share * tall > 22;
          out.push(write(x + wide / 2, bottom - share * tall + (inside ? 17 : -6), whole(share), { class: `n small middle ${inside ? "onlow" : "onhigh"}` }));
        }
        out.push(write(x + wide / 2, h - 6, p, { class: isLast ? "n middle" : "t middle" }));
      });
      if (!narrow) out.push(write(0, h - 6, "place", { class: "t" }), write(0, bottom - tall + 5, "100 %", { class: "t small" }), write(0, bottom, "0", { class: "t small" }));
      return out;
    }),
  };
  addHandle(plate, {
    ...scene.guess, value: () => now().guess, set: guessed, enter: check, open: () => !now().seen,
    place: () => [place.x, place.bottom - now().guess * place.tall], from: (_, y) => (place.bottom - y) / place.tall,
    zone: (x, y) => x > place.x - place.wide && y > place.bottom - place.tall - 10,
  });
  return scene;
}
