"""Print the results of `posenc check`, and those of `posenc extend --prove`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from posenc.models.check.differences import Difference
from posenc.models.check.verdict import Check
from posenc.support.text import printable

# Imports that need torch
if TYPE_CHECKING:
    from posenc.models.check.loss import Trial
    from posenc.models.prove import Proof

MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "dim")}
STYLES = {"no fault found": "green", "fault": "red", "cannot say": "yellow"}


def print_check(checked: Check, console: Console) -> None:
    """Print the verdict on a model, the checks that were made, and the findings."""
    console.print(Text(f"{printable(checked.name)}: {checked.verdict}", STYLES[checked.verdict]))
    console.print(Text(f"checked: {'; '.join(checked.asked)}", "dim"))
    for finding in sorted(checked.findings, key=lambda finding: [*MARKS].index(finding.level)):
        mark, style = MARKS[finding.level]
        console.print(Text(f"  {mark} {finding.rule.name}: {finding.message}", style))
        if finding.level != "note" and finding.rule.links:
            console.print(Text(f"    as in {finding.rule.links[0]}", "dim"), soft_wrap=True)
    for why in checked.unknown:
        console.print(Text(f"  ? {why}", "yellow"))
    if checked.ignored:
        console.print(Text(f"ignored: {', '.join(checked.ignored)}", "dim"))
    for what in checked.undetectable if checked.verdict != "fault" else ():
        console.print(Text(f"cannot be found {what}", "dim"))
    if checked.trials:
        console.print()
        console.print(_losses(checked.trials))


def _losses(trials: "Sequence[Trial]") -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("config")
    for name in ("bits a token", "more than as written", "excerpts"):
        table.add_column(name, justify="right")
    table.add_column("")
    for trial in sorted(trials, key=lambda trial: trial.difference):
        half = (trial.high - trial.low) / 2
        more = "" if trial.kind == trial.name else f"{trial.difference:+.3f} ± {half:.3f}"
        said = "better" if trial.better else "" if trial.worse or not more else "undecided"
        table.add_row(trial.name, f"{trial.bits:.3f}", more, f"{trial.excerpts}", said)
    return table


def print_differences(
    found: Sequence[Difference], names: tuple[str, str], console: Console
) -> None:
    """Print the differences between the positional settings of two model files."""
    first, second = map(printable, names)
    if not found:
        console.print(Text(f"{first} and {second} have the same positional settings."))
    for difference in found:
        console.print(Text(str(difference)))


def print_proof(proved: "Proof", console: Console) -> None:
    """Print the loss of a model with each extension method, and the chosen method."""
    from posenc.models.prove import ENOUGH

    trained, to = f"{proved.trained:,}", f"{proved.to:,}"
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("read whole" + (", bfloat16" if proved.precision == "bfloat16" else ""))
    for name in (f"bits to {trained}", f"bits to {to}", "key recalled", "copied"):
        table.add_column(name, justify="right")
    for way in (*proved.ways, *proved.remapped):
        shares = f"{way.recall:.0%}", f"{way.copy:.0%}"
        table.add_row(way.name, f"{way.near:.3f}", f"{way.far:.3f}", *shares)
    table.add_row(f"sliding, {trained} at a time", "", f"{proved.sliding:.3f}", "", "")
    console.print(table)
    if proved.remapped:
        names = ", ".join(way.name for way in proved.remapped)
        console.print(Text(f"{names}: for comparison, because no config can state them"))
    for note in proved.notes:
        console.print(Text(f"note: {note}", "yellow"))
    if proved.chosen:
        unmodified = proved.chosen == "as it is"
        raised = ": only the length in its config must be raised" if unmodified else ""
        console.print(Text(f"chosen on other excerpts: {proved.chosen}{raised}", "green"))
        return
    console.print(
        Text(
            f"No method helps: beyond {trained} tokens the chosen method, {proved.ways[0].name},"
            f" does not save {ENOUGH} bits a token compared with the last {trained} tokens alone.",
            "red",
        )
    )


def print_keys(found: dict[str, Any]) -> None:
    """Print the metadata keys of a GGUF file, with their values."""
    for key, value in found.items():
        print(f"{key} = {value}")
