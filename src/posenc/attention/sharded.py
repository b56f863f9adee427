"""Attention over a text whose tokens are shared out among processes, in whatever order.

    k_pos = gathered(pos, -1)                                   # once a forward, for all layers
    mask = causal(pos, k_pos) & documents(ids, gathered(ids, -1))
    out = attend_sharded(q, k, v, encoding, pos, k_pos, mask)   # in each layer

Each process holds the q, k and v of its own tokens and says where these stand; keys and values of
all processes are gathered, and the queries attend to them. An encoding goes by positions alone, so
the result is that of one process, to rounding, for any of them, biases too, and however tokens are
shared out: in one piece, head and tail together, or document by document.

Each process holds k and v of the whole text for the length of a layer, and scores of its own
queries alone. In the backward pass each one's gradients of k and v are summed where they belong.
Those of weights, of the encoding and all others, are of a process's own tokens: sum them over the
group, as DistributedDataParallel does if the loss is each process's part of a mean.
"""

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Num
from torch import Tensor

from posenc.attention.attend import attend
from posenc.core.encoding import Encoding, leaves
from posenc.core.masks import NOWHERE, Mask
from posenc.core.prepared import where_tokens
from posenc.core.shapes import Heads, Keys, Points, Positions, Seen, Values

Group = dist.ProcessGroup
AllPositions = Num[Tensor, "*#texts all_keys"] | Num[Tensor, "*#texts all_keys axis"]


def gathered(x: Tensor, axis: int = -2, group: Group | None = None) -> Tensor:
    """Gather the shards of all processes of the group along an axis, in order of rank.

    All shards are of one shape. A gradient goes back to the shard it belongs to, summed over the
    processes. `axis` is that of the tokens: −2 of keys and values, −1 of positions and ids.
    """
    # Collectives join along the first axis: (…, token, …) -> (token, …) -> (ranks · token, …)
    return _Gathered.apply(x.movedim(axis, 0), group).movedim(0, axis)  # type: ignore


class _Gathered(torch.autograd.Function):
    """All-gather along the first axis; its transpose is the sum that is scattered again."""

    @staticmethod
    def forward(x: Tensor, group: Group | None) -> Tensor:
        gathered_shards = x.new_empty(dist.get_world_size(group) * x.shape[0], *x.shape[1:])
        dist.all_gather_single(gathered_shards, x.contiguous(), group)
        return gathered_shards

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Group | None], output: Tensor) -> None:
        x, ctx.group = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        own = grad.new_empty(ctx.shape)
        dist.reduce_scatter_single(own, grad.contiguous(), group=ctx.group)
        return own, None


def attend_sharded(
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    pos: Positions | Points,
    k_pos: AllPositions | None = None,
    mask: Mask | Seen | None = None,
    group: Group | None = None,
    **how: Any,
) -> Tensor:
    """Attention of this process's queries to the keys and values of all processes of the group.

    q, k, v and `pos` are of the tokens that this process holds, as many as each of the others.
    `k_pos` are the positions of all, `gathered` in order of rank; None: they are gathered here. The
    `mask` is of these queries and all keys, in that order, and made of their positions or ids.
    `how` goes to `attend`: `scale`, `implementation`, `dropout`, `softcap`, `sinks`.

    Raises ValueError for a mask that goes by storage, and for an encoding that reads the input of a
    layer (FoX, PaTH, Wall): it sums over tokens in their order, which no process has.
    """
    _refuse_order(encoding, mask)
    if k_pos is None:
        k_pos = gathered(pos, where_tokens(encoding.axes)[0], group)
    k, v = gathered(k, -2, group), gathered(v, -2, group)
    return attend(q, k, v, encoding, pos, k_pos, mask, **how)


def _refuse_order(encoding: Encoding, mask: Mask | Seen | None) -> None:
    """Refuse what goes by the order of tokens in storage, which shards do not have."""
    for leaf in leaves(encoding):
        if "on_hidden" in leaf.acts_on:
            raise ValueError(
                f"`encoding` must go by positions, {type(leaf).__name__} reads the tokens before"
                " each, which other processes hold: gather x, and use `SelfAttention`."
            )
    if isinstance(mask, Mask) and any(shapes[0] == NOWHERE[0] for shapes in mask.shapes):
        raise ValueError(
            "`mask` must be made of positions or ids, this one counts tokens where they are stored:"
            " pass `causal(pos, k_pos)`, and `documents(ids, gathered(ids, -1))` to hide filling."
        )
