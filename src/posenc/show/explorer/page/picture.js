// The view of a picture: a boat that is moved among patches, and the attention it pays to each of them.

import { tensor } from "../interpreter.js";
import { encodingChoice, instead, reason } from "./app.js";
import { headsOf, obstacle, remembered } from "./compute.js";
import { html, slider, svg } from "./dom.js";
import { heatMap } from "./draw.js";
import { addedScores, attention } from "./layer.js";
import { largest } from "./scales.js";
import { shown } from "./words.js";

/** @import {App, View} from "./app.js" */
/** @import {Grid} from "./compute.js" */
/** @import {Encoding} from "./data.js" */
/** @import {State} from "./state.js" */

const SIDE = 8, HOME = 34; // patches of a side, and the first place of the boat
const SUN = 14, BOAT = "boat";
const FIRST_CHOICE = "rope-mixed";
const SAME = 1e-5; // differences of float32 tables

/** The patch at each place, without the boat. */
const SCENE = Array.from({ length: SIDE * SIDE }, (_, at) => (at === SUN ? "sun" : at < 32 ? "sky" : at < 56 ? "sea" : "sand"));
const POINTS = tensor([SIDE * SIDE, 2], Float64Array.from(SCENE.flatMap((_, at) => [Math.floor(at / SIDE), at % SIDE])), "int64");

/** @param {number} at @returns {string} */
const where = (at) => `row ${Math.floor(at / SIDE)}, column ${at % SIDE}`;

/** @param {number} boat @returns {string[]} the patches, row by row */
export const patches = (boat) => SCENE.map((patch, at) => (at === boat ? BOAT : patch));

/** @param {Encoding} encoding */
const fits = (encoding) => encoding.graph.axes === 2 && !obstacle(encoding);

/** @param {App} app @returns {Encoding | null} the chosen encoding, or another one of two axes */
function chosen(app) {
  const usual = app.find(FIRST_CHOICE);
  return [app.first(), ...(usual ? [usual] : []), ...app.data.encodings].find(fits) ?? null;
}

/** @param {Grid} scores of all patches, for one content @returns {number} the largest difference of two pairs with the same offset */
export function spreadByOffset({ values }) {
  const low = new Map(), high = new Map();
  let most = 0;
  for (let i = 0; i < SCENE.length; i++) {
    for (let j = 0; j < SCENE.length; j++) {
      const value = values[i * SCENE.length + j];
      const offset = (Math.floor(i / SIDE) - Math.floor(j / SIDE)) * 2 * SIDE + (i % SIDE) - (j % SIDE);
      low.set(offset, Math.min(low.get(offset) ?? Infinity, value));
      high.set(offset, Math.max(high.get(offset) ?? -Infinity, value));
      most = Math.max(most, high.get(offset) - low.get(offset));
    }
  }
  return most;
}

/** @param {(to: number) => void} move */
function makePicture(move) {
  const cells = SCENE.map((_, at) => svg("rect", { x: at % SIDE, y: Math.floor(at / SIDE), width: 1, height: 1 }));
  const mark = svg("rect", { width: 1, height: 1, class: "mark" });
  const drawing = svg("svg", { viewBox: `-.05 -.05 ${SIDE + 0.1} ${SIDE + 0.1}`, role: "img", "aria-label": "A picture of 8 × 8 patches: sky in rows 0 to 3, with a sun at row 1, column 6; sea in rows 4 to 6; sand in row 7." }, ...cells, mark);
  const handle = html("div", { class: "handle", tabindex: 0, role: "button" },
    svg("svg", { viewBox: "0 0 20 20", "aria-hidden": true }, svg("path", { d: "M9 2v10H3zM11 4l6 8h-6zM2 14h16l-3 4H5z" })));
  const element = html("div", { class: "board patches" }, drawing, handle);
  let boat = HOME;
  /** @param {PointerEvent} event @returns {number} the patch under the pointer, or -1 */
  function under(event) {
    const box = drawing.getBoundingClientRect();
    const [row, column] = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width].map((share) => Math.floor(share * SIDE));
    return Math.min(row, column) < 0 || Math.max(row, column) >= SIDE ? -1 : row * SIDE + column;
  }
  element.addEventListener("pointerdown", (event) => {
    const at = under(event);
    if (at < 0 || event.button) return;
    event.preventDefault(); // the browser would select text
    element.setPointerCapture(event.pointerId);
    handle.focus({ preventScroll: true });
    move(at);
  });
  element.addEventListener("pointermove", (event) => {
    const at = under(event);
    if (at >= 0 && at !== boat && element.hasPointerCapture(event.pointerId)) move(at);
  });
  handle.addEventListener("keydown", (event) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    if (!(down || right) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const [row, column] = [Math.floor(boat / SIDE) + down, (boat % SIDE) + right];
    if (row >= 0 && column >= 0 && row < SIDE && column < SIDE) move(row * SIDE + column);
  });
  return {
    element, under,
    /** @param {number} at the boat */
    draw(at) {
      boat = at;
      patches(at).forEach((patch, n) => cells[n].setAttribute("class", patch === BOAT ? SCENE[n] : patch));
      handle.style.cssText = `left:${(100 * ((at % SIDE) + 0.5)) / SIDE}%;top:${(100 * (Math.floor(at / SIDE) + 0.5)) / SIDE}%`;
      handle.setAttribute("aria-label", `The boat, at ${where(at)}. Arrow keys move it.`);
    },
    /** @param {number} row @param {number} column the patch to mark */
    mark(row, column) {
      mark.setAttribute("x", String(column));
      mark.setAttribute("y", String(row));
    },
  };
}

/** @param {App} app @returns {View} */
export function pictureView(app) {
  const picker = encodingChoice(app, fits);
  const head = slider({ name: "Head", low: 0, high: 3, shown: String, moved: (at) => app.set({ head: at }, "head") });
  const picture = makePicture((patch) => {
    app.set({ patch }, "patch");
    app.announce(said.textContent ?? "");
  });
  picture.element.addEventListener("pointermove", (event) => {
    const at = picture.under(event);
    if (at >= 0) app.desk.light({ i: Math.floor(at / SIDE), j: at % SIDE });
  });
  const said = html("p", { class: "readout" });
  const maps = [heatMap(app.desk), heatMap(app.desk), heatMap(app.desk)];
  const drawn = html("figure", {}, html("figcaption", {}, html("strong", {}, "The picture"), " Drag the boat, or focus it and press an arrow key. A click moves it too."),
    html("div", { class: "plate" }, picture.element), said);
  const figures = html("div", { class: "figures four" }, drawn, ...maps.map((map) => map.element));
  const claims = html("ul", { class: "claims" }), trouble = html("div");
  const element = html("div", {},
    html("h2", {}, "Which patch attends where?"),
    html("p", { class: "summary" }, "Without an encoding, the boat attends equally to all patches of sky, wherever they are. An encoding of two axes makes the row and the column of a patch count."),
    html("div", { class: "controls" }, picker.element, head.element), trouble, claims, figures,
    html("p", { class: "soft note" }, "Each kind of patch has one seeded vector, and queries and keys are seeded projections of it. Nothing here is trained."));
  app.desk.lit(({ i, j }) => {
    if (i !== undefined && j !== undefined && i < SIDE && j < SIDE) picture.mark(i, j);
  });

  /** @param {Encoding} encoding @param {State} state */
  function drawMaps(encoding, state) {
    const { head, patch: boat } = state, words = patches(boat), options = encoding === app.first() ? state.options : {};
    const kind = { options, head, axis: 0, causal: false };
    const { without, with: withIt } = remembered(["picture", encoding.slug, boat, options, head], () => attention(encoding, words, kind, null, POINTS));
    const alone = remembered(["alone", encoding.slug, options, head], () => {
      const added = addedScores(encoding, SCENE.map(() => BOAT), kind, POINTS);
      return { added, spread: spreadByOffset(added) };
    });
    const from = (/** @type {Grid} */ grid) => ({ rows: SIDE, columns: SIDE, values: grid.values.slice(boat * SCENE.length, (boat + 1) * SCENE.length) });
    const [before, after, added] = [without, withIt, alone.added].map(from);
    const row = { label: "row", role: /** @type {const} */ ("query") }, column = { label: "column", role: /** @type {const} */ ("key") };
    const top = Math.max(largest(before.values), largest(after.values)), place = { i: state.i % SIDE, j: state.j % SIDE };
    const marks = /** @type {[number, number][]} */ ([[Math.floor(boat / SIDE), boat % SIDE]]);
    const gives = (/** @type {Grid} */ { values }) => (/** @type {number} */ i, /** @type {number} */ j) =>
      `The boat gives ${shown(100 * values[i * SIDE + j])} % to ${words[i * SIDE + j]} at ${where(i * SIDE + j)}.`;
    const weights = { row, column, signed: false, top, marks };
    picture.mark(place.i, place.j);
    maps[0].draw({ title: `With ${encoding.name}`, about: `the weight that the boat gives to each patch${headsOf(encoding) > 1 ? `, in head ${head}` : ""}.`, ...weights, ...after, said: gives(after) }, place);
    maps[1].draw({ title: "Without an encoding", about: "the same patches.", ...weights, ...before, said: gives(before) }, place);
    maps[2].draw({
      title: "By place alone", about: `added by ${encoding.name} to the boat’s score for a second boat at each place.`, row, column, marks, ...added,
      said: (i, j) => `Its score for a boat at ${where(i * SIDE + j)} changes by ${shown(added.values[i * SIDE + j])}.`,
    }, place);
    const sky = (/** @type {Grid} */ { values }) => {
      const all = [...values].filter((_, at) => words[at] === "sky"), [low, high] = [Math.min(...all), Math.max(...all)].map((weight) => `${shown(100 * weight)} %`);
      return low === high ? `each patch of sky gets ${low}` : `a patch of sky gets ${low} to ${high}, by its place`;
    };
    claims.replaceChildren(...[
      `Without an encoding ${sky(before)}. With ${encoding.name} ${sky(after)}.`,
      alone.spread < SAME
        ? `What ${encoding.name} adds depends only on the rows and columns between two patches: the pattern moves with the boat.`
        : `What ${encoding.name} adds depends on the places themselves: pairs the same rows and columns apart differ by up to ${shown(alone.spread)}.`,
    ].map((text) => html("li", {}, text)));
  }

  return {
    element,
    title: () => `${chosen(app)?.name ?? "picture"}, picture`,
    update(state) {
      const encoding = chosen(app);
      trouble.replaceChildren();
      figures.hidden = claims.hidden = !encoding;
      if (!encoding) {
        trouble.append(instead("No encoding in this page has two axes."));
        return;
      }
      if (state.names.length && encoding !== app.first()) trouble.append(html("p", { class: "soft note" }, `${app.first().name} does not have two axes: ${encoding.name} is shown.`));
      picker.set(encoding.slug);
      head.range.max = String(headsOf(encoding) - 1); // before the value, which it bounds
      head.set(state.head);
      head.element.hidden = headsOf(encoding) < 2;
      picture.draw(state.patch);
      said.textContent = `The boat is at ${where(state.patch)}.`;
      try {
        drawMaps(encoding, state);
      } catch (error) {
        figures.hidden = claims.hidden = true;
        trouble.append(instead(reason(error)));
      }
    },
  };
}
