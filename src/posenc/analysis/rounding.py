"""Compute the errors of rotary angles that rounded frequencies cause, in plain Python.

maxⱼ | fl(p) · fl(θⱼ) − p θⱼ |      radians; fl rounds, and the product is in float32
"""

from collections.abc import Callable
from math import copysign, inf
from struct import pack, unpack

from posenc.encodings.rotary.theta import Theta

BLIND = 1e-4  # smaller relative changes of an output are rounding errors


def phase_error(theta: Theta, position: int, dtype: str) -> float:
    """Return the largest angle error over RoPE's pairs, in radians, if θ is rounded to `dtype`.

    >>> from posenc.encodings.rotary.theta import frequencies
    >>> round(phase_error(frequencies(128, 10_000.0), 4096, "bfloat16"), 2)
    5.01
    """
    rounded, pos = ROUNDED[dtype], float32(position)
    return max(abs(float32(rounded(turn) * pos) - position * turn) for turn in theta)


def float32(number: float) -> float:
    return _kept(number, "<f")


def bfloat16(number: float) -> float:
    """Round to bfloat16, the upper half of the bits of float32, to nearest even."""
    (bits,) = unpack("<I", pack("<f", float32(number)))
    bits += 0x7FFF + (bits >> 16 & 1)
    return unpack("<f", pack("<I", bits & 0xFFFF0000))[0]


def float16(number: float) -> float:
    return _kept(float32(number), "<e")


def _kept(number: float, form: str) -> float:
    try:
        return unpack(form, pack(form, number))[0]
    except OverflowError:
        return copysign(inf, number)


ROUNDED: dict[str, Callable[[float], float]] = {
    "float32": float32,
    "bfloat16": bfloat16,
    "float16": float16,
}
