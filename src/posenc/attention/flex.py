"""Attention by compiled FlexAttention, with the bias as `score_mod` and a block mask.

Tables of a bias are computed outside of the traced function. The CPU supports inference only. A
mask of `posenc.masks` caches its block masks, because these depend on its positions only.
"""

import functools
from collections.abc import Callable
from dataclasses import fields, is_dataclass
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

FEW = 8  # number of cached block masks per mask


class Flex(Path):
    """The implementation "flex": compiled FlexAttention."""

    def cannot(self, call: Call) -> str:
        if call.by_weight:
            return f"{call.name} needs the attention weights, which FlexAttention does not return"
        if call.dropout:
            return "FlexAttention does not support `dropout`"
        if call.sinks is not None:
            return "FlexAttention does not support `sinks`"
        if call.q.device.type == "cpu" and call.trains:
            return "FlexAttention cannot train on the CPU"
        if call.q.dtype == torch.float64:
            return "FlexAttention does not compute in float64"
        if call.bias is not None and not call.bias.compiles and call.q.is_cuda:
            return f"FlexAttention takes too long to compile the bias of {call.name}"
        if call.bias is not None and call.bias.pair() is None:
            return (
                f"the bias of {call.name} is not a function of one pair, which FlexAttention needs"
            )
        return ""

    def skips(self, call: Call) -> str:
        if call.q.device.type != "cuda":
            return "FlexAttention is compiled on a GPU only, because compilation takes long"
        if traced() or transformed():
            return "FlexAttention cannot be compiled within a trace"
        return ""

    def why(self, call: Call) -> str:
        return "FlexAttention compiles the bias as a function of one pair, and skips masked blocks."

    def run(self, call: Call) -> Tensor:
        q, k, v, bias = call.q, call.k, call.v, call.bias
        channels, on_cpu = v.shape[-1], q.device.type == "cpu"
        # On the CPU torch 2.13 reads past the last key if there are 8 or 16 channels, and Triton
        # multiplies at least 16 channels
        least = 32 if on_cpu else 16
        if min(x.shape[-1] for x in (q, v)) < least:
            q, k, v = (F.pad(x, (0, max(0, least - x.shape[-1]))) for x in (q, k, v))
        pair = None if bias is None else bias.pair()
        score = None if pair is None else lambda s, b, h, i, j: s + pair(b, h, i, j).to(s.dtype)
        if call.softcap is not None:
            score = _capped(torch.full((), call.softcap, device=q.device), score)
        visible = None if call.mask is None else block_mask(call.mask, call.shape, q.device)
        # In a trace, the comparison itself would be a symbol
        grouped = True if q.shape[1] != k.shape[1] else False
        out = _compiled(on_cpu)(
            q, k, v, score_mod=score, block_mask=visible, scale=call.scale, enable_gqa=grouped
        )
        return out[..., :channels]


def _capped(cap: Tensor, score: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    """Return a `score_mod` that caps q · k · scale and then adds the bias."""

    def capped(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        s = cap * torch.tanh(s / cap)
        return s if score is None else score(s, b, h, i, j)

    return capped


def block_mask(mask: Mask | Seen, shape: tuple[int, int, int, int], device: torch.device) -> Any:
    """Convert a mask to FlexAttention's block mask; cache the block masks of posenc's own masks."""
    if not isinstance(mask, Mask) or mask.made_of is None or torch.compiler.is_compiling():
        return _new_block_mask(mask, shape, device)
    made = mask.blocks.get((shape, device))
    if made is None:
        # Inference tensors cannot be saved for gradients
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

    of_pair = mask if device.type == "cpu" else _held(mask, device)
    # FlexAttention counts the parameters of the function
    sees = lambda b, h, i, j: of_pair(b, h, i, j)  # noqa: E731
    return create_block_mask(sees, *shape, device=device)  # type: ignore[arg-type]


def _held(part: Any, device: torch.device) -> Any:
    """Return a mask function of posenc with its tensors on `device`, and its numbers as tensors.

    If a number differs from the one before, torch compiles it as a symbol, which FlexAttention does
    not support on CUDA.
    """
    if isinstance(part, Mask):
        return _held(part.sees, device)
    if isinstance(part, Tensor):
        return part.to(device)
    if type(part) is int:
        return torch.full((), part, device=device)
    if type(part).__module__ != Mask.__module__ or not is_dataclass(part):
        return part
    held = {field.name: _held(getattr(part, field.name), device) for field in fields(part)}
    return type(part)(**held)


@functools.cache
def _compiled(on_cpu: bool) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    # On the CPU torch 2.13 generates wrong code for dynamic lengths, so each length is compiled.
    # Past its limit of compilations torch would use the eager form with tokens² of memory.
    compiled = torch.compile(flex_attention, dynamic=False if on_cpu else None)
    return with_recompile_limit(compiled, 1_000)
