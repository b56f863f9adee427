"""List the positional settings, such as RoPE frequencies, in which two models differ.

    differences(spec, other)

Spelling and scaling method are ignored: frequencies are compared as numbers, at the context of the
first model. Between a config and a GGUF file the layout is ignored too, since llama.cpp's converter
may reorder the rows of queries and keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from math import isclose
from pathlib import Path
from typing import Any

from posenc.models.config.source import Source
from posenc.models.config.spec import Layer, Rotary, Spec
from posenc.models.inspection import describe_encoding, describe_layer

NEAR = 1e-5  # relative tolerance, since GGUF stores numbers and Llama 3's factors in float32
SETTINGS = {  # fields of a rotation that its description may omit → their keys
    "base": "rope_theta",
    "factor": "factor",
    "trained": "original_max_position_embeddings",
    "ends": "ends of the ramp",
    "rounded": "truncate",
    "share": "partial_rotary_factor",
    "short": "short_factor",
    "long": "long_factor",
}
SHORT = 2048  # tokens at which frequencies are compared if a config states no context


@dataclass(frozen=True)
class Difference:
    """One setting that differs between two models: its name, the layers, both values as text."""

    what: str
    layers: tuple[int, ...]
    first: str
    second: str

    def __str__(self) -> str:
        where = f"{_named(self.layers)}: " if self.layers else ""
        return f"{where}{self.what}: {self.first} ≠ {self.second}"


def compare(first: Path | Source, second: Path | Source) -> list[Difference]:
    """List the differences between two models' files: two configs, or a config and a GGUF file.

    Raises ModelError for a file that cannot be read.
    """
    one, other = Source.of(first), Source.of(second)
    return differences(one.own_spec, other.own_spec, layouts=_is_gguf(one) == _is_gguf(other))


def differences(spec: Spec, other: Spec, layouts: bool = True) -> list[Difference]:
    """List the positional settings in which two text models differ.

    `layouts`: True compares the pair layout ("half" or "interleaved") too.
    """
    one, two = spec.text_stack, other.text_stack
    found = [
        Difference(what, (), _shown(a), _shown(b))
        for what, a, b in (
            ("context", one.context, two.context),
            ("layers", len(one.layers), len(two.layers)),
            ("heads", one.heads, two.heads),
            ("key heads", one.groups, two.groups),
            ("embeddings", _embedding(one), _embedding(two)),
        )
        if a != b
    ]
    length = one.context or SHORT
    by_words: dict[tuple[str, str, str], list[int]] = {}
    for number, (a, b) in enumerate(zip(one.layers, two.layers, strict=False)):
        for words in _of_layers(a, b, length, layouts):
            by_words.setdefault(words, []).append(number)
    found += [Difference(words[0], tuple(n), *words[1:]) for words, n in by_words.items()]
    return found


def to_json(found: Sequence[Difference]) -> list[dict[str, Any]]:
    return [asdict(difference) for difference in found]


def _of_layers(a: Layer, b: Layer, length: int, layouts: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (setting, first value, second value) for each setting in which two layers differ."""
    if a.attends != b.attends or type(a.encoding) is not type(b.encoding):
        yield "encoding", describe_layer(a), describe_layer(b)
        return
    if isinstance(a.encoding, Rotary) and isinstance(b.encoding, Rotary):
        yield from _of_rotations(a.encoding, b.encoding, length, layouts)
    elif a.encoding != b.encoding and a.encoding and b.encoding:
        yield "encoding", describe_encoding(a.encoding), describe_encoding(b.encoding)
    for what, one, two in (
        ("window", a.window, b.window),
        ("bidirectional", not a.causal, not b.causal),
        ("softmax scale", _scale(a), _scale(b)),
        ("softcap", a.softcap, b.softcap),
        ("temperature", a.temperature, b.temperature),
    ):
        if not _near(one, two):
            yield what, _shown(one), _shown(two)


def _of_rotations(
    a: Rotary, b: Rotary, length: int, layouts: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield (setting, first value, second value) for each setting in which two RoPEs differ."""
    sizes = [(turn.turned, turn.dim, turn.trailing) for turn in (a, b)]
    if sizes[0] != sizes[1]:
        words = [f"{'last ' if end else ''}{some} of {dim}" for some, dim, end in sizes]
        yield "rotated channels", words[0], words[1]
    elif (a.sections, a.interleaved) != (b.sections, b.interleaved):
        yield "sections", _shown(a.sections), _shown(b.sections)
    elif not _near(tuple(a.theta(length)), tuple(b.theta(length))):
        yield "frequencies", *_distinct_words(a, b)
    if not _near(a.gain, b.gain):
        yield "factor of cos and sin", _shown(a.gain), _shown(b.gain)
    if layouts and a.layout != b.layout:
        yield "layout", _shown(a.layout), _shown(b.layout)


def _distinct_words(a: Rotary, b: Rotary) -> tuple[str, str]:
    """Describe two RoPEs; if the descriptions are equal, append the settings that differ."""
    words = describe_encoding(a), describe_encoding(b)
    if words[0] != words[1]:
        return words
    differ = [name for name in SETTINGS if getattr(a, name) != getattr(b, name)]
    more = [
        ", ".join(f"{SETTINGS[n]} {_shown(getattr(turn, n))}" for n in differ) for turn in (a, b)
    ]
    return f"{words[0]}, {more[0]}", f"{words[1]}, {more[1]}"


def _scale(layer: Layer) -> float | None:
    """Return a layer's softmax scale; None for the default, 1/√channels, without RoPE."""
    turn = layer.encoding
    if layer.scale is not None or not isinstance(turn, Rotary):
        return layer.scale
    return turn.dim**-0.5 * turn.logit_gain


def _near(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return all(_near(x, y) for x, y in zip_longest(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return isclose(a, b, rel_tol=NEAR)
    return a == b


def _embedding(spec: Spec) -> str:
    return describe_encoding(spec.embedding) if spec.embedding else "none"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return (
        f"{value:,.6g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def _named(layers: Sequence[int]) -> str:
    """Format layer indices as ranges, such as "layers 0–3, 5".

    >>> _named((0, 1, 2, 5))
    'layers 0–2, 5'
    """
    runs: list[list[int]] = []
    for number in layers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    spans = (f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(spans)}"


def _is_gguf(source: Source) -> bool:
    files = source.files
    return files.format == "gguf" and (source.path.is_file() or files.config is None)
