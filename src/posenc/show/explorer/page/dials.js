// Dials: for each pair of channels the circle of its angles, those of training and new ones.

import { html, svg } from "./dom.js";

/** @param {number} from @param {number} to in turns @param {string} fill */
function sector(from, to, fill) {
  if (to - from < 1e-6) return null;
  if (to - from > 0.9999) return svg("circle", { r: 20, class: fill });
  const at = (/** @type {number} */ share) => `${20 * Math.sin(2 * Math.PI * share)} ${-20 * Math.cos(2 * Math.PI * share)}`;
  return svg("path", { d: `M0 0 L${at(from)} A20 20 0 ${to - from > 0.5 ? 1 : 0} 1 ${at(to)}Z`, class: fill });
}

/** @param {number[]} shares @returns {number} how many pairs meet angles for the first time */
export const fresh = (shares) => shares.filter((share) => share > 0).length;

export function makeDials() {
  const element = html("div", { class: "dials", role: "img" });
  return {
    element,
    /** @param {number[]} met shares of each circle @param {number[]} shares that are met for the first time */
    draw(met, shares) {
      element.replaceChildren(...shares.map((share, pair) => svg("svg", { viewBox: "-22 -22 44 44", "aria-hidden": true },
        svg("circle", { r: 20, class: "unmet" }), sector(0, met[pair], "met"), sector(met[pair], met[pair] + share, "new"))));
      element.setAttribute("aria-label", `${met.length} dials, ${fresh(shares)} with an orange part`);
    },
  };
}
