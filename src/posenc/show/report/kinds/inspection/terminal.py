"""Print an inspected model: its layers, and the risks at the target length."""

from rich.console import Console
from rich.text import Text

from posenc.models.inspection import Inspection, LayerGroup, Turning
from posenc.show.report import phrases
from posenc.show.report.kinds.inspection import phrases as findings
from posenc.show.report.terminal.tables import empty_table, sentence

VERDICTS = {"fits": "", "breaks": "bold", "cannot say": "bold yellow"}
SEEN = {"all": "green", "part": "yellow", "new": "bold red", "still": "dim"}
BLOCKS = {"kept": "█", "stretched": "▓", "interpolated": "░", "still": "·"}


def print_inspection(inspected: Inspection, console: Console, name: str = "") -> None:
    """Print the encodings of a config, layer by layer, and the risks at the target length."""
    spec = inspected.spec
    title = Text(name or findings.model(inspected), "bold")
    console.print(title, Text(findings.facts(inspected), "dim"), soft_wrap=not console.is_terminal)
    if inspected.embedding:
        sentence(f"embeddings: {inspected.embedding}", console)
    for group in inspected.groups:
        sentence(f"{phrases.runs(group.layers)}: {group.does}", console)
    for group in inspected.groups:
        if group.turning:
            console.print()
            _turning(group, group.turning, console)
    for note in spec.notes:
        sentence(note, console, "note: ", "yellow")
    if inspected.measurements:
        # Reading weights needs torch
        from posenc.show.report.kinds.inspection.weights import terminal

        console.print()
        terminal.print_weights(inspected.measurements, console)
    if inspected.target:
        console.print()
        sure = inspected.verdict == "fits" and not findings.warned(inspected)
        style = "green" if sure else VERDICTS[inspected.verdict or ""]
        console.print(Text(findings.verdict_of(inspected), style))
        for problem in inspected.problems:
            sentence(problem, console, "  ✗ ", "red")
        for open_ in inspected.unknown:
            sentence(open_, console, "  ? ", "yellow")
        for advice in inspected.advice:
            _advice(advice, console)
        sentence(findings.basis(inspected), console, style="dim")
    for part, inner in inspected.parts.items():
        console.print()
        print_inspection(inner, console, f"{part} ({findings.model(inner)})")


def _advice(advice: str, console: Console) -> None:
    """Print a recommended command; on a terminal, its remark is printed on a line of its own."""
    command, hash_, remark = advice.partition("  # ")
    if hash_ and console.is_terminal:
        console.print(Text(f"  → {command}"), soft_wrap=True)
        sentence(remark, console, "    ", "dim")
    else:
        sentence(advice, console, "  → ")


def _turning(group: LayerGroup, turning: Turning, console: Console) -> None:
    trained = turning.trained
    layout = turning.rotary.layout or "layout not known"
    console.print(Text(f"{phrases.runs(group.layers)}, {layout}, fastest pair to slowest", "bold"))
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
        f"{BLOCKS[kind]} {n} {phrases.CHANGES[kind]}" for kind, n in turning.changes.items()
    )
    console.print(Text(changes, "dim"))
    if trained:
        counts = [([*map(str, turning.seen)].count(kind), kind) for kind in SEEN]
        entries = [
            (f"{phrases.seen_in(turning, kind)}: {n}", SEEN[kind]) for n, kind in counts if n
        ]
        parts = [part for entry in entries for part in (entry, "; ")][:-1]
        console.print(Text.assemble(*parts))
    table = empty_table(
        "pair", "wavelength", f"turns in {trained:,}" if trained else "turns", "slowed by"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    last = len(turning.pairs) - 1
    for n in sorted({0, last // 4, last // 2, 3 * last // 4, last}):
        pair = turning.pairs[n]
        slower = "" if pair.slower == 1 else f"{pair.slower:.3g}×"
        table.add_row(str(n), phrases.tokens(pair.wavelength), f"{pair.turns:,.4g}", slower)
    console.print(table)
    for line in findings.turning(turning):
        sentence(line, console)
