"""FlexAttention, compiled: the bias as `score_mod`, the mask as a block mask.

Tables of a bias are made before, outside of what is traced. On the CPU for inference only. A block
mask is made once for a mask of `posenc.masks`, which keeps it: it follows from its positions alone.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.path import Path
from posenc.compat.private_torch import with_recompile_limit
from posenc.compat.tracing import traced, transformed
from posenc.core.masks import Mask
from posenc.core.shapes import Seen

FEW = 8  # block masks of one mask that are kept: those of its latest shapes


class Flex(Path):
    """FlexAttention, compiled."""

    def serves(self, call: Call) -> str:
        if call.by_weight:
            return "FlexAttention has no place for what is added to the values"
        if call.dropout:
            return "FlexAttention has no place for `dropout`"
        if call.sinks is not None:
            return "FlexAttention has no place for `sinks`"
        if call.q.device.type == "cpu" and call.trains:
            return "FlexAttention cannot train on the CPU"
        if call.q.dtype == torch.float64:
            return "FlexAttention does not compute in float64"
        if call.bias is not None and call.bias.pair() is None:
            return f"FlexAttention asks for the bias of one pair, and {call.name} goes by more"
        return ""

    def suits(self, call: Call) -> str:
        if call.q.device.type != "cuda":
            return "FlexAttention is compiled, which pays on a GPU"
        if traced() or transformed():
            return "FlexAttention is compiled by itself, outside of what is traced"
        return ""

    def why(self, call: Call) -> str:
        return (
            "FlexAttention compiles the bias of a pair and leaves out blocks that the mask hides."
        )

    def run(self, call: Call) -> Tensor:
        q, k, v, bias = call.q, call.k, call.v, call.bias
        channels, on_cpu = v.shape[-1], q.device.type == "cpu"
        # On the CPU torch 2.13 reads past the last key where there are 8 or 16 channels.
        if on_cpu:
            q, k, v = (F.pad(x, (0, max(0, 32 - x.shape[-1]))) for x in (q, k, v))
        pair = None if bias is None else bias.pair()
        score = None if pair is None else lambda s, b, h, i, j: s + pair(b, h, i, j).to(s.dtype)
        if call.softcap is not None:
            score = _capped(call.softcap, score)
        visible = None if call.mask is None else block_mask(call.mask, call.shape, q.device)
        grouped = True if q.shape[1] != k.shape[1] else False  # traced, it would be a symbol
        out = _compiled(on_cpu)(
            q, k, v, score_mod=score, block_mask=visible, scale=call.scale, enable_gqa=grouped
        )
        return out[..., :channels]


def _capped(cap: float, score: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    """A `score_mod` that caps q · k · scale, and then adds the bias, which is not capped."""

    def capped(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        s = cap * torch.tanh(s / cap)
        return s if score is None else score(s, b, h, i, j)

    return capped


def block_mask(mask: Mask | Seen, shape: tuple[int, int, int, int], device: torch.device) -> Any:
    """The block mask of a mask; one of `posenc.masks`, which nobody writes to, keeps a few."""
    if not isinstance(mask, Mask) or mask.made_of is None or torch.compiler.is_compiling():
        return _new_block_mask(mask, shape, device)
    made = mask.blocks.get((shape, device))
    if made is None:
        # An inference tensor could not be saved for gradients
        with torch.inference_mode(False), torch.no_grad():
            made = _new_block_mask(mask, shape, device)
        for earlier in [*mask.blocks][: 1 - FEW]:
            mask.blocks.pop(earlier, None)
        mask.blocks[shape, device] = made
    return made


def _new_block_mask(
    mask: Mask | Seen, shape: tuple[int, int, int, int], device: torch.device
) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    sees = lambda b, h, i, j: mask(b, h, i, j)  # noqa: E731  # its parameters are counted
    return create_block_mask(sees, *shape, device=device)  # type: ignore[arg-type]


@functools.cache
def _compiled(on_cpu: bool) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    # On the CPU torch 2.13 writes wrong code for lengths that vary: compile for each anew. Past its
    # limit of compilations torch would build tokens² instead.
    compiled = torch.compile(flex_attention, dynamic=False if on_cpu else None)
    return with_recompile_limit(compiled, 1_000)
