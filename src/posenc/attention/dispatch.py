"""The ways to compute attention: the definition, and what must equal it, forward and backward.

    sdpa       torch's own kernel; carries no bias
    toeplitz   a window, or a bias that brings its own tiles, on the CPU: of distance or of offsets
               over positions at equal steps, of gates or counts, or of carried keys
    flex       FlexAttention, compiled: any bias of one pair; by itself on CUDA, on request for
               inference on the CPU
    blocks     a few queries at a time, made again for the gradients
    reference  the definition, in plain tensor operations: all scores at once

`serves(call)` says why a way cannot compute a call, "" where it can; `suits(call)` says why "auto"
passes over one that can. "auto" takes the first that does both, in this order, and of packed
documents for each by itself. A query that sees no key gets exactly 0, with finite gradients, and
what stands in keys and values that nobody sees, NaN included, changes nothing.
"""

from dataclasses import dataclass
from itertools import chain
from math import prod

import torch
from torch import Tensor

from posenc.attention.blocks import Blocks
from posenc.attention.call import Call
from posenc.attention.documents import apart
from posenc.attention.flex import Flex
from posenc.attention.path import Path
from posenc.attention.reference import Reference
from posenc.attention.sdpa import Sdpa
from posenc.attention.strided import Strided
from posenc.core.biases import ScoreBias, per_query_head
from posenc.core.hooks import bias_of

PATHS: dict[str, Path] = {
    "sdpa": Sdpa(), "toeplitz": Strided(), "flex": Flex(), "blocks": Blocks(),
    "reference": Reference(),
}  # fmt: skip


@dataclass(frozen=True)
class Explanation:
    """The path that attention takes, why, and what kept it from those before."""

    path: str
    why: str
    passed: dict[str, str]

    def __str__(self) -> str:
        others = [f"    not {name}: {reason}" for name, reason in self.passed.items()]
        return "\n".join([f"{self.path}: {self.why}", *others])


def run(call: Call) -> Tensor:
    """Attend: (batch, head, query, value). Raise ValueError where `implementation` cannot.

    The call is one of encoded queries and keys, whose bias has not been asked for.
    """
    # Documents apart are no strip of pairs
    if call.seen is None and (texts := apart(call)):
        return _joined(call, texts)
    if call.acts_on or call.scale <= 0:
        call = scored(call)
    asked = call.implementation
    if asked == "auto":
        return _first(call, {}).run(call)
    if reason := PATHS[asked].serves(call):
        raise ValueError(
            f'`implementation="{asked}"` cannot carry {call.name} here: {reason}; use "auto".'
        )
    return PATHS[asked].run(call)


def chosen(call: Call) -> Explanation:
    """The path that "auto" takes, and what kept it from those before."""
    if call.seen is None and (texts := apart(call)):
        count, longest = sum(map(len, texts)), max(chain(*texts), key=lambda one: prod(one.shape))
        of_one = chosen(longest)
        why = f"{count} in a row, each by itself, the longest by {of_one.path}: {of_one.why}"
        return Explanation("documents", why, of_one.passed)
    passed: dict[str, str] = {}
    call = scored(call)
    path = _first(call, passed)
    name = next(name for name, known in PATHS.items() if known is path)
    return Explanation(name, path.why(call), passed)


def scored(call: Call) -> Call:
    """Apply `on_scores` to encoded queries and keys: add the bias, and make the scale positive."""
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
    # torch's kernels multiply the −∞ of hidden keys by the scale, and its sign
    if scale <= 0:
        q, scale = (-q, -scale) if scale < 0 else (q * 0, 1.0)
    return call._replace(q=q, k=k, v=v, scale=scale, bias=bias)


def _joined(call: Call, texts: list[list[Call]]) -> Tensor:
    """Attend each document of each text, and put the outputs in their places."""
    if call.trains:
        return torch.cat([torch.cat([*map(run, documents)], -2) for documents in texts])
    # Written in place: kept outputs would take as much memory again.
    out = call.v.new_empty(*call.q.shape[:-1], call.v.shape[-1])
    for text, documents in zip(out.split(len(texts[0][0].q)), texts, strict=True):
        places = text.split([len(one.q[0, 0]) for one in documents], -2)
        for place, one in zip(places, documents, strict=True):
            place.copy_(run(one))
    return out


def _first(call: Call, passed: dict[str, str]) -> Path:
    """The first path that suits a call and serves it; the reasons against others are `passed`."""
    for name, path in PATHS.items():
        reason = path.suits(call) or path.serves(call)
        if not reason:
            return path
        passed[name] = reason
    raise AssertionError("the definition serves every call")
