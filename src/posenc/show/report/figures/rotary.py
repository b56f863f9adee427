"""Figures of rotary frequencies: wavelengths, context extension, precision."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import cos, isfinite, pi, sin

from posenc.analysis.dials import Dial
from posenc.analysis.frequencies import Extended
from posenc.analysis.precision import Precision
from posenc.models.inspection import Seen, Turning
from posenc.models.published import Published
from posenc.show.report.drawing.data_table import evenly_spaced
from posenc.show.report.drawing.figure import (
    BLUE,
    GREEN,
    GREY,
    VERMILION,
    Figure,
    FigureNumbers,
    Mark,
    Marker,
    Panel,
    Values,
    style,
)
from posenc.show.report.drawing.marks import Area, Line, Points, Rule
from posenc.show.report.phrases import CHANGES, METHODS, seen_in, tokens
from posenc.support.numbers import number

DIALS = 12  # number of dials per method, one for each pair
SAME = 1e-6  # relative change of a wavelength that is due to rounding
DOTS: Sequence[tuple[Seen, str, Marker]] = (
    ("all", BLUE, "circle"),
    ("part", GREEN, "square"),
    ("new", VERMILION, "diamond"),
)
RADIUS = 0.42  # radius of a dial, whose neighbour is 1 away


def bands(turning: Turning) -> Figure:
    """Draw each pair's wavelength, before and after context extension, and the trained length."""
    pairs = range(len(turning.pairs))
    now = [pair.wavelength for pair in turning.pairs]
    before = [w / pair.slower for w, pair in zip(now, turning.pairs, strict=True)]
    stretched = before != now
    marks: list[Mark] = [Line(pairs, now, "now" * stretched, GREY, width=1, direct=stretched)]
    if stretched:
        marks.insert(0, Line(pairs, before, "as trained", GREY, "dash", direct=True))
    seen = turning.seen if turning.trained else []
    for kind, colour, marker in DOTS:
        shown = [n for n, state in enumerate(seen) if state == kind]
        if shown:
            at = [now[n] for n in shown]
            marks.append(Points(shown, at, seen_in(turning, kind), colour, marker, 8))
    drawn = [w for w in (*before, *now, turning.trained, turning.span) if w and isfinite(w)]
    span = 0.7 * min(drawn), 1.5 * max(drawn)
    if turning.trained:
        left, right = -0.5, len(pairs) - 0.5
        beyond = [turning.trained, turning.trained, span[1], span[1]]
        name = "longer than before stretching" if turning.declared else "longer than by the config"
        marks.insert(0, Area([left, right, right, left], beyond, name, GREY, faint=True))
    else:
        marks.append(Points(pairs, now))
    first = "before stretching" if turning.declared else "by the config"
    for length, name in ((turning.trained, first), (turning.span, "used")):
        if length and not (name == "used" and length == turning.trained):
            marks.append(Rule(length, "y", f"{name} over {length:,} tokens"))
    slowest = max((w for w in now if isfinite(w)), default=None)
    says = f"Wavelengths of {len(pairs)} pairs of channels"
    says += f", from {tokens(min(now))} to {tokens(slowest)} tokens" if slowest else ""
    if turning.trained:
        says += (
            f"; {turning.unfinished} complete no turn within the {turning.trained:,} tokens"
            f" {'before stretching' if turning.declared else 'of the config'}"
        )
    counted = turning.changes.items()
    changes = ", ".join(f"{count} {CHANGES[change]}" for change, count in counted)
    says += f". Of {len(pairs)} pairs: {changes}." if stretched else "."
    if seen:
        counts = [
            f"{seen_in(turning, kind)}: {seen.count(kind)}" for kind, _, _ in DOTS if kind in seen
        ]
        says += f" Pairs by their angles, {'; '.join(counts)}."
    panel = Panel(
        "",
        marks,
        "pair of channels, fastest first",
        "wavelength, tokens",
        y_log=True,
        x_range=(-0.5, len(pairs) - 0.5),
        y_range=span,
    )
    return Figure("Wavelengths", [panel], says)


def dials(by_method: Mapping[str, Sequence[Dial]], trained: int, target: int) -> Figure:
    """Draw dials of rotary pairs that show which angles are new in longer texts.

    Angles that do not occur up to `target` tokens are left blank.
    """
    panels, rows, words, nearer = [], [], [], []
    pairs, as_trained = len(by_method["none"]), by_method["none"]
    picked = evenly_spaced(pairs, DIALS)
    names = [f"{n}: {tokens(by_method['none'][n].wavelength)}" for n in picked]
    for method, all_dials in by_method.items():
        name = METHODS[method]
        new = sum(dial.new > 0 for dial in all_dials)
        words.append(f"{name} {new}")
        times = [_times_slower(dial, was) for dial, was in zip(all_dials, as_trained, strict=True)]
        if slowed := sum(one > 1 for one in times):
            nearer.append(f"{name} {slowed} (the fastest {times[0]:.3g} times)")
        shown = [all_dials[n] for n in picked]
        # Rows are aligned in columns, so only the last row needs names
        below = names if method == [*by_method][-1] else []
        panels.append(_dials(f"{name}: {new} of {pairs} pairs meet new angles", shown, below))
        for n, dial in zip(picked, shown, strict=True):
            parts = (dial.met, dial.new, 1 - dial.met - dial.new)
            shares = [f"{part:.0%}" if part >= 0.005 or part < 1e-9 else "< 1%" for part in parts]
            rows.append([name, str(n), tokens(dial.wavelength), *shares, f"{times[n]:.3g}"])
    heading = ["extension", "pair", "wavelength, tokens", "met in training", "new", "never met"]
    heading.append("times nearer")
    cost = f" The number of pairs in which neighbours are closer in angle: {', '.join(nearer)}."
    return Figure(
        f"Which angles are new at {target:,} tokens?",
        panels,
        f"Each dial is the circle of angles of a pair of channels, fast pairs to the left."
        f" If trained on {trained:,} tokens and used at {target:,}, these numbers of {pairs} pairs"
        f" meet angles that did not occur in training: {', '.join(words)}."
        f"{cost if nearer else ''}",
        listed=FigureNumbers(heading, rows, f"{len(picked)} of {pairs} pairs, evenly picked."),
    )


def _times_slower(dial: Dial, was: Dial) -> float:
    """Return the factor by which a pair turns slower than in training.

    Differences that are due to rounding count as a factor of 1.
    """
    slower = dial.wavelength / was.wavelength if isfinite(was.wavelength) else 1.0
    return 1.0 if abs(slower - 1) < SAME else slower


def _dials(title: str, shown: Sequence[Dial], names: Sequence[str]) -> Panel:
    arcs = [(where, dial.met, dial.met + dial.new) for where, dial in enumerate(shown)]
    areas = (
        ("never met", GREY, [(where, used, 1.0) for where, _, used in arcs], True),
        ("met in training", BLUE, [(where, 0.0, met) for where, met, _ in arcs], False),
        ("met for the first time", VERMILION, arcs, False),
    )
    marks = [
        Area(*_sectors(sectors), name, colour, faint) for name, colour, sectors, faint in areas
    ]
    return Panel(
        title,
        marks,
        "pair of channels: its wavelength as trained, in tokens" if names else "",
        x_names=names,
        x_range=(-0.5, len(shown) - 0.5),
        y_range=(-0.5, 0.5),
        square=True,
        bare=True,
    )


def _sectors(sectors: Sequence[tuple[int, float, float]]) -> tuple[Values, Values]:
    """Return the outlines of sectors on dials, as x and y coordinates.

    Start and end are shares of a turn, clockwise from the top.

    - `sectors`: index of the dial, start and end of each sector
    """
    x: list[float | None] = []
    y: list[float | None] = []
    for where, start, end in sectors:
        if end > start:
            steps = max(1, round(72 * (end - start)))
            turns = [start + (end - start) * n / steps for n in range(steps + 1)]
            x += [where, *(where + RADIUS * sin(2 * pi * turn) for turn in turns), where, None]
            y += [0, *(RADIUS * cos(2 * pi * turn) for turn in turns), 0, None]
    return x[:-1], y[:-1]


def stretch(extended: Extended) -> Figure:
    """Draw the factor by which each extension method slows a pair, against its wavelength."""
    before = [pair.wavelength / extended.trained for pair in extended.methods["none"].pairs]
    # Methods with equal factors share a line
    curves: dict[tuple[float, ...], list[str]] = {}
    for name, method in extended.methods.items():
        if name != "none":
            slower = tuple(float(f"{pair.slower:.6g}") for pair in method.pairs)
            curves.setdefault(slower, []).append(METHODS[name])
    lines = [
        replace(Line(before, slower, ", ".join(names), **style(n)), marker="")
        for n, (slower, names) in enumerate(curves.items())
    ]
    fully_slowed = {
        ", ".join(names): sum(value >= 0.99 * extended.factor for value in slower)
        for slower, names in curves.items()
    }
    counts = "; ".join(f"{name} {count}" for name, count in fully_slowed.items())
    panel = Panel(
        "",
        [*lines, Rule(1, "x", "one turn in training")],
        "wavelength as trained / trained length",
        "times slower",
        x_log=True,
        y_log=True,
    )
    return Figure(
        "Effect of each extension on fast and slow pairs",
        [panel],
        f"From {extended.trained:,} to {extended.target:,} tokens. Number of the {len(before)}"
        f" pairs that are slowed {extended.factor:g} times or more: {counts}. Pairs to the right of"
        " the vertical line never completed a turn in training.",
    )


def extensions(extended: Extended) -> Figure:
    """Draw wavelengths before and after each extension method, with trained and target length."""
    before = [pair.wavelength for pair in extended.methods["none"].pairs]
    numbers = range(len(before))
    all_pairs = [pair.wavelength for method in extended.methods.values() for pair in method.pairs]
    moving = [*filter(isfinite, all_pairs), extended.target]
    span = 0.8 * min(moving), 1.25 * max(moving)
    panels = []
    for name, method in extended.methods.items():
        if name != "none":
            marks: list[Mark] = [
                Line(numbers, before, "as trained", GREY, "dash"),
                Line(numbers, [p.wavelength for p in method.pairs], "stretched", marker="circle"),
                Rule(extended.trained, "y", f"trained: {extended.trained:,}"),
                Rule(extended.target, "y", f"target: {extended.target:,}"),
            ]
            gain = "" if method.gain == 1 else f", attention factor {method.gain:.4g}"
            panels.append(
                Panel(
                    METHODS[name] + gain,
                    marks,
                    "pair of channels, fastest first",
                    "wavelength, tokens",
                    y_log=True,
                    y_range=span,
                )
            )
    unchanged = ", ".join(
        f"{METHODS[name]} {sum(pair.change == 'kept' for pair in method.pairs)}"
        for name, method in extended.methods.items()
        if name != "none"
    )
    return Figure(
        f"Stretched from {extended.trained:,} to {extended.target:,} tokens",
        panels,
        f"Trained on {extended.trained:,} tokens, {extended.critical} of"
        f" {extended.channels} channels belong to pairs that complete a turn. Number of the"
        f" {len(before)} pairs that keep their wavelength: {unchanged}.",
        columns=3,
        height=230,
    )


def models(published: Sequence[Published]) -> Figure:
    """Draw wavelengths of published models, and context lengths before and after extension."""
    rows = range(len(published))
    waves = [
        (wave, row, wave <= model.context)
        for row, model in enumerate(published)
        for wave in model.wavelengths
        if isfinite(wave)
    ]
    bases = [f"base {model.base:,.0f}" for model in published]
    slowest = [max(filter(isfinite, model.wavelengths)) for model in published]
    ends = [
        1.3 * max(longest_wave, model.context)
        for longest_wave, model in zip(slowest, published, strict=True)
    ]
    marks = [
        Points(
            [wave for wave, _, turns in waves if turns is complete],
            [row for _, row, turns in waves if turns is complete],
            name,
            colour,
            size=4,
        )
        for name, colour, complete in (
            ("pairs that turn within the context", BLUE, True),
            ("pairs that do not", GREY, False),
        )
    ]
    before = [model.trained for model in published]
    marks += [
        Points(before, rows, "before stretching", GREEN, "square", 10),
        Points([model.context for model in published], rows, "context", VERMILION, "diamond", 10),
        Points(ends, rows, "", "", "", labels=bases, side="right"),
    ]
    share = [model.unfinished / len(model.wavelengths) for model in published]
    longest = max(model.context / model.trained for model in published)
    panel = Panel(
        "",
        marks,
        "tokens: wavelengths, lengths",
        x_log=True,
        x_range=(4, 60 * max(ends)),
        y_names=[model.name.removesuffix(" (class default)") for model in published],
        y_down=True,
    )
    table = FigureNumbers(
        ["model", "base", "extension", "before", "context", "pairs", "no turn", "slowest"],
        [
            [
                *(model.name, f"{model.base:,.0f}", model.method, f"{model.trained:,}"),
                *(f"{model.context:,}", str(len(model.wavelengths)), str(model.unfinished)),
                tokens(max(model.wavelengths)),
            ]
            for model in published
        ],
    )
    return Figure(
        f"Wavelengths of {len(published)} published models",
        [panel],
        f"Wavelengths of {len(published)} published models, by context. Bases go from"
        f" {min(model.base for model in published):,.0f} to"
        f" {max(model.base for model in published):,.0f}."
        f" In the median model {sorted(share)[len(share) // 2]:.0%} of the pairs complete no turn"
        f" within the context; the largest extension is to {longest:,.0f} times the length before"
        " stretching.",
        height=22 * len(published),
        listed=table,
    )


def precision(measured: Precision) -> Figure:
    """Draw rounding errors by position, one curve for each method of computing the angles."""
    panels = [
        Panel(
            title,
            [
                Line(measured.position, values, way, **style(n), width=1.5)
                for n, (way, values) in enumerate(ways.items())
            ],
            "position, tokens",
            y_title,
            x_log=True,
            y_log=True,
        )
        for title, ways, y_title in (
            ("cos and sin", measured.error, "largest error"),
            ("scores 0–63 tokens apart, text moved", measured.drift, "error / size of scores"),
            ("scores of keys at the beginning", measured.far, "error / size of scores"),
        )
    ]
    last = {way: values[-1] for way, values in measured.far.items()}
    errors = ", ".join(
        f"{way} {'not a number' if error is None else number(error, 1)}"
        for way, error in last.items()
    )
    return Figure(
        "Errors of low precision",
        panels,
        "Errors of angles and scores for several ways to compute the angles. At position"
        f" {measured.position[-1]:,} the errors of scores with keys at the beginning are:"
        f" {errors}.",
        columns=3,
        height=300,
    )
