"""Tables on the terminal, drawn with rich from the same data objects as the page."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from posenc.models.inspection import Inspection, LayerGroup, Turning
from posenc.show.report import words

if TYPE_CHECKING:  # needs torch, which neither an inspected config nor a card does
    from posenc.lab.compare.comparison import Comparison

WIDE = 124  # columns of a terminal on which properties are spelled out
UNTRAINED = " *: it learns, and has random numbers here."
BROKEN = "✗", "bold red"  # a promise, which must hold, where a property may or may not
MARKS = {True: ("✓", "green"), False: ("·", "dim"), None: ("–", "dim")}


def card(card: dict[str, Any], console: Console) -> None:
    """Print an encoding as `posenc show --json` has it."""
    for kind, block in words.blocks(card["text"]):
        if kind == "formula":  # its lines are as they must be
            console.print(Text(indent(block, "    ")), soft_wrap=True)
        else:
            console.print(Text(block))
        console.print()
    table = _table("property", "", "measured")
    for name, finding in card["properties"].items():
        mark, style = MARKS[finding["holds"]]
        table.add_row(words.label(name), Text(mark, style), escape(finding["why"]))
    console.print(table)
    if card["causal"]:
        console.print(Text(words.masked([card["title"]]), "dim"))
    if promises := card.get("promises"):
        table = _table("promise", "", "tried")
        for name, outcome in promises.items():
            mark, style = BROKEN if outcome["holds"] is False else MARKS[outcome["holds"]]
            table.add_row(name, Text(mark, style), escape(outcome["why"]))
        console.print()
        console.print(table)
    if card["paper"]:
        console.print()
        console.print(Text(card["paper"]["bibtex"]), soft_wrap=True)


def comparison(result: Comparison, console: Console) -> None:
    _properties(result, console)
    console.print()
    _measurements(result, console)
    console.print()
    for line in words.verdict(result):
        console.print(Text(line))
    console.print(Text(words.growth(result)))
    console.print(Text(words.noise(result), "bold yellow" if result.busy else "dim"))


VERDICTS = {"fits": "", "breaks": "bold", "cannot say": "bold yellow"}
SEEN = {"all": "green", "part": "yellow", "new": "bold red", "still": "dim"}
BLOCKS = {"kept": "█", "stretched": "▓", "interpolated": "░", "still": "·"}


def inspection(inspected: Inspection, console: Console, name: str = "") -> None:
    """Print the positions that a config describes, layer by layer, and what would break."""
    spec = inspected.spec
    title = Text(name or words.model(inspected), "bold")
    console.print(title, Text(words.facts(inspected), "dim"))
    if inspected.embedding:
        console.print(Text(f"embeddings: {inspected.embedding}"))
    for group in inspected.groups:
        console.print(Text(f"{words.runs(group.layers)}: {group.does}"))
    for group in inspected.groups:
        if group.turning:
            console.print()
            _turning(group, group.turning, console)
    for note in spec.notes:
        console.print(Text(f"note: {note}", "yellow"))
    if inspected.weighing:
        from posenc.show.report.terminal import weights as weights_terminal

        console.print()
        weights_terminal.weighing(inspected.weighing, console)
    if inspected.target:
        console.print()
        sure = inspected.verdict == "fits" and not words.warned(inspected)
        style = "green" if sure else VERDICTS[inspected.verdict or ""]
        console.print(Text(words.verdict_of(inspected), style))
        for problem in inspected.problems:
            console.print(Text(f"  ✗ {problem}", "red"))
        for open_ in inspected.unknown:
            console.print(Text(f"  ? {open_}", "yellow"))
        for advice in inspected.advice:
            console.print(Text(f"  → {advice}"), soft_wrap=True)
        console.print(Text(words.basis(inspected), "dim"))
    for part, inner in inspected.parts.items():
        console.print()
        inspection(inner, console, f"{part} ({words.model(inner)})")


def _turning(group: LayerGroup, turning: Turning, console: Console) -> None:
    trained = turning.trained
    layout = turning.rotary.layout or "layout not known"
    console.print(Text(f"{words.runs(group.layers)}, {layout}, fastest pair to slowest", "bold"))
    step = -(-len(turning.pairs) // 64)
    shown = turning.pairs[::step]
    bar = [
        (BLOCKS[p.change], SEEN[seen]) for p, seen in zip(shown, turning.seen[::step], strict=True)
    ]
    console.print(Text.assemble(*bar) if trained else Text("".join(block for block, _ in bar)))
    if trained:
        done = sum(pair.turns >= 1 for pair in shown)
        marks = "└" + "─" * max(done - 2, 0) + ("┘" if done > 1 else "")
        console.print(
            Text(f"{marks if done else ''} complete a turn within {trained:,} tokens", "dim")
        )
    changes = ", ".join(
        f"{BLOCKS[kind]} {n} {words.CHANGES[kind]}" for kind, n in turning.changes.items()
    )
    console.print(Text(changes, "dim"))
    if trained:
        counts = [([*map(str, turning.seen)].count(kind), kind) for kind in SEEN]
        entries = [(f"{words.SEEN[kind]}: {n}", SEEN[kind]) for n, kind in counts if n]
        parts = [part for entry in entries for part in (entry, "; ")][:-1]
        console.print(Text.assemble(*parts))
    table = _table("pair", "wavelength", "turns within training", "slowed by")
    for column in table.columns[1:]:
        column.justify = "right"
    last = len(turning.pairs) - 1
    for n in sorted({0, last // 4, last // 2, 3 * last // 4, last}):
        pair = turning.pairs[n]
        slower = "" if pair.slower == 1 else f"{pair.slower:.3g}×"
        table.add_row(str(n), words.tokens(pair.wavelength), f"{pair.turns:,.4g}", slower)
    console.print(table)
    for line in words.turning(turning):
        console.print(Text(line))


def _properties(result: Comparison, console: Console) -> None:
    names = [*result.encodings[0].properties]
    spelled = console.width >= WIDE
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    heads = [words.SHORT[name] if spelled else letters[n] for n, name in enumerate(names)]
    table = _table("properties", *heads)
    for column in table.columns[1:]:
        column.justify = "center"
    for measured in result.encodings:
        marks = [MARKS[measured.properties[name].holds] for name in names]
        table.add_row(measured.name, *(Text(mark, style) for mark, style in marks))
    console.print(table)
    if not spelled:
        legend = [f"{a} {words.label(name)}" for a, name in zip(letters, names, strict=False)]
        together = "  ".join(entry.replace(" ", "\N{NO-BREAK SPACE}") for entry in legend)
        console.print(Text(together, "dim"))
    console.print(Text("✓ holds   · does not   – not applicable", "dim"))
    if masked := words.masked([m.name for m in result.encodings if m.causal]):
        console.print(Text(masked, "dim"))


def _measurements(result: Comparison, console: Console) -> None:
    settings = result.settings
    starts = tuple(words.count(start) for start in settings.starts)
    costs = ("time", "train", "mem")
    heads = ("on real words", "params", "shuffle", "repeat", *(f"+{s}" for s in starts), *costs)
    table = _table(*heads, gap=1 if console.width < 90 else 2)
    for column in table.columns[1:]:
        column.justify = "right"
    for m in result.encodings:
        table.add_row(
            f"{m.name}*" if m.untrained else m.name,
            words.count(m.parameters),
            _share(m.shuffle.plain),
            _share(m.duplicate.plain if m.duplicate else None),
            *(_change_text(far.change) for far in m.far),
            *(words.multiple(result.multiple(m, key)) for key in words.COSTS),
        )
    console.print(table)
    any_untrained = any(m.untrained for m in result.encodings)
    console.print(
        Text(
            f"{result.source}, {result.words:,} words. shuffle: change of what attention computes"
            " when a sentence is shuffled; repeat: difference between two occurrences of a word; no"
            f" mask. {_moved(settings.starts)}: change when the same {settings.window} words are"
            " moved by so many tokens. time, train (with backward), mem (of train): as multiples of"
            f" NoPE, {settings.cost_tokens} tokens. {words.width(result)}"
            f"{UNTRAINED * any_untrained}",
            "dim",
        )
    )


def _moved(starts: Sequence[int]) -> str:
    return ", ".join(f"+{words.count(start)}" for start in starts)


def _share(change: float | None) -> Text:
    text = words.change(change)
    return Text(text, {"none": "red", "": "dim"}.get(text, ""))


def _change_text(change: float | None) -> Text:
    text = words.moved(change)
    return Text(text, {"same": "green", "refused": "red"}.get(text, ""))


def _table(*heads: str, gap: int = 2) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, gap - 1, 0, 0),  # and the box adds one
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for n, head in enumerate(heads):
        table.add_column(head, no_wrap=n == 0)
    return table
