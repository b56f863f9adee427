// Converts a figure of the page to the figure JSON that `posenc.plot.load` reads and draws.

/** @typedef {import("./draw.js").Heat} Heat */
/** @typedef {import("./draw.js").Lines} Lines */
/** @typedef {import("./draw.js").Axis} Axis */

const SCHEMA = "posenc.figure/1";

/** @param {number} value @returns {number | null} a number, or null where there is none to draw */
const drawable = (value) => (Number.isFinite(value) ? value : null);

/** @param {ArrayLike<number>} values */
const drawables = (values) => Array.from(values, drawable);

/** @param {Axis} axis @param {number} n @returns {number[]} coordinates of the rows or columns; names have their index */
const places = (axis, n) => Array.from({ length: n }, (_, at) => at + (axis.names ? 0 : axis.start ?? 0));

/**
 * @param {Heat} spec
 * @param {number} top the value of the strongest colour
 */
export function ofHeat(spec, top) {
  const { row, column, rows, columns } = spec;
  const z = Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => drawable(spec.values[i * columns + j])));
  const heat = { mark: "heat", z, x: places(column, columns), y: places(row, rows), signed: spec.signed ?? true, high: top };
  const framed = (spec.marks ?? []).map(([i, j]) => [places(column, columns)[j], places(row, rows)[i]]);
  const twins = { mark: "points", x: framed.map(([x]) => x), y: framed.map(([, y]) => y), name: "twins", marker: "square" };
  return figure(spec, {
    marks: framed.length ? [heat, twins] : [heat],
    x_title: column.label, y_title: row.label, x_names: column.names ?? [], y_names: row.names ?? [],
    y_down: true, square: row.role !== "channel" && column.role !== "channel",
  });
}

/** @param {Lines} spec */
export function ofLines(spec) {
  const series = spec.series.flatMap((line) => [
    ...(line.low && line.high ? [{ mark: "band", x: drawables(line.xs), low: drawables(line.low), high: drawables(line.high), name: line.name }] : []),
    { mark: line.dots ? "points" : "line", x: drawables(line.xs), y: drawables(line.ys), name: line.name },
  ]);
  const rules = (spec.rules ?? []).map(({ y, name }) => ({ mark: "rule", at: y, axis: "y", name }));
  return figure(spec, {
    marks: [...series, ...rules],
    x_title: spec.x.label, y_title: spec.y.label, x_log: !!spec.x.log, y_log: !!spec.y.log,
  });
}

/** @param {{title: string, about?: string}} spec @param {object} panel */
function figure(spec, panel) {
  return { schema: SCHEMA, title: spec.title, says: spec.about ?? "", panels: [panel] };
}
