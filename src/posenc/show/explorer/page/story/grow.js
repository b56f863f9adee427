// The scene "The text grows": the clocks of a published model, and angles that are new in longer texts.

import { button, html, svg } from "../dom.js";
import { integer, shown } from "../words.js";
import { addHandle, animate, between, box, clamp, dot, eased, line, makePlate, write } from "./scene.js";

/** @import {App} from "../app.js" */
/** @import {Moment, Scene} from "./scene.js" */

const TURN = 2 * Math.PI;

/** @param {number} share @returns {string} */
const part = (share) => (share > 0.995 ? "all" : share < 0.0005 ? "none" : `${share < 0.095 ? (100 * share).toFixed(1) : Math.round(100 * share)} %`);

/** @param {App} app @param {() => Moment} now @param {(guess: number) => void} guessed @param {() => void} check @returns {Scene} */
export function grow(app, now, guessed, check) {
  const { model, base, trained, target, ways } = app.data.story.growth, names = ways.map(({ name }) => name), count = ways[0].theta.length;
  const met = ways[0].theta.map((theta) => Math.min(1, (trained * theta) / TURN));
  /** @param {number[]} theta @param {number} length @returns {number[]} the part of each clock's circle that is reached for the first time */
  const fresh = (theta, length) => theta.map((each, j) => Math.max(0, Math.min(1, (length * each) / TURN) - met[j]));
  const countFresh = (/** @type {number[]} */ theta, length = target) => fresh(theta, length).filter((share) => share > 1e-9).length;
  const truth = countFresh(ways[0].theta), degrees = (/** @type {number[]} */ theta) => (theta[0] * 180) / Math.PI;
  let theta = [...ways[0].theta], way = -1, look = Math.min(count - 1, 44), stop = () => {};
  const plate = makePlate({ low: 330, tall: 620, below: 150 });
  const grid = { columns: 1, wide: 1, high: 1, top: 0, across: 1 };
  const buttons = ways.map(({ name, year }, n) => {
    const each = button(`${name} `, () => app.set({ seen: true, film: 100, way: n }), { "aria-pressed": false });
    if (year) each.append(html("small", {}, year));
    return each;
  });
  const mend = button("Take it back with YaRN", () => app.set({ seen: true, film: 100, way: names.indexOf("YaRN") }), { class: "main" });
  const figure = html("div", {}, plate.element, html("div", { class: "row kinds", role: "group", "aria-label": "How to stretch" }, ...buttons, mend));
  const said = [
    () => [html("em", {}, `${truth} of ${count}`), ": the slow ones. In training they never completed a turn. Now they point in new directions."],
    () => [html("em", {}, `PI (${ways[1].year})`), ` slows every hand ${target / trained} times, so nothing is new. The price: neighbours stand ${target / trained} times closer, ${shown(degrees(ways[1].theta), 2)}° apart instead of ${shown(degrees(ways[0].theta), 2)}°.`],
    () => [html("em", {}, `NTK-aware (${ways[2].year})`), ` slows the slow hands more than the fast ones. Less is orange, but ${countFresh(ways[2].theta)} hands still go where they never were.`],
    () => [html("em", {}, `YaRN (${ways[3].year})`), " slows the slow hands and leaves the fast ones alone: ", html("em", {}, `${countFresh(ways[3].theta)} of ${count}`), ` meet new angles, and neighbours stay ${shown(degrees(ways[3].theta), 2)}° apart. The model still has to be trained for a while with it; its authors took 400 steps.`],
  ];
  /** @param {number} x @param {number} y @param {number} radius @param {number} j @param {number} length */
  const clock = (x, y, radius, j, length) => {
    const sector = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ kind) => {
      if (to - from < 1e-6) return null;
      if (to - from > 0.9999) return dot(x, y, radius, { class: kind });
      const at = (/** @type {number} */ share) => `${(x + radius * Math.sin(TURN * share)).toFixed(2)} ${(y - radius * Math.cos(TURN * share)).toFixed(2)}`;
      return svg("path", { class: kind, d: `M${x.toFixed(2)} ${y.toFixed(2)}L${at(from)}A${radius} ${radius} 0 ${to - from > 0.5 ? 1 : 0} 1 ${at(to)}Z` });
    };
    const reached = Math.min(1, (length * theta[j]) / TURN), angle = length * theta[j];
    return [dot(x, y, radius, { class: "unmet" }), sector(0, met[j], "met"), sector(met[j], reached, "new"),
      met[j] < 1 && line([[x, y], [x + 0.94 * radius * Math.sin(angle), y - 0.94 * radius * Math.cos(angle)]], { class: "inkline" })];
  };
  const lengthOf = (/** @type {Moment} */ { seen, film }) => Math.round(between(trained, target, seen ? film : 0));
  const scene = {
    name: "The text grows", title: "The text grows", notes: [10, 12, 13], seconds: 3,
    lead: [`${model} (2024) has ${count} such clocks, with base ${integer(base)}. It began with texts of ${integer(trained)} tokens (pieces of words): their hands have been where it is `, html("em", { class: "low" }, "blue"), `. Now it reads ${integer(target)}: a novel.`],
    question: "How many hands will point where training never did?",
    guess: { label: "How many of the slowest clocks", low: 0, high: count, step: 1, first: 8, said: (/** @type {number} */ v) => `${v} of ${count}`, right: (/** @type {number} */ v) => Math.abs(v - truth) <= 4 },
    ends: /** @type {[string, string]} */ ([integer(trained), integer(target)]),
    leads: /** @type {[string, string]} */ (["But", "does a model mind? Train small ones on 10 words, and give them 12."]),
    formula: "New angles beyond L tokens: pairs with L θⱼ < 2π\nPI:   θⱼ / s\nNTK:  θⱼ s^(−2j/(d−2))\nYaRN: θⱼ / s for pairs that made less than one turn in L, θⱼ for more than 32, a ramp between",
    code: `posenc extend model/ --to ${target}   # YaRN\nposenc inspect model/ --target ${target}`,
    figure, free: () => false,
    /** @param {Moment} moment */
    answer: ({ state }) => said[state.way](),
    /** @param {Moment} moment */
    draw(moment) {
      const { state, guess, touched, seen } = moment, length = lengthOf(moment);
      if (way < 0) {
        way = state.way;
        theta = [...ways[way].theta];
      }
      if (state.way !== way) {
        const from = [...theta], to = ways[state.way].theta;
        way = state.way;
        stop();
        stop = animate(1.4, (t) => {
          theta = from.map((each, j) => Math.exp(between(Math.log(each), Math.log(to[j]), eased(t))));
          if (t === 1) theta = [...to];
          scene.draw(now());
        });
      }
      buttons.forEach((each, n) => each.setAttribute("aria-pressed", String(seen && n === state.way)));
      mend.hidden = !seen || state.way > 0;
      const news = fresh(theta, length), orange = news.filter((share) => share > 1e-9).length;
      plate.show(`${count} clocks at ${integer(length)} tokens, ${orange} of them with an orange part`, (w, h, narrow) => {
        const out = [], across = narrow ? w : w * 0.66, columns = narrow ? 11 : 8, rows = Math.ceil(count / columns), top = 54;
        const tall = h - top - (narrow ? 98 : 22), wide = across / columns, high = Math.min(tall / rows, wide * 1.05), radius = Math.min(wide, high) / 2 - (narrow ? 2.2 : 4);
        Object.assign(grid, { columns, wide, high, top, across });
        const share = length / target, blue = trained / target;
        out.push(box(0, 28, w, 14, { rx: 7, class: "unmet" }), box(0, 28, Math.max(14, w * share), 14, { rx: 7, class: "new" }), box(0, 28, w * blue, 14, { rx: 5, class: "met" }),
          write(0, 17, `the text: ${integer(length)} tokens`, { class: "n small" }), !narrow && write(w, 17, share > 0.9 ? "a novel" : share < 0.08 ? "a chapter" : "", { class: "t small end" }));
        const at = (/** @type {number} */ j) => [((j % columns) + 0.5) * wide, top + (Math.floor(j / columns) + 0.5) * high];
        for (let j = 0; j < count; j++) {
          const [x, y] = at(j);
          out.push(svg("g", { class: "clock" }, ...clock(x, y, radius, j, length)));
          if ((touched || !seen) && j >= count - guess) out.push(dot(x, y, radius + (narrow ? 1.4 : 2.6), { class: "thought" }));
          if (j === look && seen) out.push(dot(x, y, radius + 2, { class: "ring" }));
        }
        const period = TURN / theta[look], facts = [
          [`clock ${look + 1} of ${count}`, "n"], [`one turn in ${period < 100 ? shown(period, 3) : integer(period)} tokens`, "t small"],
          [`${part(met[look])} met in training`, "n small lowtext"], [news[look] > 1e-9 ? `${part(news[look])} for the first time` : "nothing new", news[look] > 1e-9 ? "n small hightext" : "t small"],
          [`neighbours: ${shown(degrees(theta), 2)}° on clock 1`, "t small"],
        ];
        if (narrow) {
          const y = h - 46;
          out.push(...clock(44, y, 40, look, length));
          facts.forEach(([text, kind], n) => out.push(write(96, y - 32 + 18 * n, text, { class: kind })));
        } else {
          const left = across + 30, space = w - left, big = Math.min(space / 2 - 4, h < 520 ? 64 : 100), x = left + space / 2, y = top + big + 4;
          out.push(...clock(x, y, big, look, length), dot(x, y, 4, { class: "ink" }));
          facts.forEach(([text, kind], n) => out.push(write(x, y + big + 30 + 23 * n, text, { class: `${kind} middle` })));
          [["met", "been there in training"], ["new", "never been there"], ["unmet", "not reached"]].forEach(([kind, text], n) =>
            out.push(box(left, h - 73 + 22 * n, 14, 14, { rx: 4, class: kind }), write(left + 22, h - 62 + 22 * n, text, { class: "t small" })));
          out.push(write(across / 2, h - 2, "fast clocks first, slow ones last", { class: "t small middle" }));
        }
        return out;
      });
    },
  };
  const clockAt = (/** @type {number} */ x, /** @type {number} */ y) => {
    const column = Math.floor(x / grid.wide), row = Math.floor((y - grid.top) / grid.high);
    return x < 0 || column >= grid.columns || row < 0 || row * grid.columns + column >= count ? -1 : row * grid.columns + column;
  };
  const middle = (/** @type {number} */ j) => [((j % grid.columns) + 0.5) * grid.wide, grid.top + (Math.floor(j / grid.columns) + 0.5) * grid.high];
  addHandle(plate, {
    ...scene.guess, value: () => now().guess, set: guessed, enter: check, open: () => !now().seen,
    place() {
      const [x, y] = middle(clamp(count - now().guess, 0, count - 1));
      return [now().guess ? x - grid.wide / 2 : x + grid.wide / 2, y];
    },
    from(x, y) {
      const row = clamp(Math.floor((y - grid.top) / grid.high), 0, Math.ceil(count / grid.columns) - 1);
      return count - Math.min(count, row * grid.columns + clamp(Math.round(x / grid.wide), 0, grid.columns));
    },
    zone: (x, y) => y > grid.top && clockAt(x, y) >= 0,
  });
  const looked = (/** @type {number} */ j) => {
    if (j < 0 || j === look) return;
    look = j;
    scene.draw(now());
  };
  addHandle(plate, {
    label: "The clock that is shown large", low: 1, high: count, step: 1, kind: "word", value: () => look + 1, set: (n) => looked(n - 1),
    said: (n) => `clock ${n}: ${part(met[n - 1])} of the circle in training, ${part(fresh(theta, lengthOf(now()))[n - 1])} for the first time`,
    open: () => now().seen, place: () => [...middle(look), grid.high, grid.high], from: (x, y) => Math.max(0, clockAt(x, y)) + 1, zone: (x, y) => clockAt(x, y) >= 0,
  });
  plate.picture.addEventListener("pointermove", (event) => { if (now().seen) looked(clockAt(...plate.at(event))); });
  return scene;
}
