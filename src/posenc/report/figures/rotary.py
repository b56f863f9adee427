"""Figures of rotary frequencies: wavelengths, extensions, precision."""

from math import isfinite

from posenc.analysis.frequencies import Extended
from posenc.analysis.precision import Precision
from posenc.models.inspection import Turning
from posenc.report.drawing.figure import GREY, Figure, Line, Mark, Panel, Rule, style
from posenc.report.words import CHANGES, tokens


def bands(turning: Turning) -> Figure:
    """Wavelength of each pair, as trained and as it turns now, against the trained length."""
    pairs = range(len(turning.pairs))
    now = [pair.wavelength for pair in turning.pairs]
    before = [w / pair.slower for w, pair in zip(now, turning.pairs, strict=True)]
    stretched = before != now
    marks: list[Mark] = [Line(pairs, now, "now" * stretched, marker="circle", direct=stretched)]
    if stretched:
        marks.insert(0, Line(pairs, before, "as trained", GREY, "dash", direct=True))
    for length, name in ((turning.trained, "trained"), (turning.span, "used")):
        if length and not (name == "used" and length == turning.trained):
            marks.append(Rule(length, "y", f"{name} over {length:,} tokens"))
    slowest = max((w for w in now if isfinite(w)), default=None)
    says = f"Wavelengths of {len(pairs)} pairs of channels"
    says += f", from {tokens(min(now))} to {tokens(slowest)} tokens" if slowest else ""
    if turning.trained:
        says += (
            f"; {turning.unfinished} complete no turn within the trained {turning.trained:,} tokens"
        )
    counted = turning.changes.items()
    changes = ", ".join(f"{count} {CHANGES[change]}" for change, count in counted)
    says += f". Of {len(pairs)} pairs: {changes}." if stretched else "."
    panel = Panel("", marks, "pair of channels, fastest first", "wavelength, tokens", y_log=True)
    return Figure("Wavelengths", [panel], says)


def extensions(extended: Extended) -> Figure:
    """Wavelengths before and after each method, against the trained length and the target."""
    before = [pair.wavelength for pair in extended.methods["none"].pairs]
    numbers = range(len(before))
    panels = []
    for name, method in extended.methods.items():
        if name != "none":
            marks: list[Mark] = [
                Line(numbers, before, "as trained", GREY, "dash"),
                Line(numbers, [p.wavelength for p in method.pairs], "stretched", marker="circle"),
                Rule(extended.trained, "y", f"trained: {extended.trained:,}"),
                Rule(extended.target, "y", f"target: {extended.target:,}"),
            ]
            gain = "" if method.gain == 1 else f", cos and sin × {method.gain:.4g}"
            panels.append(
                Panel(
                    name.replace("_", " ") + gain,
                    marks,
                    "pair of channels, fastest first",
                    "wavelength, tokens",
                    y_log=True,
                )
            )
    unchanged = ", ".join(
        f"{name.replace('_', ' ')} {sum(pair.change == 'kept' for pair in method.pairs)}"
        for name, method in extended.methods.items()
        if name != "none"
    )
    return Figure(
        f"Stretched from {extended.trained:,} to {extended.target:,} tokens",
        panels,
        f"Trained on {extended.trained:,} tokens, {extended.critical} of"
        f" {extended.channels} channels belong to pairs that complete a turn. So many of the"
        f" {len(before)} pairs keep their wavelength: {unchanged}.",
        columns=3,
        height=230,
    )


def precision(measured: Precision) -> Figure:
    """Errors against position, for each way of forming angles."""
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
        f"{way} {'not a number' if error is None else f'{error:.1g}'}"
        for way, error in last.items()
    )
    return Figure(
        "What few bits do",
        panels,
        f"Errors of angles and scores by how they are formed. At position {measured.position[-1]:,}"
        f" the errors of scores of keys at the beginning are: {errors}.",
        columns=3,
        height=300,
    )
