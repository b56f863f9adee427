"""Time attention of one query to a long cache: `attend` as a multiple of torch's own kernel.

python tools/decoding.py [ROUNDS [KEYS]]

8 heads of 64, float32, one thread, positions and mask made before. All cases run in turn, shuffled
in each round, and count the time of this thread, so that a busy machine changes little. Beside
`attend` stand three lines of torch, which check nothing. Printed are the medians of all rounds, and
quartiles of the ratio to torch's call in the same round.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc import ALiBi, NoPE, RoPE, T5Bias, attend, masks
from posenc.encodings.bias.alibi import slopes

HEADS, DIM = 8, 64
LEAST = 0.008  # seconds of one case in one round
Case = Callable[[], Tensor]


def cases(keys: int) -> dict[str, Case]:
    """Return the functions to time by name; `attend` is first checked against plain torch code."""
    q, k, v = (torch.randn(1, HEADS, tokens, DIM) for tokens in (1, keys, keys))
    q_pos, k_pos = torch.tensor([keys - 1]), torch.arange(keys)
    mask = masks.causal(q_pos, k_pos)

    def ours(encoding: Any) -> Case:
        at, k_at = encoding.prepare(q_pos), encoding.prepare(k_pos)
        return lambda: attend(q, k, v, encoding, at, k_at, mask)

    t5, rope, steep = T5Bias(HEADS, bidirectional=False), RoPE(DIM), slopes(HEADS).float()
    turn, rotated = rope.prepare(q_pos), rope.on_keys(k, rope.prepare(k_pos))
    plain = NoPE()
    at, k_at = plain.prepare(q_pos), plain.prepare(k_pos)

    def t5_lines() -> Tensor:
        offsets = q_pos.unsqueeze(-1) - k_pos
        buckets = torch.bucketize(offsets.clamp_min(0), t5.later, right=True)
        return F.scaled_dot_product_attention(q, k, v, t5.weight[buckets].permute(2, 0, 1)[None])

    def rope_lines() -> Tensor:
        a, b, cos, sin = q[..., ::2], q[..., 1::2], *turn[:2]
        query = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        return F.scaled_dot_product_attention(query, rotated, v)

    made: dict[str, tuple[Case, Case]] = {
        "NoPE": (ours(plain), lambda: F.scaled_dot_product_attention(q, k, v)),
        "ALiBi": (
            ours(ALiBi(HEADS)),
            lambda: F.scaled_dot_product_attention(
                q, k, v, (-steep.view(-1, 1, 1) * (q_pos.unsqueeze(-1) - k_pos))[None]
            ),
        ),
        "T5": (ours(t5), t5_lines),
        "RoPE, keys rotated before": (
            lambda: attend(rope.on_queries(q, turn), rotated, v, plain, at, k_at, mask),
            rope_lines,
        ),
    }
    for name, (one, lines) in made.items():
        torch.testing.assert_close(one(), lines(), rtol=1e-4, atol=1e-5, msg=name)
    named = {"torch": made["NoPE"][1]} | {name: one for name, (one, _) in made.items()}
    return named | {f"{name}, in lines": lines for name, (_, lines) in [*made.items()][1:]}


def timed(case: Case, times: int) -> float:
    """Return this thread's CPU seconds for one call of `case`."""
    case()
    start = time.thread_time()
    for _ in range(times):
        case()
    return (time.thread_time() - start) / times


def measured(keys: int, rounds: int) -> dict[str, list[float]]:
    made = cases(keys)
    times = {name: max(1, int(LEAST / timed(case, 3))) for name, case in made.items()}
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds):
        for name in random.sample([*made], len(made)):
            seconds[name].append(timed(made[name], times[name]))
    return seconds


if __name__ == "__main__":
    rounds, keys = (int(given) for given in (sys.argv[1:] + ["25", "2048"][len(sys.argv) - 1 :]))
    torch.set_num_threads(1)
    with torch.no_grad():
        found = measured(keys, rounds)
    print(f"One query on {keys:,} keys, torch {torch.__version__}, {rounds} rounds")
    for name, each in found.items():
        ratios = [one / base for one, base in zip(each, found["torch"], strict=True)]
        low, median, high = statistics.quantiles(ratios, n=4)
        micro = statistics.median(each) * 1e6
        print(f"{name:36} {micro:7.0f} µs, {median:.2f} of torch's call ({low:.2f} … {high:.2f})")
