"""`posenc results`: read what a study has stored, ask it, and export it."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from posenc.commands.app import MEASURE, command
from posenc.commands.errors import UsageError, of_studies
from posenc.commands.options import (
    NOWHERE,
    AllowCode,
    Flag,
    Names,
    Output,
    Place,
    allowed,
    print_json,
)
from posenc.commands.progress import progress
from posenc.support.text import printable


@Parameter(name="*")
@dataclass(frozen=True)
class Export:
    """Files with every outcome.

    Attributes
    ----------
    csv
        Write all outcomes, prompt by prompt, to this new file.
    parquet
        The same as Parquet, which needs the extra `parquet`.
    """

    csv: Place | None = None
    parquet: Place | None = None

    def write(self, contents: Any) -> None:
        from posenc.lab.study import export

        for file, write in ((self.csv, export.write_csv), (self.parquet, export.write_parquet)):
            if file is not None:
                _export(file, contents, write)


@Parameter(name="*")
@dataclass(frozen=True)
class Questions:
    """What else the outcomes are asked.

    Attributes
    ----------
    properties
        Also ask whether the measured properties of the encodings foretell the outcomes: each
        encoding is predicted by a fit on the other families.
    bands
        Ask which pairs of a RoPE break a text that is too long: in each model that the study kept,
        one band of pairs after another is slowed to angles that training has met, and stopped, at 2
        and 4 times the trained length. Write each outcome to this new CSV file.
    against
        The store of a study that this one repeats: also say which cells are equal to its, and
        whether each row agrees within its interval.
    """

    properties: Flag = False
    bands: Place | None = None
    against: Place | None = None


@dataclass(frozen=True)
class Answers:
    """What the outcomes say to the `Questions`; empty where one was not asked."""

    properties: list[Any] | None = None
    bands: list[Any] = field(default_factory=list)
    repetition: list[Any] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        if self.properties is not None:
            answers["properties"] = [one.to_json() for one in self.properties]
        if self.bands:
            answers["bands"] = [one.to_json() for one in self.bands]
        if self.repetition:
            answers["repetition"] = [one.to_json() for one in self.repetition]
        return answers


NO_QUESTIONS, NO_EXPORT = Questions(), Export()


@command(
    MEASURE,
    place=3,
    takes="[PATH]",
    examples=(
        ("posenc results runs/", ""),
        ("posenc results runs/ --task copy --csv outcomes.csv", "every outcome"),
        ("posenc results runs/ --properties", "do measured properties foretell them?"),
    ),
)
def results(
    path: Place | None = None,
    /,
    *,
    from_: Annotated[Place | None, Parameter(name="--from")] = None,
    task: Names = (),
    encoding: Names = (),
    protocol: str | None = None,
    cells: Flag = False,
    merge: Annotated[list[Place] | None, Parameter(consume_multiple=True, negative="")] = None,
    questions: Questions = NO_QUESTIONS,
    exported: Export = NO_EXPORT,
    allow_code: AllowCode = (),
    output: Output = NOWHERE,
) -> None:
    """Read the results of a study: its table, its cells, every outcome.

    Nothing in it is changed but by --merge. Its page may be written into the folder of the study.

    Parameters
    ----------
    path
        The folder of a study, or its results.db.
    from_
        The same of somebody else.
    task
        Only these tasks.
    encoding
        Only these encodings, by their names or by their labels.
    protocol
        How answers are graded: generated, forced, windowed, shuffled; sliding, apart, cropped.
    merge
        First write the cells of these stores, parts of the same plan, into the store of this
        folder, which is made where there is none.
    cells
        List the cells instead of the table.
    """
    if (path is None) == (from_ is None):
        raise UsageError("name one store: the folder of a study, or its results.db.")
    where = path or from_ or Path()
    code, result, answers = allowed(allow_code), None, Answers()
    with of_studies():
        from posenc.lab.study import analysis, export, store

        output.prepare(beside=_is_a_study(output.out))
        if merge:
            from posenc.lab.study.merge import merge as join

            print(
                f"{join(where, merge):,} cells are new in {printable(str(where))}", file=sys.stderr
            )
        contents = store.read(where)
        if not contents.checked:
            print(
                f"note: {printable(str(contents.path))} has format 1, which holds no checksums:"
                " a changed outcome would not show",
                file=sys.stderr,
            )
        try:
            chosen = export.chosen(contents, {"task": task, "encoding": encoding})
        except LookupError as error:
            raise UsageError(error.args[0]) from None
        exported.write(chosen)
        swapped = _swapped(where, questions.bands, encoding, code)
        asked = output.out, output.json, cells, protocol, questions.properties, questions.against
        if (exported.csv or exported.parquet) and not any(asked):
            return
        repeated = _repeated(chosen, questions.against, protocol)
        if output.out is not None or not cells:
            result = analysis.analyse(contents, protocol).only(task, encoding)
            foretold = _foretold(contents, result, code) if questions.properties else None
            answers = Answers(foretold, swapped, repeated)
    if output.out is not None:
        from posenc.lab.study.summary import summarise

        with progress() as say:
            output.write(summarise(contents, result), say)
        output.open_page()
    if output.json:
        table = None if cells or result is None else result.to_json() | answers.to_json()
        return print_json(_cells(chosen) if table is None else table)
    _print(None if cells else result, chosen, answers, output)


def _is_a_study(folder: Path | None) -> bool:
    from posenc.lab.study import store

    return folder is not None and any(
        (folder / name).exists() for name in (store.RESULTS, store.RUNNING)
    )


def _swapped(where: Path, file: Path | None, encodings: Sequence[str], code: Any) -> list[Any]:
    """Swap bands of the kept models, write each outcome, and say what each band brings back."""
    if file is None:
        return []
    from posenc.lab.study.bands import recoveries, swap_kept, write_csv

    folder = where if where.is_dir() else where.parent
    try:
        with progress() as say:
            swapped = swap_kept(folder, encodings, progress=say, allow_code=code)
    except ValueError as error:
        raise UsageError(str(error)) from None
    _export(file, swapped, write_csv)
    return recoveries(swapped)


def _repeated(chosen: Any, against: Path | None, protocol: str | None) -> list[Any]:
    """Hold the outcomes against those of a first study."""
    if against is None:
        return []
    from posenc.lab.study import store
    from posenc.lab.study.repetition import repetition

    try:
        return repetition(chosen, store.read(against), protocol)
    except ValueError as error:
        if isinstance(error, store.StoreError):
            raise
        raise UsageError(f"--against: {error}") from None


def _foretold(contents: Any, result: Any, code: Any) -> list[Any]:
    """Ask the measured properties of the encodings for the outcomes."""
    from posenc.lab.study.prediction import predict

    try:
        return predict(contents, result, allow_code=code)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _cells(chosen: Any) -> list[dict[str, Any]]:
    """The cells as JSON."""
    return [
        {"cell": digest, "settings": record.cell.settings, "label": record.cell.name}
        | {"failure": record.failure, "parameters": record.parameters}
        | {"means": [[*place, outcome.mean] for place, outcome in record.outcomes.items()]}
        for digest, record in chosen.records.items()
    ]


def _print(result: Any, chosen: Any, answers: Answers, output: Output) -> None:
    """Print the table of a result, and its answers; without one, its cells."""
    from posenc.show.report.kinds.study import terminal

    console = Console()
    if result is None:
        terminal.cells(chosen, console)
    else:
        terminal.show(result, console)
        for prediction in answers.properties or ():
            terminal.prediction(prediction, console)
        terminal.bands(answers.bands, console)
        terminal.repetition(answers.repetition, console)
    output.say_where(console)


def _export(file: Path, contents: Any, write: Callable[[Any, Path], int]) -> None:
    try:
        rows = write(contents, file)
    except FileExistsError:
        raise UsageError(f"{file} exists already: name a new file.") from None
    except ImportError as error:
        raise UsageError(str(error)) from None
    print(f"{printable(str(file), 4_000)}: {rows:,} rows", file=sys.stderr)
