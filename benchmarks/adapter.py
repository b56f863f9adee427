"""Benchmark of encodings in a Llama of transformers: a prefill, and one token with a cache.

The limit is the same model with its own rotation; weights are random. The half layout must give the
model's logits. With every encoding, a step with a cache must give the logits of a single pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.results import OURS, BenchTable, Target, table
from benchmarks.timing import timed
from posenc.core.encoding import Encoding
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.rotary.rope import RoPE

LIMIT = "the model's own"
HEADS, DIM, VOCABULARY = 8, 64, 1000
TARGETS = {"prefill": 1.05, "one token more": 1.15}  # ratios to the limit
COMPARED_TOKENS = 64  # number of first tokens on which the models are compared


@dataclass(frozen=True)
class Size:
    layers: int
    tokens: int


FULL, QUICK = Size(4, 2048), Size(2, 512)


def time_adapter(kind: str, size: Size, rounds: int, budget: float) -> BenchTable:
    """Time the models of all encodings. Raises AssertionError for wrong logits."""
    ids = torch.randint(VOCABULARY, (1, size.tokens), generator=torch.Generator().manual_seed(0))
    models = _models(size)
    with torch.no_grad():
        errors = _errors(models, ids[:, :COMPARED_TOKENS])
        run = _prefill if kind == "prefill" else _step
        times = timed({name: run(model, ids) for name, model in models.items()}, rounds, budget)
    case = f"{kind}: Llama, {size.layers} layers, {HEADS} heads of {DIM}, {size.tokens:,} tokens"
    result = table("adapter", case, LIMIT, times, {}, errors)
    for row in result.rows:
        if row.ours:
            what = f"{row.name.removeprefix(f'{OURS} ')}, {kind} / {LIMIT}"
            result.targets.append(Target(what, row.ratio, TARGETS[kind]))
    return result


def _models(size: Size) -> dict[str, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM

    from posenc.models.adapter import apply

    encodings: dict[str, Encoding | None] = {
        LIMIT: None,
        f"{OURS} RoPE, half": RoPE(DIM, layout="half"),
        f"{OURS} RoPE, interleaved": RoPE(DIM),
        f"{OURS} ALiBi": ALiBi(HEADS),
        f"{OURS} T5": T5Bias(HEADS, bidirectional=False),
    }
    config: dict[str, Any] = dict(
        hidden_size=HEADS * DIM,
        num_attention_heads=HEADS,
        num_hidden_layers=size.layers,
        intermediate_size=2 * HEADS * DIM,
        vocab_size=VOCABULARY,
        max_position_embeddings=size.tokens + 1,
    )
    models: dict[str, Any] = {}
    for name, encoding in encodings.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            models[name] = LlamaForCausalLM(LlamaConfig(**config)).eval()
        if encoding is not None:
            apply(models[name], encoding)
    return models


def _errors(models: dict[str, Any], ids: Tensor) -> dict[str, float | None]:
    errors: dict[str, float | None] = {}
    for name, model in models.items():
        full_pass = model(ids, use_cache=False).logits[:, -1]
        cache = model(ids[:, :-1]).past_key_values
        step = model(ids[:, -1:], past_key_values=cache).logits[:, -1]
        expected = models[LIMIT](ids, use_cache=False).logits[:, -1]
        differs = [full_pass - step] + ([full_pass - expected] if name.endswith("half") else [])
        error = max(float(difference.abs().max() / full_pass.abs().max()) for difference in differs)
        assert error < 1e-4, f"{name} is {error} off"
        errors[name] = error
    return errors


def _prefill(model: Any, ids: Tensor) -> Callable[[], object]:
    return lambda: model(ids, use_cache=False, logits_to_keep=1)


def _step(model: Any, ids: Tensor) -> Callable[[], object]:
    cache = model(ids, logits_to_keep=1).past_key_values

    def step() -> None:
        model(ids[:, :1], past_key_values=cache)
        cache.crop(-1)

    return step
