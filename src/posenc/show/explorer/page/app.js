// The object that every view receives: data, state, highlighted places, and announcements.

import { choice, html } from "./dom.js";

/** @import {Data, Encoding} from "./data.js" */
/** @import {Desk} from "./draw.js" */
/** @import {State} from "./state.js" */

/**
 * @typedef {{data: Data, desk: Desk, now: () => State,
 *   set: (patch: Partial<State>, drag?: string) => void, find: (name: string) => Encoding | null,
 *   first: () => Encoding, announce: (text: string) => void}} App
 * @typedef {{element: HTMLElement, update: (state: State) => void, title?: (state: State) => string}} View
 */

/** @param {Data} data @param {(one: Encoding) => boolean} [fits] @returns {[string, [string, string][]][]} for a choice, by family */
export function byFamily({ encodings, families }, fits = () => true) {
  const all = encodings.filter(fits);
  /** @type {[string, [string, string][]][]} */
  const groups = Object.entries(families).map(([family, said]) => [
    said.replace(/^./, (letter) => letter.toUpperCase()),
    all.filter((encoding) => encoding.family === family).map((encoding) => [encoding.slug, encoding.name]),
  ]);
  return groups.filter(([, entries]) => entries.length).reverse();
}

/** @param {App} app @param {(one: Encoding) => boolean} [fits] */
export function encodingChoice(app, fits = () => true) {
  return choice({
    name: "Encoding",
    groups: byFamily(app.data, fits),
    chosen: (slug) => app.set({ names: [slug, ...app.now().names.slice(1).filter((name) => name !== slug)], options: {}, head: 0 }),
  });
}

/** @param {string} sentence @returns {HTMLElement} in place of a figure that cannot be shown */
export const instead = (sentence) => html("p", { class: "instead" }, sentence);

/** @param {unknown} error @returns {string} */
export const reason = (error) => {
  const text = error instanceof Error ? error.message : String(error);
  return `This cannot be shown: ${text.replace(/^./, (letter) => letter.toLowerCase())}`;
};

/** @param {App} app @param {string} slug @returns {Encoding} */
export function needed(app, slug) {
  const encoding = app.find(slug);
  if (!encoding) throw new Error(`the encoding “${slug}” is not in this page.`);
  return encoding;
}
