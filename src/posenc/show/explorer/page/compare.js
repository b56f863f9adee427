// Up to four encodings under one cursor, and all of them by their properties.

import { byFamily, instead, reason } from "./app.js";
import { byOffset, obstacle, remembered } from "./compute.js";
import { button, choice, html, slider } from "./dom.js";
import { KEY_AXIS, QUERY_AXIS, heatMap, linePlot } from "./draw.js";
import { markOf } from "./encoding.js";
import { WORD, addedScores, oneWord, reads } from "./layer.js";
import { MOST_NAMES, MOST_TOKENS, toHash } from "./state.js";
import { studiesOf } from "./studies.js";
import { integer } from "./words.js";

/** @import {App, View} from "./app.js" */
/** @import {Encoding} from "./data.js" */
/** @import {Lines} from "./draw.js" */
/** @import {State} from "./state.js" */
/** @import {Study} from "./studies.js" */

/**
 * The curves of the shown encodings, or of the first few.
 * @param {Study} study @param {Encoding[]} shown @param {App["find"]} find @returns {Lines}
 */
function linesOf({ task, bits, seeds, curves }, shown, find) {
  const slug = (/** @type {string} */ name) => name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const chosen = curves.filter(({ encoding }) => shown.some((card) => card.slug === slug(encoding)));
  return {
    title: `Trained short, tested long: ${task}`,
    about: `mean of ${seeds} seeds; the band runs from the worst to the best.${chosen.length ? "" : " None of the encodings above was in it."}`,
    x: { label: "length" }, y: { label: bits ? "bits per character" : "share correct" },
    series: (chosen.length ? chosen : curves.slice(0, MOST_NAMES)).map(({ encoding, lengths, mean, low, high }) => ({ name: find(slug(encoding))?.name ?? encoding, xs: lengths, ys: mean, low, high })),
  };
}

const BESIDE = ["alibi", "sinusoidal"]; // shown with a single one

/** @param {App} app @returns {View} */
export function compareView(app) {
  const length = slider({ name: "Tokens", low: 2, high: MOST_TOKENS, shown: String, moved: (n) => app.set({ n }, "n") });
  const groups = byFamily(app.data, (encoding) => !obstacle(encoding));
  const pickers = Array.from({ length: MOST_NAMES }, (_, n) => choice({
    name: String(n + 1),
    groups: n > 1 ? [["", [["", "none"]]], ...groups] : groups,
    chosen(slug) {
      const names = shownNames(app.now());
      names[n] = slug;
      app.set({ names: [...new Set(names.filter(Boolean))] });
    },
  }));
  const maps = Array.from({ length: MOST_NAMES }, () => heatMap(app.desk));
  const lines = linePlot(app.desk);
  const figures = html("div", { class: "figures four" }, ...maps.map((map) => map.element));
  const trouble = html("div");
  const explained = html("p", { class: "readout explained", role: "status" }, "Choose a mark or a property to read its number and witness.");
  const explain = (/** @type {string} */ text) => void (explained.textContent = text);
  const filters = html("div", { class: "files filters", role: "group", "aria-label": "Show only encodings that have" });
  const buttons = new Map(app.data.properties.map(({ name, label, meaning }) => [name, button(label, () => {
    const { having } = app.now();
    app.set({ having: having.includes(name) ? having.filter((property) => property !== name) : [...having, name] });
    explain(`${label}: ${meaning}`);
  }, { "aria-pressed": false })]));
  filters.append(...buttons.values());
  const count = html("p", { class: "soft", "aria-live": "polite" });
  const matrix = html("div", { class: "scroll matrix", tabindex: 0, role: "region", "aria-label": "Properties of each encoding" });
  /** @param {EventTarget | null} target @returns {HTMLElement | null} */
  const cellOf = (target) => (target instanceof Element ? target.closest("[data-says]") : null);
  /** @param {HTMLElement | null | undefined} cell */
  function choose(cell) {
    if (!cell) return;
    for (const each of matrix.querySelectorAll(".chosen")) each.classList.remove("chosen");
    cell.classList.add("chosen");
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    explain(cell.dataset.says ?? "");
  }
  matrix.addEventListener("click", (event) => choose(cellOf(event.target)));
  matrix.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step || event.target !== matrix) return;
    event.preventDefault();
    const rows = [...matrix.querySelectorAll("tr")].map((row) => [...row.querySelectorAll("[data-says]")]);
    const i = Math.max(0, rows.findIndex((row) => row.some((cell) => cell.classList.contains("chosen"))));
    const j = rows[i].findIndex((cell) => cell.classList.contains("chosen"));
    const clamp = (/** @type {number} */ at, /** @type {number} */ size) => Math.min(size - 1, Math.max(0, at));
    const next = j < 0 ? [0, 0] : [clamp(i + step[0], rows.length), clamp(j + step[1], rows[i].length)];
    choose(cellOf(rows[next[0]][next[1]]));
  });
  const studies = html("section");
  const study = studiesOf(app.data.study).map((results) => ({ results, plot: linePlot(app.desk) }));
  if (study.length) studies.append(html("h3", {}, "Results of a study"), html("div", { class: "figures" }, ...study.map(({ plot }) => plot.element)));
  const element = html("div", {},
    html("h2", {}, "Side by side"),
    html("p", { class: "summary" }, `The effect of each encoding on the score of “${WORD}” for “${WORD}”, at every pair of positions. All figures follow the pointer. Each figure has its own colour scale; the curves below share one scale.`),
    html("div", { class: "controls" }, ...pickers.map((picker) => picker.element), length.element),
    trouble, figures, html("div", { class: "figures" }, lines.element),
    html("section", { class: "properties" }, html("h3", {}, "Properties"),
      html("p", { class: "soft" }, "All properties are measured. Choose some to see only the encodings that have all of them."), filters, count, explained, matrix),
    studies);

  /** @param {State} state @returns {string[]} at least two */
  function shownNames(state) {
    const can = (/** @type {string} */ name) => { const encoding = app.find(name); return encoding !== null && !obstacle(encoding); };
    const names = state.names.filter(can);
    const enough = names.length ? 2 : 3;
    for (const name of [...app.data.first, ...BESIDE]) if (names.length < enough && can(name) && !names.includes(name)) names.push(name);
    return names;
  }

  function fill(/** @type {State} */ state) {
    const has = app.data.encodings.filter((encoding) => state.having.every((name) => encoding.properties[name]?.holds));
    for (const [name, each] of buttons) each.setAttribute("aria-pressed", String(state.having.includes(name)));
    const all = app.data.encodings.length;
    count.textContent = has.length === all ? `All ${integer(all)} encodings.` : `${has.length} of ${integer(all)} encodings.`;
    const head = html("tr", {}, html("th", { scope: "col" }, "encoding"),
      ...app.data.properties.map(({ label, meaning }) => html("th", { scope: "col", "data-says": `${label}: ${meaning}` }, label)));
    const rows = has.map((encoding) => html("tr", {},
      html("th", { scope: "row" }, html("a", { href: toHash({ ...state, view: "encoding", names: [encoding.slug], options: {} }) }, encoding.name)),
      ...app.data.properties.map(({ name, label, meaning }) => {
        const verdict = encoding.properties[name];
        return html("td", { "data-says": `${encoding.name}, ${label}: ${verdict?.why || meaning}` }, markOf(verdict?.holds));
      })));
    matrix.replaceChildren(html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows)));
  }
  let filled = "-";

  return {
    element,
    update(state) {
      const names = shownNames(state);
      length.set(state.n);
      pickers.forEach((picker, n) => {
        picker.set(names[n] ?? "");
        picker.element.hidden = n > names.length;
      });
      trouble.replaceChildren();
      const place = { i: state.i, j: state.j };
      /** @type {import("./draw.js").Series[]} */
      const series = [];
      maps.forEach((map, n) => {
        const encoding = names[n] ? app.find(names[n]) : null;
        map.element.hidden = !encoding;
        if (!encoding) return;
        try {
          const options = n ? {} : state.options;
          const scores = remembered(["scores", encoding.slug, state.n, state.axis, options], () => addedScores(encoding, oneWord(state.n), { ...state, options, head: 0 }));
          const about = reads(encoding) ? "It depends on the words between, which are all the same here: see its own view." : "";
          map.draw({ title: encoding.name, about, row: QUERY_AXIS, column: KEY_AXIS, ...scores }, place);
          const by = byOffset(scores), zero = by.mean[by.offsets.indexOf(0)];
          series.push({ name: encoding.name, xs: by.offsets, ys: by.mean.map((value) => value - zero) });
        } catch (error) {
          map.element.hidden = true;
          trouble.append(instead(`${encoding.name}: ${reason(error)}`));
        }
      });
      lines.element.hidden = !series.length;
      if (series.length) {
        series.sort((a, b) => b.xs.length - a.xs.length);
        lines.draw({ title: "Score gained or lost with distance", about: "mean over all pairs that far apart, less the score at distance 0; first head.", x: { label: "query − key", role: "offset" }, y: { label: "score − score at 0" }, series }, place);
      }
      const key = `${state.having} ${toHash({ ...state, i: 0, j: 0 })}`;
      if (key !== filled) fill(state);
      filled = key;
      for (const { results, plot } of study) plot.draw(linesOf(results, names.flatMap((name) => app.find(name) ?? []), app.find), place);
    },
  };
}
