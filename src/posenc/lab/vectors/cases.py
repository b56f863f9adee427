"""The test vectors: settings and inputs of positional encodings, with the expected outputs.

    angles      θ and a position → cos and sin, with the gain and the softmax scale
    rotation    queries and keys → the rotated ones, rounded once to a precision
    encoding    any encoding, with its parameters → embeddings, or scores before the softmax
    ids         text, pictures, video and sound → position ids and `delta`
    mask        positions → the pairs that attention sees

cos and sin are those of the exact product p·θ of a position and a θ in float64. Inputs are
multiples of 1/8 that every precision represents, made without a random generator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.attention.scores import scores
from posenc.catalog import CATALOG, create
from posenc.core import masks, positions
from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, frequencies, join, split
from posenc.encodings.additive.learned import Learned
from posenc.encodings.rotary import extension
from posenc.encodings.rotary.axial import axial
from posenc.encodings.rotary.dinov3 import dinov3
from posenc.encodings.rotary.directions import golden_gate, spiral
from posenc.encodings.rotary.fope import FoPE
from posenc.encodings.rotary.mrope import MRoPE, mrope, spatial_first
from posenc.encodings.rotary.p_rope import p_rope
from posenc.encodings.rotary.remaps import dual_chunk, rerope, self_extend
from posenc.models import published
from posenc.models.config import specify
from posenc.models.config.spec import Layer, Rotary
from posenc.positions.diffusion import DIFFUSION, text_and_grid
from posenc.positions.multimodal import multimodal
from posenc.positions.rules import RULES, MultimodalRule, rule_of
from posenc.properties.probe import in_float64
from posenc.rotation.rotate import formula, rotate
from posenc.rotation.table import turn

PRECISIONS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Options that keep the tables of parameters small
SMALL: Mapping[str, dict[str, Any]] = {
    "Learned": {"length": 16},
    "DeBERTa": {"reach": 8},
    "Inkling": {"rank": 2, "reach": 4, "floor": 3},
}
# Encodings with other options than their defaults
VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("RoPE", {"base": None, "gain": 2.0, "logit_gain": 1.25}),
    ("RoPE", {"learned": True}),
    ("ReRoPE", {"remap": rerope(2)}),
    ("ReRoPE", {"remap": self_extend(2, 3)}),
    ("ReRoPE", {"remap": dual_chunk(3, 1)}),
    ("ReRoPE", {"remap": dual_chunk(5, 3)}),
    ("FoPE", {"length": 64, "rest": 1.0}),
    ("xPos", {"span": 64, "centre": 100}),
    ("p-RoPE", {"p": 0.5, "base": 100.0}),
)


def _llama(context: int, base: float, **scaling: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": 32,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "max_position_embeddings": context,
        "rope_theta": base,
        "rope_scaling": scaling,
    }


# Scalings that no published config has, such as a ramp of YaRN that leaves the pairs at either end
UNPUBLISHED: dict[str, dict[str, Any]] = {
    "YaRN of 16 tokens": _llama(
        64, 1e4, rope_type="yarn", factor=4.0, original_max_position_embeddings=16
    ),
    "YaRN of 200,000 tokens": _llama(
        800_000,
        50.0,
        rope_type="yarn",
        factor=4.0,
        original_max_position_embeddings=200_000,
        beta_fast=10_000.0,
    ),
    "YaRN of equal ends": _llama(
        4096,
        1e4,
        rope_type="yarn",
        factor=4.0,
        original_max_position_embeddings=1024,
        beta_fast=1.001,
        truncate=False,
    ),
    "dynamic": _llama(4096, 1e4, rope_type="dynamic", factor=4.0),
    "proportional": _llama(4096, 1e4, rope_type="proportional", partial_rotary_factor=0.5),
}
LAYOUTS: tuple[Layout, Layout] = ("interleaved", "half")
TOKENS = 6
SECONDS = (0.5, 0.7, 0.3, 0.1)  # from one frame to the next, of each video of a text
FAR, FARTHEST = 1_000_000, 10_000_000


@dataclass(frozen=True)
class VectorCase:
    """A test vector: the settings, inputs and expected outputs of one computation.

    `core` marks vectors of the small set that other projects can copy.

    - `tolerance`: largest absolute error of an implementation that computes in float32
    """

    name: str
    kind: str
    settings: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    tolerance: float = 1e-5
    core: bool = field(default=False, compare=False)


def cases() -> Iterator[VectorCase]:
    """Yield every test vector, with its settings, inputs and outputs."""
    groups = of_rotations, of_extensions, of_axes, of_configs, of_encodings, of_texts, of_diffusion
    for group in (*groups, of_masks):
        yield from group()


def pattern(*shape: int, start: int = 0) -> Tensor:
    """Return a tensor of this shape with multiples of 1/8 from −2 to 2, equal on every machine."""
    numbers = torch.arange(start, start + torch.Size(shape).numel())
    return ((numbers * 7919 % 33 - 16) / 8).double().view(shape)


def turns(pos: Tensor, theta: Tensor) -> Tensor:
    """Return cos + i·sin of the exact product position · θ, (…, token, pair).

    - `pos`: positions, (…, token), or points, (…, token, axis), below 2²⁴
    - `theta`: radians per token, (pair,) or (axis, pair)

    θ is split in two parts, so that the product of each with a position is exact.
    """
    pos, theta = (pos[..., None], theta[None]) if theta.ndim == 1 else (pos, theta)
    high = theta.float().double()
    angle = torch.stack([pos.double()[..., None] * part for part in (high, theta - high)])
    return torch.polar(torch.ones_like(angle), angle).prod(0).prod(-2)


def rotated(x: Tensor, by: Tensor, layout: Layout, start: int) -> Tensor:
    """Return `x` with its rotary pairs multiplied by the complex factors `by`.

    The rotated channels begin at `start`.
    """
    stop = start + 2 * by.shape[-1]
    z = torch.complex(*split(x[..., start:stop], layout)) * by
    return torch.cat([x[..., :start], join(z.real, z.imag, layout), x[..., stop:]], -1)


def placed() -> dict[str, Tensor]:
    """Return example tensors of token positions by name, such as "far" or "packed"."""
    line = torch.arange(3)
    return {
        "start": line,
        "far": FAR + line,
        "farthest": FARTHEST + line,
        "shuffled": torch.tensor([7, 0, 3]),
        "padded": positions.padded([3, 2]),
        "packed": positions.packed([2, 1]),
        "per head": torch.stack([line, 10 * line])[None],
    }


def of_rotations() -> Iterator[VectorCase]:
    """Yield test vectors that rotate all channels, the first half, or the last half."""
    for dim, layout, precision in product((32, 64), LAYOUTS, PRECISIONS):
        parts = {"all": (dim, 0), "first": (dim // 2, 0), "last": (dim // 2, dim // 2)}
        for part, (channels, start) in parts.items():
            theta = frequencies(channels)
            for where, pos in placed().items():
                name = f"rotation/{layout}/{part} of {dim}/{where}/{precision}"
                core = dim == 32 and (
                    precision == "float64" or (precision, part) == ("bfloat16", "all")
                )
                yield _rotation(name, {}, theta, pos, dim, layout, start, precision, core=core)


def _rotation(
    name: str,
    settings: dict[str, Any],
    theta: Tensor,
    pos: Tensor,
    dim: int,
    layout: Layout,
    start: int = 0,
    precision: str = "float64",
    gain: float = 1.0,
    core: bool = False,
) -> VectorCase:
    """Return a test case of rotated queries and keys, rounded once to the given precision."""
    by = gain * turns(pos, theta)
    points = theta.ndim > 1
    tokens = pos.shape[-2 if points else -1]
    batch, heads = (
        (by.shape[0], by.shape[1]) if by.ndim == 4 else (len(by), 1) if by.ndim == 3 else (1, 1)
    )
    by = by if by.ndim == 4 else by[..., None, :, :]
    q, k = (pattern(batch, heads, tokens, dim, start=number) for number in (0, 5))
    settings = settings | {
        "layout": layout,
        "start": start,
        "gain": gain,
        "precision": precision,
    }
    outputs = {
        f"rotated_{letter}": rotated(x, by, layout, start).to(PRECISIONS[precision])
        for letter, x in (("q", q), ("k", k))
    }
    inputs = {"theta": theta, "positions": pos, "q": q, "k": k}
    rounding = torch.finfo(PRECISIONS[precision]).eps
    return VectorCase(name, "rotation", settings, inputs, outputs, max(4 * rounding, 1e-6), core)


def own_error(case: VectorCase) -> float:
    """Return the largest error of posenc's own rotation on a test vector.

    Queries and keys are rotated in float32, or in 16 bits if the case has this precision, by each
    kernel for CPUs and by the plain formula.
    """
    theta, pos = case.inputs["theta"], case.inputs["positions"]
    by, layout = turn(pos, theta, case.settings["gain"]), case.settings["layout"]
    errors = [0.0]
    for letter, rotation in product("qk", (rotate, formula)):
        right = case.outputs[f"rotated_{letter}"]
        x = case.inputs[letter].to(right.dtype if right.itemsize == 2 else torch.float32)
        whole = 2 * by.cos.shape[-1] == x.shape[-1]
        found = rotation(x, by, layout, None if whole else case.settings["start"])
        errors.append(float((found.double() - right.double()).abs().max()))
    return max(errors)


def _angles(
    name: str, settings: dict[str, Any], theta: Tensor, pos: Tensor, core: bool = False
) -> VectorCase:
    by = turns(pos, theta)
    outputs = {"theta": theta, "cos": by.real, "sin": by.imag}
    return VectorCase(name, "angles", settings, {"positions": pos}, outputs, 1e-6, core)


def of_extensions() -> Iterator[VectorCase]:
    """Yield test vectors for the frequencies θ of each method of context extension."""
    pos = torch.tensor([0, 1, 4095, FAR])
    for dim, base, factor in product((32, 64, 128), (1e4, 5e5, 1e7), (2.0, 4.0, 8.0, 32.0)):
        theta = frequencies(dim, base)
        for method, (stretched, more) in _stretched(theta, factor).items():
            settings = {"dim": dim, "base": base, "method": method, "factor": factor}
            name = f"angles/{method}/{dim}/{base:g}/x{factor:g}"
            core = (dim, base) == (32, 1e4) and factor in (2.0, 8.0)
            yield _angles(name, settings | {"trained": 4096} | more, stretched, pos, core)

    wide: dict[str, Any] = {"trained": 200_000, "fast": 10_000.0}
    theta = extension.yarn(frequencies(32, 50.0), 4.0, **wide)
    settings = {"dim": 32, "base": 50.0, "method": "yarn", "factor": 4.0} | wide
    yield _angles("angles/yarn, wide ramp/32/50/x4", settings, theta, pos, True)


def _stretched(theta: Tensor, factor: float) -> dict[str, tuple[Tensor, dict[str, Any]]]:
    """Map each method of context extension to the extended θ and the method's other settings.

    The RoPE was trained on 4,096 tokens.
    """
    length = round(4096 * factor)
    # Factors for each pair that a search might have found
    short, long = ([1 + j * by for j in range(len(theta))] for by in (1 / 32, 1 / 4))
    gain, scales = extension.yarn_gain(factor), {"mscale": 0.75, "mscale_all_dim": 1.0}
    ends: dict[str, Any] = {"slow": 2.0, "fast": 16.0}
    softmax_gain = extension.yarn_logit_gain(factor, scales["mscale_all_dim"])
    lists = {"short": short, "long": long, "gain": extension.longrope_gain(factor, 4096)}
    return {
        "default": (theta, {}),
        "linear": (extension.interpolate(theta, factor), {}),
        "ntk": (extension.ntk(theta, factor), {}),
        "dynamic": (extension.dynamic_ntk(theta, length, 4096, factor), {"length": length}),
        "dynamic, half": (extension.dynamic_ntk(theta, 2048, 4096, factor), {"length": 2048}),
        "dynamic, 3/2": (extension.dynamic_ntk(theta, 6144, 4096, factor), {"length": 6144}),
        "by parts": (extension.by_parts(theta, factor, 4096), {}),
        "by parts, ends": (extension.by_parts(theta, factor, 4096, **ends), ends),
        "yarn": (extension.yarn(theta, factor, 4096), {"gain": gain}),
        "yarn, slow pairs": (extension.yarn(theta, factor, 16), {"trained": 16}),
        "yarn, fast pairs": (extension.yarn(theta, factor, 10**9), {"trained": 10**9}),
        "yarn, ends": (
            extension.yarn(theta, factor, 4096, **ends, rounded=False),
            ends
            | scales
            | {
                "truncate": False,
                "gain": extension.yarn_gain(factor, **scales),
                "softmax_gain": softmax_gain,
            },
        ),
        "llama3": (extension.llama3(theta, factor, 4096), {}),
        "longrope, short": (extension.longrope(theta, 4096, 4096, short, long), lists),
        "longrope, long": (extension.longrope(theta, length, 4096, short, long), lists),
        "riflex": (extension.riflex(theta, 4096 * factor, 4096.0), {"repeats": 4096}),
    }


def of_axes() -> Iterator[VectorCase]:
    """Yield test vectors of frequencies (axis, pair), such as those of axial RoPE and M-RoPE."""
    points = torch.tensor([[0, 0, 0], [1, 2, 3], [100, 5, 70]])
    line, shares = frequencies(32), (6, 5, 5)
    # The cases are those of the second of two heads
    gate = golden_gate(32, 2, 0.2, 20.0)
    of_gate: dict[str, Any] = {"axes": 2, "slowest": 0.2, "fastest": 20.0, "head": 1, "heads": 2}
    spread: dict[str, Any] = {"axes": 3, "base": (1e4, 2000.0, 256.0), "sections": shares}
    of_sections: dict[str, Any] = {"base": 1e4, "sections": shares}
    made: dict[str, tuple[Tensor, dict[str, Any]]] = {
        "axial": (axial(32), {"axes": 2, "base": 1e4}),
        "axial, sections": (axial(32, **spread), spread),
        "axial, yarn": (
            extension.yarn(axial(64), 8.0, 64),
            {"axes": 2, "base": 1e4, "factor": 8.0, "trained": 64},
        ),
        "axial, by parts": (
            extension.by_parts(axial(64), 8.0, 64),
            {"axes": 2, "base": 1e4, "factor": 8.0, "trained": 64},
        ),
        "m-rope": (mrope(line, shares), of_sections),
        "m-rope, interleaved": (mrope(line, shares, True), of_sections),
        "m-rope, spatial first": (spatial_first(line, shares), of_sections),
        "m-rope, ntk": (extension.ntk(mrope(line, shares), 4.0), of_sections | {"factor": 4.0}),
        "m-rope, p-rope": (p_rope(mrope(line, shares), 0.5), of_sections | {"p": 0.5}),
        "m-rope, p-rope, ntk": (
            extension.ntk(p_rope(mrope(line, shares), 0.5), 4.0),
            of_sections | {"p": 0.5, "factor": 4.0},
        ),
        "m-rope, qwen": (MRoPE(32).freqs, {"base": 1e4}),
        "dinov3": (dinov3(32), {"axes": 2, "base": 100.0}),
        "spiral": (spiral(32), {"axes": 2, "base": 1e4}),
        "golden gate": (gate[:, 1], of_gate),
        "golden gate, by parts": (
            extension.by_parts(gate, 8.0, 64)[:, 1],
            of_gate | {"factor": 8.0, "trained": 64},
        ),
    }
    for method, (theta, settings) in made.items():
        settings = {"dim": 2 * theta.shape[1], "method": method} | settings
        at = positions.centred(2, 3) if method == "dinov3" else points[:, : len(theta)]
        yield _angles(f"angles/{method}", settings, theta, at, True)


def of_configs() -> Iterator[VectorCase]:
    """Yield test vectors with the angles and rotations of published models' layers."""
    for model, config in (published.configs() | UNPUBLISHED).items():
        spec = specify(config, model).text_stack
        turning = [layer for layer in spec.layers if isinstance(layer.encoding, Rotary)]
        for number, layer in enumerate(dict.fromkeys(turning)):
            yield from _of_layer(
                model, config, layer, spec.layers.index(layer), spec.context or 0, number
            )


def _of_layer(
    model: str, config: Mapping[str, Any], layer: Layer, place: int, context: int, number: int
) -> Iterator[VectorCase]:
    rotary = layer.encoding
    assert isinstance(rotary, Rotary)
    theta = rotary.frequencies(context)
    gain, scale = rotary.gain, layer.build(context, "half").scale(rotary.dim)
    name, core = f"{model}/layer {place}", number == 0 and not rotary.sections
    for length in _lengths(rotary, context):
        settings: dict[str, Any] = {"config": config, "layer": place, "length": length}
        settings |= {"gain": gain, "softmax_scale": scale}
        edge = torch.tensor([0, 1, length // 2, length - 1])
        edge = _points(edge, rotary) if rotary.sections else edge
        label = "angles" if length == context else f"angles, {length} tokens"
        found = rotary.frequencies(length)
        yield _angles(f"config/{name}/{label}", settings, found, edge, core=core)
    sets = {
        "start": torch.arange(2),
        "edge": torch.tensor([context - 1]),
        "far": torch.tensor([FAR]),
        "shuffled": torch.tensor([5, 2]),
        "padded": positions.padded([2, 1]),
    }
    for where, precision in product(sets, ("float64", "float32", "bfloat16")):
        pos = _points(sets[where], rotary) if rotary.sections else sets[where]
        yield _rotation(
            f"config/{name}/{where}/{precision}",
            {"model": model, "layer": place, "length": context},
            theta,
            pos,
            rotary.dim,
            rotary.layout or "half",
            (rotary.dim - rotary.turned) * rotary.trailing,
            precision,
            rotary.gain,
            core=core and rotary.gain != 1 and (where, precision) == ("shuffled", "float64"),
        )


def _lengths(rotary: Rotary, context: int) -> list[int]:
    """Return the text lengths at which the θ of a config is tested."""
    if not rotary.by_length:
        return [context]
    return sorted({context, rotary.trained, rotary.trained * 3 // 2})


def _points(pos: Tensor, rotary: Rotary) -> Tensor:
    """Return points (…, axis) with different coordinates p, p + 1, p + 2, … for each position p."""
    return pos[..., None] + torch.arange(len(rotary.sections))


def of_encodings() -> Iterator[VectorCase]:
    """Yield test vectors of every encoding in the catalogue, at two sizes."""
    usual = [(card.name, SMALL.get(card.name, {})) for card in CATALOG]
    for (name, options), (dim, heads) in product((*usual, *VARIANTS), ((8, 2), (16, 4))):
        encoding = _filled(in_float64(create(name, dim, heads, **options)))
        for where, (pos, k_pos) in _pairs(encoding, heads).items():
            yield _encoding(name, options, encoding, dim, heads, where, pos, k_pos)
    # Waves of each key head, and of each query head at positions of each key head
    line = positions.sequence(TOKENS)
    for own, pos in ((2, line), (4, torch.stack([line, line + 2])[None])):
        encoding = _filled(in_float64(FoPE(8, heads=own)))
        where = f"grouped, {own} heads of waves"
        case = _encoding("FoPE", {"length": 2048}, encoding, 8, 4, where, pos, pos)
        yield replace(case, core=True)


def _filled(encoding: Encoding) -> Encoding:
    """Set an encoding's parameters to positive multiples of 1/16, which floats hold exactly."""
    with torch.no_grad():
        for number, parameter in enumerate(encoding.parameters()):
            parameter.copy_((pattern(*parameter.shape, start=number).abs() * 8 + 1) / 16)
    return encoding


def _pairs(encoding: Encoding, heads: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return pairs of query and key positions at which encodings are tested, by name."""
    if encoding.axes > 1:
        grid = positions.folded(TOKENS, encoding.axes)
        by_head = torch.stack([grid + 2 * head for head in range(heads)])[None]
        points = {"grid": grid, "moved": grid + 100}
        points |= {} if "on_embeddings" in encoding.acts_on else {"per head": by_head}
        return {name: (pos, pos) for name, pos in points.items()}
    line = positions.sequence(TOKENS)
    alone = {
        "start": line,
        "shuffled": torch.tensor([3, 0, 5, 1, 4, 2]),
        "padded": positions.padded([6, 4]),
        "packed": positions.packed([4, 2]),
    }
    if not isinstance(encoding, Learned):
        alone["far"] = 1000 + line
    if "on_embeddings" not in encoding.acts_on:
        alone["per head"] = torch.stack([line + 2 * head for head in range(heads)])[None]
        alone["grouped"] = alone["per head"]
    return {name: (pos, pos) for name, pos in alone.items()} | {"decode": (line[-1:], line)}


def _encoding(
    name: str,
    options: Mapping[str, Any],
    encoding: Encoding,
    dim: int,
    heads: int,
    where: str,
    pos: Tensor,
    k_pos: Tensor,
) -> VectorCase:
    points = encoding.axes > 1
    batch = len(pos) if pos.ndim > 1 + points else 1
    queries, keys = (at.shape[-2 if points else -1] for at in (pos, k_pos))
    width = dim * heads
    x = pattern(batch, keys, width)
    q = pattern(batch, heads, queries, dim, start=queries + 3)
    # In grouped attention, two query heads share a key
    key_heads = heads // 2 if where.startswith("grouped") else heads
    k = pattern(batch, key_heads, keys, dim, start=keys + 3)
    inputs = {"positions": pos, "key_positions": k_pos, "x": x, "q": q, "k": k}
    inputs |= {f"parameter {key}": value.detach() for key, value in encoding.state_dict().items()}
    outputs: dict[str, Tensor] = {}
    if "on_embeddings" in encoding.acts_on:
        outputs["embeddings"] = encoding.on_embeddings(x, encoding.prepare(k_pos))
        inputs = {key: value for key, value in inputs.items() if key not in "qk"}
    else:
        mask = masks.causal(pos, k_pos) if encoding.causal else None
        found = scores(encoding, q, k, pos, k_pos, x=x[:, -queries:], k_x=x, mask=mask)
        if mask is not None:
            seen = masks.causal(pos, k_pos)(*_indices(batch, heads, queries, keys))
            outputs["seen"] = seen.expand(batch, heads, queries, keys).clone()
            found = found.masked_fill(~outputs["seen"], 0.0)
        outputs["scores"] = found
    settings = {"encoding": name, "dim": dim, "heads": heads, "causal": encoding.causal}
    settings |= {**options, "softmax_scale": encoding.scale(dim)}
    chosen = (name, options) in VARIANTS
    usual = ("grid", "per head") if name == "RoPE-Mixed" else ("start", "grid")
    core = dim == 8 and where in (("start", "per head", "grouped") if chosen else usual)
    label = f"{name}, {', '.join(map(str, options.values()))}" if chosen else name
    outputs = {key: value.detach() for key, value in outputs.items()}
    return VectorCase(
        f"encoding/{label}/{dim}x{heads}/{where}", "encoding", settings, inputs, outputs, core=core
    )


def _indices(*sizes: int) -> list[Tensor]:
    """Return index tensors, one for each dimension, that broadcast to the shape `sizes`."""
    last = len(sizes) - 1
    return [torch.arange(size).view(-1, *[1] * (last - n)) for n, size in enumerate(sizes)]


def of_texts() -> Iterator[VectorCase]:
    """Yield test vectors of position ids for text with images, video and audio."""
    known: dict[str, tuple[MultimodalRule, Any]] = {
        name: (rule, rule) for name, rule in RULES.items()
    } | {name: (rule_of(config), config) for name, config in RULE_CONFIGS.items()}
    alike: set[MultimodalRule] = set()
    for label, (rule, stated) in known.items():
        anonymous = replace(rule, name="", note="")
        first = anonymous not in alike
        alike.add(anonymous)
        texts = {str(number): [_text(rule, number)] for number in range(12)}
        texts["batch"] = [_text(rule, number) for number in (5, 6, 7)]
        for name, batch in texts.items():
            # Every third text begins with padding
            left = 2 * (name.isdigit() and int(name) % 3 == 1)
            yield _ids(f"ids/{label}/{name}", rule, stated, batch, left, first or name in "012")


def _ids(
    name: str,
    rule: MultimodalRule,
    stated: MultimodalRule | Mapping[str, Any],
    batch: Sequence["MixedText"],
    left: int,
    core: bool,
) -> VectorCase:
    """Return a test vector of the position ids of a batch of texts.

    Texts are padded on the left, the longest one by `left` tokens.
    """
    longest = left + max(len(text.kinds) for text in batch)
    before = [longest - len(text.kinds) for text in batch]
    rows = [[0] * n + text.kinds for n, text in zip(before, batch, strict=True)]
    mask = [[0] * n + [1] * (longest - n) for n in before]
    videos = [size for text in batch for size in text.videos]
    given: dict[str, Any] = {
        "images": [size for text in batch for size in text.images],
        "videos": videos,
    }
    if rule.per_second:
        given["seconds"] = [SECONDS[n % len(SECONDS)] for n in range(len(videos))]
    inputs = {"kinds": torch.tensor(rows), "mask": torch.tensor(mask)}
    ids, delta = multimodal(inputs["kinds"], stated, mask=inputs["mask"], **given)
    settings = {"rule": rule.name, "merge": rule.merge} | given
    settings |= {} if stated is rule else {"config": stated}
    return VectorCase(name, "ids", settings, inputs, {"ids": ids, "delta": delta}, 0.0, core)


# Configs with other rules than the defaults of their classes
RULE_CONFIGS: dict[str, dict[str, Any]] = {
    "minicpmv4_7, 4x": {"model_type": "minicpmv4_7", "downsample_mode": "4x"},
    "minicpmv4_7, 16x": {"model_type": "minicpmv4_7", "downsample_mode": "16x"},
    "hunyuan_vl, 5 axes": {
        "model_type": "hunyuan_vl",
        "text_config": {"rope_scaling": {"xdrope_section": [4, 3, 3, 3, 3]}},
    },
    "hunyuan_vl, 3 axes": {
        "model_type": "hunyuan_vl",
        "text_config": {"rope_scaling": {"xdrope_section": [6, 5, 5]}},
    },
    # At 25 ids a second, the order of two roundings to float32 decides about some ids
    "qwen2_5_vl, 25 a second": {
        "model_type": "qwen2_5_vl",
        "vision_config": {"spatial_merge_size": 3, "tokens_per_second": 25},
    },
    "ernie4_5_vl_moe, 3 frames": {
        "model_type": "ernie4_5_vl_moe",
        "vision_config": {"temporal_merge_size": 3},
    },
}
Grids = list[tuple[int, int, int]]


class MixedText(NamedTuple):
    """A text: the kind of each token, and the sizes (t, h, w) of its images and videos."""

    kinds: list[int]
    images: Grids
    videos: Grids


def _text(rule: MultimodalRule, number: int) -> MixedText:
    """Make an example text with up to four images, videos and sounds."""
    kinds, images, videos = [0] * (1 + number % 3), Grids(), Grids()
    for part in range(1 + number % 4):
        rows, columns = 1 + (number + part) % 3, 1 + (number + 2 * part) % 4
        grid = rows * rule.merge, columns * rule.merge
        if rule.canvas:
            images.append((1, *grid))
            kinds += [4, *[1] * (rows * columns), 4]
            across, down = number % 3, 1 + (number + part) % 2
            for place in range(1, across * down + 1):
                images.append((1, 2 * rule.merge, columns * rule.merge))
                last_of_row = place % across == 0 and place < across * down
                kinds += [5, *[1] * (2 * columns), 4, *[4] * last_of_row]
        elif 3 in rule.kinds and number > 6 and not part:
            # Two frames with the sound of each, between two marks on each side
            videos.append((2 * rule.merge_time, *grid))
            kinds += ([2] * (rows * columns) + [3] * columns) * 2 + [0]
        elif 3 in rule.kinds and (number + part) % 3 == 2:
            kinds += [3] * (rows + columns)
        elif 2 in rule.kinds and (number + part) % 2:
            frames = rule.merge_time * (8 if number == 7 else 1 + number % 2)
            videos.append((frames, *grid))
            runs, tokens = (frames, 1) if rule.frames else (1, frames // rule.merge_time)
            kinds += ([2] * (tokens * rows * columns) + [0]) * runs
        else:
            images.append((1, *grid))
            marks = 2 * (rule.newline and part % 2)
            kinds += [1] * (rows * (columns + rule.newline) + marks)
        kinds += [0] * (1 + part)
    return MixedText(kinds, images, videos)


def of_diffusion() -> Iterator[VectorCase]:
    """Yield test vectors of the position ids of diffusion models, for texts with image grids."""
    for rule in DIFFUSION.values():
        for number in range(10):
            frames = 1 + 2 * (number % 2) if rule.video else 1
            grid = frames, 2 * (1 + number % 4), 2 * (1 + number % 3)
            words = 0 if rule.text == "apart" else number
            references = [(1, 2, 2)] * (number % 3) if rule.reference is not None else []
            rate = 25.0 if rule.steps else None
            settings = {"rule": rule.name, "text": words, "grid": grid, "references": references}
            settings |= {"rate": rate} if rate else {}
            ids = text_and_grid(words, grid, rule, references, rate)
            name = f"ids/{rule.name}/{number}"
            yield VectorCase(name, "ids", settings, {}, {"ids": ids}, 1e-9, core=number < 4)


def of_masks() -> Iterator[VectorCase]:
    """Yield test vectors of masks: the keys that each query sees."""
    for where, (pos, k_pos) in {
        "all": (torch.arange(8), torch.arange(8)),
        "decode": (torch.tensor([7]), torch.arange(8)),
        "moved": (torch.arange(100, 108), torch.arange(100, 108)),
        "padded": (positions.padded([8, 5], "left"),) * 2,
    }.items():
        ways = {"causal": masks.causal(pos, k_pos)}
        for size in (1, 4, 7):
            ways[f"window {size}"] = masks.window(size, pos, k_pos) & masks.causal(pos, k_pos)
            ways[f"window {size}, both ways"] = masks.window(size, pos, k_pos)
            near = masks.documents(pos // size, k_pos // size)
            ways[f"chunk {size}"] = near & masks.causal(pos, k_pos)
        for way, mask in ways.items():
            batch = len(pos) if pos.ndim > 1 else 1
            sizes = batch, 1, pos.shape[-1], k_pos.shape[-1]
            seen = mask(*_indices(*sizes)).expand(sizes)[:, 0]
            inputs = {"positions": pos, "key_positions": k_pos}
            yield VectorCase(
                f"mask/{way}/{where}", "mask", {"mask": way}, inputs, {"seen": seen}, 0.0, True
            )
