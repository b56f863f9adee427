"""One's encoding through a frozen suite, and onto a board; from the root of the repository.

python -m studies.arena                                          what the suite asks for
python -m studies.arena my_module.py:Mine --quick                a first look, in ten minutes
python -m studies.arena my_module.py:Mine --workers 8 --out mine again, to go on
python -m studies.arena --add mine --allow-code my_module.py:Mine  verified, and on the board
"""

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter, validators

from posenc.commands import cli
from posenc.commands.errors import Failure, UsageError, of_studies
from posenc.commands.options import AllowCode, AsJson, Flag, Name, Place, allowed, print_json
from posenc.commands.progress import progress
from posenc.commands.study import in_words, write_study_page
from posenc.support.text import printable

BOARD = Path("studies/board")
NAME = "python -m studies.arena"
app = App(name=NAME, suppress_keyboard_interrupt=False)


@app.default
def arena(
    encoding: str | None = None,
    /,
    *,
    suite: str = "v1",
    out: Place | None = None,
    workers: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=4096))] = 2,
    device: Name = "cpu",
    max_minutes: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    quick: Flag = False,
    add: Place | None = None,
    board: Place = BOARD,
    repeat: Annotated[int, Parameter(validator=validators.Number(gte=4, lte=10_000))] = 4,
    allow_code: AllowCode = (),
    as_json: AsJson = False,
) -> None:
    """Measure an encoding by a frozen suite, beside NoPE, RoPE and RoPE in a window.

    Each part of the suite is a study in a folder of its own, and the same command goes on where it
    was. Rates are chosen within the trained length. The rules: docs/studies.md.

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
    quick
        A first look: two seeds of one small study, beside the stored rows of
        studies/content-or-place-10. It takes about ten minutes on two cores.
    add
        A folder with the studies of an arena that is done: verify it, train cells of it again, and
        add its row to the board.
    board
        The folder of the board.
    repeat
        How many cells --add trains again, at least 4. The digests of the stores choose them.
    as_json
        Print one JSON document instead of words.
    """
    if encoding is not None and add is not None:
        raise UsageError("--add takes a folder that is done: name no encoding beside it.")
    with of_studies():
        from studies.arena.suite import Suite

        chosen = Suite.named(suite)
        if add is not None:
            return _add(chosen, add, board, repeat, allowed(allow_code), as_json)
        if encoding is None:
            return _describe(chosen, as_json)
        settings = {"workers": workers, "device": device}
        if quick:
            return _quick(chosen, encoding, out or Path("arena-quick"), settings, allow_code)
        folder = Path(f"arena-{suite}") if out is None else out
        _run(chosen, encoding, folder, settings, max_minutes, [encoding, *allowed(allow_code)])


def _quick(
    suite: Any, encoding: str, folder: Path, settings: dict[str, Any], allow_code: AllowCode
) -> None:
    """Train two seeds, print the curve beside stored ones, and name the command of a verdict."""
    from studies.arena import quick

    with progress(estimate=False) as say:
        code = [encoding, *allowed(allow_code)]
        found = quick.run(
            encoding, folder, in_words(say, f"in {folder}"), allow_code=code, **settings
        )
    print("\n".join(quick.lines(*found)))
    print(
        f"A first look, not a verdict: {quick.SEEDS} seeds and one learning rate. For a verdict run"
        f" `{NAME} {shlex.quote(encoding)}`. {_estimate(suite, settings['workers']).capitalize()}"
    )


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
    words = [encoding, "--suite", suite.name, "--out", str(folder)]
    for name, value in settings.items():
        words.append(f"--{name}={value}")
    go_on = f"to go on: {NAME} {shlex.join(words)}"
    plans = suite.plans(encoding)
    if estimate := _estimate(suite, settings["workers"]):
        print(estimate, file=sys.stderr)
    try:
        for name, plan in plans.items():
            spent = (time.monotonic() - begun) / 60
            if minutes is not None and spent >= minutes:
                missing += len(plan.cells()) + len(plan.trials())
                continue
            place = folder / name
            line = f"{name}: sha256 {plan.digest}, in {printable(str(place))}"
            with progress(estimate=False) as say:
                ended = execute.study(
                    plan, place, max_minutes=None if minutes is None else minutes - spent,
                    progress=in_words(say, line), allow_code=code,
                    pilot=bool(suite.draft), **settings,
                )  # fmt: skip
            contents = store.read(place)
            write_study_page(contents, analysis.analyse(contents), place)
            missing += len(ended.missing)
            wrong += sum(not why.startswith(("left out", "stopped")) for _, why in ended.missing)
    except KeyboardInterrupt:
        print(f"\n{go_on}", file=sys.stderr)
        raise
    if missing:
        print(f"{missing} cells are not done; {go_on}", file=sys.stderr)
    if wrong:
        raise Failure(f"{wrong} cells could not be done.")


def _estimate(suite: Any, workers: int) -> str:
    """The time that a suite takes from its beginning, in a sentence; empty where it is unknown."""
    hours = [suite.hours(name) for name in suite.studies]
    if None in hours:
        return ""
    return (
        f"suite {suite.name} takes about {sum(hours) / workers:.0f} hours with {workers} workers,"
        f" {sum(hours):.0f} hours of one core, less what is done. It can be interrupted."
    )


def _add(suite: Any, folder: Path, place: Path, count: int, code: Any, as_json: bool) -> None:
    from studies.arena import board

    try:
        stores = board.verify(folder, suite, code)
        # Before minutes of training
        rows = board.rows_before(place, suite, board.outcomes_of(stores))
    except board.BoardError as error:
        raise UsageError(str(error)) from None
    print(f"{printable(str(folder))} is whole; {count} cells are trained again", file=sys.stderr)
    with progress() as say:
        again = board.repeat(stores, rows, count, progress=lambda cell, step, steps: say(
            f"cell {cell + 1} of {count}", step, steps
        ))  # fmt: skip
    row = board.board_row(suite, stores, again)
    page = board.add(place, suite, row)
    if as_json:
        return print_json(row)
    for cell in row["repeat"]["cells"]:
        print(f"{printable(cell['cell'])} ({cell['study']}): {board.in_words(cell)}")
    print(f"added to {printable(str(page), 4_000)}")


def _describe(suite: Any, as_json: bool) -> None:
    """Say what a suite asks for, with ALiBi in the place of the entry."""
    plans = suite.plans("alibi")
    if as_json:
        return print_json(
            {"suite": suite.name, "digest": suite.digest, "draft": suite.draft}
            | {"studies": {name: plan.text for name, plan in plans.items()}}
        )
    print(f"suite {suite.name}, sha256 of its plans' texts {suite.digest}")
    if suite.draft:
        print(f"{suite.name} is a draft. {suite.draft}")
    for name, plan in plans.items():
        cells = len(plan.cells()) + len(plan.trials())
        rates = ", ".join(f"{rate:g}" for rate in plan.rates)
        print(
            f"{name}: {', '.join(plan.tasks)}, L = {plan.trained}, {plan.profile.steps:,} steps,"
            f" rates {rates}, {plan.seeds} seeds, {plan.profile.prompts} prompts: {cells} cells"
        )
    if estimate := _estimate(suite, 2):
        print(estimate)


def main(words: Sequence[str] | None = None) -> None:
    """Run what is typed; errors are one line, as those of `posenc`."""
    cli.main(words, app)


if __name__ == "__main__":
    main()
