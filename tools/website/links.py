"""The pages as they were written: which of their links lead nowhere, and what a search looks in."""

import json
from html.parser import HTMLParser
from pathlib import Path
from textwrap import wrap
from urllib.parse import unquote, urlsplit

VOID = ("area", "br", "col", "hr", "img", "input", "link", "meta", "path", "use", "wbr")
SILENT = ("script", "style", "nav", "noscript", "svg")  # whose text is not searched
STATES = "#v1/"  # addresses of the explorer, which its own tests follow
MOST_LETTERS = 1_500  # of a row of the search


class Page(HTMLParser):
    """Ids, links and sections of a page."""

    def __init__(self, html: str):
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.title = ""
        self.sections: list[list[str]] = [["", "", ""]]  # id, heading, text
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if name := values.get("id"):
            self.ids.add(name)
        for key in ("href", "src"):
            if (target := values.get(key)) is not None and tag != "base":
                self.targets.append(target)
        if tag in ("h1", "h2", "h3") and not self._silent:
            self.sections.append([name or "", "", ""])
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["title"]:
            self.title += data
        if self._silent or "body" not in self._open:
            return
        heading = any(tag in self._open for tag in ("h1", "h2", "h3"))
        self.sections[-1][1 if heading else 2] += data

    @property
    def _silent(self) -> bool:
        return any(tag in self._open for tag in SILENT)


def read(folder: Path) -> dict[str, Page]:
    """Every page of the folder by its path."""
    paths = sorted(folder.rglob("*.html"))
    return {p.relative_to(folder).as_posix(): Page(p.read_text("utf-8")) for p in paths}


def broken(folder: Path) -> list[str]:
    """The links of a folder's pages, to files and to anchors, that lead nowhere in it."""
    pages, faults = read(folder), []
    for name, page in pages.items():
        for target in dict.fromkeys(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or (not parts.path and parts.fragment == ""):
                continue
            path = (folder / name).parent / unquote(parts.path) if parts.path else folder / name
            place = path.resolve()
            if not place.is_file() or not place.is_relative_to(folder.resolve()):
                faults.append(f"{name}: {target}")
                continue
            other = pages.get(place.relative_to(folder.resolve()).as_posix())
            anchor = unquote(parts.fragment)
            is_state = f"#{parts.fragment}".startswith(STATES)
            if anchor and other and not is_state and anchor not in other.ids:
                faults.append(f"{name}: {target} (the page is there, the anchor is not)")
    return faults


def index(pages: dict[str, Page], left_out: tuple[str, ...] = ("source/", "files/")) -> str:
    """What a search looks in, as a script: no page may fetch a file where it is opened as one."""
    rows = [
        [f"{name}#{anchor}" if anchor else name, _plain(page.title), _plain(heading), part]
        for name, page in pages.items()
        if not name.startswith(left_out)
        for anchor, heading, text in page.sections
        if heading or text.strip()
        for part in _parts(_plain(text))
    ]
    return f"posencSearch({json.dumps(rows, ensure_ascii=False, separators=(',', ':'))});\n"


def _plain(text: str) -> str:
    return " ".join(text.split())


def _parts(text: str) -> list[str]:
    """A long text in parts of whole words."""
    return wrap(text, MOST_LETTERS, break_long_words=False, break_on_hyphens=False) or [""]
