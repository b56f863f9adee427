// The view of rotations: pairs of channels that turn at their own speeds, and the constant angle between two words.

import { encodingChoice, instead, reason } from "./app.js";
import { BOTH, angleOf, makeClocks, makeLegend } from "./clocks.js";
import { obstacle, turningOf, turns } from "./compute.js";
import { button, html, slider, table } from "./dom.js";
import { pairAt } from "./layer.js";
import { integer, shown } from "./words.js";

/** @import {App, View} from "./app.js" */
/** @import {Turning} from "./compute.js" */
/** @import {Encoding} from "./data.js" */
/** @import {State} from "./state.js" */

const FURTHEST = 512, NEAREST_APART = -32, FURTHEST_APART = 32;
const A_SECOND = 8; // positions
const ROUNDED = 1e-6; // radians: cos and sin are rounded to float32

/** @param {Encoding} encoding */
const turnsPairs = (encoding) => !obstacle(encoding) && turns(encoding) && turningOf(encoding, {}, 0) !== null;

/** @param {App} app @returns {View} */
export function rotationView(app) {
  const fits = new Set(app.data.encodings.filter(turnsPairs).map((encoding) => encoding.slug));
  const picker = encodingChoice(app, (encoding) => fits.has(encoding.slug));
  const axis = slider({ name: "Axis that advances", low: 0, high: 1, shown: String, moved: (at) => app.set({ axis: at }, "axis") });
  const place = slider({ name: `Place of “${BOTH[0]}”`, low: 0, high: FURTHEST, shown: String, moved: (at) => app.set({ at }, "at") });
  const between = slider({ name: "Words between them", low: NEAREST_APART, high: FURTHEST_APART, shown: (n) => shown(n), moved: (n) => app.set({ apart: n }, "apart") });
  between.element.firstElementChild?.replaceChildren(`“${BOTH[1]}” before “${BOTH[0]}”, in words`);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let timer = 0, begun = 0, from = 0;
  const play = button("Play", () => (timer ? stop() : start()), { "aria-pressed": false });
  const step = (/** @type {number} */ by) => {
    stop();
    app.set({ at: Math.min(FURTHEST, Math.max(0, app.now().at + by)) }, "step");
  };
  const buttons = html("div", { class: "files" }, button("Step back", () => step(-1)), play, button("Step", () => step(1)), button("Move both by 37", () => step(app.now().at + 37 > FURTHEST ? -37 : 37)));
  const clocks = makeClocks();
  const claim = html("p", { class: "claim" });
  const numbers = html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Angles of each pair" });
  const trouble = html("div");
  const body = html("div", {}, claim, makeLegend(), clocks.element, html("details", { class: "numbers", open: true }, html("summary", {}, "Angles of each pair"), numbers));
  const element = html("div", {},
    html("h2", {}, "Turning pairs"),
    html("p", { class: "summary" }, "Each pair of channels is a clock hand that turns at its own speed as the position advances. Move two words together: both turn, and the angle between them does not change."),
    html("div", { class: "controls" }, picker.element, axis.element), html("div", { class: "controls" }, place.element, between.element, buttons),
    trouble, body);
  /** @type {{encoding: Encoding, turning: Turning, key: string} | null} */
  let known = null;

  function stop() {
    if (timer && still.matches) clearInterval(timer);
    else if (timer) cancelAnimationFrame(timer);
    timer = 0;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  }
  function start() {
    play.textContent = "Pause";
    play.setAttribute("aria-pressed", "true");
    from = app.now().at >= FURTHEST ? 0 : app.now().at;
    if (still.matches) { // one position a second, without motion between them
      timer = window.setInterval(() => {
        if (!element.isConnected || app.now().at >= FURTHEST) return stop();
        app.set({ at: app.now().at + 1 }, "play");
      }, 1000);
      return;
    }
    begun = performance.now();
    const turn = (/** @type {number} */ now) => {
      const at = Math.min(FURTHEST, from + ((now - begun) / 1000) * A_SECOND);
      if (!element.isConnected || !timer) return stop();
      if (Math.floor(at) !== app.now().at) app.set({ at: Math.floor(at) }, "play");
      if (known) clocks.turn(known.turning, both(known.encoding, app.now(), at));
      if (at >= FURTHEST) return stop();
      timer = requestAnimationFrame(turn);
    };
    timer = requestAnimationFrame(turn);
  }

  /** @param {Encoding} encoding @param {State} state @param {number} at */
  const both = (encoding, state, at) => pairAt(encoding, BOTH, [at, at - state.apart], state);

  function tell(/** @type {Encoding} */ encoding, /** @type {Turning} */ turning, /** @type {State} */ state) {
    const here = both(encoding, state, state.at), start = both(encoding, state, Math.max(0, state.apart)); // both at 0 or later
    const degrees = (/** @type {number} */ x) => `${shown((x * 180) / Math.PI, 3)}°`;
    const wrap = (/** @type {number} */ x) => Math.atan2(Math.sin(x), Math.cos(x));
    let most = 0;
    const rows = turning.pairs.map((pair, n) => {
      const [x, y] = [angleOf(here.q, pair), angleOf(here.k, pair)];
      const gap = wrap(x - y), before = wrap(angleOf(start.q, pair) - angleOf(start.k, pair));
      most = Math.max(most, Math.abs(wrap(gap - before)));
      const speed = turning.speeds[n];
      return [pair.join(", "), shown(speed, 3), Math.abs(speed) < 1e-12 ? "–" : integer(2 * Math.PI / Math.abs(speed)), degrees(x), degrees(y), degrees(gap)];
    });
    numbers.replaceChildren(table(["channels", "radians a position", "positions a turn", `“${BOTH[0]}”`, `“${BOTH[1]}”`, "between them"], rows));
    const moved = most < ROUNDED ? "the angles between them have not changed" : `an angle between them has changed by ${degrees(most)}`;
    const [first, second] = [state.at, state.at - state.apart];
    claim.textContent = `“${BOTH[0]}” at ${shown(first, 6)} scores “${BOTH[1]}” at ${shown(second, 6)} with ${shown(here.score, 6)}. `
      + `At their first positions, ${Math.max(0, state.apart)} and ${Math.max(0, -state.apart)}, the score is ${shown(start.score, 6)}: ${moved}.`;
  }

  return {
    element,
    update(state) {
      const encoding = app.first();
      picker.set(encoding.slug);
      place.set(state.at);
      between.set(state.apart);
      axis.range.max = String((encoding.graph.axes ?? 1) - 1); // before the value, which it bounds
      axis.set(state.axis);
      axis.element.hidden = (encoding.graph.axes ?? 1) === 1;
      trouble.replaceChildren();
      body.hidden = !fits.has(encoding.slug);
      if (body.hidden) {
        stop();
        trouble.append(instead(`${encoding.name} does not rotate separate pairs of channels. Choose an encoding that does.`));
        return;
      }
      try {
        const key = `${encoding.slug} ${state.axis} ${JSON.stringify(state.options)}`;
        if (!known || known.key !== key) {
          const turning = turningOf(encoding, state.options, state.axis);
          if (!turning) throw new Error("its pairs cannot be separated.");
          known = { encoding, turning, key };
          clocks.showTurning(turning);
        }
        if (!timer || still.matches) clocks.turn(known.turning, both(encoding, state, state.at));
        tell(encoding, known.turning, state);
      } catch (error) {
        body.hidden = true;
        trouble.append(instead(reason(error)));
      }
    },
  };
}
