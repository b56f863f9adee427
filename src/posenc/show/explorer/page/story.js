// The front page: which dog, and six scenes; each is a state with an address.

import { instead, reason } from "./app.js";
import { button, html } from "./dom.js";
import { dogs } from "./dogs.js";
import { count, grow, short, take, turn, waves } from "./scenes.js";
import { FIRST, toHash } from "./state.js";
import { STOPS } from "./tour.js";

/** @import {App, View} from "./app.js" */
/** @import {Scene} from "./scenes.js" */

/** @type {{name: string, make: (app: App) => Scene}[]} */
const SCENES = [
  { name: "Which dog?", make: dogs }, { name: "Count them", make: count }, { name: "Waves", make: waves },
  { name: "Turn", make: turn }, { name: "The text grows", make: grow },
  { name: "Trained short", make: short }, { name: "Take one", make: take },
];

/** @param {App} app @returns {View} */
export function storyView(app) {
  const steps = html("ol", { class: "steps" }, ...SCENES.map(({ name }, n) => html("li", {}, html("a", { "data-scene": n }, name))));
  const title = html("h2", { tabindex: -1 }), lead = html("p", { class: "summary" });
  const asks = html("p", { class: "asks" }), answers = html("div", { class: "files answers", role: "group", "aria-label": "Your guess" });
  const told = html("p", { class: "told", "aria-live": "polite" }), body = html("div", { class: "scene" }), notes = html("div", { class: "notes" });
  const go = (/** @type {number} */ scene) => {
    if (scene < 0 || scene >= SCENES.length) return;
    app.set({ ...FIRST, view: "story", embed: app.now().embed, scene });
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  };
  const back = button("Back", () => go(app.now().scene - 1)), next = button("Next", () => go(app.now().scene + 1), { class: "main" });
  const element = html("div", { class: "story" }, html("nav", { "aria-label": "Scenes" }, steps), title, lead, asks, answers, told, body,
    html("div", { class: "files" }, back, next, html("span", { class: "soft keys" }, "← → go from scene to scene")), notes);
  /** @type {(Scene | undefined)[]} */
  const made = [];
  let shown = -1;
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (!element.isConnected) return removeEventListener("keydown", press);
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], target = /** @type {HTMLElement} */ (event.target);
    if (!by || event.altKey || event.ctrlKey || event.metaKey || target.closest("input, select, [role=button], [role=application], .scroll")) return;
    event.preventDefault();
    go(app.now().scene + by);
  };
  addEventListener("keydown", press);

  /** @param {Scene} scene */
  function set(scene) {
    title.textContent = scene.title;
    lead.textContent = scene.lead;
    asks.textContent = scene.asks ?? "";
    answers.replaceChildren(...(scene.answers ?? []).map((text, n) => button(text, () => app.set({ guess: n + 1 }), { "aria-pressed": false })));
    body.replaceChildren(scene.element);
    const items = scene.notes.map((stop) => html("li", {}, html("a", { href: toHash({ ...FIRST, view: "tour", stop }) }, `“${STOPS[stop - 1].claim}”`)));
    notes.replaceChildren(...(items.length ? [html("p", {}, "Often said, and what this page computes of it:"), html("ul", {}, ...items)] : []));
  }

  return {
    element,
    update(state) {
      for (const link of steps.querySelectorAll("a")) {
        const scene = Number(link.dataset.scene);
        link.href = toHash({ ...FIRST, view: "story", embed: state.embed, scene });
        if (scene === state.scene) link.setAttribute("aria-current", "step");
        else link.removeAttribute("aria-current");
      }
      back.disabled = state.scene === 0;
      next.disabled = state.scene === SCENES.length - 1;
      try {
        const scene = (made[state.scene] ??= SCENES[state.scene].make(app));
        if (shown !== state.scene) set(scene);
        shown = state.scene;
        const guessed = !scene.answers || state.guess > 0;
        body.hidden = !guessed;
        answers.querySelectorAll("button").forEach((each, n) => each.setAttribute("aria-pressed", String(n + 1 === state.guess)));
        if (guessed) scene.update(state);
        const hit = state.guess === scene.right ? "Right." : "Not so.";
        told.textContent = scene.told && guessed ? `${hit} ${scene.told(state)}` : "";
      } catch (error) {
        body.hidden = false;
        body.replaceChildren(instead(reason(error)));
        shown = -1;
      }
    },
  };
}
