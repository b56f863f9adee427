"""Documents packed in one row: each attends to itself, by whichever path serves it.

    causal() & documents(ids),   ids = 0 0 0 1 1:   queries 0 … 2 see keys 0 … 2, queries 3 … 4 see
                                                    keys 3 … 4; scores of other pairs are not made

Where the tokens of each document lie side by side, it is a text of its own: its mask is a strip
along the diagonal, if one of all documents would be, and its bias goes by its own positions.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.spacing import strip
from posenc.compat.tracing import is_eager_cpu
from posenc.core.biases import ALL
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask
from posenc.core.prepared import Prepared, select_batch, slice_tokens, where_tokens

# Scores that one call for all documents computes in the time that one more call costs.
WORTH_CUTTING = 2**17


class Run(NamedTuple):
    """The queries of a document, and its keys, of which there may be none."""

    rows: slice
    keys: slice


def apart(call: Call) -> list[list[Call]]:
    """A call for each document of each text; of all texts at once, where documents lie alike.

    Empty where the mask keeps no documents apart, where their tokens are scattered, or where
    documents are so many and so short that one call of all is faster.
    """
    mask, scores = call.mask, prod(call.shape)
    if call.implementation != "auto" or not call.readable or not scores or scores < WORTH_CUTTING:
        return []
    if not isinstance(mask, Mask) or not mask.ids or not _can_be_cut(call):
        return []
    by_text = _runs_by_text(mask)
    if all([runs == by_text[0] for runs in by_text]):
        by_text = by_text[:1]
    if not all(by_text) or sum(map(len, by_text)) * WORTH_CUTTING > scores:
        return []
    if len(by_text) == 1:
        return [_calls(call, mask, by_text[0], ALL)]
    q, k, v = (x.split(1) for x in (call.q, call.k, call.v))
    texts, where = [], where_tokens(call.encoding.axes)
    for n, runs in enumerate(by_text):
        take = partial(select_batch, texts=torch.tensor([n]), where=where)
        text = _placed(call._replace(q=q[n], k=k[n], v=v[n]), take, take)
        texts.append(_calls(text, mask, runs, slice(n, n + 1)))
    return texts


def _can_be_cut(call: Call) -> bool:
    """Test whether what all hooks know of tokens is positions or `Prepared`, whose axes are known.

    An encoding of one's own may prepare anything.
    """
    for leaf, acts_on, *ats in call.parts:
        bare = type(leaf).prepare is Encoding.prepare and "on_hidden" not in acts_on
        if not all([bare or at is None or isinstance(at, Prepared) for at in ats]):
            return False
    return True


def _runs_by_text(mask: Mask) -> list[list[Run]]:
    """The runs of each text, or of all, in the order of queries; none where there are no runs."""
    sides = [*zip(*[(same.q_ids, same.k_ids) for same in mask.ids], strict=True)]
    if not all([is_eager_cpu(*side) for side in sides]):
        return [[]]
    # Documents that differ from head to head cannot be cut out of all heads at once
    if any([ids.ndim > 2 for side in sides for ids in side]):
        return [[]]
    # (mask, text, token): documents are apart if one of the masks says so
    ids = [torch.stack(torch.broadcast_tensors(*map(torch.atleast_2d, side))) for side in sides]
    texts = max([x.shape[1] for x in ids])
    of_queries, of_keys = (x.expand(-1, texts, -1).unbind(1) for x in ids)
    return [_runs(*both) for both in zip(of_queries, of_keys, strict=True)]


def _runs(q_ids: Tensor, k_ids: Tensor) -> list[Run]:
    """The runs of one text, from ids (mask, token); none where the keys of a document are two."""
    keys = _documents(k_ids)
    keys_of = dict(keys)
    if len(keys_of) < len(keys):
        return []
    return [Run(rows, keys_of.get(of, slice(0, 0))) for of, rows in _documents(q_ids)]


def _documents(ids: Tensor) -> list[tuple[tuple[int, ...], slice]]:
    """The ids (mask, token) of neighbours that share them, and their place."""
    starts = [0, *(1 + ids.diff().any(0).nonzero().flatten()).tolist()]
    places = [slice(*ends) for ends in pairwise([*starts, ids.shape[-1]])]
    return list(zip(map(tuple, ids[:, starts].T.tolist()), places, strict=True))


def _calls(call: Call, mask: Mask, runs: list[Run], texts: slice) -> list[Call]:
    """The calls of documents of these texts, whose q, k and v are those of the `call`."""
    rows, keys = ([run[side] for run in runs] for side in (0, 1))
    tensors = _pieces(call.q, rows), _pieces(call.k, keys), _pieces(call.v, keys)
    where, calls = where_tokens(call.encoding.axes), []
    for run, q, k, v in zip(runs, *tensors, strict=True):
        takes = [partial(slice_tokens, some=some, where=where) for some in run]
        some = mask.within(*run, texts)
        seen = strip(some, q.shape[-2], k.shape[-2])
        calls.append(_placed(call._replace(q=q, k=k, v=v, mask=some, seen=seen), *takes))
    return calls


def _pieces(x: Tensor, places: list[slice]) -> list[Tensor]:
    """Take tokens of x, which is split once: its gradient is one tensor, not one for each piece."""
    ends = sorted({0, x.shape[2]}.union(*[(place.start, place.stop) for place in places]))
    pieces = dict(zip(ends, x.split([b - a for a, b in pairwise(ends)], 2), strict=False))
    return [pieces[p.start] if p.start < p.stop else x[:, :, :0] for p in places]


def _placed(call: Call, take: Callable[[Any], Any], take_keys: Callable[[Any], Any]) -> Call:
    """The call with what hooks receive of some queries, and of some keys."""
    parts = [
        part._replace(
            at=None if part.at is None else take(part.at),
            k_at=None if part.k_at is None else take_keys(part.k_at),
        )
        for part in call.parts
    ]
    return call._replace(parts=parts)
