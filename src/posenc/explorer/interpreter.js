// Runs the graphs that graphs.py exports, on tensors of float64: one definition, in Python.

/**
 * A view of numbers: element (i, j, …) is data[offset + i · strides[0] + j · strides[1] + …].
 * @typedef {{shape: number[], strides: number[], offset: number, data: Float64Array,
 *   dtype: string}} Tensor
 */
/** @typedef {number | boolean | string | null | Tensor | Tensor[]} Plain */
/** @typedef {Plain | Value[]} Value of a node; sizes are numbers */
/** @typedef {{shape: number[], dtype: string, values?: (number | boolean)[], float32?: string,
 *   float64?: string}} Numbers as graphs.py writes a tensor */
/** @typedef {[string, any[], Object<string, any>?, string?]} Node operation, arguments, named ones,
 *   dtype of what comes out, where that is not float64 */
/** @typedef {{name: string, sentence?: string, inputs: Object<string, (number | string)[]>,
 *   constants: Object<string, Numbers>, nodes: Node[], outputs: Object<string, string>}} Graph */

/** What is thrown for an operation that is not in the table below; its message is a sentence. */
export class UnknownOperation extends Error {}

// ---- tensors

/** @param {readonly number[]} shape @returns {number} */
const count = (shape) => shape.reduce((all, size) => all * size, 1);

/** @param {readonly number[]} shape @returns {number[]} of a tensor whose rows lie one by one */
function rowMajor(shape) {
  const strides = new Array(shape.length);
  let step = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    strides[d] = step;
    step *= shape[d];
  }
  return strides;
}

/**
 * @param {number[]} shape
 * @param {ArrayLike<number>} values row by row
 * @param {string} dtype
 * @returns {Tensor}
 */
export function tensor(shape, values, dtype = "float64") {
  if (count(shape) !== values.length) {
    throw new RangeError(`${values.length} numbers cannot be of shape (${shape.join(", ")}).`);
  }
  const data = values instanceof Float64Array ? values : Float64Array.from(values);
  return { shape, strides: rowMajor(shape), offset: 0, data, dtype };
}

/** @param {Tensor} x @param {number[]} shape @param {number[]} strides @param {number} offset
 *  @returns {Tensor} the same numbers, seen otherwise */
const seen = (x, shape, strides, offset = x.offset) => ({
  shape, strides, offset, data: x.data, dtype: x.dtype,
});

/** @param {Tensor} x @returns {boolean} */
function isRowMajor(x) {
  let step = 1;
  for (let d = x.shape.length - 1; d >= 0; d--) {
    if (x.shape[d] !== 1 && x.strides[d] !== step) return false;
    step *= x.shape[d];
  }
  return true;
}

/** @param {Tensor} x @returns {Float64Array} its numbers row by row; not to be written to */
export function values(x) {
  const size = count(x.shape);
  if (isRowMajor(x)) {
    const all = x.offset === 0 && x.data.length === size;
    return all ? x.data : x.data.subarray(x.offset, x.offset + size);
  }
  return copied([x], x.shape).data;
}

/** @param {Tensor} x @returns {Tensor} */
const compact = (x) => (isRowMajor(x) ? x : tensor(x.shape, values(x)));

/** @param {number} d @param {number} axes @returns {number} an axis, counted from the first */
const axis = (d, axes) => (d < 0 ? d + Math.max(axes, 1) : d);

/**
 * The shape that several tensors broadcast to.
 * @param {readonly (readonly number[])[]} shapes
 * @returns {number[]}
 */
function broadcast(shapes) {
  const axes = Math.max(...shapes.map((shape) => shape.length));
  const all = new Array(axes).fill(1);
  for (const shape of shapes) {
    shape.forEach((size, i) => {
      const d = axes - shape.length + i;
      if (size !== 1 && all[d] !== 1 && all[d] !== size) {
        const both = shapes.map((one) => `(${one.join(", ")})`).join(" and ");
        throw new RangeError(`shapes ${both} do not broadcast.`);
      }
      if (size !== 1) all[d] = size;
    });
  }
  return all;
}

/** @param {Tensor} x @param {readonly number[]} shape @returns {number[]} 0 where x repeats */
function stridesFor(x, shape) {
  const more = shape.length - x.shape.length;
  return shape.map((_, d) => (d < more || x.shape[d - more] === 1 ? 0 : x.strides[d - more]));
}

/**
 * Visits all places of a shape, sheet by sheet: `sheet(offsets, m, n, down, across)` of each tensor
 * at its start, for m rows of n numbers that follow in steps. Axes that lie one in the other are one.
 * @param {Tensor[]} tensors
 * @param {readonly number[]} whole the shape that they broadcast to
 * @param {(offsets: number[], m: number, n: number, down: number[], across: number[]) => void} sheet
 */
function sheets(tensors, whole, sheet) {
  if (!count(whole)) return;
  const each = tensors.map((x) => stridesFor(x, whole));
  /** @type {number[]} */
  const shape = [];
  const strides = tensors.map(() => /** @type {number[]} */ ([]));
  whole.forEach((size, d) => {
    if (size === 1) return;
    const outer = shape.length - 1;
    const joins = outer >= 0 && strides.every((one, t) => one[outer] === each[t][d] * size);
    if (joins) shape[outer] *= size;
    else shape.push(size);
    strides.forEach((one, t) => (one[shape.length - 1] = each[t][d]));
  });
  while (shape.length < 2) {
    shape.unshift(1);
    for (const one of strides) one.unshift(0);
  }
  const last = shape.length - 2;
  const [down, across] = [strides.map((one) => one[last]), strides.map((one) => one[last + 1])];
  const offsets = tensors.map((x) => x.offset);
  const place = new Array(last).fill(0);
  const outer = count(shape.slice(0, last));
  for (let n = 0; n < outer; n++) {
    sheet(offsets, shape[last], shape[last + 1], down, across);
    for (let d = last - 1; d >= 0; d--) {
      const inside = ++place[d] < shape[d];
      for (let t = 0; t < tensors.length; t++) {
        offsets[t] += inside ? strides[t][d] : strides[t][d] * (1 - shape[d]);
      }
      if (inside) break;
      place[d] = 0;
    }
  }
}

// ---- loops

/**
 * f of each place of a sheet of m rows and n columns, written from `at` on.
 * @param {(a: number, b: number, c: number) => number} f
 * @param {Float64Array} out @param {number} at
 * @param {Float64Array} x @param {Float64Array} y @param {Float64Array} z
 * @param {number[]} offsets @param {number} m @param {number} n
 * @param {number[]} down @param {number[]} across
 */
function sweep(f, out, at, x, y, z, [i, j, k], m, n, [di, dj, dk], [ei, ej, ek]) {
  for (let r = 0; r < m; r++, i += di, j += dj, k += dk) {
    for (let c = 0, p = i, q = j, s = k; c < n; c++, at++, p += ei, q += ej, s += ek) {
      out[at] = f(x[p], y[q], z[s]);
    }
  }
}

/**
 * The numbers of x that lie so far from each of these starts, folded into one a start.
 * @param {(so_far: number, value: number) => number} f
 * @param {Float64Array} out of the first value of each
 * @param {Float64Array} x @param {Int32Array} starts @param {Int32Array} steps
 */
function gathered(f, out, x, starts, steps) {
  for (let i = 0; i < out.length; i++) {
    let [sum, at] = [out[i], starts[i]];
    for (let n = 0; n < steps.length; n++) sum = f(sum, x[at + steps[n]]);
    out[i] = sum;
  }
}

let loops = 0;

/**
 * A copy of a loop for one operation alone: an engine puts a function into a loop that has only ever
 * called that one, which is several times faster. Where a page may not make functions of text, all
 * operations share the loop. The number makes each text another: engines know a text again.
 * @template {Function} F
 * @param {F} loop that reads nothing but its arguments @returns {() => F} made when it is needed first
 */
function own(loop) {
  /** @type {F | null} */
  let copy = null;
  return () => {
    if (copy) return copy;
    try {
      copy = /** @type {F} */ (new Function(`"use strict"; return ${loop} // ${loops++}`)());
    } catch {
      copy = loop;
    }
    return copy;
  };
}

/**
 * A function of numbers, element by element, of one to three tensors that broadcast.
 * @param {(a: number, b: number, c: number) => number} f
 * @returns {(tensors: Tensor[], shape: number[]) => Tensor}
 */
function elementwise(f) {
  const loop = own(sweep);
  return (tensors, shape) => {
    const out = new Float64Array(count(shape)), run = loop();
    const [a, b = a, c = a] = tensors;
    let at = 0;
    sheets([a, b, c], shape, (offsets, m, n, down, across) => {
      run(f, out, at, a.data, b.data, c.data, offsets, m, n, down, across);
      at += m * n;
    });
    return tensor(shape, out);
  };
}

const copied = elementwise((one) => one);

/** @param {any} value @returns {Tensor} */
function lifted(value) {
  if (typeof value === "object") return value;
  return tensor([], [Number(value)]);
}

// ---- operations

/** @param {(a: number, b: number, c: number) => number} f of each element of what broadcasts */
function each(f) {
  const of = elementwise(f);
  return (/** @type {any[]} */ ...operands) => {
    const tensors = operands.map(lifted);
    return of(tensors, broadcast(tensors.map((x) => x.shape)));
  };
}

const added = each((a, b) => a + b), reduced = each((a, b) => a - b), times = each((a, b) => a * b);
const addedTimes = each((a, b, factor) => a + factor * b), divide = each((a, b) => a / b);
const floored = each((a, b) => Math.floor(a / b)), truncated = each((a, b) => Math.trunc(a / b));
const clamped = each((v, low, high) => Math.min(Math.max(v, low), high));
const negated = each((a) => +!a), inverted = each((a) => ~a);
const integral = each(Math.trunc), truth = each((a) => +!!a), single = each(Math.fround), root = each(Math.sqrt);

/** @param {any} a @param {any} b @param {{alpha?: number} | undefined} options @param {number} sign */
function plus(a, b, options, sign) {
  if (options?.alpha !== undefined) return addedTimes(a, b, sign * options.alpha);
  return (sign > 0 ? added : reduced)(a, b);
}

/** @param {number} a @param {number} b */
const modulo = (a, b) => a - b * Math.floor(a / b);

/** @param {any} a @param {any} b @param {{rounding_mode?: string}} [options] */
function divided(a, b, options) {
  const mode = options?.rounding_mode;
  return (mode === "floor" ? floored : mode ? truncated : divide)(a, b);
}

/** @param {Tensor} x @param {Tensor} bounds that rise @param {{right?: boolean}} [options] */
function bucketize(x, bounds, options) {
  const [all, edges] = [values(x), values(bounds)], right = !!options?.right;
  const out = new Float64Array(all.length);
  for (let i = 0; i < out.length; i++) {
    let passed = 0;
    while (passed < edges.length && (edges[passed] < all[i] || (right && edges[passed] === all[i]))) passed++;
    out[i] = passed;
  }
  return tensor(x.shape, out);
}

/** @param {Tensor} x @param {string} [dtype] */
function cast(x, dtype = "") {
  return dtype.startsWith("int") ? integral(x) : dtype === "bool" ? truth(x) : x;
}

/** @param {Tensor} x @param {number[]} shape */
function view(x, shape) {
  const rest = shape.reduce((all, size) => (size < 0 ? all : all * size), 1);
  const whole = shape.map((size) => (size < 0 ? count(x.shape) / rest : size));
  const flat = compact(x);
  return seen(flat, whole, rowMajor(whole));
}

/** @param {Tensor} x @param {number[]} shape */
function expand(x, shape) {
  const more = shape.length - x.shape.length;
  const whole = shape.map((size, d) => (size < 0 ? x.shape[d - more] : size));
  return seen(x, whole, stridesFor(x, whole));
}

/** @param {Tensor} x @param {number[]} order */
function permute(x, order) {
  const from = order.map((d) => axis(d, order.length));
  return seen(x, from.map((d) => x.shape[d]), from.map((d) => x.strides[d]));
}

/** @param {Tensor} x @param {number} d */
function unsqueeze(x, d) {
  const at = axis(d, x.shape.length + 1);
  const [shape, strides] = [[...x.shape], [...x.strides]];
  shape.splice(at, 0, 1);
  strides.splice(at, 0, 0);
  return seen(x, shape, strides);
}

/** @param {Tensor} x @param {number[]} dims */
function squeeze(x, dims) {
  const gone = dims.map((d) => axis(d, x.shape.length));
  const left = x.shape.map((_, d) => d).filter((d) => !(gone.includes(d) && x.shape[d] === 1));
  return permuteSome(x, left);
}

/** @param {Tensor} x @param {number[]} left the axes that stay; the others are entered at 0 */
const permuteSome = (x, left) =>
  seen(x, left.map((d) => x.shape[d]), left.map((d) => x.strides[d]));

/** @param {Tensor} x @param {number} d @param {number | null} start @param {number | null} end
 *  @param {number} step */
function slice(x, d = 0, start = 0, end = null, step = 1) {
  const at = axis(d, x.shape.length);
  const size = x.shape[at];
  /** @param {number} n */
  const within = (n) => Math.max(0, Math.min(size, n < 0 ? n + size : n));
  const first = within(start ?? 0);
  const length = Math.max(0, Math.ceil((within(end ?? size) - first) / step));
  const [shape, strides] = [[...x.shape], [...x.strides]];
  shape[at] = length;
  strides[at] *= step;
  return seen(x, shape, strides, x.offset + first * x.strides[at]);
}

/** @param {Tensor} x @param {number} d @param {number} index */
function select(x, d, index) {
  const at = axis(d, x.shape.length);
  const offset = x.offset + (index < 0 ? index + x.shape[at] : index) * x.strides[at];
  const left = x.shape.map((_, other) => other).filter((other) => other !== at);
  return { ...permuteSome(x, left), offset };
}

/** @param {Tensor} x @param {number} d1 @param {number} d2 */
function diagonal(x, d1 = 0, d2 = 1) {
  const [a, b] = [axis(d1, x.shape.length), axis(d2, x.shape.length)];
  const left = x.shape.map((_, d) => d).filter((d) => d !== a && d !== b);
  const rest = permuteSome(x, left);
  const [length, step] = [Math.min(x.shape[a], x.shape[b]), x.strides[a] + x.strides[b]];
  return seen(x, [...rest.shape, length], [...rest.strides, step]);
}

/** @param {Tensor[]} tensors @param {number} d */
function cat(tensors, d = 0) {
  const at = axis(d, tensors[0].shape.length);
  const shape = [...tensors[0].shape];
  shape[at] = tensors.reduce((all, x) => all + x.shape[at], 0);
  const out = new Float64Array(count(shape));
  const [outer, width] = [count(shape.slice(0, at)), count(shape.slice(at))];
  let start = 0;
  for (const x of tensors) {
    const [from, n] = [values(x), count(x.shape.slice(at))];
    for (let i = 0, read = 0; i < outer; i++) { // number by number: a view of each piece costs more
      for (let to = i * width + start, end = to + n; to < end; to++) out[to] = from[read++];
    }
    start += n;
  }
  return tensor(shape, out);
}

/** @param {Tensor} x @param {number[]} dims */
function flip(x, dims) {
  const strides = [...x.strides];
  let offset = x.offset;
  for (const d of dims.map((one) => axis(one, x.shape.length))) {
    offset += Math.max(0, x.shape[d] - 1) * x.strides[d];
    strides[d] *= -1;
  }
  return compact(seen(x, x.shape, strides, offset));
}

/**
 * Folds some axes into one number each; no axes named: all.
 * @param {number} start
 * @param {(so_far: number, value: number) => number} f
 * @returns {(x: Tensor, dims?: number[] | null, keep?: boolean) => Tensor}
 */
function fold(start, f) {
  const loop = own(gathered);
  return (x, dims = null, keep = false) => {
    const all = x.shape.map((_, d) => d);
    const gone = dims?.length ? dims.map((d) => axis(d, x.shape.length)) : all;
    const left = permuteSome(x, all.filter((d) => !gone.includes(d)));
    const inner = permuteSome({ ...x, offset: 0 }, all.filter((d) => gone.includes(d)));
    const out = new Float64Array(count(left.shape)).fill(start);
    loop()(f, out, x.data, offsets(left), offsets(inner));
    const shape = keep ? x.shape.map((size, d) => (gone.includes(d) ? 1 : size)) : left.shape;
    return tensor(shape, out);
  };
}

const total = fold(0, (a, b) => a + b), squares = fold(0, (a, b) => a + b * b);
const greatest = fold(-Infinity, (a, b) => Math.max(a, b)), smallest = fold(Infinity, (a, b) => Math.min(a, b));

/** @param {Tensor} x @param {any} order @param {number[] | null} dims @param {boolean} keep */
function norm(x, order = 2, dims = null, keep = false) {
  if (order !== 2) throw new UnknownOperation(`the norm of order ${order} cannot be computed here.`);
  return root(squares(x, dims, keep));
}

/** @param {Tensor} x @returns {Int32Array} where each of its elements lies, row by row */
function offsets(x) {
  const out = new Int32Array(count(x.shape));
  let at = 0;
  sheets([x], x.shape, ([start], m, n, [down], [across]) => {
    for (let r = 0; r < m; r++, start += down) {
      for (let c = 0, i = start; c < n; c++, i += across) out[at++] = i;
    }
  });
  return out;
}

/** @param {Tensor} x @param {number} d */
function cumsum(x, d) {
  const at = axis(d, x.shape.length);
  const out = values(x).slice();
  const [n, inner] = [x.shape[at] ?? 1, count(x.shape.slice(at + 1))];
  for (let start = 0; start < out.length; start += n * inner) { // the first of each has nothing before
    for (let i = start + inner; i < start + n * inner; i++) out[i] += out[i - inner];
  }
  return tensor(x.shape, out);
}

/**
 * Adds to each place how far it is, in steps, to the row that a sheet of indices names.
 * @param {Int32Array} places @param {number} at @param {Float64Array} indices @param {number} start
 * @param {number} m @param {number} n @param {number} down @param {number} across
 * @param {number} size rows that there are @param {number} step
 */
function jump(places, at, indices, start, m, n, down, across, size, step) {
  for (let r = 0; r < m; r++, start += down) {
    for (let c = 0, i = start; c < n; c++, i += across) {
      const row = indices[i] < 0 ? indices[i] + size : indices[i];
      if (!(row >= 0 && row < size)) throw new RangeError(`there is no row ${indices[i]} among ${size}.`);
      places[at++] += row * step;
    }
  }
}

/**
 * Entries by indices along neighbouring axes, the others whole: x[:, i, j].
 * @param {Tensor} x
 * @param {(Tensor | null)[]} indices
 */
function index(x, indices) {
  const first = indices.findIndex((one) => one !== null);
  const chosen = /** @type {Tensor[]} */ (indices.filter((one) => one !== null));
  const after = first + chosen.length;
  const apart = indices.slice(first, after).some((one) => one === null);
  const shape = broadcast(chosen.map((one) => one.shape));
  const before = apart ? [] : x.shape.slice(0, first);
  const others = x.shape.map((_, d) => d).filter((d) => !indices[d]);
  // Where an axis lies between two that are indexed, torch puts what they make first.
  const [outer, rest] = apart
    ? [permuteSome(x, []), permuteSome(x, others)]
    : [permuteSome(x, others.filter((d) => d < first)), permuteSome(x, others.filter((d) => d > first))];
  const jumps = new Int32Array(count(shape));
  indices.forEach((one, d) => {
    if (!one) return;
    let at = 0;
    sheets([one], shape, ([start], m, n, [down], [across]) => {
      jump(jumps, at, one.data, start, m, n, down, across, x.shape[d], x.strides[d]);
      at += m * n;
    });
  });
  const [outerAt, restAt, from] = [offsets(outer), offsets({ ...rest, offset: 0 }), x.data];
  const out = new Float64Array(outerAt.length * jumps.length * restAt.length);
  let at = 0;
  for (let a = 0; a < outerAt.length; a++) {
    for (let b = 0; b < jumps.length; b++) {
      const start = outerAt[a] + jumps[b];
      for (let c = 0; c < restAt.length; c++) out[at++] = from[start + restAt[c]];
    }
  }
  return tensor([...before, ...shape, ...rest.shape], out);
}

/** @param {Tensor} x @param {number} d @param {Tensor} where */
function gather(x, d, where) {
  const at = axis(d, x.shape.length);
  const chosen = values(where);
  // where each element of `where` lies, but for the axis that it chooses along
  const strides = x.strides.map((step, other) => (other === at ? 0 : step));
  const start = offsets(seen(x, where.shape, strides));
  const out = new Float64Array(chosen.length);
  for (let i = 0; i < out.length; i++) out[i] = x.data[start[i] + chosen[i] * x.strides[at]];
  return tensor(where.shape, out);
}

/** @param {Tensor} x @param {number[]} sizes @param {number} d */
function split(x, sizes, d = 0) {
  let start = 0;
  return sizes.map((size) => slice(x, d, start, (start += size)));
}

/** @param {Tensor} x @param {number[]} pad two for each axis, from the last @param {any} value */
function pad(x, pad, value = 0) {
  const shape = [...x.shape];
  let [inner, outer] = [x, 0];
  for (let n = 0; n < pad.length / 2; n++) {
    const d = shape.length - 1 - n;
    const [low, high] = [pad[2 * n], pad[2 * n + 1]];
    inner = slice(inner, d, Math.max(0, -low), inner.shape[d] - Math.max(0, -high));
    shape[d] += low + high;
  }
  const out = tensor(shape, new Float64Array(count(shape)).fill(value));
  const strides = rowMajor(shape);
  for (let n = 0; n < pad.length / 2; n++) {
    outer += Math.max(0, pad[2 * n]) * strides[shape.length - 1 - n];
  }
  const from = values(inner);
  offsets(seen(out, inner.shape, strides, outer)).forEach((at, i) => (out.data[at] = from[i]));
  return out;
}

/** @param {number} start @param {number} end @param {any} [step] may be left out */
function arange(start, end, step) {
  if (typeof step !== "number") step = 1;
  const n = Math.max(0, Math.ceil((end - start) / step));
  const data = Float64Array.from({ length: n }, (_, i) => start + i * step);
  return tensor([n], data);
}

/** @param {number[]} shape @param {any} value */
const full = (shape, value) => tensor(shape, new Float64Array(count(shape)).fill(value));

/** @param {number} n @param {any} [m] may be left out */
function eye(n, m) {
  if (typeof m !== "number") m = n;
  const out = tensor([n, m], new Float64Array(n * m));
  for (let i = 0; i < Math.min(n, m); i++) out.data[i * m + i] = 1;
  return out;
}

// ---- matrices

/**
 * Writes a · b into `out`, two rows and four columns at once: each number is read for several products.
 * @param {Float64Array} out (n, m), from `to` on
 * @param {Float64Array} a (n, k), from `p` on
 * @param {Float64Array} b (m, k), from `q` on: a column of the product is a row here
 * @param {number} to @param {number} p @param {number} q @param {number} n @param {number} k @param {number} m
 */
function multiply(out, a, b, to, p, q, n, k, m) {
  let i = 0;
  for (; i + 1 < n; i += 2) {
    const first = p + i * k;
    let j = 0;
    for (; j + 3 < m; j += 4) {
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0;
      for (let l = first, r = q + j * k, end = first + k; l < end; l++, r++) {
        const x = a[l], y = a[l + k], b0 = b[r], b1 = b[r + k], b2 = b[r + 2 * k], b3 = b[r + 3 * k];
        s0 += x * b0; s1 += x * b1; s2 += x * b2; s3 += x * b3;
        t0 += y * b0; t1 += y * b1; t2 += y * b2; t3 += y * b3;
      }
      const at = to + i * m + j;
      out[at] = s0; out[at + 1] = s1; out[at + 2] = s2; out[at + 3] = s3;
      out[at + m] = t0; out[at + m + 1] = t1; out[at + m + 2] = t2; out[at + m + 3] = t3;
    }
    for (; j < m; j++) {
      let s = 0, t = 0;
      for (let l = 0, r = q + j * k; l < k; l++) {
        s += a[first + l] * b[r + l];
        t += a[first + k + l] * b[r + l];
      }
      out[to + i * m + j] = s;
      out[to + (i + 1) * m + j] = t;
    }
  }
  for (let j = 0; i < n && j < m; j++) { // the last row of an odd number
    let s = 0;
    for (let l = 0; l < k; l++) s += a[p + i * k + l] * b[q + j * k + l];
    out[to + i * m + j] = s;
  }
}

/** @param {Tensor} a (batch, n, k) @param {Tensor} b (batch, k, m) */
function bmm(a, b) {
  const [batch, n, k] = a.shape, m = b.shape[2];
  const out = new Float64Array(batch * n * m);
  const [left, right] = [values(a), values(permute(b, [0, 2, 1]))];
  for (let g = 0; g < batch; g++) multiply(out, left, right, g * n * m, g * n * k, g * m * k, n, k, m);
  return tensor([batch, n, m], out);
}

/** @param {Tensor} a @param {Tensor} b */
const mm = (a, b) => squeeze(bmm(unsqueeze(a, 0), unsqueeze(b, 0)), [0]);

const TERMS = 20; // of Taylor's series: of norm 1, the first that is left out is 4 · 10⁻¹⁹
const INVERSE = [1]; // 1/n!
for (let n = 1; n < TERMS; n++) INVERSE.push(INVERSE[n - 1] / n);

/**
 * exp of square matrices: Taylor's series of A / 2ˢ, whose sums of rows are below 1, squared s times.
 * Four terms are taken at once: (A⁰/0! + … + A³/3!) + A⁴ ((A⁰/4! + … + A³/7!) + A⁴ (…)).
 * @param {Tensor} x (…, n, n)
 */
function exponential(x) {
  const all = values(x), n = x.shape[x.shape.length - 1], size = n * n;
  const out = new Float64Array(all.length);
  let [power, next, turned] = [new Float64Array(size), new Float64Array(size), new Float64Array(size)];
  const powers = [0, 1, 2, 3, 4].map(() => new Float64Array(size));
  for (let d = 0; d < n; d++) powers[0][d * n + d] = 1;

  /** @param {Float64Array} a @param {Float64Array} b @param {Float64Array} to a · b */
  function by(a, b, to) {
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) turned[j * n + i] = b[i * n + j];
    multiply(to, a, turned, 0, 0, 0, n, n, n);
  }

  for (let start = 0; start < all.length; start += size) {
    let largest = 0;
    for (let i = 0; i < n; i++) {
      let sum = 0;
      for (let j = 0; j < n; j++) sum += Math.abs(all[start + i * n + j]);
      largest = Math.max(largest, sum);
    }
    const halvings = Math.max(0, Math.ceil(Math.log2(largest || 1)));
    for (let i = 0; i < size; i++) powers[1][i] = all[start + i] / 2 ** halvings;
    for (let e = 2; e <= 4; e++) by(powers[e - 1], powers[1], powers[e]);
    power.fill(0);
    for (let first = TERMS - 4; first >= 0; first -= 4) {
      by(power, powers[4], next);
      for (let e = 0; e < 4; e++) for (let i = 0; i < size; i++) next[i] += powers[e][i] * INVERSE[first + e];
      [power, next] = [next, power];
    }
    for (let s = 0; s < halvings; s++) {
      by(power, power, next);
      [power, next] = [next, power];
    }
    out.set(power, start);
  }
  return tensor(x.shape, out);
}

/**
 * X of A X = B, by elimination with the largest pivot of each column.
 * @param {Float64Array} a (n, n), overwritten
 * @param {Float64Array} b (n, m), overwritten
 * @param {number} n
 */
function solved(a, b, n) {
  const m = b.length / n;
  /** @param {Float64Array} x @param {number} w @param {number} i @param {number} j */
  const swap = (x, w, i, j) => {
    for (let c = 0; c < w; c++) [x[i * w + c], x[j * w + c]] = [x[j * w + c], x[i * w + c]];
  };
  for (let c = 0; c < n; c++) {
    let best = c;
    for (let r = c + 1; r < n; r++) if (Math.abs(a[r * n + c]) > Math.abs(a[best * n + c])) best = r;
    if (best !== c) {
      swap(a, n, c, best);
      swap(b, m, c, best);
    }
    for (let r = c + 1; r < n; r++) {
      const factor = a[r * n + c] / a[c * n + c];
      if (!factor) continue;
      for (let j = c; j < n; j++) a[r * n + j] -= factor * a[c * n + j];
      for (let j = 0; j < m; j++) b[r * m + j] -= factor * b[c * m + j];
    }
  }
  for (let r = n - 1; r >= 0; r--) {
    for (let j = 0; j < m; j++) {
      let sum = b[r * m + j];
      for (let c = r + 1; c < n; c++) sum -= a[r * n + c] * b[c * m + j];
      b[r * m + j] = sum / a[r * n + r];
    }
  }
  return b;
}

/** @param {Tensor} a (…, n, n) @param {Tensor} b (…, n, m) */
function solve(a, b) {
  const [n, m] = b.shape.slice(-2);
  const batch = broadcast([a.shape.slice(0, -2), b.shape.slice(0, -2)]);
  const left = values(expand(a, [...batch, n, n]));
  const right = values(expand(b, [...batch, n, m]));
  const out = new Float64Array(count(batch) * n * m);
  for (let g = 0; g < count(batch); g++) {
    const [one, other] = [left.slice(g * n * n, (g + 1) * n * n), right.slice(g * n * m, (g + 1) * n * m)];
    out.set(solved(one, other, n), g * n * m);
  }
  return tensor([...batch, n, m], out);
}

/** @param {Tensor} x */
const transposed = (x) => {
  const order = x.shape.map((_, d) => d);
  return permute(x, [...order.slice(0, -2), order.length - 1, order.length - 2]);
};

/** @param {Tensor} x @param {boolean} lower @param {number} shift */
function triangle(x, lower, shift) {
  const [n, m] = x.shape.slice(-2), out = values(x).slice();
  for (let i = 0, row = 0; row < out.length; i = (i + 1) % n, row += m) {
    if (lower) out.fill(0, row + Math.min(m, Math.max(0, i + shift + 1)), row + m);
    else out.fill(0, row, row + Math.min(m, Math.max(0, i + shift)));
  }
  return tensor(x.shape, out);
}

/**
 * X of A X = B, or of X A = B where not `left`, for one triangle of A: substitution, row by row.
 * @param {Tensor} a (…, n, n)
 * @param {Tensor} b
 * @param {{upper?: boolean, left?: boolean, unitriangular?: boolean}} options
 * @returns {Tensor}
 */
function solveTriangular(a, b, { upper = false, left = true, unitriangular = false }) {
  if (!left) return transposed(solveTriangular(transposed(a), transposed(b), { upper: !upper, unitriangular }));
  const [n, m] = b.shape.slice(-2), FOUR = 4;
  const batch = broadcast([a.shape.slice(0, -2), b.shape.slice(0, -2)]);
  const all = values(expand(a, [...batch, n, n]));
  const columns = values(transposed(expand(b, [...batch, n, m]))).slice(); // each becomes one of X
  for (let at = 0; at < columns.length; at += FOUR * n) { // four at once: each number of A is read for four
    const many = Math.min(FOUR, m - ((at / n) % m));
    const square = Math.floor(at / (n * m)) * n * n;
    const [p, q, r, s] = [0, 1, 2, 3].map((c) => at + Math.min(c, many - 1) * n);
    for (let step = 0; step < n; step++) {
      const i = upper ? n - 1 - step : step, row = square + i * n;
      const [from, to] = upper ? [i + 1, n] : [0, i];
      let s0 = columns[p + i], s1 = columns[q + i], s2 = columns[r + i], s3 = columns[s + i];
      for (let j = from; j < to; j++) {
        const factor = all[row + j];
        s0 -= factor * columns[p + j];
        s1 -= factor * columns[q + j];
        s2 -= factor * columns[r + j];
        s3 -= factor * columns[s + j];
      }
      const pivot = unitriangular ? 1 : all[row + i];
      columns[p + i] = s0 / pivot; columns[q + i] = s1 / pivot;
      columns[r + i] = s2 / pivot; columns[s + i] = s3 / pivot;
    }
    at -= (FOUR - many) * n; // the last of a matrix may be fewer
  }
  return transposed(tensor([...batch, m, n], columns));
}

/** @type {Object<string, (...operands: any[]) => Value>} named as in torch, without "aten." */
const OPERATIONS = {
  "py.getitem": (list, i) => list[i],
  "py.add": (a, b) => a + b,
  "py.sub": (a, b) => a - b,
  "py.mul": (a, b) => a * b,
  "py.floordiv": (a, b) => Math.floor(a / b),
  "py.mod": modulo,
  "py.neg": (a) => -a,
  "py.sym_max": Math.max,
  "py.sym_min": Math.min,
  "sym_size.int": (x, d) => x.shape[axis(d, x.shape.length)],
  "sym_numel.default": (x) => count(x.shape),
  "arange.start_step": arange,
  "full.default": full,
  "full_like.default": (x, value) => full(x.shape, value),
  "scalar_tensor.default": (value) => full([], value),
  "eye.default": eye,
  "eye.m": eye,
  "_to_copy.default": (x, options) => cast(x, options?.dtype),
  "add.Tensor": (a, b, options) => plus(a, b, options, 1),
  "add.Scalar": (a, b, options) => plus(a, b, options, 1),
  "sub.Tensor": (a, b, options) => plus(a, b, options, -1),
  "sub.Scalar": (a, b, options) => plus(a, b, options, -1),
  "rsub.Scalar": (a, b) => each((x, y) => y - x)(a, b),
  "mul.Tensor": times,
  "mul.Scalar": times,
  "div.Tensor": (a, b) => divided(a, b),
  "div.Scalar": (a, b) => divided(a, b),
  "div.Tensor_mode": divided,
  "div.Scalar_mode": divided,
  "floor_divide.default": (a, b) => divided(a, b, { rounding_mode: "floor" }),
  "remainder.Tensor": each(modulo),
  "remainder.Scalar": each(modulo),
  "addcmul.default": (x, a, b, options) => plus(x, times(a, b), { alpha: options?.value ?? 1 }, 1),
  "maximum.default": each(Math.max),
  "minimum.default": each(Math.min),
  "clamp.default": (x, low = null, high = null) => clamped(x, low ?? -Infinity, high ?? Infinity),
  "clamp_min.default": each(Math.max),
  "clamp_max.default": each(Math.min),
  "pow.Tensor_Scalar": each((a, b) => a ** b),
  "pow.Tensor_Tensor": each((a, b) => a ** b),
  "pow.Scalar": each((a, b) => a ** b),
  "neg.default": each((a) => -a),
  "abs.default": each(Math.abs),
  "sign.default": each(Math.sign),
  "floor.default": each(Math.floor),
  "ceil.default": each(Math.ceil),
  "trunc.default": each(Math.trunc),
  "relu.default": each((a) => Math.max(a, 0)),
  "sin.default": each(Math.sin),
  "cos.default": each(Math.cos),
  "exp.default": each(Math.exp),
  "expm1.default": each(Math.expm1),
  "log.default": each(Math.log),
  "log1p.default": each(Math.log1p),
  "log2.default": each(Math.log2),
  "sqrt.default": root,
  "rsqrt.default": each((a) => 1 / Math.sqrt(a)),
  "reciprocal.default": each((a) => 1 / a),
  "tanh.default": each(Math.tanh),
  "atan2.default": each(Math.atan2),
  "sigmoid.default": each((a) => 1 / (1 + Math.exp(-a))),
  "eq.Tensor": each((a, b) => +(a === b)),
  "eq.Scalar": each((a, b) => +(a === b)),
  "ne.Tensor": each((a, b) => +(a !== b)),
  "ne.Scalar": each((a, b) => +(a !== b)),
  "lt.Tensor": each((a, b) => +(a < b)),
  "lt.Scalar": each((a, b) => +(a < b)),
  "le.Tensor": each((a, b) => +(a <= b)),
  "le.Scalar": each((a, b) => +(a <= b)),
  "gt.Tensor": each((a, b) => +(a > b)),
  "gt.Scalar": each((a, b) => +(a > b)),
  "ge.Tensor": each((a, b) => +(a >= b)),
  "ge.Scalar": each((a, b) => +(a >= b)),
  "logical_not.default": negated,
  "bitwise_not.default": (x) => (x.dtype === "bool" ? negated : inverted)(x),
  "logical_and.default": each((a, b) => +!!(a && b)),
  "bitwise_and.Tensor": each((a, b) => a & b),
  "logical_or.default": each((a, b) => +!!(a || b)),
  "bitwise_or.Tensor": each((a, b) => a | b),
  "where.self": each((condition, a, b) => (condition ? a : b)),
  "bucketize.Tensor": bucketize,
  "view.default": view,
  "reshape.default": view,
  "_unsafe_view.default": view,
  "expand.default": expand,
  "permute.default": permute,
  "unsqueeze.default": unsqueeze,
  "squeeze.dims": squeeze,
  "squeeze.dim": (x, d) => squeeze(x, [d]),
  "slice.Tensor": slice,
  "select.int": select,
  "diagonal.default": (x, _, d1, d2) => diagonal(x, d1, d2),
  "cat.default": cat,
  "flip.default": flip,
  "index.Tensor": index,
  "index_select.default": (x, d, i) =>
    index(x, [...new Array(axis(d, x.shape.length)).fill(null), i]),
  "gather.default": gather,
  "split_with_sizes.default": split,
  "constant_pad_nd.default": pad,
  "tril.default": (x, shift = 0) => triangle(x, true, shift),
  "triu.default": (x, shift = 0) => triangle(x, false, shift),
  "sum.dim_IntList": total,
  "sum.default": (x) => total(x),
  "amax.default": greatest,
  "amin.default": smallest,
  "linalg_vector_norm.default": norm,
  "cumsum.default": cumsum,
  "bmm.default": bmm,
  "mm.default": mm,
  "addmm.default": (bias, a, b) => plus(bias, mm(a, b), undefined, 1),
  "linalg_matrix_exp.default": exponential,
  "_linalg_solve_ex.default": (a, b) => [solve(a, b)],
  "linalg_solve_triangular.default": solveTriangular,
};

// ---- graphs

/** @param {Numbers} written @returns {Tensor} what graphs.py wrote as numbers or as bytes */
export function read(written) {
  const { shape, dtype } = written;
  if (written.values) return tensor(shape, written.values.map(Number), dtype);
  const bytes = Uint8Array.from(atob(written.float32 ?? written.float64 ?? ""), (c) => c.charCodeAt(0));
  const all = written.float32 ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
  return tensor(shape, Float64Array.from(all), dtype);
}

/** @type {WeakMap<Graph, Object<string, Tensor>>} */
const constantsOf = new WeakMap();

/** @param {Graph} graph @returns {Object<string, Tensor>} by name, read once */
export function constants(graph) {
  let known = constantsOf.get(graph);
  if (!known) {
    const each = Object.entries(graph.constants).map(([name, written]) => [name, read(written)]);
    known = /** @type {Object<string, Tensor>} */ (Object.fromEntries(each));
    constantsOf.set(graph, known);
  }
  return known;
}

/** @param {Graph} graph @returns {string} why it cannot be run, in a sentence; empty: it can */
export function problem(graph) {
  if (graph.sentence) return graph.sentence;
  const names = new Set(graph.nodes.map(([name]) => name).filter((name) => !(name in OPERATIONS)));
  if (!names.size) return "";
  const all = [...names].sort().map((name) => `\`${name}\``).join(", ");
  return `${graph.name} cannot be shown: it uses ${all}, which this page cannot run.`;
}

/** @type {Object<string, number>} what JSON has no numbers for */
const INFINITE = { inf: Infinity, "-inf": -Infinity, nan: NaN };

/** @param {(...operands: any[]) => any} operation @param {any[]} operands @returns {Tensor} float32 */
function rounded(operation, operands) {
  // numbers, and tensors of one number, take the dtype of the others
  const short = operands.map((x) => {
    if (typeof x === "number") return Math.fround(x);
    const one = x?.shape?.length === 0 && x.dtype === "float64";
    return one ? tensor([], [Math.fround(x.data[x.offset])], "float32") : x;
  });
  return single(operation(...short));
}

/**
 * The outputs that are asked for, and nothing that they do not need.
 * @param {Graph} graph
 * @param {Object<string, Tensor>} given inputs by name, and constants to be used instead
 * @param {string[]} [wanted] none: all
 * @returns {Object<string, Tensor>}
 * @throws {UnknownOperation} whose message is a sentence
 */
export function run(graph, given, wanted = Object.keys(graph.outputs ?? {})) {
  const sentence = problem(graph);
  if (sentence) throw new UnknownOperation(sentence);
  const known = constants(graph);
  const inputs = Object.keys(graph.inputs);
  const names = [...inputs, ...Object.keys(graph.constants)];
  /** @type {Value[]} */
  const found = names.map((name) => given[name] ?? known[name]);

  /** @param {any} argument @returns {any} with values in the place of references */
  function resolved(argument) {
    if (Array.isArray(argument)) return argument.map(resolved);
    if (typeof argument !== "string") return argument;
    return argument.startsWith("$") ? value(Number(argument.slice(1))) : INFINITE[argument] ?? argument;
  }

  /** @param {number} id @returns {Value} */
  function value(id) {
    if (found[id] === undefined) {
      if (id < names.length) throw new Error(`${graph.name} needs \`${names[id]}\`: pass it.`);
      const [name, args, options, dtype] = graph.nodes[id - names.length];
      const named = Object.entries(options ?? {}).map(([key, one]) => [key, resolved(one)]);
      const all = [...args.map(resolved), ...(named.length ? [Object.fromEntries(named)] : [])];
      found[id] = dtype === "float32" ? rounded(OPERATIONS[name], all) : OPERATIONS[name](...all);
      if (dtype) Object.assign(/** @type {Tensor} */ (found[id]), { dtype });
    }
    return found[id];
  }

  const each = wanted.map((name) => [name, value(Number(graph.outputs[name].slice(1)))]);
  return Object.fromEntries(each);
}
