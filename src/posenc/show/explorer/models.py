"""Describe models for the explorer's context view: layers, rotations, risks of longer texts.

Models share equal rotations under one key. Wavelengths are 2π / θ · slower, in tokens: `theta`
before any extension, and for each method the factor by which it slows a pair. Everything is
computed here; the page reads no config.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypedDict
from zlib import crc32

from posenc.analysis.frequencies import stretched
from posenc.core.frequencies import frequencies
from posenc.encodings.rotary.theta import Theta
from posenc.models import config, published
from posenc.models.config.families import model_types
from posenc.models.config.source import Source
from posenc.models.config.spec import Rotary, Spec
from posenc.models.files.errors import ModelError
from posenc.models.inspection import Inspection, Verdict, advise, inspect, inspect_spec
from posenc.models.inspection import Turning as Inspected
from posenc.models.length_risks import length_risks
from posenc.show.explorer.graphs import numbers
from posenc.show.report.kinds.inspection import phrases
from posenc.show.report.phrases import runs

FACTORS = 2, 4, 8, 16  # wanted lengths, in multiples of the trained one
# Words for methods of extension, by their names in analysis.frequencies
METHODS = {
    "interpolate": "linear",
    "ntk": "NTK",
    "dynamic_ntk": "dynamic NTK",
    "yarn": "YaRN",
    "llama3": "Llama 3",
}
DIGITS = 5  # digits of the factor by which a pair turns slower


class StretchedPairs(TypedDict):
    slower: list[float]  # factor of each pair; 0 if the pair does not rotate
    gain: float  # factor of cos and sin


class Stretched(TypedDict):
    factor: int
    target: int  # tokens
    methods: dict[str, StretchedPairs]  # methods by their names in METHODS


class TurningEntry(TypedDict):
    """The page's data about a RoPE: its frequencies, trained length, and context extensions."""

    turned: int  # rotated channels of a head
    dim: int  # channels of a head
    base: float
    method: str  # "default", or the method by which the config is already extended
    trained: int | None  # tokens; if `declared` is set, before extension
    declared: int | None  # context after extension, of which an unknown part was trained
    theta: dict[str, Any]  # radians per token, one a pair, before any extension
    slower: list[float]  # factor by which the config slows each pair
    gain: float
    unfinished: int  # pairs that complete no turn within the trained length
    sentences: list[str]  # sentences of `posenc inspect`
    extended: list[Stretched]  # empty if the trained length is unknown


class Layers(TypedDict):
    """Layers of a model that have the same attention window and the same rotation."""

    layers: str  # "layers 0–4, 6"
    does: str
    window: int | None  # tokens
    turning: str | None  # a key of `turnings`


class Outlook(TypedDict):
    """The risks of running a model on a text of `target` tokens."""

    target: int
    verdict: Verdict  # "fits", "breaks" or "cannot say"
    problems: list[str]
    unknown: list[str]
    advice: list[str]


class ModelEntry(TypedDict):
    name: str  # a `model_type`, or the user's file
    own: bool  # True for a user's model
    published: bool  # True for a published config, False for the defaults of a class
    facts: str  # "28 layers, 28 heads in 4 groups, 32,768 tokens"
    embedding: str  # the encoding added to embeddings, or ""
    context: int | None
    trained: int | None
    layers: list[Layers]
    notes: list[str]
    outlooks: list[Outlook]  # at the context, and at FACTORS times it


@cache
def architectures() -> tuple[Sequence[ModelEntry], dict[str, TurningEntry]]:
    """Describe the published models, and every supported `model_type` of transformers."""
    described: list[ModelEntry] = []
    turnings: dict[str, TurningEntry] = {}
    for name, published_config in published.configs().items():
        model, turns = published_model(name, published_config)
        described.append(model)
        turnings |= turns
    for name in sorted(model_types()):
        with suppress(ModelError):
            model, turns = architecture(name)
            described.append(model)
            turnings |= turns
    return described, turnings


def published_model(
    name: str, values: Mapping[str, Any]
) -> tuple[ModelEntry, dict[str, TurningEntry]]:
    """Describe the RoPE of a published model from its packaged config."""
    spec, file = config.specify(values, name), "config.json"
    inspection = inspect_spec(spec, file, file, None)
    advised = partial(advise, spec.text_stack, file, values=values)
    described, turnings = _described(name, False, spec, inspection, advised)
    layers = [layer for layer in described["layers"] if layer["turning"]]
    for layer in layers:
        far = "layers that see everything" if len(layers) > 1 else "layers that turn"
        layer["layers"] = f"layers with a window of {layer['window']:,}" if layer["window"] else far
    facts = phrases.facts(inspection).partition(", ")[2].partition(", ")[2]
    described["published"], described["layers"] = True, layers
    described["facts"], described["notes"] = facts, []
    return described, turnings


def architecture(name: str) -> tuple[ModelEntry, dict[str, TurningEntry]]:
    """Describe a `model_type` by the defaults of its class. Raises ModelError if unsupported.

    Real models differ from these defaults, so the advice is to inspect the config of a model.
    """
    file = "config.json"
    spec = config.specify({"model_type": name})
    return _described(name, False, spec, inspect_spec(spec, file, file, None), _inspect_yours)


def model(path: Path, name: str = "") -> tuple[ModelEntry, dict[str, TurningEntry]]:
    """Describe a user's model folder or config.json. Raises ModelError if it cannot be read."""
    source = Source(path)
    inspection = inspect(source, name=name)
    advised = partial(advise, source.spec.text_stack, str(path), values=source.values)
    return _described(inspection.name, True, source.spec, inspection, advised)


def _inspect_yours(targets: Sequence[int]) -> list[list[str]]:
    why = "  # of your model, whose config may differ from these defaults"
    return [[f"posenc inspect config.json --target {target}{why}"] for target in targets]


def _described(
    name: str,
    own: bool,
    full_spec: Spec,
    inspection: Inspection,
    advised: Callable[[Sequence[int]], list[list[str]]],
) -> tuple[ModelEntry, dict[str, TurningEntry]]:
    spec = inspection.spec
    if not (spec.layers or spec.embedding):
        raise ModelError(
            name, "", "has no attention over a text, so the explorer has nothing to show"
        )
    turnings: dict[str, TurningEntry] = {}
    layers: list[Layers] = []
    for group in inspection.groups:
        key = None
        if group.turning is not None:
            key = _key(group.turning)
            if key not in turnings:
                turnings[key] = turning(group.turning, spec.trained or spec.context)
        layers.append(
            {
                "layers": runs(group.layers),
                "does": group.does,
                "window": group.window,
                "turning": key,
            }
        )
    targets = [spec.context * factor for factor in (1, *FACTORS)] if spec.context else []
    return {
        "name": name,
        "own": own,
        "published": False,
        "facts": phrases.facts(inspection),
        "embedding": inspection.embedding,
        "context": spec.context,
        "trained": spec.trained,
        "layers": layers,
        "notes": list(spec.notes),
        "outlooks": [
            _outlook(full_spec, target, advice)
            for target, advice in zip(targets, advised(targets), strict=True)
        ],
    }, turnings


def turning(inspected: Inspected, trained: int | None) -> TurningEntry:
    """Return the page's data about a RoPE: its frequencies, trained length, and extensions."""
    rotary = inspected.rotary
    trained = inspected.trained or trained
    return {
        "turned": rotary.turned,
        "dim": rotary.dim,
        "base": rotary.base,
        "method": rotary.method,
        "trained": trained,
        "declared": inspected.declared,
        "theta": numbers(frequencies(rotary.turned, rotary.base)),
        "slower": [_rounded(pair.slower) for pair in inspected.pairs],
        "gain": rotary.gain,
        "unfinished": inspected.unfinished,
        "sentences": phrases.turning(inspected),
        "extended": _extended(tuple(rotary.unscaled()), trained) if trained else [],
    }


@cache
def _extended(theta: Theta, trained: int) -> list[Stretched]:
    extended: list[Stretched] = []
    for factor in FACTORS:
        ways = stretched(theta, trained, float(factor))
        extended.append(
            {
                "factor": factor,
                "target": factor * trained,
                "methods": {
                    label: {"slower": _slower(theta, ways[name][0]), "gain": ways[name][1]}
                    for name, label in METHODS.items()
                    if name in ways
                },
            }
        )
    return extended


def _slower(before: Theta, after: Theta) -> list[float]:
    pairs = zip(before, after, strict=True)
    return [_rounded(was / now if now else float("inf")) for was, now in pairs]


def _rounded(slower: float) -> float:
    return 0.0 if slower == float("inf") else float(f"{slower:.{DIGITS}g}")


def _outlook(full_spec: Spec, target: int, advice: list[str]) -> Outlook:
    problems, unknown = length_risks(full_spec, full_spec.text_stack, target)
    return {
        "target": target,
        "verdict": "breaks" if problems else "cannot say" if unknown else "fits",
        "problems": problems,
        "unknown": unknown,
        "advice": advice if problems else [],
    }


def _key(inspected: Inspected) -> str:
    """Return a key that is the same for equal rotations, which then share one entry."""
    rotary: Rotary = replace(inspected.rotary, layout=None, trailing=False)
    rest = crc32(str([rotary, *phrases.turning(inspected)]).encode())
    lengths = f"{inspected.trained}-{inspected.span}"
    return f"{rotary.turned}-{rotary.dim}-{rotary.base:g}-{lengths}-{rest:08x}"
