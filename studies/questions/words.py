"""Text for the analyses of stored studies: sentences, table rows and terminal output."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from posenc.lab.study.analysis import LEVEL
from posenc.lab.study.statistics import Interval
from posenc.show.report.kinds.study.phrases import interval, share, span
from posenc.show.report.terminal.tables import empty_table
from studies.questions.bands import How, Recovery
from studies.questions.prediction import Prediction, PropertyEffect
from studies.questions.repetition import Repeated

ALIKE = (
    "Encodings with nearly equal outcomes in each seed, written as a = b, count once. The p assumes"
    " that all others are independent, which those of one family are not."
)
WAYS: dict[How, str] = {"slowed": "slowed to angles of training", "still": "stopped"}


def effect(measured: PropertyEffect) -> tuple[str, str, str, str, str]:
    """Return a property's table row: rank correlation, Holm's p, encodings with and without it."""
    numbers = f"{measured.correlation:+.2f}", f"{measured.adjusted:.2g}"
    return (
        measured.property.replace("_", " "),
        *numbers,
        ", ".join(measured.having),
        ", ".join(measured.lacking),
    )


def summary(prediction: Prediction) -> str:
    """Return a sentence on how well properties predict: rank correlation, interval, p, verdict."""
    rho = prediction.correlation
    kinds = len({*prediction.families})
    chance = prediction.p >= LEVEL or rho.low <= 0
    verdict = "could be chance" if chance else "better than chance"
    return (
        f"{len(prediction.encodings)} encodings of {kinds} families, each predicted by a fit on the"
        f" other families: rank correlation {rho.value:+.2f} [{rho.low:+.2f}, {rho.high:+.2f}] of"
        f" predicted and measured outcomes ({span(prediction.metric)}), p = {prediction.p:.2g}:"
        f" {verdict}."
    )


def by_band(rows: Sequence[Recovery]) -> Iterator[tuple[str, ...]]:
    """Yield a row per band of rotary pairs: its pairs, and the share that each swap recovers."""
    for pairs in dict.fromkeys(recovery.pairs for recovery in rows):
        shares = {recovery.how: recovery.recovered for recovery in rows if recovery.pairs == pairs}
        ends = f"{pairs[0]} to {pairs[1] - 1}"
        yield ends, *(_share(shares[how]) for how in WAYS if how in shares)


def _share(recovered: Interval) -> str:
    """Format a share with its interval: "+12 % [+3, +20]"."""
    return (
        f"{100 * recovered.value:+.0f} % [{100 * recovered.low:+.0f}, {100 * recovered.high:+.0f}]"
    )


def repeated(rows: Sequence[Repeated]) -> str:
    """Return a sentence on how far a repetition agrees with the first run."""
    measured = [row for row in rows if row.agrees is not None]
    agree = sum(row.agrees is True for row in measured)
    equal, both = (sum(getattr(row, name) for row in rows) for name in ("equal", "both"))
    return (
        f"{agree} of {len(measured)} rows agree within their intervals; {equal} of {both} cells"
        " with the same settings are equal to the bit"
    )


def repeated_row(row: Repeated) -> tuple[str, ...]:
    agrees = {True: "yes", False: "no", None: "not measured"}[row.agrees]
    first, again = (share(v.value if v else None, row.bits) for v in (row.first, row.again))
    equal = f"{row.equal} of {row.both}"
    span = interval(row.first, row.bits)
    return row.task, row.encoding, first, span, again, agrees, equal, str(row.seeds)


def prediction(predicted: Prediction, console: Console) -> None:
    """Print the prediction of a task, then a table of its properties."""
    console.print()
    console.print(Text(f"{predicted.task}: prediction by measured properties", "bold"))
    console.print(Text(summary(predicted)))
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
    """Print the share of loss that slowing or stopping each band recovers, at each length."""
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
            Text(f"{name} at {length} tokens: recovery by each band of pairs", "bold"),
            Text(f"share of the lost bits; {len(rows[0].by_seed)} seeds", "dim"),
        )
        table = empty_table("pairs", *WAYS.values())
        for column in table.columns[1:]:
            column.justify, column.no_wrap = "right", True
        for row in by_band(rows):
            table.add_row(*row)
        console.print(table)


def repetition(rows: Sequence[Repeated], console: Console) -> None:
    """Print each row in the first run and in the repetition, and the number of equal runs."""
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
