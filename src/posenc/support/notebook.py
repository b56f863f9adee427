"""Small tables, cards and curves in HTML, for results and encodings in a notebook.

All text is escaped. Text colours are inherited, so they fit light and dark themes.
"""

from collections.abc import Iterable, Sequence
from html import escape

CELL = "text-align:left;padding:1px 8px 1px 0"
WIDE, HIGH = 120, 28  # size of a small curve, in pixels
CARD = "border-left:3px solid #0072B2;padding:2px 0 2px 12px;margin:4px 0;line-height:1.4"


class Html(str):
    """A string of HTML, which `table` inserts without escaping it."""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return an HTML table, in which the first cell of each row is the heading of the row.

    >>> table(["name", "holds"], [["a < b", "✓"]]).count("&lt;")
    1
    """
    cells = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    lines = [
        f'<tr><th scope="row">{escape(str(first))}</th>'
        + "".join(f"<td>{_cell(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    ]
    title = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    # One style rule for all cells keeps the HTML small
    return (
        f'<table class="posenc">{title}<thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
        f"<style>.posenc th,.posenc td{{{CELL}}}</style>"
    )


def card(title: str, lines: Iterable[str], formula: str = "", more: str = "") -> str:
    """Return an HTML card with a title, lines and a formula; `more` is HTML to append."""
    body = "".join(f"<div>{escape(line)}</div>" for line in lines if line)
    shown = f'<pre style="margin:6px 0">{escape(formula)}</pre>' if formula else ""
    return f'<div style="{CARD}"><b>{escape(title)}</b>{body}{shown}{more}</div>'


def curve(values: Sequence[float], label: str) -> Html:
    """Return a small curve of numbers with a line at 0; `label` is for screen readers.

    >>> curve([0.0, 1.0], "rises").count("polyline")
    1
    """
    high, low = max(*values, 0.0), min(*values, 0.0)
    scale = (HIGH - 4) / (high - low or 1.0)
    down = [2 + (high - value) * scale for value in values]
    step = WIDE / max(len(values) - 1, 1)
    points = " ".join(f"{n * step:.1f},{y:.1f}" for n, y in enumerate(down))
    zero = f"{2 + high * scale:.1f}"
    return Html(
        f'<svg role="img" aria-label="{escape(label)}" width="{WIDE}" height="{HIGH}">'
        f'<path d="M0 {zero}H{WIDE}" stroke="currentColor" stroke-opacity=".3"/>'
        f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="2"/></svg>'
    )


def _cell(value: object) -> str:
    return value if isinstance(value, Html) else escape(str(value))
