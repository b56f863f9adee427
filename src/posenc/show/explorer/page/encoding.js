// The view of one encoding: its positions, scores, options, formula and properties.

import { encodingChoice, instead, reason } from "./app.js";
import { adds, anglesOf, byOffset, channelsOf, dimsOf, dots, headsOf, obstacle, remembered, rowsOf, sized, slidersOf, stepOf, turnedOf, turningOf, turns, walk } from "./compute.js";
import { choice, copies, html, newId, prose, slider, table } from "./dom.js";
import { CHANNEL_AXIS, KEY_AXIS, QUERY_AXIS, SPREAD, heatMap, linePlot } from "./draw.js";
import { WORD, addedScores, interrupted, oneWord, reads } from "./layer.js";
import { FIRST, MOST_TOKENS, MOST_WORDS } from "./state.js";
import { integer, shown, tokensOf } from "./words.js";

/** @import {App, View} from "./app.js" */
/** @import {Grid} from "./compute.js" */
/** @import {Encoding} from "./data.js" */
/** @import {Heat} from "./draw.js" */
/** @import {State} from "./state.js" */


/** @param {Encoding} encoding @param {Grid} grid @returns {Heat} the added rows, or a rotated vector */
function action(encoding, grid) {
  const row = { ...QUERY_AXIS, label: "position" };
  if (adds(encoding)) {
    return { title: "Added rows", about: "the vector added to a word at each position, channel by channel.", row, column: CHANNEL_AXIS, ...grid };
  }
  return { title: `One vector under ${encoding.name}`, about: "a vector of ones at each position. Fast pairs change at every step, slow pairs hardly change.", row, column: CHANNEL_AXIS, ...grid };
}

/** @param {Encoding} encoding @param {State} state @returns {string} */
const inHead = (encoding, state) => (headsOf(encoding) > 1 ? ` in head ${state.head}` : "");

/** @param {State} state @returns {string[]} the sentence as typed, or the usual one */
function sentenceOf(state) {
  const words = tokensOf(state.text).slice(0, MOST_WORDS);
  return words.length > 2 ? words : tokensOf(FIRST.text);
}

/** @type {import("./draw.js").Axis} */
const PAIR_AXIS = { label: "pair", role: "channel" };

/** @param {Grid} grid angles @param {string} rows "angle" or "cos" @returns {Heat} */
function turningFigure(grid, rows) {
  const row = { ...QUERY_AXIS, label: "position" };
  if (rows === "angle") {
    return { title: "Angle of each pair", about: "of a query at each position, in radians: from −π to π.", row, column: PAIR_AXIS, top: Math.PI, ...grid };
  }
  return { title: "Cosine of each angle", about: "of a query at each position: a wave for each pair.", row, column: PAIR_AXIS, top: 1, ...grid, values: grid.values.map(Math.cos) };
}

/** @param {App} app @returns {View} */
export function encodingView(app) {
  const picker = encodingChoice(app);
  const length = slider({ name: "Tokens", low: 2, high: MOST_TOKENS, shown: String, moved: (n) => app.set({ n }, "n") });
  const head = slider({ name: "Head", low: 0, high: 3, shown: String, moved: (at) => app.set({ head: at }, "head") });
  const axis = slider({ name: "Axis that advances", low: 0, high: 1, shown: String, moved: (at) => app.set({ axis: at }, "axis") });
  const rows = choice({
    name: "Rows", chosen: (kind) => app.set({ rows: kind }),
    groups: [["", [["", "a vector, turned"], ["angle", "angle of each pair"], ["cos", "cosine of each angle"]]]],
  });
  const width = slider({ name: "Channels of a head", low: 0, high: 3, shown: (step) => String(dimsOf(app.first())[step] ?? ""), moved: (step) => app.set({ dim: dimsOf(app.first())[step], options: {} }, "dim") });
  const id = newId(), field = html("input", { type: "text", id, maxlength: 40, autocomplete: "off", spellcheck: "false", placeholder: "0, 1, 10, 11" });
  field.addEventListener("input", () => app.set({ channels: field.value }, "channels"));
  const picked = html("div", { class: "control sentence" }, html("label", { for: id }, "Channels drawn as curves"), field);
  const own = html("div", { class: "controls own" });
  const controls = html("div", { class: "controls" }, picker.element, rows.element, length.element, width.element, head.element, axis.element, own);
  const title = html("h2"), summary = html("p", { class: "summary" }), note = html("p", { class: "soft note" });
  const first = heatMap(app.desk), second = heatMap(app.desk), third = linePlot(app.desk), fourth = heatMap(app.desk);
  const figures = html("div", { class: "figures" }, first.element, second.element, third.element, fourth.element);
  const curves = linePlot(app.desk), far = linePlot(app.desk);
  const waves = html("section", {}, html("h3", {}, "Channel by channel"), html("div", { class: "controls" }, picked), html("div", { class: "figures" }, curves.element, far.element));
  const trouble = html("div");
  const about = html("div", { class: "about" });
  const element = html("div", {}, title, summary, controls, note, trouble, figures, waves, about);
  /** @type {Object<string, ReturnType<typeof slider>>} */
  let turned = {};
  let drawn = "";

  /** @param {Encoding} encoding */
  function renew(encoding) {
    title.textContent = encoding.name;
    summary.textContent = encoding.summary.replace(/^./, (letter) => letter.toUpperCase());
    turned = {};
    for (const [name, of] of Object.entries(slidersOf(encoding))) {
      turned[name] = slider({
        name, low: 0, high: of.values.length - 1, marked: of.marked.map((value) => of.values.indexOf(value)),
        shown: (step) => shown(of.values[step], of.marked.length ? 8 : 4),
        moved: (step) => app.set({ options: { ...besides(encoding, name, app.now().options), [name]: of.values[step] } }, `option.${name}`),
      });
    }
    own.replaceChildren(...Object.values(turned).map((each) => each.element));
    head.range.max = String(headsOf(encoding) - 1);
    axis.range.max = String((encoding.graph.axes ?? 1) - 1);
    head.element.hidden = !!obstacle(encoding) || headsOf(encoding) < 2;
    axis.element.hidden = (encoding.graph.axes ?? 1) === 1;
    about.replaceChildren(...described(app, encoding));
  }

  /** @param {Encoding} encoding @param {State} state */
  function rewrite(encoding, state) {
    const code = about.querySelector("pre"), now = pythonOf(encoding, state.options);
    if (code && code.textContent !== now) code.textContent = now;
  }

  /** @param {Encoding} encoding @param {State} state */
  function drawFigures(encoding, state) {
    const { n, axis, options, head } = state, place = { i: state.i, j: state.j, c: state.c };
    const pos = walk(n, encoding.graph.axes, axis);
    waves.hidden = !adds(encoding) && !turns(encoding);
    const acted = adds(encoding) || turns(encoding) ? remembered(["acts", encoding.slug, n, axis, options, head], () =>
      adds(encoding) ? rowsOf(encoding, pos, options) : turnedOf(encoding, pos, options, head)) : null;
    const turning = turns(encoding) ? remembered(["turning", encoding.slug, axis, options], () => ({ found: turningOf(encoding, options, axis) })).found : null;
    rows.element.hidden = !turning;
    const kind = turning ? state.rows : "";
    const angles = turning && kind ? remembered(["angles", kind, encoding.slug, n, axis, options], () => turningFigure(anglesOf(encoding, turning, pos, options), kind)) : null;
    first.element.hidden = !acted;
    if (acted) first.draw(angles ?? action(encoding, acted), place);
    if (acted) drawChannels(encoding, state, acted);
    const reading = reads(encoding);
    third.element.hidden = reading;
    fourth.element.hidden = !reading && !adds(encoding);
    length.element.hidden = reading && !acted;
    if (reading) return drawSentence(encoding, state);
    const { scores, by } = remembered(["added", encoding.slug, n, axis, options, head], () => {
      const scores = addedScores(encoding, oneWord(n), state);
      return { scores, by: byOffset(scores) };
    });
    const about = `to the score of “${WORD}” for “${WORD}”${inHead(encoding, state)}, by their two places.`;
    second.draw({ title: "Added to scores", about, row: QUERY_AXIS, column: KEY_AXIS, ...scores }, place);
    const same = by.high.every((high, n) => high - by.low[n] <= SPREAD * Math.max(1, Math.abs(by.mean[n])));
    third.draw({
      title: "Score against distance",
      about: same ? "All pairs at the same distance have the same score." : "The band shows pairs at the same distance but other positions.",
      x: { label: "query − key", role: "offset" }, y: { label: "added to the score" },
      series: [{ name: encoding.name, xs: by.offsets, ys: by.mean, low: by.low, high: by.high }],
    }, place);
    if (adds(encoding) && acted) {
      fourth.draw({ title: "Rows against rows", about: "dot product of the rows of two positions, divided by √width, before any projection.", row: QUERY_AXIS, column: KEY_AXIS, ...dots(acted) }, place);
    }
  }

  /** @param {Encoding} encoding @param {State} state @param {Grid} rows the added rows, or a rotated vector of ones */
  function drawChannels(encoding, state, rows) {
    const xs = Array.from({ length: rows.rows }, (_, p) => p), column = (/** @type {number} */ c) => xs.map((p) => rows.values[p * rows.columns + c]);
    const chosen = channelsOf(state.channels, rows.columns), x = { label: "position", role: /** @type {const} */ ("query") };
    if (field !== document.activeElement) field.value = state.channels;
    curves.draw({
      title: "Channels against position", about: adds(encoding) ? "the added value in each." : "of a rotated vector of ones.", x, y: { label: "value" },
      series: chosen.map((c) => ({ name: `channel ${c}`, xs, ys: column(c) })),
    }, { i: state.i });
    const away = xs.map((p) => Math.sqrt(Array.from({ length: rows.columns }, (_, c) => (rows.values[p * rows.columns + c] - rows.values[c]) ** 2).reduce((sum, one) => sum + one, 0)));
    far.draw({ title: "Distance to position 0", about: adds(encoding) ? "of the row added at each position." : "of a rotated vector of ones.", x, y: { label: "distance" }, series: [{ name: encoding.name, xs, ys: away }] }, { i: state.i });
  }

  /** Draws a sentence, and the same with a full stop in the middle; equal words would hide the effect of content. */
  function drawSentence(/** @type {Encoding} */ encoding, /** @type {State} */ state) {
    const words = sentenceOf(state), cut = interrupted(words), n = words.length;
    const [before, after] = [words, cut.words].map((each) => addedScores(encoding, each, state));
    const axis = { names: words }, row = { ...axis, label: "query", role: QUERY_AXIS.role }, column = { ...axis, label: "key", role: KEY_AXIS.role };
    const place = { i: state.i % n, j: state.j % n };
    const outside = (/** @type {number} */ at) => Math.floor(at / n) !== cut.at && at % n !== cut.at;
    const change = before.values.map((value, at) => (Number.isFinite(value) && outside(at) ? after.values[at] - value : -Infinity));
    second.draw({ title: "Added to scores", about: `for each two words${inHead(encoding, state)}: it depends on the words between.`, row, column, ...before }, place);
    fourth.draw({
      title: `“${words[cut.at]}” becomes “.”`,
      about: `and the additions for the words around it change: by ${shown(change[(n - 1) * n])} for the last word and the first.`,
      row, column, ...before, values: change,
      said: (i, j) => `“${words[i]}” for “${words[j]}”: ${shown(before.values[i * n + j])}; with a full stop it changes by ${shown(change[i * n + j])}`,
    }, place);
  }

  return {
    element,
    update(state) {
      const encoding = sized(app.first(), state.dim), dims = dimsOf(app.first());
      if (drawn !== encoding.slug) renew(encoding);
      drawn = encoding.slug;
      rewrite(encoding, state);
      picker.set(app.first().slug);
      width.element.hidden = dims.length < 2 || !!obstacle(encoding);
      width.range.max = String(dims.length - 1);
      width.set(dims.indexOf(encoding.graph.dim));
      length.set(state.n);
      head.set(state.head);
      axis.set(state.axis);
      rows.set(state.rows);
      for (const [name, each] of Object.entries(turned)) each.set(stepOf(slidersOf(encoding)[name], state.options[name]));
      const { dim, heads, seed, learns, options } = encoding.graph;
      const why = obstacle(encoding);
      trouble.replaceChildren();
      figures.hidden = waves.hidden = !!why;
      note.hidden = !!why;
      if (why) {
        rows.element.hidden = true;
        trouble.append(instead(why));
        return;
      }
      const size = Object.entries(options ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
      const said = `${heads} heads of ${dim} channels${size ? `, ${size}` : ""}.`
        + (learns ? ` Its parameters have random initial values, with seed ${seed}.` : "");
      if (note.textContent !== said) note.textContent = said;
      try {
        drawFigures(encoding, state);
      } catch (error) {
        figures.hidden = true;
        trouble.append(instead(reason(error)));
      }
    },
  };
}

/** @type {Object<string, string>} */
const WHERE = { by_weight: "values, by their weights", hidden: "the input of the layer" };

/** @param {App} app @param {Encoding} encoding @returns {HTMLElement[]} meaning, formula, properties, paper, code */
function described(app, encoding) {
  const about = html("section", {}, html("h3", {}, "Meaning"));
  const more = encoding.text.filter(({ prose: said }) => !said || !said.endsWith(encoding.summary)); // the summary is shown above
  for (const block of more.length ? more : encoding.text) {
    about.append(block.prose ? html("p", {}, ...prose(block.prose)) : formula(block.formula));
  }

  const rows = app.data.properties.filter(({ name }) => encoding.properties[name]).map(({ name, label, meaning }) => {
    const { holds, why } = encoding.properties[name];
    return [[html("details", {}, html("summary", {}, label), meaning)], [markOf(holds)], [why || meaning]];
  });
  const properties = html("section", {}, html("h3", {}, "Measured properties"));
  const measured = rows.length ? table(["property", "holds", "witness"], rows) : html("p", {}, "None were measured.");
  measured.classList.add("witness");
  properties.append(measured);

  const source = html("section", {}, html("h3", {}, "Source and cost"));
  source.append(encoding.paper
    ? html("p", {}, html("a", { href: encoding.paper.link, rel: "noreferrer" }, encoding.paper.title), ` (${encoding.paper.short})`)
    : html("p", {}, "An encoding of your own: no paper is known."));
  const size = encoding.parameters ? `It has ${integer(encoding.parameters)} learned parameters in a layer of 4 heads with 64 channels.` : "It has no learned parameters.";
  source.append(html("p", {}, `Where it acts: ${encoding.acts_on.length ? encoding.acts_on.map((hook) => WHERE[hook] ?? hook).join(", ") : "nowhere"}. ${size}`));
  if (encoding.cost) source.append(html("p", {}, costOf(encoding.cost)));

  const code = html("section", {}, html("h3", {}, "Use it"));
  const written = html("pre", { tabindex: 0 }, pythonOf(encoding, {}));
  const buttons = html("div", { class: "files" },
    copies("Copy as Python", () => pythonOf(encoding, app.now().options), app.announce),
    copies("Copy as command", () => `posenc show ${encoding.shell}`, app.announce));
  if (encoding.paper) buttons.append(copies("Copy citation", () => encoding.paper?.bibtex ?? "", app.announce));
  code.append(written, buttons);
  return [html("div", {}, about, source, code), properties];
}

/** @param {import("./data.js").Cost} cost @returns {string} */
function costOf({ tokens, operations, numbers, memory, grows }) {
  const where = `Extra work in a forward pass at ${integer(tokens)} tokens (4 heads of 64 channels)`;
  if (!operations && !numbers && !memory) return `${where}: none.`;
  const calls = Math.abs(operations) === 1 ? "call" : "calls";
  const growth = grows > 3 ? "grows with the square of the length" : grows > 1.5 ? "grows with the length" : "hardly grows with the length";
  const megabytes = (/** @type {number} */ bytes) => `${shown(Math.abs(bytes) / 1e6, 2)} MB`;
  return `${where}: ${integer(Math.abs(operations))} ${calls} of torch${operations < 0 ? " fewer" : ""}, ${megabytes(4 * numbers)} ${numbers < 0 ? "less " : ""}written; ${growth}. `
    + `At the peak ${megabytes(memory)} ${memory < 0 ? "less" : "more"} memory.`;
}

/**
 * Returns the options that keep their values while one is moved: those that change other constants.
 * @param {Encoding} encoding @param {string} moved @param {Object<string, number>} options
 */
function besides(encoding, moved, options) {
  const all = slidersOf(encoding), taken = Object.keys(all[moved].constants);
  const free = Object.entries(options).filter(([name]) => name in all && !taken.some((constant) => constant in all[name].constants));
  return Object.fromEntries(free);
}

/** @param {string[][]} lines MathML that Python wrote from the docstring */
function formula(lines) {
  const box = html("div", { class: "formula", tabindex: 0, role: "region", "aria-label": "Formula" });
  for (const parts of lines) {
    const line = html("div");
    line.innerHTML = parts.join(" ");
    box.append(line);
  }
  return box;
}

/** @param {boolean | null | undefined} holds @returns {HTMLElement} */
export function markOf(holds) {
  const [sign, says] = holds === true ? ["✓", "holds"] : holds === false ? ["✗", "does not hold"] : ["–", "does not apply"];
  return html("span", { class: holds ? "yes" : "no", role: "img", "aria-label": says }, sign);
}

/** @param {Encoding} encoding @param {Object<string, number>} options @returns {string} */
export function pythonOf(encoding, options) {
  const moved = Object.entries(slidersOf(encoding)).filter(([name]) => name in options);
  const drawn = moved.map(([name, slider]) => [name, slider.values[stepOf(slider, options[name])]]); // the nearest that there is
  const chosen = { ...encoding.graph.options, ...Object.fromEntries(drawn) };
  const said = Object.entries(chosen).map(([name, value]) => `, ${name}=${JSON.stringify(value)}`).join("");
  const { heads = 4, dim = 16, seed = 0 } = encoding.graph, { axes } = encoding;
  const pos = axes > 1 ? `posenc.positions.grid(${Array(axes).fill(4).join(", ")})` : "torch.arange(64)";
  return `import posenc\nimport torch\n\ntorch.manual_seed(${seed})\n`
    + `encoding = posenc.create(${JSON.stringify(encoding.command)}, ${dim}, ${heads}${said})\npos = ${pos}\n`
    + (encoding.acts_on.some((hook) => hook === "embeddings" || hook === "hidden")
      ? `layer = posenc.SelfAttention(${dim * heads}, ${heads}, encoding)\nout = layer(torch.randn(1, len(pos), ${dim * heads}), pos)\n`
      : `q, k, v = torch.randn(3, 1, ${heads}, len(pos), ${dim})\nout = posenc.attend(q, k, v, encoding, pos)\n`);
}
