"""The transformer of a study; its initial weights are bit-identical for every encoding.

    x = embedding(token);  each block: x + attention(norm(x)), then x + mlp(norm(x));  head(norm(x))

The norms are before each sublayer (pre-norm), and the head is not tied to the embedding. Embeddings
have variance 1, so that they and sinusoids, of variance 1/2, have a similar size. An additive
encoding is added once, before the first block; every layer has its own instance of all others.
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
    """A transformer whose layers use a given positional encoding.

    Example: `Transformer(symbols, Profile(), lambda: RoPE(16))`.

    - `symbols`: size of the vocabulary
    - `profile`: sizes of the model
    - `make`: function that makes the encoding of a layer, called once for each layer
    - `seed`: seed of all weights outside of encodings, drawn in an order that does not depend on
      the encoding
    - `encoding_seed`: seed of the weights of encodings
    - `both_ways`: no causal mask, as in an encoder; the default is a decoder
    """

    def __init__(
        self,
        symbols: int,
        profile: Profile,
        make: Callable[[], Encoding],
        seed: int = 0,
        encoding_seed: int = 0,
        both_ways: bool = False,
    ):
        super().__init__()
        width, heads = profile.width, profile.heads
        self.embedding = nn.Embedding(count(symbols, "symbols"), width)
        blocks = [Block(width, heads, NoPE(), causal=not both_ways) for _ in range(profile.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)
        _draw(self, profile.layers, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(encoding_seed)
            for layer, block in enumerate(blocks):
                encoding = make()
                check_sizes(encoding, heads, width // heads, width)
                later = layer > 0
                block.attention.encoding = _without_additive(encoding) if later else encoding
        self.axes = blocks[0].attention.encoding.axes

    def forward(
        self,
        tokens: Tokens,
        pos: Tensor | None = None,
        mask: Mask | None = None,
        cache: Cache | None = None,
        points: Points | None = None,
    ) -> Logits:
        """Return the logits at each token: (text, token, symbol).

        The arguments are those of `hidden`.
        """
        return self.head(self.hidden(tokens, pos, mask, cache, points))

    def hidden(
        self,
        tokens: Tokens,
        pos: Tensor | None = None,
        mask: Mask | None = None,
        cache: Cache | None = None,
        points: Points | None = None,
    ) -> Float[Tensor, "text token channel"]:
        """Return the output of the last layer at each token, which is the input of the head.

        - `tokens`: numbers of symbols; with a `cache`, those after the cached tokens
        - `pos`: positions, (token,) or (text, token); None: 0, 1, 2, …, or the next ones of the
          cache. An encoding of several axes reads (p, p, …)
        - `mask`: mask besides the model's own
        - `cache`: keys and values of the tokens before
        - `points`: positions with an axis for each of the encoding's; used instead of `pos` if
          their number of axes is that of the encoding
        """
        if pos is None:
            start = 0 if cache is None else cache.tokens
            pos = torch.arange(start, start + tokens.shape[-1], device=tokens.device)
        if points is not None and points.shape[-1] == self.axes:
            pos = points
        elif self.axes > 1:
            pos = pos.unsqueeze(-1).expand(*pos.shape, self.axes)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, pos, mask, cache=cache)
        return self.norm(x)

    @torch.no_grad()
    def generate(self, tokens: Tokens, more: int) -> Int[Tensor, "text longer"]:
        """Append `more` tokens to each text by greedy decoding, with a key–value cache."""
        cache, read = self.new_cache(), tokens
        for _ in range(count(more, "more", 0)):
            given = tokens if cache is None else read
            read = self(given, cache=cache)[:, -1:].argmax(-1)
            tokens = torch.cat((tokens, read), -1)
        return tokens

    def new_cache(self) -> Cache | None:
        """Return an empty key–value cache, or None if an encoding depends on the text's length."""
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
        """The weights that models with different encodings share, by name."""
        return {name: x for name, x in self.named_parameters() if ".encoding." not in name}


class RoundedLinear(nn.Linear):
    """A linear layer whose products are rounded to bfloat16 in training, as by autocast.

    The stored weights and the output are float32; evaluation uses float32 throughout.

    Attention stays in float32: for texts this short, torch's CPU kernel needs more time in bfloat16
    than the rest of a training step together.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        with torch.autocast(input.device.type, torch.bfloat16):
            return super().forward(input).float()


def round_products(model: nn.Module) -> None:
    """Replace the linear layers of a model by `RoundedLinear`, except those in encodings."""
    for name, module in model.named_modules():
        if type(module) is nn.Linear and ".encoding." not in name:
            module.__class__ = RoundedLinear


def _draw(model: nn.Module, layers: int, seed: int) -> None:
    """Initialise all weights at random from one seed, in the order of their names.

    Linear maps have a standard deviation of 1/√inputs, which preserves the size of their input.
    Those whose output is added to x have 1/√(2 · layers · inputs), because there are 2 · layers of
    them (GPT-2, §2.3). With GPT-2's 0.02, which is small here, copying took six times as many steps
    to learn.
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


def _without_additive(encoding: Encoding) -> Encoding:
    """Return the encoding of later layers, without the parts that add to embeddings.

    These parts act before the first layer only.
    """
    parts = [leaf for leaf in leaves(encoding) if "on_embeddings" not in leaf.acts_on]
    if len(parts) == len(leaves(encoding)):
        return encoding
    rest = parts[0] if len(parts) == 1 else Sum(*parts) if parts else NoPE()
    rest.axes = encoding.axes
    return rest
