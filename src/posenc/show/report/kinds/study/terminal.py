"""Print a study: a table for each task, then the contrasts of the plan."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from posenc.lab.study.analysis import Analysis, Contrast, Row
from posenc.lab.study.cell import Cell
from posenc.lab.study.store import Contents
from posenc.show.report import phrases
from posenc.show.report.kinds.study import phrases as findings
from posenc.show.report.terminal.tables import empty_table
from posenc.support.text import printable

NARROW = 120  # columns, below which notes on rows stand under the table


def print_analysis(result: Analysis, console: Console) -> None:
    if result.hypothesis:
        console.print(Text(f"hypothesis, as registered: {printable(result.hypothesis, 4_000)}"))
    if result.registered:
        console.print(Text(f"registered: sha256 {result.registered}", "dim"), soft_wrap=True)
    for pilot in result.pilots:
        console.print(Text(f"seen before: {printable(pilot, 4_000)}", "dim"))
    for deviation in result.deviations:
        console.print(Text(f"deviation: {printable(deviation, 4_000)}", "yellow"))
    console.print(Text(f"{result.done} of {result.of} cells", "dim"))
    console.print(Text(f"outcomes hold {findings.conditions(result)}", "dim"))
    for task in dict.fromkeys(row.task for row in result.rows):
        console.print()
        rows = [row for row in (*result.rows, *result.baselines) if row.task == task]
        _print_rows(task, rows, result.metric, console)
        _by_position(rows, console)
    console.print(Text(findings.intervals(result.rows), "dim"))
    if result.contrasts:
        console.print()
        _contrasts(result.contrasts, findings.in_bits(result.rows), console)
    for sentence in findings.controls(result):
        console.print(Text(printable(sentence, 4_000)))
    if result.stamp:
        console.print()
        console.print(Text(result.stamp, "bold yellow"))


def _print_rows(task: str, rows: Sequence[Row], metric: str, console: Console) -> None:
    bits = any(row.bits for row in rows)
    protocol = next((row.protocol for row in rows if row.protocol), "no outcomes yet")
    unit = findings.unit(rows[0]) + (", less is better" if bits else "")
    console.print(Text(task, "bold"), Text(f"{protocol}: {unit}", "dim"))
    heads = (
        "",
        "n ≤ L",
        findings.span(metric),
        "95 %",
        *[findings.span("area")] * (metric != "area"),
        *["below ½"] * (not bits),
        "params",
        "ms/step",
        "seeds",
    )
    noted = []
    for row in rows:
        beside = "" if not row.curve else "–" if row.below is None else str(row.below)
        cells = (
            Text(row.encoding, "bold"),
            findings.share(row.in_range, bits),
            findings.share(row.value.value if row.value else None, bits),
            findings.interval(row.value, bits),
            *[findings.share(row.area.value if row.area else None, bits)] * (metric != "area"),
            *[beside] * (not bits),
            "" if row.parameters is None else phrases.count(row.parameters),
            "" if row.seconds is None else f"{1e3 * row.seconds:.3g}",
            str(len(row.seeds)),
        )
        noted.append((row.encoding, cells, findings.note(row)))
    _print_noted(heads, 1, noted, console)


def _by_position(rows: Sequence[Row], console: Console) -> None:
    """Print a language model's bits by the number of preceding characters."""
    groups = {row.encoding: findings.by_position(row) for row in rows if row.positions}
    if not groups:
        return
    console.print(Text(findings.POSITIONS, "dim"))
    gap = 1 if console.width < NARROW else 2
    table = empty_table("", *next(iter(groups.values())), gap=gap)
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for name, bits in groups.items():
        table.add_row(Text(name, "bold"), *(f"{x:.3f}" for x in bits.values()))
    console.print(table)


def _contrasts(contrasts: Sequence[Contrast], bits: Mapping[str, bool], console: Console) -> None:
    console.print(Text("contrasts", "bold"), Text("paired by seed; above 0 for the first", "dim"))
    heads = ("task", "", "difference", "95 %", "p", "Holm", "seeds")
    noted = []
    for contrast in contrasts:
        sides = findings.sides(contrast)
        cells = (
            contrast.task,
            sides,
            findings.difference(contrast.difference.value, findings.unit_of(contrast, bits))
            if contrast.difference
            else "",
            findings.interval(contrast.difference, findings.unit_of(contrast, bits)),
            f"{contrast.p:.3g}" if contrast.p is not None else "",
            f"{contrast.adjusted:.3g}" if contrast.adjusted is not None else "",
            str(len(contrast.seeds)),
        )
        noted.append((f"{contrast.task} {sides}", cells, findings.verdict(contrast)))
    _print_noted(heads, 2, noted, console)


def _print_noted(
    heads: Sequence[str],
    words_first: int,
    rows: Sequence[tuple[str, Sequence[str | Text], str]],
    console: Console,
) -> None:
    """Print a table whose rows can have notes.

    The first `words_first` columns are text, and the others are numbers.

    Notes are the last column, or lines below the table on a narrow terminal, equal notes once.
    """
    narrow = console.width < NARROW
    table = empty_table(*heads, *([] if narrow else [""]), gap=1 if narrow else 2)
    for column in table.columns[words_first : len(heads)]:
        column.justify, column.no_wrap = "right", True
    for _, cells, note in rows:
        table.add_row(*cells, *([] if narrow else [Text(note, "yellow")]))
    console.print(table)
    if not narrow:
        return
    for note in dict.fromkeys(note for _, _, note in rows if note):
        names = [name for name, _, one in rows if one == note]
        few = ", ".join(names) if len(names) <= 3 else f"{len(names)} of {len(rows)}"
        of = "" if len(names) == len(rows) else f"{few}: "
        console.print(Text(f"{of}{printable(note, 4_000)}", "yellow"))


def cells(contents: Contents, console: Console) -> None:
    """Print one line for each training run (cell) in a study's database."""
    table = empty_table("cell", "task", "encoding", "seed", "last loss", "outcomes", "")
    order = sorted(contents.records.items(), key=lambda item: _place(item[1].cell))
    for digest, record in order:
        table.add_row(
            digest,
            record.cell.task,
            record.cell.name,
            str(record.cell.seed),
            f"{record.losses[-1]:.3g}" if record.losses else "",
            str(len(record.outcomes)),
            Text(printable(record.failure or ""), "yellow"),
        )
    console.print(table)


def _place(cell: Cell) -> tuple[str, str, int]:
    return cell.task, cell.name, cell.seed
