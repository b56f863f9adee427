// The page is complete without this script. It adds the values under the pointer, tables of
// numbers, files of figures, and opens the section of a link.
const told = new Map();  // by the name of a figure: its title and its numbers
for (const one of document.querySelectorAll("script[data-figure]"))
  told.set(one.dataset.figure, JSON.parse(one.textContent));

function make(tag, values = {}, ...inside) {
  const element = Object.assign(document.createElement(tag), values);
  element.append(...inside);
  return element;
}

// ---- Tables of numbers are made when they are opened.
function fill(details) {
  const { title, table } = told.get(details.dataset.numbers);
  const row = (cells, tag) => make("tr", {}, ...cells.map((text, n) => {
    const cell = make(n && tag === "td" ? "td" : "th", { textContent: text });
    if (cell.tagName === "TH") cell.scope = tag === "td" ? "row" : "col";
    return text || tag === "td" ? cell : make("td");
  }));
  const made = make("table", {}, ...(table.note ? [make("caption", { textContent: table.note })] : []),
    make("thead", {}, row(table.heading, "th")), make("tbody", {}, ...table.rows.map(cells => row(cells, "td"))));
  details.append(make("div", { className: "scroll", role: "region", ariaLabel: `Numbers of ${title}`, tabIndex: 0 }, made));
}
for (const details of document.querySelectorAll("details[data-numbers]"))
  details.addEventListener("toggle", () => fill(details), { once: true });

// ---- A figure as a file: its plots and its text at their places, dark on white.
const LIGHT = { ink: "#1c1d1f", grid: "#e4e6e9", paper: "#fff" };
function svg(figure) {
  const { title } = told.get(figure.id), area = figure.getBoundingClientRect(), xml = new XMLSerializer();
  const at = box => ({ x: box.left - area.left + 10, y: box.top - area.top + 34, width: box.width, height: box.height });
  const style = document.getElementById("figure-style").textContent.split("/* drawing")[1].replace(/^.*\*\//, "").replace(/var\(--(\w+)\)/g, (all, name) => LIGHT[name] ?? all);
  const text = (words, x, y, size, weight = 400) => {
    const element = make("span", { textContent: words });
    return `<text x="${x}" y="${y}" font-size="${size}" font-weight="${weight}" font-family="system-ui, sans-serif">${element.innerHTML}</text>`;
  };
  const parts = [...figure.querySelectorAll("svg.plot, svg.swatch")].map(plot => {
    const copy = plot.cloneNode(true);
    for (const [name, value] of Object.entries(at(plot.getBoundingClientRect()))) copy.setAttribute(name, value);
    return xml.serializeToString(copy);
  });
  const nodes = document.createTreeWalker(figure, NodeFilter.SHOW_TEXT);
  while (nodes.nextNode()) {
    const node = nodes.currentNode, range = document.createRange(), look = getComputedStyle(node.parentElement);
    if (node.parentElement.closest("svg")) continue;
    for (const word of node.data.matchAll(/\S+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const box = at(range.getBoundingClientRect());
      parts.push(text(word[0], box.x, box.y + 0.78 * box.height, look.fontSize, look.fontWeight));
    }
  }
  const [wide, high] = [area.width + 20, area.height + 44];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${high}" fill="${LIGHT.ink}">`
    + `<style>${style}</style>${document.querySelector("#shapes defs").outerHTML}`
    + `<rect width="100%" height="100%" fill="${LIGHT.paper}"/>${text(title, 10, 22, 15, 600)}${parts.join("")}</svg>`;
}

function save(figure) {
  const link = make("a", { download: `${figure.id}.svg` });
  link.href = URL.createObjectURL(new Blob([svg(figure)], { type: "image/svg+xml" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

for (const figure of document.querySelectorAll(".figure")) {
  const { title } = told.get(figure.id);
  const button = make("button", { type: "button", textContent: "Save as SVG", ariaLabel: `Save as SVG: ${title}`, onclick: () => save(figure) });
  figure.closest("figure").querySelector("figcaption").append(" ", button);
}

// ---- Values under the pointer, computed from the coordinates of marks.
const tip = make("div", { className: "tip", hidden: true, ariaHidden: "true" });
document.body.append(tip);

function written(plot, name, share) {
  const [low, high, log] = plot.dataset[name].split(" "), names = plot.dataset[`${name}Names`];
  const value = log ? low * (high / low) ** share : +low + share * (high - low);
  if (names) return JSON.parse(names)[Math.round(value)];
  return log ? (+value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 }) : digits(value, high - low, 3);
}

function digits(value, span, more) {
  const after = Math.min(12, Math.max(0, more - Math.floor(Math.log10(Math.abs(span)))));
  return (+value.toFixed(after) || 0).toLocaleString("en", { maximumFractionDigits: after });
}

// All points of a plot: share of the width, share of the height from the top, name.
function* points(plot) {
  for (const path of plot.querySelectorAll("path.line"))
    for (const [, x, y] of (path.getAttribute("d") || "").matchAll(/[ML](\S+?) ([^ML]+)/g))
      yield { x: x / 1000, y: y / 1000, name: path.dataset.name };
  for (const series of plot.querySelectorAll("g.points"))
    for (const one of series.children)
      yield { x: parseFloat(one.getAttribute("cx") ?? one.getAttribute("x")) / 100,
        y: parseFloat(one.getAttribute("cy") ?? one.getAttribute("y")) / 100, name: series.dataset.name };
}

// The bytes of the cells of a PNG of one byte a cell, row by row after the byte of its filter.
const read = new WeakMap();
async function cells(image) {
  const address = image.getAttribute("href");
  if (read.get(image)?.address !== address) {
    const bytes = Uint8Array.from(atob(address.split(",")[1]), letter => letter.charCodeAt(0)), view = new DataView(bytes.buffer);
    let at = 8;
    while (String.fromCharCode(...bytes.subarray(at + 4, at + 8)) !== "IDAT") at += 12 + view.getUint32(at);
    const packed = new Blob([bytes.subarray(at + 8, at + 8 + view.getUint32(at))]).stream();
    const plain = await new Response(packed.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
    read.set(image, { address, wide: view.getUint32(16), high: view.getUint32(20), plain: new Uint8Array(plain) });
  }
  return read.get(image);
}

async function value(image, event) {
  const box = image.getBoundingClientRect(), { wide, high, plain } = await cells(image);
  const column = Math.floor((event.clientX - box.left) / box.width * wide), row = Math.floor((event.clientY - box.top) / box.height * high);
  const level = plain[row * (wide + 1) + 1 + column], [low, above] = image.dataset.span.split(" ").map(Number);
  if (!(column >= 0 && column < wide && row >= 0 && row < high) || level === 255) return "";
  return `${image.dataset.unit} ≈ ${digits(low + level / 254 * (above - low), above - low, 2)}`;
}

async function point(event) {
  const plot = event.target.closest?.("svg.plot"), lines = [];
  if (!plot) return void (tip.hidden = true);
  const box = plot.getBoundingClientRect(), image = plot.querySelector("image[data-span]");
  let at = { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
  if (image) lines.push(await value(image, event));
  else {
    const far = one => Math.hypot((one.x - at.x) * box.width, (one.y - at.y) * box.height);
    let nearest = null;
    for (const one of points(plot)) if (!nearest || far(one) < far(nearest)) nearest = one;
    if (!nearest || far(nearest) > 40) return void (tip.hidden = true);
    at = nearest;
    lines.push(at.name || "");
  }
  for (const [name, share] of [["x", at.x], ["y", 1 - at.y]]) {
    const here = written(plot, name, share);
    if (here !== undefined) lines.push(`${plot.dataset[`${name}Title`] || name}: ${here}`);
  }
  if (image && !lines[0]) return void (tip.hidden = true);
  tip.textContent = lines.filter(Boolean).join("\n");
  tip.hidden = false;
  const room = tip.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - room.width - 8)}px`;
  tip.style.top = `${event.clientY + 18 + room.height > innerHeight ? event.clientY - room.height - 10 : event.clientY + 18}px`;
}
for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, point);
document.addEventListener("keydown", event => { if (event.key === "Escape") tip.hidden = true; });
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

// ---- The witness of a table's mark, chosen by pointer, touch or the arrow keys.
for (const table of document.querySelectorAll("table[data-explained]")) {
  const asked = [...table.querySelectorAll("td[data-why]")];
  if (!asked.length) continue;
  const line = make("p", { className: "why soft", role: "status", textContent: "Choose a mark to see its number and witness." });
  const heads = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
  const say = cell => {
    for (const one of asked) one.tabIndex = one === cell ? 0 : -1;
    line.textContent = `${cell.parentElement.cells[0].textContent}, ${heads[cell.cellIndex]}: ${cell.dataset.why}`;
  };
  asked.forEach((cell, n) => { cell.tabIndex = n ? -1 : 0; });
  for (const kind of ["pointerover", "focusin", "click"])
    table.addEventListener(kind, event => { const cell = event.target.closest("td[data-why]"); if (cell) say(cell); });
  table.addEventListener("keydown", event => {
    const [right, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [];
    const cell = event.target.closest("td[data-why]");
    if (right === undefined || !cell) return;
    const rows = [...table.rows].filter(row => row.checkVisibility());
    let row = rows.indexOf(cell.parentElement), next = null, column = cell.cellIndex;
    do { row += down; column += right; next = rows[row]?.cells[column]; } while (next === undefined && rows[row] && down || next && !next.dataset.why);
    if (next) next.focus();
    event.preventDefault();
  });
  const around = table.closest(".scroll"), both = make("div");  // within which the line stays in view
  around.before(both);
  both.append(around, line);
}

// ---- Filters of a table's rows, by family and by property.
for (const table of document.querySelectorAll("table[data-chosen]")) {
  const choice = (name, all, options) => {
    const select = make("select", {}, make("option", { value: "", textContent: all }),
      ...options.map(([value, text]) => make("option", { value, textContent: text })));
    return [select, make("label", {}, `${name} `, select)];
  };
  const bodies = [...table.tBodies], heads = [...table.tHead.rows[0].cells].slice(1);
  const [family, families] = choice("Family", "all", bodies.map(body => [body.dataset.family, body.dataset.family]));
  const [property, properties] = choice("Holds", "anything", heads.map((cell, n) => [n + 1, cell.textContent]));
  const count = make("output");
  family.onchange = property.onchange = () => {
    let shown = 0;
    for (const body of bodies) {
      const rows = [...body.rows].slice(1);
      for (const row of rows) row.hidden = !!property.value && !row.cells[property.value].querySelector(".yes");
      body.hidden = !!family.value && body.dataset.family !== family.value || rows.every(row => row.hidden);
      shown += body.hidden ? 0 : rows.filter(row => !row.hidden).length;
    }
    count.textContent = `${shown} encodings`;
  };
  table.closest(".scroll").before(make("div", { className: "choose" }, families, properties, count));
}

// ---- Open sections for printing. Of a list of entries only those that readers opened are printed.
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  for (const section of document.querySelectorAll(".card:not(.entry), .meaning")) section.open = true;
});
addEventListener("afterprint", () => document.documentElement.classList.remove("printing"));

function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", open);
open();
