// Numbers of figures: ticks of axes, colours of heat maps.

/** @param {string} colour "#rrggbb" @returns {number[]} */
const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

/** @param {number[]} from @param {number[]} to @param {number} share */
const between = (from, to, share) => from.map((one, n) => one + (to[n] - one) * share);

/**
 * @param {ArrayLike<number>} values
 * @param {{paper: string, high: string, low: string, none: string}} palette "#rrggbb": of 0, of what is above and below it, of what is hidden
 * @param {boolean} signed else all are shares, in the colour of `low`
 * @param {number} top what the strongest colour stands for
 * @returns {Uint8ClampedArray<ArrayBuffer>} red, green, blue, alpha
 */
export function coloured(values, palette, signed, top) {
  const [paper, high, low, none] = [palette.paper, palette.high, palette.low, palette.none].map(channels);
  const STEPS = 255;
  const up = Array.from({ length: STEPS + 1 }, (_, n) => between(paper, signed ? high : low, n / STEPS));
  const down = Array.from({ length: STEPS + 1 }, (_, n) => between(paper, low, n / STEPS));
  const pixels = new Uint8ClampedArray(4 * values.length);
  for (let n = 0; n < values.length; n++) {
    const step = Math.round((STEPS * values[n]) / (top || 1));
    const colour = Number.isFinite(values[n])
      ? (step < 0 ? down : up)[Math.min(STEPS, Math.abs(step))] : none;
    pixels[4 * n] = colour[0];
    pixels[4 * n + 1] = colour[1];
    pixels[4 * n + 2] = colour[2];
    pixels[4 * n + 3] = 255;
  }
  return pixels;
}

/** @param {ArrayLike<number>} values @returns {number} the largest size of any that is finite */
export function largest(values) {
  let most = 0;
  for (let n = 0; n < values.length; n++) {
    const size = Math.abs(values[n]);
    if (size > most && size < Infinity) most = size;
  }
  return most;
}

/**
 * Round numbers for an axis.
 * @param {number} low @param {number} high @param {number} many at most so many, about
 * @returns {number[]}
 */
export function ticks(low, high, many) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, many);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((one) => one * power >= rough * 0.999) ?? 10);
  const out = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) out.push(n * step);
  return out;
}

/** @param {number} low @param {number} high @returns {number[]} powers of ten between them */
export function powers(low, high) {
  const out = [];
  for (let p = Math.ceil(Math.log10(low) - 1e-9); 10 ** p <= high * (1 + 1e-9); p++) out.push(10 ** p);
  return out;
}
