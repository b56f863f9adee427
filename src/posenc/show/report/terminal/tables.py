"""What tables on the terminal have in common."""

from rich import box
from rich.table import Table

MARKS = {True: ("✓", "green"), False: ("·", "dim"), None: ("–", "dim")}  # signs of what holds


def empty_table(*heads: str, gap: int = 2) -> Table:
    """A table with these headings, and without rows so far."""
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
