// The scene "Trained short": small models that were trained on ten words copy twelve.

import { html } from "../dom.js";
import { integer } from "../words.js";
import { addHandle, between, box, dot, line, makePlate, whole, write } from "./scene.js";

/** @import {App} from "../app.js" */
/** @import {Moment, Scene} from "./scene.js" */

/** @param {number[]} all @returns {number} */
const average = (all) => all.reduce((sum, one) => sum + one, 0) / all.length;

/** @param {App} app @param {() => Moment} now @param {(guess: number) => void} guessed @param {() => void} check @returns {Scene} */
export function short(app, now, guessed, check) {
  const { study, trained, seeds, layers, width, steps, rates, rows } = app.data.story.short;
  const longer = Math.min(...Object.keys(rows[0].curve).map(Number).filter((length) => length > trained));
  const shown = [...rows.filter(({ encoding }) => encoding !== "RoPE"), ...rows.filter(({ encoding }) => encoding === "RoPE")];
  const truth = average(shown[shown.length - 1].curve[longer]);
  const plate = makePlate({ low: 270, tall: 560, below: 140 });
  const area = { x: 1, bottom: 1, tall: 1, wide: 1 };
  const how = `studies/${study}: ${layers} layers, ${width} channels, ${integer(steps)} steps at learning rate ${rates.join(", ")}, ${seeds} seeds, in texts whose words may repeat. `
    + `${seeds} seeds are too few to rank the ${rows.length}. This does not hold for every RoPE: where no word repeats, a pilot with one seed and a higher rate copies longer texts (studies/use-of-length).`;
  const scene = {
    name: "Trained short", title: `Trained on ${trained}`, notes: [], seconds: 2,
    lead: [`Small models learned to copy texts of up to ${trained} words. Then they get ${longer}, and nothing else changes. A dot is one training run.`],
    question: `How many of the ${longer}-word texts does RoPE copy without a mistake?`,
    guess: { label: `Share of ${longer}-word texts that RoPE copies`, low: 0, high: 1, step: 0.02, first: 0.7, said: whole, right: (/** @type {number} */ v) => Math.abs(v - truth) <= 0.06 },
    ends: /** @type {[string, string]} */ (["your guess", "the truth"]),
    leads: /** @type {[string, string]} */ (["So", "which one should you take?"]),
    formula: `share copied without a mistake = texts right / texts\ntrained on 1 to ${trained} words, tested on ${trained} and ${longer}`,
    code: `posenc results studies/${study}`,
    figure: html("div", {}, plate.element, html("p", { class: "soft note" }, how)),
    answer: () => [`${longer} words instead of ${trained}, and these RoPE models copy `, html("em", {}, truth ? whole(truth) : "none"), "."],
    /** @param {Moment} moment */
    draw: ({ guess, touched, seen, film }) => plate.show(`Share of texts copied without a mistake: ${shown.map(({ encoding, curve }) => `${encoding} ${whole(average(curve[trained]))} at ${trained} words${seen ? `, ${whole(average(curve[longer]))} at ${longer}` : ""}`).join("; ")}`, (w, h, narrow) => {
      const left = narrow ? 30 : 46, cell = (w - left) / shown.length, bottom = h - 34, tall = h - 78, y = (/** @type {number} */ v) => bottom - v * tall;
      const out = [];
      for (const v of [0, 0.5, 1]) out.push(line([[left, y(v)], [w, y(v)]], { class: "grid" }), write(0, y(v) + 4, v ? whole(v) : "0", { class: "t small" }));
      shown.forEach(({ encoding, curve }, n) => {
        const x = left + n * cell + cell * 0.14, wide = cell * 0.34, second = x + wide + cell * 0.05, isAsked = n === shown.length - 1;
        const [before, after] = [average(curve[trained]), average(curve[longer])], reached = between(isAsked && touched ? guess : before, after, film);
        const dots = (/** @type {number[]} */ each, /** @type {number} */ from) => each.map((v, seed) => dot(from + (wide * (seed + 1)) / (each.length + 1), y(v), narrow ? 2 : 3.2, { class: "ink one" }));
        out.push(box(x, bottom, wide, -before * tall, { rx: 3, class: "low" }), ...dots(curve[trained], x));
        if (seen) out.push(box(second, bottom, wide, -Math.max(reached, 0.004) * tall, { rx: 3, class: "high" }));
        if (seen && film > 0.98) out.push(...dots(curve[longer], second), !narrow && write(second + wide / 2, y(Math.max(...curve[longer])) - 8, whole(after), { class: "n small middle" }));
        if (isAsked && (!seen || touched)) out.push(box(second, bottom, wide, -guess * tall, { rx: 3, class: "thought" }));
        if (isAsked && !seen) out.push(write(second + wide / 2, y(guess) - 22, touched ? whole(guess) : "?", { class: "n middle" }));
        if (!isAsked && !seen) out.push(write(second + wide / 2, bottom - 12, "?", { class: "t middle" }));
        if (isAsked) Object.assign(area, { x: second + wide / 2, bottom, tall, wide });
        out.push(write(left + (n + 0.5) * cell, h - 8, encoding, { class: `n middle${narrow ? " small" : ""}` }));
      });
      out.push(box(w - 180, 2, 12, 12, { rx: 3, class: "low" }), write(w - 163, 12, `${trained} words`, { class: "t small" }), box(w - 84, 2, 12, 12, { rx: 3, class: "high" }), write(w - 67, 12, `${longer} words`, { class: "t small" }));
      return out;
    }),
  };
  addHandle(plate, {
    ...scene.guess, value: () => now().guess, set: guessed, enter: check, open: () => !now().seen,
    place: () => [area.x, area.bottom - now().guess * area.tall], from: (_, y) => (area.bottom - y) / area.tall, zone: (x) => x > area.x - area.wide,
  });
  return scene;
}
