// Up to four encodings under one cursor, and all of them by their properties.

import { byFamily, instead, reason } from "./app.js";
import { byOffset, obstacle, scoresOf, walk } from "./compute.js";
import { button, choice, html, slider } from "./dom.js";
import { KEY_AXIS, QUERY_AXIS, heatMap, linePlot } from "./draw.js";
import { markOf } from "./encoding.js";
import { MOST_NAMES, MOST_TOKENS, toHash } from "./state.js";
import { whole } from "./words.js";

/** @import {App, View} from "./app.js" */
/** @import {Data} from "./data.js" */
/** @import {State} from "./state.js" */

/**
 * @typedef {{name: string, about: string, lengths: number[],
 *   scores: {slug: string, mean: number[], low: number[], high: number[]}[]}} Study
 */

const BESIDE = ["alibi", "sinusoidal"]; // shown with a single one

/** @param {Data} data @returns {Study[]} */
const studiesOf = (data) => data.study?.tasks ?? [];

/** @param {App} app @returns {View} */
export function compareView(app) {
  const length = slider({ name: "Tokens", low: 2, high: MOST_TOKENS, shown: String, moved: (n) => app.set({ n }, "n") });
  const groups = byFamily(app.data, (one) => !obstacle(one));
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
  const filters = html("div", { class: "files filters", role: "group", "aria-label": "Show only encodings that have" });
  const buttons = new Map(app.data.properties.map(({ name, label, meaning }) => [name, button(label, () => {
    const { having } = app.now();
    app.set({ having: having.includes(name) ? having.filter((one) => one !== name) : [...having, name] });
  }, { title: meaning, "aria-pressed": false })]));
  filters.append(...buttons.values());
  const count = html("p", { class: "soft", "aria-live": "polite" });
  const matrix = html("div", { class: "scroll matrix", tabindex: 0, role: "region", "aria-label": "Properties of each encoding" });
  const studies = html("section");
  const study = studiesOf(app.data).map((one) => ({ one, plot: linePlot(app.desk) }));
  if (study.length) studies.append(html("h3", {}, "Trained short, tested long"), html("div", { class: "figures" }, ...study.map(({ plot }) => plot.element)));
  const element = html("div", {},
    html("h2", {}, "Side by side"),
    html("p", { class: "summary" }, "One word against itself at every pair of places, under one cursor. Each figure has colours of its own; the lines below are on one scale."),
    html("div", { class: "controls" }, ...pickers.map((one) => one.element), length.element),
    trouble, figures, html("div", { class: "figures" }, lines.element),
    html("section", { class: "properties" }, html("h3", {}, "Which has what"),
      html("p", { class: "soft" }, "Measured, not declared. Choose properties to see only the encodings that have all of them."), filters, count, matrix),
    studies);

  /** @param {State} state @returns {string[]} at least two */
  function shownNames(state) {
    const can = (/** @type {string} */ name) => { const one = app.find(name); return one !== null && !obstacle(one); };
    const names = state.names.filter(can);
    const enough = names.length ? 2 : 3;
    for (const name of [...app.data.first, ...BESIDE]) if (names.length < enough && can(name) && !names.includes(name)) names.push(name);
    return names;
  }

  function fill(/** @type {State} */ state) {
    const has = app.data.encodings.filter((one) => state.having.every((name) => one.properties[name]?.holds));
    for (const [name, each] of buttons) each.setAttribute("aria-pressed", String(state.having.includes(name)));
    const all = app.data.encodings.length;
    count.textContent = has.length === all ? `All ${whole(all)} encodings.` : `${has.length} of ${whole(all)} encodings.`;
    const head = html("tr", {}, html("th", { scope: "col" }, "encoding"),
      ...app.data.properties.map(({ label, meaning }) => html("th", { scope: "col", title: meaning }, html("span", {}, label))));
    const rows = has.map((one) => html("tr", {},
      html("th", { scope: "row" }, html("a", { href: toHash({ ...state, view: "encoding", names: [one.slug], options: {} }) }, one.name)),
      ...app.data.properties.map(({ name }) => {
        const found = one.properties[name];
        return html("td", { title: found?.why || null }, markOf(found?.holds));
      })));
    matrix.replaceChildren(html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows)));
  }
  let filled = "-";

  return {
    element,
    update(state) {
      const names = shownNames(state);
      length.set(state.n);
      pickers.forEach((one, n) => {
        one.set(names[n] ?? "");
        one.element.hidden = n > names.length;
      });
      trouble.replaceChildren();
      const place = { i: state.i, j: state.j };
      /** @type {import("./draw.js").Series[]} */
      const series = [];
      maps.forEach((map, n) => {
        const one = names[n] ? app.find(names[n]) : null;
        map.element.hidden = !one;
        if (!one) return;
        try {
          const scores = scoresOf(one, walk(state.n, one.graph.axes, state.axis), n ? {} : state.options, 0);
          map.draw({ title: one.name, about: "", row: QUERY_AXIS, column: KEY_AXIS, ...scores }, place);
          const by = byOffset(scores), zero = by.mean[by.offsets.indexOf(0)];
          series.push({ name: one.name, xs: by.offsets, ys: by.mean.map((value) => value - zero) });
        } catch (error) {
          map.element.hidden = true;
          trouble.append(instead(`${one.name}: ${reason(error)}`));
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
      for (const { one, plot } of study) {
        const chosen = one.scores.filter(({ slug }) => names.includes(slug));
        plot.element.hidden = !chosen.length;
        if (chosen.length) {
          plot.draw({ title: one.name, about: one.about, x: { label: "length tested" }, y: { label: "share correct" },
            series: chosen.map(({ slug, mean, low, high }) => ({ name: app.find(slug)?.name ?? slug, xs: one.lengths, ys: mean, low, high })) }, place);
        }
      }
    },
  };
}
