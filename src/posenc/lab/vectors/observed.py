"""Measure the complex factors by which an implementation of RoPE multiplies channel pairs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.core.frequencies import split
from posenc.models.config.spec import Rotary, Spec
from posenc.positions.multimodal import multimodal

NEAR = (0, 1, 2, 3, 5, 7, 8, 13, 100, 127, 128, 255, 256, 257, 300, 511, 1000, 2049)
Apply = Callable[[Any, Any, Any], Any]


class Pairs(NamedTuple):
    """The arrangement of channels in rotary pairs, in the input and in the output of a rotation.

    If `across`, pairs are (i, i + dim/2) of the whole head, and the first of them turn.
    """

    layout: str
    dim: int
    turned: int
    start: int
    out: str
    across: bool = False

    def of(self, x: Tensor, side: str) -> Tensor:
        """Return the rotary pairs of `x` as complex numbers (…, pair).

        - `side`: "layout" for the arrangement of pairs in the input, "out" for that in the output
        """
        part = x[..., self._turned()]
        return torch.complex(*split(part, getattr(self, side)))

    def others(self, x: Tensor) -> Tensor:
        """Return the channels of `x` that are not rotated."""
        still = torch.ones(x.shape[-1], dtype=torch.bool)
        still[self._turned()] = False
        return x[..., still]

    def _turned(self) -> Tensor:
        """Return the indices of the channels that are rotated."""
        if not self.across:
            return torch.arange(self.start, self.start + self.turned)
        first = torch.arange(self.turned // 2)
        return torch.cat([first, first + self.dim // 2])


class ProbePositions(NamedTuple):
    """The token positions at which a RoPE implementation is tested.

    - `points`: (batch, token), or (batch, token, axis). All texts have the same positions: the
      first in order, the others not. Only the second begins with a position other than 0
    - `places`: (token,), the place of each token in its text
    """

    points: Tensor
    places: Tensor

    @classmethod
    def of(cls, rotary: Rotary, length: int, beyond: bool = True) -> "ProbePositions":
        points = {*NEAR, length // 2, length - 1, length, length + 5, 2 * length}
        line = torch.tensor(sorted(p for p in points if beyond or p < length))
        order = (7 * torch.arange(len(line)) + 3) % len(line)
        mixed = line[order] if len(line) % 7 else line.flip(0)
        texts = torch.stack([line, mixed, torch.cat([line[:1], line[1:].flip(0)])])
        if rotary.sections:
            axes = torch.arange(len(rotary.sections))
            # Each axis has its own positions, so that pairs show which axis they follow
            points = torch.stack([texts.roll(int(n), -1) for n in axes], -1)
            # The last text has words on both sides of a picture of 2 × 3 tokens
            kinds = torch.tensor([[0] * 3 + [1] * 6 + [0] * (len(line) - 9)])
            pictured = multimodal(kinds, "qwen2_vl", images=[(1, 4, 6)])[0]
            texts = torch.cat([points, pictured[..., : len(axes)]])
        return cls(texts, torch.arange(len(line)))


class Observed:
    """Measurements of the complex factors by which an implementation multiplies rotary pairs.

    Their shape is (batch, head, token, pair).
    """

    def __init__(self, apply: Apply, probe: ProbePositions, rotary: Rotary, spec: Spec):
        self.probe, self.apply = probe, apply
        self.dim, self.heads = rotary.dim, max(1, min(spec.heads, 4))
        self.groups = max(1, min(spec.groups or self.heads, self.heads))
        while self.heads % self.groups:
            self.groups -= 1
        self.contents = [self._content(seed) for seed in (1, 2)]
        self.results = [self._call(q, k) for q, k in self.contents]

    def _content(self, seed: int) -> tuple[Tensor, Tensor]:
        random = torch.Generator().manual_seed(seed)
        batch, tokens = self.probe.points.shape[:2]
        return tuple(
            torch.randn(batch, heads, tokens, self.dim, generator=random)
            for heads in (self.heads, self.groups)
        )  # type: ignore[return-value]

    def _call(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        points, refusals = self.probe.points, []
        # transformers has the axes of positions first
        for pos in [points, points.movedim(-1, 0)][: points.ndim - 1]:
            try:
                return self._checked(q, k, pos)
            except ValueError as error:
                refusals.append(error)
        raise refusals[0]

    def _checked(self, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        """Call the implementation, and check the shapes that it returns."""
        try:
            found = self.apply(q.clone(), k.clone(), pos.clone())
            pair = [torch.as_tensor(x).detach().double().cpu() for x in found]
        except Exception as error:
            raise ValueError(
                f"`apply` must accept q {tuple(q.shape)}, k {tuple(k.shape)} and positions"
                f" {tuple(pos.shape)}, got {type(error).__name__}: {error}"
            ) from error
        if len(pair) != 2 or pair[0].shape != q.shape or pair[1].shape != k.shape:
            raise ValueError(
                f"`apply` must return q of shape {tuple(q.shape)} and k of shape {tuple(k.shape)},"
                f" got {[tuple(x.shape) for x in pair]}. Return q and k with the shapes of the"
                " inputs."
            )
        return pair[0], pair[1]

    def crossed(self) -> list[str]:
        """List the outputs, "queries" or "keys", that depend on the content of the other one."""
        (q, k), (other_q, other_k) = self.contents
        alone = self._call(q, other_k)[0], self._call(other_q, k)[1]
        return [
            name
            for name, x, y in zip(("queries", "keys"), alone, self.results[0], strict=True)
            if not torch.equal(x, y)
        ]

    def multipliers(self, pairs: Pairs, part: int) -> tuple[Tensor, float]:
        """Fit a complex factor to each rotary pair; return the factors and the largest residual.

        The residual is 0 if the factors do not depend on the content of queries and keys.

        - `part`: 0 for queries, 1 for keys

        Pairs that are short in one content are measured in the other.
        """
        ins = [pairs.of(content[part].double(), "layout") for content in self.contents]
        outs = [pairs.of(result[part], "out") for result in self.results]
        # Least squares over both inputs; the residual is the part that depends on the input
        z, w = torch.stack(ins), torch.stack(outs)
        weight = z.abs().square().sum(0)
        m = (w * z.conj()).sum(0) / weight
        left = (w - m * z).abs().square().sum(0) / weight
        moved = [
            pairs.others(out - x[part].double())
            for out, x in ((r[part], c) for r, c in zip(self.results, self.contents, strict=True))
        ]
        outside = max(
            (float(x.abs().nan_to_num(0.0).max()) for x in moved if x.numel()), default=0.0
        )
        return m, max(float(left.sqrt().nan_to_num(0.0).max()), outside)
