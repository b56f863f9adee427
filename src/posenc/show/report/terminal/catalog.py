"""Print the catalogue or the card of one encoding, without importing torch."""

from collections.abc import Collection, Iterable
from textwrap import indent
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from posenc.show.report import phrases
from posenc.show.report.guide import Use
from posenc.show.report.terminal.tables import MARKS, empty_table

BROKEN = "✗", "bold red"  # only for promises: a property need not hold
FAMILIES = {  # in the order of printing, the most used first
    "rotary": "Turned: queries and keys are rotated by position",
    "bias": "Biases: added to scores, by distance or by the content of tokens",
    "additive": "Added: to the embeddings, before the first layer",
    "relative": "Relative: distance meets content in the scores",
    "none": "Nothing, to compare with",
}


def print_catalog(cards: Collection[dict[str, Any]], console: Console) -> None:
    """Print the encodings, grouped by family.

    Into a pipe, print one line for each encoding, with fields separated by tabs: name, family,
    users or paper, and summary.
    """
    if not console.is_terminal:
        for card in cards:
            fields = card["name"], card["family"], card["used_by"] or card["paper"]["short"]
            print(*fields, card["summary"].rstrip("."), sep="\t", file=console.file)
        return
    by_family: dict[str, list[dict[str, Any]]] = {family: [] for family in FAMILIES}
    for card in cards:
        by_family[card["family"]].append(card)
    widest = max(len(card["name"]) for card in cards)
    for family, members in by_family.items():
        table = Table(
            box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, expand=True
        )
        table.add_column(width=widest, no_wrap=True)
        for ratio in (5, 2):
            table.add_column(ratio=ratio)
        for card in sorted(members, key=lambda card: not card["used_by"]):
            used = Text(card["used_by"] or card["paper"]["short"], "" if card["used_by"] else "dim")
            table.add_row(Text(card["name"], "bold"), escape(card["summary"].rstrip(".")), used)
        console.print(Text(FAMILIES[family], "bold blue"))
        console.print(table)
    console.print(Text("Right: who uses it, or its paper. All of one: posenc show NAME", "dim"))


def print_card(card: dict[str, Any], console: Console) -> None:
    """Print an encoding from the data of `posenc show --json`."""
    for kind, block in phrases.blocks(card["text"]):
        # The lines of a formula stay as they are
        if kind == "formula":
            console.print(Text(indent(block, "    ")), soft_wrap=True)
        else:
            console.print(Text(block))
        console.print()
    if card["properties"]:
        table = empty_table("property", "", "measured")
        for name, finding in card["properties"].items():
            mark, style = MARKS[finding["holds"]]
            table.add_row(phrases.label(name), Text(mark, style), escape(finding["why"]))
        console.print(table)
    if card["causal"]:
        console.print(Text(phrases.masked([card["title"]]), "dim"))
    if promises := card.get("promises"):
        table = empty_table("promise", "", "tried")
        for name, outcome in promises.items():
            mark, style = BROKEN if outcome["holds"] is False else MARKS[outcome["holds"]]
            table.add_row(name, Text(mark, style), escape(outcome["why"]))
            if outcome["remedy"]:
                table.add_row("", Text("→"), Text(outcome["remedy"]))
        console.print()
        console.print(table)
    if card["paper"]:
        console.print()
        console.print(Text(card["paper"]["bibtex"]), soft_wrap=True)


def print_uses(rows: Iterable[Use], console: Console) -> None:
    """Print the guide to choosing an encoding: each use, the recommended encoding, the reasons."""
    for row in rows:
        console.print(Text(row.use, "bold blue"))
        console.print(Text(f"  {row.answer}", "bold"))
        console.print(Padding(Text(row.reason.replace("*", "")), (0, 0, 0, 2)))
        parts = {"done by": row.does, "measured": row.measured, "not known": row.unknown}
        for name, said in parts.items():
            console.print(Padding(Text(f"{name}: {said.replace('*', '')}", "dim"), (0, 0, 0, 2)))
