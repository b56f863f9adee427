"""Sentences about an inspected model, for the terminal, the page and the explorer."""

from math import inf, pi

from posenc.analysis.frequencies import LONGEST
from posenc.models.inspection import Inspection, Turning, rounded
from posenc.support.numbers import number
from posenc.support.text import printable


def model(inspection: Inspection) -> str:
    """Return the name of the model's folder and its `model_type`, safe to print."""
    kind, name = printable(inspection.spec.model), printable(inspection.name, 80)
    if name and kind and name != kind:
        return f"{name} ({kind})"
    return name or kind or printable(inspection.file)


def facts(inspection: Inspection) -> str:
    """Format a model's sizes: "28 layers, 28 heads in 4 groups, 32,768 tokens"."""
    spec = inspection.spec
    nothing = "no attention, nothing to encode" if spec.model else "no config beside it"
    nothing = "positions from another part" if spec.kind == "given" else nothing
    parts = [f"{len(spec.layers)} layers"] if spec.layers else [nothing]
    if spec.heads:
        shared = "" if spec.groups == spec.heads else f" in {spec.groups} groups"
        parts.append(f"{spec.heads} heads{shared}")
    if spec.context:
        parts.append(f"{spec.context:,} tokens")
    if spec.trained and spec.trained != spec.context:
        parts.append(f"stretched from {spec.trained:,}")
    return ", ".join(parts)


def verdict_of(inspection: Inspection) -> str:
    """Return a sentence that states if the model works at the target length, as far as known."""
    target = f"{inspection.target:,} tokens"
    if inspection.verdict == "fits" and warned(inspection):
        return f"No fault is known at {target}; read the notes on the layers."
    return {
        "fits": f"No fault is known at {target}; only a test shows how well it reads them.",
        "breaks": f"This breaks at {target}:",
        "cannot say": f"The files do not show whether it works at {target}:",
    }[inspection.verdict or "fits"]


def warned(inspection: Inspection) -> bool:
    """Test whether the model has notes, or a RoPE that does not reach the target length."""
    target = inspection.target or 0
    weak = any(
        group.turning and not group.window and group.turning.reach < target
        for group in inspection.groups
    )
    return weak or bool(inspection.spec.notes) or any(map(_noted, inspection.parts.values()))


def _noted(part: Inspection) -> bool:
    return bool(part.spec.notes) or any(map(_noted, part.parts.values()))


def basis(inspection: Inspection) -> str:
    """Return a phrase that names the files from which the verdict was derived."""
    config = [printable(inspection.file)] if inspection.spec.model or inspection.spec.layers else []
    if inspection.measurements:
        return f"judged from {' and '.join([*config, 'the weights'])}"
    return f"judged from {''.join(config)} alone; --weights also reads the weights"


def turning(rotation: Turning) -> list[str]:
    """Describe a RoPE: the angles seen in training, the usable distance, and rounding errors."""
    rotary = rotation.rotary
    lines = []
    if rotary.gain != 1:
        lines.append(f"attention factor {rotary.gain:.6g}: logits × {rotary.gain**2:.6g}")
    if rotary.logit_gain != 1:
        lines.append(f"softmax scale × {rotary.logit_gain:.6g}, for rotated and other channels")
    if rotation.declared:
        lines.append(_before_stretching(rotation, rotation.declared))
    elif rotation.trained:
        lines.append(
            f"{rotation.unfinished} of {len(rotation.pairs)} pairs do not complete a turn in"
            f" {rotation.trained:,} tokens, the reach of these layers by the config: training on"
            " texts of that length shows only part of their angles"
            if rotation.unfinished
            else f"all pairs complete a turn within {rotation.trained:,} tokens, the reach of these"
            " layers by the config"
        )
    behind = "a key equal to the query can score below a random one (Σ cos mθ < 0)"
    if rotation.reach >= LONGEST:
        lines.append(
            f"up to {rotation.reach:,} tokens a key equal to the query scores above a random one"
        )
    else:
        lines.append(f"from {rotation.reach:,} tokens on, {behind}")
    if rotation.smallest_base is not None and rotation.span:
        least, more = rounded(rotation.smallest_base), "; some larger bases are too small again"
        if rotation.smallest_base == inf:
            least, more = "above 10¹⁵", ""
        lines.append(
            f"smallest base that avoids this within {rotation.span:,} tokens, without scaling:"
            f" {least} (now {rotary.base:,.10g}){more}"
        )
    errors = "; ".join(
        f"in {name}: {_radians(error)} ({_judged(error)})"
        for name, error in rotation.errors.items()
    )
    lines.append(f"angle error at the last position, with frequencies stored {errors}")
    return lines


def _before_stretching(rotation: Turning, declared: int) -> str:
    count, before = len(rotation.pairs), f"{rotation.trained:,}"
    return (
        f"{rotation.unfinished} of {count} pairs do not complete a turn in {before} tokens, the"
        f" length before stretching; the config states {declared:,} tokens after it, but not"
        " on which of the two the model was trained"
    )


def _radians(error: float) -> str:
    return f"{number(error, 2)} rad" if error < 10 else f"{error:.0f} rad"


def _judged(error: float) -> str:
    """Rate a rotation angle's error, in radians, as "fine", "harmful" or "meaningless".

    0.1 radians are 6 degrees, π is a half turn.
    """
    return "fine" if error < 0.1 else "harmful" if error < pi else "meaningless"
