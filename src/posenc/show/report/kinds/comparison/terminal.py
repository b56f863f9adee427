"""Print a comparison of encodings: their properties, measurements on a text, and costs."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from posenc.lab.compare.comparison import Comparison, ratio_text
from posenc.show.report import phrases
from posenc.show.report.kinds.comparison import phrases as findings
from posenc.show.report.terminal.tables import MARKS, empty_table

WIDE = 124  # columns of a terminal on which properties are spelled out
UNTRAINED = " *: untrained, with random parameters."
SHORT = {  # headings of two short lines
    "unique_positions": "unique\nrows",
    "bounded": "bounded",
    "norm_constant": "norm\nconst.",
    "linear_shift": "linear\nshift",
    "shift_invariant": "shift\ninvar.",
    "symmetric": "symmetric",
    "decaying": "decaying",
    "norm_preserving": "keeps\nnorms",
    "any_length": "any\nlength",
    "length_independent": "length\nindep.",
    "order_sensitive": "order\nsensit.",
    "learned": "learned",
    "several_axes": "several\naxes",
}


def print_comparison(result: Comparison, console: Console) -> None:
    _properties(result, console)
    console.print()
    _measurements(result, console)
    console.print()
    _costs(result, console)
    console.print()
    for line in findings.closing(result):
        console.print(Text(line))


def _properties(result: Comparison, console: Console) -> None:
    names = [*result.encodings[0].properties]
    spelled = console.width >= WIDE
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    heads = [SHORT[name] if spelled else letters[n] for n, name in enumerate(names)]
    table = empty_table("properties", *heads)
    for column in table.columns[1:]:
        column.justify = "center"
    for measured in result.encodings:
        marks = [MARKS[measured.properties[name].holds] for name in names]
        table.add_row(measured.name, *(Text(mark, style) for mark, style in marks))
    console.print(table)
    if not spelled:
        legend = [f"{a} {phrases.label(name)}" for a, name in zip(letters, names, strict=False)]
        together = "  ".join(entry.replace(" ", "\N{NO-BREAK SPACE}") for entry in legend)
        console.print(Text(together, "dim"))
    console.print(Text("✓ holds   · does not   – not applicable", "dim"))
    if masked := phrases.masked([m.name for m in result.encodings if m.causal]):
        console.print(Text(masked, "dim"))


def _measurements(result: Comparison, console: Console) -> None:
    settings = result.settings
    starts = tuple(phrases.count(start) for start in settings.starts)
    heads = ("on real words", "params", "shuffle", "repeat", *(f"+{s}" for s in starts))
    table = empty_table(*heads, gap=1 if console.width < 90 else 2)
    for column in table.columns[1:]:
        column.justify = "right"
    for m in result.encodings:
        table.add_row(
            f"{m.name}*" if m.untrained else m.name,
            phrases.count(m.parameters),
            _share(m.shuffle.plain),
            _share(m.duplicate.plain if m.duplicate else None),
            *(_change_text(far.change) for far in m.far),
        )
    console.print(table)
    any_untrained = any(m.untrained for m in result.encodings)
    console.print(
        Text(
            f"{result.source}, {result.words:,} words. shuffle: change of what attention computes"
            " when a sentence is shuffled; repeat: difference between two occurrences of a word; no"
            f" mask. {_moved(settings.starts)}: change when the same {settings.window} words are"
            f" moved by that number of tokens. {findings.width(result)}{UNTRAINED * any_untrained}",
            "dim",
        )
    )


def _costs(result: Comparison, console: Console) -> None:
    table = empty_table("cost over NoPE", "forward", "training", "memory")
    for column in table.columns[1:]:
        column.justify = "right"
    for m in result.encodings:
        table.add_row(
            m.name,
            ratio_text(m.cost.forward_ratio),
            ratio_text(m.cost.training_ratio),
            f"{m.cost_ratio['training_memory']:.1f}",
        )
    console.print(table)
    tokens = f"{result.settings.cost_tokens:,} tokens; training and memory with the backward pass."
    console.print(Text(f"{tokens} {findings.timing(result)}", "dim"))
    console.print(Text(findings.growth(result), "dim"))


def _moved(starts: Sequence[int]) -> str:
    return ", ".join(f"+{phrases.count(start)}" for start in starts)


def _share(change: float | None) -> Text:
    text = phrases.change(change)
    return Text(text, {"none": "red", "": "dim"}.get(text, ""))


def _change_text(change: float | None) -> Text:
    text = phrases.moved(change)
    return Text(text, {"same": "green", "refused": "red"}.get(text, ""))
