// Clocks: for each pair of channels the hands of a query and of a key.

import { html, svg } from "./dom.js";
import { shown } from "./words.js";

/** @import {Turning} from "./compute.js" */

/** The query and the key, words of the toy world. @type {[string, string]} */
export const BOTH = ["dog", "chased"];
const RADIUS = 44;

/** @param {Float64Array} x @param {[number, number]} pair @returns {number} */
export const angleOf = (x, [a, b]) => Math.atan2(x[b], x[a]);

/** @param {Float64Array} q @param {Float64Array} k @param {[number, number]} pair @returns {number} what the pair adds to the score */
export const partOf = (q, k, [a, b]) => (q[a] * k[a] + q[b] * k[b]) / Math.sqrt(q.length);

/** @returns {HTMLElement} which hand is whose */
export function makeLegend() {
  const hand = (/** @type {string} */ role) => svg("svg", { width: 34, height: 12, class: "hands", "aria-hidden": true }, svg("line", { x1: 2, x2: 32, y1: 6, y2: 6, class: `hand ${role}` }));
  const [query, key] = BOTH;
  return html("ul", { class: "legend" }, html("li", {}, hand("query"), `“${query}”, the query`), html("li", {}, hand("key"), `“${key}”, the key`));
}

export function makeClocks() {
  const element = html("ul", { class: "circles" });
  /** @type {{query: SVGLineElement, key: SVGLineElement, arc: SVGPathElement}[]} */
  let drawn = [];

  /** @param {Turning} turning */
  function showTurning(turning) {
    drawn = [];
    element.replaceChildren(...turning.pairs.map(([a, b], n) => {
      const speed = turning.speeds[n];
      const one = {
        query: svg("line", { class: "hand query" }), key: svg("line", { class: "hand key" }), arc: svg("path", { class: "arc" }),
      };
      drawn.push(one);
      const size = 2 * RADIUS + 12;
      const dial = svg("svg", { viewBox: `${-size / 2} ${-size / 2} ${size} ${size}`, "aria-hidden": true },
        svg("circle", { r: RADIUS, class: "dial" }), one.arc, one.key, one.query);
      const turn = Math.abs(speed) < 1e-12 ? "does not turn" : `turns in ${shown(2 * Math.PI / Math.abs(speed), 3)} tokens`;
      return html("li", {}, dial, html("span", {}, `channels ${a}, ${b}`), html("span", { class: "soft" }, turn));
    }));
  }

  /** @param {Turning} turning @param {{q: Float64Array, k: Float64Array}} pair */
  function turn(turning, { q, k }) {
    turning.pairs.forEach((pair, n) => {
      const [x, y] = [angleOf(q, pair), angleOf(k, pair)];
      // counter-clockwise, as mathematics draws it: y grows upwards
      const end = (/** @type {number} */ angle, /** @type {number} */ r) => [r * Math.cos(angle), -r * Math.sin(angle)];
      const put = (/** @type {SVGLineElement} */ line, /** @type {number} */ angle) => {
        const [ex, ey] = end(angle, RADIUS - 2);
        line.setAttribute("x2", ex.toFixed(2));
        line.setAttribute("y2", ey.toFixed(2));
      };
      put(drawn[n].query, x);
      put(drawn[n].key, y);
      const gap = Math.atan2(Math.sin(x - y), Math.cos(x - y));
      const [sx, sy] = end(y, 18), [ex, ey] = end(x, 18);
      drawn[n].arc.setAttribute("d", `M ${sx.toFixed(2)} ${sy.toFixed(2)} A 18 18 0 0 ${gap > 0 ? 0 : 1} ${ex.toFixed(2)} ${ey.toFixed(2)}`);
    });
  }
  return { element, showTurning, turn };
}
