// The view of contexts: turns of each pair in training, extensions, and results of `posenc inspect`.

import { instead } from "./app.js";
import { fresh, makeDials } from "./dials.js";
import { choice, html, prose, slider } from "./dom.js";
import { linePlot } from "./draw.js";
import { read, values } from "../interpreter.js";
import { integer, joined, shown } from "./words.js";

/** @import {App, View} from "./app.js" */
/** @import {Model, Outlook, Rotation} from "./data.js" */
/** @import {Series} from "./draw.js" */

/** @param {Rotation} rotation @param {number[]} slower @returns {number[]} tokens in which each pair turns once */
export function wavelengths(rotation, slower) {
  const theta = values(read(rotation.theta));
  return slower.map((times, pair) => (times ? (2 * Math.PI * times) / theta[pair] : Infinity));
}

/** @param {Model[]} models @returns {[string, [string, string][]][]} */
function grouped(models) {
  const entries = (/** @type {(model: Model) => boolean} */ fits) => models.filter(fits).map((model) => /** @type {[string, string]} */ ([model.name, model.name]));
  const both = /** @type {[string, [string, string][]][]} */ ([
    ["Yours", entries((model) => model.own)], ["Published", entries((model) => model.published)],
    ["Architectures, by their defaults", entries((model) => !model.own && !model.published)],
  ]);
  return both.filter(([, each]) => each.length);
}

const TINY = 1e-9; // of a turn: what rounding may leave
const LONGEST = 5; // doublings of the trained length

/**
 * The shares of each pair's circle that occur in training, and that are new in a longer text (posenc.analysis.dials).
 * @param {Rotation} rotation @param {number[]} slower @param {number} target
 */
export function anglesAt({ theta, trained }, slower, target) {
  const turns = [...values(read(theta))].map((each) => each / (2 * Math.PI));
  const met = turns.map((each) => Math.min(1, each * (trained ?? 0)));
  const used = turns.map((each, pair) => (slower[pair] ? Math.min(1, (each / slower[pair]) * target) : 0));
  return { met, shares: used.map((share, pair) => (share - met[pair] > TINY ? share - met[pair] : 0)) };
}

/** @param {App} app @returns {View} */
export function contextView(app) {
  const { models, turnings } = app.data;
  const usual = models.find((model) => model.own) ?? models[0];
  const model = choice({ name: "Model", groups: grouped(models), chosen: (name) => app.set({ model: name, wanted: 0, group: 0 }) });
  const groups = choice({ name: "Layers", groups: [], chosen: (at) => app.set({ group: Number(at) }) });
  const lengths = choice({ name: "Wanted length", groups: [], chosen: (target) => app.set({ wanted: Number(target) }) });
  /** @type {Rotation | null} */
  let open = null;
  const length = slider({
    name: "Any length", low: 0, high: LONGEST, step: 0.05,
    shown: (doublings) => `${integer(lengthAt(doublings))} tokens`, moved: (doublings) => app.set({ wanted: lengthAt(doublings) }, "wanted"),
  });
  const lengthAt = (/** @type {number} */ doublings) => Math.round((open?.trained ?? 1) * 2 ** doublings);
  const dials = makeDials(), counted = html("p", { class: "verdict" });
  const turned = html("section", {}, html("h3", {}, "New angles in a longer text"), dials.element, counted);
  const plot = linePlot(app.desk);
  const facts = html("p", { class: "soft" }), verdict = html("p", { class: "claim" });
  const words = html("div"), trouble = html("div");
  const body = html("div", { class: "figures context" }, plot.element, html("section", {}, html("h3", {}, "What it means"), verdict, words));
  const element = html("div", {},
    html("h2", {}, "Longer than trained"),
    html("p", { class: "summary" }, "Each pair of channels is a clock hand. A hand that did not complete a turn in training reaches new angles in a longer text. The length in a config is not always the trained length."),
    html("div", { class: "controls" }, model.element, groups.element, lengths.element, length.element), facts, trouble, turned, body);

  /** @param {typeof model} of @param {[string, string][]} entries @param {string} now */
  function offer(of, entries, now) {
    const same = [...of.box.options].map((option) => option.text).join() === entries.map(([, said]) => said).join();
    if (!same) of.box.replaceChildren(...entries.map(([value, said]) => html("option", { value }, said)));
    of.set(now);
    of.element.hidden = entries.length < 2;
  }

  /** @param {Model} model @param {Rotation} rotation @param {number} target */
  function drawModel(model, rotation, target) {
    const published = wavelengths(rotation, rotation.slower);
    const pairs = published.map((_, pair) => pair);
    /** @type {Series[]} */
    const series = [{ name: rotation.method === "default" ? "as configured" : `as configured (${rotation.method})`, xs: pairs, ys: published }];
    const extended = rotation.extended.find((each) => each.target === target);
    for (const [method, { slower }] of Object.entries(extended?.methods ?? {})) {
      series.push({ name: method, xs: pairs, ys: wavelengths(rotation, slower) });
    }
    const rules = [];
    if (rotation.trained) rules.push({ y: rotation.trained, name: `${rotation.declared ? "before stretching" : "by the config"} ${integer(rotation.trained)}` });
    if (target && target !== rotation.trained) rules.push({ y: target, name: `wanted ${integer(target)}` });
    plot.draw({
      title: "Tokens in which each pair turns once",
      about: rotation.trained ? `${rotation.unfinished} of ${pairs.length} hands do not complete a turn in ${integer(rotation.trained)} tokens, ${rotation.declared ? "the length before stretching" : "the reach of these layers by the config"}.` : `${pairs.length} pairs; no length is in the configuration.`,
      x: { label: "pair" }, y: { label: "tokens a turn", log: true }, series, rules,
    }, {});
  }

  /** @param {Rotation} rotation @param {number} window tokens @param {number} target */
  function circles(rotation, window, target) {
    const span = Math.min(target, window), { met, shares } = anglesAt(rotation, rotation.slower, span);
    dials.draw(met, shares);
    const extended = Object.entries(rotation.extended.find((each) => each.target === span)?.methods ?? {});
    const others = extended.map(([name, { slower }]) => `${name} ${fresh(anglesAt(rotation, slower, span).shares)}`);
    const { trained, declared } = rotation;
    const showed = declared ? `that ${integer(trained ?? 0)}, the length before stretching, did not show` : `that ${integer(trained ?? 0)} did not show`;
    const unsaid = declared ? ` The config does not state how much of ${integer(declared)} tokens was trained.` : "";
    counted.replaceChildren(html("em", {}, String(fresh(shares))), ` of ${met.length} pairs meet angles at ${integer(target)} tokens ${showed}, as configured${window < target ? `, within a window of ${integer(window)}` : ""}.${unsaid}${others.length ? ` Extended to it: ${others.join(", ")}.` : ""}`);
  }

  return {
    element,
    update(state) {
      const picked = models.find((each) => each.name === state.model) ?? usual;
      body.hidden = facts.hidden = model.element.hidden = !picked;
      trouble.replaceChildren(...(picked ? [] : [instead(app.data.missing.length ? "The published models are not ready yet." : "This page has no configuration. Run `posenc explore config.json` to add one.")]));
      if (!picked) return;
      model.set(picked.name);
      facts.textContent = [picked.facts, picked.embedding].filter(Boolean).join("; ").replace(/\.?$/, ".");
      const turning = picked.layers.filter((each) => each.turning && turnings[each.turning]);
      const at = Math.min(state.group, Math.max(0, turning.length - 1));
      offer(groups, turning.map((each, n) => [String(n), each.layers]), String(at));
      const rotation = turning.length ? turnings[turning[at].turning ?? ""] : null;
      const targets = [...new Set([...picked.outlooks.map((each) => each.target), ...(rotation?.extended ?? []).map((each) => each.target)])].sort((a, b) => a - b);
      const stretched = rotation?.trained && picked.context && picked.context > rotation.trained ? picked.context : undefined;
      const target = state.wanted && (rotation?.trained || targets.includes(state.wanted)) ? state.wanted : stretched ?? rotation?.extended[1]?.target ?? targets[1] ?? targets[0] ?? 0;
      const offered = [...new Set([...targets, target])].sort((a, b) => a - b);
      offer(lengths, offered.map((each) => [String(each), `${integer(each)} tokens`]), String(target));
      open = rotation;
      plot.element.hidden = !rotation;
      turned.hidden = length.element.hidden = !rotation?.trained;
      if (rotation?.trained) {
        length.set(Math.min(LONGEST, Math.max(0, Math.log2(target / rotation.trained))));
        circles(rotation, turning[at].window ?? Infinity, target);
      }
      if (rotation) drawModel(picked, rotation, target);
      const outlook = picked.outlooks.find((each) => each.target === target);
      verdict.textContent = outlook ? verdictOf(outlook) : `This page has the results of inspect for ${joined(picked.outlooks.map((each) => integer(each.target)))} tokens of this model.`;
      const gain = rotation && rotation.gain !== 1 ? [`cos and sin are multiplied by ${shown(rotation.gain, 4)}`] : [];
      words.replaceChildren(
        ...listed("Why", [...(outlook?.problems ?? []), ...(outlook?.unknown ?? [])]),
        ...listed("Advice", outlook?.advice ?? []),
        ...listed("Rotation", [...(rotation?.sentences ?? []), ...gain]),
        ...listed("Layers", [...picked.layers.map((each) => `${each.layers}: ${each.does}`), ...picked.notes]));
    },
  };
}

/** @param {string} title @param {string[]} sentences @returns {HTMLElement[]} nothing, where there are none */
function listed(title, sentences) {
  const items = sentences.map((text) => {
    const [command, ...remark] = text.split(/ {3,}/); // as the terminal sets them apart
    const said = command.startsWith("posenc ") ? [html("code", {}, command), ` ${remark.join(" ")}`] : prose(text.replace(/^./, (letter) => letter.toUpperCase()));
    return html("li", {}, ...said);
  });
  return items.length ? [html("h4", {}, title), html("ul", { class: "claims" }, ...items)] : [];
}

/** @param {Outlook} outlook @returns {string} */
function verdictOf({ target, verdict }) {
  const text = `A text of ${integer(target)} tokens`;
  if (verdict === "fits") return `${text}: no fault is known; only a test shows how well the model reads it.`;
  return verdict === "breaks" ? `${text} does not fit.` : `${text}: the configuration alone does not show whether it fits.`;
}
