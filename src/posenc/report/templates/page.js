const dark = matchMedia("(prefers-color-scheme: dark)"), narrow = matchMedia("(max-width: 40rem)");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const sources = new Map();
for (const source of document.querySelectorAll("script[data-figure]"))
  sources.set(document.getElementById(source.dataset.figure), source);

function draw(place) {
  const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue(name).trim();
  const { data, frames, layout: wide } = JSON.parse(sources.get(place).textContent);
  const layout = narrow.matches ? wide.meta.narrow : wide;
  layout.font = { color: of("--ink"), size: 12 };
  for (const [name, axis] of Object.entries(layout))
    if (/^[xy]axis/.test(name)) Object.assign(axis, { gridcolor: of("--grid"), zerolinecolor: of("--grid") });
  for (const note of layout.annotations || []) note.font.color = of("--ink");
  Plotly.newPlot(place, { data, layout, frames, config: { responsive: true, displayModeBar: false } });
  if (frames?.length) slide(place, frames.map(frame => frame.name), wide.meta.start);
}

function slide(place, names, start) {
  if (place.nextElementSibling?.className === "slide") place.nextElementSibling.remove();
  const row = document.createElement("div"), range = document.createElement("input"), now = document.createElement("output");
  const name = () => { range.ariaValueText = now.textContent = names[range.value]; };
  const show = () => {
    name();
    const duration = still.matches ? 0 : 120;
    Plotly.animate(place, [names[range.value]], { mode: "immediate", frame: { duration, redraw: true }, transition: { duration } });
  };
  Object.assign(range, { type: "range", min: 0, max: names.length - 1, value: start, oninput: show, ariaLabel: "Move through the figure" });
  row.className = "slide";
  name();
  row.append(range, now);
  place.after(row);
}

// Drawn when it comes near the window, so that a page with many figures opens at once.
const drawn = new Set();
function come(place) {
  near.unobserve(place);
  drawn.add(place);
  draw(place);
}
const near = new IntersectionObserver(
  seen => seen.filter(one => one.isIntersecting).forEach(one => come(one.target)), { rootMargin: "800px" });
sources.forEach((_, place) => near.observe(place));
for (const query of [dark, narrow]) query.addEventListener("change", () => drawn.forEach(draw));

// On paper everything is open, drawn, and dark on white.
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  for (const card of document.querySelectorAll(".card")) card.open = true;
  sources.forEach((_, place) => come(place));
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  drawn.forEach(draw);
});

function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", open);
open();
