"""`posenc results`: tables, pages and exports of a study's stored outcomes."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from posenc.commands.app import MEASURE, command
from posenc.commands.errors import UsageError, study_errors
from posenc.commands.options import (
    NOWHERE,
    Flag,
    Names,
    Output,
    Place,
    print_json,
)
from posenc.commands.progress import progress
from posenc.support.text import printable


@Parameter(name="*")
@dataclass(frozen=True)
class Export:
    """The options that export the outcome of every prompt to a file.

    Attributes
    ----------
    csv
        A new CSV file for all outcomes, with one row for each prompt.
    parquet
        A new Parquet file for all outcomes. This option needs the extra `parquet`.
    """

    csv: Place | None = None
    parquet: Place | None = None

    def write(self, contents: Any) -> None:
        from posenc.lab.study import export

        for file, write in ((self.csv, export.write_csv), (self.parquet, export.write_parquet)):
            if file is not None:
                _export(file, contents, write)


NO_EXPORT = Export()


@command(
    MEASURE,
    place=3,
    arguments="PATH",
    examples=(
        ("posenc results runs/", ""),
        ("posenc results runs/ --task copy --csv outcomes.csv", "all outcomes of one task"),
    ),
)
def results(
    path: Place,
    /,
    *,
    task: Names = (),
    encoding: Names = (),
    protocol: str | None = None,
    cells: Flag = False,
    merge: Annotated[list[Place] | None, Parameter(consume_multiple=True, negative="")] = None,
    exported: Export = NO_EXPORT,
    output: Output = NOWHERE,
) -> None:
    """Print or export the results of a study: its table, its training runs, or each outcome.

    The command does not change the results of the study, except with --merge. The folder --out may
    be the folder of the study itself.

    Parameters
    ----------
    path
        The folder of a study, or the file results.db in this folder.
    task
        Show only these tasks.
    encoding
        Show only these encodings, by name or label.
    protocol
        The test protocol whose results are shown: generated, forced, windowed, shuffled, sliding,
        apart or cropped.
    merge
        Folders with other parts of the same plan. Before anything else, the command adds the
        training runs of these folders to the results in PATH, which is created if it does not
        exist.
    cells
        List the training runs ("cells") instead of the table.
    """
    with study_errors():
        from posenc.lab.study import analysis, export, store

        output.prepare(beside=_is_a_study(output.out))
        if merge:
            from posenc.lab.study.merge import merge as join

            print(
                f"{join(path, merge):,} training runs are new in {printable(str(path))}",
                file=sys.stderr,
            )
        contents = store.read(path)
        if not contents.checked:
            print(
                f"note: {printable(str(contents.path))} has format 1, which has no checksums,"
                " so a changed outcome would not be detected",
                file=sys.stderr,
            )
        try:
            chosen = export.chosen(contents, {"task": task, "encoding": encoding})
        except LookupError as error:
            raise UsageError(error.args[0]) from None
        exported.write(chosen)
        shown = output.out, output.json, cells, protocol
        if (exported.csv or exported.parquet) and not any(shown):
            return
        result = None
        if output.out is not None or not cells:
            result = analysis.analyse(contents, protocol).only(task, encoding)
    if output.out is not None:
        from posenc.lab.study.summary import summarise

        with progress() as update:
            output.write(summarise(contents, result), update)
        output.open_page()
    if output.json:
        return print_json(_cells(chosen) if cells or result is None else result.to_json())
    _print(None if cells else result, chosen, output)


def _is_a_study(folder: Path | None) -> bool:
    from posenc.lab.study import store

    return folder is not None and store.exists(folder)


def _cells(chosen: Any) -> list[dict[str, Any]]:
    """Return the training runs ("cells") of a study as JSON values."""
    return [
        {"cell": digest, "settings": record.cell.settings, "label": record.cell.name}
        | {"failure": record.failure, "parameters": record.parameters}
        | {"means": [[*place, outcome.mean] for place, outcome in record.outcomes.items()]}
        for digest, record in chosen.records.items()
    ]


def _print(result: Any, chosen: Any, output: Output) -> None:
    """Print the table of a study, or its training runs if `result` is None."""
    from posenc.show.report.kinds.study import terminal

    console = Console()
    if result is None:
        terminal.cells(chosen, console)
    else:
        terminal.print_analysis(result, console)
    output.print_paths(console)


def _export(file: Path, contents: Any, write: Callable[[Any, Path], int]) -> None:
    try:
        rows = write(contents, file)
    except FileExistsError:
        raise UsageError(
            f"{file} must be a new file, got an existing file. Name another file."
        ) from None
    except ImportError as error:
        raise UsageError(str(error)) from None
    print(f"{printable(str(file), 4_000)}: {rows:,} rows", file=sys.stderr)
