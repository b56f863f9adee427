"""Shared helpers for tables and sentences on the terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Signs for properties that hold, fail, or are not applicable
MARKS = {True: ("✓", "green"), False: ("·", "dim"), None: ("–", "dim")}


def empty_table(*heads: str, gap: int = 2) -> Table:
    """Make an empty table with these column headings."""
    table = Table(
        box=box.SIMPLE_HEAD,
        # The box adds one space
        padding=(0, gap - 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for n, head in enumerate(heads):
        table.add_column(head, no_wrap=n == 0)
    return table


def sentence(text: str, console: Console, mark: str = "", style: str = "") -> None:
    """Print a sentence after `mark`: wrapped on a terminal, as one line into a pipe."""
    if not (mark and console.is_terminal):
        console.print(Text(mark + text, style), soft_wrap=not console.is_terminal)
        return
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_row(Text(mark, style), Text(text, style))
    console.print(grid)
