"""Benchmark of a training step of a small decoder: embeddings, attention, MLPs, loss, AdamW.

The limit is the same decoder without positions. The encodings of transformers and others are called
in the same decoder, so only the encoding differs, and each must give the loss of posenc's.
"""

import importlib
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from benchmarks.attention import T5Matrix, alibi_matrix
from benchmarks.results import BenchTable, table
from benchmarks.timing import timed
from posenc.attention.attend import attend
from posenc.core import masks
from posenc.core.encoding import Encoding
from posenc.core.positions import sequence
from posenc.encodings.bias.alibi import ALiBi
from posenc.encodings.bias.t5 import T5Bias
from posenc.encodings.rotary.rope import RoPE

LIMIT = "without positions"
LAYERS, HEADS, DIM, VOCABULARY = 2, 8, 64, 256
BATCH, TOKENS = 1, 2048

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
Begin = Callable[[], Attention]


class DecoderBlock(nn.Module):
    """A pre-norm block: attention, then an MLP of twice the width."""

    def __init__(self, width: int):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, attention: Attention) -> Tensor:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, DIM)).unbind(2)
        mixed = attention(*(t.transpose(1, 2) for t in (q, k, v)))
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.between(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        width = HEADS * DIM
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList([DecoderBlock(width) for _ in range(LAYERS)])

    def forward(self, ids: Tensor, attention: Attention) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, attention)
        return x @ self.tokens.weight.T


def time_training(rounds: int, budget: float) -> BenchTable:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCABULARY, (BATCH, TOKENS + 1), generator=generator)
    ways, skipped = _implementations()
    losses = {name: _loss(_decoder(), ids, begin()).item() for name, begin in ways.items()}
    for name, loss in losses.items():
        expected = losses.get(f"posenc {name.partition(' ')[2]}", loss)
        assert abs(loss - expected) < 1e-4, f"{name} has a loss of {loss}, posenc of {expected}"
    times = timed({name: _step(ids, begin) for name, begin in ways.items()}, rounds, budget)
    case = f"a step: {LAYERS} layers, {HEADS} heads of {DIM}, {BATCH} × {TOKENS:,} tokens"
    return table("training", case, LIMIT, times, skipped)


def _implementations() -> tuple[dict[str, Begin], dict[str, str]]:
    """Return functions that prepare the attention of all layers at the start of a forward pass."""
    pos, t5 = sequence(TOKENS), T5Bias(HEADS, bidirectional=False)
    ways: dict[str, Begin] = {
        LIMIT: lambda: _plain,
        "posenc RoPE, interleaved": lambda: _attend_with(RoPE(DIM), pos),
        "posenc RoPE, half": lambda: _attend_with(RoPE(DIM, layout="half"), pos),
        "posenc ALiBi": lambda: _attend_with(ALiBi(HEADS), pos),
        "posenc T5": lambda: _attend_with(t5, pos),
        "materialised ALiBi": lambda: alibi_matrix,
    }
    try:
        llama = importlib.import_module("transformers.models.llama.modeling_llama")
    except ImportError:
        return ways, {"transformers": "not installed"}
    config = importlib.import_module("transformers").LlamaConfig(
        hidden_size=HEADS * DIM, num_attention_heads=HEADS, max_position_embeddings=TOKENS
    )
    rotary = llama.LlamaRotaryEmbedding(config)

    def begin() -> Attention:
        cos, sin = rotary(torch.empty(1), pos.unsqueeze(0))

        def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k = llama.apply_rotary_pos_emb(q, k, cos, sin)
            return _plain(q, k, v)

        return attention

    ways["transformers RoPE, half"] = begin
    ways["materialised T5"] = lambda: T5Matrix(t5)
    return ways, {}


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def _attend_with(encoding: Encoding, pos: Tensor) -> Attention:
    return partial(attend, encoding=encoding, at=encoding.prepare(pos), mask=masks.causal())


def _decoder() -> Decoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Decoder()


def _loss(decoder: Decoder, ids: Tensor, attention: Attention) -> Tensor:
    return cross_entropy(decoder(ids[:, :-1], attention).flatten(0, 1), ids[:, 1:].flatten())


def _step(ids: Tensor, begin: Begin) -> Callable[[], None]:
    decoder = _decoder()
    optimizer = torch.optim.AdamW(decoder.parameters())

    def step() -> None:
        _loss(decoder, ids, begin()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
