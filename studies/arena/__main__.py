"""Run the arena's suite for an encoding, and add results to the board.

In a clone of the repository, or elsewhere with PYTHONPATH=CLONE:

python -m studies.arena                                             describe the suite
python -m studies.arena my_module.py:Mine --quick                   first look in ten minutes
python -m studies.arena my_module.py:Mine --workers 8 --out mine    run it; again to continue
python -m studies.arena --add mine --allow-code my_module.py:Mine   verify it, and add it
"""

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter, validators

from posenc.commands import cli
from posenc.commands.errors import Failure, UsageError, study_errors
from posenc.commands.options import AllowCode, AsJson, Flag, Name, Place, allowed, print_json
from posenc.commands.progress import progress
from posenc.commands.study import status_printer, write_study_page
from posenc.support.text import printable

BOARD = Path(__file__).parents[1] / "board"
BASELINES = Path(__file__).parent / "baselines"
NAME = "python -m studies.arena"
app = App(name=NAME, suppress_keyboard_interrupt=False)


@app.default
def arena(
    encoding: str | None = None,
    /,
    *,
    suite: str = "v2",
    out: Place | None = None,
    workers: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=4096))] = 2,
    device: Name = "cpu",
    max_minutes: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    quick: Flag = False,
    baselines: Place | None = None,
    add: Place | None = None,
    board: Place = BOARD,
    repeat: Annotated[int, Parameter(validator=validators.Number(gte=4, lte=10_000))] = 4,
    allow_code: AllowCode = (),
    as_json: AsJson = False,
) -> None:
    """Measure an encoding with a frozen suite, together with NoPE, RoPE and the controls.

    Each part of the suite is a study in its own folder, and the same command continues after an
    interruption. docs/studies.md has the rules.

    Parameters
    ----------
    encoding
        A name in `posenc list`, or my_module.py:Mine, whose code is run. Without one, the suite is
        described.
    suite
        The name of the suite: v2 for two cores, or v2-gpu for a larger model.
    out
        A folder for the studies; by default "arena-" and the name of the suite.
    workers
        Number of processes, each with one thread; at most the number of free cores.
    device
        A torch device for training: cuda, cuda:1, mps.
    max_minutes
        Start only cells that will end within this time.
    quick
        Run two seeds of one small study, and show them with the stored rows of
        studies/content-or-place-10. Takes about ten minutes on two cores.
    baselines
        A folder with an earlier run of the suite. Its rows, except those of its entry, are used
        again if code, versions, processor and device are the same.
    add
        A folder with finished studies of the suite: verify it, train some of its cells again, and
        add its row to the board.
    board
        The folder of the board.
    repeat
        Number of cells that --add trains again, at least 4. They are chosen by the digests of the
        stores.
    as_json
        Print one JSON document instead of text.
    """
    if encoding is not None and add is not None:
        raise UsageError("`--add` must be used without an encoding. Leave one of them out.")
    with study_errors():
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
        earlier = BASELINES / suite if baselines is None else baselines
        code = [encoding, *allowed(allow_code)]
        _run(chosen, encoding, folder, earlier, settings, max_minutes, code)


def _quick(
    suite: Any, encoding: str, folder: Path, settings: dict[str, Any], allow_code: AllowCode
) -> None:
    """Train two seeds, print their curve with stored ones, and print the command for a verdict."""
    from studies.arena import quick

    code = [encoding, *allowed(allow_code)]
    try:
        with progress(estimate=False) as update:
            line = status_printer(update, f"in {folder}")
            found = quick.run(encoding, folder, line, allow_code=code, **settings)
    except KeyboardInterrupt:
        words = [encoding, "--quick", "--out", str(folder)]
        print(f"\nto continue: {NAME} {shlex.join(words)}", file=sys.stderr)
        raise
    print("\n".join(quick.lines(*found)))
    print(
        f"A first look, not a verdict: {quick.SEEDS} seeds and one learning rate. For a verdict run"
        f" `{NAME} {shlex.quote(encoding)}`. {_estimate(suite, settings['workers']).capitalize()}"
    )


def _run(
    suite: Any,
    encoding: str,
    folder: Path,
    earlier: Path,
    settings: dict[str, Any],
    minutes: float | None,
    code: list[str],
) -> None:
    from posenc.lab.study import analysis, environment, execute, store
    from studies.arena import baselines

    begun, missing, wrong = time.monotonic(), 0, 0
    words = [encoding, "--suite", suite.name, "--out", str(folder)]
    words += [] if earlier.parent == BASELINES else ["--baselines", str(earlier)]
    for name, value in settings.items():
        words.append(f"--{name}={value}")
    resume_line = f"to continue: {NAME} {shlex.join(words)}"
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
            device = environment.device(settings["device"])
            if copied := baselines.reuse(plan, place, earlier / name, device):
                print(f"{name}: {copied} stored cells of baselines are used", file=sys.stderr)
            with progress(estimate=False) as update:
                ended = execute.study(
                    plan, place, max_minutes=None if minutes is None else minutes - spent,
                    progress=status_printer(update, line), allow_code=code,
                    pilot=bool(suite.draft), **settings,
                )  # fmt: skip
            contents = store.read(place)
            write_study_page(contents, analysis.analyse(contents), place)
            missing += len(ended.missing)
            wrong += sum(not why.startswith(("left out", "stopped")) for _, why in ended.missing)
    except KeyboardInterrupt:
        print(f"\n{resume_line}", file=sys.stderr)
        raise
    if missing:
        print(f"{missing} cells are not done; {resume_line}", file=sys.stderr)
    if wrong:
        raise Failure(f"{wrong} cells could not be done.")


def _estimate(suite: Any, workers: int) -> str:
    """Return a sentence with the time of a whole suite; empty if it is unknown."""
    hours = [suite.hours(name) for name in suite.studies]
    if None in hours:
        return ""
    return (
        f"suite {suite.name} takes about {sum(hours) / workers:.0f} hours with {workers} workers,"
        f" {sum(hours):.0f} hours of one core, less for stored cells. It can be interrupted."
    )


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


def _describe(suite: Any, as_json: bool) -> None:
    """Print the plans of a suite, with ALiBi as the entry."""
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
        profiles = [plan.profile_of(row).rate for row in plan.encodings]
        rates = ", ".join(f"{rate:g}" for rate in plan.rates or sorted({*profiles}))
        print(
            f"{name}: {', '.join(plan.tasks)}, L = {plan.trained}, {plan.profile.steps:,} steps,"
            f" rates {rates}, {plan.seeds} seeds, {plan.profile.prompts} prompts: {cells} cells"
        )
    if estimate := _estimate(suite, 2):
        print(estimate)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line; errors are printed as one line, as by `posenc`."""
    cli.main(words, app)


if __name__ == "__main__":
    main()
