// Formats numbers and names for readers.

const ENGLISH = new Intl.NumberFormat("en", { maximumFractionDigits: 12 }); // made once: that is slow

/** @param {number} x @param {number} [digits] @returns {string} */
export function shown(x, digits = 3) {
  if (x === -Infinity) return "hidden";
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "not a number" : "∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e15 || size < 1e-4) {
    const [mantissa, power] = x.toExponential(1).split("e");
    return `${mantissa} · 10${raised(Number(power))}`.replace("-", "−");
  }
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return ENGLISH.format(Number(x.toFixed(Math.min(places, 12)))).replace("-", "−");
}

/** @param {number} power @returns {string} */
const raised = (power) =>
  String(power).replace(/./g, (sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)] ?? "⁻");

/** @param {number} x @returns {string} thousands apart */
export const integer = (x) => ENGLISH.format(Math.round(x)).replace("-", "−");

/** @param {number} share @returns {string} */
export const percent = (share) => `${shown(100 * share, 2)} %`;

/** @param {string} text @returns {string[]} words and signs, as far as the page shows them */
export const tokensOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}'’]+|[^\s\p{L}\p{N}]/gu) ?? [];

/** @param {string[]} names @param {string} [last] "a, b and c" */
export const joined = (names, last = "and") =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} ${last} ${names[names.length - 1]}`;
