"""`posenc study`: train short, test long, as a plan says."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators
from rich.console import Console

from posenc.commands.app import MEASURE, app, command
from posenc.commands.errors import Failure, UsageError, of_studies
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

# Studied where none is named
USUAL_ENCODINGS = ("nope", "rope", "sinusoidal", "alibi", "t5")


@Parameter(name="*")
@dataclass(frozen=True)
class Content:
    """What to study, where no plan says it.

    Attributes
    ----------
    task
        copy, copy-unique, copy-repeat, copy-constant, reverse, sort, mode, count, addition,
        hinted-addition, parity, recall, flip-flop; language, passkey, masked and sentences, made of
        a text; images; or one of your own, as my_tasks.py:double, which runs that code.
    encoding
        As `posenc list` spells them, or my_module.py:Mine, which runs that code.
    seeds
        Runs of each encoding, which are paired by seed; 6 can show a difference, fewer cannot.
    profile
        smoke (minutes), cpu (hours) or gpu: sizes of the model and of its training.
    text
        A text file in UTF-8 for language, passkey and masked, by default Jane Austen's Northanger
        Abbey; for sentences, with a label, a tab and a sentence a line.
    images
        An .npz file with arrays `pictures` (picture, side, side) and `labels`, for images; by
        default the digits of scikit-learn.
    """

    task: Names = ()
    encoding: Names = ()
    seeds: int | None = None
    profile: str | None = None
    text: Place | None = None
    images: Place | None = None

    @property
    def named(self) -> bool:
        """True where an option is given."""
        return any(value not in (None, ()) for value in vars(self).values())

    def of_plan(self) -> dict[str, Any]:
        """The content of a plan."""
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
    takes="[PLAN]",
    examples=(
        ("posenc study --profile smoke --out runs/", "to see that everything runs"),
        ("posenc study plan.toml --workers 8 --out runs/", ""),
        ("posenc study --resume runs/", "to go on after an interruption"),
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
    """Train small transformers that differ in their encoding alone, and test them on longer texts.

    What is done is kept: the same command goes on where it was, after Ctrl-C too.

    Parameters
    ----------
    plan
        A TOML file: hypothesis, tasks, encodings, profile, seeds, metric, contrast. Its hash is
        registered in the results before the first training. Without one, the options say it. Code
        that it names is run only with --allow-code.
    out
        A folder for the results, or one that has some of this plan; by default named by the plan.
        Its page, `index.html`, opens offline; the numbers of it are in `results.json`.
    resume
        A folder with a study: go on with the plan that is registered there.
    workers
        Processes, each with one thread: as many as there are cores to spare.
    device
        Where cells are trained, as torch names it: cuda, cuda:1, mps. They are tested on the CPU.
    part
        Run a share of the cells, 2/5 the second fifth, each in a folder of its own; then join them
        by `posenc results FOLDER --merge PART …`. An array of jobs on a cluster, or one command for
        each GPU, needs no shared folder.
    max_minutes
        Begin only what ends in that time, by what was measured, and say what is left out.
    keep
        Leave the trained models in the folder.
    deviate
        Go on although the plan, the code or a version has changed; the results will say so.
    pilot
        Run a plan without controls, or with too few seeds, and mark its results as no evidence.
        What options ask for, without a plan, is a pilot too.
    as_json
        Print one JSON document instead of tables.
    """
    if not (content.named or keep) and plan is resume is out is part is None:
        return app.help_print(["study"])
    if resume is not None and (plan or content.named or out):
        raise UsageError("--resume goes on with the plan in its folder: name nothing beside it.")
    if plan is not None and content.named:
        raise UsageError(f"{plan} says what to study: leave out what else you named of it.")
    folder = out if resume is None else resume
    share = _part(part)
    code = [*content.task, *content.encoding, *allowed(allow_code)]
    with of_studies():
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
            with progress(estimate=False) as say:
                ended = execute.study(
                    registered, folder, workers, max_minutes=max_minutes,
                    keep=keep, deviate=deviate, progress=in_words(say, line), allow_code=code,
                    part=share, device=device, pilot=pilot,
                )  # fmt: skip
        except KeyboardInterrupt:
            print(f"\nto go on: {_resuming(folder, *again, code=registered.code)}", file=sys.stderr)
            raise
        contents = store.read(folder)
        result = analysis.analyse(contents)
    missing = [f"{cell.task} {cell.name}, seed {cell.seed}: {why}" for cell, why in ended.missing]
    if as_json:
        print_json(result.to_json() | {"missing": missing})
    else:
        from posenc.show.report.kinds.study import terminal

        terminal.show(result, Console())
    write_study_page(contents, result, folder)
    for line in missing:
        print(f"not done: {printable(line, 1_000)}", file=sys.stderr)
    if missing:
        print(f"to go on: {_resuming(folder, *again, code=registered.code)}", file=sys.stderr)
    wrong = [why for _, why in ended.missing if not why.startswith(("left out", "stopped"))]
    if wrong:
        raise Failure(f"{len(wrong)} of {ended.of} cells could not be done.")


def _part(words: str | None) -> tuple[int, int]:
    """Read "2/5": the second of five parts."""
    if words is None:
        return 1, 1
    parts = [int(word) if word.isdecimal() else 0 for word in words.split("/")]
    if len(parts) != 2 or not 1 <= parts[0] <= parts[1] <= 100_000:
        raise UsageError(f"--part must be as 2/5, the second of five, got {words!r}.")
    return parts[0], parts[1]


def _refuse_running(folder: Path | None) -> None:
    """Refuse a folder in which a study runs: before torch is loaded, so that it answers at once."""
    from posenc.lab.study import lock

    if folder is not None and folder.exists():
        with lock.locked(folder):
            pass


def _registered(plan: Path | None, content: Content, resume: Path | None) -> Any:
    """The plan: of the folder, of the file, or of the options."""
    from posenc.lab.study import analysis, store
    from posenc.lab.study.plan import Plan

    if resume is not None:
        if (registered := analysis.plan_of(store.read(resume))) is None:
            raise UsageError(f"{resume} has no plan: name one.")
        return registered
    return Plan.of(content.of_plan(), "the options") if plan is None else Plan.read(plan)


def _check_page_folder(folder: Path) -> None:
    """Refuse a folder whose page is not one of posenc's, before a study begins in it."""
    from posenc.show.report.saving.folder import reserve

    try:
        reserve(folder, beside=True)
    except OSError as error:
        raise UsageError(f"--out: {error}") from None


def write_study_page(contents: Any, result: Any, folder: Path) -> None:
    """Write the page of a study beside its store; without the extra for pages, say how to."""
    try:
        from posenc.show.report import page
    except ImportError as error:
        print(
            f"no page: it needs the extra `report` ({error.name} is missing):"
            f" {how_to_install('report')}",
            file=sys.stderr,
        )
        return
    from posenc.lab.study.summary import summarise

    write_page(summarise(contents, result), folder)
    print(f"the page: {printable(str(folder / page.PAGE), 4_000)}", file=sys.stderr)


def _resuming(folder: Path, *options: str, code: Sequence[str]) -> str:
    words = (word for name in code for word in ("--allow-code", name))
    return shlex.join(["posenc", "study", "--resume", str(folder), *options, *words])


def in_words(progress: Progress, first: str) -> Callable[[Any], None]:
    """Say how far a study is: what runs, the last loss, tokens a second; and what went wrong.

    `first` is printed when it begins, for by then its plan is in the store.
    """
    noted, begun = 0, False

    def say(status: Any) -> None:
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
        if status.fit is not None:
            parts.append(f"{status.fit} fit into the time")
        progress("; ".join(parts) or "starting", status.done, status.of)

    return say
