"""Tables as rich prints them: the first column whole, others as wide as there is room."""

import io

from rich.console import Console

from posenc.show.report.terminal.tables import empty_table


def test_names_in_the_first_column_are_never_broken():
    console = Console(file=io.StringIO(), width=24)
    table = empty_table("", "what it does")
    table.add_row("a name of words", "turns queries and keys")
    console.print(table)
    assert "a name of words" in console.file.getvalue()
