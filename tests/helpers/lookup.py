"""Check that each number on a report's page is in its results.json, rounded as on the page."""

import bisect
import json
import re
from html.parser import HTMLParser
from math import isfinite

# Exponents have two digits: in the hash of a commit, d9e6309 for one, more may follow an e.
NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d{1,2}(?!\d))?")
ORDER = 256  # below this a whole number may be a place in a list of results.json
FIVE_DIGITS = 5e-5  # to which figures are rounded, of the value
TOLD = {"td", "li", "dd", "figcaption", "caption"}
VOID = {"meta", "br", "link", "input"}
VALUES = "x", "y", "z", "low", "high", "to_x", "to_y"


def missing(html, numbers, figures):
    """Return the numbers of a page that its results lack, such as "figure name: number".

    The tests of the drawing compare the places of marks with their values.
    """
    page, known = _Page(html), _Known(numbers)
    found = []
    for where, text in page.told:
        if text not in known.strings:
            shown = NUMBER.findall(text)
            found += [f"{where}: {n} in {text!r}" for n in shown if not known.rounds_to(n)]
    for name, figure in figures.items():
        found += [f"{name}: {value}" for value in _values(figure) if not known.near(value)]
    return found


class _Page(HTMLParser):
    """Parser that collects a page's cells, captions and list entries, also of scripted tables."""

    def __init__(self, html):
        super().__init__()
        self.told, self.open, self.text, self.where = [], [], "", "page"
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))
        if tag in TOLD | {"th"}:
            self.text = ""
        if tag in ("h2", "h3"):
            self.where = "page"
        if ("class", "figure") in attrs:
            self.where = dict(attrs)["id"]

    def handle_endtag(self, tag):
        if tag in TOLD or (tag == "th" and "tbody" in [name for name, _ in self.open]):
            self.told.append((self.where, " ".join(self.text.split())))
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tag, attrs = self.open[-1] if self.open else ("", {})
        if tag == "script" and "data-figure" in attrs:
            table = json.loads(data)["table"]
            cells = [table["note"], *(cell for row in table["rows"] for cell in row)]
            self.told += [(attrs["data-figure"], " ".join(cell.split())) for cell in cells]
        else:
            self.text += data


class _Known:
    """All numbers in a tree of results, also those in sentences, and each as a percentage."""

    def __init__(self, tree):
        self.strings, found = set(), set()
        for value in _leaves(tree):
            if isinstance(value, str):
                self.strings.add(" ".join(value.split()))
                found |= {_number(text) for text in NUMBER.findall(value)}
            elif isinstance(value, int | float) and not isinstance(value, bool):
                found.add(float(value))
        self.values = sorted(found | {100 * v for v in found})

    def rounds_to(self, shown):
        mantissa, _, power = shown.partition("e")
        unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
        return self.near(_number(shown), unit / 2)

    def near(self, value, within=0.0):
        if 2 * value == int(2 * value) and abs(value) < ORDER:  # a half: the edge of a cell
            return True
        within += abs(value) * FIVE_DIGITS
        place = bisect.bisect_left(self.values, value - within)
        return place < len(self.values) and self.values[place] <= value + within


def _number(text):
    return float(text.replace(",", "").replace("−", "-"))


def _values(figure):
    """Return the numbers of a figure's marks."""
    marks = [vars(mark) for panel in figure.panels for mark in panel.marks]
    shown = [mark.get(key) for mark in marks for key in VALUES]
    return [value for value in _leaves(shown) if isinstance(value, int | float) and isfinite(value)]


def _leaves(tree):
    if isinstance(tree, dict | list | tuple | range):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(value)
    elif tree is not None:
        yield tree
