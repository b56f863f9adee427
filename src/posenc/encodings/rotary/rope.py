"""RoPE: rotate each pair of channels by an angle proportional to the token's position.

    rope(x, p)ⱼ = xⱼ · exp(i p θⱼ)          x read as d/2 complex numbers
    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1     radians per token

The dot product of a query at m and a key at n then depends on m − n only:

    ⟨rope(q, m), rope(k, n)⟩ = Re Σⱼ qⱼ k̄ⱼ exp(i (m − n) θⱼ)

Rotations preserve norms, there are no parameters, and every position has an angle. Only an upper
bound of the score falls with distance: a head can rotate its keys by r tokens and then attend best
to tokens at distance r.

Su et al. 2021, "RoFormer", arXiv:2104.09864, eq. 14-16 and 34.
"""

import torch
from torch import Tensor, nn

from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, base_of, checked, theta
from posenc.core.shapes import Frequencies, Heads, PerHead, Points, Positions
from posenc.properties.card import ROTATION, Card, paper
from posenc.rotation.rotate import rotate, rotate_keys
from posenc.rotation.table import Turn, turn
from posenc.support.arguments import number, positive, switch, whole_number


class RoPE(Encoding):
    """Rotation of pairs of channels of queries and keys: `RoPE(64)`, or `RoPE(64, base=500_000)`.

    The default layout is "interleaved", as in the paper and in Meta's own files of Llama. Models
    of transformers with Llama's code have the layout "half": `RoPE(128, layout="half")`.

    - `freqs`: number of rotated channels, or their θ in radians per token: (pair,), for instance
      from `posenc.frequencies` or `yarn(…)`, or (axis, pair) for positions that are points, for
      instance from `posenc.axial`. An nn.Parameter is trained, and several modules can share it
    - `dim`: channels of a head; `RoPE(16, dim=64)` rotates the first 16; None: all are rotated
    - `gain`: factor of the rotated channels, 1 by default; YaRN needs another one
    - `layout`: "interleaved" pairs channels 2j and 2j + 1, "half" j and j + d/2 of d rotated ones
    - `trailing`: True rotates the last channels instead of the first, as in DeepSeek's heads
    - `logit_gain`: factor of the softmax scale of all channels, 1 by default; DeepSeek sets it
    - `learned`: True adds a parameter `delta` to θ, initially 0, in the model's dtype; θ stays in
      float64. During training, call `prepare` in every forward pass
    - `base`: base of θ if `freqs` is a number of channels; None: 10,000

    Raises ValueError if the number of rotated channels is odd or above `dim`, and for `base`
    together with a tensor of θ.

    >>> import torch
    >>> q, k = torch.randn(2, 1, 8, 5, 64)
    >>> turned_q, turned_k = RoPE(64, layout="half")(q, k)
    >>> turned_q.shape
    torch.Size([1, 8, 5, 64])

    Su et al. 2021, arXiv:2104.09864, eq. 34.
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
        super().__init__()
        self.freqs = theta(freqs, base)
        self.turned = 2 * self.freqs.shape[-1]
        self.dim = self.turned if dim is None else _channels(dim)
        if self.dim < self.turned:
            raise ValueError(
                f"`dim` must be at least the {self.turned} rotated channels of `freqs`, got"
                f" {self.dim}."
            )
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
        """The frequencies: the initial ones, plus the learned change `delta` if there is one."""
        if self.delta is None:
            return self.freqs
        return self.freqs.to(self.delta.device) + self.delta.double()

    def on_queries(self, q: Heads, at: Turn) -> Heads:
        if q.shape[-1] != self.dim:
            raise ValueError(
                f"`q` must have the {self.dim} channels of this RoPE, got {q.shape[-1]}."
            )
        return rotate(q, at, self.layout, self.start)

    def on_keys(self, k: Heads, at: Turn) -> PerHead:
        return rotate_keys(k, at, self.layout, self.start)

    def moved(self, keys: Heads, by: float | Tensor) -> PerHead:
        """Move already rotated keys to positions p + `by`, for instance in a cache with gaps.

        - `keys`: result of `on_keys`, (batch, head, token, channel)
        - `by`: number added to the positions of all tokens on all axes, or a tensor with the shape
          of positions: (token,), (batch, token) or (batch, head, token); with several axes, (axis,)
          applies to all tokens, and the other shapes have a trailing axis

        exp(i (p + s) θ) = exp(i s θ) · exp(i p θ), so one more rotation suffices. The rotation is
        computed in float32 and rounded once to the dtype of `keys`. Each call adds an error of at
        most ½ ε ‖k‖, with ε = 2⁻⁷ in bfloat16 and 2⁻¹⁰ in float16. Raises ValueError if the keys
        have another number of channels.

        >>> import torch
        >>> rope, k = RoPE(64), torch.randn(1, 2, 3, 64)
        >>> at, later = rope.prepare(torch.arange(3)), rope.prepare(torch.arange(3) + 7)
        >>> torch.testing.assert_close(rope.moved(rope.on_keys(k, at), 7), rope.on_keys(k, later))

        Su et al. 2021, arXiv:2104.09864, eq. 16.
        """
        if keys.shape[-1] != self.dim:
            raise ValueError(
                f"`keys` must have the {self.dim} channels of this RoPE, got {keys.shape[-1]}."
                " Pass keys of one head in the last dimension."
            )
        shift, axes = (
            torch.as_tensor(by, device=keys.device),
            () if self.axes == 1 else (self.axes,),
        )
        if shift.shape in ((), axes):
            shift = shift.expand(keys.shape[-2], *axes)
        # The keys already contain the gain
        return rotate_keys(keys, turn(shift, self.theta), self.layout, self.start)

    def scale(self, dim: int) -> float:
        return super().scale(dim) * self.logit_gain

    def extra_repr(self) -> str:
        part = f"{'last' if self.trailing else 'first'} {self.turned} of "
        part = part if self.turned < self.dim else ""
        axes = f", {self.axes} axes" if self.axes > 1 else ""
        gain = "" if self.gain == 1 else f", gain={self.gain:g}"
        base, learned = base_of(self.freqs), "" if self.delta is None else ", learned"
        return f"{part}{self.dim} channels{axes}{base}, layout={self.layout!r}{gain}{learned}"


def _channels(dim: int) -> int:
    if isinstance(dim, float):
        raise TypeError(
            f"`dim` must be the number of channels of a head, got {dim}. Pass a base by name,"
            f" `RoPE(64, base={dim:g})`."
        )
    return whole_number(dim, "dim")


CARD = Card(
    name="RoPE",
    paper=paper("su2021roformer"),
    used_by="Llama, Qwen, Mistral, Gemma, DeepSeek, Phi",
    make=lambda dim, heads, base=10_000.0, **options: RoPE(dim, base=base, **options),
    holds=ROTATION,
)
