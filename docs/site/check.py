"""Faults of the pages of a folder: links that lead nowhere, and HTML that is not sound."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

VOID = "area base br col hr img input link meta source wbr".split()
OPEN = "p li dt dd tr td th thead tbody option".split()  # HTML lets their end be left out
DESCRIBED = ("description", "og:title", "og:description", "og:image")


class Page(HTMLParser):
    """The ids, links and faults of a page."""

    def __init__(self, html: str):
        super().__init__()
        self.ids: set[str] = set()
        self.links: dict[str, None] = {}
        self.faults: list[str] = []
        self._open: list[str] = []
        self._meta: dict[str, str | None] = {}
        self.feed(html)
        self.faults += [f"no {name}" for name in DESCRIBED if not self._meta.get(name)]
        self.faults += [f"<{tag}> is not closed" for tag in self._open if tag not in OPEN]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if (name := values.get("id")) in self.ids:
            self.faults.append(f"two elements have the id {name}")
        self.ids |= {name} if name else set()
        if tag == "meta":
            self._meta[values.get("name") or values.get("property") or ""] = values.get("content")
        if tag == "img" and "alt" not in values:
            self.faults.append(f"{values.get('src')} has no alternative text")
        self.links |= {link: None for key in ("href", "src") if (link := values.get(key))}
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        while self._open and self._open[-1] != tag and self._open[-1] in OPEN:
            self._open.pop()
        if self._open[-1:] == [tag]:
            self._open.pop()
        elif tag not in OPEN:
            self.faults.append(f"</{tag}> at line {self.getpos()[0]} closes nothing")


def faults(folder: Path) -> list[str]:
    """Return the faults of a folder's pages, each with the name of its page."""
    pages = {
        path.resolve(): Page(path.read_text("utf-8")) for path in sorted(folder.rglob("*.html"))
    }
    found: list[str] = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve()).as_posix()
        wrong = [] if name == "404.html" else [x for x in page.links if not _leads(path, x, pages)]
        found += [f"{name}: {fault}" for fault in (*page.faults, *wrong)]
    return found


def _leads(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    """Return whether a link leads to a file, and to an element or a state of the explorer in it."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    anchor = unquote(parts.fragment)
    if not anchor or target not in pages:
        return target.is_file()
    return anchor.startswith("v1/") or anchor in pages[target].ids
