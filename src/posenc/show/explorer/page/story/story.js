// The front page: seven scenes, in which readers guess on a figure that then moves from the guess to the truth.

import { instead, reason } from "../app.js";
import { button, html } from "../dom.js";
import { FIRST, toHash } from "../state.js";
import { STOPS } from "../tour.js";
import { count } from "./count.js";
import { duplicateWords } from "./duplicate_words.js";
import { grow } from "./grow.js";
import { animate, clamp } from "./scene.js";
import { short } from "./short.js";
import { take } from "./take.js";
import { turn } from "./turn.js";
import { waves } from "./waves.js";

/** @import {App, View} from "../app.js" */
/** @import {State} from "../state.js" */
/** @import {Moment, Scene} from "./scene.js" */

const NAMES = ["Which dog?", "Count them", "Waves", "Turn", "The text grows", "Trained short", "Take one"];

/** @param {App} app @returns {View} */
export function storyView(app) {
  /** @type {(boolean | null)[]} of each scene: whether the guess was right */
  const marks = NAMES.slice(0, -1).map(() => null);
  const MAKE = [duplicateWords, count, waves, turn, grow, short, (/** @type {App} */ of) => take(of, () => marks)];
  const steps = html("ol", { class: "steps" }, ...NAMES.map((name, n) => html("li", {}, html("a", { "data-scene": n }, html("span", {}, name), html("i")))));
  const of = html("p", { class: "soft of" }), title = html("h2", { tabindex: -1 }), lead = html("p", { class: "lead" }), asks = html("p", { class: "asks" });
  const figure = html("div", { class: "scene" });
  const told = html("div", { class: "told", "aria-live": "polite" }), hint = html("span", { class: "soft" });
  const show = button("Show me", () => check()), acts = html("div", { class: "row acts" }, show, hint);
  const verdict = html("div", { class: "say" }, told, acts);
  const next = html("a", { class: "bridge" }), back = html("a", { class: "soft back" }, "← Back"), more = html("div", { class: "more" });
  const play = button("▶", () => (playing ? halt() : roll(film >= 1 ? 0 : film)), { "aria-label": "Play from the guess to the truth" });
  const range = html("input", { type: "range", min: 0, max: 100 });
  const from = html("span"), to = html("span"), reel = html("div", { class: "film" }, play, from, range, to);
  const element = html("div", { class: "story" }, html("nav", { "aria-label": "Scenes" }, steps),
    html("div", { class: "words" }, of, title, lead, asks), html("div", { class: "figure" }, figure, reel), verdict,
    html("div", { class: "on" }, next, back, more));
  /** @type {(Scene | undefined)[]} */
  const made = [];
  let shown = -1, film = 1, during = "";
  /** @type {(() => void) | null} */
  let playing = null;

  const current = () => /** @type {Scene} */ (made[app.now().scene]);
  /** @returns {Moment} */
  function now() {
    const state = app.now(), { guess, free: isFree } = current(), free = !guess || Boolean(isFree?.(state));
    const value = !guess ? 0 : state.guess ? Math.min(guess.high, guess.low + (state.guess - 1) * guess.step) : guess.first;
    return { state, guess: value, touched: state.guess > 0, seen: state.seen || free, film: state.seen || free ? film : 0 };
  }
  function guessed(/** @type {number} */ value) {
    const { guess } = current();
    if (guess && !app.now().seen) app.set({ guess: 1 + Math.round((value - guess.low) / guess.step) }, "guess");
  }
  function halt() {
    playing?.();
    playing = null;
    element.toggleAttribute("data-playing", false);
    play.textContent = "▶";
  }
  /** Moves the figure from the guess to the truth. @param {number} begin */
  function roll(begin) {
    halt();
    const scene = current(), rest = { ...app.now(), ...(scene.free?.(app.now()) ? { kind: 0, order: [], at: FIRST.at, apart: FIRST.apart, text: FIRST.text } : {}), seen: true, film: 100 };
    during = toHash(rest);
    element.toggleAttribute("data-playing", true);
    play.textContent = "❚❚";
    film = begin;
    playing = () => {}; // from here on the film of the state does not count
    app.set(rest);
    const stop = animate((scene.seconds ?? 2) * (1 - begin), (t) => {
      film = begin + (1 - begin) * t;
      range.value = String(Math.round(100 * film));
      scene.draw(now());
    }, halt);
    if (playing) playing = stop;
  }
  function check() {
    if (app.now().seen || !current().guess) return;
    roll(0);
    title.focus({ preventScroll: true });
  }
  range.addEventListener("input", () => {
    halt();
    app.set({ seen: true, film: Number(range.value) }, "film");
  });
  const go = (/** @type {number} */ scene) => {
    if (scene < 0 || scene >= NAMES.length) return;
    app.set({ ...FIRST, view: "story", embed: app.now().embed, scene });
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (!element.isConnected) return removeEventListener("keydown", press);
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.altKey || event.ctrlKey || event.metaKey || target.closest("input, select, [role=button], [role=slider], [role=application], .scroll")) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) go(app.now().scene + by);
    else if (event.key === "s") check();
    else if (event.key === " " && app.now().seen && current().guess && !target.closest("button, a, summary")) play.click();
    else return;
    event.preventDefault();
  };
  addEventListener("keydown", press);

  /** Draws the parts that do not change within a scene. @param {Scene} scene @param {State} state */
  function set(scene, state) {
    of.textContent = `${state.scene + 1} of ${NAMES.length}`;
    title.textContent = scene.title;
    lead.replaceChildren(...scene.lead.filter((part) => part !== null && part !== undefined && part !== false));
    asks.textContent = scene.question;
    figure.replaceChildren(scene.figure);
    [from.textContent, to.textContent] = scene.ends;
    range.setAttribute("aria-label", `From ${scene.ends.join(" to ")}`);
    reel.hidden = !scene.guess;
    verdict.classList.toggle("stays", Boolean(scene.guess));
    const address = (/** @type {number} */ n) => toHash({ ...FIRST, view: "story", embed: state.embed, scene: n });
    back.hidden = state.scene === 0;
    back.href = address(state.scene - 1);
    next.hidden = !scene.leads;
    next.href = address(state.scene + 1);
    const behind = (/** @type {string} */ name, /** @type {Node | string} */ inside) => html("details", { name: "behind" }, html("summary", {}, name), inside);
    const claims = scene.notes.map((stop) => html("li", {}, html("a", { href: toHash({ ...FIRST, view: "tour", stop }) }, `“${STOPS[stop - 1].claim}”`)));
    more.replaceChildren(...[["Formula", scene.formula], ["Code", scene.code]].filter(([, text]) => text).map(([name, text]) => behind(name, html("pre", {}, text))),
      ...(claims.length ? [behind("Often said", html("ul", { class: "notes" }, ...claims))] : []));
  }

  /** @param {Scene} scene @param {Moment} moment */
  function describe(scene, moment) {
    const { guess } = scene, right = guess && moment.touched && moment.seen ? guess.right(moment.guess) : null;
    if (right !== null) marks[moment.state.scene] = right;
    const free = scene.free?.(moment.state), mark = right !== null && !free && html("b", { class: right ? "yes" : "no" }, `${right ? "✓" : "✕"} You said ${guess?.said(moment.guess)}.`);
    const parts = moment.seen ? [mark && html("p", {}, mark), html("p", {}, ...scene.answer(moment).filter((part) => part instanceof Node || typeof part === "string"))] : [];
    told.replaceChildren(...parts.filter((part) => part instanceof Node));
    acts.hidden = moment.seen;
    show.textContent = moment.touched ? "See if it is right" : "Show me";
    show.classList.toggle("main", moment.touched);
    hint.textContent = moment.touched && guess ? `your guess: ${guess.said(moment.guess)}` : "or drag the handle on the figure";
    if (scene.leads) next.replaceChildren(...(moment.seen ? [html("b", {}, scene.leads[0]), ` ${scene.leads[1]} →`] : ["Next scene →"]));
    next.classList.toggle("early", !moment.seen);
    reel.toggleAttribute("data-off", !moment.seen);
    [...steps.querySelectorAll("i")].forEach((sign, n) => {
      const was = n < marks.length ? marks[n] : null;
      sign.textContent = was === null ? "" : was ? "✓" : "✕";
      sign.className = was ? "yes" : "no";
    });
  }

  return {
    element, title: ({ scene }) => NAMES[scene],
    update(state) {
      for (const link of steps.querySelectorAll("a")) {
        const scene = Number(link.dataset.scene);
        link.href = toHash({ ...FIRST, view: "story", embed: state.embed, scene });
        if (scene === state.scene) link.setAttribute("aria-current", "step");
        else link.removeAttribute("aria-current");
      }
      if (playing && toHash(state) !== during) halt();
      if (!playing) film = clamp(state.film, 0, 100) / 100;
      range.value = String(state.seen ? Math.round(100 * film) : 0);
      try {
        const scene = (made[state.scene] ??= MAKE[state.scene](app, now, guessed, check));
        if (shown !== state.scene) set(scene, state);
        shown = state.scene;
        const moment = now();
        scene.draw(moment);
        describe(scene, moment);
      } catch (error) {
        figure.replaceChildren(instead(reason(error)));
        shown = -1;
      }
    },
  };
}
