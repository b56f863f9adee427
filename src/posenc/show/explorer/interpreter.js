// Runs the graphs that graphs.py exports, on tensors of float64. Encodings are defined only in Python.

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
 *   dtype of the result, if it is not float64 */
/** @typedef {{name: string, sentence?: string, inputs: Object<string, (number | string)[]>,
 *   constants: Object<string, Numbers>, nodes: Node[], outputs: Object<string, string>}} Graph */

/** Error thrown for an operation that is not in the table below; its message is a sentence. */
export class UnknownOperation extends Error {}

// ---- tensors

/** @param {readonly number[]} shape @returns {number} */
const count = (shape) => shape.reduce((all, size) => all * size, 1);

/** @param {readonly number[]} shape @returns {number[]} strides of a row-major tensor */
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

/** @param {Tensor} x @param {number[]} shape @param {number[]} strides @param {number} [offset]
 *  @returns {Tensor} a view of the same numbers */
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

/** @param {Tensor} x @returns {Float64Array} its numbers row by row; callers must not write to them */
export function values(x) {
  const size = count(x.shape);
  if (isRowMajor(x)) {
    const all = x.offset === 0 && x.data.length === size;
    return all ? x.data : x.data.subarray(x.offset, x.offset + size);
  }
  return copied([x], x.shape).data;
}

/** @param {Tensor} x @returns {Tensor} the same tensor in row-major order */
const compact = (x) => (isRowMajor(x) ? x : copied([x], x.shape));

/** @param {number} d @param {number} axes @returns {number} an axis, counted from the first */
const axis = (d, axes) => (d < 0 ? d + Math.max(axes, 1) : d);

/**
 * Returns the shape to which several tensors broadcast.
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
        const both = shapes.map((shape) => `(${shape.join(", ")})`).join(" and ");
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
 * at its start, for m rows of n numbers with constant strides. Contiguous axes are merged to one.
 * @param {Tensor[]} tensors
 * @param {readonly number[]} sizes the shape that they broadcast to
 * @param {(offsets: number[], m: number, n: number, down: number[], across: number[]) => void} sheet
 */
function sheets(tensors, sizes, sheet) {
  if (!count(sizes)) return;
  const each = tensors.map((x) => stridesFor(x, sizes));
  /** @type {number[]} */
  const shape = [];
  const strides = tensors.map(() => /** @type {number[]} */ ([]));
  sizes.forEach((size, d) => {
    if (size === 1) return;
    const outer = shape.length - 1;
    const joins = outer >= 0 && strides.every((steps, t) => steps[outer] === each[t][d] * size);
    if (joins) shape[outer] *= size;
    else shape.push(size);
    strides.forEach((steps, t) => (steps[shape.length - 1] = each[t][d]));
  });
  while (shape.length < 2) {
    shape.unshift(1);
    for (const steps of strides) steps.unshift(0);
  }
  const last = shape.length - 2;
  const [down, across] = [strides.map((steps) => steps[last]), strides.map((steps) => steps[last + 1])];
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

// ---- steps between numbers, many in one loop

/** @type {((...numbers: number[]) => number)[]} each is known by its place here */
const FUNCTIONS = [];

/**
 * A function, by its number, of the results of other steps or of tensors of one shape.
 * @typedef {{f: number, of: (Step | Tensor)[]}} Step
 */

/** @param {readonly number[]} shape @returns {number[]} without axes of size 1, which need no loop */
const core = (shape) => shape.filter((size) => size !== 1);

/** @param {readonly number[]} a @param {readonly number[]} b */
const same = (a, b) => a.length === b.length && a.every((size, d) => size === b[d]);

/**
 * A row-major tensor whose numbers are computed when they are first read. If its only reader is a step
 * of the same shape, the two steps are fused: one loop computes both, and the numbers between are never
 * written to memory, which would take longer than computing them.
 */
class Later {
  /** @param {number[]} shape @param {number[]} stepShape the shape of the tensors in the step @param {Step} step */
  constructor(shape, stepShape, step) {
    this.shape = shape;
    this.strides = rowMajor(shape);
    this.offset = 0;
    this.dtype = "float64";
    this.stepShape = stepShape;
    this.step = step;
    /** @type {Float64Array | null} */
    this.known = null;
  }

  get data() {
    if (!this.known) {
      this.known = new Float64Array(count(this.stepShape));
      filler(this)(this.known);
      this.step = { f: 0, of: [] }; // releases the operands
    }
    return this.known;
  }
}

/** @param {any} x @returns {x is Later} true if its numbers are not computed yet */
const pending = (x) => x instanceof Later && !x.known;

/**
 * A function of numbers, element by element, of one to three tensors that broadcast.
 * @param {(...numbers: number[]) => number} f
 * @returns {(tensors: Tensor[], shape: number[]) => Tensor}
 */
function elementwise(f) {
  const n = FUNCTIONS.push(f) - 1;
  return (tensors, shape) => {
    const stepShape = core(shape);
    const of = tensors.map((x) => {
      if (pending(x) && same(x.stepShape, stepShape)) return x.step;
      return seen(x, stepShape, stridesFor(x, shape).filter((_, d) => shape[d] !== 1));
    });
    return new Later(shape, stepShape, { f: n, of });
  };
}

const copied = elementwise((x) => x);

/** @param {Step} step @param {Tensor[]} leaves to which its tensors are added @returns {string} as JavaScript */
function written(step, leaves) {
  const of = step.of.map((input) => ("f" in input ? written(input, leaves) : `x${leaves.push(input) - 1}`));
  return `f${step.f}(${of.join(", ")})`;
}

/** @typedef {(out: Float64Array, at: number, data: Float64Array[], offsets: number[], m: number,
 *   n: number, down: number[], across: number[]) => void} Sweep of a sheet of m rows and n columns */

/** @type {Map<string, Sweep>} by the source text of the computation */
const sweeps = new Map();
const FEW_NUMBERS = 256; // below this number no special loop is compiled

/**
 * Compiles a loop for one chain of steps. JavaScript engines inline the functions of a loop that has
 * called only these functions, which makes it several times faster.
 * @param {string} text the text that `written` returns
 * @param {number[]} across steps from column to column: a number that stays is read once a row
 * @returns {Sweep | undefined} where a page may make functions of text
 */
function swept(text, across) {
  const kinds = across.map((step) => Math.min(Math.max(step, -1), 2)), name = `${text} ${kinds}`;
  const known = sweeps.get(name);
  if (known) return known;
  /** @param {(n: number) => string} write */
  const each = (write) => kinds.map((_, n) => write(n));
  const place = each((n) => `p${n} + ${kinds[n] === 1 ? "c" : `c * across${n}`}`);
  const columns = text.replace(/x(\d+)/g, (x, n) => (kinds[n] ? `${x}[${place[n]}]` : `v${n}`));
  const functions = [...new Set(text.match(/f\d+/g))].map((f) => `${f} = f[${f.slice(1)}]`);
  const body = `"use strict"; const ${functions};
    return (out, at, [${each((n) => `x${n}`)}], [${each((n) => `p${n}`)}], m, n, [${each((n) => `down${n}`)}], [${each((n) => `across${n}`)}]) => {
      for (let r = 0; r < m; r++, at += n, ${each((n) => `p${n} += down${n}`)}) {
        const ${each((n) => (kinds[n] ? "" : `v${n} = x${n}[p${n}]`)).filter(Boolean).concat("end = n")};
        for (let c = 0; c < end; c++) out[at + c] = ${columns};
      }
    };`;
  try {
    const loop = new Function("f", body)(FUNCTIONS);
    sweeps.set(name, loop);
    return loop;
  } catch {
    return undefined;
  }
}

/**
 * The same loop for any steps, called one by one.
 * @param {Step} step @returns {Sweep}
 */
function stepwise(step) {
  let leaves = 0;
  /** @param {Step | Tensor} node @returns {(data: Float64Array[], at: number[]) => number} */
  const called = (node) => {
    if (!("f" in node)) {
      const n = leaves++;
      return (data, at) => data[n][at[n]];
    }
    const f = FUNCTIONS[node.f], [a, b, c] = node.of.map(called);
    if (!b) return (data, at) => f(a(data, at));
    if (!c) return (data, at) => f(a(data, at), b(data, at));
    return (data, at) => f(a(data, at), b(data, at), c(data, at));
  };
  const value = called(step);
  return (out, at, data, offsets, m, n, down, across) => {
    for (let r = 0; r < m; r++) {
      const place = offsets.map((start, t) => start + r * down[t]);
      for (let c = 0; c < n; c++) {
        out[at++] = value(data, place);
        for (let t = 0; t < place.length; t++) place[t] += across[t];
      }
    }
  };
}

/**
 * @param {Later} x
 * @returns {(out: Float64Array, start?: number, end?: number) => void} writes its numbers, all or those
 *   of some places on the first axis
 */
function filler({ step, stepShape }) {
  /** @type {Tensor[]} */
  const leaves = [];
  const text = written(step, leaves);
  const many = count(stepShape) > FEW_NUMBERS;
  const data = leaves.map((x) => x.data);
  return (out, start = 0, end = stepShape[0]) => {
    const part = stepShape.length ? leaves.map((x) => slice(x, 0, start, end)) : leaves;
    /** @type {Sweep | undefined} */
    let loop;
    let at = 0;
    sheets(part, stepShape.length ? [end - start, ...stepShape.slice(1)] : stepShape, (offsets, m, n, down, across) => {
      loop ??= (many && swept(text, across)) || stepwise(step);
      loop(out, at, data, offsets, m, n, down, across);
      at += m * n;
    });
  };
}

const STRIP = 4096; // numbers, which stay in the fastest memory

/**
 * Passes the numbers of x to `use`, row by row. The numbers of a tensor that is not computed yet are
 * passed in strips, so that they are never all in memory.
 * @param {Tensor} x
 * @param {number} unit of which each strip has a whole number
 * @param {(numbers: Float64Array, start: number) => void} use they are overwritten afterwards
 */
function strips(x, unit, use) {
  const inner = pending(x) ? count(x.stepShape.slice(1)) : 0;
  if (!pending(x) || count(x.stepShape) <= STRIP || inner % unit) {
    use(values(x), 0);
    return;
  }
  const all = x.stepShape[0], rows = Math.ceil(STRIP / inner), fill = filler(x);
  const strip = new Float64Array(rows * inner);
  for (let row = 0; row < all; row += rows) {
    const end = Math.min(all, row + rows);
    fill(strip, row, end);
    use(strip.subarray(0, (end - row) * inner), row * inner);
  }
}

// ---- folds

/**
 * Folds the numbers of x that lie `steps` away from each start into one number a start.
 * @param {(so_far: number, value: number) => number} f
 * @param {Float64Array} out of the first value of each
 * @param {Float64Array} x @param {Int32Array} starts @param {Int32Array} steps
 */
function gathered(f, out, x, starts, steps) {
  for (let i = 0; i < out.length; i++) {
    let sum = out[i];
    for (let n = 0, at = starts[i]; n < steps.length; n++) sum = f(sum, x[at + steps[n]]);
    out[i] = sum;
  }
}

/**
 * Folds numbers that lie one after another, `size` of them into each place from `at` on.
 * @param {(so_far: number, value: number) => number} f
 * @param {Float64Array} out @param {number} at @param {Float64Array} x @param {number} size
 */
function inTurn(f, out, at, x, size) {
  for (let i = 0; i < x.length; at++) {
    let sum = out[at];
    for (const end = i + size; i < end; i++) sum = f(sum, x[i]);
    out[at] = sum;
  }
}

let loops = 0;

/**
 * Copies a loop for one function, if the page may compile text; otherwise returns the loop itself.
 * The number makes each text unique, because engines share compiled code of equal texts.
 * @template {Function} F
 * @param {F} loop that reads only its arguments @returns {() => F} compiled on first use
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

/** @param {any} value @returns {Tensor} */
function lifted(value) {
  if (typeof value === "object") return value;
  return tensor([], [Number(value)]);
}

// ---- operations

/** @param {(...numbers: number[]) => number} f of each element of what broadcasts */
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
const reducedFrom = each((a, b) => b - a);

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
  const sizes = shape.map((size) => (size < 0 ? count(x.shape) / rest : size));
  const flat = compact(x);
  return pending(flat) ? new Later(sizes, flat.stepShape, flat.step) : seen(flat, sizes, rowMajor(sizes));
}

/** @param {Tensor} x @param {number[]} shape */
function expand(x, shape) {
  const more = shape.length - x.shape.length;
  const sizes = shape.map((size, d) => (size < 0 ? x.shape[d - more] : size));
  return seen(x, sizes, stridesFor(x, sizes));
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
  if (pending(x)) return view(x, shape);
  strides.splice(at, 0, 0);
  return seen(x, shape, strides);
}

/** @param {Tensor} x @param {number[]} dims */
function squeeze(x, dims) {
  const gone = dims.map((d) => axis(d, x.shape.length));
  const left = x.shape.map((_, d) => d).filter((d) => !(gone.includes(d) && x.shape[d] === 1));
  return pending(x) ? view(x, left.map((d) => x.shape[d])) : permuteSome(x, left);
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
  const left = x.shape.map((_, d2) => d2).filter((d2) => d2 !== at);
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
  for (const d of dims.map((dim) => axis(dim, x.shape.length))) {
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
  const [apart, together] = [own(gathered), own(inTurn)];
  return (x, dims = null, keep = false) => {
    const all = x.shape.map((_, d) => d);
    const gone = dims?.length ? dims.map((d) => axis(d, x.shape.length)) : all;
    const kept = all.filter((d) => !gone.includes(d));
    const left = kept.map((d) => x.shape[d]);
    const out = new Float64Array(count(left)).fill(start);
    const size = count(x.shape) / out.length;
    if (isRowMajor(x) && kept.every((d, n) => d === n)) { // the last axes go
      strips(x, size, (numbers, from) => together()(f, out, from / size, numbers, size));
    } else {
      const inner = permuteSome(x, all.filter((d) => gone.includes(d)));
      apart()(f, out, x.data, offsets(permuteSome(x, kept)), offsets({ ...inner, offset: 0 }));
    }
    return tensor(keep ? x.shape.map((n, d) => (gone.includes(d) ? 1 : n)) : left, out);
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
  const first = indices.findIndex((index) => index !== null);
  const chosen = /** @type {Tensor[]} */ (indices.filter((index) => index !== null));
  const after = first + chosen.length;
  const apart = indices.slice(first, after).some((index) => index === null);
  const shape = broadcast(chosen.map((index) => index.shape));
  const before = apart ? [] : x.shape.slice(0, first);
  const others = x.shape.map((_, d) => d).filter((d) => !indices[d]);
  // If an axis is between two indexed ones, torch puts the indexed axes first.
  const [outer, rest] = apart
    ? [permuteSome(x, []), permuteSome(x, others)]
    : [permuteSome(x, others.filter((d) => d < first)), permuteSome(x, others.filter((d) => d > first))];
  const jumps = new Int32Array(count(shape));
  indices.forEach((index, d) => {
    if (!index) return;
    let at = 0;
    sheets([index], shape, ([start], m, n, [down], [across]) => {
      jump(jumps, at, index.data, start, m, n, down, across, x.shape[d], x.strides[d]);
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
  const strides = x.strides.map((step, d2) => (d2 === at ? 0 : step));
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

/** @typedef {{data: Float64Array, at: number, down: number, across: number}} Block of a matrix: where it
 *  begins, and how far its rows and its columns lie apart */

/** @param {Float64Array} data @param {number} at @param {number} down @param {number} [across] @returns {Block} */
const block = (data, at, down, across = 1) => ({ data, at, down, across });

/** @param {Block} x @returns {Block} */
const turned = ({ data, at, down, across }) => block(data, at, across, down);

/** @param {Float64Array} data @param {number} at @param {number} step @param {number} many
 *  @returns {boolean} true if all of these numbers are 0 */
function empty(data, at, step, many) {
  for (let i = 0; i < many; i++, at += step) if (data[at] !== 0) return false;
  return true;
}

/**
 * Finds, for `together` rows at a time, the first column that is not 0 and the one after the last.
 * @param {Block} x @param {number} n @param {number} k @param {number} together
 */
function spans({ data, at, down, across }, n, k, together) {
  const out = new Int32Array(2 * Math.ceil(n / together));
  for (let i = 0, place = 0; i < n; i += together, place += 2) {
    const start = at + i * down, many = Math.min(together, n - i);
    let first = 0, last = k;
    while (first < last && empty(data, start + first * across, down, many)) first++;
    while (first < last && empty(data, start + (last - 1) * across, down, many)) last--;
    out[place] = first;
    out[place + 1] = last;
  }
  return out;
}

/** @param {Block} x @param {number} n @param {number} k */
function finite({ data, at, down, across }, n, k) {
  for (let i = 0; i < n; i++) {
    for (let l = 0, r = at + i * down; l < k; l++, r += across) if (!Number.isFinite(data[r])) return false;
  }
  return true;
}

const LARGE = 2 ** 15; // number of products from which skipping zeros is faster

/**
 * Writes a · b, two rows and four columns at once: each number is read for several products. Where rows
 * of a, or columns of b, begin or end with zeros, as in triangles, these are left out of the sums.
 * @param {Block} out (n, m) @param {Block} a (n, k) @param {Block} b (k, m)
 * @param {number} n @param {number} k @param {number} m
 */
function multiply(out, a, b, n, k, m) {
  if (m === 1 && n > 1) { // a single column is a row, of which four numbers are computed at once
    multiply(turned(out), turned(b), turned(a), 1, k, n);
    return;
  }
  const { data: to, down: low, across: right } = out, { data: x, down: second, across: along } = a;
  const { data: y, down, across } = b;
  /** @type {Int32Array | undefined} */
  let rows;
  /** @type {Int32Array | undefined} */
  let columns;
  if (n > 1 && n * k * m >= LARGE) {
    [rows, columns] = [spans(a, n, k, 2), spans(turned(b), m, k, 4)];
    const sparse = [rows, columns].some((all) => all.some((l, i) => l !== (i % 2 ? k : 0)));
    if (!sparse || !finite(a, n, k) || !finite(b, k, m)) rows = columns = undefined;
  }
  for (let i = 0; i < n; i += 2) {
    const both = i + 1 < n ? second : 0; // the last of an odd number is its own neighbour
    for (let j = 0; j < m; j += 4) {
      const c1 = j + 1 < m ? across : 0, c2 = j + 2 < m ? 2 * across : 0, c3 = j + 3 < m ? 3 * across : 0;
      let first = 0, last = k;
      if (rows && columns) {
        first = Math.max(rows[i], columns[j / 2]);
        last = Math.min(rows[i + 1], columns[j / 2 + 1]);
      }
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0;
      let p = a.at + i * second + first * along, q = b.at + j * across + first * down;
      for (let l = first; l < last; l++, p += along, q += down) {
        const u = x[p], v = x[p + both], y0 = y[q], y1 = y[q + c1], y2 = y[q + c2], y3 = y[q + c3];
        s0 += u * y0; s1 += u * y1; s2 += u * y2; s3 += u * y3;
        t0 += v * y0; t1 += v * y1; t2 += v * y2; t3 += v * y3;
      }
      const at = out.at + i * low + j * right;
      // from the last: what has no place of its own is written over by its neighbour
      const d1 = j + 1 < m ? right : 0, d2 = j + 2 < m ? 2 * right : 0, d3 = j + 3 < m ? 3 * right : 0;
      const d = i + 1 < n ? low : 0;
      to[at + d + d3] = t3; to[at + d + d2] = t2; to[at + d + d1] = t1; to[at + d] = t0;
      to[at + d3] = s3; to[at + d2] = s2; to[at + d1] = s1; to[at] = s0;
    }
  }
}

/** @param {Tensor} a (batch, n, k) @param {Tensor} b (batch, k, m) */
function bmm(a, b) {
  const [batch, n, k] = a.shape, m = b.shape[2];
  const out = new Float64Array(batch * n * m);
  const [next, down, across] = b.strides;
  if (k) strips(a, k, (numbers, start) => {
    const first = start / k; // of the rows of all matrices
    for (let row = first, end; row < first + numbers.length / k; row = end) {
      const g = Math.floor(row / n);
      end = Math.min(first + numbers.length / k, (g + 1) * n); // of this matrix, or of the strip
      const [left, right] = [block(numbers, (row - first) * k, k), block(b.data, b.offset + g * next, down, across)];
      multiply(block(out, row * m, m), left, right, end - row, k, m);
    }
  });
  return tensor([batch, n, m], out);
}

/** @param {Tensor} a @param {Tensor} b */
const mm = (a, b) => squeeze(bmm(unsqueeze(a, 0), unsqueeze(b, 0)), [0]);

const TERMS = 20; // of Taylor's series: of norm 1, the first that is left out is 4 · 10⁻¹⁹
const INVERSE = [1]; // 1/n!
for (let n = 1; n < TERMS; n++) INVERSE.push(INVERSE[n - 1] / n);

/** @param {Float64Array} a (n, n) @param {number} n @returns {number} the largest sum of a row */
function largestRow(a, n) {
  let largest = 0;
  for (let i = 0; i < n; i++) {
    let sum = 0;
    for (let j = 0; j < n; j++) sum += Math.abs(a[i * n + j]);
    largest = Math.max(largest, sum);
  }
  return largest;
}

const MOST_PRODUCTS = 16; // with which a series ends sooner

/**
 * @param {Float64Array} all matrices @param {number} start of one @param {number} unit start of another
 * @param {number} size @returns {number} the exact whole multiple of the other, or 0
 */
function multiple(all, start, unit, size) {
  let i = 0;
  while (i < size - 1 && !all[unit + i]) i++;
  const times = all[start + i] / all[unit + i];
  if (!Number.isInteger(times) || times < 1) return 0;
  for (i = 0; i < size; i++) if (all[start + i] !== times * all[unit + i]) return 0;
  return times;
}

/**
 * exp of square matrices: Taylor's series of A / 2ˢ, squared s times. The powers of A grow as those of
 * a matrix of norm max(|A³|^⅓, |A⁴|^¼) at most (Al-Mohy and Higham, 2009), and of A / 2ˢ it is below 1.
 * Four terms are taken at once: (A⁰/0! + … + A³/3!) + A⁴ ((A⁰/4! + … + A³/7!) + A⁴ (…)).
 * Matrices that are once, twice, … another, as positions often make them, have the powers of its exp.
 * @param {Tensor} x (…, n, n)
 */
function exponential(x) {
  const all = values(x), n = x.shape[x.shape.length - 1], size = n * n;
  const out = new Float64Array(all.length);
  let [power, next] = [new Float64Array(size), new Float64Array(size)];
  const powers = [0, 1, 2, 3, 4].map(() => new Float64Array(size));
  for (let d = 0; d < n; d++) powers[0][d * n + d] = 1;

  /** @param {Float64Array} a @param {Float64Array} b @param {Float64Array} to a · b */
  const by = (a, b, to) => multiply(block(to, 0, n), block(a, 0, n), block(b, 0, n), n, n, n);
  /** @param {number} first adds four terms of the series */
  const terms = (first) => {
    for (let e = 0; e < 4; e++) for (let i = 0; i < size; i++) power[i] += powers[e][i] * INVERSE[first + e];
  };

  /** @param {Float64Array} a leaves its exp in `power` */
  function series(a) {
    powers[1].set(a);
    for (let e = 2; e <= 4; e++) by(powers[e - 1], powers[1], powers[e]);
    const grows = Math.max(largestRow(powers[3], n) ** (1 / 3), largestRow(powers[4], n) ** (1 / 4));
    const halvings = Math.max(0, Math.ceil(Math.log2(grows || 1)));
    for (let e = 1; e <= 4; e++) for (let i = 0; i < size; i++) powers[e][i] *= 2 ** (-e * halvings);
    power.fill(0);
    terms(TERMS - 4);
    for (let first = TERMS - 8; first >= 0; first -= 4) {
      by(power, powers[4], next);
      [power, next] = [next, power];
      terms(first);
    }
    for (let s = 0; s < halvings; s++) {
      by(power, power, next);
      [power, next] = [next, power];
    }
  }

  let unit = 0, times = Infinity; // where the latest series began, and how often it `power` is the exp of
  for (let start = 0; start < all.length; start += size) {
    const c = multiple(all, start, unit, size);
    if (c < times || c > times + MOST_PRODUCTS) {
      series(all.subarray(start, start + size));
      [unit, times] = [start, 1];
    } else {
      for (; times < c; times++) {
        by(power, out.subarray(unit, unit + size), next);
        [power, next] = [next, power];
      }
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
    const [matrix, columns] = [left.slice(g * n * n, (g + 1) * n * n), right.slice(g * n * m, (g + 1) * n * m)];
    out.set(solved(matrix, columns, n), g * n * m);
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

const SIDE = 4; // rows that are solved one by one

/**
 * X of A X = B, or of X A = B where not `left`, for one triangle of A: half of the rows of X, then the
 * others, from which the product of A with the first half is taken; each half likewise.
 * @param {Tensor} a (…, n, n)
 * @param {Tensor} b
 * @param {{upper?: boolean, left?: boolean, unitriangular?: boolean}} options
 * @returns {Tensor}
 */
function solveTriangular(a, b, { upper = false, left = true, unitriangular = false }) {
  if (!left) return transposed(solveTriangular(transposed(a), transposed(b), { upper: !upper, unitriangular }));
  const [n, m] = b.shape.slice(-2);
  const batch = broadcast([a.shape.slice(0, -2), b.shape.slice(0, -2)]);
  const all = values(expand(a, [...batch, n, n]));
  const out = values(expand(b, [...batch, n, m])).slice(); // becomes X
  const product = new Float64Array(n * m);

  /** @param {number} square where A begins @param {number} start where X begins @param {number} low @param {number} high */
  function rows(square, start, low, high) {
    if (high - low > SIDE) {
      const middle = (low + high) >> 1;
      const [known, from, to] = upper ? [middle, low, middle] : [low, middle, high];
      const many = high - low - (to - from);
      rows(square, start, known, known + many);
      const [factors, solution] = [block(all, square + from * n + known, n), block(out, start + known * m, m)];
      multiply(block(product, 0, m), factors, solution, to - from, many, m);
      for (let i = 0, at = start + from * m; i < (to - from) * m; i++) out[at++] -= product[i];
      rows(square, start, from, to);
      return;
    }
    for (let step = low; step < high; step++) {
      const i = upper ? low + high - 1 - step : step, row = start + i * m;
      const [first, last] = upper ? [i + 1, high] : [low, i];
      for (let j = first; j < last; j++) {
        const factor = all[square + i * n + j];
        for (let c = row, d = start + j * m; c < row + m; c++, d++) out[c] -= factor * out[d];
      }
      const pivot = all[square + i * n + i];
      if (!unitriangular) for (let c = row; c < row + m; c++) out[c] /= pivot;
    }
  }

  for (let g = 0; g < count(batch); g++) rows(g * n * n, g * n * m, 0, n);
  return tensor([...batch, n, m], out);
}

/** @type {Object<string, (...operands: any[]) => Value>} named as in torch, without "aten." */
const OPERATIONS = {
  "py.getitem": (list, i) => list[i],
  "py.add": (a, b) => a + b,
  "py.mul": (a, b) => a * b,
  "sym_size.int": (x, d) => x.shape[axis(d, x.shape.length)],
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
  "rsub.Scalar": reducedFrom,
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
    const scalar = x?.shape?.length === 0 && x.dtype === "float64";
    return scalar ? tensor([], [Math.fround(x.data[x.offset])], "float32") : x;
  });
  return single(operation(...short));
}

/** @param {Graph} graph @param {string[]} wanted @param {number} first number of the nodes
 *  @returns {Int32Array} how many outputs, and nodes that are needed for them, read each value */
function readers(graph, wanted, first) {
  const counts = new Int32Array(first + graph.nodes.length);
  /** @param {any} argument */
  const read = (argument) => {
    if (Array.isArray(argument)) argument.forEach(read);
    else if (typeof argument === "string" && argument.startsWith("$")) counts[Number(argument.slice(1))]++;
  };
  wanted.forEach((name) => read(graph.outputs[name]));
  for (let id = counts.length - 1; id >= first; id--) {
    const [, args, options] = graph.nodes[id - first];
    if (counts[id]) read([args, Object.values(options ?? {})]);
  }
  return counts;
}

/**
 * Computes the requested outputs, and only the nodes that they need.
 * @param {Graph} graph
 * @param {Object<string, Tensor>} tensors inputs by name, and constants to be used instead
 * @param {string[]} [wanted] none: all
 * @returns {Object<string, Tensor>}
 * @throws {UnknownOperation} whose message is a sentence
 */
export function run(graph, tensors, wanted = Object.keys(graph.outputs ?? {})) {
  const sentence = problem(graph);
  if (sentence) throw new UnknownOperation(sentence);
  const known = constants(graph);
  const inputs = Object.keys(graph.inputs);
  const names = [...inputs, ...Object.keys(graph.constants)];
  /** @type {Value[]} */
  const results = names.map((name) => tensors[name] ?? known[name]);
  const reads = readers(graph, wanted, names.length);

  /** @param {any} argument @returns {any} with values in the place of references */
  function resolved(argument) {
    if (Array.isArray(argument)) return argument.map(resolved);
    if (typeof argument !== "string") return argument;
    return argument.startsWith("$") ? value(Number(argument.slice(1))) : INFINITE[argument] ?? argument;
  }

  /** @param {number} id @returns {Value} */
  function value(id) {
    if (results[id] === undefined) {
      if (id < names.length) throw new Error(`${graph.name} needs \`${names[id]}\`: pass it.`);
      const [name, args, options, dtype] = graph.nodes[id - names.length];
      const named = Object.entries(options ?? {}).map(([key, argument]) => [key, resolved(argument)]);
      const all = [...args.map(resolved), ...(named.length ? [Object.fromEntries(named)] : [])];
      results[id] = dtype === "float32" ? rounded(OPERATIONS[name], all) : OPERATIONS[name](...all);
      if (dtype) Object.assign(/** @type {Tensor} */ (results[id]), { dtype });
      const result = results[id];
      if (reads[id] > 1 && pending(result)) values(result); // computed once for all that read it
    }
    return results[id];
  }

  const each = wanted.map((name) => [name, value(Number(graph.outputs[name].slice(1)))]);
  return Object.fromEntries(each);
}
