"""Benchmark of attention with positional scores, torch's plain kernel and materialised scores.

Shapes are (1, 8 heads, tokens, 64 channels) in float32. The limit is plain causal attention, for
DeBERTa plain attention without a mask. Outputs and gradients of each implementation are compared
with `reference` in the same run, at 512 tokens, because the reference needs tokens² memory.
Decoding, windows and small prefill are compared at their own lengths.

    decode     one query at the end of the keys, positions and mask prepared before; the limit is
               torch's call on the cache
    window     a causal window of 256 tokens; the limit is ALiBi with the same window
    prefill    few tokens; the limit is torch's call with its built-in causal mask
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import memory
from benchmarks.results import BenchTable, Target, table
from benchmarks.timing import timed
from posenc.attention.attend import attend
from posenc.attention.call import Implementation
from posenc.attention.decoding import Decoding
from posenc.core import masks
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask
from posenc.core.positions import sequence
from posenc.encodings.bias.alibi import ALiBi, slopes
from posenc.encodings.bias.fire import FIRE
from posenc.encodings.bias.fox import FoX
from posenc.encodings.bias.kerple import Kerple
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.nope import NoPE
from posenc.encodings.relative.cope import CoPE
from posenc.encodings.relative.deberta import DeBERTa
from posenc.encodings.relative.path import PaTH
from posenc.encodings.relative.shaw import Shaw
from posenc.encodings.relative.transformer_xl import TransformerXL
from posenc.encodings.relative.wall import Wall
from posenc.encodings.rotary.rope import RoPE

HEADS, DIM, REACH = 8, 64, 64
LIMIT, LIMIT_BOTH_WAYS = "plain causal", "plain"
HELD_NAMES = tuple([f"{name}, row held" for name in ("NoPE", "ALiBi", "T5")])
KINDS = ("forward", "training", "decode", "window", "prefill")
LONGEST_TRAINED = 4096
SHORTEST_CACHE, LONGEST_CACHE = 256, 65_536
WINDOW = 256
DECODED_SOON = (
    2.0  # target ratio to torch's call on 256 keys, without a bias or with a distance bias
)
MOST = {  # target ratios to the limit, and MB, by kind and tokens
    ("forward", 2048): (("FoX", 1.4), ("PaTH", 4.0), ("Wall", 2.8), ("FIRE, L = 512", 3.5)),
    ("forward", 4096): (("FIRE, L = 512", 5.0),),
    ("training", 512): (("ALiBi", 1.2), ("Transformer-XL", 3.0)),
    ("training", 2048): (
        ("Transformer-XL", 4.5), ("Shaw", 4.0), ("CoPE", 6.0), ("DeBERTa", 8.0), ("FoX", 2.0),
    ),
    ("training", 4096): (
        ("ALiBi", 1.3), ("T5", 2.0), ("Transformer-XL", 4.5, 400), ("Shaw", 4.0, 400),
        ("CoPE", 6.0, 400), ("DeBERTa", 8.0, 1000),
    ),
}  # fmt: skip
BY_CONTENT = ("Shaw", "Transformer-XL", "DeBERTa")
DECODED = {  # target ratios to torch's call on 65,536 keys
    "NoPE": 1.3, "RoPE, keys turned before": 1.3, "ALiBi": 1.5, "T5": 1.5, "KERPLE": 1.5,
    "FIRE, up to its L": 1.5, "Shaw": 2.0, "Transformer-XL": 3.0, "DeBERTa": 3.0,
}  # fmt: skip

Run = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Candidate:
    encoding: Encoding
    causal: bool = True
    path: Implementation = "auto"

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = masks.causal() if self.causal else None
        if q.shape[2] == k.shape[2]:
            at = _from_hidden(self.encoding, q.shape[2], q.device)
            return attend(q, k, v, self.encoding, at, mask=mask, implementation=self.path)
        at, k_at, causal = _prepared_step(self.encoding, q.shape[2], k.shape[2], q.device)
        mask = causal if self.causal else None
        return attend(q, k, v, self.encoding, at, k_at, mask, implementation=self.path)


@dataclass(frozen=True)
class Windowed:
    encoding: Encoding
    path: Implementation = "auto"

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = masks.causal() & masks.window(WINDOW)
        return attend(q, k, v, self.encoding, mask=mask, implementation=self.path)


@dataclass(frozen=True)
class RowHeld:
    """Decoding with a `Decoding` object that computes a bias row once for all layers of a token."""

    encoding: Encoding

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if torch.is_grad_enabled() or q.shape[2] != 1:
            return Candidate(self.encoding)(q, k, v)
        return _decoding(self.encoding, k.shape[2], q.device).attend(q, k, v)


@cache
def _decoding(encoding: Encoding, keys: int, device: torch.device) -> Decoding:
    at, k_at, _ = _prepared_step(encoding, 1, keys, device)
    return Decoding(encoding, at, k_at)


@dataclass(frozen=True)
class KeysTurnedBefore:
    """RoPE on a cache of rotated keys, as in inference engines; only the query is rotated."""

    rope: RoPE
    plain: Run

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at, _, _ = _prepared_step(self.rope, q.shape[2], k.shape[2], q.device)
        return self.plain(self.rope.on_queries(q, at), k, v)


PLAIN = NoPE()


def _from_hidden(encoding: Encoding, tokens: int, device: torch.device) -> Any:
    """Return the result of the hook `on_hidden`, or None for encodings without it."""
    if "on_hidden" not in encoding.acts_on:
        return None
    at = encoding.prepare(sequence(tokens).to(device))
    return encoding.on_hidden(_hidden(tokens, device), at)


@cache
def _hidden(tokens: int, device: torch.device) -> Tensor:
    x = torch.randn(1, tokens, HEADS * DIM, generator=torch.Generator().manual_seed(1))
    return x.to(device)


@cache
def _prepared_step(
    encoding: Encoding, queries: int, keys: int, device: torch.device
) -> tuple[Any, Any, Mask]:
    """Return the positions and the mask that a decoding step prepares once for all layers."""
    q_pos, k_pos = sequence(queries, keys - queries).to(device), sequence(keys).to(device)
    return encoding.prepare(q_pos), encoding.prepare(k_pos), masks.causal(q_pos, k_pos)


def torch_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] == k.shape[2])


# The usual implementations, with materialised scores


def offsets(q, k):
    places = torch.arange(k.shape[2], device=q.device)
    return places[k.shape[2] - q.shape[2] :].unsqueeze(-1) - places


def masked(q, k, v, bias):
    bias = bias.masked_fill(offsets(q, k) < 0, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.unsqueeze(0).to(q.dtype))


def alibi_matrix(q, k, v):
    """Compute ALiBi as in transformers' models, with a tokens × tokens bias made in each call."""
    return masked(q, k, v, -slopes(HEADS).float().to(q.device).view(-1, 1, 1) * offsets(q, k))


@dataclass
class T5Matrix:
    """T5 as in transformers' T5Attention, which looks up the bias of every query-key pair."""

    encoding: T5Bias

    def __call__(self, q, k, v):
        from transformers.models.t5.modeling_t5 import T5Attention

        buckets = T5Attention._relative_position_bucket(-offsets(q, k), False, 32, 128)
        return masked(q, k, v, self.encoding.weight[buckets].permute(2, 0, 1))


@dataclass
class ShawMatrix:
    """Shaw's attention with relative keys and values as (tokens, tokens, channels) tensors."""

    encoding: Shaw

    def __call__(self, q, k, v):
        row = self.encoding.row(offsets(q, k))
        keys, values = (
            table[row].to(q.dtype)
            for table in (self.encoding.relative_keys, self.encoding.relative_values)
        )
        scores = q @ k.mT + torch.einsum("bhid,ijd->bhij", q, keys)
        scores = (scores * q.shape[-1] ** -0.5).masked_fill(offsets(q, k) < 0, float("-inf"))
        weights = scores.softmax(-1)
        added = torch.einsum("bhij,ijd->bhid", weights, values)
        return weights @ v + added


@dataclass
class DebertaModule:
    """The attention of transformers' DeBERTa-v2, without projections."""

    encoding: DeBERTa

    def __post_init__(self):
        from transformers import DebertaV2Config
        from transformers.models.deberta_v2.modeling_deberta_v2 import (
            DisentangledSelfAttention,
            build_relative_position,
        )

        encoding, width = self.encoding, HEADS * DIM
        config = DebertaV2Config(hidden_size=width, num_attention_heads=HEADS)
        config.update({"relative_attention": True, "pos_att_type": ["c2p", "p2c"]})
        config.update(
            {"position_buckets": encoding.buckets, "max_relative_positions": encoding.reach}
        )
        self.module = DisentangledSelfAttention(config).eval()
        for name, own in (
            ("pos_key_proj", encoding.to_keys),
            ("pos_query_proj", encoding.to_queries),
        ):
            linear = getattr(self.module, name)
            # Not None, because this DeBERTa has both terms
            assert own is not None
            linear.weight.data.copy_(own.data.transpose(1, 2).reshape(width, width))
            linear.bias.data.zero_()
        self.positions = build_relative_position

    def __call__(self, q, k, v):
        encoding = self.encoding
        pairs = self.positions(q, k, bucket_size=encoding.buckets, max_position=encoding.reach)
        flat = lambda x: x.flatten(0, 1)  # noqa: E731
        scores = flat(q) @ (flat(k) / (3 * DIM) ** 0.5).mT
        scores = scores + self.module.disentangled_attention_bias(
            flat(q), flat(k), pairs, encoding.rows, 3
        )
        return (scores.softmax(-1) @ flat(v)).unflatten(0, q.shape[:2])


def cases(tokens: int) -> dict[str, Callable[..., Tensor]]:
    """Return attention implementations by name; those with tokens² memory only for short texts."""
    t5 = T5Bias(HEADS, bidirectional=False)
    shaw = Shaw(DIM, reach=REACH)
    deberta = DeBERTa(DIM, HEADS, buckets=256, released=True, clamped=False)
    ways = {
        LIMIT: Candidate(NoPE()),
        LIMIT_BOTH_WAYS: Candidate(NoPE(), causal=False),
        "posenc ALiBi": Candidate(ALiBi(HEADS)),
        "posenc T5": Candidate(t5),
        "posenc KERPLE": Candidate(Kerple(HEADS)),
        "posenc FIRE, up to its L": Candidate(FIRE(HEADS, length=2**15)),
        "posenc FIRE, L = 512": Candidate(FIRE(HEADS)),
        "posenc Shaw": Candidate(shaw),
        "posenc Transformer-XL": Candidate(TransformerXL(DIM, HEADS)),
        "posenc CoPE": Candidate(CoPE(DIM)),
        "posenc FoX": Candidate(FoX(HEADS * DIM, HEADS)),
        "posenc PaTH": Candidate(PaTH(HEADS * DIM, HEADS)),
        "posenc Wall": Candidate(Wall(HEADS * DIM, HEADS)),
        "posenc DeBERTa": Candidate(deberta, causal=False),
        "posenc DeBERTa in blocks": Candidate(deberta, causal=False, path="blocks"),
    }
    usual: dict[str, tuple[Callable[[], Run], int]] = {
        "materialised ALiBi": (lambda: alibi_matrix, 8192),
        "materialised Shaw": (lambda: ShawMatrix(shaw), 4096),
    }
    if _transformers():
        usual["materialised T5"] = lambda: T5Matrix(t5), 8192
        usual["materialised DeBERTa"] = lambda: DebertaModule(deberta), 4096
    return ways | {name: run() for name, (run, longest) in usual.items() if tokens <= longest}


def _transformers() -> bool:
    return find_spec("transformers") is not None


TRAINED = (LIMIT, "posenc ALiBi", "posenc T5", "posenc KERPLE", "posenc FIRE, up to its L")
TRAINED += ("posenc Shaw", "posenc Transformer-XL", "posenc DeBERTa", "posenc CoPE", "posenc FoX")
TRAINED += ("posenc PaTH", "posenc Wall", "materialised ALiBi", "materialised T5")
# Encodings whose positions are computed from the layer's input
FROM_HIDDEN = "posenc FoX", "posenc PaTH", "posenc Wall"


def time_attention(tokens: int, kind: str, rounds: int, budget: float) -> BenchTable:
    """Time every implementation, and compare outputs with the reference."""
    runs = _implementations(tokens, kind)
    trains = kind == "training"
    q, k, v = inputs(1 if kind == "decode" else tokens, tokens, trains)

    def once(run: Run) -> None:
        with torch.set_grad_enabled(trains):
            out = run(q, k, v)
            if trains:
                out.sum().backward()

    calls = {name: lambda run=run: once(run) for name, run in runs.items()}
    times = timed(calls, rounds, budget)
    peak_memory, errors = memory.peaks("attention", str(tokens), kind), reference_errors()
    shown = f"1 query, {tokens:,} keys" if kind == "decode" else f"{tokens:,} tokens"
    _assert_equal_reference(runs, q, k, v)
    case = f"{kind}: {shown}, {HEADS} heads of {DIM}, float32"
    limit_of = partial(_limit, kind=kind)
    result = table(
        "attention", case, _limit("", kind), times, _missing(), errors, peak_memory, limit_of
    )
    result.targets.extend(_targets(result, tokens, kind))
    return result


def peaks(tokens: str, kind: str) -> dict[str, float]:
    """Measure the peak memory of one call in MB, without q, k and v."""
    trains = kind == "training"

    def once(run: Run, tokens: int) -> float:
        qkv = inputs(1 if kind == "decode" else tokens, tokens, trains)

        def call() -> None:
            with torch.set_grad_enabled(trains):
                out = run(*qkv)
                if trains:
                    out.sum().backward()

        return memory.peak(call)

    peak_of = {}
    for name, run in _implementations(int(tokens), kind).items():
        # The first call loads libraries
        once(run, 256)
        peak_of[name] = once(run, int(tokens))
    return peak_of


def _assert_equal_reference(runs: dict[str, Run], q: Tensor, k: Tensor, v: Tensor) -> None:
    """Assert that outputs equal `reference`'s, unless there are over a million pairs of tokens."""
    if q.shape[2] * k.shape[2] > 1024**2:
        return
    for run in runs.values():
        if isinstance(run, Candidate | Windowed):
            with torch.no_grad():
                expected = replace(run, path="reference")(q, k, v)
                torch.testing.assert_close(run(q, k, v), expected, rtol=1e-4, atol=2e-5)


@cache
def reference_errors(tokens: int = 512) -> dict[str, float]:
    """Return the error of each implementation against `reference`.

    Raises AssertionError for an error that is too large.
    """
    q, k, v = inputs(tokens, tokens, trains=True)
    errors, ways = {}, cases(tokens)
    for name, run in ways.items():
        counterpart = ways[name.replace("materialised", "posenc")]
        assert isinstance(counterpart, Candidate)
        expected = Candidate(counterpart.encoding, counterpart.causal, "reference")(q, k, v)
        trained = run(q, k, v)
        with torch.no_grad():
            inferred = run(q, k, v)
        for out in (inferred, trained):
            torch.testing.assert_close(out, expected, rtol=1e-4, atol=2e-5)
        grads = [torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (trained, expected)]
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)
        errors[name] = ((inferred - expected).abs().max() / expected.abs().max()).item()
    return errors


def inputs(queries: int, keys: int, trains: bool = False) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, HEADS, n, DIM) for n in (queries, keys, keys)]
    return [torch.randn(s, generator=generator).requires_grad_(trains) for s in shapes]


def _implementations(tokens: int, kind: str) -> dict[str, Run]:
    ways = cases(tokens)
    if kind == "training":
        return {name: run for name, run in ways.items() if name in TRAINED}
    if kind == "decode":
        without = ("materialised DeBERTa", "posenc DeBERTa in blocks", LIMIT_BOTH_WAYS)
        for name in (*without, *FROM_HIDDEN):
            # DeBERTa as published has no cache; for one query at the end no key is masked
            ways.pop(name, None)
        rope, plain = RoPE(DIM), Candidate(PLAIN)
        ways |= {
            LIMIT: torch_attention,
            "posenc NoPE": plain,
            f"posenc {KEYS_TURNED}": KeysTurnedBefore(rope, plain),
            f"posenc {KEYS_TURNED}, row held": KeysTurnedBefore(rope, RowHeld(PLAIN)),
            **{f"posenc {name}, row held": RowHeld(encoding) for name, encoding in HELD.items()},
        }
        if tokens == LONGEST_CACHE:
            ways["posenc FIRE, up to its L"] = Candidate(FIRE(HEADS, length=2 * tokens))
    if kind == "window":
        names = {"posenc ALiBi": ALiBi(HEADS), "posenc NoPE": PLAIN, "posenc RoPE": RoPE(DIM)}
        return {name: Windowed(encoding) for name, encoding in names.items()}
    if kind == "prefill":
        ways |= {LIMIT: torch_attention, "posenc NoPE": Candidate(PLAIN)}
        return {name: ways[name] for name in (LIMIT, "posenc NoPE", "posenc ALiBi", "posenc T5")}
    return ways


KEYS_TURNED = "RoPE, keys turned before"
HELD = {"NoPE": PLAIN, "ALiBi": ALiBi(HEADS), "T5": T5Bias(HEADS, bidirectional=False)}


def lengths(kind: str, tokens: Sequence[int]) -> list[int]:
    """Return the text lengths at which a kind of call, such as "decode", is measured."""
    if kind == "training":
        return [n for n in tokens if n <= LONGEST_TRAINED]
    if kind == "decode" and max(tokens) > LONGEST_TRAINED:
        return [SHORTEST_CACHE, *tokens, LONGEST_CACHE]
    if kind == "window":
        return [n for n in tokens if n > WINDOW]
    if kind == "prefill":
        return [16, 64, 128, 256] if max(tokens) > LONGEST_TRAINED else [16, 256]
    return list(tokens)


def _limit(name: str, kind: str) -> str:
    if kind == "window":
        return "posenc ALiBi"
    return LIMIT_BOTH_WAYS if "DeBERTa" in name and kind == "forward" else LIMIT


def _missing() -> dict[str, str]:
    return {} if _transformers() else {"transformers": "not installed"}


def _targets(table: BenchTable, tokens: int, kind: str) -> Iterator[Target]:
    rows = {row.name: row for row in table.rows}

    def within(name: str, most: float, mb: float | None = None) -> Iterator[Target]:
        row = rows[f"posenc {name}"]
        yield Target(f"{name}, time / plain", row.ratio, most)
        if mb is not None and row.memory is not None:
            yield Target(f"{name}, MB", row.memory, mb)

    def of_usual(name: str, share: float) -> Iterator[Target]:
        row, usual = rows[f"posenc {name}"], rows.get(f"materialised {name}")
        if usual and row.memory and usual.memory:
            yield Target(f"{name}, memory / usual", row.memory / usual.memory, share)

    for name, most, *mb in MOST.get((kind, tokens), ()):
        yield from within(name, most, *mb)
    if kind == "forward" and tokens == 4096:
        for name in ("T5", "KERPLE", "FIRE, up to its L"):
            yield from within(name, 1.3, 30)
        yield from within("ALiBi", 0.9)
        yield from within("Shaw", 1.6)
        yield from of_usual("Shaw", 0.05)
        yield from within("Transformer-XL", 2.2)
        yield from within("DeBERTa", 9.0)
        yield from of_usual("DeBERTa", 0.1)
    if kind == "decode" and tokens == SHORTEST_CACHE:
        for name in (*[name for name in DECODED if name not in BY_CONTENT], *HELD_NAMES):
            yield from within(name, DECODED_SOON)
    if kind == "decode" and tokens == LONGEST_CACHE:
        for name, most in DECODED.items():
            yield from within(name, most)
    if kind == "window":
        for name in ("NoPE", "RoPE"):
            yield Target(f"{name} / ALiBi, same window", rows[f"posenc {name}"].ratio, 1.1)
    if kind == "prefill":
        for name in ("NoPE", "ALiBi", "T5"):
            more = rows[f"posenc {name}"].times.median - rows[LIMIT].times.median
            yield Target(f"{name}, µs above plain", more * 1e6, 30.0)
    if kind == "forward" and tokens == 16384:
        yield from within("ALiBi", 0.5)
        for row in table.rows:
            if row.ours and row.memory is not None:
                yield Target(f"{row.name.removeprefix('posenc ')}, MB", row.memory, 500)
