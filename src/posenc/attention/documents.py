"""Split a call on packed documents into one call per document.

    causal() & documents(ids),   ids = 0 0 0 1 1:   queries 0 … 2 see keys 0 … 2, queries 3 … 4 see
                                                    keys 3 … 4; other scores are not computed

The tokens of each document must be contiguous. Then each document is a separate text: the rest of
the mask may be a diagonal band there, and faster paths apply.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.spacing import diagonal_band
from posenc.compat.tracing import is_eager_cpu
from posenc.core.biases import ALL
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask
from posenc.core.prepared import Prepared, select_batch, slice_tokens, where_tokens

# Number of scores that take as long as the overhead of one more call
WORTH_CUTTING = 2**17


class DocumentSpan(NamedTuple):
    """The slice of queries and the slice of keys of one document; a document may have no keys."""

    rows: slice
    keys: slice


def split_documents(call: Call) -> list[list[Call]]:
    """Split a call on packed texts into one call per document; return a list of calls per text.

    Texts with the same documents stay in one batch and share a list.

    The result is empty if the mask has no documents, if their tokens are not contiguous, or if
    documents are so short that a single call is faster.
    """
    mask, scores = call.mask, prod(call.shape)
    if call.implementation != "auto" or not call.readable or not scores or scores < WORTH_CUTTING:
        return []
    if not isinstance(mask, Mask) or not mask.ids or not _can_be_cut(call):
        return []
    by_text = _spans_by_text(mask)
    if all([spans == by_text[0] for spans in by_text]):
        by_text = by_text[:1]
    if not all(by_text) or sum(map(len, by_text)) * WORTH_CUTTING > scores:
        return []
    if len(by_text) == 1:
        return [_calls(call, mask, by_text[0], ALL)]
    q, k, v = (x.split(1) for x in (call.q, call.k, call.v))
    texts, where = [], where_tokens(call.encoding.axes)
    for n, spans in enumerate(by_text):
        take = partial(select_batch, texts=torch.tensor([n]), where=where)
        text = _with_positions(call._replace(q=q[n], k=k[n], v=v[n]), take, take)
        texts.append(_calls(text, mask, spans, slice(n, n + 1)))
    return texts


def _can_be_cut(call: Call) -> bool:
    """Test whether the positions of every encoding in the call can be sliced by tokens.

    `prepare` of other encodings may return any object.
    """
    for leaf, acts_on, *ats in call.parts:
        bare = type(leaf).prepare is Encoding.prepare and "on_hidden" not in acts_on
        if not all([bare or at is None or isinstance(at, Prepared) for at in ats]):
            return False
    return True


def _spans_by_text(mask: Mask) -> list[list[DocumentSpan]]:
    """Return the document spans of each text of a batch.

    The result has a single list if all texts have the same document ids.
    """
    sides = [*zip(*[(same.q_ids, same.k_ids) for same in mask.ids], strict=True)]
    if not all([is_eager_cpu(*side) for side in sides]):
        return [[]]
    # Documents that differ between heads cannot be split for all heads at once
    if any([ids.ndim > 2 for side in sides for ids in side]):
        return [[]]
    # (mask, text, token): tokens are in one document if all masks agree
    ids = [torch.stack(torch.broadcast_tensors(*map(torch.atleast_2d, side))) for side in sides]
    texts = max([x.shape[1] for x in ids])
    of_queries, of_keys = (x.expand(-1, texts, -1).unbind(1) for x in ids)
    return [_spans(*both) for both in zip(of_queries, of_keys, strict=True)]


def _spans(q_ids: Tensor, k_ids: Tensor) -> list[DocumentSpan]:
    """Return the spans of all documents in one text; [] if any document is not contiguous.

    The ids have shape (mask, token).
    """
    keys = _documents(k_ids)
    keys_of = dict(keys)
    if len(keys_of) < len(keys):
        return []
    return [DocumentSpan(rows, keys_of.get(of, slice(0, 0))) for of, rows in _documents(q_ids)]


def _documents(ids: Tensor) -> list[tuple[tuple[int, ...], slice]]:
    """Split tokens into runs of equal document ids, and return the ids and the slice of each run.

    The ids have shape (mask, token); several masks may be combined.
    """
    starts = [0, *(1 + ids.diff().any(0).nonzero().flatten()).tolist()]
    places = [slice(*ends) for ends in pairwise([*starts, ids.shape[-1]])]
    return list(zip(map(tuple, ids[:, starts].T.tolist()), places, strict=True))


def _calls(call: Call, mask: Mask, spans: list[DocumentSpan], texts: slice) -> list[Call]:
    """Split a call into one call for each document span.

    `texts` is the slice of the batch that has these spans.
    """
    rows, keys = ([span[side] for span in spans] for side in (0, 1))
    tensors = _pieces(call.q, rows), _pieces(call.k, keys), _pieces(call.v, keys)
    where, calls = where_tokens(call.encoding.axes), []
    for span, q, k, v in zip(spans, *tensors, strict=True):
        takes = [partial(slice_tokens, some=some, where=where) for some in span]
        some = mask.within(*span, texts)
        seen = diagonal_band(some, q.shape[-2], k.shape[-2])
        causal = seen is not None and seen.is_causal
        part = call._replace(q=q, k=k, v=v, mask=some, seen=seen, causal=causal)
        calls.append(_with_positions(part, *takes))
    return calls


def _pieces(x: Tensor, places: list[slice]) -> list[Tensor]:
    """Split x by tokens in one operation, so that all pieces share one gradient tensor."""
    ends = sorted({0, x.shape[2]}.union(*[(place.start, place.stop) for place in places]))
    pieces = dict(zip(ends, x.split([b - a for a, b in pairwise(ends)], 2), strict=False))
    return [pieces[p.start] if p.start < p.stop else x[:, :, :0] for p in places]


def _with_positions(
    call: Call, take: Callable[[Any], Any], take_keys: Callable[[Any], Any]
) -> Call:
    """Return a copy of the call with sliced positions of queries and keys.

    `take` slices positions of queries, and `take_keys` slices positions of keys.
    """
    parts = [part._replace(at=take(part.at), k_at=take_keys(part.k_at)) for part in call.parts]
    return call._replace(parts=parts)
