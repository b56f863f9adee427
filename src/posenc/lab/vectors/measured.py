"""Measure θ and positions from rotated pairs, to describe faults that are not yet known.

A pair at position p comes out multiplied by m = exp(i p θ). If the positions are right, θ follows
from m at small positions first and at ever larger ones later; if θ is right, p follows from the
slowest pair first. A measured θ or p is used only if it gives all m again.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from posenc.models.config.spec import Rotary

CLOSE = 2e-3  # error of m that is rounding, besides that of angles in float32
USUAL = {"yarn": 32.0, "llama3": 4.0}  # turns at the fast end of the ramp, the slow one is 1
SLACK = 2.0**-22  # relative error of an angle in float32, of θ and of the product


def slack(points: Tensor, theta: Tensor) -> Tensor:
    """Return the tolerance of measured rotary factors, which covers rounding errors.

    The shape is (batch, 1, token, pair).
    """
    return (CLOSE + SLACK * angles(points, theta).abs())[:, None]


def off(m: Tensor, made: Tensor, slack: Tensor) -> Tensor:
    """Return the errors of measured rotary factors, as multiples of the tolerance `slack`.

    NaN equals NaN.
    """
    share = ((made - m).abs() / slack).nan_to_num(torch.inf)
    return torch.where(m.isnan() & made.isnan(), 0.0, share)


def angles(points: Tensor, theta: Tensor) -> Tensor:
    return points[..., None] * theta if theta.ndim == 1 else points @ theta


def unit(angle: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(angle), angle)


def thetas(m: Tensor, points: Tensor) -> Tensor | None:
    """Return the θ that explain the measured complex factors at these positions.

    The shape is (pair,), or (axis, pair) for points. None means that no θ gives all factors.

    - `m`: (batch, head, token, pair), of length 1
    - `points`: (batch, token) or (batch, token, axis), float64
    """
    lines = [points] if points.ndim == 2 else [*points.unbind(-1)]
    tried = torch.stack([_unwound(m, line) for line in lines])
    errors = torch.stack(
        [
            off(m, unit(angles(line, theta))[:, None], slack(line, theta)).amax((0, 1, 2))
            for line, theta in zip(lines, tried, strict=True)
        ]
    )
    if not bool((errors.amin(0) < 1).all()):
        return None
    chosen = errors.argmin(0) == torch.arange(len(lines))[:, None]
    return tried[0] if points.ndim == 2 else tried * chosen


def _unwound(m: Tensor, line: Tensor) -> Tensor:
    """Estimate θ of each rotary pair.

    The smallest position gives a first estimate, which each larger position refines.
    """
    theta = torch.zeros(m.shape[-1], dtype=torch.float64)
    for p in line.unique():
        if p > 0:
            at = m.transpose(1, 2)[line == p].mean((0, 1))
            theta = theta + (at * unit(-p * theta)).angle() / p
    return theta


def positions(m: Tensor, theta: Tensor) -> Tensor | None:
    """Return the integer positions that explain the measured complex factors, given θ.

    None means that no positions give all factors.

    - `m`: measured factors, (batch, head, token, pair)
    """
    found = torch.zeros(m.shape[0], m.shape[2], dtype=torch.float64)
    mean = m.mean(1)
    for pair in theta.abs().argsort().tolist():
        if turn := float(theta[pair]):
            found = found + (mean[..., pair] * unit(-turn * found)).angle() / turn
    found = found.round()
    good = off(m, unit(angles(found, theta))[:, None], slack(found, theta)).max() < 1
    return found if bool(good) else None


def theta_fault(found: Tensor, right: Tensor, rotary: Rotary, far: float) -> tuple[str, str] | None:
    """Describe the difference between measured θ and the config's θ, as (name, sentence).

    None means that both are equal.

    - `far`: the largest position that was measured
    """
    if found.ndim == 2 and not bool(((found != 0) == (right != 0)).all()):
        counts = [[int(axis.count_nonzero()) for axis in theta] for theta in (found, right)]
        return (
            "pairs follow other axes",
            f"The sections are {counts[0]}, expected {counts[1]} or another order.",
        )
    if found.ndim == 2:
        found, right = found.sum(0), right.sum(0)
    room = CLOSE / far + 2 * SLACK * right.abs()
    wrong = (found - right).abs() > room
    if not bool(wrong.any()):
        return None
    if fault := _other_setting(found, rotary, room):
        return fault
    moving = right != 0
    ratio = found[moving] / right[moving]
    times = float(ratio.median())
    if bool(((found - times * right).abs() < room * max(1, abs(times))).all()):
        return f"θ is {times:.4g} times that of the config", "The same factor in all pairs."
    if base := _base(found, rotary.turned, room):
        return f"the base is {base:,.0f}", f"The config has {rotary.base:,.0f}, {rotary.method}."
    pairs = wrong.nonzero().flatten().tolist()
    some = found[wrong & moving] / right[wrong & moving]
    which = f"Pairs {pairs[0]} to {pairs[-1]}" if len(pairs) > 1 else f"Pair {pairs[0]}"
    sentence = f"{which}: not 0, expected 0."
    if len(some):
        least, most = float(some.min()), float(some.max())
        sentence = f"{which}: {least:.5g} to {most:.5g} times the θ of the config."
    groups = _groups(right, rotary, room)
    named = [name for name, group in groups.items() if bool((group & wrong).any())]
    if groups and len(named) < 3:
        if named[0] == "kept pairs" and (
            base := _base(torch.where(groups["kept pairs"], found, 0.0), rotary.turned, room)
        ):
            sentence += f" Kept pairs have the base {base:,.0f}, expected {rotary.base:,.0f}."
        return f"θ of the {' and the '.join(named)} is wrong", sentence
    return f"θ of {len(pairs)} of {len(right)} pairs is wrong", sentence


def _other_setting(found: Tensor, rotary: Rotary, room: Tensor) -> tuple[str, str] | None:
    """Describe measured θ that follow from the config's scaling with one changed setting."""
    for other, (name, sentence) in _other_settings(found, rotary):
        theta = torch.tensor(other.theta(), dtype=torch.float64)
        if bool(((found - theta).abs() < room).all()):
            return name, sentence
    return None


def _other_settings(found: Tensor, rotary: Rotary) -> Iterator[tuple[Rotary, tuple[str, str]]]:
    """Yield `rotary` with one changed setting of its scaling, and the name of this fault."""
    if rotary.method not in ("linear", "ntk", "yarn", "llama3"):
        return
    # Each of these methods divides θ of the slowest pair by the factor
    factor = rotary.unscaled()[-1] / float(found[-1]) if float(found[-1]) else 0.0
    for value in (float(f"{factor:.4g}"), factor) if factor > 1 else ():
        name = f"the factor is {value:.5g}", f"The config has {rotary.factor:g}, {rotary.method}."
        yield replace(rotary, factor=value), name
    if rotary.method not in ("yarn", "llama3"):
        return
    for length in (2**power for power in range(8, 21)):
        said = f"The config has {rotary.trained:,}, {rotary.method}."
        yield replace(rotary, trained=length), (f"the trained length is {length:,}", said)
    slow, fast = rotary.ends
    for ends in ((1.0, USUAL[rotary.method]), (1.0, fast), (slow, USUAL[rotary.method])):
        said = f"The config has {slow:g} and {fast:g}, {rotary.method}."
        name = f"the ends of the ramp are {ends[0]:g} and {ends[1]:g} turns"
        yield replace(rotary, ends=ends), (name, said)
    # The second pair is the slowest that no scaling changes in most models
    base = float(f"{float(found[1].abs()) ** (-rotary.turned / 2):.5g}")
    if base > 1:
        said = f"The config has {rotary.base:,.0f}, {rotary.method}."
        yield replace(rotary, base=base), (f"the base is {base:,.0f}", said)


def _base(theta: Tensor, turned: int, room: Tensor) -> float | None:
    """Return the base b if all rotated pairs have θ = b^(−2j/channels), otherwise None."""
    at = theta.nonzero().flatten()
    at = at[at > 0]
    if len(at) < 2 or bool((theta[at] < 0).any()):
        return None
    best = int(at[(at * theta[at]).argmax()])  # the pair that gives the base most precisely
    base = float(theta[best]) ** (-turned / (2 * best))
    made = base ** (-2 * at.double() / turned)
    return base if bool(((made - theta[at]).abs() < room[at] + 1e-4 * made).all()) else None


def _groups(right: Tensor, rotary: Rotary, room: Tensor) -> dict[str, Tensor]:
    """Return masks of rotary pairs whose θ is kept, divided by the scaling factor, or in between.

    The scaling methods are YaRN and Llama 3; the result is empty for others.
    """
    if rotary.method not in ("yarn", "llama3"):
        return {}
    plain = torch.tensor(rotary.unscaled(), dtype=torch.float64)
    kept = (right - plain).abs() < room
    slowed = ((right - plain / rotary.factor).abs() < room) & ~kept
    return {"kept pairs": kept, "ramp": ~(kept | slowed), "slowed pairs": slowed}


def position_fault(found: Tensor, given: Tensor) -> tuple[str, str]:
    """Describe the error of an implementation's positions, as (name, sentence)."""
    wrong = found != given
    shift = given[wrong] - found[wrong]
    first = given[wrong].argmin()
    example = f"Position {given[wrong][first]:,.0f} is taken for {found[wrong][first]:,.0f}."
    last = float(found[wrong][0])
    if bool((found[wrong] == last).all() and (given[wrong] > last).all()):
        return f"positions end at {last + 1:,.0f}", f"Positions beyond {last:,.0f} repeat it."
    if bool((shift == shift[0]).all() and wrong.all()):
        return f"positions are off by {-float(shift[0]):+,.0f}", example
    if name := _shift_of_texts(found - given, given):
        return name, example
    turn = math.gcd(*(int(x) for x in shift))
    if turn > 1 and bool((found == given % turn).all()):
        return f"positions begin again at {turn:,}", example
    return f"{int(wrong.sum())} of {wrong.numel()} positions are wrong", example


def _shift_of_texts(moved: Tensor, given: Tensor) -> str:
    """Describe the fault if all positions of some texts are shifted by one number; "" otherwise."""
    by = moved[:, 0]
    texts = by.nonzero().flatten().tolist()
    if bool((moved != by[:, None]).any()) or len({*by[texts].tolist()}) != 1:
        return ""
    if bool(((by != 0) == (given[:, 0] != 0)).all()):
        which = "texts that do not begin at 0"
    else:
        which = f"{len(texts)} of {len(by)} texts, number {', '.join(str(n + 1) for n in texts)}"
    return f"positions are off by {float(by[texts[0]]):+,.0f} in {which}"
