"""Choose an implementation of attention: the reference, or a faster one with equal results.

    sdpa       torch's kernel, without a bias
    toeplitz   a window, or a bias with its own tiles, on the CPU: biases of distance or offset at
               equally spaced positions, of gates or counts, or of transported keys
    flex       compiled FlexAttention for any bias of one pair; used by "auto" on CUDA, and only on
               request for inference on the CPU
    blocks     a few queries at a time, recomputed for the gradients
    reference  the definition, in plain tensor operations on all scores at once

`cannot(call)` returns the reason why a path cannot compute a call, and `skips(call)` the reason why
"auto" does not use it. "auto" chooses the first path without a reason, in this order, and
separately for each packed document. On every path the output of a query that sees no key is exactly
0 with finite gradients, and fully masked keys and values have no effect, even if they are NaN.
"""

from dataclasses import dataclass
from itertools import chain
from math import prod

import torch
from torch import Tensor

from posenc.attention.blocks import Blocks
from posenc.attention.call import Call
from posenc.attention.documents import split_documents
from posenc.attention.flex import Flex
from posenc.attention.path import Path
from posenc.attention.reference import Reference
from posenc.attention.sdpa import Sdpa
from posenc.attention.toeplitz import Toeplitz
from posenc.core.biases import ScoreBias, per_query_head
from posenc.core.hooks import bias_of

PATHS: dict[str, Path] = {
    "sdpa": Sdpa(), "toeplitz": Toeplitz(), "flex": Flex(), "blocks": Blocks(),
    "reference": Reference(),
}  # fmt: skip


@dataclass(frozen=True)
class Explanation:
    """The chosen implementation, the reason for the choice, and why others were rejected."""

    path: str
    why: str
    passed: dict[str, str]

    def __str__(self) -> str:
        others = [f"    not {name}: {reason}" for name, reason in self.passed.items()]
        return "\n".join([f"{self.path}: {self.why}", *others])


def run(call: Call) -> Tensor:
    """Choose an implementation, and return the output of attention, (batch, head, query, value).

    Raises ValueError if the requested `implementation` cannot compute the call.
    """
    # Packed documents are not a diagonal band
    if call.seen is None and (texts := split_documents(call)):
        return _joined(call, texts)
    if call.acts_on or call.scale <= 0:
        call = add_bias(call)
    name = call.implementation
    if name == "auto":
        return _first(call, {}).run(call)
    if reason := PATHS[name].cannot(call):
        raise ValueError(
            f'`implementation="{name}"` cannot compute {call.name} here, because {reason}. Use'
            ' "auto".'
        )
    return PATHS[name].run(call)


def chosen(call: Call) -> Explanation:
    """Return the implementation that "auto" chooses, and why earlier ones were rejected."""
    if call.seen is None and (texts := split_documents(call)):
        count, longest = sum(map(len, texts)), max(chain(*texts), key=lambda one: prod(one.shape))
        of_one = chosen(longest)
        why = f"{count} separate calls, the longest by {of_one.path}: {of_one.why}"
        return Explanation("documents", why, of_one.passed)
    passed: dict[str, str] = {}
    call = add_bias(call)
    path = _first(call, passed)
    name = next(name for name, known in PATHS.items() if known is path)
    return Explanation(name, path.why(call), passed)


def add_bias(call: Call) -> Call:
    """Add the bias of `on_scores` to the call, and move the sign of the softmax scale to q."""
    q, k, v, scale, bias = call.q, call.k, call.v, call.scale, None
    if "on_scores" in call.acts_on:
        bias = bias_of(call.parts, q, k, scale)
    if bias is not None and call.implementation != "reference" and call.softcap is None:
        in_parts = call.implementation in ("auto", "toeplitz") and call.readable and call.plain
        if type(bias).absorbed is not ScoreBias.absorbed:
            q, k, bias = bias.absorbed(q, k, not in_parts)
    # The hooks may have returned different numbers of heads for k and v
    if k.shape[1] != v.shape[1]:
        k, v = per_query_head(k, q), per_query_head(v, q)
    # torch's kernels multiply the −∞ of masked keys by the scale, so its sign matters
    if scale <= 0:
        q, scale = (-q, -scale) if scale < 0 else (q * 0, 1.0)
    return call._replace(q=q, k=k, v=v, scale=scale, bias=bias)


def _joined(call: Call, texts: list[list[Call]]) -> Tensor:
    """Compute attention for each document of a packed batch, and concatenate the outputs."""
    if call.trains:
        return torch.cat([torch.cat([*map(run, documents)], -2) for documents in texts])
    # Outputs are written in place, because a list of them would need the same memory again
    out = call.v.new_empty(*call.q.shape[:-1], call.v.shape[-1])
    for text, documents in zip(out.split(len(texts[0][0].q)), texts, strict=True):
        places = text.split([len(one.q[0, 0]) for one in documents], -2)
        for place, one in zip(places, documents, strict=True):
            place.copy_(run(one))
    return out


def _first(call: Call, passed: dict[str, str]) -> Path:
    """Return the first implementation that can compute the call, and why each earlier one cannot.

    `passed` receives the reasons by name.
    """
    for name, path in PATHS.items():
        reason = path.skips(call) or path.cannot(call)
        if not reason:
            return path
        passed[name] = reason
    raise AssertionError("`Reference` must accept every call, but rejected one. Please report it.")
