"""Scores of keys that every token between them and a query has changed, by a linear map.

    score(i, j) = scale · qᵢ · (kⱼ C_{j+1} C_{j+2} ⋯ Cᵢ)          C_t: the map that token t says

So keys can be carried: a key that has come past one token after another is multiplied by one matrix
for each chunk of tokens, and queries of the next chunk meet all earlier keys in one dot product.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.compat.tracing import readable, traced
from posenc.core.biases import ScoreBias
from posenc.core.prepared import Prepared
from posenc.core.running_sums import CHUNK, Running
from posenc.core.shapes import Heads, Keys, Scores


class Chunks(NamedTuple):
    """Texts cut in chunks, (batch, head, chunk, …): the last one is filled up.

    `own` are dot products within a chunk, (query, key), right for keys that are not ahead; `q` and
    `k`, (token, channel), are queries carried back to before the first token of their chunk, and
    keys carried past its last one. `step` is the product of the maps of its tokens, (channel,
    channel), or (1, channel) where that is a factor for each channel.
    """

    own: Tensor
    q: Tensor
    k: Tensor
    step: Tensor

    def past(self, keys: Tensor, n: int) -> Tensor:
        """Carry the keys before chunk n, (batch, head, key, channel), past it, and add its own."""
        return torch.cat((carried(keys, self.step[:, :, n]), self.k[:, :, n]), -2)


class CarriedBias(ScoreBias):
    """A bias that with q · k · scale makes the `scores` of some rows and keys.

    `chunks` makes the `Chunks` of queries and keys that are the same tokens; None: they are not.
    """

    def __init__(
        self,
        q: Heads,
        k: Keys,
        scale: float,
        scores: Callable[[slice, slice], Scores],
        chunks: Callable[[], Chunks] | None,
    ):
        self.q, self.k, self.scale, self.scores, self.chunks = q, k, scale, scores, chunks

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Scores:
        content = self.q[..., rows, :] @ self.k[..., keys, :].mT * self.scale
        return self.scores(rows, keys) - content


class Carrying(Running):
    """A base to put before `Prepared`, with `past`, the keys that were carried, as its last field.

    They are keys of the first tokens, (batch, head, key, channel), past the last of these.
    """

    __slots__ = ()
    past: Tensor

    def of(self: Any, some: slice) -> Any:
        """Cut out some of the tokens; keys that were carried past others than these are left."""
        kept = self.past.shape[-2]
        start, stop, _ = some.indices(self.tokens) if kept else (0, 0, 1)
        past = self.past if start == 0 and stop >= kept else self.none()
        rest: Any = Prepared.of(self._replace(past=self.none()), some)
        return rest._replace(past=past)

    def then(self: Any, more: Any) -> Any:
        if not self.tokens:
            return more
        both: Any = Running.then(self._replace(past=self.none()), more)
        return both._replace(past=self.past)

    def none(self) -> Keys:
        return self.past[..., :0, :]

    def settled(self: Any, k: Keys) -> Any:
        """Carry keys past whole chunks, but for the last 64 tokens, which may be cropped again."""
        start, stop = self.past.shape[-2], max(0, self.tokens // CHUNK - 1) * CHUNK
        if traced() or stop <= start:
            return self
        chunks, past = self.chunks(k, slice(start, stop)), self.past
        for n in range(chunks.k.shape[2]):
            past = chunks.past(past, n)
        return self._replace(past=past)

    def chunks(self, k: Keys, some: slice) -> Chunks:
        """The chunks of some of the tokens, whose keys are among k."""
        raise NotImplementedError


def alike(x: Tensor, y: Tensor) -> bool:
    """Test whether what queries and keys were prepared as is the same."""
    return readable(x, y) and x.equal(y)


def in_chunks(x: Tensor) -> Tensor:
    """Cut (…, token, channel) into (…, chunk, token, channel), filled up with the last token."""
    missing = -x.shape[-2] % CHUNK
    if missing:
        x = torch.cat((x, x[..., -1:, :].expand(*x.shape[:-2], missing, -1)), -2)
    return x.unflatten(-2, (-1, CHUNK))


def carried(k: Tensor, step: Tensor) -> Tensor:
    """Carry keys (batch, head, key, channel) past a chunk."""
    return k * step if step.shape[-2] == 1 else k @ step
