"""Fit the growth of time with length: seconds ~ tokensᵖ, p by least squares of logarithms.

p = 1 is linear, p = 2 quadratic. Short texts cost calls rather than numbers, so p over all lengths
is below the truth; the exponent between the two longest is given beside it.
"""

from math import log

import torch

from posenc.lab.bench import rotation
from posenc.lab.bench.results import Growth, Table
from posenc.lab.bench.timing import timed

ROTATED = ("a copy", "posenc interleaved:", "posenc half:", "transformers")
LENGTHS = tuple(2**n for n in range(8, 18))  # 256 … 131,072
HEADS, DIM = 4, 64


def of_rotations(rounds: int, budget: float, longest: int = LENGTHS[-1]) -> list[Growth]:
    """Time rotations of q and k (1, 4, tokens, 64) in float32; `budget` seconds a length."""
    seconds: dict[str, dict[int, float]] = {}
    for tokens in (n for n in LENGTHS if n <= longest):
        q, k = torch.randn(2, 1, HEADS, tokens, DIM).unbind()
        ways = rotation.candidates(q, k, compiled=False)[0]
        ways = {n.partition(":")[0]: run for n, run in ways.items() if n.startswith(ROTATED)}
        with torch.no_grad():
            runs = {name: lambda run=run, q=q, k=k: run(q, k) for name, run in ways.items()}
            for name, times in timed(runs, rounds, budget).items():
                seconds.setdefault(name, {})[tokens] = times.median
    return [fit_growth("rotation", name, times) for name, times in seconds.items()]


def of_attention(tables: list[Table], tokens: list[int]) -> list[Growth]:
    """Fit growth to the tables of forward attention, one for each length."""
    seconds: dict[str, dict[int, float]] = {}
    for length, table in zip(tokens, tables, strict=True):
        for row in table.rows:
            seconds.setdefault(row.name, {})[length] = row.times.median
    return [
        fit_growth("attention", name, times) for name, times in seconds.items() if len(times) > 2
    ]


def fit_growth(part: str, name: str, times: dict[int, float]) -> Growth:
    """Fit the exponents of `times`, seconds by length.

    >>> fit_growth("", "", {256: 1.0, 512: 2.0, 1024: 8.0}).exponent
    1.5
    """
    x, y = [log(n) for n in times], [log(t) for t in times.values()]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    exponent = over / sum((a - mean_x) ** 2 for a in x)
    last = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return Growth(part, name, list(times), list(times.values()), round(exponent, 3), round(last, 3))
