"""`posenc arena`: one's encoding through a frozen suite, and onto a board."""

import shlex
import sys
import time
from pathlib import Path
from random import SystemRandom
from typing import Annotated, Any

from cyclopts import Parameter, validators

from posenc.commands.app import app
from posenc.commands.errors import Failure, UsageError, of_studies
from posenc.commands.options import AllowCode, AsJson, Name, Place, allowed, print_json
from posenc.commands.progress import progress
from posenc.commands.study import in_words, write_study_page
from posenc.core.text import printable

BOARD = Path("studies/board")


@app.command
def arena(
    encoding: str | None = None,
    /,
    *,
    suite: str = "v1",
    out: Place | None = None,
    workers: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=4096))] = 2,
    device: Name = "cpu",
    max_minutes: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    add: Place | None = None,
    board: Place = BOARD,
    draw: Annotated[int | None, Parameter(validator=validators.Number(gte=0))] = None,
    allow_code: AllowCode = (),
    as_json: AsJson = False,
) -> None:
    """Measure an encoding by a frozen suite, beside NoPE, RoPE and RoPE in a window.

    Each part of the suite is a study in a folder of its own, and the same command goes on where it
    was. Rates are chosen within the trained length. The rules: docs/arena.md.

    Parameters
    ----------
    encoding
        As `posenc list` spells it, or my_module.py:Mine, which runs that code. Without one, say
        what the suite asks for.
    suite
        The name of the suite.
    out
        A folder for the studies; by default arena- and the suite.
    workers
        Processes, each with one thread: as many as there are cores to spare.
    device
        Where cells are trained, as torch names it: cuda, cuda:1, mps.
    max_minutes
        Begin only what ends in that time.
    add
        A folder with the studies of an arena that is done: verify it, train one cell of it again,
        and add its row to the board.
    board
        The folder of the board.
    draw
        The number that chooses the cell; by default a random one, which the row says.
    as_json
        Print one JSON document instead of words.
    """
    if encoding is not None and add is not None:
        raise UsageError("--add takes a folder that is done: name no encoding beside it.")
    with of_studies():
        from posenc.lab.arena.suite import Suite

        chosen = Suite.named(suite)
        if add is not None:
            return _add(chosen, add, board, draw, allowed(allow_code), as_json)
        if encoding is None:
            return _describe(chosen, as_json)
        folder = Path(f"arena-{suite}") if out is None else out
        settings = {"workers": workers, "device": device}
        _run(chosen, encoding, folder, settings, max_minutes, [encoding, *allowed(allow_code)])


def _run(
    suite: Any,
    encoding: str,
    folder: Path,
    settings: dict[str, Any],
    minutes: float | None,
    code: list[str],
) -> None:
    from posenc.lab.study import analysis, execute, store

    begun, missing, wrong = time.monotonic(), 0, 0
    for name, plan in suite.plans(encoding).items():
        spent = (time.monotonic() - begun) / 60
        if minutes is not None and spent >= minutes:
            missing += len(plan.cells()) + len(plan.trials())
            continue
        place = folder / name
        line = f"{name}: sha256 {plan.digest}, in {printable(str(place))}"
        with progress(estimate=False) as say:
            ended = execute.study(
                plan, place, max_minutes=None if minutes is None else minutes - spent,
                progress=in_words(say, line), allow_code=code, **settings,
            )  # fmt: skip
        contents = store.read(place)
        write_study_page(contents, analysis.analyse(contents), place)
        missing += len(ended.missing)
        wrong += sum(not why.startswith(("left out", "stopped")) for _, why in ended.missing)
    if missing:
        words = "posenc", "arena", encoding, "--suite", suite.name, "--out", str(folder)
        print(f"{missing} cells are not done; to go on: {shlex.join(words)}", file=sys.stderr)
    if wrong:
        raise Failure(f"{wrong} cells could not be done.")


def _add(suite: Any, folder: Path, place: Path, draw: int | None, code: Any, as_json: bool) -> None:
    from posenc.lab.arena import board

    drawn = SystemRandom().randrange(2**32) if draw is None else draw
    stores = board.verify(folder, suite, code)
    board.rows_before(place, suite, board.outcomes_of(stores))  # before minutes of training
    print(f"{printable(str(folder))} is whole; a cell is trained again", file=sys.stderr)
    with progress() as say:
        again = board.repeat(stores, drawn, progress=lambda cell, far: say(
            f"{cell.task} {cell.name} {cell.seed}", far.step, far.steps
        ))  # fmt: skip
    row = board.board_row(suite, stores, again)
    page = board.add(place, suite, row)
    if as_json:
        return print_json(row)
    how = "equal bit by bit" if again.equal else f"{again.again:.4f}, stored {again.stored:.4f}"
    print(f"{printable(again.cell)} ({again.study}, drawn by {drawn}): {how}")
    print(f"added to {printable(str(page), 4_000)}")


def _describe(suite: Any, as_json: bool) -> None:
    """Say what a suite asks for, with ALiBi in the place of the entry."""
    plans = suite.plans("alibi")
    if as_json:
        return print_json(
            {"suite": suite.name, "digest": suite.digest}
            | {"studies": {name: plan.text for name, plan in plans.items()}}
        )
    print(f"suite {suite.name}, sha256 {suite.digest}")
    for name, plan in plans.items():
        cells = len(plan.cells()) + len(plan.trials())
        rates = ", ".join(f"{rate:g}" for rate in plan.rates)
        print(
            f"{name}: {', '.join(plan.tasks)}, L = {plan.trained}, {plan.profile.steps:,} steps,"
            f" rates {rates}, {plan.seeds} seeds, {plan.profile.prompts} prompts: {cells} cells"
        )
