"""The repository's texts in Markdown as HTML: links lead to pages of the site."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from website import code, places

EMPTY = re.compile(r"<th[^>]*></th>")  # a heading that says nothing
STATE = re.compile("<code>(#v1/[^<]+)</code>")  # an address of the explorer
COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)


def slug(heading: str, taken: set[str]) -> str:
    """The anchor of a heading, as GitHub makes it: the second of a name ends in -1."""
    name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
    free, n = name, 0
    while free in taken:
        n += 1
        free = f"{name}-{n}"
    taken.add(free)
    return free


def render(text: str, source: str, page: str, want: Callable[[str], None]) -> tuple[str, Markup]:
    """The title of a text, its first heading, and all that follows as HTML.

    `source` is the text's path in the repository, `page` its place on the site; `want` is told of
    each place that it links to. A link to what is not there stays, for `links.broken` to name.
    """
    markdown = MarkdownIt("commonmark", {"html": False, "highlight": _highlighted}).enable("table")
    markdown.add_render_rule("table_open", _table_open)
    markdown.add_render_rule("table_close", _table_close)
    tokens, taken = markdown.parse(COMMENT.sub("", text)), set[str]()
    title = ""
    for n, token in enumerate(tokens):
        if token.type == "heading_open":
            words = _plain(tokens[n + 1])
            if token.tag == "h1" and not title:
                title = words
            token.attrSet("id", slug(words, taken))
        for child in token.children or ():
            _lead(child, source, page, want)
    start = next((n for n, t in enumerate(tokens) if t.type == "heading_close"), -1) + 1
    rest = tokens[start:] if title else tokens
    html = markdown.renderer.render(rest, markdown.options, {})
    html = EMPTY.sub("<td></td>", html).replace("<pre>", '<pre tabindex="0">')
    states = places.relative("index.html", page)
    return title, Markup(STATE.sub(rf'<a href="{states}\1"><code>\1</code></a>', html))


def _lead(token: Token, source: str, page: str, want: Callable[[str], None]) -> None:
    """Lead a link or a picture of the repository to its place on the site."""
    key = {"link_open": "href", "image": "src"}.get(token.type)
    if key is None:
        return
    target = str(token.attrGet(key))
    place = places.linked(target, source)
    if place is not None:
        want(place.partition("#")[0])
        token.attrSet(key, places.relative(place, page))
    elif target.startswith(("http:", "https:")):
        token.attrSet("rel", "noreferrer")
    if token.type == "image":
        token.attrSet("loading", "lazy")


def _plain(inline: Token) -> str:
    return "".join(t.content for t in inline.children or () if t.type in ("text", "code_inline"))


def _highlighted(text: str, language: str, _: Any) -> str:
    return str(code.coloured(text, language or "text"))


def _table_open(self: Any, tokens: Sequence[Token], n: int, *_: Any) -> str:
    label = f"Table {sum(token.type == 'table_open' for token in tokens[: n + 1])}"
    region = 'class="scroll" role="region" tabindex="0"'
    return f'<div {region} aria-label="{escape(label)}"><table>'


def _table_close(*_: Any) -> str:
    return "</table></div>\n"


def line(text: str) -> Markup:
    """One line of Markdown, without a paragraph around it."""
    return Markup(MarkdownIt("commonmark", {"html": False}).renderInline(text))
