"""Benchmark of posenc's attention against a dense bias tensor, on idle and on busy cores.

Shapes are (1, 8 heads, tokens, 64 channels) in float32, with a thread for each core and the wait
policy of the process. The limit is plain causal attention. The usual form computes the bias of all
pairs and passes it to torch's kernel; for encodings that do more than add a bias, it is the
reference. On busy cores, all threads of a parallel region wait for the one without a core.

`OMP_WAIT_POLICY=passive python -m benchmarks busy` measures with the other policy. A run can be
limited to some lengths and encodings, and `markdown` merges the tables of several runs.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from posenc.compat.wait_policy import POLICY
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
LENGTHS = (1024, 2048)
NAMES = (
    "ALiBi", "T5", "KERPLE", "FIRE", "Shaw", "Transformer-XL", "DeBERTa", "FoX", "CoPE", "PaTH",
    "Wall",
)  # fmt: skip
LOADS = {"quiet": "quiet", "busy": f"beside {BUSY} busy processes"}
CASE = "{kind}, {load}, {policy} wait policy: {tokens:,} tokens, {heads} heads of {dim}, float32"


@dataclass(frozen=True)
class OfAllPairs:
    """Attention with the bias of all pairs as a tensor, which torch's kernel adds to the scores."""

    encoding: Encoding

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at = self.encoding.prepare(torch.arange(q.shape[2]))
        scale = self.encoding.scale(q.shape[-1])
        bias = as_bias(self.encoding.on_scores(q, k, at, at, scale), q, k)
        assert bias is not None
        return masked(q, k, v, bias.block(ALL, ALL).squeeze(0))


@dataclass(frozen=True)
class Cases:
    """The cases of a run: text lengths, kinds of calls, machine loads and encodings."""

    tokens: Sequence[int] = LENGTHS
    kinds: Sequence[str] = KINDS
    conditions: Sequence[str] = CONDITIONS
    names: Sequence[str] = NAMES

    def __post_init__(self) -> None:
        for known, named in (
            (KINDS, self.kinds),
            (CONDITIONS, self.conditions),
            (NAMES, self.names),
        ):
            if unknown := [name for name in named if name not in known]:
                raise LookupError(f"{unknown[0]!r} must be one of {', '.join(known)}.")


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def case(kind: str, condition: str, policy: str, tokens: int) -> str:
    return CASE.format(
        kind=kind, load=LOADS[condition], policy=policy, tokens=tokens, heads=HEADS, dim=DIM
    )


def ways(names: Sequence[str] = NAMES) -> dict[str, Run]:
    """Return attention by posenc and by the usual code for each encoding, keyed by name."""
    encodings = {
        "ALiBi": ALiBi(HEADS), "T5": T5Bias(HEADS, bidirectional=False), "KERPLE": Kerple(HEADS),
        "FIRE": FIRE(HEADS), "Shaw": Shaw(DIM), "Transformer-XL": TransformerXL(DIM, HEADS),
        "DeBERTa": DeBERTa(DIM, HEADS, buckets=256, released=True, clamped=False),
        "FoX": FoX(HEADS * DIM, HEADS), "CoPE": CoPE(DIM), "PaTH": PaTH(HEADS * DIM, HEADS),
        "Wall": Wall(HEADS * DIM, HEADS),
    }  # fmt: skip
    found: dict[str, Run] = {LIMIT: plain}
    for name in names:
        encoding = encodings[name]
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


def time_busy(
    tokens: int,
    kind: str,
    condition: str,
    rounds: int,
    budget: float,
    names: Sequence[str] = NAMES,
) -> BenchTable:
    """Compare outputs, then time all implementations; posenc should be at least as fast."""
    runs, trains = ways(names), kind == "training"
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
        policy = "passive" if os.environ.get(POLICY, "").lower() == "passive" else "default"
        result = table("busy", case(kind, condition, policy, tokens), LIMIT, times, {})
    for name in runs:
        if name.startswith("posenc "):
            ratio = times[name].median / times[name.replace("posenc", "usual")].median
            result.targets.append(Target(f"{name.removeprefix('posenc ')} / usual", ratio, 1.0))
    return result


def markdown(stores: Iterable[dict[str, Any]]) -> str:
    """Return a Markdown table of stored runs: times as multiples of plain causal attention.

    A cell in bold is slower than the usual form, and — is not measured.
    """
    found: dict[tuple[str, str], float] = {}
    for store in stores:
        for made in store["tables"]:
            found |= {(made["case"], row["name"]): row["ratio"] for row in made["rows"]}
    columns = [
        (
            f"{kind}, {condition}{', passive' if policy == 'passive' else ''}",
            kind,
            condition,
            policy,
        )
        for kind in KINDS
        for condition, policy in (("quiet", "default"), ("busy", "default"), ("busy", "passive"))
    ]
    lines = []
    for tokens in LENGTHS:
        if not any(f" {tokens:,} tokens" in made for made, _ in found):
            continue
        lines += ["", f"| {tokens:,} tokens | " + " | ".join(name for name, *_ in columns) + " |"]
        lines.append("| --- |" + " --: |" * len(columns))
        for name in NAMES:
            cells = [
                [found.get((case(*rest, tokens), f"{who} {name}")) for who in ("posenc", "usual")]
                for _, *rest in columns
            ]
            lines.append(f"| {name} | " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines[1:])


def _cell(ratios: list[float | None]) -> str:
    ours, usual = ratios
    if ours is None or usual is None:
        return "—"
    cell = " / ".join(f"{ratio:.{1 if ratio < 10 else 0}f}" for ratio in (ours, usual))
    return f"**{cell}**" if ours > usual else cell
