"""Known faults of RoPE implementations, each with the wrong θ, positions or factors it causes.

Each generator varies one part of the formula: the channels of a pair, θ, the position, the rounding
of numbers, or the multiplication. It yields the correct variant first, with None as its fault.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from posenc.core.frequencies import Layout, join, split
from posenc.lab.vectors.measured import angles
from posenc.lab.vectors.observed import Pairs, ProbePositions
from posenc.models.config.spec import Rotary, Spec

SIXTEEN = {"bfloat16": torch.bfloat16, "float16": torch.float16}
EXCHANGED = "long factors are used for a short text", "short factors are used for a long text"


class RotationFault(NamedTuple):
    """A fault of an implementation: a short name, and a sentence with the measured numbers."""

    name: str
    sentence: str


def arrangements(rotary: Rotary) -> Iterator[tuple[RotationFault | None, Pairs]]:
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


def exchanges(
    rotary: Rotary, unit: Tensor
) -> Iterator[tuple[RotationFault, Callable[[Tensor], Tensor]]]:
    """Yield faulty forms of x · cos + rotate_half(x) · sin, whose results are not rotations.

    Each fault has a function from queries or keys to the faulty result. `unit` has the correct
    cos + i·sin, (batch, token, pair).
    """
    start = (rotary.dim - rotary.turned) * rotary.trailing
    some = slice(start, start + rotary.turned)
    words = {"half": "halves", "interleaved": "neighbours"}

    def rotated(x: Tensor, exchange: Layout, table: Layout, sign: int) -> Tensor:
        cos, sin = (join(one, one, table)[:, None] for one in (unit.real, unit.imag))
        first, second = split(x[..., some], exchange)
        x = x.clone()
        x[..., some] = x[..., some] * cos + join(sign * second, first, exchange) * sin
        return x * rotary.gain if rotary.turned == rotary.dim else x

    for exchange, table in permutations(get_args(Layout), 2):
        yield (
            RotationFault(
                "two layouts are mixed",
                f"Channels are exchanged as {words[exchange]}, and the tables of cos and sin are"
                f" laid out for {words[table]}.",
            ),
            partial(rotated, exchange=exchange, table=table, sign=-1),
        )
    for exchange in get_args(Layout):
        yield (
            RotationFault(
                "the minus sign is missing",
                "The first channel of a pair is x₁ cos + x₂ sin, expected x₁ cos − x₂ sin.",
            ),
            partial(rotated, exchange=exchange, table=exchange, sign=1),
        )


def thetas(
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


def places(
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
    """A computation of cos and sin in which the steps named in `parts` are rounded to `dtype`."""

    parts: tuple[str, ...] = ()
    dtype: torch.dtype = torch.float64

    def __call__(self, points: Tensor, theta: Tensor) -> Tensor:
        """Return cos + i·sin of position · θ, with the steps in `parts` rounded to `dtype`."""

        def rounded(part: str, x: Tensor) -> Tensor:
            return x.to(self.dtype).double() if part in self.parts else x

        angle = rounded("angles", angles(rounded("positions", points), rounded("θ", theta)))
        return torch.complex(*(rounded("cos and sin", x) for x in (angle.cos(), angle.sin())))


def roundings() -> Iterator[tuple[RotationFault | None, Rounding]]:
    """Yield functions that compute cos and sin of position · θ: an exact one, then faulty ones.

    The faulty ones round some of their steps to 16 bits.
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


def factor_functions(
    still: complex,
) -> Iterator[tuple[RotationFault | None, Callable[[Tensor], Tensor]]]:
    """Yield functions that compute rotary factors: first the correct one, then faulty ones.

    - `still`: complex factor of the pairs that do not rotate: 1, or 1 + i for FoPE
    """
    right = partial(with_unrotated, still)
    yield None, right
    yield RotationFault("rotated backward", "Each pair turns by −p·θ."), lambda m: right(m).conj()
    yield RotationFault("cos and sin are exchanged", ""), lambda m: 1j * right(m).conj()
    for other in (1, 1 + 1j, 0):
        cos, sin = complex(other).real, complex(other).imag
        part, wrong = ("sin", sin) if cos else ("cos", cos)
        if other != still:
            said = f"They must be multiplied by cos 1 and sin {complex(still).imag:g}."
            name = f"{part} of pairs that stand still is {wrong:g}"
            yield RotationFault(name, said), partial(with_unrotated, other)


def with_unrotated(value: complex, m: Tensor) -> Tensor:
    """Set the complex factor of rotary pairs with frequency 0 to `value`."""
    return torch.where(unrotated_pairs(m), torch.tensor(value, dtype=m.dtype), m)


def unrotated_pairs(m: Tensor) -> Tensor:
    """Return a mask (pair,), True for rotary pairs whose complex factor is 1 at all positions."""
    return (m == 1).flatten(0, -2).all(0)
