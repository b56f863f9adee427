"""Sentences, table rows and terminal output of the questions."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from posenc.lab.study.analysis import LEVEL
from posenc.lab.study.statistics import Interval
from posenc.show.report.kinds.study.words import interval, share, span
from posenc.show.report.terminal.tables import empty_table
from studies.questions.bands import How, Recovery
from studies.questions.prediction import Prediction, PropertyEffect
from studies.questions.repetition import Repeated

ALIKE = (
    "Encodings that come out alike with each seed, as a = b, count once; p takes the others for"
    " independent, which those of one family are not."
)
WAYS: dict[How, str] = {"slowed": "slowed to angles of training", "still": "stopped"}


def effect(measured: PropertyEffect) -> tuple[str, str, str, str, str]:
    """A property, its rank correlation, p by Holm, who has it, who lacks it."""
    numbers = f"{measured.correlation:+.2f}", f"{measured.adjusted:.2g}"
    return (
        measured.property.replace("_", " "),
        *numbers,
        ", ".join(measured.having),
        ", ".join(measured.lacking),
    )


def foretold(prediction: Prediction) -> str:
    """Say how well properties foretold the order of encodings, and whether it may be chance."""
    rho = prediction.correlation
    kinds = len({*prediction.families})
    chance = prediction.p >= LEVEL or rho.low <= 0
    verdict = "not told from chance" if chance else "more than by chance"
    return (
        f"Of {len(prediction.encodings)} encodings of {kinds} families, each predicted by a fit on"
        f" the other families: rank correlation {rho.value:+.2f} [{rho.low:+.2f}, {rho.high:+.2f}]"
        f" of what was foretold with {span(prediction.metric)} as measured,"
        f" p = {prediction.p:.2g}: {verdict}."
    )


def by_band(rows: Sequence[Recovery]) -> Iterator[tuple[str, ...]]:
    """A row for each band, the fastest first: its pairs, then what comes back in either way."""
    for pairs in dict.fromkeys(recovery.pairs for recovery in rows):
        shares = {recovery.how: recovery.recovered for recovery in rows if recovery.pairs == pairs}
        ends = f"{pairs[0]} to {pairs[1] - 1}"
        yield ends, *(_share(shares[how]) for how in WAYS if how in shares)


def _share(recovered: Interval) -> str:
    """Write a share with its interval: "+12 % [+3, +20]"."""
    return (
        f"{100 * recovered.value:+.0f} % [{100 * recovered.low:+.0f}, {100 * recovered.high:+.0f}]"
    )


def repeated(rows: Sequence[Repeated]) -> str:
    """Say how much of a repetition agrees."""
    measured = [row for row in rows if row.agrees is not None]
    agree = sum(row.agrees is True for row in measured)
    equal, both = (sum(getattr(row, name) for row in rows) for name in ("equal", "both"))
    return (
        f"{agree} of {len(measured)} rows agree within their intervals; {equal} of {both} cells of"
        " the same settings are equal, bit by bit"
    )


def repeated_row(row: Repeated) -> tuple[str, ...]:
    agrees = {True: "yes", False: "no", None: "not measured"}[row.agrees]
    first, again = (share(v.value if v else None, row.bits) for v in (row.first, row.again))
    equal = f"{row.equal} of {row.both}"
    span = interval(row.first, row.bits)
    return row.task, row.encoding, first, span, again, agrees, equal, str(row.seeds)


def prediction(predicted: Prediction, console: Console) -> None:
    """Print whether properties foretold the outcomes, then each property by itself."""
    console.print()
    console.print(Text(f"{predicted.task}: do measured properties foretell it?", "bold"))
    console.print(Text(foretold(predicted)))
    table = empty_table(
        "property", "rank correlation", "p (Holm)", "holds for", "does not hold for"
    )
    for column in table.columns[1:3]:
        column.justify, column.no_wrap = "right", True
    for measured in predicted.effects:
        table.add_row(*effect(measured))
    console.print(table)
    console.print(Text(ALIKE, "dim"))


def bands(recoveries: Sequence[Recovery], console: Console) -> None:
    """Print what each band of pairs brings back, slowed and stopped, at each length."""
    for name, length in dict.fromkeys(
        (recovery.encoding, recovery.length) for recovery in recoveries
    ):
        rows = [
            recovery
            for recovery in recoveries
            if (recovery.encoding, recovery.length) == (name, length)
        ]
        console.print()
        console.print(
            Text(f"{name} at {length} tokens: what its bands of pairs bring back", "bold"),
            Text(f"of the bits that were lost; {len(rows[0].by_seed)} seeds", "dim"),
        )
        table = empty_table("pairs", *WAYS.values())
        for column in table.columns[1:]:
            column.justify, column.no_wrap = "right", True
        for row in by_band(rows):
            table.add_row(*row)
        console.print(table)


def repetition(rows: Sequence[Repeated], console: Console) -> None:
    """Print each row of the first study and of the repetition, and how many cells are equal."""
    if not rows:
        return
    console.print()
    console.print(Text("the repetition", "bold"), Text(repeated(rows), "dim"))
    table = empty_table("", "", "first", "95 %", "again", "agrees", "equal cells", "seeds")
    for column in table.columns[2:]:
        column.justify, column.no_wrap = "right", True
    for row in rows:
        table.add_row(*repeated_row(row))
    console.print(table)
