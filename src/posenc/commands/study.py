"""`posenc study`: train small models on short texts, and test them on longer texts."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators
from rich.console import Console

from posenc.commands.app import MEASURE, app, command
from posenc.commands.errors import Failure, UsageError, study_errors
from posenc.commands.options import (
    AllowCode,
    AsJson,
    Flag,
    Name,
    Names,
    Place,
    allowed,
    print_json,
    write_page,
)
from posenc.commands.progress import Progress, progress
from posenc.support.extras import how_to_install
from posenc.support.text import printable

# Encodings of a study without a plan and names
USUAL_ENCODINGS = ("nope", "rope", "sinusoidal", "alibi", "t5")


@Parameter(name="*")
@dataclass(frozen=True)
class Content:
    """The options that describe a study, for use without a plan file.

    Attributes
    ----------
    task
        The tasks to train on: copy, copy-unique, copy-unique-4096, copy-repeat, copy-constant,
        both-unique, both-repeat, reverse, sort, mode, count, addition, hinted-addition, parity,
        recall, flip-flop and variables; marks-offset and marks-order, which use pictures; language,
        passkey, names, masked and sentences, which use a text file; images; or a task of your own,
        written as my_tasks.py:double, whose code posenc runs.
    encoding
        The encodings to compare: names in `posenc list`, or encodings of your own, written as
        my_module.py:Mine, whose code posenc runs.
    seeds
        The number of training runs of each encoding. Runs with the same seed are compared as pairs.
        A statistically certain difference needs at least 6 seeds.
    profile
        The size of the models and of their training: smoke (takes minutes), cpu (takes hours) or
        gpu.
    text
        A text file in UTF-8 for the tasks language, passkey, names and masked, by default Jane
        Austen's Northanger Abbey. For the task sentences, a file in which each line has a label, a
        tab and a sentence.
    images
        An .npz file for the task images, with the arrays `pictures` (picture, side, side) and
        `labels`. By default, the task uses the digits of scikit-learn.
    """

    task: Names = ()
    encoding: Names = ()
    seeds: int | None = None
    profile: str | None = None
    text: Place | None = None
    images: Place | None = None

    @property
    def named(self) -> bool:
        """True if at least one of these options is set."""
        return any(value not in (None, ()) for value in vars(self).values())

    def of_plan(self) -> dict[str, Any]:
        """Convert these options to the content of a plan file."""
        profile = self.profile or "smoke"
        usual = 1 if profile == "smoke" else 6
        files = {"text": self.text, "images": self.images}
        return {
            "tasks": [*self.task] or ["copy"],
            "encodings": [*self.encoding] or [*USUAL_ENCODINGS],
            "profile": profile,
            "seeds": usual if self.seeds is None else self.seeds,
        } | {name: str(path) for name, path in files.items() if path is not None}


NOTHING = Content()


@command(
    MEASURE,
    place=2,
    arguments="[PLAN]",
    examples=(
        ("posenc study --profile smoke --out runs/", "test that everything runs"),
        ("posenc study plan.toml --workers 8 --out runs/", ""),
        ("posenc study --resume runs/", "continue after an interruption"),
    ),
)
def study(
    plan: Place | None = None,
    /,
    *,
    content: Content = NOTHING,
    out: Place | None = None,
    resume: Place | None = None,
    workers: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=4096))] = 2,
    device: Name = "cpu",
    part: str | None = None,
    max_minutes: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    keep: Flag = False,
    deviate: Flag = False,
    pilot: Flag = False,
    allow_code: AllowCode = (),
    as_json: AsJson = False,
) -> None:
    """Train small transformers that differ only in their encoding, and test them on longer texts.

    If a study is interrupted, for example by Ctrl-C, the same command continues it; finished
    training runs are kept.

    Parameters
    ----------
    plan
        A TOML file with the hypothesis, tasks, encodings, profile, seeds, metric and contrasts of
        the study. The hash of this file is stored in the results before the first training. Without
        a plan, the options below describe the study. posenc runs code that is named in the plan
        only with --allow-code.
    out
        The folder for the results. The folder must be new or have results of the same plan; by
        default, its name contains the hash of the plan. The folder gets a page, `index.html`, which
        can be opened offline, and the numbers, `results.json`.
    resume
        The folder of an interrupted study. The command continues the plan that is stored in this
        folder.
    workers
        The number of processes that train models, each with one thread. Use at most the number of
        free processor cores.
    device
        The torch device for training: cpu, cuda, cuda:1 or mps. The trained models are tested on
        the CPU.
    part
        Run only a part of the training runs: 2/5 is the second of five parts. Each part needs its
        own folder, so jobs on a cluster or on several GPUs need no shared folder. Afterwards, merge
        the parts with `posenc results FOLDER --merge PART …`.
    max_minutes
        Start only training runs that will end within this number of minutes, and list the other
        runs. The time of a run is estimated from finished runs.
    keep
        Save the trained models in the folder of the results.
    deviate
        Continue a study although its plan, the code of posenc or the version of a package has
        changed. The results of the study list the changes.
    pilot
        Run a plan that has no controls or too few seeds, and mark the results as not evidence. A
        study without a plan is always a pilot.
    as_json
        Print one JSON document instead of tables.
    """
    if not (content.named or keep) and plan is resume is out is part is None:
        return app.help_print(["study"])
    if resume is not None and (plan or content.named or out):
        raise UsageError(
            "`--resume` continues the plan in its folder, so it accepts no other plan. Leave out"
            " PLAN, --out, and options that make a plan, such as --task."
        )
    if plan is not None and content.named:
        raise UsageError(
            f"the study must be described by a plan or by options, got {plan} and options. Leave"
            " out the plan or the options."
        )
    folder = out if resume is None else resume
    share = _part(part)
    code = [*content.task, *content.encoding, *allowed(allow_code)]
    with study_errors():
        _refuse_running(folder)
        from posenc.lab.study import analysis, execute, store

        registered = _registered(plan, content, resume)
        folder = Path(f"study-{registered.digest[:8]}") if folder is None else folder
        _check_page_folder(folder)
        line = f"registered: sha256 {registered.digest}, in {printable(str(folder))}"
        again = [f"--part={part}"] if part else []
        again += ["--keep"] if keep else []
        again += [f"--device={device}"] if device != "cpu" else []
        pilot = pilot or (plan is None and resume is None)
        if pilot:
            print("note: this is a pilot, not evidence", file=sys.stderr)
        try:
            with progress(estimate=False) as update:
                ended = execute.study(
                    registered, folder, workers, max_minutes=max_minutes,
                    keep=keep, deviate=deviate, progress=status_printer(update, line),
                    allow_code=code,
                    part=share, device=device, pilot=pilot,
                )  # fmt: skip
        except KeyboardInterrupt:
            resume_line = _resume_line(folder, *again, code=registered.code)
            print(f"\nto continue: {resume_line}", file=sys.stderr)
            raise
        contents = store.read(folder)
        result = analysis.analyse(contents)
    missing = [f"{cell.task} {cell.name}, seed {cell.seed}: {why}" for cell, why in ended.missing]
    if as_json:
        print_json(result.to_json() | {"missing": missing})
    else:
        from posenc.show.report.kinds.study import terminal

        terminal.print_analysis(result, Console())
    write_study_page(contents, result, folder)
    for line in missing:
        print(f"not done: {printable(line, 1_000)}", file=sys.stderr)
    if missing:
        resume_line = _resume_line(folder, *again, code=registered.code)
        print(f"to continue: {resume_line}", file=sys.stderr)
    wrong = [why for _, why in ended.missing if not why.startswith(("left out", "stopped"))]
    if wrong:
        raise Failure(
            f"{len(wrong)} of {ended.of} training runs failed. The lines above have the reasons."
        )


def _part(words: str | None) -> tuple[int, int]:
    """Parse `--part`: "2/5" is the second of five parts; without it, (1, 1) is returned."""
    if words is None:
        return 1, 1
    parts = [int(word) if word.isdecimal() else 0 for word in words.split("/")]
    if len(parts) != 2 or not 1 <= parts[0] <= parts[1] <= 100_000:
        raise UsageError(f"`--part` must be like 2/5, the second of five parts, got {words!r}.")
    return parts[0], parts[1]


def _refuse_running(folder: Path | None) -> None:
    """Raise Locked if a study is running in the folder, before the slow import of torch."""
    from posenc.lab.study import lock

    if folder is not None and folder.exists():
        with lock.locked(folder):
            pass


def _registered(plan: Path | None, content: Content, resume: Path | None) -> Any:
    """Return the plan of a study from the folder `resume`, the file `plan` or the options."""
    from posenc.lab.study import analysis, store
    from posenc.lab.study.plan import Plan

    if resume is not None:
        if (registered := analysis.plan_of(store.read(resume))) is None:
            raise UsageError(
                f"`--resume` must be a folder with a plan, got {resume} without one. Name the"
                " folder of a study that has begun."
            )
        return registered
    return Plan.of(content.of_plan(), "the options") if plan is None else Plan.read(plan)


def _check_page_folder(folder: Path) -> None:
    """Raise UsageError if the folder has a page that posenc did not write."""
    from posenc.show.report.output_folder import reserve

    try:
        reserve(folder, beside=True)
    except OSError as error:
        raise UsageError(f"--out: {error}") from None


def write_study_page(contents: Any, result: Any, folder: Path) -> None:
    """Write a study's page into its folder; without the extra `report`, print how to install it."""
    try:
        from posenc.show.report import page
    except ImportError as error:
        print(
            f"no page: the extra `report` is not installed ({error.name} is missing):"
            f" {how_to_install('report')}",
            file=sys.stderr,
        )
        return
    from posenc.lab.study.summary import summarise

    write_page(summarise(contents, result), folder)
    print(f"the page: {printable(str(folder / page.PAGE), 4_000)}", file=sys.stderr)


def _resume_line(folder: Path, *options: str, code: Sequence[str]) -> str:
    """Return the command that continues a study."""
    words = (word for name in code for word in ("--allow-code", name))
    return shlex.join(["posenc", "study", "--resume", str(folder), *options, *words])


def status_printer(progress: Progress, first: str) -> Callable[[Any], None]:
    """Return a function that prints a study's status: running trainings, losses, speed and notes.

    - `progress`: progress function that receives the status as a line
    - `first`: line that is printed with the first status, when the plan is in the store
    """
    noted, begun = 0, False

    def update(status: Any) -> None:
        nonlocal noted, begun
        if not begun:
            print(first, file=sys.stderr)
        begun = True
        for note in status.notes[noted:]:
            print(f"note: {printable(note, 1_000)}", file=sys.stderr)
        noted = len(status.notes)
        parts = []
        for name, far in status.running.items():
            step = f" {far.step}/{far.steps}, loss {far.loss:.3g}" if far else ""
            parts.append(name + step + (f", {far.speed:,.0f} tokens/s" if far else ""))
        if status.left is not None:
            parts.append(f"{-(-status.left // 60):.0f} min left")
        progress("; ".join(parts) or "starting", status.done, status.of)

    return update
