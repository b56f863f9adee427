"""Benchmark of the steps of serving a model, each compared with the fastest form in plain torch.

    grouped    one query whose heads share keys; the limit is torch's call with `enable_gqa`
    cache      a layer with a `Cache`, token by token, with memory allocated at the first token;
               the limit is a loop of projections and torch's call, with memory allocated before
    packed     documents in one row, each causal; the limit is torch's causal call on each of them
    prefill    few tokens; the limit is torch's causal call

Positions and masks of packed documents and of one query are prepared before, because all layers
share them. Each implementation is first compared: with `reference`, with each document alone, or
with a single pass over the text.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks import memory
from benchmarks.attention import Candidate, torch_attention
from benchmarks.results import OURS, BenchTable, Target, table
from benchmarks.timing import timed
from posenc.attention.attend import attend
from posenc.attention.cache import Cache
from posenc.attention.layer import SelfAttention
from posenc.core import masks
from posenc.core.encoding import Encoding
from posenc.core.positions import documents, packed
from posenc.encodings.bias.alibi import ALiBi, slopes
from posenc.encodings.bias.kerple import Kerple
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.rotary.rope import RoPE

MOST_ERROR = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
COMPARED_KEYS = 8192  # greatest number for a comparison; the reference copies shared keys
PACKED_MB = 40.0

Way = Callable[[], Tensor]


@dataclass(frozen=True)
class Grouped:
    """A case of decoding: one query after the keys, with heads that share keys."""

    keys: int
    dtype: torch.dtype = torch.float32
    heads: int = 32
    groups: int = 8
    dim: int = 128

    limit: ClassVar[str] = "torch's call, `enable_gqa`"
    most: ClassVar[dict[tuple[int, torch.dtype], float]] = {
        (8192, torch.float32): 0.55,
        (65_536, torch.float32): 0.4,
        (8192, torch.bfloat16): 0.65,
        (65_536, torch.bfloat16): 0.5,
    }

    def __str__(self) -> str:
        heads = f"{self.heads} heads on {self.groups} of {self.dim}"
        return f"grouped: 1 query, {self.keys:,} keys, {heads}, {str(self.dtype)[6:]}"

    def ways(self) -> tuple[dict[str, Way], dict[str, Way]]:
        q, k, v = (
            torch.randn(1, heads, tokens, self.dim).to(self.dtype)
            for heads, tokens in (
                (self.heads, 1),
                (self.groups, self.keys),
                (self.groups, self.keys),
            )
        )
        apart = self.keys - 1 - torch.arange(self.keys)
        row = (-slopes(self.heads).float()[:, None] * apart).to(self.dtype)

        def as_rows(bias: Tensor | None = None) -> Tensor:
            """Attend with a group's heads as rows of one query, so that each key is read once."""
            rows = q.view(1, self.groups, -1, self.dim)
            bias = None if bias is None else bias.view(1, *rows.shape[1:3], -1)
            return scaled_dot_product_attention(rows, k, v, bias).view_as(q)

        cases = {
            "NoPE": Candidate(NoPE()),
            "ALiBi": Candidate(ALiBi(self.heads)),
            "T5": Candidate(T5Bias(self.heads, bidirectional=False)),
        }
        ways: dict[str, Way] = {
            self.limit: lambda: scaled_dot_product_attention(q, k, v, enable_gqa=True),
            **{f"{OURS} {name}": lambda case=case: case(q, k, v) for name, case in cases.items()},
            "heads as rows, NoPE": as_rows,
            "heads as rows, ALiBi": lambda: as_rows(row),
        }
        if self.keys > COMPARED_KEYS:
            return ways, {}
        expected = {
            name: lambda case=case: Candidate(case.encoding, path="reference")(q, k, v)
            for name, case in cases.items()
        }
        return ways, expected

    def targets(self) -> Mapping[str, float]:
        most = self.most.get((self.keys, self.dtype))
        return {} if most is None else dict.fromkeys(("NoPE", "ALiBi", "T5"), most)


@dataclass(frozen=True)
class Cached:
    """A case of decoding: a layer reads token by token, after a text that is in its cache."""

    tokens: int
    groups: int = 16
    heads: int = 16
    dim: int = 64
    new: int = 64

    limit: ClassVar[str] = "a loop, NoPE"

    @property
    def shared(self) -> bool:
        """True if heads share keys."""
        return self.heads != self.groups

    def __str__(self) -> str:
        heads = f"{self.heads} heads on {self.groups} of {self.dim}"
        return f"cache: {self.new} tokens after {self.tokens:,}, {heads}, float32"

    def ways(self) -> tuple[dict[str, Way], dict[str, Way]]:
        x = torch.randn(1, self.tokens + self.new, self.heads * self.dim)
        ways: dict[str, Way] = {}
        expected: dict[str, Way] = {}
        for name in ("NoPE", "ALiBi", "RoPE", "PaTH"):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                layer = SelfAttention(x.shape[-1], self.heads, name, self.groups).eval()
            if name == "NoPE":
                ways[self.limit] = self._loop(layer, x)
            ways[f"{OURS} {name}"] = self._text(layer, x)
            expected[name] = lambda layer=layer: layer(x, mask=masks.causal())[:, self.tokens :]
        return ways, expected

    def _text(self, layer: SelfAttention, x: Tensor) -> Way:
        causal, begun = masks.causal(), Cache()
        layer(x[:, : self.tokens], mask=causal, cache=begun)

        def text() -> Tensor:
            cache = copy.copy(begun)
            later = x[:, self.tokens :].split(1, 1)
            return torch.cat([layer(one, mask=causal, cache=cache) for one in later], 1)

        return text

    def _loop(self, layer: SelfAttention, x: Tensor) -> Way:
        def heads(of: torch.nn.Linear, x: Tensor) -> Tensor:
            return of(x).unflatten(-1, (-1, self.dim)).transpose(1, 2)

        k, v = (heads(of, x).contiguous() for of in (layer.k, layer.v))

        def text() -> Tensor:
            outs = []
            for n, one in enumerate(x[:, self.tokens :].split(1, 1), self.tokens):
                k[:, :, n : n + 1], v[:, :, n : n + 1] = heads(layer.k, one), heads(layer.v, one)
                seen = k[:, :, : n + 1], v[:, :, : n + 1]
                out = scaled_dot_product_attention(
                    heads(layer.q, one), *seen, enable_gqa=self.shared
                )
                outs.append(layer.out(out.transpose(1, 2).flatten(2)))
            return torch.cat(outs, 1)

        return text

    def targets(self) -> Mapping[str, float]:
        most = {"NoPE": 1.2 if self.shared else 1.3, "ALiBi": 1.5}
        return most if self.shared else most | {"PaTH": 3.0}


@dataclass(frozen=True)
class Packed:
    """A case of packing: several documents in one sequence, each attending only to itself."""

    documents: int = 8
    tokens: int = 512
    heads: int = 8
    dim: int = 64

    limit: ClassVar[str] = "separate causal calls"

    def __str__(self) -> str:
        heads = f"{self.heads} heads of {self.dim}"
        return f"packed: {self.documents} documents of {self.tokens:,} tokens, {heads}, float32"

    def ways(self) -> tuple[dict[str, Way], dict[str, Way]]:
        lengths = [self.tokens] * self.documents
        q, k, v = torch.randn(3, 1, self.heads, sum(lengths), self.dim).unbind()
        mask, pos = masks.causal() & masks.documents(documents(lengths)), packed(lengths)

        def each(way: Callable[..., Tensor], *more: Any, **how: Any) -> Tensor:
            parts = zip(*(x.split(self.tokens, 2) for x in (q, k, v)), strict=True)
            return torch.cat([way(*part, *more, **how) for part in parts], 2)

        ways: dict[str, Way] = {
            self.limit: lambda: each(scaled_dot_product_attention, is_causal=True)
        }
        expected: dict[str, Way] = {}
        for name, encoding in self._encodings().items():
            at, how = encoding.prepare(pos), {"mask": masks.causal(), "implementation": "reference"}
            ways[f"{OURS} {name}"] = lambda e=encoding, at=at: attend(q, k, v, e, at, mask=mask)
            expected[name] = lambda e=encoding, how=how: each(attend, e, **how)
        return ways, expected

    def _encodings(self) -> dict[str, Encoding]:
        t5 = T5Bias(self.heads, bidirectional=False)
        return {"RoPE": RoPE(self.dim), "ALiBi": ALiBi(self.heads), "T5": t5}

    def targets(self) -> Mapping[str, float]:
        return {"RoPE": 1.4, "ALiBi": 1.6, "T5": 1.4}


@dataclass(frozen=True)
class Prefill:
    """A case of prefilling: one layer reads a short prompt."""

    tokens: int = 16
    heads: int = 8
    dim: int = 64

    limit: ClassVar[str] = "torch's causal call"

    def __str__(self) -> str:
        return f"prefill: {self.tokens:,} tokens, {self.heads} heads of {self.dim}, float32"

    def ways(self) -> tuple[dict[str, Way], dict[str, Way]]:
        q, k, v = torch.randn(3, 1, self.heads, self.tokens, self.dim).unbind()
        encodings = {"NoPE": NoPE(), "RoPE": RoPE(self.dim), "ALiBi": ALiBi(self.heads)}
        encodings |= {"T5": T5Bias(self.heads, bidirectional=False), "KERPLE": Kerple(self.heads)}
        encodings |= {"Shaw": Shaw(self.dim)}
        ways: dict[str, Way] = {self.limit: lambda: torch_attention(q, k, v)}
        expected: dict[str, Way] = {}
        for name, encoding in encodings.items():
            case, reference = Candidate(encoding), Candidate(encoding, path="reference")
            ways[f"{OURS} {name}"] = lambda case=case: case(q, k, v)
            expected[name] = lambda case=reference: case(q, k, v)
        return ways, expected

    def targets(self) -> Mapping[str, float]:
        return {}


Served = Grouped | Cached | Packed | Prefill

FULL: tuple[Served, ...] = (
    *[Grouped(n, dtype) for dtype in MOST_ERROR for n in (1024, 8192, 65_536)],
    Cached(2048), Cached(8192, groups=4), Packed(), Prefill(),
)  # fmt: skip
QUICK: tuple[Served, ...] = (Grouped(8192), Cached(2048), Packed(), Prefill())


@torch.no_grad()
def time_serving(case: Served, rounds: int, budget: float) -> BenchTable:
    """Check and time every implementation. Raises AssertionError for a wrong output."""
    ways, expected = case.ways()
    errors = _errors(ways, expected, getattr(case, "dtype", torch.float32))
    times = timed(ways, rounds, budget)
    mb = memory.peaks("serving") if isinstance(case, Packed) else {}
    result = table("serving", str(case), case.limit, times, {}, errors, mb)
    kind = str(case).partition(":")[0]
    for name, most in case.targets().items():
        row = result.row(f"{OURS} {name}")
        assert row is not None
        result.targets.append(Target(f"{name}, {kind} / {case.limit}", row.ratio, most))
        if row.memory is not None:
            result.targets.append(Target(f"{name}, {kind}, MB", row.memory, PACKED_MB))
    return result


def _errors(
    ways: Mapping[str, Way], expected: Mapping[str, Way], dtype: torch.dtype
) -> dict[str, float | None]:
    """Return each implementation's error, compared with the encoding at the end of its name."""
    errors: dict[str, float | None] = {}
    for name, way in ways.items():
        if (right := expected.get(name.split()[-1])) is not None:
            out, due = way(), right()
            error = float((out - due).abs().max() / due.abs().max())
            assert error < MOST_ERROR[dtype], f"{name} is {error} off"
            errors[name] = error
    return errors


@torch.no_grad()
def peaks() -> dict[str, float]:
    """Measure the peak memory of packed documents in MB, without q, k and v."""
    peak_of = {}
    # The first case loads libraries
    for case in (Packed(tokens=32), Packed()):
        for name, way in case.ways()[0].items():
            peak_of[name] = memory.peak(way)
    return peak_of
