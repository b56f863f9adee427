"""What rotary frequencies can tell apart, and what stretching does to them."""

from math import isfinite

from posenc.models.inspection import Turning
from posenc.report.drawing import GREY, Figure, Line, Mark, Panel, Rule
from posenc.report.words import tokens


def bands(turning: Turning) -> Figure:
    """Wavelength of each pair, as trained and as it turns now, against the trained length."""
    pairs = range(len(turning.pairs))
    now = [pair.wavelength for pair in turning.pairs]
    before = [w / pair.slower for w, pair in zip(now, turning.pairs, strict=True)]
    stretched = before != now
    marks: list[Mark] = [Line(pairs, before, "as trained", GREY, "dash")] if stretched else []
    marks += [Line(pairs, now, "now" if stretched else "wavelength", marker="circle")]
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
    changes = ", ".join(f"{many} {change}" for change, many in turning.changes.items())
    says += f". Stretching left {changes}." if stretched else "."
    panel = Panel("", marks, "pair of channels, fastest first", "wavelength, tokens", y_log=True)
    return Figure("Wavelengths", [panel], says)
