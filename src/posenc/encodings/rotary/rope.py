"""RoPE: turn each pair of channels by an angle proportional to the token's position.

    rope(x, p)ⱼ = xⱼ · exp(i p θⱼ)          x read as d/2 complex numbers
    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1     radians per token

The dot product of a query at m and a key at n then depends on m − n only:

    ⟨rope(q, m), rope(k, n)⟩ = Re Σⱼ qⱼ k̄ⱼ exp(i (m − n) θⱼ)

Lengths stay as they are, nothing is learned, and any position will do; that scores fall with
distance is only an upper bound: a key turned by r tokens beforehand is found best r tokens away.

Su et al. 2021, "RoFormer", arXiv:2104.09864, eq. 14-16 and 34.
"""

import torch
from torch import nn

from posenc.core.arguments import number, positive, switch, whole_number
from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, base_of, checked, theta
from posenc.core.shapes import Frequencies, Heads, PerHead, Points, Positions
from posenc.properties.card import ROTATION, Card, Paper
from posenc.rotation.rotate import rotate, rotate_keys
from posenc.rotation.table import Turn, turn


class RoPE(Encoding):
    """`RoPE(64)`, `RoPE(64, base=500_000)`, or with any frequencies: `RoPE(yarn(…))`.

    Partial: `RoPE(16, dim=64)` turns the first 16 of 64 channels and leaves the rest to content;
    with `trailing=True` it turns the last 16, as DeepSeek's heads do.

    Learned θ is read when `prepare` is called: while it trains, call it in every forward.
    """

    prepared = Turn

    def __init__(
        self,
        freqs: int | Frequencies,
        dim: int | None = None,
        gain: float = 1.0,
        layout: Layout = "interleaved",
        trailing: bool = False,
        logit_gain: float = 1.0,
        learned: bool = False,
        base: float | None = None,
    ):
        """`base` is that of θ, 10,000 if None, where `freqs` is a number of channels.

        `gain` scales what turns, as YaRN needs, and `logit_gain` the softmax scale of all
        channels, as DeepSeek does.

        A matrix (axis, pair) as `freqs` turns by points: see `posenc.axial`.

        With `learned`, training moves θ away from `freqs`: the parameter `delta` of the model's
        dtype is added to a constant in float64, so no cast can round the start, and FSDP finds one
        dtype. An nn.Parameter as `freqs` is learned as it is, and can be shared.
        """
        super().__init__()
        self.freqs = theta(freqs, base)
        self.turned = 2 * self.freqs.shape[-1]
        self.dim = self.turned if dim is None else _channels(dim)
        if self.dim < self.turned:
            raise ValueError(f"the frequencies turn {self.turned} channels, `dim` is {self.dim}.")
        self.axes = 1 if self.freqs.ndim == 1 else len(self.freqs)
        self.gain, self.logit_gain = number(gain, "gain"), positive(logit_gain, "logit_gain")
        self.trailing = switch(trailing, "trailing")
        kept = self.dim - self.turned
        self.start = kept * self.trailing if kept else None
        learns = switch(learned, "learned")
        self.delta = nn.Parameter(torch.zeros(self.freqs.shape)) if learns else None
        self.layout: Layout = checked(layout)

    def prepare(self, pos: Positions | Points) -> Turn:
        return turn(pos, self.theta, self.gain)

    @property
    def theta(self) -> Frequencies:
        """The frequencies as they are now, of a learned one too."""
        if self.delta is None:
            return self.freqs
        return self.freqs.to(self.delta.device) + self.delta.double()

    def on_queries(self, q: Heads, at: Turn) -> Heads:
        if q.shape[-1] != self.dim:
            raise ValueError(f"this RoPE is for heads of {self.dim} channels, got {q.shape[-1]}.")
        return rotate(q, at, self.layout, self.start)

    def on_keys(self, k: Heads, at: Turn) -> PerHead:
        return rotate_keys(k, at, self.layout, self.start)

    def scale(self, dim: int) -> float:
        return super().scale(dim) * self.logit_gain

    def extra_repr(self) -> str:
        which = "last" if self.trailing else "first"
        part = "" if self.turned == self.dim else f"{which} {self.turned} of "
        axes = f", {self.axes} axes" if self.axes > 1 else ""
        gain = "" if self.gain == 1 else f", gain={self.gain:g}"
        learned = "" if self.delta is None else ", learned"
        base = base_of(self.freqs)
        return f"{part}{self.dim} channels{axes}{base}, layout={self.layout!r}{gain}{learned}"


def _channels(dim: int) -> int:
    if isinstance(dim, float):
        raise TypeError(
            f"`dim` must be the channels of a head, a whole number, got {dim}: name a base,"
            f" `RoPE(64, base={dim:g})`."
        )
    return whole_number(dim, "dim")


CARD = Card(
    name="RoPE",
    paper=Paper(
        key="su2021roformer",
        title="RoFormer: Enhanced Transformer with Rotary Position Embedding",
        authors="Su, Jianlin and Lu, Yu and Pan, Shengfeng and Murtadha, Ahmed and Wen, Bo"
        " and Liu, Yunfeng",
        year=2021,
        arxiv="2104.09864",
    ),
    used_by="Llama, Qwen, Mistral, Gemma, DeepSeek, Phi",
    make=lambda dim, heads, base=10_000.0, **options: RoPE(dim, base=base, **options),
    holds=ROTATION,
)
