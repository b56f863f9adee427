"""Every number that a page shows, looked up in its results.json, rounded as it is shown."""

import bisect
import json
import re
from html.parser import HTMLParser

NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
ORDER = 256  # below this a whole number may be a place in a list of results.json
VOID = {"meta", "br", "link", "input"}


def missing(html, numbers):
    """What is shown and not there: "cell: number" and "figure: number"."""
    page, known = _Page(html), _Known(numbers)
    shown = [text for text in page.told if text not in known.strings]
    told = [f"{text!r}: {number}" for text in shown for number in NUMBER.findall(text)
            if not known.has(number, percent="%" in text)]  # fmt: skip
    drawn = [f"{name}: {value}" for name, figure in page.figures.items()
             for value in _values(figure) if not known.near(value)]  # fmt: skip
    return told + drawn


class _Page(HTMLParser):
    """Cells, captions and list entries, and the figures as plotly will have them."""

    def __init__(self, html):
        super().__init__()
        self.told, self.figures, self.open, self.text = [], {}, [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))
        if tag in ("td", "th", "li", "dd", "figcaption", "caption"):
            self.text = ""

    def handle_endtag(self, tag):
        within = [name for name, _ in self.open]
        if tag in ("td", "li", "dd", "figcaption", "caption") or (
            tag == "th" and "tbody" in within
        ):
            self.told.append(" ".join(self.text.split()))
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tag, attrs = self.open[-1] if self.open else ("", {})
        if tag == "script" and "data-figure" in attrs:
            self.figures[attrs["data-figure"]] = json.loads(data)
        else:
            self.text += data


class _Known:
    def __init__(self, tree):
        self.strings, found = set(), set()
        for value in _leaves(tree):
            if isinstance(value, str):
                self.strings.add(" ".join(value.split()))
                found |= {
                    float(n.replace(",", "").replace("−", "-")) for n in NUMBER.findall(value)
                }
            elif isinstance(value, int | float) and not isinstance(value, bool):
                found.add(float(value))
        self.values = sorted(found | {100 * v for v in found} | {-v for v in found})

    def has(self, shown, percent):
        """Some number there is this one, rounded to as many digits."""
        text = shown.replace(",", "").replace("−", "-")
        mantissa, _, power = text.partition("e")
        digits = len(mantissa.partition(".")[2])
        unit = 10.0 ** (int(power or 0) - digits)
        return self.near(float(text), unit / 2)

    def near(self, value, within=0.0):
        if value == int(value) and abs(value) < ORDER:
            return True
        within = max(within * 1.0001, abs(value) * 5e-5)  # five digits
        place = bisect.bisect_left(self.values, value - within)
        return place < len(self.values) and self.values[place] <= value + within


def _values(figure):
    """Numbers of the marks and of the states that they can be moved through."""
    traces = [*figure["data"], *(t for f in figure.get("frames") or [] for t in f["data"])]
    for trace in traces:
        for key in ("x", "y", "z"):
            yield from (v for v in _leaves(_unpacked(trace.get(key))) if isinstance(v, int | float))


def _unpacked(values):
    assert not (isinstance(values, dict) and "bdata" in values), "packed numbers cannot be read"
    return values


def _leaves(tree):
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _leaves(value)
    elif tree is not None:
        yield tree
