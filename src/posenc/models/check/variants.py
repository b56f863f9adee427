"""Variants of a config: the same config with another base, layout, scaling or window.

A faulty config has another base, layout, share of channels, scaling, factor, gain, softmax scale or
window than in training. Each variant changes one of these settings. A variant is omitted if its
effect equals that of another one on texts as short as those of `check.loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isclose
from typing import Literal

from posenc.encodings.rotary.theta import yarn_gain
from posenc.models.check.differences import differences
from posenc.models.config.spec import Layer, Method, Rotary, Spec
from posenc.models.layouts import OTHER

KEYS = {  # kind of change → config key of the changed setting
    "base": "rope_theta",
    "partial": "partial_rotary_factor",
    "window": "sliding_window",
    **dict.fromkeys(("scaling", "factor", "gain"), "rope_scaling"),
}
BESIDE = ", and "  # joins the kinds and the names of two changes
BASES = (10_000.0, 100_000.0, 500_000.0, 1_000_000.0, 10_000_000.0)
ALIKE = 1.9  # bases within this factor of each other are not distinguishable in short texts
SCALINGS: tuple[tuple[Method, float], ...] = (
    ("linear", 2.0),
    ("linear", 4.0),
    ("yarn", 4.0),
    ("llama3", 8.0),
)
SHARES = {  # shares of rotated channels in published models
    0.25: "a quarter of the channels",
    0.5: "half of the channels",
    0.75: "three quarters of the channels",
    1.0: "all channels",
}
ENDS = {"yarn": (1.0, 32.0), "llama3": (1.0, 4.0)}


@dataclass(frozen=True)
class Variant:
    """Specification of a model with one or two changed settings, and the names of the changes.

    `rows` is "q" or "k" if only the weight rows of queries, or only those of keys, have the other
    layout. A specification cannot state this change.
    """

    kind: str
    name: str
    spec: Spec
    rows: Literal["", "q", "k"] = ""


def variants(spec: Spec) -> list[Variant]:
    """Return the specifications of a text model with one changed setting, without duplicates."""
    spec, found = spec.text_stack, []
    for variant in _all(spec):
        same = not differences(spec, variant.spec)
        new = not same and all(differences(variant.spec, other.spec) for other in found)
        if new or variant.rows:
            found.append(variant)
    return found


def further(first: Variant) -> list[Variant]:
    """Return the specifications that have the change of `first` and one more change."""
    return [
        replace(
            second,
            kind=first.kind + BESIDE + second.kind,
            name=first.name + BESIDE + second.name,
            rows=first.rows or second.rows,
        )
        for second in variants(first.spec)
        if key_of(second.kind) != key_of(first.kind)
    ]


def key_of(kind: str) -> str:
    """Return the config key for a kind of change ("rope_theta" for "base"), or `kind` itself."""
    return KEYS.get(kind, kind)


def _all(spec: Spec) -> Iterator[Variant]:
    """Yield the specifications with one changed setting, including duplicates."""
    if not spec.rotary:
        return
    yield Variant("none", "no positions", _turned(spec, lambda turn: None))
    other = lambda turn: replace(turn, layout=OTHER[turn.layout or "half"])  # noqa: E731
    layout = spec.rotary[0].layout or "half"
    yield Variant("layout", f"layout {OTHER[layout]}", _turned(spec, other))
    # Rows of queries or keys alone can be permuted for RoPE, not for its sum with a temperature
    if any(isinstance(x.encoding, Rotary) and not x.temperature for x in spec.layers):
        yield Variant("layout", f"layout {OTHER[layout]} of queries alone", spec, "q")
        yield Variant("layout", f"layout {OTHER[layout]} of keys alone", spec, "k")
    several = len(spec.rotary) > 1
    for turn in spec.rotary:
        where = f" of {_kinds(spec, turn)} layers" if several else ""
        for kind, name, changed in _of_rotation(turn, spec.context or 0):
            only = lambda one, turn=turn, changed=changed: changed if one == turn else one  # noqa: E731
            yield Variant(kind, name + where, _turned(spec, only))
    for name, factor in (("√½", 0.5**0.5), ("√2", 2**0.5)):
        yield Variant("multiple", f"softmax scale × {name}", _scaled(spec, factor))
    if any(layer.scale is not None for layer in spec.layers):
        usual = _changed(spec, lambda layer, turn: replace(layer, scale=turn.dim**-0.5))
        yield Variant("scale", "softmax scale 1/√channels", usual)
    if windows := [layer.window for layer in spec.layers if layer.window]:
        yield Variant("window", "no window", _windowed(spec, None))
        for window in (min(windows) // 4, min(windows) // 2, 2 * min(windows)):
            if window > 0:
                yield Variant("window", f"a window of {window:,}", _windowed(spec, window))


def _kinds(spec: Spec, turn: Rotary) -> str:
    kinds = dict.fromkeys(layer.kind for layer in spec.layers if layer.encoding == turn)
    return " and ".join(kinds)


def _of_rotation(turn: Rotary, context: int) -> Iterator[tuple[str, str, Rotary]]:
    """Yield (kind of change, name, changed rotation) for each alternative to one RoPE."""
    for base in BASES:
        if not 1 / ALIKE < base / turn.base < ALIKE:
            yield "base", f"base {base:,.10g}", replace(turn, base=base)
    yield from _partly(turn)
    if turn.method != "default":
        plain = replace(turn, method="default", factor=1.0, gain=1.0, logit_gain=1.0)
        yield "scaling", "not scaled", plain
    if turn.gain != 1:
        yield "gain", "cos and sin not scaled", replace(turn, gain=1.0)
        yield "gain", "cos and sin scaled twice", replace(turn, gain=turn.gain**2)
    if turn.method == "yarn" and not isclose(turn.gain, usual := yarn_gain(turn.factor)):
        yield "gain", f"cos and sin × {usual:.4g}, as YaRN has them", replace(turn, gain=usual)
    if turn.method == "longrope":
        swapped = replace(turn, short=turn.long, long=turn.short)
        yield "scaling", "short and long factors exchanged", swapped
    if turn.by_length or turn.method == "proportional":
        return
    yield from _factors(turn, context)
    for name, often in SCALINGS:
        factor = turn.factor if turn.factor > 1 else often
        trained = turn.trained or round(context / factor)
        if name != turn.method and trained > 1 and turn.turned > 2:
            named = f"{name} ×{factor:g}"
            yield "scaling", named, _stretched(turn, name, factor, trained)


def _factors(turn: Rotary, context: int) -> Iterator[tuple[str, str, Rotary]]:
    """Yield (kind, name, changed rotation) for other scaling factors and YaRN original lengths."""
    if turn.factor <= 1:
        return
    factors = [turn.factor / 2, turn.factor * 2]
    if turn.method == "yarn" and turn.trained:
        factors.append(context / turn.trained)
    for factor in dict.fromkeys(factors):
        if factor <= 1:
            continue
        if factor != turn.factor:
            yield "factor", f"factor {factor:g}", _with_default_gain(replace(turn, factor=factor))
        original = round(context / factor)
        if turn.method == "yarn" and original > 1 and original != turn.trained:
            changed = _with_default_gain(replace(turn, factor=factor, trained=original))
            yield "factor", f"factor {factor:g} on {original:,} tokens", changed


def _partly(turn: Rotary) -> Iterator[tuple[str, str, Rotary]]:
    if turn.sections or turn.trailing or turn.method == "longrope":
        return
    for share, name in SHARES.items():
        turned = int(turn.dim * share)
        if turned == turn.dim * share and turned % 2 == 0 and turned != turn.turned:
            yield "partial", name, replace(turn, turned=turned)
    if turn.turned < turn.dim and turn.dim % 2 == 0:
        # Exponents −2j / d with the channels d of the whole head, not of the rotated part
        whole = turn.base ** (turn.turned / turn.dim)
        yield "partial", "exponents of the whole head", replace(turn, base=whole)


def _stretched(turn: Rotary, method: Method, factor: float, trained: int) -> Rotary:
    ends = ENDS.get(method, (0.0, 0.0))
    changed = replace(turn, method=method, factor=factor, trained=trained, ends=ends, gain=1.0)
    return _with_default_gain(changed) if method == "yarn" else changed


def _with_default_gain(turn: Rotary) -> Rotary:
    """Return a YaRN with the default attention factor for its scaling factor.

    A RoPE with another method is returned unchanged.
    """
    return replace(turn, gain=yarn_gain(turn.factor)) if turn.method == "yarn" else turn


def _turned(spec: Spec, change: Callable[[Rotary], Rotary | None]) -> Spec:
    """Return the specification with `change` applied to the RoPE of each rotary layer."""
    return _changed(spec, lambda layer, turn: replace(layer, encoding=change(turn)))


def _changed(spec: Spec, change: Callable[[Layer, Rotary], Layer]) -> Spec:
    """Return the specification with each rotary layer replaced by `change(layer, its RoPE)`."""
    layers = (
        change(layer, layer.encoding) if isinstance(layer.encoding, Rotary) else layer
        for layer in spec.layers
    )
    return replace(spec, layers=tuple(layers))


def _scaled(spec: Spec, factor: float) -> Spec:
    """Return the specification with the softmax scale of rotary layers multiplied by `factor`."""

    def change(layer: Layer, turn: Rotary) -> Layer:
        scale = turn.dim**-0.5 * turn.logit_gain if layer.scale is None else layer.scale
        return replace(layer, scale=scale * factor)

    return _changed(spec, change)


def _windowed(spec: Spec, window: int | None) -> Spec:
    return _changed(spec, lambda x, _: replace(x, window=window) if x.window else x)
