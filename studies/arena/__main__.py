"""Verify results of the arena, and add them to the board of the repository.

python -m studies.arena mine --allow-code my_module.py:Mine

`mine` is a folder that `posenc arena` has written. docs/studies.md has the rules.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter, validators

from posenc.commands import cli
from posenc.commands.errors import UsageError, study_errors
from posenc.commands.options import AllowCode, AsJson, Place, allowed, print_json
from posenc.commands.progress import progress
from posenc.support.text import printable

BOARD = Path(__file__).parents[1] / "board"
app = App(name="python -m studies.arena", suppress_keyboard_interrupt=False)


@app.default
def add(
    folder: Place,
    /,
    *,
    suite: str = "v2",
    board: Place = BOARD,
    repeat: Annotated[int, Parameter(validator=validators.Number(gte=4, lte=10_000))] = 4,
    allow_code: AllowCode = (),
    as_json: AsJson = False,
) -> None:
    """Verify the finished studies of a suite, train some cells again, and add a row to the board.

    Parameters
    ----------
    folder
        A folder with finished studies of the suite, written by `posenc arena`.
    suite
        The name of the suite: v2 for two cores, or v2-gpu for a larger model.
    board
        The folder of the board.
    repeat
        Number of cells to train again, at least 4. They are chosen by the digests of the stores.
    as_json
        Print the new row of the board as JSON.
    """
    with study_errors():
        from posenc.lab.arena.suite import Suite

        _add(Suite.named(suite), folder, board, repeat, allowed(allow_code), as_json)


def _add(suite: Any, folder: Path, place: Path, count: int, code: Any, as_json: bool) -> None:
    from studies.arena import board

    try:
        stores = board.verify(folder, suite, code)
        # Read the board before the minutes of training, to find errors early
        rows = board.rows_before(place, suite, board.outcomes_of(stores))
    except board.BoardError as error:
        raise UsageError(str(error)) from None
    print(f"{printable(str(folder))} is verified; training {count} cells again", file=sys.stderr)
    with progress() as update:
        again = board.repeat(stores, rows, count, progress=lambda cell, step, steps: update(
            f"cell {cell + 1} of {count}", step, steps
        ))  # fmt: skip
    row = board.board_row(suite, stores, again)
    page = board.add(place, suite, row)
    if as_json:
        return print_json(row)
    for cell in row["repeat"]["cells"]:
        print(f"{printable(cell['cell'])} ({cell['study']}): {board.describe_repeat(cell)}")
    print(f"added to {printable(str(page), 4_000)}")


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line; errors are printed as one line, as by `posenc`."""
    cli.main(words, app)


if __name__ == "__main__":
    main()
