"""Checks of the eight exercises: each compares an attempt with posenc and names common mistakes.

    from checks import check, draw
    check("sinusoids", sinusoids)     prints "✓ …", or "✕ …" and the mistake
    draw("sinusoids", sinusoids)      draws the attempt beside the answer

A mistake is named if the attempt equals a wrong version of the formula, kept here, in every case.
"""

from collections.abc import Callable
from math import log, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc import ALiBi, Encoding, RoPE, Sinusoidal, properties
from posenc.encodings.bias import t5
from posenc.encodings.rotary import theta as extensions


class Task(NamedTuple):
    """One exercise: the answer, arguments to try it with, and wrong versions with explanations."""

    right: Callable[..., Any]
    cases: list[tuple[Any, ...]]
    mistakes: dict[str, Callable[..., Any]]


def check(name: str, attempt: Any) -> str:
    """Print whether the attempt is right, or its mistake, and return the same sentence."""
    said = _own(attempt) if name == "own encoding" else _verdict(TASKS[name], attempt)
    print(said)
    return said


def draw(name: str, attempt: Callable[..., Any]) -> Any:
    """Draw the attempt beside the answer, with Matplotlib, on the first case of the task."""
    import matplotlib.pyplot as plt

    task = TASKS[name]
    shown = [
        ("yours", _called(attempt, task.cases[0])),
        ("answer", _called(task.right, task.cases[0])),
    ]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
    for axis, (title, values) in zip(axes, shown, strict=True):
        axis.set_title(title)
        if not isinstance(values, Tensor):
            axis.text(0.5, 0.5, str(values), ha="center", wrap=True, transform=axis.transAxes)
        elif values.ndim < 2:
            axis.plot(values.reshape(-1).numpy(), marker="." if values.numel() < 200 else "")
        else:
            axis.imshow(values.reshape(-1, values.shape[-1]).numpy(), aspect="auto", cmap="RdBu_r")
    return figure


def _called(attempt: Callable[..., Any], case: tuple[Any, ...]) -> Tensor | str:
    """Return the attempt's result as a tensor, or a sentence if there is none."""
    copies = [each.clone() if isinstance(each, Tensor) else each for each in case]
    try:
        out = attempt(*copies)
    except NotImplementedError:
        return "Nothing is written yet."
    except Exception as error:
        return f"It stops with {type(error).__name__}: {error}"
    if out is None:
        return "It returns None. End the function with `return`."
    return torch.as_tensor(out, dtype=torch.float64)


def _equal(a: Tensor | str, b: Tensor | str) -> bool:
    whole = isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape
    return bool(whole and torch.allclose(a, b, atol=1e-4, rtol=1e-4))  # type: ignore


def _verdict(task: Task, attempt: Callable[..., Any]) -> str:
    right = [_called(task.right, case) for case in task.cases]
    found = [_called(attempt, case) for case in task.cases]
    for one, wanted in zip(found, right, strict=True):
        if isinstance(one, str):
            return f"✕ {one}"
        if isinstance(wanted, Tensor) and one.shape != wanted.shape:
            return f"✕ It returns shape {tuple(one.shape)}. The answer has {tuple(wanted.shape)}."
    if all(map(_equal, found, right)):
        return "✓ Right."
    for sentence, wrong in task.mistakes.items():
        if all(
            _equal(one, _called(wrong, case)) for one, case in zip(found, task.cases, strict=True)
        ):
            return f"✕ {sentence}"
    for one, wanted in zip(found, right, strict=True):
        if not _equal(one, wanted) and isinstance(one, Tensor) and isinstance(wanted, Tensor):
            at = int((one - wanted).abs().nan_to_num(torch.inf).argmax())
            place = tuple(int(n) for n in torch.unravel_index(torch.tensor(at), one.shape))
            where = f"At index {place} it" if place else "It"
            mine, answer = one.reshape(-1)[at], wanted.reshape(-1)[at]
            return f"✕ {where} returns {mine:.4g}. The answer is {answer:.4g}."
    return "✓ Right."


# ---- 1, sinusoids


def _rows(
    width: int, pos: Tensor, power: float = 2, halves: bool = False, swap: bool = False
) -> Tensor:
    theta = 10_000.0 ** (-power * torch.arange(width // 2, dtype=torch.float64) / width)
    angles = pos[:, None] * theta
    waves = [angles.cos(), angles.sin()] if swap else [angles.sin(), angles.cos()]
    return torch.cat(waves, -1) if halves else torch.stack(waves, -1).flatten(-2)


def _sinusoids(n: int, width: int) -> Tensor:
    encoding = Sinusoidal(width)
    zeros = torch.zeros(1, n, width)
    return encoding.on_embeddings(zeros, encoding.prepare(torch.arange(n)))[0]


# ---- 2, the shift matrix, which acts on the column (sin pθ, cos pθ)


def _shift(angle: float) -> Tensor:
    turn = torch.tensor(angle, dtype=torch.float64)
    return torch.stack([turn.cos(), turn.sin(), -turn.sin(), turn.cos()]).view(2, 2)


# ---- 3, RoPE


def _rope(layout: str) -> Callable[[Tensor, Tensor], Tensor]:
    def right(x: Tensor, pos: Tensor) -> Tensor:
        rope = RoPE(x.shape[-1], layout=layout)  # type: ignore
        return rope.on_queries(x[None, None], rope.prepare(pos))[0, 0]

    return right


def _turned(x: Tensor, pos: Tensor, layout: str, power: float = 2, sign: float = 1) -> Tensor:
    d = x.shape[-1]
    angles = sign * pos[:, None] * 10_000.0 ** (-power * torch.arange(d // 2) / d)
    first, second = (x[..., 0::2], x[..., 1::2]) if layout == "interleaved" else x.chunk(2, -1)
    turned = (
        first * angles.cos() - second * angles.sin(),
        first * angles.sin() + second * angles.cos(),
    )
    return torch.stack(turned, -1).flatten(-2) if layout == "interleaved" else torch.cat(turned, -1)


def _no_minus(x: Tensor, pos: Tensor) -> Tensor:
    d = x.shape[-1]
    angles = (pos[:, None] * 10_000.0 ** (-2 * torch.arange(d // 2) / d)).repeat(1, 2)
    return x * angles.cos() + x.roll(d // 2, -1) * angles.sin()


def _repeated_by_pairs(x: Tensor, pos: Tensor) -> Tensor:
    d = x.shape[-1]
    angles = (pos[:, None] * 10_000.0 ** (-2 * torch.arange(d // 2) / d)).repeat_interleave(2, -1)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


_PAIRS = "Your pairs are {}, and this layout uses {}."
_BACKWARDS = (
    "The pairs turn backwards. Turn them by +p θ: (a, b) becomes (a cos − b sin, a sin + b cos)."
)
_POWER = "The exponent is −j/d. Pair j has θⱼ = 10000^(−2j/d)."

# ---- 4, ALiBi; 5, T5's buckets


def _bias(slopes: Tensor, n: int, signed: bool = False) -> Tensor:
    offset = torch.arange(n)[:, None] - torch.arange(n)
    return -slopes.view(-1, 1, 1) * (offset if signed else offset.abs())


def _powers(heads: int, first: int) -> Tensor:
    return 2.0 ** (-8.0 * torch.arange(first, heads + first) / heads)


def _buckets(
    offset: Tensor, round_by: Callable[[Tensor], Tensor] = torch.floor, exact: int = 16
) -> Tensor:
    far = exact + round_by((32 - exact) * torch.log(offset.clamp(min=1) / exact) / log(128 / exact))
    return torch.where(offset < exact, offset, far.clamp(max=31)).long()


# ---- 6, why 10,000; 7, NTK and YaRN


def _unfinished(
    base: float, dim: int, length: int, power: float = 2, circle: float = 2 * pi
) -> int:
    return sum(length * base ** (-power * j / dim) < circle for j in range(dim // 2))


def _ramp(
    theta: Tensor, factor: float, trained: int, power: float = 1, step: bool = False
) -> Tensor:
    turns = trained * theta / (2 * pi)
    kept = (turns >= 1).double() if step else ((turns - 1) / 31).clamp(0, 1)
    kept = kept if power > 0 else 1 - kept
    return kept * theta + (1 - kept) * theta / factor


def _by_library(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda theta, *rest: torch.tensor(method([float(one) for one in theta], *rest))


_THETA = torch.tensor(extensions.frequencies(128, 10_000.0), dtype=torch.float64)
_X = torch.arange(1.0, 49.0).view(6, 8).sin().double()
_POS = torch.tensor([0, 1, 2, 5, 9, 300])
_OFFSETS = torch.arange(0, 200)

TASKS = {
    "sinusoids": Task(
        _sinusoids,
        [(40, 16), (7, 32)],
        {
            (
                "The sines fill one half and the cosines the other. Here they alternate: channel"
                " 2j is a sine, 2j + 1 its cosine."
            ): lambda n, w: _rows(w, torch.arange(n), halves=True),
            "Sine and cosine have changed places: channel 2j is the sine.": lambda n, w: _rows(
                w, torch.arange(n), swap=True
            ),
            _POWER: lambda n, w: _rows(w, torch.arange(n), power=1),
            "The first position is 1. Positions begin at 0.": lambda n, w: _rows(
                w, torch.arange(1, n + 1)
            ),
        },
    ),
    "shift matrix": Task(
        lambda k, theta: _shift(k * theta),
        [(3, 0.5), (10, 0.01)],
        {
            (
                "It moves by −k: the signs of the two sines have changed places. sin(p + k)θ ="
                " sin pθ cos kθ + cos pθ sin kθ."
            ): lambda k, theta: _shift(-k * theta),
            "It moves by one position, whatever k is: the angle is k θ.": lambda k, theta: _shift(
                theta
            ),
            "It works in degrees: θ is in radians.": lambda k, theta: _shift(k * theta * pi / 180),
        },
    ),
    "RoPE, complex numbers": Task(
        _rope("interleaved"),
        [(_X, _POS)],
        {
            _PAIRS.format("halves, j and j + d/2", "neighbours, 2j and 2j + 1"): lambda x, p: (
                _turned(x, p, "half")
            ),
            _BACKWARDS: lambda x, p: _turned(x, p, "interleaved", sign=-1),
            _POWER: lambda x, p: _turned(x, p, "interleaved", power=1),
        },
    ),
    "RoPE, halves": Task(
        _rope("half"),
        [(_X, _POS)],
        {
            _PAIRS.format("neighbours, 2j and 2j + 1", "halves, j and j + d/2"): lambda x, p: (
                _turned(x, p, "interleaved")
            ),
            "A minus is missing: the second half enters the first with −sin.": _no_minus,
            (
                "The angles are repeated for neighbours (θ₀, θ₀, θ₁, θ₁, …), and the channels"
                " are paired by halves: repeat them as θ₀, θ₁, …, θ₀, θ₁, …."
            ): _repeated_by_pairs,
            _BACKWARDS: lambda x, p: _turned(x, p, "half", sign=-1),
        },
    ),
    "ALiBi": Task(
        lambda heads, n: ALiBi(heads)(torch.arange(n))[0],
        [(4, 6), (8, 20)],
        {
            "The bias grows with distance. It is subtracted: −m |i − j|.": lambda h, n: (
                -_bias(_powers(h, 1), n)
            ),
            "The first slope is 1. Heads count from 1: m = 2^(−8h/H), h = 1 … H.": lambda h, n: (
                _bias(_powers(h, 0), n)
            ),
            "The distance has a sign, so later keys gain. It is |i − j|.": lambda h, n: _bias(
                _powers(h, 1), n, signed=True
            ),
            (
                "The slopes fall by equal steps. They fall by equal factors: m = 2^(−8h/H)."
            ): lambda h, n: _bias(torch.arange(h, 0, -1) / h, n),
        },
    ),
    "T5 buckets": Task(
        lambda offset: t5.bucket(offset, 32, 128, False),
        [(_OFFSETS,)],
        {
            (
                "Far distances share one bucket from 31 on. From 16 on buckets grow by a"
                " logarithm up to 128."
            ): lambda offset: offset.clamp(max=31),
            "The logarithm is rounded. It is cut off (floor).": lambda offset: _buckets(
                offset, torch.round
            ),
            "Only 8 buckets are exact. Without keys ahead it is half of the 32.": lambda offset: (
                _buckets(offset, exact=8)
            ),
            "The buckets do not stop at 31.": lambda offset: torch.where(
                offset < 16,
                offset,
                16 + torch.floor(16 * torch.log(offset.clamp(min=1) / 16) / log(8)),
            ).long(),
        },
    ),
    "unfinished pairs": Task(
        lambda base, dim, length: sum(
            turns < 1 for turns in extensions.turned(extensions.frequencies(dim, base), length)
        ),
        [(10_000.0, 128, 4096), (100.0, 64, 512), (1e6, 128, 32_768)],
        {
            "It compares L θ with 1 radian. One turn is 2π radians.": lambda base, dim, length: (
                _unfinished(base, dim, length, circle=1)
            ),
            "It counts the pairs that do finish a turn.": lambda base, dim, length: (
                dim // 2 - _unfinished(base, dim, length)
            ),
            _POWER: lambda base, dim, length: _unfinished(base, dim, length, power=1),
        },
    ),
    "NTK": Task(
        _by_library(extensions.ntk),
        [(_THETA, 4.0), (_THETA, 16.0)],
        {
            (
                "It divides every θ by the factor: that is PI. NTK raises the base, so that only"
                " the slowest pair slows by the whole factor."
            ): lambda theta, s: theta / s,
            (
                "The base is multiplied by s. It is multiplied by s^(d/(d−2)), so that the"
                " slowest pair slows by exactly s."
            ): lambda theta, s: theta * s ** (-torch.arange(64) / 64),
            (
                "The fast pairs slow down and the slow ones stay: the exponent runs the wrong way."
            ): lambda theta, s: theta * s ** (-torch.arange(63, -1, -1) / 63),
        },
    ),
    "YaRN by parts": Task(
        _by_library(extensions.by_parts),
        [(_THETA, 4.0, 4096), (_THETA, 16.0, 8192)],
        {
            (
                "The ramp runs the wrong way: pairs with more than 32 turns keep their θ, those"
                " with less than 1 are divided."
            ): lambda theta, s, n: _ramp(theta, s, n, power=-1),
            "There is no ramp: between 1 and 32 turns the two are blended.": lambda theta, s, n: (
                _ramp(theta, s, n, step=True)
            ),
            "It divides every θ by the factor: that is PI.": lambda theta, s, n: theta / s,
        },
    ),
}


# ---- 8, an encoding of one's own: −ln(1 + |i − j|) on the scores


def _own(attempt: Any) -> str:
    if not (isinstance(attempt, type) and issubclass(attempt, Encoding)):
        return "✕ Pass the class itself, a subclass of `posenc.Encoding`."

    def added(places: Tensor) -> Tensor:
        q, at = torch.zeros(1, 1, 6, 8), places.view(1, 1, 6)
        return torch.as_tensor(attempt().on_scores(q, q, at, at, 1.0))

    try:
        near, apart = added(torch.arange(6)), added(torch.arange(0, 60, 10))
        shifted = added(torch.arange(100, 106))
    except NotImplementedError:
        return "✕ Nothing is written yet."
    except Exception as error:
        return f"✕ It stops with {type(error).__name__}: {error}"
    offset = (torch.arange(6)[:, None] - torch.arange(6)).abs()
    wanted, bias = -torch.log1p(offset.double()), near.double().reshape(-1, 6, 6)[0]
    if torch.allclose(bias, -wanted, atol=1e-5) and not torch.allclose(bias, wanted, atol=1e-5):
        return "✕ The score grows with distance. Subtract the logarithm."
    if not bias.isfinite().all():
        return "✕ ln 0 is −∞: take ln(1 + distance)."
    if not torch.allclose(bias, wanted, atol=1e-5):
        return (
            f"✕ For a distance of 1 it adds {float(bias[1, 0]):.4g}. The answer is −ln 2 = −0.6931."
        )
    if torch.allclose(near, apart):
        return "✕ It counts tokens itself. Use the positions `q_at` and `k_at` that it receives."
    found = properties.check(attempt())
    if not torch.allclose(near, shifted, atol=1e-5) or not found["shift_invariant"]:
        return f"✕ A shift of all positions changes it: {found['shift_invariant'].why}"
    return "✓ Right, and measured: " + ", ".join(
        name.replace("_", " ") for name, finding in found.items() if finding
    )
