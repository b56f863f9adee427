"""Find the fault of any implementation of RoPE from the queries and keys that it returns.

`apply(q, k, positions)` is called with random queries and keys. A pair of channels z that is
rotated comes out as z·m, with the same number m for any content; so m is measured for each pair,
head and position, and compared with the m of the config and of each known fault:

    m = gain · exp(i a),    a = p θ

Faults are variants of one part of the formula: the channels of a pair, θ, the position p, the gain,
and numbers rounded to 16 bits. All combinations of variants are computed, and the one with the
fewest faults that explains the measured m is reported. If none does, θ or the positions are read
off m and described.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.core.frequencies import Layout, checked, split
from posenc.lab.vectors.measured import (
    CLOSE,
    angles,
    off,
    position_fault,
    positions,
    slack,
    theta_fault,
    thetas,
)
from posenc.models.config.parse import specify
from posenc.models.config.spec import Fourier, Rotary, Spec
from posenc.positions.multimodal import multimodal
from posenc.support.arguments import brief

Apply = Callable[[Any, Any, Any], Any]
SIXTEEN = {"bfloat16": torch.bfloat16, "float16": torch.float16}
REORDERED = (
    "The channels of a pair leave in another order, in queries and keys alike: scores are the same."
)
STAYS = "θ of an earlier, longer text is kept"
EXCHANGED = "long factors are used for a short text", "short factors are used for a long text"
NEAR = (0, 1, 2, 3, 5, 7, 8, 13, 100, 127, 128, 255, 256, 257, 300, 511, 1000, 2049)


class RotationFault(NamedTuple):
    """A fault of an implementation: a short name, and a sentence with the measured numbers."""

    name: str
    sentence: str


@dataclass(frozen=True)
class Verdict:
    """The result of testing an implementation of RoPE. `findings` lists its faults.

    - `error`: largest error of a rotated pair of length 1, against the config
    - `notes`: sentences about what is unusual and no fault
    """

    findings: tuple[RotationFault, ...]
    error: float
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "posenc.against/1",
            "passed": self.passed,
            "error": self.error,
            "findings": [finding._asdict() for finding in self.findings],
            "notes": [*self.notes],
        }


class Pairs(NamedTuple):
    """The arrangement of channels in rotary pairs, in the input and in the output of a rotation.

    If `across`, pairs are (i, i + dim/2) of the whole head, and the first of them turn.
    """

    layout: str
    dim: int
    turned: int
    start: int
    out: str
    across: bool = False

    def of(self, x: Tensor, side: str) -> Tensor:
        """Return the rotary pairs of `x` as complex numbers (…, pair).

        - `side`: "layout" for the arrangement of pairs in the input, "out" for that in the output
        """
        part = x[..., self._turned()]
        return torch.complex(*split(part, getattr(self, side)))

    def others(self, x: Tensor) -> Tensor:
        """Return the channels of `x` that are not rotated."""
        still = torch.ones(x.shape[-1], dtype=torch.bool)
        still[self._turned()] = False
        return x[..., still]

    def _turned(self) -> Tensor:
        """Return the indices of the channels that are rotated."""
        if not self.across:
            return torch.arange(self.start, self.start + self.turned)
        first = torch.arange(self.turned // 2)
        return torch.cat([first, first + self.dim // 2])


def against(
    apply: Apply,
    config: Mapping[str, Any],
    length: int | None = None,
    layer: int | None = None,
    layout: Layout | None = None,
) -> Verdict:
    """Find the faults of a RoPE implementation by comparing its outputs with correct ones.

    - `apply`: called with q and k, (batch, head, token, channel) in float32, and whole positions,
      (batch, token), or (batch, token, axis) for a model whose config has `mrope_section`; returns
      the rotated q and k, as torch or NumPy arrays
    - `config`: the values of a config.json
    - `length`: tokens of the text, where θ depends on it; None: those that the config allows, and
      those of the training, before and after
    - `layer`: index of the layer that is meant; None: the first that rotates and sees all tokens
    - `layout`: "half" or "interleaved", for programs that reorder the weights when they load them;
      None: that of the config's model

    The weights that mix the waves of FoPE must be unit matrices in `apply`.

    Raises ValueError for a config whose layers do not rotate, and for an output of another shape.

    >>> config = {"model_type": "llama", "hidden_size": 128, "num_attention_heads": 2}
    >>> against(lambda q, k, positions: (q, k), config).findings[0].name
    'queries and keys are not rotated'
    """
    spec = specify(config, "").text_stack
    rotary, still = _layer(spec, layer)
    rotary = replace(rotary, layout=rotary.layout if layout is None else checked(layout))
    test = partial(_tested, apply, rotary, spec, still)
    longest = length or spec.context or 4096
    if rotary.by_length:
        return _tested_by_length(test, rotary, longest, shorter=length is None)
    try:
        verdict = test(longest)
    except ValueError:
        # A table of cos and sin may refuse positions that the config does not allow
        verdict = test(longest, beyond=False)
        refused = f"Positions from {longest:,} on are refused, and were not tested."
        return replace(verdict, notes=(*verdict.notes, refused))
    if verdict.findings and longest == spec.context:
        within = test(longest, beyond=False)
        if within.passed:
            beyond = (f"{fault.name}. {fault.sentence}" for fault in verdict.findings)
            notes = (f"Beyond the {longest:,} tokens of the config, {said}" for said in beyond)
            return replace(within, notes=(*within.notes, *notes))
    return verdict


def _tested(
    apply: Apply, rotary: Rotary, spec: Spec, still: complex, length: int, beyond: bool = True
) -> Verdict:
    """Test an implementation at one length; `beyond` adds positions from `length` on."""
    observed = Observed(apply, ProbePositions.of(rotary, length, beyond), rotary, spec)
    return _verdict(observed, rotary, spec, length, still)


def _tested_by_length(
    test: Callable[..., Verdict], rotary: Rotary, length: int, shorter: bool
) -> Verdict:
    """Test an implementation whose θ depends on the length, at positions below `length`.

    - `shorter`: also test a text of the trained length, before and after the long one
    """
    short = min(rotary.trained, length)
    if not shorter or short == length:
        return test(length, beyond=False)
    before, long, after = (test(n, beyond=False) for n in (short, length, short))
    findings = {fault.name: fault for fault in (*before.findings, *long.findings)}
    if before.passed and not after.passed:
        said = f"A text of {short:,} tokens is right before one of {length:,}, and wrong after it."
        findings[STAYS] = RotationFault(STAYS, said)
    if {*EXCHANGED} <= {*findings}:
        said = f"at {short:,} and {length:,} tokens"
        findings = {"": RotationFault("short and long factors are exchanged", said)}
    error = max(before.error, long.error, after.error)
    return Verdict((*findings.values(),), error, long.notes)


def _layer(spec: Spec, layer: int | None) -> tuple[Rotary, complex]:
    """Return a layer's RoPE, and the factor by which unrotated pairs are multiplied.

    The factor is 1 + i for FoPE, and otherwise 1.
    """
    if layer is not None and not 0 <= layer < len(spec.layers):
        raise ValueError(
            f"`layer` must be from 0 to {len(spec.layers) - 1}, got {layer}. Pass the index of a"
            " layer."
        )
    if layer is None:
        chosen = [*(one for one in spec.layers if one.window is None), *spec.layers]
    else:
        chosen = [spec.layers[layer]]
    for one in chosen:
        if isinstance(one.encoding, Rotary):
            return one.encoding, 1
        if isinstance(one.encoding, Fourier):
            return one.encoding.unmixed, 1 + 1j
    raise ValueError(
        f"`config` must have a layer that rotates queries and keys, got {brief(spec)}. Pass a"
        " config with RoPE, or another `layer`."
    )


class ProbePositions(NamedTuple):
    """The token positions at which a RoPE implementation is tested.

    - `points`: (batch, token), or (batch, token, axis). All texts have the same positions: the
      first in order, the others not. Only the second begins with a position other than 0
    - `places`: (token,), the place of each token in its text
    """

    points: Tensor
    places: Tensor

    @classmethod
    def of(cls, rotary: Rotary, length: int, beyond: bool = True) -> "ProbePositions":
        points = {*NEAR, length // 2, length - 1, length, length + 5, 2 * length}
        line = torch.tensor(sorted(p for p in points if beyond or p < length))
        order = (7 * torch.arange(len(line)) + 3) % len(line)
        mixed = line[order] if len(line) % 7 else line.flip(0)
        texts = torch.stack([line, mixed, torch.cat([line[:1], line[1:].flip(0)])])
        if rotary.sections:
            axes = torch.arange(len(rotary.sections))
            # Each axis has its own positions, so that pairs show which axis they follow
            points = torch.stack([texts.roll(int(n), -1) for n in axes], -1)
            # The last text has words on both sides of a picture of 2 × 3 tokens
            kinds = torch.tensor([[0] * 3 + [1] * 6 + [0] * (len(line) - 9)])
            pictured = multimodal(kinds, "qwen2_vl", images=[(1, 4, 6)])[0]
            texts = torch.cat([points, pictured[..., : len(axes)]])
        return cls(texts, torch.arange(len(line)))


class Observed:
    """Measurements of the complex factors by which an implementation multiplies rotary pairs.

    Their shape is (batch, head, token, pair).
    """

    def __init__(self, apply: Apply, probe: ProbePositions, rotary: Rotary, spec: Spec):
        self.probe, self.apply = probe, apply
        self.dim, self.heads = rotary.dim, max(1, min(spec.heads, 4))
        self.groups = max(1, min(spec.groups or self.heads, self.heads))
        while self.heads % self.groups:
            self.groups -= 1
        self.contents = [self._content(seed) for seed in (1, 2)]
        self.results = [self._call(q, k) for q, k in self.contents]

    def _content(self, seed: int) -> tuple[Tensor, Tensor]:
        random = torch.Generator().manual_seed(seed)
        batch, tokens = self.probe.points.shape[:2]
        return tuple(
            torch.randn(batch, heads, tokens, self.dim, generator=random)
            for heads in (self.heads, self.groups)
        )  # type: ignore[return-value]

    def _call(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        try:
            found = self.apply(q.clone(), k.clone(), self.probe.points.clone())
            pair = [torch.as_tensor(x).detach().double().cpu() for x in found]
        except Exception as error:
            raise ValueError(
                f"`apply` must accept q {tuple(q.shape)}, k {tuple(k.shape)} and positions"
                f" {tuple(self.probe.points.shape)}, got {type(error).__name__}: {error}"
            ) from error
        if len(pair) != 2 or pair[0].shape != q.shape or pair[1].shape != k.shape:
            raise ValueError(
                f"`apply` must return q of shape {tuple(q.shape)} and k of shape {tuple(k.shape)},"
                f" got {[tuple(x.shape) for x in pair]}. Return q and k with the shapes of the"
                " inputs."
            )
        return pair[0], pair[1]

    def multipliers(self, pairs: Pairs, part: int) -> tuple[Tensor, float]:
        """Measure the complex factor of each rotary pair, and the largest residual.

        The residual is 0 if the factors do not depend on the content of queries and keys.

        - `part`: 0 for queries, 1 for keys

        Pairs that are short in one content are measured in the other.
        """
        ins = [pairs.of(content[part].double(), "layout") for content in self.contents]
        outs = [pairs.of(result[part], "out") for result in self.results]
        # Least squares over both contents: what is left depends on the content
        z, w = torch.stack(ins), torch.stack(outs)
        weight = z.abs().square().sum(0)
        m = (w * z.conj()).sum(0) / weight
        left = (w - m * z).abs().square().sum(0) / weight
        moved = [
            pairs.others(out - x[part].double())
            for out, x in ((r[part], c) for r, c in zip(self.results, self.contents, strict=True))
        ]
        outside = max(
            (float(x.abs().nan_to_num(0.0).max()) for x in moved if x.numel()), default=0.0
        )
        return m, max(float(left.sqrt().nan_to_num(0.0).max()), outside)


def _arrangements(rotary: Rotary) -> Iterator[tuple[RotationFault | None, Pairs]]:
    """Yield arrangements of rotary pairs: first the correct one, then those of known faults."""
    layout = rotary.layout or "half"
    other = "interleaved" if layout == "half" else "half"
    words = {"half": "halves", "interleaved": "neighbours"}
    start = (rotary.dim - rotary.turned) * rotary.trailing
    right = Pairs(layout, rotary.dim, rotary.turned, start, layout)
    yield None, right
    yield (
        RotationFault(
            f"pairs are {words[other]}, expected {words[layout]}",
            "The two channels of a pair sit elsewhere than in this model's weights.",
        ),
        right._replace(layout=other, out=other),
    )
    yield None, right._replace(out=other)  # of queries and keys alike: scores are the same
    if rotary.method == "proportional":
        within = 2 * sum(theta != 0 for theta in rotary.theta())
        yield (
            RotationFault(
                f"pairs lie within the first {within} channels",
                f"Channels i and i + {within // 2} make a pair, expected i and"
                f" i + {rotary.dim // 2}.",
            ),
            right._replace(turned=within),
        )
    if rotary.turned < rotary.dim:
        if layout == "half" and not start:
            yield (
                RotationFault(
                    "pairs reach across the whole head",
                    f"Channels i and i + {rotary.dim // 2} make a pair, expected i and"
                    f" i + {rotary.turned // 2}.",
                ),
                right._replace(across=True),
            )
        yield (
            RotationFault(
                "all channels are rotated",
                f"{rotary.turned} of {rotary.dim} channels of a head turn in this model.",
            ),
            right._replace(turned=rotary.dim, start=0),
        )
        elsewhere = 0 if start else rotary.dim - rotary.turned
        yield (
            RotationFault(
                f"the {'first' if start else 'last'} channels are rotated, expected the"
                f" {'last' if start else 'first'}",
                f"{rotary.turned} of {rotary.dim} channels of a head turn in this model.",
            ),
            right._replace(start=elsewhere),
        )
    elif rotary.dim % 4 == 0:
        yield (
            RotationFault(
                "only half of the channels are rotated",
                f"All {rotary.dim} channels of a head turn in this model.",
            ),
            right._replace(turned=rotary.dim // 2),
        )


def _thetas(
    rotary: Rotary, spec: Spec, length: int
) -> Iterator[tuple[RotationFault | None, Tensor]]:
    """Yield tensors of θ: first the correct ones, then those of known faults.

    The shape of θ is (pair,) or (axis, pair).
    """
    right = rotary.frequencies(length).double()
    yield None, right

    def of(changed: Rotary) -> Tensor:
        return changed.frequencies(length).double()

    plain = replace(rotary, method="default", factor=1.0)
    if rotary.method != "default":
        yield (
            RotationFault(
                "the scaling is ignored",
                f"θ is that of base {rotary.base:g} without {rotary.method}.",
            ),
            of(plain),
        )
        yield (
            RotationFault(
                "factor applied to positions and to θ",
                f"θ is {rotary.factor:g} times smaller than that of the config.",
            ),
            right / rotary.factor,
        )
        for method in ("linear", "ntk"):
            if method != rotary.method and rotary.factor > 1:
                yield (
                    RotationFault(
                        f"{method} scaling instead of {rotary.method}", f"factor {rotary.factor:g}"
                    ),
                    of(replace(rotary, method=method)),
                )
    if rotary.method in ("yarn", "llama3"):
        yield (
            RotationFault(
                "the two ends of the ramp are exchanged",
                "The slow and the fast end swap their roles.",
            ),
            of(replace(rotary, ends=rotary.ends[::-1])),
        )
        yield (
            RotationFault(
                "the length of training is taken for the extended one",
                f"θ is scaled as if {spec.context:,} tokens had been trained on, which is"
                f" {rotary.trained:,}."
                if spec.context
                else "",
            ),
            of(replace(rotary, trained=spec.context or rotary.trained)),
        )
    if rotary.method == "yarn":
        how = "not rounded" if rotary.rounded else "rounded"
        yield (
            RotationFault(
                f"the ends of the ramp are {how}", f"`truncate` is {rotary.rounded} in the config."
            ),
            of(replace(rotary, rounded=not rotary.rounded)),
        )
    if rotary.method == "longrope":
        yield (
            RotationFault(EXCHANGED[length > rotary.trained], f"at {length:,} tokens"),
            of(replace(rotary, short=rotary.long, long=rotary.short)),
        )
    if rotary.method == "dynamic" and spec.context:
        yield (
            RotationFault("θ of the longest text is used", f"at {length:,} tokens"),
            rotary.frequencies(spec.context).double(),
        )
    for other in spec.rotary:
        if replace(other, gain=rotary.gain) != rotary and other.turned == rotary.turned:
            number = [layer.encoding for layer in spec.layers].index(other)
            meant = f"Layer {number} has them; pass `layer` if you meant this one."
            yield (
                RotationFault(
                    "θ of the other layers", f"base {other.base:g}, {other.method}. {meant}"
                ),
                of(other),
            )
            yield (
                RotationFault(
                    "the scaling of the other layers", f"{other.method}, factor {other.factor:g}"
                ),
                of(replace(other, base=rotary.base)),
            )
            yield (
                RotationFault("the base of the other layers", f"It is {other.base:g}."),
                of(replace(rotary, base=other.base)),
            )
    if rotary.base != 10_000:
        yield (
            RotationFault(
                "the base is 10,000", f"The config has {rotary.base:g}: its key is not read."
            ),
            of(replace(rotary, base=10_000.0)),
        )
        if rotary.method != "default":
            yield (
                RotationFault(
                    "base and scaling are ignored",
                    f"The config has {rotary.base:g}, {rotary.method}.",
                ),
                of(replace(plain, base=10_000.0)),
            )
    pairs = rotary.turned // 2
    if rotary.turned < rotary.dim:
        whole = rotary.base ** (-2 * torch.arange(pairs).double() / rotary.dim)
        yield (
            RotationFault(
                "exponents divide by the channels of a head",
                f"θ is base^(−2j/{rotary.dim}), expected base^(−2j/{rotary.turned}).",
            ),
            whole if right.ndim == 1 else (right != 0) * whole,
        )
    yield (
        RotationFault("exponents are j/d, expected 2j/d", "Neighbouring θ are too close."),
        (torch.where(right != 0, right.abs().sqrt(), right)),
    )
    yield (
        RotationFault("θ runs from slow to fast", "The pairs are in reverse order."),
        right.flip(-1),
    )
    yield RotationFault("rotated twice", "Each pair turns by twice its angle."), 2 * right
    yield from _sections(rotary, right, of)


def _sections(
    rotary: Rotary, right: Tensor, of: Callable[[Rotary], Tensor]
) -> Iterator[tuple[RotationFault | None, Tensor]]:
    """Yield the θ of implementations that assign M-RoPE's axes to the wrong rotary pairs."""
    if not rotary.sections:
        return
    says = "take turns" if rotary.interleaved else "follow one another"
    with suppress(ValueError):  # sections of unlike sizes cannot take turns
        yield (
            RotationFault(
                f"sections {'follow one another' if rotary.interleaved else 'take turns'}, expected"
                f" {says}",
                f"`mrope_section` is {list(rotary.sections)}.",
            ),
            of(replace(rotary, interleaved=not rotary.interleaved)),
        )
    line = right.sum(0)
    yield (
        RotationFault("only the first axis is used", "Rows and columns are ignored."),
        (torch.stack([line, *[torch.zeros_like(line)] * (len(right) - 1)])),
    )
    for order in permutations(range(len(right))):
        if list(order) != sorted(order):
            yield (
                RotationFault(
                    f"axes in the order {', '.join(map(str, order))}", "expected 0, 1, 2"
                ),
                right[list(order)],
            )
    turns = torch.arange(right.shape[1]) % len(right)
    alternate = torch.stack([line * (turns == axis) for axis in range(len(right))])
    yield (
        RotationFault(
            "pairs take turns between the axes to the end",
            f"expected the sections {list(rotary.sections)}",
        ),
        alternate,
    )


def _places(
    probe: ProbePositions, rotary: Rotary, spec: Spec
) -> Iterator[tuple[RotationFault | None, Tensor]]:
    """Yield token positions: first the correct ones, then those of known faults."""
    given = probe.points.double()
    index = probe.places.double()
    index = index[None].expand(given.shape[:2])
    index = index[..., None].expand(given.shape) if given.ndim == 3 else index
    yield None, given
    yield (
        RotationFault(
            "positions are ignored",
            "Tokens are numbered by their place in the call: padding, packed texts and caches go"
            " wrong.",
        ),
        index,
    )
    yield (
        RotationFault("all texts have the positions of the first", "Padded batches go wrong."),
        given[:1].expand(given.shape),
    )
    yield (
        RotationFault("all texts have the positions of the last", "Padded batches go wrong."),
        given[-1:].expand(given.shape),
    )
    yield RotationFault("positions count from 1", "The first token is at position 1."), given + 1
    first = given[:, :1]
    yield (
        RotationFault(
            "positions are off by +1 in texts that do not begin at 0",
            "The first token of a text with cached keys is counted twice.",
        ),
        given + (first != 0),
    )
    yield (
        RotationFault(
            "only the first position of a text is used",
            "The others count up from it: packed texts and padding on the right go wrong.",
        ),
        first + index,
    )
    for name, length in (("context", spec.context), ("trained length", rotary.trained)):
        if length:
            yield (
                RotationFault(
                    f"positions end at the {name}", f"Positions beyond {length - 1:,} repeat it."
                ),
                given.clamp(max=length - 1),
            )
            yield (
                RotationFault(
                    f"positions begin again at the {name}", f"Position {length:,} is taken for 0."
                ),
                given % length,
            )
    for bits in (8, 16):
        half = 2.0 ** (bits - 1)
        wrapped = (given + half) % (2 * half) - half
        yield (
            RotationFault(f"positions in int{bits}", f"Position {half:.0f} becomes −{half:.0f}."),
            wrapped,
        )
    if given.ndim == 3:
        text = (given == given[..., :1]).all(-1, keepdim=True)
        yield (
            RotationFault(
                "delta is ignored",
                "Text behind a picture is numbered by its place, where ids go on at the longer side"
                " of the picture.",
            ),
            torch.where(text, index, given),
        )
        yield (
            RotationFault(
                "all axes have the position of the first", "Rows and columns are ignored."
            ),
            given[..., :1].expand(given.shape),
        )


ROUNDED = {
    "positions": "Whole numbers above 256 are rounded in bfloat16, above 2,048 in float16.",
    "θ": "θ is rounded before it is multiplied.",
    "angles": "p·θ is rounded, by up to a radian at far positions.",
    "cos and sin": "They are rounded before they are multiplied.",
}


class Rounding(NamedTuple):
    """The steps of computing cos and sin that are rounded to 16 bits, and the dtype."""

    parts: tuple[str, ...] = ()
    dtype: torch.dtype = torch.float64

    def __call__(self, points: Tensor, theta: Tensor) -> Tensor:
        """Return cos + i·sin of position · θ, with these steps rounded."""

        def rounded(part: str, x: Tensor) -> Tensor:
            return x.to(self.dtype).double() if part in self.parts else x

        angle = rounded("angles", angles(rounded("positions", points), rounded("θ", theta)))
        return torch.complex(*(rounded("cos and sin", x) for x in (angle.cos(), angle.sin())))


def _roundings() -> Iterator[tuple[RotationFault | None, Rounding]]:
    """Yield functions that compute cos and sin of position · θ.

    The first one is exact. The others round some of their steps to 16 bits, which is a known fault.
    """
    yield None, Rounding()
    for count in range(1, len(ROUNDED) + 1):
        for parts in combinations(ROUNDED, count):
            words = " and ".join(", ".join(parts).replace(" and ", ", ").rsplit(", ", 1))
            for name, dtype in SIXTEEN.items():
                yield (
                    RotationFault(f"{words} in {name}", ROUNDED[parts[0]]),
                    Rounding(parts, dtype),
                )


def _factor_functions(
    still: complex,
) -> Iterator[tuple[RotationFault | None, Callable[[Tensor], Tensor]]]:
    """Yield functions that compute rotary factors: first the correct one, then faulty ones.

    - `still`: complex factor of the pairs that do not rotate: 1, or 1 + i for FoPE
    """
    right = partial(_with_unrotated, still)
    yield None, right
    yield RotationFault("rotated backward", "Each pair turns by −p·θ."), lambda m: right(m).conj()
    yield RotationFault("cos and sin are exchanged", ""), lambda m: 1j * right(m).conj()
    for other in (1, 1 + 1j, 0):
        cos, sin = complex(other).real, complex(other).imag
        part, wrong = ("sin", sin) if cos else ("cos", cos)
        if other != still:
            said = f"They must be multiplied by cos 1 and sin {complex(still).imag:g}."
            name = f"{part} of pairs that stand still is {wrong:g}"
            yield RotationFault(name, said), partial(_with_unrotated, other)


def _with_unrotated(value: complex, m: Tensor) -> Tensor:
    """Set the complex factor of rotary pairs with frequency 0 to `value`."""
    return torch.where(_unrotated_pairs(m), torch.tensor(value, dtype=m.dtype), m)


def _unrotated_pairs(m: Tensor) -> Tensor:
    """Return a mask (pair,), True for rotary pairs whose complex factor is 1 at all positions."""
    return (m == 1).flatten(0, -2).all(0)


def _verdict(
    observed: Observed, rotary: Rotary, spec: Spec, length: int, still: complex
) -> Verdict:
    findings: list[RotationFault] = []
    pairs = _measured_pairs(observed, rotary, findings)
    if pairs is None:
        return Verdict(tuple(findings), float("inf"))
    found = [observed.multipliers(pairs, part)[0] for part in (0, 1)]
    unit = _expected(observed.probe, rotary, length)
    expected, moving = _with_unrotated(still, unit), ~_unrotated_pairs(unit)
    gains = [_gain(m[..., moving] if len(moving) == m.shape[-1] else m) for m in found]
    plain = [m / gain if gain > CLOSE else m for m, gain in zip(found, gains, strict=True)]
    error = float("inf")
    if expected.shape[-1] == found[0].shape[-1]:
        right = rotary.gain * expected[:, None]
        error = max(float((m - right).abs().max()) for m in found)
        room = slack(observed.probe.points.double(), rotary.frequencies(length).double())
        if not findings and all(_relative_error(m, right, room) < 1 for m in found):
            return Verdict((), error, (REORDERED,) if pairs.out != pairs.layout else ())
    alike = [float((m - 1).abs().max()) < CLOSE for m in plain]
    moves = float((expected - 1).abs().max()) > CLOSE
    if moves and any(alike):
        which = "queries and keys are" if all(alike) else f"{'queries' if alike[0] else 'keys'} are"
        findings.append(RotationFault(f"{which} not rotated", "They leave as they came."))
        if all(alike):
            return Verdict(tuple(findings), error)
    findings += _gains(gains, rotary)
    for part, m in enumerate(plain):
        if alike[part]:
            continue
        explained = _explained(m, observed.probe, rotary, spec, length, still)
        if explained is None and expected.shape[-1] != m.shape[-1]:
            continue
        if explained is None:
            explained = [_measured(m, expected, observed.probe, rotary, length)]
        named = {finding.name for finding in findings}
        findings += [finding for finding in explained if finding.name not in named]
    return Verdict(tuple(findings), error)


def _measured_pairs(
    observed: Observed, rotary: Rotary, findings: list[RotationFault]
) -> Pairs | None:
    """Return the measured arrangement of rotary pairs.

    A deviation from the config is appended to `findings`.
    """
    tried = [*_arrangements(rotary)]
    lefts = [max(observed.multipliers(pairs, part)[1] for part in (0, 1)) for _, pairs in tried]
    enough = max(3 * min(lefts), CLOSE)
    best = next(n for n, left in enumerate(lefts) if left <= enough)
    if lefts[best] > 0.1:
        findings.append(
            RotationFault(
                "not a rotation of pairs",
                f"The output is not a fixed multiple of any known pair; the nearest is off by"
                f" {lefts[best]:.2g} of its length.",
            )
        )
        return None
    finding, pairs = tried[best]
    findings += [finding] if finding else []
    return pairs


def _gain(m: Tensor) -> float:
    return float(m.abs().nanmedian())


def _gains(gains: Sequence[float], rotary: Rotary) -> list[RotationFault]:
    """Return the faults in the measured scale of rotated queries and keys."""
    right, findings = rotary.gain, []
    for name, gain in zip(("queries", "keys"), gains, strict=True):
        if abs(gain / right - 1) < CLOSE:
            continue
        known = {
            "gain missing": (1.0, right != 1),
            "gain applied twice": (right**2, right != 1),
            "softmax gain applied too": (right * rotary.logit_gain, rotary.logit_gain != 1),
            "square root of the softmax gain applied too": (
                right * rotary.logit_gain**0.5,
                rotary.logit_gain != 1,
            ),
        }
        what = next(
            (what for what, (value, may) in known.items() if may and abs(gain / value - 1) < CLOSE),
            "wrong length",
        )
        findings.append(
            RotationFault(
                f"{what}: {name}", f"{name} grow by {gain:.5g}, expected {right:.5g} (mscale)."
            )
        )
    return findings


def _expected(probe: ProbePositions, rotary: Rotary, length: int) -> Tensor:
    theta = rotary.frequencies(length).double()
    return Rounding()(probe.points.double(), theta)


def _explained(
    m: Tensor,
    probe: ProbePositions,
    rotary: Rotary,
    spec: Spec,
    length: int,
    still: complex,
) -> list[RotationFault] | None:
    """Return the fewest known faults, at most two, that explain the measured complex factors.

    Of as many faults, those with the smallest error are returned. Rounding in another step must
    halve the error, since a small rounding explains nothing.
    """
    parts = (
        [*_thetas(rotary, spec, length)],
        [*_places(probe, rotary, spec)],
        [*_roundings()],
        [*_factor_functions(still)],
    )
    best: tuple[int, float, list[RotationFault]] | None = None
    for theta, place, rounding, turn in product(*parts):
        faults = [found for found, _ in (theta, place, rounding, turn) if found]
        if len(faults) > 2 or (best and len(faults) > best[0]):
            continue
        if theta[1].shape[-1] != m.shape[-1]:
            continue
        made = turn[1](rounding[1](place[1], theta[1]))[:, None]
        error = _relative_error(m, made, slack(place[1], theta[1]))
        weighted = error * 2 ** len(rounding[1].parts)
        if error < 1 and (best is None or (len(faults), weighted) < best[:2]):
            best = len(faults), weighted, faults
    return best[2] if best else None


def _relative_error(m: Tensor, made: Tensor, room: Tensor) -> float:
    """Return the largest difference of two complex factors, divided by the allowed error."""
    return float(off(m, made, room).max())


def _measured(
    m: Tensor, expected: Tensor, probe: ProbePositions, rotary: Rotary, length: int
) -> RotationFault:
    """Describe an unknown fault by the θ or positions that would cause the measured outputs."""
    right = rotary.frequencies(length).double()
    points = probe.points.double()
    if (theta := thetas(m, points)) is not None:
        fault = theta_fault(theta, right, rotary, float(points.max()))
        return RotationFault(*fault) if fault else _unknown(m, expected)
    if right.ndim == 1 and (found := positions(m, right)) is not None:
        return RotationFault(*position_fault(found, points))
    return _unknown(m, expected)


def _unknown(m: Tensor, expected: Tensor) -> RotationFault:
    """Describe the largest error of an implementation whose fault could not be identified."""
    far = (m - expected[:, None]).abs().amax((0, 1))
    token, pair = divmod(int(far.argmax()), far.shape[-1])
    return RotationFault(
        "none of the known faults",
        f"the largest error is {float(far.max()):.3g}, at pair {pair} of token {token};"
        f" {int((far.amax(0) > CLOSE).sum())} of {far.shape[-1]} pairs are wrong",
    )
