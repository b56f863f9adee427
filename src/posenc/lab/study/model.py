"""A small transformer with any encoding in it: everything but the encoding equal to the bit.

    x = embedding(token);  each block: x + attention(norm(x)), then x + mlp(norm(x));  head(norm(x))

Norms come first, and the head is not tied to the embedding. Embeddings are drawn with variance 1,
so that sinusoids, of variance 1/2, neither drown in them nor drown them. An additive encoding is
added once, below the first block; all others have an instance of their own in each layer.
"""

from collections.abc import Callable, Iterator
from math import sqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posenc.attention.block import Block
from posenc.attention.cache import Cache
from posenc.attention.layer import SelfAttention
from posenc.core.check_positions import check_sizes
from posenc.core.encoding import Encoding, Sum, leaves
from posenc.core.masks import Mask
from posenc.core.shapes import Points
from posenc.encodings.nope import NoPE
from posenc.lab.study.cell import Profile
from posenc.support.arguments import count

Tokens = Int[Tensor, "text token"]
Logits = Float[Tensor, "text token symbol"]


class Transformer(nn.Module):
    """Say something at each token: `Transformer(symbols, Profile(), lambda: RoPE(16))(tokens)`.

    A decoder sees what came before, and says what comes next; with `both_ways` it is an encoder.

    `make` is called for each layer, after `encoding_seed`; all else is drawn after `seed`, in an
    order that the encoding does not change.
    """

    def __init__(
        self,
        symbols: int,
        profile: Profile,
        make: Callable[[], Encoding],
        seed: int = 0,
        encoding_seed: int = 0,
        oracle: bool = False,
        both_ways: bool = False,
    ):
        super().__init__()
        width, heads = profile.width, profile.heads
        self.embedding = nn.Embedding(count(symbols, "symbols"), width)
        self.told = nn.Embedding(symbols, width) if oracle else None
        blocks = [Block(width, heads, NoPE(), causal=not both_ways) for _ in range(profile.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)
        _draw(self, profile.layers, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(encoding_seed)
            for layer, block in enumerate(blocks):
                encoding = make()
                check_sizes(encoding, heads, width // heads, width)
                block.attention.encoding = encoding if layer == 0 else _within(encoding)
        self.axes = blocks[0].attention.encoding.axes

    def forward(
        self,
        tokens: Tokens,
        pos: Tensor | None = None,
        mask: Mask | None = None,
        cache: Cache | None = None,
        oracle_targets: Tokens | None = None,
        points: Points | None = None,
    ) -> Logits:
        """Return the logits of the symbol to say at each token."""
        return self.head(self.hidden(tokens, pos, mask, cache, oracle_targets, points))

    def hidden(
        self,
        tokens: Tokens,
        pos: Tensor | None = None,
        mask: Mask | None = None,
        cache: Cache | None = None,
        oracle_targets: Tokens | None = None,
        points: Points | None = None,
    ) -> Float[Tensor, "text token channel"]:
        """Return what the head reads at each token. `oracle_targets` are added to it, if given.

        Positions, (token,) or (text, token), are 0, 1, 2, … where they are left out; an encoding of
        several axes reads (p, p, …), or `points` where they have as many. With a `cache` the tokens
        are those that follow.
        """
        if pos is None:
            start = 0 if cache is None else cache.tokens
            pos = torch.arange(start, start + tokens.shape[-1], device=tokens.device)
        if points is not None and points.shape[-1] == self.axes:
            pos = points
        elif self.axes > 1:
            pos = pos.unsqueeze(-1).expand(*pos.shape, self.axes)
        x = self.embedding(tokens)
        if self.told is not None and oracle_targets is not None:
            x = x + self.told(oracle_targets)
        for block in self.blocks:
            x = block(x, pos, mask, cache=cache)
        return self.norm(x)

    @torch.no_grad()
    def generate(
        self, tokens: Tokens, more: int, pick: Callable[[Tensor], Tensor] | None = None
    ) -> Int[Tensor, "text longer"]:
        """The tokens and as many `more`, one by one through a key cache.

        `pick` chooses from logits (text, symbol); None: the likeliest.
        """
        pick, cache, read = pick or (lambda logits: logits.argmax(-1)), self.new_cache(), tokens
        for _ in range(count(more, "more", 0)):
            given = tokens if cache is None else read
            read = pick(self(given, cache=cache)[:, -1]).unsqueeze(-1)
            tokens = torch.cat((tokens, read), -1)
        return tokens

    def new_cache(self) -> Cache | None:
        """Return an empty cache; None if an encoding depends on the length of the text."""
        return None if any(encoding.by_length for encoding in self.encodings()) else Cache()

    def attentions(self) -> Iterator[SelfAttention]:
        for block in self.blocks:
            assert isinstance(block, Block)
            yield block.attention

    def encodings(self) -> Iterator[Encoding]:
        for layer in self.attentions():
            yield layer.encoding

    @property
    def shared(self) -> dict[str, Tensor]:
        """The weights that do not belong to an encoding."""
        return {name: x for name, x in self.named_parameters() if ".encoding." not in name}


class RoundedLinear(nn.Linear):
    """A linear map whose products are rounded to bfloat16 in training; weights and sums are not.

    Attention is left in float32: torch's CPU kernel takes longer in bfloat16 for texts as short as
    these than all else of a step.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        with torch.autocast(input.device.type, torch.bfloat16):
            return super().forward(input).float()


def round_products(model: nn.Module) -> None:
    """Make the linear maps of a model `RoundedLinear`, but for those of its encodings."""
    for name, module in model.named_modules():
        if type(module) is nn.Linear and ".encoding." not in name:
            module.__class__ = RoundedLinear


def _draw(model: nn.Module, layers: int, seed: int) -> None:
    """Draw all weights anew, in the order of their names.

    Linear maps have a spread of 1/√inputs, which keeps the size of what they read, and those that
    add to x one of 1/√(2 · layers · inputs), for there are 2 · layers of them (GPT-2, §2.3). With
    GPT-2's 0.02, small here, copying took six times as many steps to learn.
    """
    random = torch.Generator().manual_seed(seed)
    for name, module in sorted(model.named_modules()):
        if isinstance(module, nn.Linear):
            adds = name.endswith(("attention.out", "mlp.2"))
            spread = 1 / sqrt(module.in_features * (2 * layers if adds else 1))
            nn.init.normal_(module.weight, std=spread, generator=random)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, generator=random)


def _within(encoding: Encoding) -> Encoding:
    """Select the parts of an encoding for layers above the first: all but those that add to
    embeddings."""
    parts = [leaf for leaf in leaves(encoding) if "on_embeddings" not in leaf.acts_on]
    if len(parts) == len(leaves(encoding)):
        return encoding
    rest = parts[0] if len(parts) == 1 else Sum(*parts) if parts else NoPE()
    rest.axes = encoding.axes
    return rest
