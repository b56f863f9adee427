// The last scene: the story in two sentences, three links, and the guide.

import { copies, html, prose } from "../dom.js";
import { FIRST, toHash } from "../state.js";

/** @import {App} from "../app.js" */
/** @import {Scene} from "./scene.js" */

/** @param {App} app @param {() => (boolean | null)[]} marks of the guesses of the other scenes; null: no guess @returns {Scene} */
export function take(app, marks) {
  const signs = () => marks().map((right) => (right === null ? "·" : right ? "✓" : "✕")).join(" ");
  const send = copies("Copy this link", () => `Which dog? ${signs()}  ${location.href.split("#")[0]}#v1/story`, app.announce);
  const plain = (/** @type {string} */ text) => prose(text.replace(/\*/g, ""));
  const figure = html("div", { class: "end" },
    html("blockquote", {}, "Without positions, attention reads a bag of words. ", html("em", { class: "high" }, "Count"), ", and the number drowns the word. ",
      html("em", { class: "low" }, "Turn"), ", and only the distance counts, as far as training went."),
    html("div", { class: "doors" },
      html("a", { href: toHash({ ...FIRST, view: "context" }) }, html("b", {}, "Your model"), "What a longer text breaks in it: ", html("code", {}, "posenc explore model/")),
      html("a", { href: toHash({ ...FIRST, view: "encoding" }) }, html("b", {}, `All ${app.data.encodings.length}`), "Every encoding with its formula, sliders and properties"),
      html("div", {}, html("b", {}, "Send it on"), html("p", {}, "The link, and your ✓ and ✕."), send)),
    html("table", { class: "which" }, html("caption", { class: "unseen" }, "Which encoding for which use"),
      html("tbody", {}, ...app.data.story.guide.map((row) => html("tr", {}, html("th", { scope: "row" }, row.use), html("td", {}, ...prose(row.answer),
        html("details", {}, html("summary", {}, "Why", html("span", { class: "unseen" }, `: ${row.use}`)), html("p", {}, row.because, " (", html("i", {}, row.basis), ")."), html("p", {}, html("b", {}, "Not known: "), ...plain(row.unknown)))))))));
  const score = () => {
    const made = marks().filter((right) => right !== null), right = made.filter(Boolean).length;
    return made.length ? `${right} of ${made.length} guesses were right: ${signs()}.` : "You have made no guess yet.";
  };
  return {
    name: "Take one", title: "Take one", lead: ["Every way of adding the order has its limits. You have met them."], question: "", guess: null, ends: ["", ""],
    figure, draw() {}, answer: () => [score()], leads: null, formula: "", code: "posenc explore model/\nposenc inspect model/ --target 131072", notes: [14, 15],
  };
}
