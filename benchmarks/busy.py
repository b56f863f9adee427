"""Time attention beside its usual form, on quiet cores and beside two busy processes.

Shapes (1, 8 heads, tokens, 64 channels), float32, a thread for each core, torch's wait policy as
the process was started with it. The limit is plain causal attention. The usual form makes the bias
of all pairs and hands it to torch's kernel; where an encoding does more than add a bias, it is the
definition. In each parallel region all threads wait for the one whose core another process has.
"""

import os
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.attention import (
    DIM,
    HEADS,
    LIMIT,
    Candidate,
    Run,
    ShawMatrix,
    alibi_matrix,
    inputs,
    masked,
)
from benchmarks.results import BenchTable, Target, table
from benchmarks.rotation import busy_processes
from benchmarks.timing import timed
from posenc.compat.threads import threads
from posenc.core.biases import ALL, as_bias
from posenc.core.encoding import Encoding
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.fire import FIRE
from posenc.encodings.bias.fox import FoX
from posenc.encodings.bias.kerple import Kerple
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.relative.cope import CoPE
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.relative.path import PaTH
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.relative.transformer_xl import TransformerXL
from posenc.encodings.relative.wall import Wall

KINDS, CONDITIONS = ("forward", "training"), ("quiet", "busy")
BUSY = 2  # processes


@dataclass(frozen=True)
class OfAllPairs:
    """The bias of all pairs as a tensor, which torch's kernel adds to the scores."""

    encoding: Encoding

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at = self.encoding.prepare(torch.arange(q.shape[2]))
        scale = self.encoding.scale(q.shape[-1])
        bias = as_bias(self.encoding.on_scores(q, k, at, at, scale), q, k)
        assert bias is not None
        return masked(q, k, v, bias.block(ALL, ALL).squeeze(0))


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def ways() -> dict[str, Run]:
    """Return each encoding by attention of posenc, and in its usual form."""
    encodings = {
        "ALiBi": ALiBi(HEADS), "T5": T5Bias(HEADS, bidirectional=False), "KERPLE": Kerple(HEADS),
        "FIRE": FIRE(HEADS), "Shaw": Shaw(DIM), "Transformer-XL": TransformerXL(DIM, HEADS),
        "DeBERTa": DeBERTa(DIM, HEADS, buckets=256, released=True, clamped=False),
        "FoX": FoX(HEADS * DIM, HEADS), "CoPE": CoPE(DIM), "PaTH": PaTH(HEADS * DIM, HEADS),
        "Wall": Wall(HEADS * DIM, HEADS),
    }  # fmt: skip
    found: dict[str, Run] = {LIMIT: plain}
    for name, encoding in encodings.items():
        ours = Candidate(encoding, causal=name != "DeBERTa")
        usual: Run = Candidate(encoding, ours.causal, "reference")
        if name in ("T5", "KERPLE", "FIRE"):
            usual = OfAllPairs(encoding)
        elif name == "Shaw":
            usual = ShawMatrix(encoding)  # type: ignore[arg-type]
        elif name == "ALiBi":
            usual = alibi_matrix
        found |= {f"posenc {name}": ours, f"usual {name}": usual}
    return found


def time_busy(tokens: int, kind: str, condition: str, rounds: int, budget: float) -> BenchTable:
    """Time every way after a comparison of outputs; the targets are ours / usual ≤ 1."""
    runs, trains = ways(), kind == "training"
    q, k, v = inputs(tokens, tokens, trains)
    with torch.no_grad():
        for name, run in runs.items():
            if name.startswith("posenc "):
                due = runs[name.replace("posenc", "usual")](q, k, v)
                torch.testing.assert_close(run(q, k, v), due, rtol=1e-3, atol=1e-4)

    def once(run: Run) -> None:
        with torch.set_grad_enabled(trains):
            out = run(q, k, v)
            if trains:
                out.sum().backward()

    calls = {name: partial(once, run) for name, run in runs.items()}
    busy = condition == "busy"
    with threads(os.cpu_count() or 1), busy_processes(BUSY) if busy else nullcontext():
        times = timed(calls, rounds, budget, busy)
        load = f"beside {BUSY} busy processes" if busy else "quiet"
        case = f"{kind}, {load}: {tokens:,} tokens, {HEADS} heads of {DIM}, float32"
        result = table("busy", case, LIMIT, times, {})
    for name in runs:
        if name.startswith("posenc "):
            ratio = times[name].median / times[name.replace("posenc", "usual")].median
            result.targets.append(Target(f"{name.removeprefix('posenc ')} / usual", ratio, 1.0))
    return result
