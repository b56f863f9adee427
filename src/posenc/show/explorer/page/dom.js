// Elements, and the controls of all views.

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * @template {Element} E
 * @param {E} element
 * @param {Object<string, any>} attributes functions are listeners, false and null are left out
 * @param {Child[]} children
 * @returns {E}
 */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {Object<string, any>} [attributes] @param {...Child} children
 */
export const html = (tag, attributes = {}, ...children) =>
  filled(document.createElement(tag), attributes, children);

/**
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag @param {Object<string, any>} [attributes] @param {...Child} children
 */
export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** @param {string} text with `code` in back-quotes @returns {Child[]} */
export const prose = (text) =>
  text.split("`").map((part, n) => (n % 2 ? html("code", {}, part) : part));

/** @param {string} text @param {() => void} act @param {Object<string, any>} [attributes] */
export const button = (text, act, attributes = {}) =>
  html("button", { type: "button", onclick: act, ...attributes }, text);

let numbered = 0;
export const newId = () => `e${++numbered}`;

/**
 * A slider with its name and value.
 * @param {{name: string, low: number, high: number, step?: number,
 *   marked?: number[], shown: (value: number) => string, moved: (value: number) => void}} of
 */
export function slider({ name, low, high, step = 1, marked = [], shown, moved }) {
  const id = newId(), list = marked.length ? `${id}-ticks` : null;
  const range = html("input", { type: "range", id, min: low, max: high, step, list });
  const output = html("output", { for: id });
  /** @param {number} value */
  function set(value) {
    if (Number(range.value) !== value) range.value = String(value);
    output.textContent = shown(value);
    range.setAttribute("aria-valuetext", shown(value));
  }
  range.addEventListener("input", () => {
    set(Number(range.value));
    moved(Number(range.value));
  });
  const ticks = list && html("datalist", { id: list }, ...marked.map((value) => html("option", { value })));
  const element = html("div", { class: "control slider" }, html("label", { for: id }, name), range, output, ticks);
  return { element, range, set };
}

/**
 * A choice among names.
 * @param {{name: string, groups: [string, [string, string][]][], chosen: (value: string) => void}} of
 *   groups of (value, shown); a group without a name stands alone
 */
export function choice({ name, groups, chosen }) {
  const id = newId();
  const box = html("select", { id, onchange: () => chosen(box.value) });
  for (const [group, entries] of groups) {
    const options = entries.map(([value, shown]) => html("option", { value }, shown));
    if (group) box.append(html("optgroup", { label: group }, ...options));
    else box.append(...options);
  }
  const element = html("div", { class: "control" }, html("label", { for: id }, name), box);
  return { element, box, set: (/** @type {string} */ value) => void (box.value = value) };
}

/** @param {string} name @param {(on: boolean) => void} changed */
export function tick(name, changed) {
  const box = html("input", { type: "checkbox", onchange: () => changed(box.checked) });
  const element = html("label", { class: "control tick" }, box, name);
  return { element, box, set: (/** @type {boolean} */ on) => void (box.checked = on) };
}

/** @param {string} text @returns {Promise<boolean>} true if the text was copied to the clipboard */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = html("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** @param {string} name @param {() => string} text @param {(said: string) => void} announce */
export function copies(name, text, announce) {
  const element = button(name, async () => {
    const done = await toClipboard(text());
    element.textContent = done ? "Copied" : "Not copied";
    announce(done ? "Copied." : "The browser does not let this page copy. Select the text instead.");
    setTimeout(() => (element.textContent = name), 1500);
  });
  return element;
}

/** @param {string} name of the file @param {Blob} blob */
export function download(name, blob) {
  const link = html("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {string[]} head @param {(Child | Child[])[][]} rows @param {string} [caption] first cells are headings */
export function table(head, rows, caption) {
  /** @param {Child | Child[]} cell */
  const inside = (cell) => (Array.isArray(cell) ? cell : [cell]);
  const body = rows.map(([first, ...rest]) =>
    html("tr", {}, html("th", { scope: "row" }, ...inside(first)),
      ...rest.map((cell) => html("td", {}, ...inside(cell)))));
  const titles = head.map((name) => html("th", { scope: "col" }, name));
  return html("table", {}, caption ? html("caption", {}, caption) : null,
    html("thead", {}, html("tr", {}, ...titles)), html("tbody", {}, ...body));
}
