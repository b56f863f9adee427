"""Attention with scores that know positions, against torch's plain kernel and what is usual.

    python benchmarks/attention.py [tokens …]

Times are medians of interleaved rounds in one process, as ratios to plain causal attention of the
same shape (1, 8 heads, tokens, 64), or to plain attention of everything for DeBERTa. A round where
other programs took the processor away, so that our threads waited for more than 5 % of it, is not
counted, as long as there are others; `--alone` counts processor time on one thread instead, which
other programs hardly touch. Memory is what the peak of a process of its own, with the
default malloc, rises above q, k and v. Each case is compared with `reference` in the same run
(512 tokens: the definition needs tokens²), and so are the usual ways.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F

from posenc import FIRE, ALiBi, DeBERTa, Kerple, NoPE, Shaw, T5Bias, TransformerXL, attend, masks
from posenc.bias.alibi import slopes
from posenc.encoding import Encoding
from posenc.paths import Implementation
from posenc.positions import sequence

HEADS, DIM, REACH = 8, 64, 64
WAITING = 0.05


@dataclass(frozen=True)
class Record:
    case: str
    tokens: int
    what: str  # forward, training, or decode
    ms: float
    ratio: float  # to plain attention
    rounds: int
    waited: bool  # no round was free of other programs
    mb: float | None = None


@dataclass(frozen=True)
class Case:
    encoding: Encoding
    causal: bool = True
    path: Implementation = "auto"

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = masks.causal() if self.causal else None
        if q.shape[2] == k.shape[2]:
            return attend(q, k, v, self.encoding, mask=mask, implementation=self.path)
        at = self.encoding.prepare(sequence(q.shape[2], k.shape[2] - q.shape[2]))
        k_at = self.encoding.prepare(sequence(k.shape[2]))
        return attend(q, k, v, self.encoding, at, k_at, implementation=self.path)


# The usual ways


def offsets(q, k):
    return (torch.arange(q.shape[2]) + k.shape[2] - q.shape[2]).unsqueeze(-1) - torch.arange(
        k.shape[2]
    )


def masked(q, k, v, bias):
    bias = bias.masked_fill(offsets(q, k) < 0, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.unsqueeze(0))


def alibi_matrix(q, k, v):
    """As in transformers' models: a tokens × tokens bias, made in each call."""
    return masked(q, k, v, -slopes(HEADS).view(-1, 1, 1) * offsets(q, k))


@dataclass
class T5Matrix:
    """As transformers' T5Attention: buckets of all pairs, looked up, and a mask."""

    ours: T5Bias

    def __call__(self, q, k, v):
        from transformers.models.t5.modeling_t5 import T5Attention

        buckets = T5Attention._relative_position_bucket(-offsets(q, k), False, 32, 128)
        return masked(q, k, v, self.ours.weight[buckets].permute(2, 0, 1))


@dataclass
class ShawMatrix:
    """A key and a value for each pair: (tokens, tokens, channels)."""

    ours: Shaw

    def __call__(self, q, k, v):
        row = self.ours.row(offsets(q, k))
        scores = q @ k.mT + torch.einsum("bhid,ijd->bhij", q, self.ours.keys[row])
        scores = (scores * q.shape[-1] ** -0.5).masked_fill(offsets(q, k) < 0, float("-inf"))
        weights = scores.softmax(-1)
        return weights @ v + torch.einsum("bhij,ijd->bhid", weights, self.ours.values[row])


@dataclass
class DebertaModule:
    """The attention of transformers' DeBERTa-v2, from its own scores on; without projections."""

    ours: DeBERTa

    def __post_init__(self):
        from transformers import DebertaV2Config
        from transformers.models.deberta_v2.modeling_deberta_v2 import (
            DisentangledSelfAttention,
            build_relative_position,
        )

        ours, width = self.ours, HEADS * DIM
        config = DebertaV2Config(
            hidden_size=width, num_attention_heads=HEADS, relative_attention=True,
            position_buckets=ours.buckets, max_relative_positions=ours.reach,
            pos_att_type=["c2p", "p2c"], share_att_key=False,
        )  # fmt: skip
        self.module = DisentangledSelfAttention(config).eval()
        for theirs, made in (("pos_key_proj", ours.to_keys), ("pos_query_proj", ours.to_queries)):
            linear = getattr(self.module, theirs)
            linear.weight.data.copy_(made.data.transpose(1, 2).reshape(width, width))
            linear.bias.data.zero_()
        self.positions = build_relative_position

    def __call__(self, q, k, v):
        ours = self.ours
        pairs = self.positions(q, k, bucket_size=ours.buckets, max_position=ours.reach)
        flat = lambda x: x.flatten(0, 1)  # noqa: E731
        scores = flat(q) @ (flat(k) / (3 * DIM) ** 0.5).mT
        scores = scores + self.module.disentangled_attention_bias(
            flat(q), flat(k), pairs, ours.rows, 3
        )
        return (scores.softmax(-1) @ flat(v)).unflatten(0, q.shape[:2])


def cases(tokens: int) -> dict[str, Callable[..., torch.Tensor]]:
    """Everything that is compared; what needs tokens² in many copies only where it fits."""
    t5 = T5Bias(HEADS, bidirectional=False)
    shaw, deberta = Shaw(DIM, reach=REACH), DeBERTa(DIM, HEADS, buckets=256, released=True)
    made = {
        "plain causal": Case(NoPE()),
        "plain": Case(NoPE(), causal=False),
        "ALiBi": Case(ALiBi(HEADS)),
        "T5": Case(t5),
        "KERPLE": Case(Kerple(HEADS)),
        "FIRE, up to its L": Case(FIRE(HEADS, length=2**15)),
        "FIRE, L = 512": Case(FIRE(HEADS)),
        "Shaw": Case(shaw),
        "Transformer-XL": Case(TransformerXL(DIM, HEADS)),
        "DeBERTa": Case(deberta, causal=False),
        "DeBERTa in blocks": Case(deberta, causal=False, path="blocks"),
    }
    usual = {
        "usual ALiBi": (alibi_matrix, 8192),
        "usual T5": (T5Matrix(t5), 8192),
        "usual Shaw": (ShawMatrix(shaw), 4096),
        "usual DeBERTa": (DebertaModule(deberta), 4096),
    }
    return made | {name: run for name, (run, most) in usual.items() if tokens <= most}


TRAINED = ("plain causal", "ALiBi", "T5", "KERPLE", "FIRE, up to its L", "Shaw", "DeBERTa")
TRAINED += ("usual ALiBi", "usual T5")


def inputs(queries: int, keys: int, trains: bool = False) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    shapes = [(1, HEADS, n, DIM) for n in (queries, keys, keys)]
    return [torch.randn(s, generator=made).requires_grad_(trains) for s in shapes]


def assert_equal(tokens: int = 512) -> None:
    """Every case gives what the definition gives; and so do the usual ways, and the gradients."""
    q, k, v = inputs(tokens, tokens, trains=True)
    all_of_them = cases(tokens)
    for name, run in all_of_them.items():
        ours = all_of_them[name.removeprefix("usual ")]
        assert isinstance(ours, Case)
        expected = Case(ours.encoding, ours.causal, "reference")(q, k, v)
        torch.testing.assert_close(run(q, k, v), expected, rtol=1e-4, atol=2e-5)
        with torch.no_grad():
            torch.testing.assert_close(run(q, k, v), expected, rtol=1e-4, atol=2e-5)
        grads = [torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (run(q, k, v), expected)]
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)


def timed(
    tokens: int, what: str = "forward", seconds: float = 20.0, alone: bool = False
) -> Iterator[Record]:
    clock = time.process_time if alone else time.perf_counter
    torch.set_num_threads(1 if alone else torch.get_num_threads())
    trains, queries = what == "training", 1 if what == "decode" else tokens
    q, k, v = inputs(queries, tokens, trains)
    runs = {n: r for n, r in cases(tokens).items() if not trains or n in TRAINED}
    if what == "decode":
        runs.pop("usual DeBERTa", None)  # it knows no cache

    def once(run: Callable[..., torch.Tensor]) -> None:
        with torch.set_grad_enabled(trains):
            out = run(q, k, v)
            if trains:
                out.sum().backward()

    clean = {name: [] for name in runs}
    dirty = {name: [] for name in runs}
    until = None
    while until is None or time.perf_counter() < until or any(len(x) < 2 for x in dirty.values()):
        for name, run in runs.items():
            waited, start = _waited(), clock()
            once(run)
            took = clock() - start
            if until is not None:  # the first round warms up
                free = alone or _waited() - waited < WAITING * took
                (clean if free else dirty)[name].append(took)
                dirty[name].append(took)
        until = until or time.perf_counter() + seconds
    middle = {n: statistics.median(clean[n] if len(clean[n]) > 2 else dirty[n]) for n in runs}
    for name in runs:
        limit = "plain" if "DeBERTa" in name and not trains else "plain causal"
        ratio = middle[name] / middle[limit]
        few = len(clean[name]) < 3
        count = len(dirty[name] if few else clean[name])
        yield Record(name, tokens, what, 1e3 * middle[name], ratio, count, few)


def _waited() -> float:
    """Seconds that threads of this process were ready and did not run."""
    total = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/schedstat") as stat:
                total += int(stat.read().split()[1])
        except OSError:
            continue
    return total * 1e-9


def peak(name: str, tokens: int, what: str = "forward") -> float:
    """MB above q, k and v, in a process of its own."""
    command = [sys.executable, __file__, "--peak", name, "--what", what, str(tokens)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _peak_here(name: str, tokens: int, what: str) -> float:
    trains, run = what == "training", cases(tokens)[name]

    def once(tokens: int) -> float:
        tensors = inputs(1 if what == "decode" else tokens, tokens, trains)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = _status("VmRSS")
        with torch.set_grad_enabled(trains):
            out = run(*tensors)
            if trains:
                out.sum().backward()
        return _status("VmHWM") - before

    once(256)  # loads what is loaded once
    return once(tokens)


def _status(key: str) -> float:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def measured(
    tokens: list[int], seconds: float, memory: bool = True, alone: bool = False
) -> Iterator[Record]:
    assert_equal()
    for n in tokens:
        for what in ("forward", "training", "decode"):
            if what == "training" and n > 4096:
                continue
            for record in timed(n, what, seconds, alone):
                mb = peak(record.case, n, what) if memory else None
                yield Record(**(asdict(record) | {"mb": mb}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens", nargs="*", type=int, default=[256, 1024, 4096, 16384])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each table")
    parser.add_argument("--what", default="forward")
    parser.add_argument("--peak", help="print the MB of this case, and nothing else")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--alone", action="store_true", help="processor time on one thread")
    options = parser.parse_args()
    if options.peak:
        print(_peak_here(options.peak, options.tokens[0], options.what))
        return
    for r in measured(options.tokens, options.seconds, not options.no_memory, options.alone):
        if options.json:
            print(json.dumps(asdict(r)), flush=True)
            continue
        mb = "" if r.mb is None else f"{r.mb:8.0f} MB"
        note = "  (others ran too)" if r.waited else ""
        print(
            f"{r.tokens:6} {r.what:9} {r.case:20} {r.ms:9.2f} ms {r.ratio:7.2f}{mb}"
            f" {r.rounds:4}{note}",
            flush=True,
        )


if __name__ == "__main__":
    main()
