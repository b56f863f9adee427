// Figures: heat maps on canvas and lines in SVG, each with a readout, a table and files.

import { button, download, html, newId, svg, table } from "./dom.js";
import { ofHeat, ofLines } from "./neutral.js";
import { colour, largest, powers, ticks } from "./scales.js";
import { shown } from "./words.js";

/** @typedef {{i?: number, j?: number, c?: number, offset?: number}} Place query, key, channel, query − key */
/** @typedef {"query" | "key" | "channel"} Role */

/**
 * @typedef {{label: string, role: Role, names?: string[], start?: number}} Axis
 * @typedef {{title: string, about?: string, rows: number, columns: number,
 *   values: ArrayLike<number>, row: Axis, column: Axis, signed?: boolean, top?: number,
 *   marks?: [number, number][], said?: (i: number, j: number) => string}} Heat
 * @typedef {{name: string, xs: number[], ys: number[], low?: number[], high?: number[],
 *   dots?: boolean, each?: number[][]}} Series `each`: all that a value is the mean of, a dot for each
 * @typedef {{title: string, about?: string, x: {label: string, role?: "offset" | "query",
 *   log?: boolean}, y: {label: string, log?: boolean}, series: Series[],
 *   rules?: {y: number, name: string}[]}} Lines
 */

/**
 * Functions of the page that figures call.
 * @typedef {{light: (place: Place) => void, put: (place: Place) => void,
 *   announce: (text: string) => void, lit: (listener: (place: Place) => void) => void,
 *   where: () => string}} Desk
 */

/** @type {Axis} */
export const QUERY_AXIS = { label: "query at", role: "query" };
/** @type {Axis} */
export const KEY_AXIS = { label: "key at", role: "key" };
/** @type {Axis} */
export const CHANNEL_AXIS = { label: "channel", role: "channel" };

const BESIDE = 5; // pixels between the dots of two series

/** @type {Map<string, string>} colours of the theme by name: to ask the browser is slow */
const themed = new Map();
export const unthemed = () => themed.clear();

/** @param {string} name @returns {string} a colour of the theme */
export function theme(name) {
  let colour = themed.get(name);
  if (colour === undefined) {
    colour = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    themed.set(name, colour);
  }
  return colour;
}

const SERIES = ["blue", "vermilion", "green", "purple", "ink", "soft"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "1 4"];
const FONT = 12;
const LETTER = 6.6; // pixels, on average
export const SPREAD = 1e-6; // below it, values at one offset are the same

/** @param {number} x @param {number} y @param {string} text @param {Object<string, any>} [more] */
const label = (x, y, text, more = {}) =>
  svg("text", { x, y, "font-size": FONT, fill: theme("soft"), ...more }, text);

/**
 * The width of an element, kept so that drawing need not ask for a layout each time.
 * @param {HTMLElement} element @param {() => void} changed
 * @returns {() => number}
 */
function widthOf(element, changed) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now === width || !now) return;
    const first = !width;
    width = now;
    if (!first || drawn !== now) changed();
  }).observe(element);
  let drawn = 0;
  return () => (drawn = width || Math.round(element.clientWidth));
}

/**
 * A figure's frame: caption, picture, readout, table and files.
 * @param {Desk} desk
 * @param {string} role of the picture for screen readers
 */
function frame(desk, role) {
  const title = html("strong"), about = html("span");
  const picture = html("div", { class: "picture", tabindex: 0, role: "application", "aria-roledescription": role });
  const readout = html("p", { class: "readout" });
  const behind = html("details", { class: "numbers" }, html("summary", {}, "Table"));
  const scroll = html("div", { class: "scroll", tabindex: 0, role: "region" });
  behind.append(scroll);
  /** @type {{title: string, json: () => any, table: () => HTMLElement, drawing: () => SVGSVGElement}} */
  let content = { title: "", json: () => null, table: () => html("p"), drawing: () => svg("svg") };
  const file = () => content.title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "figure";
  const text = () => new XMLSerializer().serializeToString(content.drawing());
  /** @param {string} kind @param {() => void} act */
  const save = (kind, act) => button(kind, act, { "aria-label": `Save as ${kind}` });
  const files = html("div", { class: "files" },
    save("PNG", () => png(text(), file())),
    save("SVG", () => download(`${file()}.svg`, new Blob([text()], { type: "image/svg+xml" }))),
    save("JSON", () => {
      const json = { ...content.json(), address: desk.where() };
      download(`${file()}.json`, new Blob([JSON.stringify(json)], { type: "application/json" }));
    }));
  const fill = () => behind.open && scroll.replaceChildren(content.table());
  behind.addEventListener("toggle", fill);
  const plate = html("div", { class: "plate" }, picture);
  const element = html("figure", {}, html("figcaption", {}, title, " ", about), plate, readout,
    html("div", { class: "under" }, behind, files));
  return {
    element, picture, readout,
    /** @param {{title: string, about?: string}} spec @param {typeof content} next */
    show(spec, next) {
      content = next;
      fill();
      if (title.textContent === spec.title && about.textContent === (spec.about ?? "")) return;
      title.textContent = spec.title;
      about.textContent = spec.about ?? "";
      picture.setAttribute("aria-label", `${spec.title}. ${spec.about ?? ""} Arrow keys move.`);
      scroll.setAttribute("aria-label", `Table of ${spec.title}`);
    },
  };
}

const ABOVE = 34, ROW = 18; // pixels, for a title, and for each row of a legend

/**
 * A drawing as it is saved: with its title, its legend and its address, and without the cursor.
 * @param {SVGSVGElement} copy @param {{title: string, about?: string} | null} spec @param {string} address @param {Series[]} [series]
 */
function entitled(copy, spec, address, series = []) {
  const { width, height } = copy.viewBox.baseVal, tall = height + ABOVE + ROW * series.length, title = spec?.title ?? "";
  copy.querySelector(".cursor")?.remove();
  copy.removeAttribute("aria-hidden");
  for (const [name, value] of Object.entries({
    xmlns: "http://www.w3.org/2000/svg", role: "img", "aria-label": title, viewBox: `0 ${-ABOVE} ${width} ${tall}`, width, height: tall,
  })) copy.setAttribute(name, String(value));
  copy.prepend(svg("title", {}, `${title} ${spec?.about ?? ""}`.trim()), svg("desc", {}, address),
    svg("rect", { y: -ABOVE, width, height: tall, fill: theme("paper") }));
  copy.append(label(10, 22 - ABOVE, title, { "font-weight": 600, "font-size": 14, fill: theme("ink") }));
  series.forEach(({ name, dots }, n) => {
    const y = height + ROW * n + 4, stroke = theme(SERIES[n % SERIES.length]);
    copy.append(dots ? svg("circle", { cx: 24, cy: y, r: 4, fill: stroke }) : svg("line", { x1: 10, x2: 38, y1: y, y2: y, stroke, "stroke-width": 2.5, "stroke-dasharray": DASHES[n % DASHES.length] }),
      label(46, y + 4, name));
  });
  return copy;
}

/** @param {string} drawing @param {string} name */
function png(drawing, name) {
  const image = new Image();
  image.onload = () => {
    const canvas = html("canvas", { width: 2 * image.width, height: 2 * image.height });
    const context = canvas.getContext("2d");
    if (!context) return;
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => blob && download(`${name}.png`, blob));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing)}`;
}

const TABLE_SIDE = 64; // of a table behind a heat map, so that it opens at once

/** @param {Axis} axis @param {number} n @returns {string} */
const named = (axis, n) => axis.names?.[n] ?? String(n + (axis.start ?? 0));

/** @param {Heat} spec */
function tableOfHeat(spec) {
  const [n, m] = [Math.min(spec.rows, TABLE_SIDE), Math.min(spec.columns, TABLE_SIDE)];
  const head = ["", ...Array.from({ length: m }, (_, j) => named(spec.column, j))];
  const rows = Array.from({ length: n }, (_, i) => [
    named(spec.row, i),
    ...Array.from({ length: m }, (_, j) => shown(spec.values[i * spec.columns + j])),
  ]);
  const cut = n < spec.rows || m < spec.columns ? `; the first ${n} × ${m}, all are in the JSON` : "";
  return table(head, rows, `${spec.row.label} down, ${spec.column.label} across${cut}.`);
}

/**
 * A heat map whose cells are walked with the arrow keys.
 * @param {Desk} desk
 */
export function heatMap(desk) {
  const { element, picture, readout, show } = frame(desk, "heat map");
  const canvas = html("canvas", { "aria-hidden": true });
  const over = svg("svg", { "aria-hidden": true });
  picture.append(canvas, over);
  /** @type {Heat | null} */
  let spec = null;
  let box = { left: 0, top: 0, width: 1, height: 1, fullWidth: 1, tall: 1 };
  let place = { i: 0, j: 0 }; // row and column of the cursor
  const cross = svg("g", { class: "cursor" }), scale = svg("g");
  const context = canvas.getContext("2d");
  /** @type {ImageData | null} */
  let image = null;
  let framed = "", scaled = "", crossed = ""; // what the axes, the scale and the cross were drawn for
  /** @type {{values: ArrayLike<number>, ink: string, top: number} | null} */
  let painted = null;

  /** @param {Heat} of @param {number} top @returns {string[]} the labels of the colour scale */
  const ends = (of, top) => (of.signed ?? true ? [top, 0, -top] : [top, 0]).map((value) => shown(value, 2));

  function layout(/** @type {Heat} */ of, /** @type {number} */ top) {
    const longest = (/** @type {Axis} */ axis) => Math.max(0, ...(axis.names ?? []).map((name) => name.length));
    const left = of.row.names ? Math.min(110, 30 + LETTER * longest(of.row)) : 50;
    const bottom = of.column.names ? Math.min(100, 34 + 0.75 * LETTER * longest(of.column)) : 42;
    const right = Math.max(60, 28 + LETTER * Math.max(...ends(of, top).map((end) => end.length)));
    const fullWidth = Math.max(240, across() || 420);
    const room = fullWidth - left - right;
    const square = of.row.role !== "channel" && of.column.role !== "channel";
    const width = square ? Math.min(room, 400) : room;
    const height = square ? (width * of.rows) / of.columns : Math.min(400, Math.max(220, room * 0.8));
    box = { left, top: 8, width, height, fullWidth, tall: height + 8 + bottom };
  }

  function pixels(/** @type {Heat} */ of) {
    const ink = theme("ink");
    if (painted?.values === of.values && painted.ink === ink && painted.top === (of.top ?? painted.top)) return painted.top;
    const top = of.top ?? largest(of.values);
    painted = { values: of.values, ink, top };
    if (!image || image.width !== of.columns || image.height !== of.rows) {
      canvas.width = of.columns;
      canvas.height = of.rows;
      image = new ImageData(of.columns, of.rows);
    }
    const palette = { paper: theme("paper"), high: theme("heat-high"), low: theme("heat-low"), none: theme("heat-none") };
    colour(new Uint32Array(image.data.buffer), of.values, palette, of.signed ?? true, top);
    context?.putImageData(image, 0, 0);
    return top;
  }

  function axes(/** @type {Heat} */ of) {
    const { values: _, ...rest } = of;
    const now = JSON.stringify([box, rest, theme("ink")]);
    if (now === framed) return;
    framed = now;
    // In shares of the figure, because printing and zoom change its size without an event.
    const [across, down] = [box.fullWidth, box.tall].map((whole) => (/** @type {number} */ part) => `${(100 * part) / whole}%`);
    canvas.style.cssText = `left:${across(box.left)};top:${down(box.top)};width:${across(box.width)};height:${down(box.height)}`;
    over.replaceChildren();
    over.setAttribute("viewBox", `0 0 ${box.fullWidth} ${box.tall}`);
    over.setAttribute("width", String(box.fullWidth));
    over.setAttribute("height", String(box.tall));
    over.setAttribute("font-family", "system-ui, sans-serif");
    over.append(svg("rect", { x: box.left - 0.5, y: box.top - 0.5, width: box.width + 1, height: box.height + 1, fill: "none", stroke: theme("line") }));
    const [dy, dx] = [box.height / of.rows, box.width / of.columns];
    const each = (/** @type {number} */ n, /** @type {Axis} */ axis, /** @type {number} */ many) =>
      axis.names ? axis.names.map((_, at) => at) : ticks(0, n - 1, many).filter((tick) => Number.isInteger(tick));
    for (const i of each(of.rows, of.row, box.height / 45)) {
      over.append(label(box.left - 6, box.top + (i + 0.5) * dy + 4, named(of.row, i), { "text-anchor": "end" }));
    }
    const base = box.top + box.height;
    for (const j of each(of.columns, of.column, box.width / 45)) {
      const x = box.left + (j + 0.5) * dx;
      const turn = of.column.names ? { "text-anchor": "end", transform: `rotate(-45 ${x} ${base + 14})` } : { "text-anchor": "middle" };
      over.append(label(x, base + 16, named(of.column, j), turn));
    }
    over.append(label(box.left + box.width / 2, box.tall - 5, of.column.label, { "text-anchor": "middle" }));
    const middle = box.top + box.height / 2;
    over.append(label(12, middle, of.row.label, { "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }));
    over.append(scale);
    for (const [i, j] of of.marks ?? []) {
      over.append(svg("rect", { x: box.left + j * dx + 1.5, y: box.top + i * dy + 1.5, width: Math.max(1, dx - 3), height: Math.max(1, dy - 3), fill: "none", stroke: theme("ink"), "stroke-width": 1.5, "stroke-dasharray": "3 2" }));
    }
    over.append(cross);
  }

  function bar(/** @type {Heat} */ of, /** @type {number} */ top) {
    const x = box.left + box.width + 10, tall = Math.min(110, box.height), signed = of.signed ?? true;
    const said = ends(of, top);
    const now = `${x} ${box.top} ${tall} ${signed} ${theme("ink")}`;
    if (now === scaled) {
      scale.querySelectorAll("text").forEach((text, n) => (text.textContent = said[n]));
      return;
    }
    scaled = now;
    const id = newId();
    const stops = signed ? ["heat-high", "paper", "heat-low"] : ["heat-low", "paper"];
    const gradient = svg("linearGradient", { id, x1: 0, y1: 0, x2: 0, y2: 1 },
      ...stops.map((name, n) => svg("stop", { offset: n / (stops.length - 1), "stop-color": theme(name) })));
    scale.replaceChildren(svg("defs", {}, gradient), svg("rect", { x, y: box.top, width: 8, height: tall, fill: `url(#${id})`, stroke: theme("line") }));
    said.forEach((value, n) => scale.append(label(x + 12, box.top + 9 + (n / (said.length - 1)) * (tall - 10), value, { "font-size": 11 })));
  }

  /** @param {number} i @param {number} j */
  function sentence(i, j) {
    if (!spec) return "";
    const value = shown(spec.values[i * spec.columns + j]);
    if (spec.said) return spec.said(i, j);
    return `${spec.row.label} ${named(spec.row, i)}, ${spec.column.label} ${named(spec.column, j)}: ${value}`;
  }

  function point() {
    if (!spec) return;
    const { i, j } = place;
    const [dy, dx] = [box.height / spec.rows, box.width / spec.columns];
    const stroke = theme("ink");
    readout.textContent = sentence(i, j);
    const now = `${i} ${j} ${spec.rows} ${spec.columns} ${stroke} ${framed}`;
    if (now === crossed) return;
    crossed = now;
    cross.replaceChildren(
      svg("rect", { x: box.left, y: box.top + i * dy, width: box.width, height: dy, fill: "none", stroke, "stroke-width": 0.75, opacity: 0.55 }),
      svg("rect", { x: box.left + j * dx, y: box.top, width: dx, height: box.height, fill: "none", stroke, "stroke-width": 0.75, opacity: 0.55 }),
      svg("rect", { x: box.left + j * dx, y: box.top + i * dy, width: dx, height: dy, fill: "none", stroke, "stroke-width": 2 }));
  }

  /** @param {Role} role @param {number} at @returns {Place} */
  const as = (role, at) => ({ [{ query: "i", key: "j", channel: "c" }[role]]: at });

  /** @param {PointerEvent} event @returns {{i: number, j: number} | null} */
  function under(event) {
    if (!spec) return null;
    const edge = canvas.getBoundingClientRect();
    const i = Math.floor(((event.clientY - edge.top) / edge.height) * spec.rows);
    const j = Math.floor(((event.clientX - edge.left) / edge.width) * spec.columns);
    return i >= 0 && j >= 0 && i < spec.rows && j < spec.columns ? { i, j } : null;
  }
  const tell = (/** @type {(place: Place) => void} */ act) =>
    spec && act({ ...as(spec.row.role, place.i), ...as(spec.column.role, place.j) });
  over.addEventListener("pointermove", (event) => {
    const at = under(event);
    if (!at || (at.i === place.i && at.j === place.j)) return;
    place = at;
    tell(desk.light);
    point();
  });
  over.addEventListener("pointerdown", (event) => {
    const at = under(event);
    if (!at) return;
    place = at;
    tell(desk.put);
    point();
  });
  picture.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 10 : 1;
    /** @type {Object<string, [number, number]>} */
    const moves = { ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far], ArrowRight: [0, far] };
    const move = moves[event.key];
    if (!move || !spec || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const clamp = (/** @type {number} */ at, /** @type {number} */ size) => Math.min(size - 1, Math.max(0, at));
    place = { i: clamp(place.i + move[0], spec.rows), j: clamp(place.j + move[1], spec.columns) };
    tell(desk.put);
    point();
    desk.announce(sentence(place.i, place.j));
  });
  desk.lit((lit) => {
    if (!spec || !element.isConnected) return;
    const of = (/** @type {Role} */ role) => ({ query: lit.i, key: lit.j, channel: lit.c })[role];
    const next = { i: of(spec.row.role) ?? place.i, j: of(spec.column.role) ?? place.j };
    if (next.i >= spec.rows || next.j >= spec.columns || (next.i === place.i && next.j === place.j)) return;
    place = next;
    point();
  });
  const redraw = () => {
    if (!spec || !element.isConnected) return;
    const top = pixels(spec);
    layout(spec, top);
    axes(spec);
    bar(spec, top);
    point();
  };
  const across = widthOf(picture, redraw);

  function drawing() {
    const copy = /** @type {SVGSVGElement} */ (over.cloneNode(true));
    copy.prepend(
      svg("image", { x: box.left, y: box.top, width: box.width, height: box.height, preserveAspectRatio: "none", style: "image-rendering: pixelated", href: canvas.toDataURL() }));
    return entitled(copy, spec, desk.where());
  }

  return {
    element,
    /** @param {Heat} next @param {Place} at the cursor of the page */
    draw(next, at) {
      spec = next;
      const of = (/** @type {Role} */ role) => ({ query: at.i, key: at.j, channel: at.c })[role];
      place = {
        i: Math.min(next.rows - 1, of(next.row.role) ?? place.i),
        j: Math.min(next.columns - 1, of(next.column.role) ?? place.j),
      };
      show(next, { title: next.title, json: () => ofHeat(next, next.top ?? largest(next.values)), table: () => tableOfHeat(next), drawing });
      redraw();
    },
  };
}

/** @param {Series} one @param {number} [m] @returns {boolean} whether its band can be seen: there, or anywhere */
function spreads({ ys, low, high }, m) {
  const wide = (/** @type {number} */ n) => !!low && !!high && high[n] - low[n] > SPREAD * Math.max(1, Math.abs(ys[n]));
  return m === undefined ? ys.some((_, n) => wide(n)) : wide(m);
}

/** @param {Lines} spec */
function tableOfLines(spec) {
  const xs = [...new Set(spec.series.flatMap((series) => series.xs))].sort((a, b) => a - b);
  const rows = xs.map((x) => [
    shown(x, 6),
    ...spec.series.map((series) => (series.xs.includes(x) ? shown(series.ys[series.xs.indexOf(x)]) : "")),
  ]);
  return table([spec.x.label, ...spec.series.map((series) => series.name)], rows, spec.y.label);
}

/**
 * Lines over one axis; left and right move along it.
 * @param {Desk} desk
 */
export function linePlot(desk) {
  const { element, picture, readout, show } = frame(desk, "line plot");
  const drawn = svg("svg", { "aria-hidden": true });
  const legend = html("ul", { class: "legend" });
  picture.append(drawn);
  picture.after(legend);
  /** @type {Lines | null} */
  let spec = null;
  let at = 0; // index among the xs of the first series
  const mark = svg("g", { class: "cursor" });
  let box = { left: 1, top: 10, width: 1, height: 1, fullWidth: 1 };
  /** @type {(x: number) => number} */
  let sx = (x) => x;
  /** @type {(y: number) => number} */
  let sy = (y) => y;

  /** @param {number} low @param {number} high @param {boolean | undefined} log @param {number} from @param {number} to */
  function scale(low, high, log, from, to) {
    const f = log ? Math.log10 : (/** @type {number} */ x) => x;
    const [a, b] = [f(low), f(high)];
    return (/** @type {number} */ x) => from + ((f(x) - a) / (b - a || 1)) * (to - from);
  }

  function redraw() {
    if (!spec || !element.isConnected) return;
    const of = spec;
    const fullWidth = Math.max(240, across() || 420);
    const height = Math.min(300, Math.max(200, fullWidth * 0.55));
    const finite = (/** @type {number[]} */ all) => all.filter(Number.isFinite);
    const xs = finite(of.series.flatMap((line) => line.xs));
    const ys = finite(of.series.flatMap((line) => [...line.ys, ...(line.low ?? []), ...(line.high ?? []), ...(line.each ?? []).flat()]).concat((of.rules ?? []).map((rule) => rule.y)));
    const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
    let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
    if (of.y.log) [y0, y1] = [y0 / 1.6, y1 * 1.6];
    else {
      const room = (y1 - y0 || Math.abs(y1) || 1) * 0.06;
      [y0, y1] = [y0 - room, y1 + room];
    }
    const marked = of.y.log ? powers(y0, y1) : ticks(y0, y1, height / 45);
    const names = marked.map((y) => (y === 0 ? "0" : shown(y, 4)));
    const left = 28 + LETTER * Math.max(...names.map((name) => name.length));
    box = { left, top: 10, width: fullWidth - left - 12, height, fullWidth };
    sx = scale(x0, x1, of.x.log, box.left, box.left + box.width);
    sy = scale(y0, y1, of.y.log, box.top + height, box.top);
    drawn.replaceChildren();
    drawn.setAttribute("viewBox", `0 0 ${fullWidth} ${height + 52}`);
    drawn.setAttribute("width", String(fullWidth));
    drawn.setAttribute("height", String(height + 52));
    drawn.setAttribute("font-family", "system-ui, sans-serif");
    const grid = theme("grid"), base = box.top + height;
    marked.forEach((y, n) => {
      drawn.append(svg("line", { x1: box.left, x2: box.left + box.width, y1: sy(y), y2: sy(y), stroke: grid }),
        label(box.left - 6, sy(y) + 4, names[n], { "text-anchor": "end" }));
    });
    for (const x of of.x.log ? powers(x0, x1) : ticks(x0, x1, box.width / 60)) {
      drawn.append(svg("line", { x1: sx(x), x2: sx(x), y1: box.top, y2: base, stroke: grid }),
        label(sx(x), base + 16, shown(x, 4), { "text-anchor": "middle" }));
    }
    drawn.append(label(box.left + box.width / 2, base + 38, of.x.label, { "text-anchor": "middle" }));
    drawn.append(label(13, box.top + height / 2, of.y.label, { "text-anchor": "middle", transform: `rotate(-90 13 ${box.top + height / 2})` }));
    for (const rule of of.rules ?? []) {
      drawn.append(svg("line", { x1: box.left, x2: box.left + box.width, y1: sy(rule.y), y2: sy(rule.y), stroke: theme("ink"), "stroke-dasharray": "4 4" }),
        label(box.left + 6, sy(rule.y) - 5, rule.name, { fill: theme("ink") }));
    }
    of.series.forEach((line, n) => drawn.append(series(line, n)));
    drawn.append(mark);
    point();
  }

  function series(/** @type {Series} */ line, /** @type {number} */ n) {
    const stroke = theme(SERIES[n % SERIES.length]);
    const group = svg("g");
    const path = (/** @type {number[]} */ ys) => line.xs.map((x, m) => `${sx(x).toFixed(2)},${sy(ys[m]).toFixed(2)}`);
    if (spreads(line)) {
      group.append(svg("polygon", { points: [...path(line.high ?? []), ...path(line.low ?? []).reverse()].join(" "), fill: stroke, opacity: 0.22 }));
    }
    if (line.dots) {
      line.xs.forEach((x, m) => group.append(svg("circle", { cx: sx(x), cy: sy(line.ys[m]), r: 3, fill: stroke })));
    } else {
      group.append(svg("polyline", { points: path(line.ys).join(" "), fill: "none", stroke, "stroke-width": 2, "stroke-dasharray": DASHES[n % DASHES.length] }));
    }
    const aside = BESIDE * (n - ((spec?.series.length ?? 1) - 1) / 2); // so that dots of one value are all seen
    line.each?.forEach((all, m) => all.forEach((y) => group.append(svg("circle", { cx: sx(line.xs[m]) + aside, cy: sy(y), r: 2.5, class: "one", fill: stroke, opacity: 0.7 }))));
    return group;
  }

  function sentence() {
    const of = spec;
    if (!of || !of.series.length) return "";
    const x = of.series[0].xs[at];
    const each = of.series.map((line) => {
      const m = line.xs.indexOf(x);
      if (m < 0) return null;
      const spread = line.low && line.high && spreads(line, m) ? ` (${shown(line.low[m])} to ${shown(line.high[m])})` : "";
      return `${of.series.length > 1 ? `${line.name} ` : ""}${shown(line.ys[m])}${spread}`;
    });
    return `${of.x.label} ${shown(x, 6)}: ${each.filter(Boolean).join("; ")}`;
  }

  function point() {
    const of = spec;
    if (!of || !of.series.length) return;
    const x = of.series[0].xs[at];
    mark.replaceChildren(svg("line", { x1: sx(x), x2: sx(x), y1: box.top, y2: box.top + box.height, stroke: theme("ink"), opacity: 0.5 }));
    of.series.forEach((line, n) => {
      const m = line.xs.indexOf(x);
      if (m >= 0 && Number.isFinite(line.ys[m])) mark.append(svg("circle", { cx: sx(x), cy: sy(line.ys[m]), r: 4, fill: theme(SERIES[n % SERIES.length]), stroke: theme("paper") }));
    });
    readout.textContent = sentence();
  }

  function move(/** @type {number} */ to, /** @type {(place: Place) => void} */ act) {
    const xs = spec?.series[0]?.xs ?? [];
    const next = Math.min(xs.length - 1, Math.max(0, to));
    if (next < 0) return;
    at = next;
    if (spec?.x.role === "offset") act({ offset: xs[at] });
    if (spec?.x.role === "query") act({ i: xs[at] });
    point();
  }
  const nearest = (/** @type {PointerEvent} */ event) => {
    const edge = drawn.getBoundingClientRect();
    const x = ((event.clientX - edge.left) * box.fullWidth) / edge.width;
    const xs = spec?.series[0]?.xs ?? [];
    let best = 0;
    xs.forEach((value, n) => { if (Math.abs(sx(value) - x) < Math.abs(sx(xs[best]) - x)) best = n; });
    return best;
  };
  drawn.addEventListener("pointermove", (event) => move(nearest(event), desk.light));
  drawn.addEventListener("pointerdown", (event) => move(nearest(event), desk.put));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(at + step * (event.shiftKey ? 10 : 1), desk.put);
    desk.announce(sentence());
  });
  /** @param {Place} lit */
  function follow(lit) {
    const role = spec?.x.role;
    const xs = spec?.series[0]?.xs ?? [];
    const to = role === "offset" ? lit.offset ?? (lit.i !== undefined && lit.j !== undefined ? lit.i - lit.j : undefined) : role === "query" ? lit.i : undefined;
    const nearest = to === undefined ? -1 : xs.indexOf(to);
    if (nearest >= 0) at = nearest;
    return nearest >= 0;
  }
  desk.lit((lit) => { if (element.isConnected && follow(lit)) point(); });
  const across = widthOf(picture, redraw);

  function drawing() {
    const copy = /** @type {SVGSVGElement} */ (drawn.cloneNode(true));
    return entitled(copy, spec, desk.where(), spec && spec.series.length > 1 ? spec.series : []);
  }

  return {
    element,
    /** @param {Lines} next @param {Place} place */
    draw(next, place) {
      spec = next;
      at = Math.min(at, Math.max(0, (next.series[0]?.xs.length ?? 1) - 1));
      if (!follow(place)) at = Math.max(0, (next.series[0]?.xs ?? []).indexOf(0));
      legend.replaceChildren(...(next.series.length > 1 ? next.series : []).map((series, n) => {
        const stroke = theme(SERIES[n % SERIES.length]);
        const line = svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke, "stroke-width": 2.5, "stroke-dasharray": DASHES[n % DASHES.length] });
        const dot = svg("circle", { cx: 13, cy: 6, r: 4, fill: stroke });
        return html("li", {}, svg("svg", { width: 26, height: 12, "aria-hidden": true }, series.dots ? dot : line), series.name);
      }));
      show(next, { title: next.title, json: () => ofLines(next), table: () => tableOfLines(next), drawing });
      redraw();
    },
  };
}
