// Hold a rotation against the test vectors: node check.mjs vectors/core.txt
// Replace `rotate` by a call of yours. It turns the pairs of channels of one token of one head.
import { readFileSync } from "node:fs";

function rotate(x, position, theta, layout, start) {
  const y = [...x];
  theta.forEach((turn, j) => {
    const [a, b] = layout === "interleaved" ? [start + 2 * j, start + 2 * j + 1] : [start + j, start + j + theta.length];
    const cos = Math.cos(position * turn), sin = Math.sin(position * turn);
    y[a] = x[a] * cos - x[b] * sin;
    y[b] = x[b] * cos + x[a] * sin;
  });
  return y;
}

// "-0x1.8p-1": the digits after the point are hexadecimal, the exponent is one of 2
function number(word) {
  const [, sign, digits, exponent] = word.match(/^(-?)0x([01](?:\.[0-9a-f]+)?)p([+-]\d+)$/);
  const [whole, part = ""] = digits.split(".");
  const mantissa = Number(whole) + (part ? parseInt(part, 16) / 16 ** part.length : 0);
  return (sign ? -1 : 1) * mantissa * 2 ** Number(exponent);
}

let cases = 0, wrong = 0, one = {};
for (const line of readFileSync(process.argv[2], "utf8").trim().split("\n")) {
  const [name, ...words] = line.split(" ");
  one[name] = words;
  if (name !== "rotated_q") continue; // the last line of a case
  const [theta, q, right] = ["theta", "q", name].map((key) => one[key].map(number));
  const dim = Number(one.sizes[3]), start = Number(one.start[0]);
  let off = 0;
  one.positions.forEach((position, n) => { // one for each text, head and token
    const mine = rotate(q.slice(n * dim, n * dim + dim), Number(position), theta, one.layout[0], start);
    mine.forEach((y, c) => { off = Math.max(off, Math.abs(y - right[n * dim + c])); });
  });
  cases += 1;
  if (!(off <= number(one.tolerance[0]))) { wrong += 1; console.log(`${one.case[0]}: off by ${off}`); }
}
console.log(`${cases - wrong} of ${cases} cases pass`);
process.exit(wrong > 0 ? 1 : 0);
