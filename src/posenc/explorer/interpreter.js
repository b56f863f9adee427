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
  return map([x], x.shape, (one) => one).data;
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
 * Visits all places of a shape but the last axis: `row(offsets, n, steps)` of each tensor at its
 * start, for the n numbers that follow in steps. Axes that lie one in the other are one.
 * @param {Tensor[]} tensors
 * @param {readonly number[]} whole the shape that they broadcast to
 * @param {(offsets: number[], n: number, steps: number[]) => void} row
 */
function rows(tensors, whole, row) {
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
  if (!shape.length) {
    shape.push(1);
    for (const one of strides) one.push(0);
  }
  const last = shape.length - 1;
  const steps = strides.map((one) => one[last]);
  const offsets = tensors.map((x) => x.offset);
  const place = new Array(last).fill(0);
  const outer = count(shape.slice(0, last));
  for (let n = 0; n < outer; n++) {
    row(offsets, shape[last], steps);
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

/**
 * A function of numbers, element by element, of one to three tensors that broadcast.
 * @param {Tensor[]} tensors
 * @param {number[]} shape
 * @param {(a: number, b: number, c: number) => number} f
 * @returns {Tensor}
 */
function map(tensors, shape, f) {
  const out = new Float64Array(count(shape));
  const [a, b = a, c = a] = tensors;
  const [x, y, z] = [a.data, b.data, c.data];
  let at = 0;
  rows([a, b, c], shape, ([i, j, k], n, [di, dj, dk]) => {
    for (let end = at + n; at < end; at++, i += di, j += dj, k += dk) out[at] = f(x[i], y[j], z[k]);
  });
  return tensor(shape, out);
}

/**
 * a · b, or a + alpha · b: what is done most, in loops that call nothing.
 * @param {any} first
 * @param {any} second
 * @param {number | null} alpha null: a product
 * @returns {Tensor}
 */
function combined(first, second, alpha) {
  const [a, b] = [lifted(first), lifted(second)];
  const shape = broadcast([a.shape, b.shape]);
  const out = new Float64Array(count(shape));
  const [x, y] = [a.data, b.data];
  let at = 0;
  rows([a, b], shape, ([i, j], n, [di, dj]) => {
    const end = at + n;
    if (alpha === null) for (; at < end; at++, i += di, j += dj) out[at] = x[i] * y[j];
    else for (; at < end; at++, i += di, j += dj) out[at] = x[i] + alpha * y[j];
  });
  return tensor(shape, out);
}

/** @param {any} value @returns {Tensor} */
function lifted(value) {
  if (typeof value === "object") return value;
  return tensor([], [Number(value)]);
}

// ---- operations

/** @param {(a: number, b: number, c: number) => number} f of each element of what broadcasts */
const each = (f) => (/** @type {any[]} */ ...operands) => {
  const tensors = operands.map(lifted);
  return map(tensors, broadcast(tensors.map((x) => x.shape)), f);
};

/** @param {any} a @param {any} b @param {{alpha?: number} | undefined} options @param {number} sign */
function plus(a, b, options, sign) {
  return combined(a, b, sign * (options?.alpha ?? 1));
}

/** @param {number} a @param {number} b */
const modulo = (a, b) => a - b * Math.floor(a / b);

/** @param {any} a @param {any} b @param {{rounding_mode?: string}} [options] */
function divided(a, b, options) {
  const mode = options?.rounding_mode;
  if (!mode) return each((x, y) => x / y)(a, b);
  const round = mode === "floor" ? Math.floor : Math.trunc;
  return each((x, y) => round(x / y))(a, b);
}

/** @param {Tensor} x @param {string} [dtype] */
function cast(x, dtype = "") {
  if (dtype.startsWith("int")) return map([x], x.shape, Math.trunc);
  return dtype === "bool" ? map([x], x.shape, (value) => +!!value) : x;
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
 * Folds some axes into one number each.
 * @param {Tensor} x
 * @param {number[]} dims empty: all
 * @param {boolean} keep
 * @param {number} start
 * @param {(so_far: number, value: number) => number} f
 */
function fold(x, dims, keep, start, f) {
  const all = x.shape.map((_, d) => d);
  const gone = dims?.length ? dims.map((d) => axis(d, x.shape.length)) : all;
  const left = all.filter((d) => !gone.includes(d));
  const [outer, inner] = [permuteSome(x, left), permuteSome(x, all.filter((d) => gone.includes(d)))];
  const out = new Float64Array(count(outer.shape)).fill(start);
  const places = offsets(inner);
  offsets(outer).forEach((at, i) => {
    for (const further of places) out[i] = f(out[i], x.data[at + further - x.offset]);
  });
  const shape = keep ? x.shape.map((size, d) => (gone.includes(d) ? 1 : size)) : outer.shape;
  return tensor(shape, out);
}

/** @param {Tensor} x @param {any} order @param {number[] | null} dims @param {boolean} keep */
function norm(x, order = 2, dims = null, keep = false) {
  if (order !== 2) throw new UnknownOperation(`the norm of order ${order} cannot be computed here.`);
  return each(Math.sqrt)(fold(x, dims ?? [], keep, 0, (sum, value) => sum + value * value));
}

/** @param {Tensor} x @returns {Int32Array} where each of its elements lies, row by row */
function offsets(x) {
  const out = new Int32Array(count(x.shape));
  let at = 0;
  rows([x], x.shape, ([i], n, [step]) => {
    for (let end = at + n; at < end; at++, i += step) out[at] = i;
  });
  return out;
}

/** @param {Tensor} x @param {number} d */
function cumsum(x, d) {
  const at = axis(d, x.shape.length);
  const out = Float64Array.from(values(x));
  const [n, inner] = [x.shape[at] ?? 1, count(x.shape.slice(at + 1))];
  for (let i = 0; i < out.length; i++) {
    if (Math.floor(i / inner) % n) out[i] += out[i - inner];
  }
  return tensor(x.shape, out);
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
    values(expand(one, shape)).forEach((value, i) => {
      const place = value < 0 ? value + x.shape[d] : value;
      if (!(place >= 0 && place < x.shape[d])) {
        throw new RangeError(`there is no row ${value} among ${x.shape[d]}.`);
      }
      jumps[i] += place * x.strides[d];
    });
  });
  const [outerAt, restAt] = [offsets(outer), offsets(rest)];
  const out = new Float64Array(outerAt.length * jumps.length * restAt.length);
  let at = 0;
  for (const a of outerAt) {
    for (const b of jumps) for (const c of restAt) out[at++] = x.data[a + b + c - x.offset];
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

/** @param {Tensor} a (batch, n, k) @param {Tensor} b (batch, k, m) */
function bmm(a, b) {
  const [batch, n, k] = a.shape;
  const m = b.shape[2];
  const out = new Float64Array(batch * n * m);
  const x = a.data;
  const rowsOfB = values(permute(b, [0, 2, 1]).strides[2] === 1 ? permute(b, [0, 2, 1]) : b);
  const across = permute(b, [0, 2, 1]).strides[2] === 1; // columns of b lie one by one
  const [ja, ka] = [a.strides[1], a.strides[2]];
  for (let g = 0; g < batch; g++) {
    for (let i = 0; i < n; i++) {
      const start = a.offset + g * a.strides[0] + i * ja;
      const row = (g * n + i) * m;
      if (across) {
        for (let j = 0; j < m; j++) {
          const column = (g * m + j) * k;
          let [sum, l] = [0, 0];
          for (let at = start; l + 3 < k; l += 4, at += 4 * ka) { // four at once: half the time
            sum += x[at] * rowsOfB[column + l] + x[at + ka] * rowsOfB[column + l + 1]
              + x[at + 2 * ka] * rowsOfB[column + l + 2] + x[at + 3 * ka] * rowsOfB[column + l + 3];
          }
          for (; l < k; l++) sum += x[start + l * ka] * rowsOfB[column + l];
          out[row + j] = sum;
        }
      } else {
        for (let l = 0; l < k; l++) {
          const factor = x[start + l * ka];
          const from = (g * k + l) * m;
          for (let j = 0; j < m; j++) out[row + j] += factor * rowsOfB[from + j];
        }
      }
    }
  }
  return tensor([batch, n, m], out);
}

/** @param {Tensor} a @param {Tensor} b */
const mm = (a, b) => squeeze(bmm(unsqueeze(a, 0), unsqueeze(b, 0)), [0]);

/** @param {Tensor} x @param {(square: Float64Array, n: number) => Float64Array} f of each matrix */
function eachMatrix(x, f) {
  const [all, n] = [values(x), x.shape[x.shape.length - 1]];
  const out = new Float64Array(all.length);
  for (let at = 0; at < all.length; at += n * n) out.set(f(all.slice(at, at + n * n), n), at);
  return tensor(x.shape, out);
}

/** @param {Float64Array} a @param {Float64Array} b @param {number} n */
function product(a, b, n) {
  return bmm(tensor([1, n, n], a), tensor([1, n, n], b)).data;
}

/**
 * exp of a square matrix: Taylor's series of A / 2ˢ, whose sum of rows is below 1/2, squared s
 * times.
 * @param {Float64Array} a
 * @param {number} n
 */
function exponential(a, n) {
  let largest = 0;
  for (let i = 0; i < n; i++) {
    let sum = 0;
    for (let j = 0; j < n; j++) sum += Math.abs(a[i * n + j]);
    largest = Math.max(largest, sum);
  }
  const halvings = Math.max(0, Math.ceil(Math.log2(largest || 1)) + 1);
  const small = a.map((value) => value / 2 ** halvings);
  let power = eye(n, n).data;
  for (let term = 18; term > 0; term--) {
    // 1 + A/1 (1 + A/2 (1 + A/3 (…)))
    power = product(small, power, n).map((value) => value / term);
    for (let i = 0; i < n; i++) power[i * n + i] += 1;
  }
  for (let s = 0; s < halvings; s++) power = product(power, power, n);
  return power;
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
  const [n, m] = x.shape.slice(-2);
  const out = Float64Array.from(values(x));
  for (let i = 0; i < out.length; i++) {
    const below = (Math.floor(i / m) % n) - (i % m) + shift;
    if (lower ? below < 0 : below > 0) out[i] = 0;
  }
  return tensor(x.shape, out);
}

/**
 * X of A X = B, or of X A = B where not `left`, for one triangle of A.
 * @param {Tensor} a
 * @param {Tensor} b
 * @param {{upper?: boolean, left?: boolean, unitriangular?: boolean}} options
 */
function solveTriangular(a, b, { upper = false, left = true, unitriangular = false }) {
  const half = triangle(a, !upper, 0);
  const n = a.shape[a.shape.length - 1];
  if (unitriangular) {
    for (let i = 0; i < half.data.length; i += n * n) {
      for (let d = 0; d < n; d++) half.data[i + d * n + d] = 1;
    }
  }
  return left ? solve(half, b) : transposed(solve(transposed(half), transposed(b)));
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
  "mul.Tensor": (a, b) => combined(a, b, null),
  "mul.Scalar": (a, b) => combined(a, b, null),
  "div.Tensor": (a, b) => divided(a, b),
  "div.Scalar": (a, b) => divided(a, b),
  "div.Tensor_mode": divided,
  "div.Scalar_mode": divided,
  "floor_divide.default": (a, b) => divided(a, b, { rounding_mode: "floor" }),
  "remainder.Tensor": each(modulo),
  "remainder.Scalar": each(modulo),
  "addcmul.default": (x, a, b, options) =>
    plus(x, each((y, z) => y * z)(a, b), { alpha: options?.value ?? 1 }, 1),
  "maximum.default": each(Math.max),
  "minimum.default": each(Math.min),
  "clamp.default": (x, low = null, high = null) =>
    each((v) => Math.min(Math.max(v, low ?? -Infinity), high ?? Infinity))(x),
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
  "sqrt.default": each(Math.sqrt),
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
  "logical_not.default": each((a) => +!a),
  "bitwise_not.default": (x) => each(x.dtype === "bool" ? (a) => +!a : (a) => ~a)(x),
  "logical_and.default": each((a, b) => +!!(a && b)),
  "bitwise_and.Tensor": each((a, b) => a & b),
  "logical_or.default": each((a, b) => +!!(a || b)),
  "bitwise_or.Tensor": each((a, b) => a | b),
  "where.self": each((condition, a, b) => (condition ? a : b)),
  "bucketize.Tensor": (x, bounds, options) => {
    const edges = values(bounds);
    const passed = options?.right
      ? (/** @type {number} */ v) => edges.filter((edge) => edge <= v).length
      : (/** @type {number} */ v) => edges.filter((edge) => edge < v).length;
    return each(passed)(x);
  },
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
  "sum.dim_IntList": (x, dims, keep = false) => fold(x, dims, keep, 0, (a, b) => a + b),
  "sum.default": (x) => fold(x, [], false, 0, (a, b) => a + b),
  "amax.default": (x, dims = [], keep = false) => fold(x, dims, keep, -Infinity, Math.max),
  "amin.default": (x, dims = [], keep = false) => fold(x, dims, keep, Infinity, Math.min),
  "linalg_vector_norm.default": norm,
  "cumsum.default": cumsum,
  "bmm.default": bmm,
  "mm.default": mm,
  "addmm.default": (bias, a, b) => plus(bias, mm(a, b), undefined, 1),
  "linalg_matrix_exp.default": (x) => eachMatrix(x, exponential),
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
  const made = operation(...short);
  const out = values(made).slice();
  for (let i = 0; i < out.length; i++) out[i] = Math.fround(out[i]);
  return tensor(made.shape, out);
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
