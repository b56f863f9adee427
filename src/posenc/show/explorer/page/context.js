// How far each pair of a model turns in training, what extensions change, what inspect says.

import { instead } from "./app.js";
import { choice, html, prose } from "./dom.js";
import { linePlot } from "./draw.js";
import { read, values } from "../interpreter.js";
import { integer, shown } from "./words.js";

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
  const entries = (/** @type {boolean} */ own) =>
    models.filter((model) => model.own === own).map((model) => /** @type {[string, string]} */ ([model.name, model.name]));
  const both = /** @type {[string, [string, string][]][]} */ ([["Yours", entries(true)], ["Architectures, by their defaults", entries(false)]]);
  return both.filter(([, each]) => each.length);
}

const USUAL = ["llama", "qwen3", "mistral"]; // looked at first, where no model is the user's

/** @param {App} app @returns {View} */
export function contextView(app) {
  const { models, turnings } = app.data;
  const usual = models.find((model) => model.own) ?? models.find((model) => model.name === USUAL.find((name) => models.some((each) => each.name === name))) ?? models[0];
  const model = choice({ name: "Model", groups: grouped(models), chosen: (name) => app.set({ model: name, wanted: 0, group: 0 }) });
  const groups = choice({ name: "Layers", groups: [], chosen: (at) => app.set({ group: Number(at) }) });
  const lengths = choice({ name: "Wanted length", groups: [], chosen: (target) => app.set({ wanted: Number(target) }) });
  const plot = linePlot(app.desk);
  const facts = html("p", { class: "soft" }), verdict = html("p", { class: "claim" });
  const words = html("div"), trouble = html("div");
  const body = html("div", { class: "figures context" }, plot.element, html("section", {}, html("h3", {}, "What it means"), verdict, words));
  const element = html("div", {},
    html("h2", {}, "Longer than trained"),
    html("p", { class: "summary" }, "The chart shows how many tokens each pair of channels takes for a turn. A pair that completed none in training meets angles that it has not seen as soon as a text is longer."),
    html("div", { class: "controls" }, model.element, groups.element, lengths.element), facts, trouble, body);

  /** @param {typeof model} of @param {[string, string][]} entries @param {string} now */
  function offer(of, entries, now) {
    const same = [...of.box.options].map((option) => option.text).join() === entries.map(([, said]) => said).join();
    if (!same) of.box.replaceChildren(...entries.map(([value, said]) => html("option", { value }, said)));
    of.set(now);
    of.element.hidden = entries.length < 2;
  }

  /** @param {Model} model @param {Rotation} rotation @param {number} target */
  function draw(model, rotation, target) {
    const published = wavelengths(rotation, rotation.slower);
    const pairs = published.map((_, pair) => pair);
    /** @type {Series[]} */
    const series = [{ name: rotation.method === "default" ? "as configured" : `as configured (${rotation.method})`, xs: pairs, ys: published }];
    const extended = rotation.extended.find((each) => each.target === target);
    for (const [method, { slower }] of Object.entries(extended?.methods ?? {})) {
      series.push({ name: method, xs: pairs, ys: wavelengths(rotation, slower) });
    }
    const rules = [];
    if (rotation.trained) rules.push({ y: rotation.trained, name: `trained on ${integer(rotation.trained)}` });
    if (target && target !== rotation.trained) rules.push({ y: target, name: `wanted ${integer(target)}` });
    plot.draw({
      title: "Tokens in which each pair turns once",
      about: rotation.trained ? `${rotation.unfinished} of ${pairs.length} pairs complete no turn in ${integer(rotation.trained)} tokens.` : `${pairs.length} pairs; the trained length is not in the configuration.`,
      x: { label: "pair" }, y: { label: "tokens a turn", log: true }, series, rules,
    }, {});
  }

  return {
    element,
    update(state) {
      const picked = models.find((each) => each.name === state.model) ?? usual;
      body.hidden = facts.hidden = model.element.hidden = !picked;
      trouble.replaceChildren(...(picked ? [] : [instead("There is no configuration in this page: `posenc explore config.json` writes one into it.")]));
      if (!picked) return;
      model.set(picked.name);
      facts.textContent = [picked.facts, picked.embedding].filter(Boolean).join("; ").replace(/\.?$/, ".");
      const turning = picked.layers.filter((each) => each.turning && turnings[each.turning]);
      const at = Math.min(state.group, Math.max(0, turning.length - 1));
      offer(groups, turning.map((each, n) => [String(n), each.layers]), String(at));
      const rotation = turning.length ? turnings[turning[at].turning ?? ""] : null;
      const targets = [...new Set([...picked.outlooks.map((each) => each.target), ...(rotation?.extended ?? []).map((each) => each.target)])].sort((a, b) => a - b);
      const target = targets.includes(state.wanted) ? state.wanted : rotation?.extended[1]?.target ?? targets[1] ?? targets[0] ?? 0;
      offer(lengths, targets.map((each) => [String(each), `${integer(each)} tokens`]), String(target));
      plot.element.hidden = !rotation;
      if (rotation) draw(picked, rotation, target);
      const outlook = picked.outlooks.find((each) => each.target === target);
      verdict.textContent = outlook ? verdictOf(outlook) : `Nothing is known of ${integer(target)} tokens.`;
      const gain = rotation && rotation.gain !== 1 ? [`cos and sin are multiplied by ${shown(rotation.gain, 4)}`] : [];
      words.replaceChildren(
        ...listed("Why", [...(outlook?.problems ?? []), ...(outlook?.unknown ?? [])]),
        ...listed("What can be done", outlook?.advice ?? []),
        ...listed("How it turns", [...(rotation?.says ?? []), ...gain]),
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
  if (verdict === "fits") return `${text} fits what it was made for.`;
  return verdict === "breaks" ? `${text} does not fit.` : `${text}: the configuration alone cannot say whether it fits.`;
}
