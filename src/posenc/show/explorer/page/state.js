// The whole state of the page, and its address: #v1/order/rope?n=64&i=40&option.base=5000&embed

/**
 * State of the page. `i`, `j` and `c` are the places of the cursor: query, key, channel. In the story `guess` is 0
 * without a guess, otherwise 1 + the steps of the guess from its lowest value; `film` is a share in percent.
 * @typedef {{view: string, names: string[], n: number, i: number, j: number, c: number, head: number,
 *   axis: number, options: Object<string, number>, text: string, order: number[],
 *   causal: boolean, dim: number, channels: string, patch: number, scene: number, kind: number, guess: number, seen: boolean, film: number, way: number, at: number, apart: number, model: string, wanted: number, group: number,
 *   having: string[], stop: number, rows: string, embed: boolean, seeded: boolean}} State
 */

export const VERSION = "v1";
export const VIEWS = ["story", "encoding", "order", "picture", "rotation", "compare", "context", "tour"];
export const MOST_NAMES = 4, MOST_TOKENS = 128, MOST_WORDS = 24;
const LONGEST_TEXT = 300;

/** @type {Readonly<State>} */
export const FIRST = Object.freeze({
  view: "story", names: [], n: 64, i: 40, j: 24, c: 0, head: 0, axis: 0, options: {},
  text: "the old dog chased another dog", order: [], causal: false, dim: 16, channels: "", patch: 34, scene: 0, kind: 0, guess: 0, seen: false, film: 100, way: 0, at: 12, apart: 3, model: "",
  wanted: 0, group: 0, having: [], stop: 1, rows: "", embed: false, seeded: false,
});

/** The least and the greatest value of each number of the state. @type {Object<string, [number, number]>} */
const RANGES = {
  n: [2, MOST_TOKENS], i: [0, MOST_TOKENS - 1], j: [0, MOST_TOKENS - 1], c: [0, 4095], dim: [2, 1024], head: [0, 63], axis: [0, 7],
  apart: [-64, 64], at: [0, 512], wanted: [0, 1e9], group: [0, 63], stop: [1, 15],
  patch: [0, 63], scene: [0, 6], kind: [0, 4], guess: [0, 1000], film: [0, 100], way: [0, 3],
};
const WORDS = ["text", "model", "channels"];
/** Modes of the rows of pairs that turn: a vector, the angle of each pair, or its cosine. */
export const ROWS = ["", "angle", "cos"];
const FLAGS = ["causal", "seen", "embed", "seeded"];
const OPTION = "option.";
const KNOWN = [...Object.keys(RANGES), ...WORDS, ...FLAGS, "rows", "order", "having"];

/** @param {string} part @returns {string} as it is, where that is readable in an address */
const written = (part) =>
  encodeURIComponent(part).replace(/%20/g, "+").replace(/%3A/g, ":");

/** @param {string} part @returns {string} nothing, where it cannot be read */
function unwritten(part) {
  try {
    return decodeURIComponent(part.replace(/\+/g, " "));
  } catch {
    return "";
  }
}

/** @param {State} state @returns {string} a hash that holds what differs from the first state */
export function toHash(state) {
  const all = /** @type {Object<string, any>} */ (state);
  const first = /** @type {Object<string, any>} */ (FIRST);
  const parts = [];
  for (const name of [...Object.keys(RANGES), ...WORDS]) {
    if (all[name] !== first[name]) parts.push(`${name}=${written(String(all[name]))}`);
  }
  if (state.rows) parts.push(`rows=${state.rows}`);
  if (state.order.length) parts.push(`order=${state.order.join(",")}`);
  if (state.having.length) parts.push(`having=${state.having.map(written).join(",")}`);
  for (const name of Object.keys(state.options).sort()) {
    parts.push(`${OPTION}${written(name)}=${state.options[name]}`);
  }
  for (const name of FLAGS) if (all[name]) parts.push(name);
  const path = [VERSION, state.view, ...(state.names.length ? [state.names.map(written).join(",")] : [])].join("/");
  return `#${path}${parts.length ? `?${parts.join("&")}` : ""}`;
}

/** @param {string} value @param {[number, number]} range @param {number} otherwise */
function within(value, [low, high], otherwise) {
  const number = Number(value);
  if (value === "" || !Number.isFinite(number)) return otherwise;
  return Math.min(high, Math.max(low, Math.trunc(number)));
}

/** @param {string} value @returns {number[]} an order of words, or an empty list */
function permutation(value) {
  const order = value.split(",").map(Number);
  const all = order.length <= MOST_WORDS && [...order].sort((a, b) => a - b).every((n, at) => n === at);
  return value && all ? order : [];
}

/**
 * Reads the state from an address; unreadable parts keep their first value.
 * @param {string} hash
 * @returns {State}
 */
export function fromHash(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").replace("&embed", "?embed").split(/\?(.*)/s);
  const [version, view, names] = path.split("/");
  /** @type {Object<string, any>} */
  const state = { ...FIRST, options: {}, names: [...FIRST.names] };
  if (version !== VERSION) return /** @type {State} */ (state);
  if (VIEWS.includes(view)) state.view = view;
  const list = (names ?? "").split(",").map(unwritten).filter(Boolean);
  if (list.length) state.names = [...new Set(list)].slice(0, MOST_NAMES);
  for (const part of query.split(/[&?]/)) {
    const [name, value = ""] = [unwritten(part.split("=")[0]), part.split(/=(.*)/s)[1]];
    if (Object.hasOwn(RANGES, name)) state[name] = within(value, RANGES[name], state[name]);
    else if (WORDS.includes(name)) state[name] = unwritten(value).slice(0, LONGEST_TEXT);
    else if (name === "rows") state.rows = ROWS.includes(value) ? value : "";
    else if (name === "order") state.order = permutation(value);
    else if (name === "having") state.having = value.split(",").map(unwritten).filter(Boolean);
    else if (FLAGS.includes(name)) state[name] = value !== "0";
    else if (name.startsWith(OPTION) && value !== "" && Number.isFinite(Number(value))) {
      state.options[name.slice(OPTION.length)] = Number(value);
    }
  }
  return /** @type {State} */ (state);
}

/**
 * Lists the parts of an address that are unknown or beyond the limits of the page.
 * @param {string} hash
 * @returns {string[]} "n=9999 (128 is shown)"
 */
export function misread(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").replace("&embed", "?embed").split(/\?(.*)/s);
  const [version, view, names = ""] = path.split("/");
  if (!path) return [];
  if (version !== VERSION) return [`“${unwritten(path)}” (addresses begin with #${VERSION}/)`];
  const state = /** @type {Object<string, any>} */ (fromHash(hash)), out = [];
  if (view && !VIEWS.includes(view)) out.push(`the view “${unwritten(view)}”`);
  out.push(...names.split(",").map(unwritten).slice(MOST_NAMES).map((name) => `“${name}” (${MOST_NAMES} encodings are the most)`));
  for (const part of query.split(/[&?]/).filter(Boolean)) {
    const [name, value = ""] = [part.split("=")[0], part.split(/=(.*)/s)[1]].map((text) => unwritten(text ?? ""));
    const now = name.startsWith(OPTION) ? state.options[name.slice(OPTION.length)] : KNOWN.includes(name) ? state[name] : undefined;
    if (now === undefined) out.push(`“${unwritten(part)}”`);
    else if (typeof now === "number" ? now !== Number(value) || value === "" : typeof now !== "boolean" && String(now) !== value) {
      out.push(`“${unwritten(part)}”${String(now) ? ` (shown: ${now})` : ""}`);
    }
  }
  return out;
}

const QUIET = 250; // milliseconds; a browser allows about 200 changes of the address in half a minute

/**
 * Stores the state and writes its address, so that the back button undoes a change.
 * @param {(state: State) => void} changed
 */
export function keepState(changed) {
  let state = fromHash(location.hash);
  let last = "", waiting = 0, wrong = misread(location.hash);

  /** @param {boolean} further a new entry of the history */
  function write(further) {
    clearTimeout(waiting);
    const hash = toHash(state);
    if (hash === toHash(fromHash(location.hash)) && location.hash) return;
    try {
      history[further ? "pushState" : "replaceState"](null, "", hash);
    } catch {
      // in a frame without an address of its own, a notebook for instance
    }
  }
  const read = () => {
    clearTimeout(waiting);
    last = "";
    const next = fromHash(location.hash);
    wrong = misread(location.hash);
    if (toHash(next) === toHash(state) && !wrong.length) return;
    state = next;
    changed(state);
  };
  addEventListener("popstate", read);
  addEventListener("hashchange", read);

  return {
    now: () => state,
    /** The parts of the address that the page does not show, until something is changed. */
    misread: () => wrong,
    /**
     * @param {Partial<State>} patch
     * @param {string} [drag] the name of the control that is moved, whose steps are one entry of the history
     */
    set(patch, drag = "") {
      const same = drag !== "" && drag === last;
      if (!same && last) write(false); // ends the entry of the previous control
      state = { ...state, ...patch };
      wrong = [];
      clearTimeout(waiting);
      if (same) waiting = window.setTimeout(() => write(false), QUIET);
      else write(true);
      last = drag;
      changed(state);
    },
  };
}
