"""Small tables and cards in HTML, as results and encodings show themselves in a notebook.

Every text is escaped; colours are those of the notebook, so they fit its light and dark theme.
"""

from collections.abc import Iterable, Sequence
from html import escape

CELL = "text-align:left;padding:1px 8px 1px 0"
CARD = "border-left:3px solid #0072B2;padding:2px 0 2px 12px;margin:4px 0;line-height:1.4"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table; the first cell of each row is its heading.

    >>> table(["name", "holds"], [["a < b", "✓"]]).count("&lt;")
    1
    """
    cells = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    lines = [
        f'<tr><th scope="row">{escape(str(first))}</th>'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    ]
    title = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    # one rule for all cells, which keeps the table small
    return (
        f'<table class="posenc">{title}<thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
        f"<style>.posenc th,.posenc td{{{CELL}}}</style>"
    )


def card(title: str, lines: Iterable[str], formula: str = "", more: str = "") -> str:
    """A card: title, sentences, a formula; `more` is HTML that follows."""
    body = "".join(f"<div>{escape(line)}</div>" for line in lines if line)
    shown = f'<pre style="margin:6px 0">{escape(formula)}</pre>' if formula else ""
    return f'<div style="{CARD}"><b>{escape(title)}</b>{body}{shown}{more}</div>'
