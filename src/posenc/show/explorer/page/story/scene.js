// The parts of every scene of the story: a picture, handles on it, and colours.

import { html, svg } from "../dom.js";
import { integer } from "../words.js";

/** @import {Child} from "../dom.js" */
/** @import {State} from "../state.js" */

/**
 * A guess that the reader makes on the figure, in steps from `low` to `high`.
 * @typedef {{label: string, low: number, high: number, step: number, first: number,
 *   said: (value: number) => string, right: (value: number) => boolean}} Guess
 */

/**
 * The state of a figure: `guess` is a value of the scene's guess, `touched` is true if the reader chose it, and
 * `film` goes from 0, the guess, to 1, the truth. Before the guess is checked, `seen` is false.
 * @typedef {{state: State, guess: number, touched: boolean, seen: boolean, film: number}} Moment
 */

/**
 * @typedef {{name: string, title: string, lead: Child[], question: string, guess: Guess | null, ends: [string, string],
 *   seconds?: number, figure: HTMLElement, draw: (moment: Moment) => void, answer: (moment: Moment) => Child[],
 *   leads: [string, string] | null, formula: string, code: string, notes: number[], free?: (state: State) => boolean}} Scene
 */

/** @param {number} x @param {number} low @param {number} high */
export const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

/** @param {number} a @param {number} b @param {number} t @returns {number} the number between a and b at t */
export const between = (a, b, t) => a + (b - a) * t;

/** @param {number} share @returns {string} "7 %" */
export const whole = (share) => `${integer(100 * share)} %`;

/** @param {number} t from 0 to 1 @returns {number} the same, slow at both ends */
export const eased = (t) => (t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2);

/** @param {number} value from −1, blue, to 1, orange @param {string} [middle] the colour of 0 */
export function heat(value, middle = "paper") {
  const share = (100 * Math.min(1, Math.abs(value))).toFixed(1);
  return `color-mix(in srgb, var(--heat-${value < 0 ? "low" : "high"}) ${share}%, var(--${middle}))`;
}

const still = matchMedia("(prefers-reduced-motion: reduce)");

/**
 * Calls `step` with numbers from 0 to 1, once for each frame; once with 1 if the system prefers less motion.
 * @param {number} seconds @param {(t: number) => void} step @param {() => void} [done] @returns {() => void} stops it
 */
export function animate(seconds, step, done = () => {}) {
  let on = true, begun = -1;
  const next = (/** @type {number} */ now) => {
    if (!on) return;
    if (begun < 0) begun = now;
    const t = still.matches ? 1 : Math.min(1, (now - begun) / (1000 * seconds));
    step(t);
    if (t < 1) requestAnimationFrame(next);
    else done();
  };
  if (still.matches) {
    step(1);
    done();
  } else requestAnimationFrame(next);
  return () => { on = false; };
}

/** @param {number} x @param {number} y @param {string | number} text @param {Object<string, any>} [more] @returns {SVGElement} */
export const write = (x, y, text, more = {}) => svg("text", { x: x.toFixed(1), y: y.toFixed(1), ...more }, String(text));

/** @param {number} x @param {number} y @param {number} width @param {number} height @param {Object<string, any>} more @returns {SVGElement} */
export const box = (x, y, width, height, more) =>
  svg("rect", { x: x.toFixed(1), y: Math.min(y, y + height).toFixed(1), width: width.toFixed(1), height: Math.abs(height).toFixed(1), ...more });

/** @param {number[][]} points @param {Object<string, any>} more @returns {SVGElement} */
export const line = (points, more) =>
  svg("polyline", { points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "), fill: "none", ...more });

/** @param {number} x @param {number} y @param {number} r @param {Object<string, any>} more @returns {SVGElement} */
export const dot = (x, y, r, more) => svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: r.toFixed(1), ...more });

/**
 * A picture that is as wide as its column, and the handles that lie on it.
 * @param {{low: number, tall: number, below: number}} size heights in pixels: the least on a phone, the most, and the room left for controls below
 */
export function makePlate({ low, tall, below }) {
  const picture = svg("svg", { role: "img" });
  const element = html("div", { class: "board" }, picture);
  /** @type {(() => void)[]} */
  const placed = [];
  let width = 1, height = 1, again = () => {};
  new ResizeObserver(() => again()).observe(element);
  return {
    element, picture,
    /** @param {PointerEvent} event @returns {[number, number]} where it is, in the units of the picture */
    at(event) {
      const frame = picture.getBoundingClientRect();
      return [((event.clientX - frame.left) / frame.width) * width, ((event.clientY - frame.top) / frame.height) * height];
    },
    /** @param {HTMLElement} node @param {number[]} place middle, and size if it has one */
    put(node, [x, y, wide = 0, high = 0]) {
      node.style.left = `${(100 * x) / width}%`;
      node.style.top = `${(100 * y) / height}%`;
      if (wide) Object.assign(node.style, { width: `${wide}px`, height: `${high}px`, margin: `${-high / 2}px 0 0 ${-wide / 2}px` });
    },
    /** @param {() => void} place called after each drawing */
    after: (place) => void placed.push(place),
    /**
     * @param {string} label the text for screen readers
     * @param {(width: number, height: number, narrow: boolean) => (Child | boolean)[]} draw
     */
    show(label, draw) {
      again = () => {
        const phone = innerWidth < 1000;
        width = element.clientWidth || width;
        height = phone ? low + width / 8 : clamp(innerHeight - 150 - below, 380, tall);
        picture.setAttribute("viewBox", `0 0 ${width} ${height.toFixed(1)}`);
        picture.setAttribute("aria-label", label);
        picture.replaceChildren(...draw(width, height, width < 600).filter((child) => child instanceof Node));
        for (const place of placed) place();
      };
      again();
    },
  };
}

/**
 * A handle on a picture: dragged by hand, moved by keys as a slider.
 * @param {ReturnType<typeof makePlate>} plate
 * @param {{label: string, low: number, high: number, step: number, kind?: string, value: () => number, set: (value: number) => void,
 *   said: (value: number) => string, open: () => boolean, place: () => number[], from: (x: number, y: number) => number,
 *   zone?: (x: number, y: number) => boolean, enter?: () => void}} of `place` and `from` are in the units of the picture;
 *   a click in the `zone` moves the handle there; Enter calls `enter`
 */
export function addHandle(plate, { label, low, high, step, kind = "guessed", value, set, said, open, place, from, zone, enter }) {
  const node = html("div", { class: `handle ${kind}`, tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": low, "aria-valuemax": high });
  const move = (/** @type {number} */ to) => set(clamp(low + Math.round((to - low) / step) * step, low, high));
  plate.after(() => {
    node.hidden = !open();
    if (node.hidden) return;
    plate.put(node, place());
    node.setAttribute("aria-valuenow", String(Number(value().toFixed(3))));
    node.setAttribute("aria-valuetext", said(value()));
  });
  node.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -5, PageUp: 5 }[event.key];
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" && enter) enter();
    else if (event.key === "Home") move(low);
    else if (event.key === "End") move(high);
    else if (by) move(value() + by * step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const hold = (/** @type {PointerEvent} */ event, /** @type {Element} */ on) => {
    const drag = (/** @type {Event} */ moved) => move(from(...plate.at(/** @type {PointerEvent} */ (moved))));
    on.setPointerCapture(event.pointerId);
    on.addEventListener("pointermove", drag);
    for (const end of ["pointerup", "pointercancel"]) on.addEventListener(end, () => on.removeEventListener("pointermove", drag), { once: true });
  };
  node.addEventListener("pointerdown", (event) => hold(event, node));
  plate.picture.addEventListener("pointerdown", (event) => {
    if (!open() || !zone?.(...plate.at(event))) return;
    if (event.pointerType === "mouse") hold(event, plate.picture);
    move(from(...plate.at(event)));
    node.focus({ preventScroll: true });
  });
  plate.element.append(node);
}
