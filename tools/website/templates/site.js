// The search: a list of all sections, loaded when it is first asked for. No server is needed.
const field = document.getElementById("search"), hits = document.getElementById("hits");
const heard = document.getElementById("heard"), root = document.documentElement.dataset.root;
const MOST = 12;
let rows = null; // [place, title of the page, heading, text], and the same in small letters

window.posencSearch = loaded => {
  rows = loaded.map(row => [...row, row.map(part => part.toLowerCase())]);
  look();
};

function load() {
  if (document.getElementById("index")) return;
  const script = Object.assign(document.createElement("script"), { id: "index", src: `${root}search-index.js` });
  document.head.append(script);
}

// A word counts where it begins one; more in a heading, most where it is the whole of it.
function worth(row, words) {
  const [, title, heading, text] = row[4];
  let sum = 0;
  for (const word of words) {
    const begins = part => part.startsWith(word) || part.includes(` ${word}`) || part.includes(`.${word}`);
    const found = (heading === word) * 12 + begins(heading) * 6 + begins(title) * 4 + (begins(text) || text.includes(word)) * 1;
    if (!found) return 0;
    sum += found;
  }
  return (sum + (heading && title.startsWith(heading)) * 3) * (row[0].startsWith("api/") ? 0.4 : 1);
}

function element(tag, text) {
  return Object.assign(document.createElement(tag), { textContent: text });
}

function around(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word)), begin = Math.max(0, at - 50);
  return (begin ? "…" : "") + text.slice(begin, begin + 140) + (text.length > begin + 140 ? "…" : "");
}

function look() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  hits.hidden = !words.length || !rows;
  heard.textContent = "";
  if (hits.hidden) return;
  const best = new Map(); // a long section has several rows
  for (const row of rows) {
    const sum = worth(row, words);
    if (sum > (best.get(row[0])?.[0] ?? 0)) best.set(row[0], [sum, row]);
  }
  const found = [...best.values()].sort((a, b) => b[0] - a[0]);
  const list = document.createElement("ul");
  for (const [, [place, title, heading, text]] of found.slice(0, MOST)) {
    const link = Object.assign(document.createElement("a"), { href: root + place });
    const page = title.replace(/ · posenc$/, "");
    link.append(element("b", heading || page), heading && heading !== page ? ` · ${page}` : "", element("span", around(text, words[0])));
    const item = document.createElement("li");
    item.append(link);
    list.append(item);
  }
  const says = found.length ? `${found.length} ${found.length === 1 ? "place" : "places"}` : "Nothing has all of these words.";
  heard.textContent = says;
  hits.replaceChildren(found.length ? list : element("p", says));
}

function close() {
  hits.hidden = true;
}

field.addEventListener("focus", () => { load(); look(); });
field.addEventListener("input", () => { load(); look(); });
document.addEventListener("keydown", event => {
  const typing = /^(input|textarea|select)$/i.test(document.activeElement.tagName);
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    field.focus();
  } else if (event.key === "Escape" && !hits.hidden) {
    field.focus();
    close();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !hits.hidden) {
    const links = [...hits.querySelectorAll("a")], at = links.indexOf(document.activeElement);
    if (at < 0 && document.activeElement !== field) return;
    event.preventDefault();
    const next = at + (event.key === "ArrowDown" ? 1 : -1);
    (links[next] ?? (next < 0 ? field : links.at(-1)))?.focus();
  } else if (event.key === "Enter" && document.activeElement === field) {
    hits.querySelector("a")?.click();
  }
});
document.addEventListener("click", event => {
  if (event.target !== field && !hits.contains(event.target)) close();
});
if (location.pathname.endsWith("/search.html")) field.focus();
