"""`posenc arena`: compare an encoding with baselines in a fixed suite of training studies."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from posenc.commands.app import MEASURE, command
from posenc.commands.errors import Failure, study_errors
from posenc.commands.options import AllowCode, AsJson, Flag, Name, Place, allowed, print_json
from posenc.commands.progress import progress
from posenc.commands.study import status_printer, write_study_page
from posenc.support.text import printable


@command(
    MEASURE,
    place=4,
    arguments="[ENCODING]",
    examples=(
        ("posenc arena", "the studies of the suite, and the time that they take"),
        ("posenc arena my_module.py:Mine --quick", "a first look in about ten minutes"),
        ("posenc arena my_module.py:Mine --workers 8 --out mine", "the same command continues it"),
    ),
)
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
    allow_code: AllowCode = (),
    as_json: AsJson = False,
) -> None:
    """Compare an encoding with NoPE, RoPE and controls in a fixed suite of training studies.

    Each part of the suite is a study in its own folder. If the suite is interrupted, the same
    command continues it. docs/studies.md has the rules, and explains how to submit results.

    Parameters
    ----------
    encoding
        A name in `posenc list`, or an encoding of your own, written as my_module.py:Mine, whose
        code posenc runs. Without ENCODING, the command describes the suite.
    suite
        The name of the suite: v2 for two cores, or v2-gpu for a larger model.
    out
        A folder for the studies; by default "arena-" and the name of the suite.
    workers
        The number of processes that train models, each with one thread. Use at most the number of
        free processor cores.
    device
        The torch device for training: cpu, cuda, cuda:1 or mps.
    max_minutes
        Start only training runs that will end within this number of minutes.
    quick
        Train with two seeds in one small study, and show the results beside stored results of other
        encodings. The study takes about ten minutes on two cores.
    baselines
        A folder with an earlier run of the suite. The results of NoPE, RoPE and the controls in
        this folder are used again if code, versions, processor and device are the same.
    as_json
        Print one JSON document instead of text.
    """
    with study_errors():
        from posenc.lab.arena.suite import Suite

        chosen = Suite.named(suite)
        if encoding is None:
            return _describe(chosen, as_json)
        settings = {"workers": workers, "device": device}
        if quick:
            return _quick(chosen, encoding, out or Path("arena-quick"), settings, allow_code)
        folder = Path(f"arena-{suite}") if out is None else out
        code = [encoding, *allowed(allow_code)]
        _run(chosen, encoding, folder, baselines, settings, max_minutes, code)


def _quick(
    suite: Any, encoding: str, folder: Path, settings: dict[str, Any], allow_code: AllowCode
) -> None:
    """Train small models with two seeds, and print accuracies by length beside stored baselines."""
    from posenc.lab.arena import quick

    code = [encoding, *allowed(allow_code)]
    try:
        with progress(estimate=False) as update:
            line = status_printer(update, f"in {folder}")
            found = quick.run(encoding, folder, line, allow_code=code, **settings)
    except KeyboardInterrupt:
        words = [encoding, "--quick", "--out", str(folder)]
        print(f"\nto continue: posenc arena {shlex.join(words)}", file=sys.stderr)
        raise
    print("\n".join(quick.lines(found)))
    hours = _estimate(suite, settings["workers"]).capitalize()
    print(
        f"A first look, not a verdict: {quick.SEEDS} seeds and one learning rate. For a verdict run"
        f" `posenc arena {shlex.quote(encoding)}`. {hours}"
    )


def _run(
    suite: Any,
    encoding: str,
    folder: Path,
    earlier: Path | None,
    settings: dict[str, Any],
    minutes: float | None,
    code: list[str],
) -> None:
    from posenc.lab.arena import baselines
    from posenc.lab.study import analysis, environment, execute, store

    begun, missing, wrong = time.monotonic(), 0, 0
    words = [encoding, "--suite", suite.name, "--out", str(folder)]
    words += [] if earlier is None else ["--baselines", str(earlier)]
    for name, value in settings.items():
        words.append(f"--{name}={value}")
    resume_line = f"to continue: posenc arena {shlex.join(words)}"
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
            if earlier and (copied := baselines.reuse(plan, place, earlier / name, device)):
                print(f"{name}: {copied} training runs of baselines are reused", file=sys.stderr)
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
        print(f"{missing} training runs are not done; {resume_line}", file=sys.stderr)
    if wrong:
        raise Failure(f"{wrong} training runs failed.")


def _estimate(suite: Any, workers: int) -> str:
    """Return a sentence that estimates the run time of a whole suite, or "" if it is unknown."""
    hours = [suite.hours(name) for name in suite.studies]
    if None in hours:
        return ""
    return (
        f"suite {suite.name} takes about {sum(hours) / workers:.0f} hours with {workers} workers,"
        f" {sum(hours):.0f} hours of one core, less if runs are stored. It can be interrupted."
    )


def _describe(suite: Any, as_json: bool) -> None:
    """Print the studies of a suite, with ALiBi in place of the user's encoding."""
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
