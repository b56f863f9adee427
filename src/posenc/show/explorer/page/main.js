// The page: header, tabs, one view at a time, highlighted places, and the address.

import { compareView } from "./compare.js";
import { dimsOf, sized, slidersOf, stepOf } from "./compute.js";
import { contextView } from "./context.js";
import { readData } from "./data.js";
import { html } from "./dom.js";
import { unthemed } from "./draw.js";
import { encodingView } from "./encoding.js";
import { orderView } from "./order.js";
import { pictureView } from "./picture.js";
import { rotationView } from "./rotation.js";
import { FIRST, MOST_WORDS, VIEWS, keepState, toHash } from "./state.js";
import { storyView } from "./story/story.js";
import { tourView } from "./tour.js";
import { joined, shown, tokensOf } from "./words.js";

/** @import {App, View} from "./app.js" */
/** @import {Place} from "./draw.js" */
/** @import {State} from "./state.js" */

/** @type {Object<string, (app: App) => View>} */
const MAKE = {
  story: storyView, encoding: encodingView, order: orderView, picture: pictureView, rotation: rotationView, compare: compareView,
  context: contextView, tour: tourView,
};

const INSTRUMENT = VIEWS.filter((view) => view !== "story" && view !== "tour");

const RELOAD = 3_000, PATIENCE = 300_000; // milliseconds

function begin() {
  const by = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
  const data = readData(by("data").textContent ?? "");
  const encodings = new Map(data.encodings.map((encoding) => [encoding.slug, encoding]));
  const main = by("view"), live = by("live"), notice = by("notice"), tabs = by("tabs"), instrument = by("instrument"), seed = by("seed");
  const header = /** @type {HTMLElement} */ (tabs.parentElement);
  /** @type {((place: Place) => void)[]} */
  let listeners = [];
  /** @type {View | null} */
  let view = null;
  let open = "";

  const kept = keepState(update);
  const light = (/** @type {Place} */ place) => listeners.forEach((listener) => listener(place));
  const announce = (/** @type {string} */ text) => void (live.textContent = text);
  /** @type {App} */
  const app = {
    data, announce, now: kept.now, set: kept.set,
    find: (name) => encodings.get(name) ?? null,
    first: () => encodings.get(kept.now().names[0]) ?? encodings.get(data.first[0]) ?? [...encodings.values()][0],
    desk: {
      light, announce,
      put(place) {
        const { i, j, c } = { ...kept.now(), ...place };
        light(place);
        if ("i" in place || "j" in place || "c" in place) kept.set({ i, j, c }, "cursor");
      },
      lit: (listener) => listeners.push(listener),
      where: () => `${location.href.split("#")[0].replace(/^file:.*\//, "")}${toHash(kept.now())}`,
    },
  };

  /** @param {State} state @returns {string[]} parts of the address that this page does not have */
  function lacking(state) {
    const encoding = sized(app.first(), state.dim), sliders = slidersOf(encoding), { dim } = encoding.graph;
    const unknown = state.names.filter((name) => !encodings.has(name)).map((name) => `the encoding “${name}”`);
    const options = Object.entries(state.options).flatMap(([name, value]) => {
      if (!Object.hasOwn(sliders, name)) return [`“${name}”, which ${encoding.name} has no slider for${Object.hasOwn(slidersOf(app.first()), name) ? ` at ${dim} channels` : ""}`];
      const near = sliders[name].values[stepOf(sliders[name], value)];
      return near === value ? [] : [`${name} ${shown(value, 8)} (shown: ${shown(near, 8)})`];
    });
    if (dim && state.dim !== dim && state.dim !== FIRST.dim) unknown.push(`${state.dim} channels (shown: ${dim}; there are ${dimsOf(app.first()).join(", ")})`);
    if (state.model && !data.models.some((model) => model.name === state.model)) unknown.push(`the model “${state.model}”`);
    if (tokensOf(state.text).length > MOST_WORDS) unknown.push(`words beyond the ${MOST_WORDS}th`);
    return [...unknown, ...options];
  }

  /** @param {State} state */
  function update(state) {
    const wrong = [...kept.misread(), ...lacking(state)];
    const more = data.missing.length ? `Not ready yet: ${joined(data.missing)}. This page loads them as soon as they are. ` : "";
    notice.textContent = more + (wrong.length ? `Parts of this address are unknown: ${wrong.join("; ")}.` : "");
    const changed = open !== state.view;
    if (changed) {
      listeners = [];
      view = MAKE[state.view](app);
      main.replaceChildren(view.element);
    }
    open = state.view;
    document.documentElement.classList.toggle("embed", state.embed);
    instrument.hidden = !INSTRUMENT.includes(state.view);
    for (const link of header.querySelectorAll("a")) {
      const name = link.dataset.view ?? "", tab = link.dataset.tab ?? "";
      link.href = toHash({ ...state, view: name || tab });
      const here = tab === "encoding" ? false : tab ? !INSTRUMENT.includes(state.view) : name === state.view;
      link.classList.toggle("open", tab === "encoding" && INSTRUMENT.includes(state.view));
      if (here) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const out = /** @type {HTMLAnchorElement} */ (by("whole"));
    out.href = toHash({ ...state, embed: false });
    view?.update(state);
    const what = ["story", "tour", "context"].includes(state.view) ? "" : `${app.first().name}, `;
    document.title = `${view?.title?.(state) ?? `${what}${state.view}`} · posenc explorer`;
    if (changed && !first) main.focus({ preventScroll: true });
    first = false;
  }

  let first = true;
  tabs.replaceChildren(...[["story", "Story"], ["encoding", "Instrument"]].map(([tab, name]) => html("li", {}, html("a", { "data-tab": tab }, name))));
  instrument.replaceChildren(...INSTRUMENT.map((name) =>
    html("li", {}, html("a", { "data-view": name }, name[0].toUpperCase() + name.slice(1)))));
  seed.textContent = `posenc ${data.version ?? ""} · seed ${data.seed ?? 0}: the numbers on this page are computed in the browser by the encodings' own code, or were measured before.`;
  if (!location.hash && data.begin !== kept.now().view) kept.set({ view: data.begin });
  else update(kept.now());
  const redraw = () => {
    unthemed();
    update(kept.now());
  };
  for (const query of ["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)"]) {
    matchMedia(query).addEventListener("change", redraw);
  }
  const paper = (/** @type {boolean} */ on) => {
    document.documentElement.classList.toggle("paper", on); // white in every theme
    redraw();
  };
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  document.documentElement.dataset.ready = "";
  // The whole page is written to the same file, unless its writer was stopped
  const age = Date.now() - Date.parse(document.lastModified);
  if (data.missing.length && age < PATIENCE) setTimeout(() => location.reload(), RELOAD);
}

begin();
