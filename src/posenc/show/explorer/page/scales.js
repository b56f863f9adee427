// Numbers of figures: ticks of axes, colours of heat maps.

/** @param {string} colour "#rrggbb" @returns {number[]} */
const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

const STEPS = 255; // of a colour, from that of 0
/** @type {Map<string, Uint32Array>} */
const ramps = new Map();

/**
 * The colours from that of −top to that of top, with that of 0 at STEPS, as they lie in a picture.
 * @param {string} low @param {string} middle @param {string} high
 */
function ramp(low, middle, high) {
  const key = `${low} ${middle} ${high}`;
  let colours = ramps.get(key);
  if (!colours) {
    const [from, to, above] = [middle, low, high].map(channels);
    const bytes = new Uint8ClampedArray(4 * (2 * STEPS + 1));
    for (let n = -STEPS; n <= STEPS; n++) {
      const end = n < 0 ? to : above;
      for (let c = 0; c < 3; c++) bytes[4 * (n + STEPS) + c] = from[c] + (end[c] - from[c]) * Math.abs(n / STEPS);
      bytes[4 * (n + STEPS) + 3] = 255;
    }
    colours = new Uint32Array(bytes.buffer);
    ramps.set(key, colours);
  }
  return colours;
}

/**
 * Writes the colour of each value into a picture.
 * @param {Uint32Array} pixels red, green, blue and alpha of each
 * @param {ArrayLike<number>} values
 * @param {{paper: string, high: string, low: string, none: string}} palette "#rrggbb" for 0, for positive, negative and hidden values
 * @param {boolean} signed if false, all values are shares, in the colour of `low`
 * @param {number} top the value of the strongest colour
 */
export function colour(pixels, values, palette, signed, top) {
  const colours = ramp(palette.low, palette.paper, signed ? palette.high : palette.low);
  const [none] = ramp(palette.none, palette.none, palette.none);
  const scale = STEPS / (top || 1);
  for (let n = 0; n < values.length; n++) {
    const step = Math.min(STEPS, Math.max(-STEPS, Math.round(scale * values[n])));
    pixels[n] = Number.isFinite(values[n]) ? colours[step + STEPS] : none;
  }
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
 * @param {number} low @param {number} high @param {number} many the approximate maximum of their number
 * @returns {number[]}
 */
export function ticks(low, high, many) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, many);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough * 0.999) ?? 10);
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
